//! Memory that others may reach: regions, windows, and the one place where an address and a key
//! become an owner's address; and of a guest's memory what is pinned for it.

use core::net::SocketAddr;

use weft_transport::ConnectionId;
use weft_wire::AtomicOperation;

mod access;
mod emtt;
mod guest;
mod pvdma;
#[cfg(test)]
mod tests;

pub use access::Access;
pub(crate) use emtt::Accessor;
pub(crate) use emtt::Emtt;
pub use emtt::{AccessError, Bind, RegionRequest, Right, WindowKind};
pub use guest::{Doorbell, DoorbellSpace, GuestSpace, MapError, Meaning, PAGE_BYTES};
pub use pvdma::{BLOCK_BYTES, Block, DmaError, DmaUser, Mapped, Pinning, Pvdma};

/// Who owns a piece of memory, which is what the table adds to an address (STELLAR, section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Owner {
    /// A process of this host, by the owner's number.
    Host(u32),
    /// A guest's memory.
    Guest(u32),
    /// A GPU's memory.
    Gpu(u32),
}

/// What a request on the PCIe bus says of its address (PCIe Base Specification, section 2.2.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressType {
    /// `00`: the IOMMU has to translate it, so it goes to the root complex.
    Untranslated,
    /// `10`: it is final, and a switch may pass it to the device it belongs to.
    Translated,
}

impl Owner {
    /// How memory of this owner is addressed on the bus (STELLAR, figure 7): the table has a GPU's final
    /// addresses, which switches route to it directly; those of a host or a guest change when pages move,
    /// and the IOMMU has the last word.
    pub const fn address_type(self) -> AddressType {
        match self {
            Self::Host(_) | Self::Guest(_) => AddressType::Untranslated,
            Self::Gpu(_) => AddressType::Translated,
        }
    }
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

/// The payload of the packet being handled is not to be had any more, where the sender's memory is read only
/// now: it took the message back, or is gone. The message's connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the sender's memory is not there any more")]
pub struct PayloadLost;

/// The memory behind a device. The device says what goes where; the owner copies. Every place is
/// inside a region that was registered, with the rights the access needs.
pub trait Memory {
    /// Copies payload of the packet being handled, from byte `from` on, to `place`.
    ///
    /// # Errors
    /// See [`PayloadLost`]; what is at `place` then is undefined.
    fn place(&mut self, place: Place, from: u16) -> Result<(), PayloadLost>;

    /// Keeps the payload of the packet being handled: it belongs last and came early.
    ///
    /// # Errors
    /// See [`PayloadLost`].
    fn hold(&mut self, packet: Held) -> Result<(), PayloadLost>;

    /// Copies payload that was held, from byte `from` on, to `place`.
    fn place_held(&mut self, packet: Held, place: Place, from: u16);

    /// Forgets payload that was held.
    fn release(&mut self, packet: Held);

    /// Writes `bytes` to `place`, which is as long.
    fn write(&mut self, place: Place, bytes: &[u8]);

    /// The 40 bytes that a datagram's receive request begins with, for one of `length` bytes that the
    /// packet being handled completed: its global route header (IBTA volume 1, chapter 8), or what RoCE
    /// has there. Owners without addresses have none.
    fn route_header(&mut self, _from: SocketAddr, _length: u32) -> [u8; 40] {
        [0; 40]
    }

    /// Applies `operation` to the eight bytes at `place`, atomically for every observer, and returns the value before it
    /// (see [`AtomicOperation::apply`]).
    fn atomic(&mut self, place: Place, operation: AtomicOperation) -> u64;
}
