//! Work requests: conversion of lists of C structures to requests of the device.

use core::ffi::c_int;

use weft_rnic::{
    AtomicOperation, Data, Datagram, Operation, QueuePairNumber, ReceiveRequest, Remote,
    SendRequest, Service, Sge,
};

use super::Object;
use super::address_handle::AddressHandle;
use super::queue_pair::QueuePair;
use super::window::bind_operation;
use crate::device::limits;
use crate::engine::address_of;
use crate::errno::{EINVAL, Outcome, number};
use weft_verbs_abi::*;

/// Maximum number of scatter/gather elements in one request.
const PIECES: usize = limits::SGE as usize;

/// Number of scatter/gather elements that need no heap allocation.
const INLINE_PIECES: usize = 4;

/// The scatter/gather elements of a request.
enum Pieces {
    Inline([Sge; INLINE_PIECES], usize),
    Heap(Vec<Sge>),
}

impl Pieces {
    /// Reads a list of elements.
    ///
    /// # Safety
    /// `list` has `count` elements.
    #[inline]
    unsafe fn read(list: *const ibv_sge, count: c_int) -> Outcome<Self> {
        let count = usize::try_from(count).ok().filter(|&count| count <= PIECES).ok_or(EINVAL)?;
        let piece = |index: usize| {
            // SAFETY: guaranteed by the caller.
            let ibv_sge { addr, length, lkey } = unsafe { *list.add(index) };
            Sge { address: addr, length, lkey }
        };
        if count > INLINE_PIECES {
            return Ok(Self::Heap((0..count).map(piece).collect()));
        }
        let mut inline = [Sge { address: 0, length: 0, lkey: 0 }; INLINE_PIECES];
        inline[..count].iter_mut().enumerate().for_each(|(index, to)| *to = piece(index));
        Ok(Self::Inline(inline, count))
    }

    fn as_slice(&self) -> &[Sge] {
        match self {
            Self::Inline(inline, count) => &inline[..*count],
            Self::Heap(pieces) => pieces,
        }
    }
}

/// Appends bytes of the program's memory as inline data.
///
/// # Errors
/// `EINVAL` if the request would have more than the maximum.
///
/// # Safety
/// `from` has `len` bytes.
pub(super) unsafe fn take_inline(to: &mut Vec<u8>, from: *const u8, len: usize) -> Outcome<()> {
    if to.len().saturating_add(len) > limits::INLINE as usize {
        return Err(EINVAL);
    }
    if len > 0 {
        // SAFETY: guaranteed by the caller.
        to.extend_from_slice(unsafe { core::slice::from_raw_parts(from, len) });
    }
    Ok(())
}

/// Returns the destination of a datagram.
///
/// # Errors
/// `EINVAL` if `ah` is null.
///
/// # Safety
/// `ah` is null or exists.
pub(super) unsafe fn destination(ah: *mut ibv_ah, qpn: u32, qkey: u32) -> Outcome<Datagram> {
    if ah.is_null() {
        return Err(EINVAL);
    }
    // SAFETY: guaranteed by the caller.
    let ip = unsafe { AddressHandle::of(ah) }.ip;
    Ok(Datagram { address: address_of(ip, qpn), qp: QueuePairNumber(qpn), qkey })
}

/// Returns the operation of a request.
///
/// # Errors
/// `EINVAL` for an unknown opcode or an invalid binding.
///
/// # Safety
/// The request's fields match its opcode.
unsafe fn operation(request: &ibv_send_wr) -> Outcome<Operation> {
    let word = u32::from_be(request.imm_data);
    // SAFETY: these are numbers, whose bytes are always valid.
    let (rdma, atomic) = unsafe { (request.wr.rdma, request.wr.atomic) };
    let remote = Remote { address: rdma.remote_addr, rkey: rdma.rkey };
    let atomic_remote = Remote { address: atomic.remote_addr, rkey: atomic.rkey };
    Ok(match request.opcode {
        wr_opcode::RDMA_WRITE => Operation::Write(remote),
        wr_opcode::RDMA_WRITE_WITH_IMM => Operation::WriteWithImmediate(remote, word),
        wr_opcode::SEND => Operation::Send,
        wr_opcode::SEND_WITH_IMM => Operation::SendWithImmediate(word),
        wr_opcode::RDMA_READ => Operation::Read(remote),
        wr_opcode::ATOMIC_CMP_AND_SWP => {
            let (compare, swap) = (atomic.compare_add, atomic.swap);
            let operation = AtomicOperation::CompareSwap { compare, swap };
            Operation::Atomic { remote: atomic_remote, operation }
        }
        wr_opcode::ATOMIC_FETCH_AND_ADD => {
            let operation = AtomicOperation::FetchAdd { add: atomic.compare_add };
            Operation::Atomic { remote: atomic_remote, operation }
        }
        wr_opcode::LOCAL_INV => Operation::LocalInvalidate(request.imm_data),
        wr_opcode::SEND_WITH_INV => Operation::SendWithInvalidate(request.imm_data),
        wr_opcode::BIND_MW => {
            let bind_mw { mw, rkey, bind_info } = request.bind_mw;
            // SAFETY: guaranteed by the caller.
            unsafe { bind_operation(mw, rkey, &bind_info)? }
        }
        _ => return Err(EINVAL),
    })
}

