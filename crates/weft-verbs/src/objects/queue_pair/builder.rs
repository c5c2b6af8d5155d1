//! Send requests that a program builds call by call (`ibv_wr_post(3)`): `wr_start`, one call for each request, calls
//! for its memory, and `wr_complete`, which posts all of them or none.

use core::ffi::{c_int, c_void};

use weft_rnic::{AtomicOperation, Data, Datagram, Operation, Remote, SendRequest, Service, Sge};

use super::QueuePair;
use crate::errno::{EINVAL, Errno, Outcome, number};
use crate::objects::Object;
use crate::objects::window::bind_operation;
use crate::objects::work::{destination, take_inline};
use weft_verbs_abi::*;

/// The requests being built between `wr_start` and `wr_complete`.
#[derive(Debug, Default)]
pub(super) struct Builder {
    requests: Vec<Built>,
    /// The first error.
    refusal: Option<Errno>,
}

#[derive(Debug)]
struct Built {
    wr_id: u64,
    flags: u32,
    operation: Operation,
    sges: Vec<Sge>,
    inline: Option<Vec<u8>>,
    datagram: Option<Datagram>,
}

impl Built {
    fn request(&self) -> SendRequest<'_> {
        let flag = |flag| self.flags & flag != 0;
        SendRequest {
            wr_id: self.wr_id,
            operation: self.operation,
            data: self.inline.as_deref().map_or(Data::Gather(&self.sges), Data::Inline),
            signaled: flag(send_flag::SIGNALED),
            solicited: flag(send_flag::SOLICITED),
            fence: flag(send_flag::FENCE),
            datagram: self.datagram,
        }
    }
}

/// Returns the operations of a service (`enum ibv_qp_create_send_ops_flags`: one bit each, in the order of `enum
/// ibv_wr_opcode`).
pub(super) fn operations_of(service: Service) -> u64 {
    use wr_opcode::*;
    let bits = |opcodes: &[u32]| opcodes.iter().fold(0, |bits, opcode| bits | 1 << opcode);
    match service {
        Service::ReliableConnected => bits(&[
            RDMA_WRITE,
            RDMA_WRITE_WITH_IMM,
            SEND,
            SEND_WITH_IMM,
            RDMA_READ,
            ATOMIC_CMP_AND_SWP,
            ATOMIC_FETCH_AND_ADD,
            LOCAL_INV,
            BIND_MW,
            SEND_WITH_INV,
        ]),
        Service::UnreliableConnected => {
            bits(&[RDMA_WRITE, RDMA_WRITE_WITH_IMM, SEND, SEND_WITH_IMM, LOCAL_INV, BIND_MW])
        }
        Service::UnreliableDatagram => bits(&[SEND, SEND_WITH_IMM]),
    }
}

/// Returns the builder of `qp`.
///
/// # Safety
/// `qp` exists, and the caller is between `wr_start` and `wr_complete`, so that it has exclusive access.
unsafe fn builder<'a>(qp: *mut ibv_qp_ex) -> &'a mut Builder {
    // SAFETY: guaranteed by the caller.
    unsafe { &mut *QueuePair::of(qp).builder.get() }
}

/// Begins the next request.
///
/// # Safety
/// The same as for [`builder`].
unsafe fn begin(qp: *mut ibv_qp_ex, operation: Outcome<Operation>) {
    // SAFETY: guaranteed by the caller.
    let (builder, wr_id, flags) = unsafe { (builder(qp), (*qp).wr_id, (*qp).wr_flags) };
    match operation {
        Ok(operation) => {
            let (sges, inline, datagram) = (Vec::new(), None, None);
            builder.requests.push(Built { wr_id, flags, operation, sges, inline, datagram });
        }
        Err(errno) => builder.refusal = builder.refusal.or(Some(errno)),
    }
}

