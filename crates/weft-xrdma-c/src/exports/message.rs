//! Functions that send, read and release messages.

use core::ffi::{c_int, c_uint, c_void};
use core::ptr;

use weft_msg::{CallRole, ChannelId, Payload};

use super::{milliseconds, room};
use crate::context::{Context, Sending, pointer};
use crate::failure::{Failure, Outcome, contain, status};
use crate::tables::{Held, Tables, with};
use crate::types::{XRDMA_LENT, xrdma_channel, xrdma_msg, xrdma_msg_kind, xrdma_trace};

/// Sends a one-way message. Its body is copied, unless `flags` has XRDMA_LENT.
///
/// Returns the message's number, which is positive and unique in the context.
///
/// # Errors
/// * EINVAL: the channel is null, gone, or another thread's; `data` is null; or a flag does not exist.
/// * ENOTCONN: the channel is closed or closing.
/// * EAGAIN: the queue of waiting messages is full (`backlog`): poll, and try again.
/// * EMSGSIZE: the body is longer than the peer's maximum (`longest`).
/// * ENOMEM: the context has no memory left (`memory_limit`).
/// * EFAULT: XRDMA_LENT, and the body is not in registered memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xrdma_send_msg(
    channel: *mut xrdma_channel,
    data: *const c_void,
    len: usize,
    flags: c_uint,
) -> i64 {
    // SAFETY: the header asks for it.
    unsafe { send(channel, Sending::OneWay, data, len, flags) }
}

/// Sends a request: a message of kind XRDMA_MSG_RESPONSE follows, with the number that this call returns, or
/// XRDMA_EVENT_CLOSED. xrdma_call(3) waits for the response.
///
/// # Errors
/// As xrdma_send_msg(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xrdma_send_request(
    channel: *mut xrdma_channel,
    data: *const c_void,
    len: usize,
    flags: c_uint,
) -> i64 {
    // SAFETY: the header asks for it.
    unsafe { send(channel, Sending::Request, data, len, flags) }
}

/// Answers a request that arrived on this channel: `request` is its number, from xrdma_msg_number(3). The request may
/// have been released.
///
/// Returns the response's number.
///
/// # Errors
/// As xrdma_send_msg(3), and
/// * ENOENT: there is no such request, or it was answered.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xrdma_send_response(
    channel: *mut xrdma_channel,
    request: u64,
    data: *const c_void,
    len: usize,
    flags: c_uint,
) -> i64 {
    // SAFETY: the header asks for it.
    unsafe { send(channel, Sending::Response(request), data, len, flags) }
}

/// Sends a request and waits for its response, `timeout_ms` milliseconds at most, or for ever if that is negative.
/// Other events stay for xrdma_polling(3).
///
/// # Errors
/// As xrdma_send_msg(3), and
/// * ETIMEDOUT: no response arrived in time; a later one is dropped.
/// * EPIPE, ECONNRESET, ENOTCONN: the channel ended. XRDMA_EVENT_CLOSED follows.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xrdma_call(
    channel: *mut xrdma_channel,
    data: *const c_void,
    len: usize,
    flags: c_uint,
    timeout_ms: c_int,
    response: *mut *mut xrdma_msg,
) -> c_int {
    status(|| {
        // SAFETY: the header asks for it.
        let place = unsafe { room(response, "the response") }?;
        let handle = channel.addr();
        let message = with(|tables| {
            let Tables { contexts, channels, messages } = tables;
            let (of, id) = (channels.get(handle)?.context, channels.get(handle)?.id);
            let context = contexts.get_mut(of)?;
            // SAFETY: likewise.
            let body = unsafe { payload(context, data, len, flags) }?;
            let message = context.call(channels, of, id, body, milliseconds(timeout_ms))?;
            let trace = context.take_trace(id, &message);
            messages.insert(Held { context: of, channel: handle, message, trace })
        })?;
        place.write(ptr::without_provenance_mut(message));
        Ok(0)
    })
}

/// Cancels a request of xrdma_send_request(3): its response is dropped if it arrives.
///
/// # Errors
/// * EINVAL: the channel is null, gone, or another thread's.
#[unsafe(no_mangle)]
pub extern "C" fn xrdma_forget(channel: *mut xrdma_channel, request: u64) -> c_int {
    status(|| {
        with(|tables| {
            let (context, id) = tables.channel(channel.addr())?;
            context.node.context().cancel(id, request);
            Ok(0)
        })
    })
}

/// Declines to answer a request that arrived on this channel. The requester is not notified; but only `unanswered`
/// requests can be pending at a time, and a declined one no longer counts.
///
/// # Errors
/// * EINVAL: the channel is null, gone, or another thread's.
#[unsafe(no_mangle)]
pub extern "C" fn xrdma_decline(channel: *mut xrdma_channel, request: u64) -> c_int {
    status(|| {
        with(|tables| {
            let (context, id) = tables.channel(channel.addr())?;
            let now = context.node.now();
            context.node.context().decline(now, id, request);
            Ok(0)
        })
    })
}

/// Returns the body of a message, which is valid until the message is released.
///
/// # Errors
/// Returns null if the message is null, released, or another thread's.
#[unsafe(no_mangle)]
pub extern "C" fn xrdma_msg_data(msg: *const xrdma_msg) -> *const c_void {
    let act = |held: &Held| ptr::with_exposed_provenance(pointer(held.message.body()));
    inspect(msg, act, ptr::null())
}

