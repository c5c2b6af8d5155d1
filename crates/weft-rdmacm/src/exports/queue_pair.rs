//! The queue pair of an identifier, with the completion queues and the shared receive queue that this library makes if
//! the program gives none.

use core::ffi::{c_int, c_void};
use core::ptr;

use crate::abi::rdma_cm_id;
use crate::errno::{EINVAL, EOPNOTSUPP, Outcome, status};
use crate::ibverbs::*;
use crate::id::Id;
use crate::transition;
use weft_verbs_abi::*;

/// Makes a completion queue with a completion channel.
///
/// # Safety
/// `id` is a live identifier and attached to a device.
unsafe fn completion_queue(
    id: *mut rdma_cm_id,
    entries: u32,
) -> Outcome<(*mut ibv_comp_channel, *mut ibv_cq)> {
    let entries = c_int::try_from(entries.max(1)).map_err(|_| EINVAL)?;
    // SAFETY: guaranteed by the caller.
    unsafe {
        let context = (*id).verbs;
        let channel = made(ibv_create_comp_channel(context))?;
        let cq_context: *mut c_void = id.cast();
        match made(ibv_create_cq(context, entries, cq_context, channel, 0)) {
            Ok(queue) => Ok((channel, queue)),
            Err(errno) => {
                ibv_destroy_comp_channel(channel);
                Err(errno)
            }
        }
    }
}

/// Makes the completion queues that the program does not give.
///
/// # Safety
/// `id` is a live identifier and attached to a device.
unsafe fn add_completion_queues(
    id: *mut rdma_cm_id,
    init: &mut ibv_qp_init_attr_ex,
) -> Outcome<()> {
    // SAFETY: guaranteed by the caller.
    unsafe {
        if init.send_cq.is_null() {
            if (*id).send_cq.is_null() {
                let (channel, queue) = completion_queue(id, init.cap.max_send_wr)?;
                ((*id).send_cq_channel, (*id).send_cq) = (channel, queue);
            }
            init.send_cq = (*id).send_cq;
        }
        if init.recv_cq.is_null() {
            if (*id).recv_cq.is_null() {
                let (channel, queue) = completion_queue(id, init.cap.max_recv_wr)?;
                ((*id).recv_cq_channel, (*id).recv_cq) = (channel, queue);
            }
            init.recv_cq = (*id).recv_cq;
        }
    }
    Ok(())
}

/// # Safety
/// `id` is a live identifier, and nothing uses its queues.
unsafe fn drop_completion_queues(id: *mut rdma_cm_id) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let id = &mut *id;
        let queues = [
            (&mut id.send_cq, &mut id.send_cq_channel),
            (&mut id.recv_cq, &mut id.recv_cq_channel),
        ];
        for (queue, channel) in queues {
            if !queue.is_null() {
                ibv_destroy_cq(core::mem::replace(queue, ptr::null_mut()));
            }
            if !channel.is_null() {
                ibv_destroy_comp_channel(core::mem::replace(channel, ptr::null_mut()));
            }
        }
    }
}

/// # Safety
/// `id` is a live identifier, and the objects that `init` names exist.
pub(super) unsafe fn create(id: *mut rdma_cm_id, init: &mut ibv_qp_init_attr_ex) -> Outcome<()> {
    // SAFETY: guaranteed by the caller.
    unsafe {
        if (*id).verbs.is_null() || !(*id).qp.is_null() || init.qp_type != (*id).qp_type {
            return Err(EINVAL);
        }
        if init.comp_mask & qp_init_attr_mask::PD == 0 || init.pd.is_null() {
            init.comp_mask |= qp_init_attr_mask::PD;
            init.pd = (*id).pd;
        }
        if (*init.pd).context != (*id).verbs {
            return Err(EINVAL);
        }
        if init.srq.is_null() {
            init.srq = (*id).srq;
        }
        let made = add_completion_queues(id, init).and_then(|()| create_queue_pair(init));
        let pair = made.inspect_err(|_| drop_completion_queues(id))?;
        ((*id).qp, (*id).pd) = (pair, init.pd);
        let states: &[u32] = if init.qp_type == qp_type::UD {
            &[qp_state::INIT, qp_state::RTR, qp_state::RTS]
        } else {
            &[qp_state::INIT]
        };
        transition::advance(Id::of(id), states).inspect_err(|_| destroy(id))
    }
}

