//! What the switch asks of whoever owns the tenants' interfaces.

/// Names a tenant's interface on this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortId(pub u32);

/// Names a frame that a tenant sent, at its port, until it is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u32);

/// Names a buffer that was claimed for a frame on its way to a tenant, at its port, until it is
/// completed or cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u32);

/// Whether a piece of a frame is read for the first time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// These bytes have not left yet.
    First,
    /// These bytes leave again.
    Again,
}

/// Whether a frame is the next that the tenant will see of its sender's.
///
/// Frames that come early could otherwise fill all buffers, be acknowledged, and wait for ever for a
/// frame that finds no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It is; it may have the last buffer.
    Next,
    /// It came before another; room for one frame of any length must stay.
    Early,
}

/// The memory in which a frame may lie until it is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Staging {
    /// In the tenant's own memory, where the tenant may read and change it at any time.
    InPlace,
    /// In memory that the tenant reaches only once the frame is complete: what decides whether the tenant
    /// may have it has not come yet.
    Private,
}

/// The tenants' interfaces. Frames have a virtio-net header of 12 bytes before them in both
/// directions. Nothing here waits, and nothing fails: what a tenant does wrong its port counts.
pub trait Tenants {
    /// Copies a piece of a frame that a tenant sent; zeros where it is gone.
    fn read(&mut self, port: PortId, token: Token, offset: u32, out: &mut [u8], reading: Reading);

    /// The switch needs the frame no longer.
    fn release(&mut self, port: PortId, token: Token);

    /// Returns a buffer for a frame of `len` bytes; `None` where the tenant has no room.
    fn claim(&mut self, port: PortId, len: u32, turn: Turn, staging: Staging) -> Option<Slot>;

    /// Copies a piece of a frame to where it belongs. Pieces come in any order.
    fn place(&mut self, port: PortId, slot: Slot, offset: u32, bytes: &[u8]);

    /// Copies the first bytes of a buffer to `out` and returns how many there were. Of a buffer that is
    /// [`InPlace`](Staging::InPlace) these are what its tenant made of them.
    fn peek(&mut self, port: PortId, slot: Slot, out: &mut [u8]) -> usize;

    /// The frame is whole. The tenant sees frames in the order of these calls.
    fn complete(&mut self, port: PortId, slot: Slot);

    /// The frame is not to be seen.
    fn cancel(&mut self, port: PortId, slot: Slot);
}
