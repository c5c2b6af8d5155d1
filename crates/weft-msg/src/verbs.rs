//! The interface of an RDMA device: reliable queue pairs, registered memory, and one completion queue.
//! `weft-rnic` implements it in process and in the simulator, any `libibverbs.so.1` on a host.

use core::fmt;
use core::net::Ipv6Addr;

use weft_rnic::Status;
use weft_units::Instant;
use weft_wire::ChannelOffer;

/// A queue pair of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Qp(pub u32);

/// A range of registered memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Slice {
    /// The address of its first byte in its region's address space.
    pub address: u64,
    /// Its length in bytes.
    pub len: u32,
    /// The region's local key.
    pub lkey: u32,
    /// The region's remote key.
    pub rkey: u32,
}

/// A memory region, registered for local writes and remote reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Region {
    /// The address of its first byte.
    pub address: u64,
    /// Its length in bytes.
    pub len: u64,
    /// Its local key.
    pub lkey: u32,
    /// Its remote key.
    pub rkey: u32,
}

/// The sizes of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpSizes {
    /// Maximum number of send requests, waiting or in progress.
    pub send: u32,
    /// Maximum number of receive requests.
    pub receive: u32,
    /// Maximum number of READs in flight, in either direction.
    pub reads: u8,
    /// `true` if it uses the shared receive queue.
    pub shared: bool,
}

/// A work request for a send queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work<'a> {
    /// A SEND with immediate data, gathered from several slices.
    Send {
        /// The slices in order.
        from: &'a [Slice],
        /// The immediate data.
        immediate: u32,
    },
    /// A READ of the peer's memory.
    Read {
        /// The local destination.
        to: Slice,
        /// The remote address.
        address: u64,
        /// The remote key.
        rkey: u32,
    },
    /// A WRITE of zero bytes, which tests whether the peer's device responds.
    Probe,
}

/// The completion of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Its queue pair.
    pub qp: Qp,
    /// The number of its work request.
    pub wr_id: u64,
    /// Its status.
    pub status: Status,
    /// Number of bytes received.
    pub len: u32,
    /// The received immediate data.
    pub immediate: Option<u32>,
}

/// An error of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{doing}: {why}{}", Code(*.code))]
pub struct DeviceError {
    /// The operation, in the user's terms.
    pub doing: &'static str,
    /// The device's reason.
    pub why: &'static str,
    /// The error number of the device's library; 0 if there is none.
    pub code: i32,
}

/// The display of an error number.
struct Code(i32);

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => Ok(()),
            code => write!(f, " (errno {code})"),
        }
    }
}

/// The allocator of the memory cache.
pub trait Registrar {
    /// Allocates memory that is registered for local writes and remote reads.
    ///
    /// # Errors
    /// The host or the device has no memory left.
    fn allocate(&mut self, len: u64) -> Result<Region, DeviceError>;

    /// Frees memory that [`allocate`](Self::allocate) returned.
    fn free(&mut self, region: Region);
}

/// An RDMA device, as required by the messaging layer.
pub trait Verbs: Registrar {
    /// Returns the address by which peers reach this device.
    fn gid(&self) -> Ipv6Addr;

    /// Creates a reliable queue pair, which completes in the context's queue and accepts receive requests, but
    /// is not connected.
    ///
    /// # Errors
    /// The device has no resources left.
    fn create_qp(&mut self, now: Instant, sizes: QpSizes) -> Result<Qp, DeviceError>;

    /// Connects a queue pair: it can receive and send, starting with `psn`.
    ///
    /// # Errors
    /// The peer's address is unreachable from this device.
    fn connect_qp(
        &mut self,
        now: Instant,
        qp: Qp,
        psn: u32,
        peer: &ChannelOffer,
    ) -> Result<(), DeviceError>;

    /// Resets a queue pair to the state after [`create_qp`](Self::create_qp); its requests are discarded
    /// without completion.
    ///
    /// # Errors
    /// The device refuses; the caller must destroy it.
    fn reset_qp(&mut self, now: Instant, qp: Qp) -> Result<(), DeviceError>;

    /// Destroys a queue pair; its requests are discarded without completion.
    fn destroy_qp(&mut self, now: Instant, qp: Qp);

    /// Creates the receive queue that queue pairs may share.
    ///
    /// # Errors
    /// The device has no resources left.
    fn create_shared_receives(&mut self, requests: u32) -> Result<(), DeviceError>;

    /// Destroys the shared receive queue after the queue pairs that use it; its requests are discarded.
    fn destroy_shared_receives(&mut self);

    /// Posts a receive request that any queue pair of the shared queue may use.
    ///
    /// # Errors
    /// The queue is full.
    fn post_shared_receive(&mut self, wr_id: u64, to: Slice) -> Result<(), DeviceError>;

    /// Posts a receive request.
    ///
    /// # Errors
    /// The queue is full, or the queue pair is in the error state.
    fn post_receive(&mut self, qp: Qp, wr_id: u64, to: Slice) -> Result<(), DeviceError>;

    /// Posts a receive request for each slice in order, all with the same number.
    ///
    /// # Errors
    /// The errors of [`post_receive`](Self::post_receive); the requests before the refused one are posted.
    fn post_receives(&mut self, qp: Qp, wr_id: u64, to: &[Slice]) -> Result<(), DeviceError> {
        to.iter().try_for_each(|&to| self.post_receive(qp, wr_id, to))
    }

    /// Posts a send request.
    ///
    /// # Errors
    /// The queue is full, or the queue pair is in the error state.
    fn post_send(
        &mut self,
        now: Instant,
        qp: Qp,
        wr_id: u64,
        work: Work<'_>,
        signaled: bool,
    ) -> Result<(), DeviceError>;

    /// Returns the next completion.
    ///
    /// After the last one of a batch it may return `None` once without a look at the device.
    fn poll(&mut self) -> Option<Completion>;

    /// Returns the bytes of a slice of memory that [`allocate`](Registrar::allocate) returned.
    fn bytes(&self, slice: Slice) -> &[u8];

    /// Returns the bytes of a slice for writing.
    fn bytes_mut(&mut self, slice: Slice) -> &mut [u8];
}

/// Returns the `rnr_retry` for a peer: 0 (never), because its window guarantees that it is ready, or 7
/// (unlimited) if its receive queue is shared.
pub const fn rnr_retry(peer: &ChannelOffer) -> u8 {
    if peer.shared { 7 } else { 0 }
}