/// Returns the length of a message's body in bytes.
///
/// # Errors
/// Returns 0 if the message is null, released, or another thread's.
#[unsafe(no_mangle)]
pub extern "C" fn xrdma_msg_len(msg: *const xrdma_msg) -> usize {
    inspect(msg, |held| held.message.len() as usize, 0)
}

/// Returns the kind of a message: one-way, request or response.
///
/// # Errors
/// Returns XRDMA_MSG_NONE if the message is null, released, or another thread's.
#[unsafe(no_mangle)]
pub extern "C" fn xrdma_msg_kind_of(msg: *const xrdma_msg) -> xrdma_msg_kind {
    let kind = |held: &Held| match held.message.call {
        CallRole::OneWay => xrdma_msg_kind::XRDMA_MSG_ONE_WAY,
        CallRole::Request(_) => xrdma_msg_kind::XRDMA_MSG_REQUEST,
        CallRole::Response(_) => xrdma_msg_kind::XRDMA_MSG_RESPONSE,
    };
    inspect(msg, kind, xrdma_msg_kind::XRDMA_MSG_NONE)
}

/// Returns the number of a request, as its sender numbered it, or of the request that a response answers.
///
/// # Errors
/// Returns 0 for one-way messages, and if the message is null, released, or another thread's.
#[unsafe(no_mangle)]
pub extern "C" fn xrdma_msg_number(msg: *const xrdma_msg) -> u64 {
    let number = |held: &Held| match held.message.call {
        CallRole::OneWay => 0,
        CallRole::Request(id) | CallRole::Response(id) => id,
    };
    inspect(msg, number, 0)
}

/// Returns the channel on which a message arrived, which may be gone.
///
/// # Errors
/// Returns null if the message is null, released, or another thread's.
#[unsafe(no_mangle)]
pub extern "C" fn xrdma_msg_channel(msg: *const xrdma_msg) -> *mut xrdma_channel {
    let channel = |held: &Held| ptr::without_provenance_mut(held.channel);
    inspect(msg, channel, ptr::null_mut())
}

/// Releases a message and its memory.
///
/// # Errors
/// * EINVAL: the message is null, released, or another thread's.
#[unsafe(no_mangle)]
pub extern "C" fn xrdma_msg_release(msg: *mut xrdma_msg) -> c_int {
    status(|| {
        with(|tables| {
            let held = tables.messages.remove(msg.addr())?;
            tables.contexts.get_mut(held.context)?.release(held.message);
            Ok(0)
        })
    })
}

/// Writes the times of a call to `trace`: `response` is its response. One request in `trace_every` is traced, see
/// xrdma_set_flag(3); 1 traces every request.
///
/// # Errors
/// * EINVAL: the response is null, released, or another thread's; or `trace` is null.
/// * ENODATA: the call was not traced, or the message is not a response.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xrdma_trace_request(
    response: *const xrdma_msg,
    trace: *mut xrdma_trace,
) -> c_int {
    status(|| {
        // SAFETY: the header asks for it.
        let place = unsafe { room(trace, "the trace") }?;
        let time = with(|tables| Ok(tables.messages.get(response.addr())?.trace))?;
        let why = "the call was not traced: set trace_every to 1 before it";
        let time = time.ok_or_else(|| Failure::new(libc::ENODATA, why))?;
        place.write(xrdma_trace {
            request_ns: time.request.as_nanos(),
            peer_ns: time.peer.as_nanos(),
            response_ns: time.response.as_nanos(),
            offset_ns: time.offset,
        });
        Ok(0)
    })
}

/// Sends a message and returns its number, or a negative error number.
///
/// # Safety
/// As [`payload`].
unsafe fn send(
    channel: *mut xrdma_channel,
    how: Sending,
    data: *const c_void,
    len: usize,
    flags: c_uint,
) -> i64 {
    let act = || {
        with(|tables| {
            let (context, id): (_, ChannelId) = tables.channel(channel.addr())?;
            // SAFETY: as the caller promises.
            let body = unsafe { payload(context, data, len, flags) }?;
            Ok(context.send(id, how, body)?.cast_signed())
        })
    };
    contain(act, i64::from)
}

/// Returns the body given by a pointer, a length and flags.
///
/// # Safety
/// `data` is null or of `len` bytes.
unsafe fn payload<'a>(
    context: &Context,
    data: *const c_void,
    len: usize,
    flags: c_uint,
) -> Outcome<Payload<'a>> {
    match flags {
        XRDMA_LENT => Ok(Payload::Lent(context.lent_slice(data.addr(), len)?)),
        0 if len == 0 => Ok(Payload::Copy(&[])),
        0 if data.is_null() || isize::try_from(len).is_err() => {
            Err(Failure::argument(format!("{len} bytes at {data:p} are no body")))
        }
        // SAFETY: as the caller promises. A body within the context's own memory does not overlap the copy's target.
        0 => Ok(Payload::Copy(unsafe { core::slice::from_raw_parts(data.cast(), len) })),
        _ => Err(Failure::argument(format!("flags are {flags:#x}; there is only XRDMA_LENT"))),
    }
}

/// Returns the result of `read` for a message of the program, or `otherwise` if the handle is invalid.
fn inspect<T>(msg: *const xrdma_msg, read: impl FnOnce(&Held) -> T, otherwise: T) -> T {
    let act = || with(|tables| Ok(read(tables.messages.get(msg.addr())?)));
    contain(act, |_| otherwise)
}
