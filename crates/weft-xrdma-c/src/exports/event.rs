//! What happened, and waiting for it.

use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;
use core::ptr;

use weft_msg::{Event as Heard, Slow};
use weft_xrdma::Event;

use super::milliseconds;
use crate::context::Context;
use crate::failure::{Failure, Outcome, c_text, of_close, status};
use crate::handle::Slab;
use crate::tables::{Channel, Held, Tables, with};
use crate::types::{xrdma_context, xrdma_event, xrdma_event_kind as kind};

/// Moves everything that can move, and says what happened: up to `count` events are put into `events`, the oldest
/// first. It asks the kernel for nothing on the data path and never waits.
///
/// Returns how many events there are, possibly 0.
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
        let room = room.map_err(|_| Failure::argument("room for less than no events"))?;
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
    context.gather(channels, handle)?;
    let mut filled = 0;
    for place in room {
        while let Some(event) = context.events.pop_front() {
            if let Some(told) = tell(context, channels, messages, handle, event)? {
                place.write(told);
                filled += 1;
                break;
            }
        }
    }
    Ok(filled)
}

/// An event as C has it, if it has it.
fn tell(
    context: &mut Context,
    channels: &mut Slab<Channel>,
    messages: &mut Slab<Held>,
    handle: usize,
    event: Event,
) -> Outcome<Option<xrdma_event>> {
    let of = match &event {
        Event::Connected { channel, .. }
        | Event::Channel(
            Heard::Open { channel }
            | Heard::Message { channel, .. }
            | Heard::Delivered { channel, .. }
            | Heard::Closed { channel, .. }
            | Heard::Slow(Slow::Call { channel, .. } | Slow::Answers { channel, .. }),
        ) => context.name_of(*channel),
        _ => None,
    };
    let user_data = of.and_then(|name| channels.get(name).ok()).map(|channel| channel.user_data);
    let name = of.unwrap_or(0);
    let mut told = xrdma_event {
        kind: kind::XRDMA_EVENT_SLOW_POLL,
        error: 0,
        channel: ptr::without_provenance_mut(name),
        user_data: user_data.unwrap_or(ptr::null_mut::<c_void>()),
        msg: ptr::null_mut(),
        number: 0,
        nanos: 0,
        text: c"".as_ptr(),
    };
    match event {
        Event::Connected { ticket, .. } => {
            (told.kind, told.number) = (kind::XRDMA_EVENT_CONNECTED, ticket.number());
        }
        Event::ConnectFailed { ticket, error } => {
            (told.kind, told.number) = (kind::XRDMA_EVENT_CONNECT_FAILED, ticket.number());
            explain(context, &mut told, &error.into());
        }
        Event::Channel(Heard::Open { .. }) => told.kind = kind::XRDMA_EVENT_ACCEPTED,
        Event::Channel(Heard::Message { channel, message }) => {
            told.kind = kind::XRDMA_EVENT_MESSAGE;
            let trace = context.take_trace(channel, &message);
            let held = Held { context: handle, channel: name, message, trace };
            told.msg = ptr::without_provenance_mut(messages.insert(held)?);
        }
        Event::Channel(Heard::Delivered { number, .. }) => {
            (told.kind, told.number) = (kind::XRDMA_EVENT_DELIVERED, number);
        }
        Event::Channel(Heard::Closed { channel, reason }) => {
            told.kind = kind::XRDMA_EVENT_CLOSED;
            let failure = Failure::new(of_close(&reason), reason.to_string());
            explain(context, &mut told, &failure);
            if let Some(name) = context.forget(channel) {
                channels.remove(name)?;
            }
        }
        Event::Channel(Heard::Slow(Slow::Poll { gap })) => {
            (told.kind, told.nanos) = (kind::XRDMA_EVENT_SLOW_POLL, gap.as_nanos());
        }
        Event::Channel(Heard::Slow(Slow::Call { id, took, .. })) => {
            (told.kind, told.number) = (kind::XRDMA_EVENT_SLOW_CALL, id);
            told.nanos = took.as_nanos();
        }
        Event::Channel(Heard::Slow(Slow::Answers { waiting, .. })) => {
            (told.kind, told.number) = (kind::XRDMA_EVENT_SLOW_ANSWERS, waiting.into());
        }
        Event::AcceptFailed { error } => {
            told.kind = kind::XRDMA_EVENT_ACCEPT_FAILED;
            explain(context, &mut told, &error.into());
        }
        _ => return Ok(None),
    }
    Ok(Some(told))
}

/// Says why, for as long as the context keeps the text.
fn explain(context: &mut Context, told: &mut xrdma_event, failure: &Failure) {
    context.texts.push(c_text(&failure.text));
    told.error = -failure.errno;
    told.text = context.texts.last().expect("pushed just now").as_ptr();
}

/// Waits until something happened, `timeout_ms` milliseconds at most, or for ever if that is negative: polling
/// first, then asleep. Signals do not end it.
///
/// Returns 1 if there are events for xrdma_polling(3), 0 if the time is over.
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

/// The descriptor to wait for in a loop of the program's own, with poll(2), select(2) or epoll(7): it is readable
/// when something is to be done with xrdma_process_event(3). Before each wait there is xrdma_arm(3). It is closed
/// with the context.
///
/// # Errors
/// * EINVAL: the context is null, gone, or another thread's.
#[unsafe(no_mangle)]
pub extern "C" fn xrdma_get_event_fd(context: *const xrdma_context) -> c_int {
    status(|| with(|tables| Ok(tables.context(context.addr())?.0.node.event_fd())))
}

/// Gets ready to sleep on xrdma_get_event_fd(3).
///
/// Returns for how many milliseconds at most: the timeout for poll(2). That is 0 when something is to be done first.
///
/// # Errors
/// * EINVAL: the context is null, gone, or another thread's.
#[unsafe(no_mangle)]
pub extern "C" fn xrdma_arm(context: *mut xrdma_context) -> c_int {
    status(|| {
        with(|tables| {
            let handle = context.addr();
            let (context, channels) = tables.context(handle)?;
            context.gather(channels, handle)?;
            if !context.events.is_empty() {
                return Ok(0);
            }
            let sleep = context.node.arm().map_or(0, |sleep| sleep.as_nanos().div_ceil(1_000_000));
            Ok(c_int::try_from(sleep).unwrap_or(c_int::MAX))
        })
    })
}

/// Does what is to be done after a wait for xrdma_get_event_fd(3), whether it is readable or the time was over.
///
/// Returns how many events wait for xrdma_polling(3).
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
            context.gather(channels, handle)?;
            Ok(c_int::try_from(context.events.len()).unwrap_or(c_int::MAX))
        })
    })
}
