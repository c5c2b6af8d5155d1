//! Memory windows.

use core::ffi::c_int;
use std::sync::Arc;

use weft_rnic::{Bind, Data, Device, Operation, SendRequest, WindowKind};

use super::domain::Domain;
use super::queue_pair::QueuePair;
use super::region::access_of;
use super::{Object, Shared};
use crate::context::Opened;
use crate::errno::{EINVAL, Outcome, number, pointer};
use weft_verbs_abi::*;

#[repr(C)]
pub(super) struct MemoryWindow {
    public: Shared<ibv_mw>,
    opened: Arc<Opened>,
}

// SAFETY: the type is `repr(C)`, and begins with the structure.
unsafe impl Object for MemoryWindow {
    type Public = ibv_mw;
}

/// `IBV_MW_TYPE_1`, `IBV_MW_TYPE_2`.
const TYPES: [WindowKind; 2] = [WindowKind::Type1, WindowKind::Type2];

/// # Safety
/// `pd` is allocated.
pub(crate) unsafe extern "C" fn alloc_mw(pd: *mut ibv_pd, type_: u32) -> *mut ibv_mw {
    pointer(|| {
        let kind = (type_ as usize).checked_sub(1).and_then(|index| TYPES.get(index));
        // SAFETY: guaranteed by the caller.
        let (domain, context) = unsafe { (Domain::of(pd), (*pd).context) };
        let opened = domain.opened.clone();
        let rkey = opened.engine.allocate_window(domain.number, *kind.ok_or(EINVAL)?)?;
        let public = Shared::new(ibv_mw { context, pd, rkey, handle: rkey, type_ });
        Ok(MemoryWindow { public, opened }.publish())
    })
}

/// # Safety
/// `mw` is allocated.
pub(crate) unsafe extern "C" fn dealloc_mw(mw: *mut ibv_mw) -> c_int {
    number(|| {
        // SAFETY: guaranteed by the caller.
        let (window, key) = unsafe { (MemoryWindow::of(mw), (*mw).handle) };
        window.opened.engine.deallocate_window(key)?;
        // SAFETY: the caller gives it up.
        drop(unsafe { MemoryWindow::take(mw) });
        Ok(())
    })
}

/// Returns the binding that a program requests.
///
/// # Safety
/// The region is registered, or null with a length of zero.
pub(super) unsafe fn bind_of(info: &ibv_mw_bind_info) -> Outcome<Bind> {
    // SAFETY: guaranteed by the caller.
    let region = unsafe { info.mr.as_ref() }.map_or(0, |region| region.lkey);
    let access = access_of(info.mw_access_flags)?;
    Ok(Bind { region, address: info.addr, length: info.length, access })
}

/// Returns the operation that binds a window of type 2, which then has the key `rkey`. The current key is in `handle`,
/// which programs do not use; they may write `rkey`.
///
/// # Safety
/// The window is allocated and the region registered.
pub(super) unsafe fn bind_operation(
    mw: *mut ibv_mw,
    rkey: u32,
    info: &ibv_mw_bind_info,
) -> Outcome<Operation> {
    // SAFETY: guaranteed by the caller.
    let (bind, window) = unsafe { (bind_of(info)?, mw.as_mut()) };
    let window = window.filter(|window| window.type_ == 2).ok_or(EINVAL)?;
    let operation = Operation::BindWindow { window: window.handle, key: Some(rkey), bind };
    window.handle = rkey;
    Ok(operation)
}

/// # Safety
/// `qp` and `mw` exist, and `bind` is valid.
pub(crate) unsafe extern "C" fn bind_mw(
    qp: *mut ibv_qp,
    mw: *mut ibv_mw,
    bind: *mut ibv_mw_bind,
) -> c_int {
    number(|| {
        // SAFETY: guaranteed by the caller.
        let (pair, bind, window) = unsafe { (QueuePair::of(qp.cast()), &*bind, &mut *mw) };
        if window.type_ != 1 {
            return Err(EINVAL);
        }
        // SAFETY: guaranteed by the caller.
        let binding = unsafe { bind_of(&bind.bind_info)? };
        let operation = Operation::BindWindow { window: window.handle, key: None, bind: binding };
        let request = SendRequest {
            signaled: bind.send_flags & send_flag::SIGNALED != 0,
            fence: bind.send_flags & send_flag::FENCE != 0,
            ..SendRequest::new(bind.wr_id, operation, Data::Gather(&[]))
        };
        pair.opened.engine.post_sends(pair.number, |post| post(&request))?;
        window.handle = Device::next_window_key(window.handle);
        window.rkey = window.handle;
        Ok(())
    })
}
