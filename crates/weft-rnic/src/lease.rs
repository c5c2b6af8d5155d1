//! Leases of memory, and the notifications of their borrowers. The device's owner passes both between the devices of its host;
//! `device/leases.rs` grants, revokes and uses leases.

use weft_transport::{ConnectionId, LinkId};

use crate::memory::Owner;

/// A region that a peer may access directly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The connection whose requests may use the lease, by the borrower's id.
    pub connection: ConnectionId,
    /// The key that requests name.
    pub key: u32,
    /// The first address of the region in requests.
    pub start: u64,
    /// The length in bytes.
    pub length: u64,
    /// The first address in the lender's memory.
    pub address: u64,
    /// `true` if the borrower may write.
    pub writable: bool,
    /// `true` if the borrower may read.
    pub readable: bool,
}

/// The way in which a borrower accesses the memory of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// By a system call for each request, which takes longer than a short message over a link.
    SystemCall,
    /// By loads and stores: the owner has mapped the memory.
    Mapped,
}

/// The id of a lease at its borrower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseId {
    /// The link to the lender.
    pub link: LinkId,
    /// The number of the lease on that link.
    pub number: u64,
}

/// A notification for borrowers of the device's memory, which the device's owner delivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseEvent {
    /// The peer at the other end of a link gets a lease.
    Granted {
        /// The link.
        link: LinkId,
        /// The owner of the memory.
        owner: Owner,
        /// The connection, by this device's id.
        connection: ConnectionId,
        /// The lease.
        lease: Lease,
    },
    /// All leases of this key are revoked.
    KeyRevoked(u32),
    /// All leases of this connection are revoked.
    ConnectionRevoked(ConnectionId),
}