/// Changes the last request.
///
/// # Safety
/// The same as for [`builder`].
unsafe fn amend(qp: *mut ibv_qp_ex, change: impl FnOnce(&mut Built) -> Outcome<()>) {
    // SAFETY: guaranteed by the caller.
    let builder = unsafe { builder(qp) };
    let changed = builder.requests.last_mut().ok_or(EINVAL).and_then(change);
    builder.refusal = builder.refusal.or_else(|| changed.err());
}

/// # Safety
/// `qp` exists.
unsafe extern "C" fn wr_start(qp: *mut ibv_qp_ex) {
    // SAFETY: an all-zero mutex is valid; `wr_complete` and `wr_abort` release it.
    unsafe {
        libc::pthread_mutex_lock(&raw mut (*qp).qp_base.mutex);
        let builder = builder(qp);
        builder.requests.clear();
        builder.refusal = None;
    }
}

/// # Safety
/// `wr_start` was called.
unsafe extern "C" fn wr_complete(qp: *mut ibv_qp_ex) -> c_int {
    // SAFETY: guaranteed by the caller.
    let (pair, builder) = unsafe { (QueuePair::of(qp), builder(qp)) };
    let posted = number(|| {
        if let Some(errno) = builder.refusal {
            return Err(errno);
        }
        if let [only] = &builder.requests[..] {
            return pair.opened.engine.post_all(pair.number, &[only.request()]);
        }
        let requests: Vec<SendRequest<'_>> = builder.requests.iter().map(Built::request).collect();
        pair.opened.engine.post_all(pair.number, &requests)
    });
    // SAFETY: `wr_start` locked it.
    unsafe { libc::pthread_mutex_unlock(&raw mut (*qp).qp_base.mutex) };
    posted
}

/// # Safety
/// `wr_start` was called.
unsafe extern "C" fn wr_abort(qp: *mut ibv_qp_ex) {
    // SAFETY: `wr_start` locked it.
    unsafe { libc::pthread_mutex_unlock(&raw mut (*qp).qp_base.mutex) };
}

/// Makes the functions that begin a request.
macro_rules! begins {
    ($($name:ident($($argument:ident: $type:ty),*) => $operation:expr;)+) => {
        $(
            /// # Safety
            /// `wr_start` was called.
            unsafe extern "C" fn $name(qp: *mut ibv_qp_ex $(, $argument: $type)*) {
                // SAFETY: guaranteed by the caller.
                unsafe { begin(qp, Ok($operation)) };
            }
        )+
    };
}

const fn atomic(address: u64, rkey: u32, operation: AtomicOperation) -> Operation {
    Operation::Atomic { remote: Remote { address, rkey }, operation }
}

begins! {
    wr_atomic_cmp_swp(rkey: u32, address: u64, compare: u64, swap: u64) =>
        atomic(address, rkey, AtomicOperation::CompareSwap { compare, swap });
    wr_atomic_fetch_add(rkey: u32, address: u64, add: u64) =>
        atomic(address, rkey, AtomicOperation::FetchAdd { add });
    wr_local_inv(rkey: u32) => Operation::LocalInvalidate(rkey);
    wr_rdma_read(rkey: u32, address: u64) => Operation::Read(Remote { address, rkey });
    wr_rdma_write(rkey: u32, address: u64) => Operation::Write(Remote { address, rkey });
    wr_rdma_write_imm(rkey: u32, address: u64, word: be32) =>
        Operation::WriteWithImmediate(Remote { address, rkey }, u32::from_be(word));
    wr_send() => Operation::Send;
    wr_send_imm(word: be32) => Operation::SendWithImmediate(u32::from_be(word));
    wr_send_inv(rkey: u32) => Operation::SendWithInvalidate(rkey);
}

/// # Safety
/// `wr_start` was called; the window is allocated and its region registered.
unsafe extern "C" fn wr_bind_mw(
    qp: *mut ibv_qp_ex,
    mw: *mut ibv_mw,
    rkey: u32,
    info: *const ibv_mw_bind_info,
) {
    // SAFETY: guaranteed by the caller.
    unsafe { begin(qp, bind_operation(mw, rkey, &*info)) };
}

