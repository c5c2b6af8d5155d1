//! Completion events: the program takes them from a channel and acknowledges them to their completion queue.

use core::ffi::{c_int, c_void};

use super::Object;
use super::channel::CompletionChannel;
use super::completion_queue::CompletionQueue;
use crate::errno::{Errno, count};
use weft_verbs_abi::*;

/// # Safety
/// `channel` exists, and the others have room for a pointer.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    count(|| {
        // SAFETY: guaranteed by the caller.
        let queue = unsafe { CompletionChannel::of(channel) }.queue.clone();
        let object = queue.wait().map_err(|error| Errno::from_io(&error))?;
        let about: *mut ibv_cq = core::ptr::with_exposed_provenance_mut(object);
        // SAFETY: a queue removes its events when it is destroyed, so this one exists.
        unsafe {
            CompletionQueue::of(about.cast()).announced.add();
            cq.write(about);
            cq_context.write((*about).cq_context);
        }
        Ok(0)
    })
}

/// # Safety
/// `cq` exists.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_ack_cq_events(cq: *mut ibv_cq, events: u32) {
    // SAFETY: guaranteed by the caller.
    unsafe { CompletionQueue::of(cq.cast()) }.announced.close(events);
}
