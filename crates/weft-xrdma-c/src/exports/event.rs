//! Functions that poll and wait for events.

use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;
use core::ptr;

use weft_msg::{Event as MsgEvent, Slow};
use weft_xrdma::Event;

use super::milliseconds;
use crate::context::{Channel, Context};
use crate::failure::{Failure, Outcome, c_text, of_close, status};
use crate::handle::Slab;
use crate::tables::{Held, Tables, with};
use crate::types::{xrdma_context, xrdma_event, xrdma_event_kind as kind};

/// Makes progress on all channels and writes up to `count` events to `events`, oldest first. It makes no system calls
/// on the data path and never waits.
///
/// Returns the number of events written, possibly 0.
///
/// # Errors
/// * EINVAL: the context is null, gone, or another thread's; `events` is null; or `count` is negative.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xrdma_polling(
    context: *mut xrdma_context,
    events: *mut xrdma_event,
    count: c_int,
) -> c_int {
    status(|| {
        let room = usize::try_from(count);
        let room = room.map_err(|_| Failure::argument("count is negative"))?;
        if events.is_null() && room > 0 {
            return Err(Failure::argument("events is null: there is nowhere to put them"));
        }
        let room = if room == 0 {
            &mut []
        } else {
            // SAFETY: the header asks for it.
            unsafe { core::slice::from_raw_parts_mut(events.cast::<MaybeUninit<_>>(), room) }
        };
        with(|tables| poll(tables, context.addr(), room))
    })
}

fn poll(
    tables: &mut Tables,
    handle: usize,
    room: &mut [MaybeUninit<xrdma_event>],
) -> Outcome<c_int> {
    let Tables { contexts, channels, messages } = tables;
    let context = contexts.get_mut(handle)?;
    context.texts.clear();
    context.node.poll();
    context.queue_events(channels, handle)?;
    let mut filled = 0;
    for place in room {
        while let Some(event) = context.events.pop_front() {
            if let Some(c_event) = convert(context, channels, messages, handle, event)? {
                place.write(c_event);
                filled += 1;
                break;
            }
        }
    }
    Ok(filled)
}

/// Converts an event to its C structure, if C has a kind for it.
fn convert(
    context: &mut Context,
    channels: &mut Slab<Channel>,
    messages: &mut Slab<Held>,
    handle: usize,
    event: Event,
) -> Outcome<Option<xrdma_event>> {
    let of = match &event {
        Event::Connected { channel, .. }
        | Event::Channel(
            MsgEvent::Open { channel }
            | MsgEvent::Message { channel, .. }
            | MsgEvent::Delivered { channel, .. }
            | MsgEvent::Closed { channel, .. }
            | MsgEvent::Slow(Slow::Call { channel, .. } | Slow::Answers { channel, .. }),
        ) => context.known_handle(*channel),
        _ => None,
    };
    let user_data =
        of.and_then(|handle| channels.get(handle).ok()).map(|channel| channel.user_data);
    let channel_handle = of.unwrap_or(0);
    let mut c_event = xrdma_event {
        kind: kind::XRDMA_EVENT_SLOW_POLL,
        error: 0,
        channel: ptr::without_provenance_mut(channel_handle),
        user_data: user_data.unwrap_or(ptr::null_mut::<c_void>()),
        msg: ptr::null_mut(),
        number: 0,
        nanos: 0,
        text: c"".as_ptr(),
    };
    match event {
        Event::Connected { ticket, .. } => {
            (c_event.kind, c_event.number) = (kind::XRDMA_EVENT_CONNECTED, ticket.number());
        }
        Event::ConnectFailed { ticket, error } => {
            (c_event.kind, c_event.number) = (kind::XRDMA_EVENT_CONNECT_FAILED, ticket.number());
            explain(context, &mut c_event, &error.into());
        }
        Event::Channel(MsgEvent::Open { .. }) => c_event.kind = kind::XRDMA_EVENT_ACCEPTED,
        Event::Channel(MsgEvent::Message { channel, message }) => {
            c_event.kind = kind::XRDMA_EVENT_MESSAGE;
            let trace = context.take_trace(channel, &message);
            let held = Held { context: handle, channel: channel_handle, message, trace };
            c_event.msg = ptr::without_provenance_mut(messages.insert(held)?);
        }
        Event::Channel(MsgEvent::Delivered { number, .. }) => {
            (c_event.kind, c_event.number) = (kind::XRDMA_EVENT_DELIVERED, number);
        }
        Event::Channel(MsgEvent::Closed { channel, reason }) => {
            c_event.kind = kind::XRDMA_EVENT_CLOSED;
            let failure = Failure::new(of_close(&reason), reason.to_string());
            explain(context, &mut c_event, &failure);
            if let Some(ended) = context.forget(channel) {
                channels.remove(ended)?;
            }
        }
        Event::Channel(MsgEvent::Slow(Slow::Poll { gap })) => {
            (c_event.kind, c_event.nanos) = (kind::XRDMA_EVENT_SLOW_POLL, gap.as_nanos());
        }
        Event::Channel(MsgEvent::Slow(Slow::Call { id, took, .. })) => {
            (c_event.kind, c_event.number) = (kind::XRDMA_EVENT_SLOW_CALL, id);
            c_event.nanos = took.as_nanos();
        }
        Event::Channel(MsgEvent::Slow(Slow::Answers { waiting, .. })) => {
            (c_event.kind, c_event.number) = (kind::XRDMA_EVENT_SLOW_ANSWERS, waiting.into());
        }
        Event::AcceptFailed { error } => {
            c_event.kind = kind::XRDMA_EVENT_ACCEPT_FAILED;
            explain(context, &mut c_event, &error.into());
        }
        _ => return Ok(None),
    }
    Ok(Some(c_event))
}

