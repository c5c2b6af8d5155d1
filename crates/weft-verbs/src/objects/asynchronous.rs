//! Asynchronous events: all events except completions.

use core::ffi::c_int;

use super::Object;
use super::completion_queue::CompletionQueue;
use super::queue_pair::QueuePair;
use super::shared_receive_queue::SharedQueue;
use crate::context::Context;
use crate::engine::events::Open;
use crate::errno::{Errno, count};
use weft_verbs_abi::*;

/// Returns the object of an event, and its count of open events.
///
/// # Safety
/// The object exists.
unsafe fn about<'a>(kind: u32, object: usize) -> (event_element, Option<&'a Open>) {
    let cq: *mut ibv_cq = core::ptr::with_exposed_provenance_mut(object);
    let (qp, srq): (*mut ibv_qp, *mut ibv_srq) = (cq.cast(), cq.cast());
    // SAFETY: guaranteed by the caller; the kind of event determines the kind of object.
    unsafe {
        let (element, open) = match kind {
            // The event is about the device.
            event_type::DEVICE_FATAL => return (event_element { cq }, None),
            event_type::CQ_ERR => {
                (event_element { cq }, &CompletionQueue::of(cq.cast()).asynchronous)
            }
            event_type::SRQ_ERR | event_type::SRQ_LIMIT_REACHED => {
                (event_element { srq }, &SharedQueue::of(srq).asynchronous)
            }
            _ => (event_element { qp }, &QueuePair::of(qp.cast()).asynchronous),
        };
        (element, Some(open))
    }
}

/// # Safety
/// `context` is open, and `to` has room for an event.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_async_event(
    context: *mut ibv_context,
    to: *mut ibv_async_event,
) -> c_int {
    count(|| {
        // SAFETY: guaranteed by the caller.
        let events = unsafe { Context::of(context) }.opened.events.clone();
        let event = events.wait().map_err(|error| Errno::from_io(&error))?;
        // SAFETY: an object removes its events when it is destroyed, so this one exists.
        unsafe {
            let (element, open) = about(event.kind, event.object);
            open.inspect(|open| open.add());
            to.write(ibv_async_event { element, event_type: event.kind });
        }
        Ok(0)
    })
}

/// # Safety
/// `event` came from `ibv_get_async_event` and is not acknowledged yet.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_ack_async_event(event: *mut ibv_async_event) {
    // SAFETY: guaranteed by the caller; an object's destruction waits for its events to be acknowledged.
    unsafe {
        let ibv_async_event { element, event_type } = *event;
        about(event_type, element.cq.expose_provenance()).1.inspect(|open| open.close(1));
    }
}
