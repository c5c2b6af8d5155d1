//! What the messaging layer asks of an RDMA device: reliable queue pairs, memory it may register, and one
//! completion queue. `weft-rnic` answers it in process and in the simulator, any `libibverbs.so.1` on a host.

use core::fmt;
use core::net::Ipv6Addr;

use weft_rnic::Status;
use weft_units::Instant;
use weft_wire::ChannelOffer;

/// A queue pair of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Qp(pub u32);

/// A piece of registered memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Slice {
    /// Its first byte, as its region counts.
    pub address: u64,
    /// Its length, bytes.
    pub len: u32,
    /// The region's key for this host.
    pub lkey: u32,
    /// The region's key for peers.
    pub rkey: u32,
}

/// A memory region, registered for local writes and remote reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Region {
    /// Its first byte, as the region counts.
    pub address: u64,
    /// Its length, bytes.
    pub len: u64,
    /// Its key for this host.
    pub lkey: u32,
    /// Its key for peers.
    pub rkey: u32,
}

/// Sizes of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpSizes {
    /// Send requests that wait or are under way.
    pub send: u32,
    /// Receive requests that wait.
    pub receive: u32,
    /// READs under way, either direction.
    pub reads: u8,
    /// Receive requests are those of the shared queue.
    pub shared: bool,
}

/// A request for a send queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work<'a> {
    /// SEND with immediate data, of pieces one after the other.
    Send {
        /// What is sent.
        from: &'a [Slice],
        /// The immediate data.
        immediate: u32,
    },
    /// READ of the peer's memory.
    Read {
        /// Where the bytes go.
        to: Slice,
        /// Where they lie at the peer.
        address: u64,
        /// Their region's key.
        rkey: u32,
    },
    /// WRITE of nothing: it only asks whether the peer's device answers.
    Probe,
}

/// What became of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Its queue pair.
    pub qp: Qp,
    /// The number it was posted with.
    pub wr_id: u64,
    /// What became of it.
    pub status: Status,
    /// Bytes received.
    pub len: u32,
    /// Immediate data that came with it.
    pub immediate: Option<u32>,
}

/// Why the device refused a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{doing}: {why}{}", Code(*.code))]
pub struct Refused {
    /// What was asked for, as a user would say it.
    pub doing: &'static str,
    /// The device's reason.
    pub why: &'static str,
    /// The error number of the device's library; 0 where there is none.
    pub code: i32,
}

/// An error number for those who read it.
struct Code(i32);

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => Ok(()),
            code => write!(f, " (errno {code})"),
        }
    }
}

/// Where the memory cache has its memory from.
pub trait Registrar {
    /// Memory, registered for local writes and remote reads.
    ///
    /// # Errors
    /// The host or the device has no room.
    fn allocate(&mut self, len: u64) -> Result<Region, Refused>;

    /// Gives back what [`allocate`](Self::allocate) gave.
    fn free(&mut self, region: Region);
}

/// An RDMA device, as far as the messaging layer needs one.
pub trait Verbs: Registrar {
    /// The address peers reach this device by.
    fn gid(&self) -> Ipv6Addr;

    /// Makes a reliable queue pair that completes in the context's queue and takes receive requests, but is
    /// not connected.
    ///
    /// # Errors
    /// The device has no room.
    fn create_qp(&mut self, now: Instant, sizes: QpSizes) -> Result<Qp, Refused>;

    /// Connects it: ready to receive and to send, `psn` being the first this end sends.
    ///
    /// # Errors
    /// The peer's address cannot be reached from this device.
    fn connect_qp(
        &mut self,
        now: Instant,
        qp: Qp,
        psn: u32,
        peer: &ChannelOffer,
    ) -> Result<(), Refused>;

    /// Makes it as [`create_qp`](Self::create_qp) left it; its requests are forgotten without completion.
    ///
    /// # Errors
    /// The device refuses; destroy it then.
    fn reset_qp(&mut self, now: Instant, qp: Qp) -> Result<(), Refused>;

    /// Destroys it; its requests are forgotten without completion.
    fn destroy_qp(&mut self, now: Instant, qp: Qp);

    /// Makes the receive queue that queue pairs may share.
    ///
    /// # Errors
    /// The device has no room.
    fn create_shared_receives(&mut self, requests: u32) -> Result<(), Refused>;

    /// Destroys it, after the queue pairs that use it; its requests are forgotten.
    fn destroy_shared_receives(&mut self);

    /// Posts a receive request for whichever queue pair needs it first.
    ///
    /// # Errors
    /// The queue is full.
    fn post_shared_receive(&mut self, wr_id: u64, to: Slice) -> Result<(), Refused>;

    /// Posts a receive request.
    ///
    /// # Errors
    /// The queue is full, or the queue pair in error.
    fn post_receive(&mut self, qp: Qp, wr_id: u64, to: Slice) -> Result<(), Refused>;

    /// Posts a send request.
    ///
    /// # Errors
    /// The queue is full, or the queue pair in error.
    fn post_send(
        &mut self,
        now: Instant,
        qp: Qp,
        wr_id: u64,
        work: Work<'_>,
        signaled: bool,
    ) -> Result<(), Refused>;

    /// The next completion.
    fn poll(&mut self) -> Option<Completion>;

    /// The bytes of a slice of memory that [`allocate`](Registrar::allocate) gave.
    fn bytes(&self, slice: Slice) -> &[u8];

    /// The same, to be written.
    fn bytes_mut(&mut self, slice: Slice) -> &mut [u8];
}

/// How often a peer that is not ready is asked again: never, for its window sees to it that it is, or for ever
/// where its receive queue is shared.
pub const fn rnr_retry(peer: &ChannelOffer) -> u8 {
    if peer.shared { 7 } else { 0 }
}
