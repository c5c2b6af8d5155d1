//! The operations of every kind of port, and their types.

use std::fmt::Debug;
use std::os::fd::BorrowedFd;

use weft_units::{Duration, Instant};
use weft_vpc::{Reading, Slot, Staging, Token, Turn};

use crate::PortError;

/// Bytes of `virtio_net_hdr_v1`, which precede every frame in both directions (virtio 1.2, 5.1.6).
pub const HEADER_LEN: u32 = 12;

/// Maximum length of a frame with its header: an IP packet of 64 KiB less one, an Ethernet header,
/// a VLAN tag.
pub const MAX_FRAME: u32 = HEADER_LEN + 18 + 65_535;

/// Number of bytes of a taken frame, header included, that are copied and cannot change: those that a
/// switch reads ([`weft_vpc::Frame::MIN_PARSE_BYTES`]). Later bytes may still be in a guest's memory, where
/// the guest may write at any time.
pub const HEAD_LEN: u32 = HEADER_LEN + 256;

const _: () = assert!(HEAD_LEN as usize == HEADER_LEN as usize + weft_vpc::Frame::MIN_PARSE_BYTES);

/// A frame that the tenant sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The token that identifies the frame.
    pub token: Token,
    /// The frame's length in bytes with the header: [`HEADER_LEN`] + 14 to [`MAX_FRAME`].
    pub len: u32,
}

/// A tenant's interface. One thread drives it:
///
/// 1. it waits until [`fd`](Self::fd) is readable (level-triggered), then calls [`service`](Self::service);
/// 2. it [`take`](Self::take)s frames until there is none or until it wants no more, [`read`](Self::read)s
///    them for each transmission, and [`release`](Self::release)s each once;
/// 3. it [`claim`](Self::claim)s a buffer when the first packet of a frame for the tenant arrives,
///    [`place`](Self::place)s packets in any order, and [`complete`](Self::complete)s buffers in the order in
///    which the tenant receives them;
/// 4. it calls [`flush`](Self::flush) once a turn, after everything else.
///
/// No action of the tenant makes a port panic, block or harm another port. Errors are reports for the log:
/// the port has already counted them and continues, or waits until its tenant reconnects.
pub trait Port: Debug + Send {
    /// Returns a descriptor that is readable when there is work for [`service`](Self::service) or a
    /// frame to [`take`](Self::take). It stays the same for the port's lifetime.
    fn fd(&self) -> BorrowedFd<'_>;

    /// Serves the interface's control side: connects, disconnects, negotiates, resizes memory; then
    /// [`flush`](Self::flush)es, because the tenant may have made room. Call it when [`fd`](Self::fd) is readable,
    /// and also about once a second.
    ///
    /// # Errors
    /// Errors for the operator.
    fn service(&mut self, now: Instant) -> Result<(), PortError>;

    /// Returns `true` if a tenant is connected, so that [`claim`](Self::claim)ed frames could reach
    /// it.
    fn is_up(&self) -> bool;

    /// Returns the next frame that the tenant sent; `None` if none is waiting, or too many are held
    /// already. In both cases [`fd`](Self::fd) becomes readable when that changes.
    ///
    /// A caller that stops before `None` must call again without waiting for [`fd`](Self::fd).
    ///
    /// # Errors
    /// The tenant violated the rules of its queue, which stops until the tenant sets it up again.
    fn take(&mut self, now: Instant) -> Result<Option<Sent>, PortError>;

    /// Returns a frame that announces the tenant's machine to its network, if one is due: the tenant has just started
    /// here, or its front end requests it after a live migration. It is read and released like a taken one. Requests within
    /// a tenth of a second have one announcement, after that.
    fn take_announcement(&mut self, _now: Instant) -> Option<Sent> {
        None
    }

    /// Copies `out.len()` bytes of a taken frame, starting at `offset`. The first [`HEAD_LEN`] bytes are the
    /// same in every call.
    ///
    /// # Errors
    /// The bytes are missing, because the tenant withdrew its memory or the frame is shorter; the rest of `out`
    /// is zeroed, so that the message can still be completed.
    fn read(
        &mut self,
        token: Token,
        offset: u32,
        out: &mut [u8],
        reading: Reading,
    ) -> Result<(), PortError>;

    /// Releases a frame that was acknowledged or given up. Unknown tokens are ignored.
    fn release(&mut self, token: Token);

