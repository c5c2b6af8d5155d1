//! Memory that others may reach: regions, windows, and the one place where an address and a key
//! become an owner's address.

use weft_transport::ConnectionId;

mod access;
mod emtt;
#[cfg(test)]
mod tests;

pub use access::Access;
pub(crate) use emtt::Accessor;
pub(crate) use emtt::Emtt;
pub use emtt::{AccessError, Bind, RegionRequest, Right, WindowKind};

/// Who owns a piece of memory. Two owners are reached in two ways: host and guest memory through the
/// root complex, GPU memory directly (STELLAR, figure 7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Owner {
    /// A process of this host, by the owner's number.
    Host(u32),
    /// A guest's memory.
    Guest(u32),
    /// A GPU's memory.
    Gpu(u32),
}

/// A piece of an owner's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Whose.
    pub owner: Owner,
    /// Where, as the owner counts.
    pub address: u64,
    /// How long, bytes.
    pub len: u32,
}

/// Names a packet whose payload waits with the owner of the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Held {
    /// The connection it came on.
    pub connection: ConnectionId,
    /// Its number there.
    pub psn: u32,
}

/// The memory behind a device. The device says what goes where; the owner copies. Every place is
/// inside a region that was registered, with the rights the access needs.
pub trait Memory {
    /// Copies payload of the packet being handled, from byte `from` on, to `place`.
    fn place(&mut self, place: Place, from: u16);

    /// Keeps the payload of the packet being handled: it belongs last and came early.
    fn hold(&mut self, packet: Held);

    /// Copies payload that was held, from byte `from` on, to `place`.
    fn place_held(&mut self, packet: Held, place: Place, from: u16);

    /// Forgets payload that was held.
    fn release(&mut self, packet: Held);

    /// Writes `bytes` to `place`, which is as long.
    fn write(&mut self, place: Place, bytes: &[u8]);

    /// Adds to the eight bytes at `place`, at once for everybody who looks; gives what was there.
    fn fetch_add(&mut self, place: Place, add: u64) -> u64;

    /// Stores `swap` in the eight bytes at `place` if `compare` is there, at once for everybody who
    /// looks; gives what was there.
    fn compare_swap(&mut self, place: Place, compare: u64, swap: u64) -> u64;
}