/// Supported flags.
const FLAGS: u32 =
    send_flag::FENCE | send_flag::SIGNALED | send_flag::SOLICITED | send_flag::INLINE;

/// Passes one request to `post`.
///
/// # Safety
/// The request's fields match its opcode.
unsafe fn post_one(
    pair: &QueuePair,
    request: &ibv_send_wr,
    inline: &mut Vec<u8>,
    post: &mut dyn FnMut(&SendRequest<'_>) -> Outcome<()>,
) -> Outcome<()> {
    let flag = |flag| request.send_flags & flag != 0;
    if request.send_flags & !FLAGS != 0 {
        return Err(EINVAL);
    }
    // SAFETY: guaranteed by the caller.
    let pieces = unsafe { Pieces::read(request.sg_list, request.num_sge)? };
    inline.clear();
    if flag(send_flag::INLINE) {
        for piece in pieces.as_slice() {
            let from = core::ptr::with_exposed_provenance(
                usize::try_from(piece.address).map_err(|_| EINVAL)?,
            );
            // SAFETY: the program guarantees that this is its own memory.
            unsafe { take_inline(inline, from, piece.length as usize)? };
        }
    }
    let data = if flag(send_flag::INLINE) {
        Data::Inline(inline)
    } else {
        Data::Gather(pieces.as_slice())
    };
    let datagram = if pair.service == Service::UnreliableDatagram {
        // SAFETY: the request is for a datagram service.
        let to = unsafe { request.wr.ud };
        // SAFETY: guaranteed by the caller.
        Some(unsafe { destination(to.ah, to.remote_qpn, to.remote_qkey)? })
    } else {
        None
    };
    post(&SendRequest {
        // SAFETY: guaranteed by the caller.
        operation: unsafe { operation(request)? },
        wr_id: request.wr_id,
        data,
        signaled: flag(send_flag::SIGNALED),
        solicited: flag(send_flag::SOLICITED),
        fence: flag(send_flag::FENCE),
        datagram,
    })
}

/// # Safety
/// `qp` exists, `requests` is a list, and `bad` has room for a pointer.
pub(crate) unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    requests: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    number(|| {
        // SAFETY: guaranteed by the caller.
        let pair = unsafe { QueuePair::of(qp.cast()) };
        let mut inline = Vec::new();
        pair.opened.engine.post_sends(pair.number, |post| {
            let mut next = requests;
            // SAFETY: the list ends with null.
            while let Some(request) = unsafe { next.as_ref() } {
                // SAFETY: guaranteed by the caller.
                if let Err(errno) = unsafe { post_one(pair, request, &mut inline, post) } {
                    // SAFETY: guaranteed by the caller.
                    unsafe { bad.write(next) };
                    return Err(errno);
                }
                next = request.next;
            }
            Ok(())
        })
    })
}

/// Passes a list of receive requests to `post`, up to the first that is refused.
///
/// # Safety
/// `requests` is a list, and `bad` has room for a pointer.
pub(super) unsafe fn post_receives(
    requests: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
    mut post: impl FnMut(&ReceiveRequest<'_>) -> Outcome<()>,
) -> Outcome<()> {
    let mut next = requests;
    // SAFETY: the list ends with null.
    while let Some(request) = unsafe { next.as_ref() } {
        // SAFETY: guaranteed by the caller.
        let pieces = unsafe { Pieces::read(request.sg_list, request.num_sge) };
        let posted = pieces.and_then(|pieces| {
            post(&ReceiveRequest { wr_id: request.wr_id, sges: pieces.as_slice() })
        });
        if let Err(errno) = posted {
            // SAFETY: guaranteed by the caller.
            unsafe { bad.write(next) };
            return Err(errno);
        }
        next = request.next;
    }
    Ok(())
}

/// # Safety
/// `qp` exists, `requests` is a list, and `bad` has room for a pointer.
pub(crate) unsafe extern "C" fn post_recv(
    qp: *mut ibv_qp,
    requests: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    number(|| {
        // SAFETY: guaranteed by the caller.
        let pair = unsafe { QueuePair::of(qp.cast()) };
        let post =
            |request: &ReceiveRequest<'_>| pair.opened.engine.post_receive(pair.number, request);
        // SAFETY: guaranteed by the caller.
        unsafe { post_receives(requests, bad, post) }
    })
}