/// # Safety
/// `id` is a live identifier.
pub(super) unsafe fn destroy(id: *mut rdma_cm_id) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let pair = core::mem::replace(&mut (*id).qp, ptr::null_mut());
        if !pair.is_null() {
            ibv_destroy_qp(pair);
        }
        drop_completion_queues(id);
    }
}

/// # Safety
/// `id` is a live identifier, `pd` null or allocated, and `attributes` are valid.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn rdma_create_qp(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attributes: *mut ibv_qp_init_attr,
) -> c_int {
    // SAFETY: guaranteed by the caller; all-zero bytes are valid for numbers and pointers.
    status(|| unsafe {
        let plain = &mut *attributes;
        let mut init = ibv_qp_init_attr_ex {
            qp_context: plain.qp_context,
            send_cq: plain.send_cq,
            recv_cq: plain.recv_cq,
            srq: plain.srq,
            cap: plain.cap,
            qp_type: plain.qp_type,
            sq_sig_all: plain.sq_sig_all,
            comp_mask: qp_init_attr_mask::PD,
            pd,
            ..core::mem::zeroed()
        };
        create(id, &mut init)?;
        plain.cap = init.cap;
        (plain.send_cq, plain.recv_cq, plain.srq) = (init.send_cq, init.recv_cq, init.srq);
        Ok(())
    })
}

/// # Safety
/// `id` is a live identifier, and `attributes` are valid.
#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_create_qp_ex(
    id: *mut rdma_cm_id,
    attributes: *mut ibv_qp_init_attr_ex,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    status(|| unsafe { create(id, &mut *attributes) })
}

/// # Safety
/// `id` is a live identifier.
#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_destroy_qp(id: *mut rdma_cm_id) {
    let _ = status(|| {
        // SAFETY: guaranteed by the caller.
        unsafe { destroy(id) };
        Ok(())
    });
}

/// # Safety
/// `id` is a live identifier, `pd` null or allocated, and `attributes` are valid.
#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_create_srq(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attributes: *mut ibv_srq_init_attr,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    status(|| unsafe {
        if (*id).verbs.is_null() || !(*id).srq.is_null() {
            return Err(EINVAL);
        }
        let pd = if pd.is_null() { (*id).pd } else { pd };
        if (*pd).context != (*id).verbs {
            return Err(EINVAL);
        }
        let queue = made(ibv_create_srq(pd, attributes))?;
        ((*id).srq, (*id).pd) = (queue, pd);
        Ok(())
    })
}

/// # Safety
/// `id` is a live identifier, and `attributes` are valid.
#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_create_srq_ex(
    id: *mut rdma_cm_id,
    attributes: *mut ibv_srq_init_attr_ex,
) -> c_int {
    const TYPE: u32 = 1 << 0;
    const PD: u32 = 1 << 1;
    // SAFETY: guaranteed by the caller.
    unsafe {
        let wanted = &mut *attributes;
        let is_basic = wanted.comp_mask & TYPE == 0 || wanted.srq_type == 0;
        if wanted.comp_mask & !(TYPE | PD) != 0 || !is_basic {
            return status(|| Err(EOPNOTSUPP));
        }
        let mut init = ibv_srq_init_attr { srq_context: wanted.srq_context, attr: wanted.attr };
        let pd = if wanted.comp_mask & PD == 0 { ptr::null_mut() } else { wanted.pd };
        let created = rdma_create_srq(id, pd, &raw mut init);
        wanted.attr = init.attr;
        created
    }
}

/// # Safety
/// `id` is a live identifier.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn rdma_destroy_srq(id: *mut rdma_cm_id) {
    // SAFETY: guaranteed by the caller.
    let _ = status(|| unsafe {
        let queue = core::mem::replace(&mut (*id).srq, ptr::null_mut());
        if queue.is_null() { Ok(()) } else { done(ibv_destroy_srq(queue)) }
    });
}
