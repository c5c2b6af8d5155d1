//! An opened device.

use core::ffi::c_int;
use core::mem::offset_of;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::abi::*;
use crate::device::DEVICE;

/// What a program holds when it has opened the device, and what belongs to it.
#[repr(C)]
pub(crate) struct Context {
    /// Programs hold a pointer to its last field.
    verbs: verbs_context,
    /// Becomes readable with an asynchronous event.
    async_events: OwnedFd,
}

impl Context {
    /// Opens the device; the pointer is good until [`Self::close`].
    pub(crate) fn open() -> std::io::Result<*mut ibv_context> {
        // SAFETY: a new descriptor, or an error.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Err(std::io::Error::last_os_error());
        }
        // SAFETY: nobody else owns a descriptor that was just made.
        let async_events = unsafe { <OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(fd) };
        // SAFETY: functions that may be null, pointers and numbers, of which zero is one.
        let zero: verbs_context = unsafe { core::mem::zeroed() };
        let context = ibv_context {
            device: (&raw const DEVICE.public).cast_mut(),
            cmd_fd: -1,
            async_fd: async_events.as_raw_fd(),
            num_comp_vectors: COMP_VECTORS,
            abi_compat: ABI_EXTENDED,
            ..zero.context
        };
        let verbs = verbs_context {
            query_port: Some(crate::exports::query_port),
            query_device_ex: Some(crate::exports::query_device_ex),
            sz: size_of::<verbs_context>(),
            context,
            ..zero
        };
        let opened = Box::into_raw(Box::new(Self { verbs, async_events }));
        // SAFETY: it was just made.
        Ok(unsafe { &raw mut (*opened).verbs.context })
    }

    /// Closes what [`Self::open`] opened.
    ///
    /// # Safety
    /// It was opened, is not closed yet, and nobody uses it any more.
    pub(crate) unsafe fn close(context: *mut ibv_context) {
        const TO_START: usize = offset_of!(Context, verbs) + offset_of!(verbs_context, context);
        // SAFETY: `open` gave out a pointer to this field of a box.
        drop(unsafe { Box::from_raw(context.byte_sub(TO_START).cast::<Self>()) });
    }
}

/// Threads that completion events may be sent to.
const COMP_VECTORS: c_int = 1;
