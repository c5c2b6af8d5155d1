//! Shared receive queues.

use core::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use weft_rnic::{ReceiveRequest, SharedReceiveQueue};

use super::domain::Domain;
use super::work::post_receives;
use super::{Object, Shared};
use crate::context::Opened;
use crate::engine::events::Open;
use crate::errno::{EINVAL, EOPNOTSUPP, Outcome, number, pointer};
use weft_verbs_abi::*;

#[repr(C)]
pub(super) struct SharedQueue {
    public: Shared<ibv_srq>,
    pub(super) opened: Arc<Opened>,
    pub(super) number: SharedReceiveQueue,
    pub(super) asynchronous: Open,
    max_wr: u32,
    max_sge: u32,
    limit: AtomicU32,
}

// SAFETY: the type is `repr(C)`, and begins with the structure.
unsafe impl Object for SharedQueue {
    type Public = ibv_srq;
}

/// # Safety
/// `pd` is allocated.
unsafe fn create(
    pd: *mut ibv_pd,
    srq_context: *mut core::ffi::c_void,
    attributes: &ibv_srq_attr,
) -> Outcome<*mut ibv_srq> {
    let ibv_srq_attr { max_wr, max_sge, .. } = *attributes;
    if max_wr == 0 {
        return Err(EINVAL);
    }
    // SAFETY: guaranteed by the caller.
    let (domain, context) = unsafe { (Domain::of(pd), (*pd).context) };
    let opened = domain.opened.clone();
    // SAFETY: all-zero bytes are valid for pointers, locks and numbers.
    let zero: ibv_srq = unsafe { core::mem::zeroed() };
    let public = SharedQueue {
        public: Shared::new(ibv_srq { context, srq_context, pd, ..zero }),
        opened: opened.clone(),
        number: SharedReceiveQueue(0),
        asynchronous: Open::default(),
        max_wr,
        max_sge,
        limit: AtomicU32::new(0),
    }
    .publish();
    let watcher = opened.watcher(public.expose_provenance());
    match opened.engine.create_srq(domain.number, max_wr, max_sge, watcher) {
        Ok(number) => {
            // SAFETY: it was published above, and no program has it.
            unsafe {
                (*public.cast::<SharedQueue>()).number = number;
                (*public).handle = number.0;
            }
            Ok(public)
        }
        Err(errno) => {
            // SAFETY: it was published above, and no program has it.
            drop(unsafe { SharedQueue::take(public) });
            Err(errno)
        }
    }
}

/// # Safety
/// `pd` is allocated, and `attributes` are valid.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_srq(
    pd: *mut ibv_pd,
    attributes: *mut ibv_srq_init_attr,
) -> *mut ibv_srq {
    // SAFETY: guaranteed by the caller.
    pointer(|| unsafe { create(pd, (*attributes).srq_context, &(*attributes).attr) })
}

/// # Safety
/// `attributes` are valid, and their domain is allocated.
pub(crate) unsafe extern "C" fn create_srq_ex(
    _context: *mut ibv_context,
    attributes: *mut ibv_srq_init_attr_ex,
) -> *mut ibv_srq {
    /// `IBV_SRQ_INIT_ATTR_TYPE`, `IBV_SRQ_INIT_ATTR_PD`; and `IBV_SRQT_BASIC`.
    const TYPE: u32 = 1;
    const PD: u32 = 1 << 1;
    const BASIC: u32 = 0;
    pointer(|| {
        // SAFETY: guaranteed by the caller.
        let wanted = unsafe { &*attributes };
        let basic = wanted.comp_mask & TYPE == 0 || wanted.srq_type == BASIC;
        if !basic || wanted.comp_mask & !(TYPE | PD) != 0 {
            return Err(EOPNOTSUPP);
        }
        if wanted.comp_mask & PD == 0 || wanted.pd.is_null() {
            return Err(EINVAL);
        }
        // SAFETY: guaranteed by the caller.
        unsafe { create(wanted.pd, wanted.srq_context, &wanted.attr) }
    })
}

/// `IBV_SRQ_LIMIT`.
const LIMIT: c_int = 1 << 1;

/// # Safety
/// `srq` exists, and `attributes` are valid.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_modify_srq(
    srq: *mut ibv_srq,
    attributes: *mut ibv_srq_attr,
    mask: c_int,
) -> c_int {
    number(|| {
        // SAFETY: guaranteed by the caller.
        let (queue, limit) = unsafe { (SharedQueue::of(srq), (*attributes).srq_limit) };
        if mask != LIMIT || limit > queue.max_wr {
            return Err(EINVAL);
        }
        queue.limit.store(limit, Ordering::Relaxed);
        queue.opened.engine.arm_srq(queue.number, limit)
    })
}

/// # Safety
/// `srq` exists, and `to` has room for attributes.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_srq(srq: *mut ibv_srq, to: *mut ibv_srq_attr) -> c_int {
    number(|| {
        // SAFETY: guaranteed by the caller.
        let queue = unsafe { SharedQueue::of(srq) };
        let srq_limit = queue.limit.load(Ordering::Relaxed);
        let SharedQueue { max_wr, max_sge, .. } = *queue;
        // SAFETY: guaranteed by the caller.
        unsafe { to.write(ibv_srq_attr { max_wr, max_sge, srq_limit }) };
        Ok(())
    })
}

/// # Safety
/// `srq` exists.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int {
    number(|| {
        // SAFETY: guaranteed by the caller.
        let queue = unsafe { SharedQueue::of(srq) };
        queue.opened.engine.destroy_srq(queue.number)?;
        let object = srq.expose_provenance();
        queue.opened.events.take(|event| event.object == object);
        queue.asynchronous.wait_for_none();
        // SAFETY: no event refers to it any more, and the caller gives it up.
        drop(unsafe { SharedQueue::take(srq) });
        Ok(())
    })
}

/// # Safety
/// `srq` exists, `requests` is a list, and `bad` has room for a pointer.
pub(crate) unsafe extern "C" fn post_srq_recv(
    srq: *mut ibv_srq,
    requests: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    number(|| {
        // SAFETY: guaranteed by the caller.
        let queue = unsafe { SharedQueue::of(srq) };
        let post = |request: &ReceiveRequest<'_>| {
            queue.opened.engine.post_srq_receive(queue.number, request)
        };
        // SAFETY: guaranteed by the caller.
        unsafe { post_receives(requests, bad, post) }
    })
}