/// # Safety
/// `wr_start` was called, and `ah` exists.
unsafe extern "C" fn wr_set_ud_addr(qp: *mut ibv_qp_ex, ah: *mut ibv_ah, qpn: u32, qkey: u32) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        amend(qp, |built| {
            built.datagram = Some(destination(ah, qpn, qkey)?);
            Ok(())
        });
    }
}

/// # Safety
/// `wr_start` was called.
unsafe extern "C" fn wr_set_sge(qp: *mut ibv_qp_ex, lkey: u32, address: u64, length: u32) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        amend(qp, |built| {
            built.sges = vec![Sge { address, length, lkey }];
            Ok(())
        });
    }
}

/// # Safety
/// `wr_start` was called, and the list has `count` entries.
unsafe extern "C" fn wr_set_sge_list(qp: *mut ibv_qp_ex, count: usize, list: *const ibv_sge) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        amend(qp, |built| {
            let read = |index| {
                let ibv_sge { addr: address, length, lkey } = *list.add(index);
                Sge { address, length, lkey }
            };
            built.sges = (0..count).map(read).collect();
            Ok(())
        });
    }
}

/// # Safety
/// `wr_start` was called, and `from` has `length` bytes.
unsafe extern "C" fn wr_set_inline_data(qp: *mut ibv_qp_ex, from: *mut c_void, length: usize) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        amend(qp, |built| {
            let mut bytes = Vec::new();
            take_inline(&mut bytes, from.cast::<u8>(), length)?;
            built.inline = Some(bytes);
            Ok(())
        });
    }
}

/// # Safety
/// `wr_start` was called; the list has `count` entries, and their bytes exist.
unsafe extern "C" fn wr_set_inline_data_list(
    qp: *mut ibv_qp_ex,
    count: usize,
    list: *const ibv_data_buf,
) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        amend(qp, |built| {
            let mut bytes = Vec::new();
            for index in 0..count {
                let ibv_data_buf { addr, length } = *list.add(index);
                take_inline(&mut bytes, addr.cast::<u8>(), length)?;
            }
            built.inline = Some(bytes);
            Ok(())
        });
    }
}

/// Puts the functions into a queue pair. A function without an operation of the service stays null: programs request
/// operations when they make the queue pair and are refused.
pub(super) fn functions(pair: ibv_qp_ex) -> ibv_qp_ex {
    ibv_qp_ex {
        wr_atomic_cmp_swp: Some(wr_atomic_cmp_swp),
        wr_atomic_fetch_add: Some(wr_atomic_fetch_add),
        wr_bind_mw: Some(wr_bind_mw),
        wr_local_inv: Some(wr_local_inv),
        wr_rdma_read: Some(wr_rdma_read),
        wr_rdma_write: Some(wr_rdma_write),
        wr_rdma_write_imm: Some(wr_rdma_write_imm),
        wr_send: Some(wr_send),
        wr_send_imm: Some(wr_send_imm),
        wr_send_inv: Some(wr_send_inv),
        wr_set_ud_addr: Some(wr_set_ud_addr),
        wr_set_sge: Some(wr_set_sge),
        wr_set_sge_list: Some(wr_set_sge_list),
        wr_set_inline_data: Some(wr_set_inline_data),
        wr_set_inline_data_list: Some(wr_set_inline_data_list),
        wr_start: Some(wr_start),
        wr_complete: Some(wr_complete),
        wr_abort: Some(wr_abort),
        ..pair
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_service_offers_what_it_has() {
        let read = 1 << wr_opcode::RDMA_READ;
        assert_ne!(operations_of(Service::ReliableConnected) & read, 0);
        assert_eq!(operations_of(Service::UnreliableConnected) & read, 0);
        assert_eq!(operations_of(Service::UnreliableDatagram), 0b1100);
    }
}
