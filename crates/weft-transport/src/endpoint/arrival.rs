//! The metadata of a received packet.

use core::net::SocketAddr;

use weft_units::Instant;

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