/// Sets the event's error and text; the context keeps the text.
fn explain(context: &mut Context, c_event: &mut xrdma_event, failure: &Failure) {
    context.texts.push(c_text(&failure.text));
    c_event.error = -failure.errno;
    c_event.text = context.texts.last().expect("pushed just now").as_ptr();
}

/// Waits for an event, `timeout_ms` milliseconds at most, or for ever if negative. It polls first, then sleeps.
/// Signals do not end it.
///
/// Returns 1 if there are events for xrdma_polling(3), 0 after the timeout.
///
/// # Errors
/// * EINVAL: the context is null, gone, or another thread's.
#[unsafe(no_mangle)]
pub extern "C" fn xrdma_wait(context: *mut xrdma_context, timeout_ms: c_int) -> c_int {
    status(|| {
        with(|tables| {
            let handle = context.addr();
            let (context, channels) = tables.context(handle)?;
            Ok(context.wait(channels, handle, milliseconds(timeout_ms))?.into())
        })
    })
}

/// Returns the descriptor for the program's own event loop, with poll(2), select(2) or epoll(7). It is readable when
/// xrdma_process_event(3) has work. Call xrdma_arm(3) before each wait. The descriptor is closed with the context.
///
/// # Errors
/// * EINVAL: the context is null, gone, or another thread's.
#[unsafe(no_mangle)]
pub extern "C" fn xrdma_get_event_fd(context: *const xrdma_context) -> c_int {
    status(|| with(|tables| Ok(tables.context(context.addr())?.0.node.event_fd())))
}

/// Prepares to sleep on xrdma_get_event_fd(3).
///
/// Returns the maximum time to sleep in milliseconds, a timeout for poll(2). It is 0 when work is pending.
///
/// # Errors
/// * EINVAL: the context is null, gone, or another thread's.
#[unsafe(no_mangle)]
pub extern "C" fn xrdma_arm(context: *mut xrdma_context) -> c_int {
    status(|| {
        with(|tables| {
            let handle = context.addr();
            let (context, channels) = tables.context(handle)?;
            context.queue_events(channels, handle)?;
            if !context.events.is_empty() {
                return Ok(0);
            }
            let sleep = context.node.arm().map_or(0, |sleep| sleep.as_nanos().div_ceil(1_000_000));
            Ok(c_int::try_from(sleep).unwrap_or(c_int::MAX))
        })
    })
}

/// Processes pending work after a wait for xrdma_get_event_fd(3), both when it is readable and after the timeout.
///
/// Returns the number of events that wait for xrdma_polling(3).
///
/// # Errors
/// * EINVAL: the context is null, gone, or another thread's.
#[unsafe(no_mangle)]
pub extern "C" fn xrdma_process_event(context: *mut xrdma_context) -> c_int {
    status(|| {
        with(|tables| {
            let handle = context.addr();
            let (context, channels) = tables.context(handle)?;
            context.node.process_event();
            context.queue_events(channels, handle)?;
            Ok(c_int::try_from(context.events.len()).unwrap_or(c_int::MAX))
        })
    })
}
