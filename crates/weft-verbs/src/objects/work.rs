//! Work requests: lists of C structures become requests of the device.

use core::ffi::c_int;

use weft_rnic::{
    Data, Datagram, Operation, QueuePairNumber, ReceiveRequest, Remote, SendRequest, Service, Sge,
};

use super::Object;
use super::address_handle::AddressHandle;
use super::queue_pair::QueuePair;
use super::window::bind_operation;
use crate::device::limits;
use crate::engine::address_of;
use crate::errno::{EINVAL, Outcome, number};
use weft_verbs_abi::*;

/// Pieces of memory of one request, at most.
const PIECES: usize = limits::SGE as usize;

/// Pieces that need no memory of their own.
const FEW: usize = 4;

/// A request's pieces of memory.
enum Pieces {
    Few([Sge; FEW], usize),
    Many(Vec<Sge>),
}

impl Pieces {
    /// # Safety
    /// There are `count` of them at `list`.
    #[inline]
    unsafe fn read(list: *const ibv_sge, count: c_int) -> Outcome<Self> {
        let count = usize::try_from(count).ok().filter(|&count| count <= PIECES).ok_or(EINVAL)?;
        let piece = |index: usize| {
            // SAFETY: as the caller says.
            let ibv_sge { addr, length, lkey } = unsafe { *list.add(index) };
            Sge { address: addr, length, lkey }
        };
        if count > FEW {
            return Ok(Self::Many((0..count).map(piece).collect()));
        }
        let mut few = [Sge { address: 0, length: 0, lkey: 0 }; FEW];
        few[..count].iter_mut().enumerate().for_each(|(index, to)| *to = piece(index));
        Ok(Self::Few(few, count))
    }

    fn as_slice(&self) -> &[Sge] {
        match self {
            Self::Few(few, count) => &few[..*count],
            Self::Many(many) => many,
        }
    }
}

/// Appends bytes of the program's memory, if there are not too many for a request to carry them.
///
/// # Safety
/// There are as many bytes there.
pub(super) unsafe fn take_inline(to: &mut Vec<u8>, from: *const u8, len: usize) -> Outcome<()> {
    if to.len().saturating_add(len) > limits::INLINE as usize {
        return Err(EINVAL);
    }
    if len > 0 {
        // SAFETY: as the caller says.
        to.extend_from_slice(unsafe { core::slice::from_raw_parts(from, len) });
    }
    Ok(())
}

/// Where a datagram goes.
///
/// # Safety
/// `ah` is made.
pub(super) unsafe fn destination(ah: *mut ibv_ah, qpn: u32, qkey: u32) -> Outcome<Datagram> {
    if ah.is_null() {
        return Err(EINVAL);
    }
    // SAFETY: as the caller says.
    let ip = unsafe { AddressHandle::of(ah) }.ip;
    Ok(Datagram { address: address_of(ip, qpn), qp: QueuePairNumber(qpn), qkey })
}

/// # Safety
/// The request is what its opcode says.
unsafe fn operation(request: &ibv_send_wr) -> Outcome<Operation> {
    let word = u32::from_be(request.imm_data);
    // SAFETY: these are numbers, whatever was put there.
    let (rdma, atomic) = unsafe { (request.wr.rdma, request.wr.atomic) };
    let remote = Remote { address: rdma.remote_addr, rkey: rdma.rkey };
    let word_of = Remote { address: atomic.remote_addr, rkey: atomic.rkey };
    Ok(match request.opcode {
        wr_opcode::RDMA_WRITE => Operation::Write(remote),
        wr_opcode::RDMA_WRITE_WITH_IMM => Operation::WriteWithImmediate(remote, word),
        wr_opcode::SEND => Operation::Send,
        wr_opcode::SEND_WITH_IMM => Operation::SendWithImmediate(word),
        wr_opcode::RDMA_READ => Operation::Read(remote),
        wr_opcode::ATOMIC_CMP_AND_SWP => {
            let (compare, swap) = (atomic.compare_add, atomic.swap);
            Operation::CompareSwap { remote: word_of, compare, swap }
        }
        wr_opcode::ATOMIC_FETCH_AND_ADD => {
            Operation::FetchAdd { remote: word_of, add: atomic.compare_add }
        }
        wr_opcode::LOCAL_INV => Operation::LocalInvalidate(request.imm_data),
        wr_opcode::SEND_WITH_INV => Operation::SendWithInvalidate(request.imm_data),
        wr_opcode::BIND_MW => {
            let bind_mw { mw, rkey, bind_info } = request.bind_mw;
            // SAFETY: as the caller says.
            unsafe { bind_operation(mw, rkey, &bind_info)? }
        }
        _ => return Err(EINVAL),
    })
}

