//! What every kind of port can do, and the words for it.

use std::fmt::Debug;
use std::os::fd::BorrowedFd;

use weft_units::{Duration, Instant};
use weft_vpc::{Reading, Slot, Staging, Token, Turn};

use crate::PortError;

/// Bytes of `virtio_net_hdr_v1`, which precede every frame in both directions (virtio 1.2, 5.1.6).
pub const HEADER_LEN: u32 = 12;

/// The longest frame with its header: an IP packet of 64 KiB less one, an Ethernet header, a VLAN tag.
pub const MAX_FRAME: u32 = HEADER_LEN + 18 + 65_535;

/// How many bytes of a taken frame, header included, cannot change any more: what a switch looks at
/// ([`weft_vpc::Frame::LOOK_AHEAD`]). The bytes behind them may still be in a guest's memory, and the guest may write
/// there whenever it likes.
pub const HEAD_LEN: u32 = HEADER_LEN + 256;

const _: () = assert!(HEAD_LEN as usize == HEADER_LEN as usize + weft_vpc::Frame::LOOK_AHEAD);

/// A frame that the tenant sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Its name.
    pub token: Token,
    /// Bytes of it, with the header: [`HEADER_LEN`] + 14 to [`MAX_FRAME`].
    pub len: u32,
}

/// A tenant's interface. One thread drives it:
///
/// 1. it waits until [`fd`](Self::fd) is readable (level-triggered), then calls [`attend`](Self::attend);
/// 2. it [`take`](Self::take)s frames until there is none or until it wants no more, [`read`](Self::read)s
///    them as often as they leave, and [`release`](Self::release)s each once;
/// 3. it [`claim`](Self::claim)s a buffer when the first packet of a frame for the tenant arrives,
///    [`place`](Self::place)s packets in any order, and [`complete`](Self::complete)s buffers in the order in
///    which the tenant shall see them;
/// 4. it calls [`flush`](Self::flush) once a turn, after everything else.
///
/// Whatever the tenant does, a port neither panics nor blocks nor harms another port. Errors are reports
/// for the log: the port has already counted them and goes on, or waits until its tenant comes back.
pub trait Port: Debug + Send {
    /// Readable when there is something to [`attend`](Self::attend) to or to [`take`](Self::take). The same as
    /// long as the port lives, whoever comes and goes behind it.
    fn fd(&self) -> BorrowedFd<'_>;

    /// Serves whoever controls the interface: connects, disconnects, negotiates, resizes memory; and
    /// [`flush`](Self::flush)es, for which the tenant may have made room. Call it when [`fd`](Self::fd) is readable,
    /// and every second or so in any case.
    ///
    /// # Errors
    /// What happened that an operator should know.
    fn attend(&mut self, now: Instant) -> Result<(), PortError>;

    /// Whether a tenant is there: what is [`claim`](Self::claim)ed could reach it.
    fn is_up(&self) -> bool;

    /// The next frame that the tenant sent. `None`: none is waiting, or too many are held
    /// already; in both cases [`fd`](Self::fd) becomes readable when that changes.
    ///
    /// A caller that stops before `None` must come back by itself.
    ///
    /// # Errors
    /// The tenant broke the rules of its queue, which stops until the tenant sets it up again.
    fn take(&mut self, now: Instant) -> Result<Option<Sent>, PortError>;

    /// Copies `out.len()` bytes of a taken frame from `offset` on. The first [`HEAD_LEN`] bytes are the same
    /// every time.
    ///
    /// # Errors
    /// The bytes are gone, because the tenant took its memory away or the frame is not that long; `out` is then
    /// filled up with zeros, so that the message can still be finished.
    fn read(
        &mut self,
        token: Token,
        offset: u32,
        out: &mut [u8],
        reading: Reading,
    ) -> Result<(), PortError>;

    /// The frame was acknowledged or given up. Unknown tokens are ignored.
    fn release(&mut self, token: Token);

    /// Gives the buffers of frames back to the tenant that were taken longer than `after` ago, and keeps
    /// copies of those frames from now on (BIFROST, 7.4: three retransmission timeouts, 28 ms). The frames
    /// stay readable until they are released. Call it every few milliseconds; it looks no further than the
    /// first that is not overdue. How many there were.
    fn release_overdue(&mut self, now: Instant, after: Duration) -> usize;

