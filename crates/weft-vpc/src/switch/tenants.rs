//! The interface through which the switch reaches the tenants' ports; its owner implements it.

/// The number of a tenant's interface on this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortId(pub u32);

/// The number of a frame that a tenant sent, unique at its port until it is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u32);

/// The number of a buffer that was claimed for a frame to a tenant, unique at its port until it is
/// completed or cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u32);

/// The distinction between the first and later reads of a piece of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// These bytes have not been sent yet.
    First,
    /// These bytes are retransmitted.
    Retransmission,
}

/// The position of a frame in the order in which the tenant sees its sender's frames.
///
/// Frames that arrive early could otherwise fill all buffers, be acknowledged, and wait forever for a
/// frame that finds no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The frame is next; it may take the last buffer.
    Next,
    /// Another frame comes before it; room for one frame of any length must remain.
    OutOfOrder,
}

/// The memory in which a frame is stored until it is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Staging {
    /// The tenant's own memory, which the tenant may read and change at any time.
    InPlace,
    /// Memory that the tenant reaches only once the frame is complete, because the decision on the frame needs
    /// bytes that have not arrived yet.
    Private,
}

/// The tenants' interfaces. Frames have a virtio-net header of 12 bytes before them in both
/// directions. No method waits or fails: the port counts a tenant's errors.
pub trait Tenants {
    /// Copies a piece of a frame that a tenant sent; zeros if the frame is gone.
    fn read(&mut self, port: PortId, token: Token, offset: u32, out: &mut [u8], reading: Reading);

    /// Releases a frame that the switch no longer needs.
    fn release(&mut self, port: PortId, token: Token);

    /// Returns a buffer for a frame of `len` bytes; `None` if the tenant has no room. `head` has the frame's first
    /// bytes after the virtio-net header, none if they have not arrived: a tenant with several queues receives the
    /// frames of a flow in one of them.
    fn claim(
        &mut self,
        port: PortId,
        len: u32,
        turn: Turn,
        staging: Staging,
        head: &[u8],
    ) -> Option<Slot>;

    /// Copies a piece of a frame to `offset` of its buffer. Pieces come in any order.
    fn place(&mut self, port: PortId, slot: Slot, offset: u32, bytes: &[u8]);

    /// Copies the first bytes of a buffer to `out` and returns their number. Bytes of a buffer that is
    /// [`InPlace`](Staging::InPlace) may have been changed by its tenant.
    fn peek(&mut self, port: PortId, slot: Slot, out: &mut [u8]) -> usize;

    /// Completes a whole frame. The tenant sees frames in the order of these calls.
    fn complete(&mut self, port: PortId, slot: Slot);

    /// Discards a frame that the tenant must not see.
    fn cancel(&mut self, port: PortId, slot: Slot);
}
