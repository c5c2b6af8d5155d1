//! Datagrams that arrived together.

use std::net::SocketAddr;

use weft_units::Instant;

/// Datagrams of one sender that arrived together.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    /// Their source address and port.
    pub from: SocketAddr,
    /// Their bytes, concatenated.
    pub bytes: &'a [u8],
    /// Length of each datagram except the last, which may be shorter, in bytes.
    pub segment: usize,
    /// `true` if they carry the congestion-experienced mark.
    pub congestion_experienced: bool,
    /// Number of hops, if the sender's TTL is 64; zero if it is higher, or the kernel reports none.
    pub hops: u8,
    /// The kernel's wall-clock time of arrival, nanoseconds; zero where stamping is off.
    pub wall_clock_nanos: u64,
}

impl<'a> Received<'a> {
    /// Returns each datagram.
    pub fn datagrams(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.bytes.chunks(self.segment.max(1))
    }

    /// Returns their arrival time by the monotonic clock, at most `now`.
    #[inline]
    pub fn received_at(&self, now: Instant, wall_clock_lead: u64) -> Instant {
        match self.wall_clock_nanos {
            0 => now,
            stamp => now.min(Instant::from_nanos(stamp.wrapping_sub(wall_clock_lead))),
        }
    }
}
