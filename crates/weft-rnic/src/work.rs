//! Work requests, as programs post them.

use alloc::boxed::Box;
use core::net::SocketAddr;
use core::ops::Deref;

use weft_wire::AtomicOperation;

use crate::{Bind, QueuePairNumber};

/// A scatter/gather entry: a range of local memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Sge {
    /// The first address, as an address of the region.
    pub address: u64,
    /// The length in bytes.
    pub length: u32,
    /// The key of the region.
    pub lkey: u32,
}

/// A location in the peer's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Remote {
    /// The first address, as an address of the region.
    pub address: u64,
    /// The key of the region or window.
    pub rkey: u32,
}

/// The destination of a datagram: an address handle and a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Datagram {
    /// The address and receive port of the host.
    pub address: SocketAddr,
    /// The queue pair.
    pub qp: QueuePairNumber,
    /// The Q_Key; with its highest bit set, the sending queue pair's own Q_Key is sent.
    pub qkey: u32,
}

/// The operation of a send request (`enum ibv_wr_opcode`).
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
    /// An atomic operation on eight bytes of the peer's memory.
    Atomic {
        /// The location of the eight bytes.
        remote: Remote,
        /// The operation.
        operation: AtomicOperation,
    },
    /// Invalidates a local key.
    LocalInvalidate(u32),
    /// Binds a memory window.
    BindWindow {
        /// The current key of the window.
        window: u32,
        /// The new key; `None` for type 1.
        key: Option<u32>,
        /// The memory to which it is bound.
        bind: Bind,
    },
}

/// The local data of a send request: its payload, or the destination of a READ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data<'a> {
    /// Ranges of registered memory, concatenated.
    Gather(&'a [Sge]),
    /// Bytes that are copied when the request is posted; their memory need not be registered.
    Inline(&'a [u8]),
}

/// A request for a send queue (`struct ibv_send_wr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendRequest<'a> {
    /// The program's number for the request.
    pub wr_id: u64,
    /// The operation.
    pub operation: Operation,
    /// The local data.
    pub data: Data<'a>,
    /// `true` if success generates a completion; a failure always does.
    pub signaled: bool,
    /// `true` if the receiver's completion is solicited.
    pub solicited: bool,
    /// `true` if the request waits for earlier READs and atomics (IBTA's fence).
    pub fence: bool,
    /// The destination of a datagram.
    pub datagram: Option<Datagram>,
}

impl<'a> SendRequest<'a> {
    /// Returns a signalled request without other flags.
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
    /// The program's number for the request.
    pub wr_id: u64,
    /// The receive buffers.
    pub sges: &'a [Sge],
}

/// The scatter/gather entries of a queued request. A single entry, the usual case, is stored without an allocation.
#[derive(Clone, Debug)]
pub(crate) enum SgeList {
    One(Sge),
    Several(Box<[Sge]>),
}

impl From<&[Sge]> for SgeList {
    #[inline]
    fn from(sges: &[Sge]) -> Self {
        match sges {
            &[only] => Self::One(only),
            _ => Self::Several(sges.into()),
        }
    }
}

impl Deref for SgeList {
    type Target = [Sge];

    #[inline]
    fn deref(&self) -> &[Sge] {
        match self {
            Self::One(only) => core::slice::from_ref(only),
            Self::Several(sges) => sges,
        }
    }
}

/// Inline data of a queued request. Data of at most 30 bytes is stored without an allocation.
#[derive(Clone, Debug)]
pub(crate) enum Inline {
    Short { bytes: [u8; Self::SHORT], len: u8 },
    Long(Box<[u8]>),
}

impl Inline {
    /// Bytes stored without an allocation: enough for the short messages of latency-sensitive programs.
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

/// Returns the total length of all entries in bytes.
pub(crate) fn total(sges: &[Sge]) -> u64 {
    sges.iter().map(|sge| u64::from(sge.length)).sum()
}

/// Returns the parts of `sges` that hold bytes `offset..offset + len` of their message.
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
    fn parts_are_cut_from_the_entries_they_lie_in() {
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
