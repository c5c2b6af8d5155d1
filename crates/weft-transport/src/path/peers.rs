//! What one connection learnt of the paths to a peer, for the others to it.
//!
//! Where the owner sends path `p` of every connection from one source port
//! ([`Endpoint::sharing_ports`](crate::Endpoint::sharing_ports)), all packets to one address take the same
//! way by it: a path that is dead for one connection is dead for all. Losses in a row are counted over all
//! connections, so that a path is found out by many that send one packet each. One connection probes a path
//! that is down: whoever found it, or, once that one rests, whoever sends next.

use alloc::collections::BTreeMap;
use core::net::SocketAddr;

use weft_units::Instant;

use super::PathId;
use crate::ConnectionId;

/// Records kept at most; one more takes the place of another.
const MAX_RECORDS: usize = 4096;

/// What is known of one path on which packets were lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Record {
    /// Losses counted in a row with nothing acknowledged between, over all connections.
    losses: u8,
    /// When the last of them was noticed.
    noticed_at: Instant,
    /// Whether the path is down.
    down: bool,
    /// The connection that probes it.
    prober: Option<ConnectionId>,
}

/// The paths to all peers on which packets were lost, of all connections of an endpoint.
#[derive(Debug, Default)]
pub(crate) struct PeerPaths {
    /// Whether connections to one address send each path from the same port.
    shared: bool,
    records: BTreeMap<(SocketAddr, PathId), Record>,
    /// Changes when a path goes down, comes back, or needs another connection to probe it.
    version: u32,
}

impl PeerPaths {
    /// Begins to share.
    pub(crate) const fn share(&mut self) {
        self.shared = true;
    }

    /// What a connection that knows everything remembers; zero at first.
    #[inline]
    pub(crate) const fn version(&self) -> u32 {
        self.version
    }

    /// Whether nothing was lost on any path.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Whether the path is known to be down.
    #[inline]
    pub(crate) fn is_down(&self, peer: SocketAddr, path: PathId) -> bool {
        !self.is_empty() && self.records.get(&(peer, path)).is_some_and(|record| record.down)
    }

    /// Whether the path is down and a connection probes it.
    pub(crate) fn is_probed(&self, peer: SocketAddr, path: PathId) -> bool {
        let record = self.records.get(&(peer, path));
        record.is_some_and(|record| record.down && record.prober.is_some())
    }

    /// The paths to `peer` that are down, each with whether a connection probes it.
    pub(crate) fn down(&self, peer: SocketAddr) -> impl Iterator<Item = (PathId, bool)> {
        let records = self.records.range((peer, PathId(0))..=(peer, PathId(u16::MAX)));
        let down = records.filter(|(_, record)| record.down);
        down.map(|(&(_, path), record)| (path, record.prober.is_some()))
    }

    /// A packet that was sent at `sent_at` was lost on the path; returns the losses in a row. Packets lost
    /// together count once, whatever connection they are of.
    pub(crate) fn note_loss(
        &mut self,
        peer: SocketAddr,
        path: PathId,
        sent_at: Instant,
        now: Instant,
    ) -> u8 {
        if !self.shared {
            return 0;
        }
        let record = self.record(peer, path);
        if record.losses == 0 || sent_at > record.noticed_at {
            record.losses = record.losses.saturating_add(1);
            record.noticed_at = now;
        }
        record.losses
    }

    /// Forgets the losses of the paths to `peer` of which `was_heard` says that a packet was acknowledged,
    /// unless they are down.
    pub(crate) fn note_heard(&mut self, peer: SocketAddr, was_heard: impl Fn(PathId) -> bool) {
        self.records.retain(|&(of, path), record| of != peer || record.down || !was_heard(path));
    }

    /// `prober` takes the path for dead and probes it. For all it is dead after `least` losses in a row over
    /// all: what one connection loses while another hears of the path closes it to nobody else.
    pub(crate) fn note_down(
        &mut self,
        peer: SocketAddr,
        path: PathId,
        prober: ConnectionId,
        least: u8,
    ) {
        let record = self.records.get_mut(&(peer, path));
        if let Some(record) = record.filter(|record| record.down || record.losses >= least) {
            record.down = true;
            record.prober = Some(prober);
            self.version = self.version.wrapping_add(1);
        }
    }