/// Flags that the device knows.
const FLAGS: u32 =
    send_flag::FENCE | send_flag::SIGNALED | send_flag::SOLICITED | send_flag::INLINE;

/// Hands one request to `post`.
///
/// # Safety
/// The request is what its opcode says.
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
    // SAFETY: as the caller says.
    let pieces = unsafe { Pieces::read(request.sg_list, request.num_sge)? };
    inline.clear();
    if flag(send_flag::INLINE) {
        for piece in pieces.as_slice() {
            let from = core::ptr::with_exposed_provenance(
                usize::try_from(piece.address).map_err(|_| EINVAL)?,
            );
            // SAFETY: a program names memory of its own here.
            unsafe { take_inline(inline, from, piece.length as usize)? };
        }
    }
    let data = if flag(send_flag::INLINE) {
        Data::Inline(inline)
    } else {
        Data::Gather(pieces.as_slice())
    };
    let datagram = if pair.service == Service::UnreliableDatagram {
        // SAFETY: it is a datagram.
        let to = unsafe { request.wr.ud };
        // SAFETY: as the caller says.
        Some(unsafe { destination(to.ah, to.remote_qpn, to.remote_qkey)? })
    } else {
        None
    };
    post(&SendRequest {
        // SAFETY: as the caller says.
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
/// `qp` is made, the requests are a list, and `bad` has room for a pointer.
pub(crate) unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    requests: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    number(|| {
        // SAFETY: as the caller says.
        let pair = unsafe { QueuePair::of(qp.cast()) };
        let mut inline = Vec::new();
        pair.opened.engine.post_sends(pair.number, |post| {
            let mut next = requests;
            // SAFETY: the list ends with null.
            while let Some(request) = unsafe { next.as_ref() } {
                // SAFETY: as the caller says.
                if let Err(errno) = unsafe { post_one(pair, request, &mut inline, post) } {
                    // SAFETY: as the caller says.
                    unsafe { bad.write(next) };
                    return Err(errno);
                }
                next = request.next;
            }
            Ok(())
        })
    })
}

/// Hands a list of receive requests to `post`, up to the first that is refused.
///
/// # Safety
/// The requests are a list, and `bad` has room for a pointer.
pub(super) unsafe fn post_receives(
    requests: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
    mut post: impl FnMut(&ReceiveRequest<'_>) -> Outcome<()>,
) -> Outcome<()> {
    let mut next = requests;
    // SAFETY: the list ends with null.
    while let Some(request) = unsafe { next.as_ref() } {
        // SAFETY: as the caller says.
        let pieces = unsafe { Pieces::read(request.sg_list, request.num_sge) };
        let posted = pieces.and_then(|pieces| {
            post(&ReceiveRequest { wr_id: request.wr_id, sges: pieces.as_slice() })
        });
        if let Err(errno) = posted {
            // SAFETY: as the caller says.
            unsafe { bad.write(next) };
            return Err(errno);
        }
        next = request.next;
    }
    Ok(())
}

/// # Safety
/// `qp` is made, the requests are a list, and `bad` has room for a pointer.
pub(crate) unsafe extern "C" fn post_recv(
    qp: *mut ibv_qp,
    requests: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    number(|| {
        // SAFETY: as the caller says.
        let pair = unsafe { QueuePair::of(qp.cast()) };
        let post =
            |request: &ReceiveRequest<'_>| pair.opened.engine.post_receive(pair.number, request);
        // SAFETY: as the caller says.
        unsafe { post_receives(requests, bad, post) }
    })
}
