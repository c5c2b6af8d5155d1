//! The metadata of a received packet.

use core::net::SocketAddr;

use weft_units::Instant;

/// The place where a switch cut a packet to its headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrimmedAt {
    /// Inside the fabric: another path may be free.
    Fabric,
    /// At the last switch, whose port leads to this host: every path ends there.
    LastHop,
}

/// The metadata of a received packet.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// The source address; the port is the peer's entropy, not its receive port.
    pub from: SocketAddr,
    /// The time at which the NIC (or the kernel) received it: t2 of data, t4 of ACKs (BIFROST, appendix D).
    pub received_at: Instant,
    /// `true` if it carries the congestion-experienced mark (RFC 3168).
    pub congestion_experienced: bool,
    /// Number of hops it passed, from its TTL; zero if unknown.
    pub hops: u8,
}
