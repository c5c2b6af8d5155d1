//! Work requests, as programs post them.

use alloc::boxed::Box;
use core::net::SocketAddr;
use core::ops::Deref;

use weft_wire::AtomicOperation;

use crate::{Bind, QueuePairNumber};

/// A piece of local memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Sge {
    /// Where it begins, as its region counts.
    pub address: u64,
    /// How long it is, bytes.
    pub length: u32,
    /// The region's key.
    pub lkey: u32,
}

/// Memory of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Remote {
    /// Where it begins, as the region counts.
    pub address: u64,
    /// The region's or the window's key.
    pub rkey: u32,
}

/// Where a datagram goes: an address handle, and the queue pair there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Datagram {
    /// The host's address and receive port.
    pub address: SocketAddr,
    /// The queue pair.
    pub qp: QueuePairNumber,
    /// The key that queue pair expects; with its highest bit set, the sender's own is sent.
    pub qkey: u32,
}

/// What a send request does (`enum ibv_wr_opcode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Operation {
    /// SEND.
    Send,
    /// SEND with immediate data.
    SendWithImmediate(u32),
    /// SEND that invalidates a key of the peer.
    SendWithInvalidate(u32),
    /// RDMA WRITE.
    Write(Remote),
    /// RDMA WRITE with immediate data.
    WriteWithImmediate(Remote, u32),
    /// RDMA READ.
    Read(Remote),
    /// An atomic operation on eight bytes of the peer.
    Atomic {
        /// The eight bytes.
        remote: Remote,
        /// The operation on them.
        operation: AtomicOperation,
    },
    /// Invalidates an own key.
    LocalInvalidate(u32),
    /// Binds a memory window: its key now, its key then (type 2), and what it shows.
    BindWindow {
        /// The window's present key.
        window: u32,
        /// The key it is to have; `None` for type 1.
        key: Option<u32>,
        /// What it shows.
        bind: Bind,
    },
}

/// What a send request carries, or where a READ's bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data<'a> {
    /// Pieces of registered memory, one after the other.
    Gather(&'a [Sge]),
    /// Bytes that are taken now; their memory need not be registered.
    Inline(&'a [u8]),
}

/// A request for a send queue (`struct ibv_send_wr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendRequest<'a> {
    /// The program's number for it.
    pub wr_id: u64,
    /// What it does.
    pub operation: Operation,
    /// With what.
    pub data: Data<'a>,
    /// Whether its success is completed; failures always are.
    pub signaled: bool,
    /// Whether the receiver's completion is solicited.
    pub solicited: bool,
    /// Whether it waits for the READs and atomics before it.
    pub fence: bool,
    /// Where a datagram goes.
    pub datagram: Option<Datagram>,
}

impl<'a> SendRequest<'a> {
    /// A signalled request without other flags.
    pub const fn new(wr_id: u64, operation: Operation, data: Data<'a>) -> Self {
        Self {
            wr_id,
            operation,
            data,
            signaled: true,
            solicited: false,
            fence: false,
            datagram: None,
        }
    }
}

/// A request for a receive queue (`struct ibv_recv_wr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveRequest<'a> {
    /// The program's number for it.
    pub wr_id: u64,
    /// Where the message goes.
    pub sges: &'a [Sge],
}

/// The pieces of a request that waits. Most have one, which needs no memory besides.
#[derive(Clone, Debug)]
pub(crate) enum Pieces {
    One(Sge),
    Several(Box<[Sge]>),
}

impl From<&[Sge]> for Pieces {
    #[inline]
    fn from(sges: &[Sge]) -> Self {
        match sges {
            &[only] => Self::One(only),
            _ => Self::Several(sges.into()),
        }
    }
}

impl Deref for Pieces {
    type Target = [Sge];

    #[inline]
    fn deref(&self) -> &[Sge] {
        match self {
            Self::One(only) => core::slice::from_ref(only),
            Self::Several(sges) => sges,
        }
    }
}

/// Bytes that a request took along. Few of them need no memory besides.
#[derive(Clone, Debug)]
pub(crate) enum Inline {
    Short { bytes: [u8; Self::SHORT], len: u8 },
    Long(Box<[u8]>),
}

impl Inline {
    /// A small structure and a pointer, as programs that care for latency send.
    const SHORT: usize = 30;
}

impl From<&[u8]> for Inline {
    #[inline]
    fn from(data: &[u8]) -> Self {
        let mut bytes = [0; Self::SHORT];
        match (bytes.get_mut(..data.len()), u8::try_from(data.len())) {
            (Some(start), Ok(len)) => {
                start.copy_from_slice(data);
                Self::Short { bytes, len }
            }
            _ => Self::Long(data.into()),
        }
    }
}

impl Deref for Inline {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Short { bytes, len } => &bytes[..usize::from(*len)],
            Self::Long(bytes) => bytes,
        }
    }
}

/// Bytes of all pieces together.
pub(crate) fn total(sges: &[Sge]) -> u64 {
    sges.iter().map(|sge| u64::from(sge.length)).sum()
}

/// The parts of `sges` that hold bytes `offset..offset + len` of their message.
pub(crate) fn parts(sges: &[Sge], offset: u32, len: u32) -> impl Iterator<Item = Sge> {
    let (mut skip, mut left) = (u64::from(offset), len);
    sges.iter().filter_map(move |sge| {
        if skip >= u64::from(sge.length) {
            skip -= u64::from(sge.length);
            return None;
        }
        let skipped = u32::try_from(skip).expect("less than a piece");
        skip = 0;
        let length = (sge.length - skipped).min(left);
        left -= length;
        let address = sge.address.wrapping_add(skipped.into());
        (length > 0).then_some(Sge { address, length, lkey: sge.lkey })
    })
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn parts_are_cut_from_the_pieces_they_lie_in() {
        let sge = |address, length| Sge { address, length, lkey: 1 };
        let sges = [sge(100, 10), sge(500, 0), sge(200, 5), sge(300, 20)];
        let cut = |offset, len| parts(&sges, offset, len).collect::<Vec<_>>();
        assert_eq!(cut(0, 10), [sge(100, 10)]);
        assert_eq!(cut(8, 10), [sge(108, 2), sge(200, 5), sge(300, 3)]);
        assert_eq!(cut(10, 1), [sge(200, 1)]);
        assert_eq!(cut(35, 5), []);
        assert_eq!(total(&sges), 35);
    }
}
