//! Protection domains.

use core::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use weft_rnic::ProtectionDomain;

use super::{Object, Shared};
use crate::context::{Context, Opened};
use crate::errno::{EBUSY, number, pointer};
use weft_verbs_abi::*;

#[repr(C)]
pub(super) struct Domain {
    public: Shared<ibv_pd>,
    pub(super) opened: Arc<Opened>,
    pub(super) number: ProtectionDomain,
    /// Number of address handles, which the device does not count.
    pub(super) handles: AtomicU32,
}

// SAFETY: the type is `repr(C)`, and begins with the structure.
unsafe impl Object for Domain {
    type Public = ibv_pd;
}

/// # Safety
/// `context` is open.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    pointer(|| {
        // SAFETY: guaranteed by the caller.
        let opened = unsafe { Context::of(context) }.opened.clone();
        let number = opened.engine.allocate_domain(opened.number)?;
        let public = Shared::new(ibv_pd { context, handle: number.0 });
        Ok(Domain { public, opened, number, handles: AtomicU32::new(0) }.publish())
    })
}

/// # Safety
/// `pd` is allocated.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int {
    number(|| {
        // SAFETY: guaranteed by the caller.
        let domain = unsafe { Domain::of(pd) };
        if domain.handles.load(Ordering::Relaxed) > 0 {
            return Err(EBUSY);
        }
        domain.opened.engine.deallocate_domain(domain.number)?;
        // SAFETY: no object in it is left, and the caller gives it up.
        drop(unsafe { Domain::take(pd) });
        Ok(())
    })
}
