//! Completion channels: descriptors that announce completions.

use core::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::completion_queue::CompletionQueue;
use super::{Object, Shared};
use crate::engine::Channel;
use crate::engine::events::EventQueue;
use crate::errno::{EBUSY, Errno, count, number, pointer};
use weft_verbs_abi::*;

#[repr(C)]
pub(super) struct CompletionChannel {
    public: Shared<ibv_comp_channel>,
    pub(super) queue: Arc<Channel>,
    /// Completion queues that announce here.
    pub(super) users: AtomicU32,
}

// SAFETY: `repr(C)`, and begins with the structure.
unsafe impl Object for CompletionChannel {
    type Public = ibv_comp_channel;
}

#[unsafe(no_mangle)]
extern "C" fn ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel {
    pointer(|| {
        let queue = Arc::new(EventQueue::open().map_err(|error| Errno::from_io(&error))?);
        let public = ibv_comp_channel { context, fd: queue.descriptor(), refcnt: 0 };
        let public = Shared::new(public);
        Ok(CompletionChannel { public, queue, users: AtomicU32::new(0) }.publish())
    })
}

/// # Safety
/// `channel` is made.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    number(|| {
        // SAFETY: as the caller says.
        if unsafe { CompletionChannel::of(channel) }.users.load(Ordering::Relaxed) > 0 {
            return Err(EBUSY);
        }
        // SAFETY: nobody announces there any more, and the caller gives it up.
        drop(unsafe { CompletionChannel::take(channel) });
        Ok(())
    })
}

/// # Safety
/// `channel` is made, and the others have room for a pointer.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    count(|| {
        // SAFETY: as the caller says.
        let queue = unsafe { CompletionChannel::of(channel) }.queue.clone();
        let object = queue.wait().map_err(|error| Errno::from_io(&error))?;
        let about: *mut ibv_cq = core::ptr::with_exposed_provenance_mut(object);
        // SAFETY: a queue takes its events along when it is destroyed, so this one is not.
        unsafe {
            CompletionQueue::of(about.cast()).announced.add();
            cq.write(about);
            cq_context.write((*about).cq_context);
        }
        Ok(0)
    })
}

/// # Safety
/// `cq` is made.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_ack_cq_events(cq: *mut ibv_cq, events: u32) {
    // SAFETY: as the caller says.
    unsafe { CompletionQueue::of(cq.cast()) }.announced.close(events);
}