    /// Returns to the tenant the buffers of frames taken longer than `after` ago, and keeps copies
    /// of those frames (BIFROST, 7.4: three retransmission timeouts, 28 ms). The frames stay
    /// readable until they are released. Call it every few milliseconds; it stops at the first
    /// frame that is not overdue. Returns the number of frames.
    fn release_overdue(&mut self, now: Instant, after: Duration) -> usize;

    /// Claims a buffer for a frame of `len` bytes, header included. Returns `None` if the tenant has no room or
    /// is not connected; then decline the packet, so that it is retransmitted. A frame that is
    /// [`OutOfOrder`](Turn::OutOfOrder) must leave room for a frame of any length. A frame that is
    /// [`Private`](Staging::Private) is not written to the tenant's memory before [`complete`](Self::complete).
    /// `head` has the frame's first bytes after the virtio header, none if they have not arrived.
    fn claim(&mut self, len: u32, turn: Turn, staging: Staging, head: &[u8]) -> Option<Slot>;

    /// Copies a piece of a frame to its place in the claimed buffer.
    ///
    /// # Errors
    /// The piece lies outside the claimed buffer, or the tenant withdrew its memory.
    fn place(&mut self, slot: Slot, offset: u32, bytes: &[u8]) -> Result<(), PortError>;

    /// Copies the first bytes of a buffer to `out` and returns their number. A buffer that is
    /// [`InPlace`](Staging::InPlace) is in the tenant's memory: do not base decisions on its content.
    fn peek(&mut self, slot: Slot, out: &mut [u8]) -> usize;

    /// Marks a frame as complete. The tenant gets frames in the order of these calls. A frame that
    /// does not fit its header is dropped and counted.
    fn complete(&mut self, slot: Slot);

    /// Cancels a frame and frees its buffer.
    fn cancel(&mut self, slot: Slot);

    /// Delivers frames completed and buffers released since the last call to the tenant, and
    /// interrupts it if it requests that. Retries frames that did not fit.
    ///
    /// # Errors
    /// Errors for the operator.
    fn flush(&mut self) -> Result<(), PortError>;

    /// Returns all buffers to the tenant, for example before an upgrade, so that the next program
    /// finds the interface intact. Taken frames stay readable from copies; claimed buffers are
    /// lost.
    fn return_buffers(&mut self);

    /// Returns the counters since the port was opened.
    fn counters(&self) -> PortCounters;

    /// Returns the frames and memory that the port holds now.
    fn holdings(&self) -> Holdings;
}

/// The counters of a port, from the tenant's point of view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortCounters {
    /// Number of frames that the tenant sent and the port took.
    pub sent_frames: u64,
    /// Number of bytes of the frames sent, without virtio headers.
    pub sent_bytes: u64,
    /// Number of frames delivered to the tenant.
    pub received_frames: u64,
    /// Number of bytes of the frames received, without virtio headers.
    pub received_bytes: u64,
    /// Number of interrupts, or of system calls that wrote a frame.
    pub notifications: u64,
    /// Number of claims refused because the tenant had no free buffer. The frames are not lost: their packets are
    /// retransmitted.
    pub no_buffer: u64,
    /// Number of sent frames of invalid length.
    pub bad_frame: u64,
    /// Number of frames for the tenant whose virtio header did not match them.
    pub bad_header: u64,
    /// Number of invalid descriptor chains: they loop, leave the guest's memory, are empty or violate virtio.
    pub bad_chain: u64,
    /// Number of completed frames that the tenant's interface refused, or that were lost when it was deleted.
    pub lost: u64,
    /// Number of completed frames that were segmented or checksummed for a tenant without these offloads.
    pub segmented: u64,
    /// Number of reads of memory that no longer exists.
    pub unreadable: u64,
    /// Number of buffers returned before their frame was acknowledged.
    pub overdue: u64,
    /// Number of frames that were released before they were copied.
    pub uncopied: u64,
    /// Number of frames whose buffer the tenant had changed before a retransmission.
    pub recycled_early: u64,
}

/// The frames and memory that a port holds now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holdings {
    /// Number of frames taken and not yet released.
    pub taken: usize,
    /// Number of frames claimed and not yet completed or cancelled.
    pub claimed: usize,
    /// Number of frames completed and not yet delivered.
    pub waiting: usize,
    /// Bytes of memory of this process that taken frames occupy; buffers of the tenant do not count.
    pub taken_memory: usize,
    /// Bytes of memory of this process that frames for the tenant occupy.
    pub claimed_memory: usize,
    /// Number of memory regions that the tenant shares, and their maximum.
    pub regions: (usize, usize),
    /// Number of pairs of queues that the tenant uses, and their maximum.
    pub queue_pairs: (usize, usize),
}