    /// Claims a buffer for a frame of `len` bytes, header included. `None`: the tenant has no room (or is not
    /// there); decline the packet, so that it comes again. A frame that is [`Early`](Turn::Early) must leave
    /// room for one of any length. Nothing of one that is [`Private`](Staging::Private) is in the tenant's memory
    /// before [`complete`](Self::complete).
    fn claim(&mut self, len: u32, turn: Turn, staging: Staging) -> Option<Slot>;

    /// Copies a piece of a frame to where it belongs.
    ///
    /// # Errors
    /// The piece lies outside what was claimed, or the tenant took its memory away.
    fn place(&mut self, slot: Slot, offset: u32, bytes: &[u8]) -> Result<(), PortError>;

    /// Copies the first bytes of a buffer to `out` and returns how many there were. A buffer that is
    /// [`InPlace`](Staging::InPlace) is in the tenant's memory: decide nothing by what it holds.
    fn peek(&mut self, slot: Slot, out: &mut [u8]) -> usize;

    /// The whole frame is there. The tenant sees frames in the order of these calls. A frame whose header does
    /// not fit it is dropped and counted.
    fn complete(&mut self, slot: Slot);

    /// The frame is not to be seen: its buffer is free again.
    fn cancel(&mut self, slot: Slot);

    /// Shows the tenant what was completed and released since the last call, and interrupts it if it wants to
    /// be. Frames that did not fit are tried again.
    ///
    /// # Errors
    /// What an operator should know.
    fn flush(&mut self) -> Result<(), PortError>;

    /// Gives all buffers back to the tenant, as before an upgrade: a program that takes the
    /// interface over later finds it whole. Taken frames stay readable from copies; claimed buffers are
    /// lost.
    fn settle(&mut self);

    /// What the port counted since it was opened.
    fn counters(&self) -> PortCounters;

    /// What the port holds at this moment.
    fn holdings(&self) -> Holdings;
}

/// What a port counted, from the tenant's point of view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortCounters {
    /// Frames that the tenant sent and that were taken.
    pub sent_frames: u64,
    /// Their bytes, without virtio headers.
    pub sent_bytes: u64,
    /// Frames that the tenant was shown.
    pub received_frames: u64,
    /// Their bytes, without virtio headers.
    pub received_bytes: u64,
    /// Interrupts, or system calls that wrote a frame.
    pub notifications: u64,
    /// Claims refused, because the tenant had no room. Not losses: the packets come again.
    pub no_buffer: u64,
    /// Sent frames that are no frames: too short, too long.
    pub bad_frame: u64,
    /// Frames for the tenant whose virtio header did not fit them.
    pub bad_header: u64,
    /// Descriptor chains that loop, leave the guest's memory, are empty or are not what virtio allows.
    pub bad_chain: u64,
    /// Completed frames that the tenant's interface refused, or that were lost because it went away.
    pub lost: u64,
    /// Completed frames that were cut into smaller ones, or whose checksum was computed, for a tenant that
    /// asked for it.
    pub segmented: u64,
    /// Reads that met memory which is no longer there.
    pub unreadable: u64,
    /// Buffers given back before their frame was acknowledged.
    pub overdue: u64,
    /// Frames that were released before any copy of them was made.
    pub uncopied: u64,
    /// Frames whose buffer the tenant had changed when they were read again.
    pub recycled_early: u64,
}

/// What a port holds at this moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holdings {
    /// Taken and not yet released.
    pub taken: usize,
    /// Claimed and not yet completed or cancelled.
    pub claimed: usize,
    /// Completed and not yet shown to the tenant.
    pub waiting: usize,
    /// Bytes of memory of this process that taken frames occupy; buffers of the tenant do not count.
    pub taken_memory: usize,
    /// Bytes of memory of this process that frames for the tenant occupy.
    pub claimed_memory: usize,
    /// Regions of memory that the tenant shares, and may share.
    pub regions: (usize, usize),
}
