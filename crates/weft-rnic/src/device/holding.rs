//! Payload that waits with the owner until packets before it have arrived: how many bytes that may be, of one peer and of
//! all together. A host that sends the ends of messages and never their beginnings takes so much memory and no more.
//!
//! The packet path asks before the owner keeps anything and gives back what was placed, dropped or lost with its
//! connection. What is refused here differs by service: messages that may be lost are, datagrams and those of UC; a packet of a
//! reliable one is declined, which to the transport is a loss.

use alloc::collections::BTreeMap;
use core::net::IpAddr;

use weft_transport::{ConnectionId, Placement};

use super::Device;
use super::carriers::Carriers;
use crate::Limits;
use crate::memory::{Held, Memory};
use crate::queue_pair::HeldPart;

/// Bytes that a held packet takes beside its payload: the owner's entry for it and the device's. A kernel counts its
/// packets likewise (`truesize`), or one-byte payloads would be free.
const OVERHEAD: u64 = 256;

/// Why payload is not held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotHeld {
    /// It would be more than this peer, or all peers, may have held.
    NoRoom,
    /// The payload is lost, and its connection ends.
    Lost,
}

/// Bytes that are held, by peer.
#[derive(Debug)]
pub(super) struct Holding {
    limit: u64,
    limit_per_peer: u64,
    bytes: u64,
    by_peer: BTreeMap<IpAddr, u64>,
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

    /// Counts `bytes` more for a peer; returns `false`, and counts nothing, where that is over a limit.
    pub(super) fn take(&mut self, peer: IpAddr, bytes: u64) -> bool {
        let of_peer = self.by_peer.get(&peer).copied().unwrap_or(0);
        let fits = self.bytes + bytes <= self.limit && of_peer + bytes <= self.limit_per_peer;
        if fits {
            self.add(peer, bytes);
        } else {
            self.refused += 1;
        }
        fits
    }

    /// Counts `bytes` more for a peer, over its limit too.
    pub(super) fn add(&mut self, peer: IpAddr, bytes: u64) {
        if bytes > 0 {
            self.bytes += bytes;
            *self.by_peer.entry(peer).or_default() += bytes;
        }
    }

    /// Counts `bytes` less for a peer.
    pub(super) fn give_back(&mut self, peer: IpAddr, bytes: u64) {
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

    /// Has the owner keep the payload of the packet being handled.
    pub(super) fn hold(
        &mut self,
        carriers: &Carriers,
        placement: &Placement,
        memory: &mut impl Memory,
    ) -> Result<HeldPart, NotHeld> {
        let Placement { connection, psn, offset, len, .. } = *placement;
        let peer = carriers.peer(connection).ok_or(NotHeld::Lost)?.address.ip();
        if !self.take(peer, cost(len)) {
            return Err(NotHeld::NoRoom);
        }
        let part = HeldPart { packet: Held { connection, psn }, offset, len, peer };
        memory.hold(part.packet).map(|()| part).map_err(|_| {
            self.let_go(&part);
            NotHeld::Lost
        })
    }

    /// Has the owner forget payload that it kept.
    pub(super) fn release(&mut self, part: HeldPart, memory: &mut impl Memory) {
        memory.release(part.packet);
        self.let_go(&part);
    }

    /// Counts a held packet no more.
    pub(super) fn let_go(&mut self, part: &HeldPart) {
        self.give_back(part.peer, cost(part.len));
    }
}

/// Bytes that a held packet counts.
const fn cost(len: u16) -> u64 {
    OVERHEAD + len as u64
}

impl Device {
    /// Returns the bytes of memory that packets take whose turn has not come: payload with the owner of the memory, and
    /// what the device notes beside it.
    pub const fn held_bytes(&self) -> u64 {
        self.holding.bytes
    }

    /// Returns how many packets were dropped or declined because [`Limits::held_bytes`] or
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
    fn no_peer_holds_more_than_its_part_and_none_more_than_is_left_of_all() {
        let limits = Limits { held_bytes: 25, held_bytes_per_peer: 10, ..Limits::default() };
        let mut holding = Holding::new(&limits);
        assert!(holding.take(peer(1), 10) && !holding.take(peer(1), 1));
        assert!(holding.take(peer(2), 10) && !holding.take(peer(3), 6) && holding.take(peer(3), 5));
        assert_eq!((holding.bytes, holding.refused), (25, 2));
        holding.give_back(peer(1), 4);
        assert!(holding.take(peer(3), 4));
        for (number, bytes) in [(1, 6), (2, 10), (3, 9)] {
            holding.give_back(peer(number), bytes);
        }
        assert_eq!((holding.bytes, holding.by_peer.len()), (0, 0));
    }

    #[test]
    fn what_must_be_counted_is_counted_over_the_limit_too() {
        let limits = Limits { held_bytes: 5, held_bytes_per_peer: 5, ..Limits::default() };
        let mut holding = Holding::new(&limits);
        holding.add(peer(1), 8);
        assert!(!holding.take(peer(1), 0) && !holding.take(peer(2), 1));
        holding.give_back(peer(1), 8);
        assert!(holding.take(peer(2), 1));
    }
}
