//! Asynchronous events: what happened that is no completion.

use core::ffi::c_int;

use super::Object;
use super::completion_queue::CompletionQueue;
use super::queue_pair::QueuePair;
use super::shared_receive_queue::SharedQueue;
use crate::context::Context;
use crate::engine::events::Open;
use crate::errno::{Errno, count};
use weft_verbs_abi::*;

/// What an event is about, and where it is counted.
///
/// # Safety
/// The object is made.
unsafe fn about<'a>(kind: u32, object: usize) -> (event_element, Option<&'a Open>) {
    let cq: *mut ibv_cq = core::ptr::with_exposed_provenance_mut(object);
    let (qp, srq): (*mut ibv_qp, *mut ibv_srq) = (cq.cast(), cq.cast());
    // SAFETY: as the caller says; the kind of event tells the kind of object.
    unsafe {
        let (element, open) = match kind {
            // About the device.
            event_type::DEVICE_FATAL => return (event_element { cq }, None),
            event_type::CQ_ERR => (event_element { cq }, &CompletionQueue::of(cq.cast()).told),
            event_type::SRQ_ERR | event_type::SRQ_LIMIT_REACHED => {
                (event_element { srq }, &SharedQueue::of(srq).told)
            }
            _ => (event_element { qp }, &QueuePair::of(qp.cast()).told),
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
        // SAFETY: as the caller says.
        let events = unsafe { Context::of(context) }.opened.events.clone();
        let event = events.wait().map_err(|error| Errno::from_io(&error))?;
        // SAFETY: an object takes its events along when it is destroyed, so this one is not.
        unsafe {
            let (element, open) = about(event.kind, event.object);
            open.inspect(|open| open.add());
            to.write(ibv_async_event { element, event_type: event.kind });
        }
        Ok(0)
    })
}

/// # Safety
/// `event` was got and is not acknowledged yet.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_ack_async_event(event: *mut ibv_async_event) {
    // SAFETY: as the caller says; an object waits for its events to be acknowledged.
    unsafe {
        let ibv_async_event { element, event_type } = *event;
        about(event_type, element.cq.expose_provenance()).1.inspect(|open| open.close(1));
    }
}