    /// The path carried a probe and its answer.
    pub(crate) fn note_up(&mut self, peer: SocketAddr, path: PathId) {
        if self.records.remove(&(peer, path)).is_some_and(|record| record.down) {
            self.version = self.version.wrapping_add(1);
        }
    }

    /// A connection probes no longer.
    pub(crate) fn note_rest(&mut self, peer: SocketAddr, connection: ConnectionId) {
        let of_peer = (peer, PathId(0))..=(peer, PathId(u16::MAX));
        for (_, record) in self.records.range_mut(of_peer) {
            if record.prober == Some(connection) {
                record.prober = None;
                self.version = self.version.wrapping_add(1);
            }
        }
    }

    fn record(&mut self, peer: SocketAddr, path: PathId) -> &mut Record {
        let key = (peer, path);
        if self.records.len() >= MAX_RECORDS && !self.records.contains_key(&key) {
            self.records.pop_first();
            self.version = self.version.wrapping_add(1);
        }
        let none = Record { losses: 0, noticed_at: Instant::EPOCH, down: false, prober: None };
        self.records.entry(key).or_insert(none)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;
    use core::net::{Ipv4Addr, SocketAddrV4};

    use super::*;

    fn peer(number: u32) -> SocketAddr {
        SocketAddrV4::new(Ipv4Addr::from(number), 4791).into()
    }

    fn at(micros: u64) -> Instant {
        Instant::from_nanos(micros * 1_000)
    }

    #[test]
    fn packets_lost_together_count_once_and_one_that_arrives_clears_the_count() {
        let mut paths = PeerPaths::default();
        assert_eq!(paths.note_loss(peer(1), PathId(3), at(1), at(9)), 0, "nobody shares");
        paths.share();
        let mut lose = |sent, now| paths.note_loss(peer(1), PathId(3), at(sent), at(now));
        assert_eq!([lose(1, 10), lose(2, 11), lose(9, 12), lose(11, 13)], [1, 1, 1, 2]);
        paths.note_heard(peer(2), |_| true);
        assert!(!paths.is_empty());
        paths.note_heard(peer(1), |path| path == PathId(3));
        assert!(paths.is_empty());
    }

    #[test]
    fn a_path_that_is_down_needs_a_prober_until_it_is_back() {
        let mut paths = PeerPaths::default();
        paths.share();
        paths.note_loss(peer(1), PathId(3), at(1), at(2));
        paths.note_down(peer(1), PathId(3), ConnectionId(7), 2);
        assert!(!paths.is_down(peer(1), PathId(3)), "one loss is not enough");
        paths.note_loss(peer(1), PathId(3), at(3), at(4));
        paths.note_down(peer(1), PathId(3), ConnectionId(7), 2);
        paths.note_heard(peer(1), |_| true);
        assert_eq!(paths.down(peer(1)).collect::<Vec<_>>(), [(PathId(3), true)]);
        assert_eq!(paths.down(peer(2)).count(), 0);
        let version = paths.version();
        paths.note_rest(peer(1), ConnectionId(8));
        assert_eq!(paths.version(), version);
        paths.note_rest(peer(1), ConnectionId(7));
        assert_ne!(paths.version(), version);
        assert_eq!(paths.down(peer(1)).collect::<Vec<_>>(), [(PathId(3), false)]);
        paths.note_up(peer(1), PathId(3));
        assert!(!paths.is_down(peer(1), PathId(3)) && paths.is_empty());
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut paths = PeerPaths::default();
        paths.share();
        for number in 0..10_000 {
            paths.note_loss(peer(number), PathId(0), at(1), at(2));
            paths.note_down(peer(number), PathId(0), ConnectionId(1), 1);
        }
        assert_eq!(paths.records.len(), MAX_RECORDS);
        assert!(paths.is_down(peer(9_999), PathId(0)));
    }
}
