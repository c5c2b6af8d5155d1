//! Memory that peers may access: regions, windows, the translation of keys and addresses, and on-demand pinning of a guest's
//! memory.

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
pub use emtt::{AccessError, Bind, RegionRequest, Right, WindowKind};
pub(crate) use emtt::{Accessor, Emtt, next_window_key};
pub use guest::{Doorbell, DoorbellSpace, GuestSpace, MapError, Meaning, PAGE_BYTES};
pub use pvdma::{BLOCK_BYTES, Block, DmaError, DmaUser, Mapped, Pinning, Pvdma};

/// The owner of a piece of memory, which the table adds to an address (STELLAR, section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Owner {
    /// A process of this host, by a number that the device's owner assigns.
    Host(u32),
    /// A guest's memory.
    Guest(u32),
    /// A GPU's memory.
    Gpu(u32),
}

/// The address type of a request on the PCIe bus (PCIe Base Specification, section 2.2.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressType {
    /// `00`: the IOMMU translates the address, so the request goes to the root complex.
    Untranslated,
    /// `10`: the address is final, and a switch may route the request directly to the device it belongs to.
    Translated,
}

impl Owner {
    /// Returns the address type of requests to this owner's memory (STELLAR, figure 7). The table has a GPU's final addresses,
    /// which switches route directly; addresses of a host or a guest change when pages move, so the IOMMU translates them.
    pub const fn address_type(self) -> AddressType {
        match self {
            Self::Host(_) | Self::Guest(_) => AddressType::Untranslated,
            Self::Gpu(_) => AddressType::Translated,
        }
    }
}

/// A range of an owner's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The owner.
    pub owner: Owner,
    /// The address in the owner's memory.
    pub address: u64,
    /// The length in bytes.
    pub len: u32,
}

/// The id of a packet whose payload the owner of the memory holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Held {
    /// The connection on which it arrived.
    pub connection: ConnectionId,
    /// Its packet sequence number.
    pub psn: u32,
}

/// The payload of the packet that is being handled is no longer available. This occurs where the sender's memory is read on
/// arrival: the sender withdrew the message, or has exited. The connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the sender's memory is not there any more")]
pub struct PayloadLost;

/// The memory that a device accesses. The device determines source and destination of each copy, and the owner copies.
/// Every place is inside a registered region with the required rights.
pub trait Memory {
    /// Copies payload of the packet that is being handled, starting at byte `from`, to `place`.
    ///
    /// # Errors
    /// See [`PayloadLost`]; the bytes at `place` are then undefined.
    fn place(&mut self, place: Place, from: u16) -> Result<(), PayloadLost>;

    /// Holds the payload of the packet that is being handled until it is placed or released.
    ///
    /// # Errors
    /// See [`PayloadLost`].
    fn hold(&mut self, packet: Held) -> Result<(), PayloadLost>;

    /// Copies held payload, starting at byte `from`, to `place`.
    fn place_held(&mut self, packet: Held, place: Place, from: u16);

    /// Drops held payload.
    fn release(&mut self, packet: Held);

    /// Writes `bytes` to `place`, which has the same length.
    fn write(&mut self, place: Place, bytes: &[u8]);

    /// Returns the first 40 bytes of the receive buffer of a datagram of `length` bytes: its global route header (IBTA volume 1,
    /// chapter 8), or RoCE's equivalent. The packet that is being handled completed the datagram. The default is zeros.
    fn route_header(&mut self, _from: SocketAddr, _length: u32) -> [u8; 40] {
        [0; 40]
    }

    /// Applies `operation` to the eight bytes at `place`, atomically for every observer, and returns the value before it
    /// (see [`AtomicOperation::apply`]).
    fn atomic(&mut self, place: Place, operation: AtomicOperation) -> u64;
}
