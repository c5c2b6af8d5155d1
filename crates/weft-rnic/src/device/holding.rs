//! Accounting of payload that the owner holds until earlier packets have arrived, with a limit for each peer and for
//! all together. The limits bound the memory that a host can occupy by sending the ends of messages and never their
//! beginnings.
//!
//! The packet path reserves bytes before the owner holds a packet, and releases them when the packet was placed, dropped or
//! lost with its connection. At a limit, a datagram or a message of UC is dropped; a packet of a reliable connection is
//! declined, which the transport handles as a loss.

use alloc::collections::BTreeMap;
use core::net::IpAddr;

use weft_transport::{ConnectionId, Placement};

use super::Device;
use super::carriers::Carriers;
use crate::Limits;
use crate::memory::{Held, Memory};
use crate::queue_pair::HeldPart;

/// Bytes that a held packet counts in addition to its payload, for the entries of the owner and the device. Kernels
/// account for packets in the same way (`truesize`); otherwise packets with one byte of payload would be almost free.
const OVERHEAD: u64 = 256;

/// The reason for not holding payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotHeld {
    /// The limit of the peer, or of all peers together, is reached.
    NoRoom,
    /// The payload is lost, and the connection ends.
    Lost,
}

/// Held bytes by peer.
#[derive(Debug)]
pub(super) struct Holding {
    limit: u64,
    limit_per_peer: u64,
    bytes: u64,
    by_peer: BTreeMap<IpAddr, u64>,
    /// Number of reservations that a limit refused.
    refused: u64,
}

impl Holding {
    pub(super) const fn new(limits: &Limits) -> Self {
        Self {
            limit: limits.held_bytes,
            limit_per_peer: limits.held_bytes_per_peer,
            bytes: 0,
            by_peer: BTreeMap::new(),
            refused: 0,
        }
    }

    /// Reserves `bytes` for a peer; returns `false`, and reserves nothing, if that exceeds a limit.
    pub(super) fn reserve(&mut self, peer: IpAddr, bytes: u64) -> bool {
        let of_peer = self.by_peer.get(&peer).copied().unwrap_or(0);
        let fits = self.bytes + bytes <= self.limit && of_peer + bytes <= self.limit_per_peer;
        if fits {
            self.reserve_over_limit(peer, bytes);
        } else {
            self.refused += 1;
        }
        fits
    }

    /// Reserves `bytes` for a peer, regardless of limits.
    pub(super) fn reserve_over_limit(&mut self, peer: IpAddr, bytes: u64) {
        if bytes > 0 {
            self.bytes += bytes;
            *self.by_peer.entry(peer).or_default() += bytes;
        }
    }

    /// Releases `bytes` of a peer.
    pub(super) fn free(&mut self, peer: IpAddr, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let of_peer = self.by_peer.get_mut(&peer).expect("a peer with held bytes is listed");
        *of_peer -= bytes;
        if *of_peer == 0 {
            self.by_peer.remove(&peer);
        }
        self.bytes -= bytes;
    }

    /// Has the owner hold the payload of the packet that is being handled.
    ///
    /// # Errors
    /// See [`NotHeld`].
    pub(super) fn hold(
        &mut self,
        carriers: &Carriers,
        placement: &Placement,
        memory: &mut impl Memory,
    ) -> Result<HeldPart, NotHeld> {
        let Placement { connection, psn, offset, len, .. } = *placement;
        let peer = carriers.peer(connection).ok_or(NotHeld::Lost)?.address.ip();
        if !self.reserve(peer, cost(len)) {
            return Err(NotHeld::NoRoom);
        }
        let part = HeldPart { packet: Held { connection, psn }, offset, len, peer };
        memory.hold(part.packet).map(|()| part).map_err(|_| {
            self.free_packet(&part);
            NotHeld::Lost
        })
    }

    /// Has the owner drop held payload.
    pub(super) fn release(&mut self, part: HeldPart, memory: &mut impl Memory) {
        memory.release(part.packet);
        self.free_packet(&part);
    }

    /// Releases the bytes of a held packet.
    pub(super) fn free_packet(&mut self, part: &HeldPart) {
        self.free(part.peer, cost(part.len));
    }
}

/// Returns the bytes that a held packet counts.
const fn cost(len: u16) -> u64 {
    OVERHEAD + len as u64
}

impl Device {
    /// Returns the bytes of memory of held packets: payload at the owner, and entries of the device.
    pub const fn held_bytes(&self) -> u64 {
        self.holding.bytes
    }

    /// Returns the number of packets that were dropped or declined because [`Limits::held_bytes`] or
    /// [`Limits::held_bytes_per_peer`] was reached.
    pub const fn held_refused(&self) -> u64 {
        self.holding.refused
    }

    /// Returns the address of a connection's peer.
    pub(super) fn peer_ip(&self, connection: ConnectionId) -> Option<IpAddr> {
        self.carriers.peer(connection).map(|peer| peer.address.ip())
    }
}

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;

    use super::*;

    fn peer(number: u8) -> IpAddr {
        Ipv4Addr::new(10, 0, 0, number).into()
    }

    #[test]
    fn limits_hold_for_each_peer_and_for_all_peers() {
        let limits = Limits { held_bytes: 25, held_bytes_per_peer: 10, ..Limits::default() };
        let mut holding = Holding::new(&limits);
        assert!(holding.reserve(peer(1), 10) && !holding.reserve(peer(1), 1));
        assert!(
            holding.reserve(peer(2), 10)
                && !holding.reserve(peer(3), 6)
                && holding.reserve(peer(3), 5)
        );
        assert_eq!((holding.bytes, holding.refused), (25, 2));
        holding.free(peer(1), 4);
        assert!(holding.reserve(peer(3), 4));
        for (number, bytes) in [(1, 6), (2, 10), (3, 9)] {
            holding.free(peer(number), bytes);
        }
        assert_eq!((holding.bytes, holding.by_peer.len()), (0, 0));
    }

    #[test]
    fn reserving_over_the_limit_counts() {
        let limits = Limits { held_bytes: 5, held_bytes_per_peer: 5, ..Limits::default() };
        let mut holding = Holding::new(&limits);
        holding.reserve_over_limit(peer(1), 8);
        assert!(!holding.reserve(peer(1), 0) && !holding.reserve(peer(2), 1));
        holding.free(peer(1), 8);
        assert!(holding.reserve(peer(2), 1));
    }
}
