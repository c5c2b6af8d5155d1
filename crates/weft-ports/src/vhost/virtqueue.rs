//! The operations of a virtqueue, split (virtio 1.2, 2.7) or packed (2.8), and their errors.

use super::chain::{ChainError, Segment};
use super::memory::{Memory, Missing};

/// Maximum number of descriptors of a ring (QEMU's `VIRTQUEUE_MAX_SIZE` is 1,024, the paper's rings have 4,096).
pub(super) const MAX_SIZE: u16 = 32_768;

/// Maximum number of pieces of all buffers that are taken to receive into: their lists are memory of this process, and a guest can offer
/// 1,024 pieces for each descriptor. Linux has up to 20 for each frame.
pub(super) const MAX_PIECES: usize = 1 << 17;

/// The errors that stop a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RingError {
    /// A chain that virtio forbids.
    #[error(transparent)]
    Chain(#[from] ChainError),
    /// The guest makes more buffers available than the ring has descriptors for.
    #[error("the ring offers more buffers than it has")]
    Overrun,
    /// A chain that begins outside the table, or has an identifier that is no index of the ring.
    #[error("a chain that begins at descriptor {head} of a table of {size}")]
    Head {
        /// The index.
        head: u16,
        /// The size.
        size: u16,
    },
    /// A buffer is made available that was not returned yet.
    #[error("descriptor {head} is offered twice")]
    Twice {
        /// The chain's first descriptor, or its identifier.
        head: u16,
    },
    /// A receive buffer has no room for a virtio header.
    #[error("a buffer of {len} bytes to receive into")]
    Short {
        /// The buffer's bytes.
        len: u32,
    },
    /// The buffers to receive into have too many pieces.
    #[error("buffers to receive into of more than {MAX_PIECES} pieces in total")]
    Pieces,
    /// The ring is outside the guest's memory.
    #[error("the ring is not in the guest's memory")]
    Missing,
}

impl From<Missing> for RingError {
    fn from(_: Missing) -> Self {
        Self::Missing
    }
}

/// A ring of either format: the buffers that the guest makes available, and those returned as used. A buffer is named
/// by its `head`: the index of its first descriptor in a split ring, its identifier in a packed one.
pub(super) trait Virtqueue {
    /// Returns the number of descriptors.
    fn size(&self) -> usize;

    /// Sets the number of descriptors; `None` for one that the format does not allow.
    fn set_size(&mut self, size: u32) -> Option<()>;

    /// Sets the position from which buffers are taken, as vhost-user encodes it; `None` for one that the format does
    /// not have.
    fn set_base(&mut self, base: u32) -> Option<()>;

    /// Returns the position from which the next buffer is taken, as vhost-user encodes it.
    fn base(&self) -> u32;

    /// Sets the guest-physical addresses of the descriptors, of the part that the driver writes and of the part that
    /// the device writes; `None` if they are not in the guest's memory.
    fn locate(&mut self, memory: &Memory, places: [u64; 3]) -> Option<()>;

    /// Begins at the position that was set, without any buffer taken. A ring that was used before continues where it
    /// ended.
    fn start(&mut self, memory: &Memory, event_idx: bool);

    /// Takes the next available buffer.
    ///
    /// # Errors
    /// The driver violated virtio.
    fn next_head(&mut self, memory: &Memory) -> Result<Option<u16>, RingError>;

    /// Appends the pieces of a taken buffer to `segments` and returns their total bytes.
    ///
    /// # Errors
    /// The driver violated virtio, or has changed the chain since it was taken.
    fn walk(
        &self,
        memory: &Memory,
        head: u16,
        segments: &mut Vec<Segment>,
    ) -> Result<u32, ChainError>;

    /// Returns a buffer, of which `len` bytes were written. The guest does not see it before
    /// [`publish`](Self::publish).
    fn push_used(&mut self, memory: &Memory, head: u16, len: u32);

    /// Publishes all returned buffers to the guest at once: a frame that fills several buffers must not appear in parts
    /// (5.1.6.4). Returns `true` if the guest requests an interrupt.
    fn publish(&mut self, memory: &Memory) -> bool;

    /// Requests a kick for the next available buffer. Returns `true` if buffers became available meanwhile, for which
    /// no kick follows.
    fn enable_kicks(&mut self, memory: &Memory) -> bool;

    /// Suppresses kicks, for a ring that is polled.
    fn suppress_kicks(&mut self, memory: &Memory);

    /// Leaves the ring, all buffers returned and published, so that another process can continue.
    fn leave(&mut self, memory: &Memory);
}
