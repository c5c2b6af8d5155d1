//! Completion channels: descriptors that become readable for completion events.

use core::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{Object, Shared};
use crate::engine::Channel;
use crate::engine::events::EventQueue;
use crate::errno::{EBUSY, Errno, number, pointer};
use weft_verbs_abi::*;

#[repr(C)]
pub(super) struct CompletionChannel {
    public: Shared<ibv_comp_channel>,
    pub(super) queue: Arc<Channel>,
    /// Number of completion queues on this channel.
    pub(super) users: AtomicU32,
}

// SAFETY: the type is `repr(C)`, and begins with the structure.
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
/// `channel` exists.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    number(|| {
        // SAFETY: guaranteed by the caller.
        if unsafe { CompletionChannel::of(channel) }.users.load(Ordering::Relaxed) > 0 {
            return Err(EBUSY);
        }
        // SAFETY: no queue uses the channel any more, and the caller gives it up.
        drop(unsafe { CompletionChannel::take(channel) });
        Ok(())
    })
}
