//! Creation of queue pairs.

use core::ffi::c_void;
use std::sync::Mutex;

use weft_rnic::{QueuePairNumber, QueuePairRequest, Service};

use super::QueuePair;
use super::builder::{functions, operations_of};
use crate::engine::events::Open;
use crate::errno::{EINVAL, EOPNOTSUPP, Outcome, pointer};
use crate::objects::completion_queue::CompletionQueue;
use crate::objects::domain::Domain;
use crate::objects::shared_receive_queue::SharedQueue;
use crate::objects::{Object, Shared};
use crate::usage;
use weft_verbs_abi::*;

/// Minimum size of inline data that every queue pair accepts, bytes.
const MIN_INLINE: u32 = 64;

/// The parameters of a new queue pair.
struct Wanted<'a> {
    pd: *mut ibv_pd,
    qp_context: *mut c_void,
    send_cq: *mut ibv_cq,
    recv_cq: *mut ibv_cq,
    srq: *mut ibv_srq,
    cap: &'a mut ibv_qp_cap,
    qp_type: u32,
    signal_all: bool,
    /// The operations to build call by call, if any.
    builds: Option<u64>,
}

fn service_of(qp_type: u32) -> Outcome<Service> {
    match qp_type {
        qp_type::RC => Ok(Service::ReliableConnected),
        qp_type::UC => Ok(Service::UnreliableConnected),
        qp_type::UD => Ok(Service::UnreliableDatagram),
        _ => Err(EOPNOTSUPP),
    }
}

/// # Safety
/// All named objects exist.
unsafe fn create(wanted: Wanted<'_>) -> Outcome<*mut ibv_qp_ex> {
    let Wanted { pd, qp_context, send_cq, recv_cq, srq, cap, qp_type, signal_all, builds } = wanted;
    let service = service_of(qp_type)?;
    if send_cq.is_null() || recv_cq.is_null() {
        return Err(EINVAL);
    }
    let known = operations_of(service);
    if builds.is_some_and(|wanted| wanted & !known != 0) {
        return Err(EOPNOTSUPP);
    }
    // SAFETY: guaranteed by the caller.
    let (domain, context) = unsafe { (Domain::of(pd), (*pd).context) };
    if !srq.is_null() {
        (cap.max_recv_wr, cap.max_recv_sge) = (0, 0);
    }
    // Some programs post this much inline data without reserving it: hardware grants it.
    cap.max_inline_data = cap.max_inline_data.max(MIN_INLINE);
    // SAFETY: guaranteed by the caller.
    let request = unsafe {
        QueuePairRequest {
            domain: domain.number,
            service,
            send_cq: CompletionQueue::of(send_cq.cast()).number,
            receive_cq: CompletionQueue::of(recv_cq.cast()).number,
            srq: (!srq.is_null()).then(|| SharedQueue::of(srq).number),
            max_send: cap.max_send_wr,
            max_receive: cap.max_recv_wr,
            max_send_sge: cap.max_send_sge,
            max_receive_sge: cap.max_recv_sge,
            max_inline: cap.max_inline_data,
            signal_all,
        }
    };
    let opened = domain.opened.clone();
    // SAFETY: all-zero bytes are valid for pointers, nullable functions, locks and numbers.
    let zero: ibv_qp_ex = unsafe { core::mem::zeroed() };
    let base = ibv_qp { context, qp_context, pd, send_cq, recv_cq, srq, qp_type, ..zero.qp_base };
    let public = QueuePair {
        public: Shared::new(functions(ibv_qp_ex { qp_base: base, ..zero })),
        opened: opened.clone(),
        number: QueuePairNumber(0),
        service,
        asynchronous: Open::default(),
        builder: Default::default(),
        builds: builds.is_some(),
        cap: *cap,
        signal_all,
        address: Mutex::default(),
    }
    .publish();
    let watcher = opened.watcher(public.expose_provenance());
    match opened.engine.create_qp(&request, watcher) {
        Ok(number) => {
            // SAFETY: it was published above, and no program has it.
            unsafe {
                (*public.cast::<QueuePair>()).number = number;
                (*public).qp_base.handle = number.0;
                (*public).qp_base.qp_num = number.0;
            }
            usage::on_queue_pair();
            Ok(public)
        }
        Err(errno) => {
            // SAFETY: it was published above, and no program has it.
            drop(unsafe { QueuePair::take(public) });
            Err(errno)
        }
    }
}

/// # Safety
/// `pd` is allocated, and `attributes` are valid.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_qp(
    pd: *mut ibv_pd,
    attributes: *mut ibv_qp_init_attr,
) -> *mut ibv_qp {
    pointer(|| {
        // SAFETY: guaranteed by the caller.
        let wanted = unsafe { &mut *attributes };
        let wanted = Wanted {
            pd,
            qp_context: wanted.qp_context,
            send_cq: wanted.send_cq,
            recv_cq: wanted.recv_cq,
            srq: wanted.srq,
            cap: &mut wanted.cap,
            qp_type: wanted.qp_type,
            signal_all: wanted.sq_sig_all != 0,
            builds: None,
        };
        // SAFETY: guaranteed by the caller.
        unsafe { create(wanted) }.map(<*mut ibv_qp_ex>::cast)
    })
}

/// # Safety
/// `attributes` are valid, and their domain is allocated.
pub(crate) unsafe extern "C" fn create_qp_ex(
    _context: *mut ibv_context,
    attributes: *mut ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    use qp_init_attr_mask::{CREATE_FLAGS, PD, SEND_OPS_FLAGS};
    pointer(|| {
        // SAFETY: guaranteed by the caller.
        let wanted = unsafe { &mut *attributes };
        let mask = wanted.comp_mask;
        if mask & !(PD | CREATE_FLAGS | SEND_OPS_FLAGS) != 0
            || mask & CREATE_FLAGS != 0 && wanted.create_flags != 0
        {
            return Err(EOPNOTSUPP);
        }
        if mask & PD == 0 || wanted.pd.is_null() {
            return Err(EINVAL);
        }
        let wanted = Wanted {
            pd: wanted.pd,
            qp_context: wanted.qp_context,
            send_cq: wanted.send_cq,
            recv_cq: wanted.recv_cq,
            srq: wanted.srq,
            cap: &mut wanted.cap,
            qp_type: wanted.qp_type,
            signal_all: wanted.sq_sig_all != 0,
            builds: (mask & SEND_OPS_FLAGS != 0).then_some(wanted.send_ops_flags),
        };
        // SAFETY: guaranteed by the caller.
        unsafe { create(wanted) }.map(<*mut ibv_qp_ex>::cast)
    })
}
