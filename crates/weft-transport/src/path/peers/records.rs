//! The records of the paths to every peer, bounded in number, with totals that answer most questions without a lookup.
//! Every change of a record passes through here, so the totals are those of the records.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;

use weft_units::{Duration, Instant};

use crate::ConnectionId;
use crate::connection::RoundTrip;
use crate::path::PathId;
use crate::path::news::{Advertised, PeerPorts};

mod lossy;

pub(super) use lossy::Lossy;

/// Maximum number of records; those of another peer are removed to make room.
pub(super) const MAX_RECORDS: usize = 16_384;

/// The state of one path.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Record {
    /// Number of consecutive losses without an acknowledgement between them, over all connections.
    pub(super) losses: u8,
    /// `true` if the path is down.
    pub(super) down: bool,
    /// The smoothed round-trip time, nanoseconds; zero until measured.
    pub(super) srtt_ns: u32,
    /// The time at which the last of `losses` was detected.
    pub(super) noticed_at: Instant,
    /// The time at which the path was last measured.
    pub(super) measured_at: Instant,
    /// The connection that probes it.
    pub(super) prober: Option<ConnectionId>,
    pub(super) lossy: Lossy,
    pub(super) advertised: Advertised,
}

impl Record {
    pub(super) const fn is_closed(&self) -> bool {
        self.down || self.lossy.is_closed()
    }

    /// Returns `true` if the latest packet on it was lost, as far as known: it may be dead rather than lossy.
    pub(super) const fn is_suspected(&self) -> bool {
        self.losses > 0 && !self.down
    }
}

/// The records of one peer.
#[derive(Debug, Default)]
pub(super) struct Peer {
    /// The round trip over all paths, of the connection that wrote last.
    pub(super) round_trip: RoundTrip,
    pub(super) measured_at: Instant,
    pub(super) paths: Box<[Record]>,
}

/// The records of all peers.
#[derive(Debug, Default)]
pub(super) struct Records {
    peers: BTreeMap<PeerPorts, Peer>,
    count: usize,
    /// Number of records with losses that are not down.
    suspected: u32,
    /// Number of records of paths that are down or lossy.
    closed: u32,
    /// A version that changes when a path closes, opens, or needs another connection to probe it.
    version: u32,
}

impl Records {
    pub(super) const fn suspected(&self) -> u32 {
        self.suspected
    }

    pub(super) const fn closed(&self) -> u32 {
        self.closed
    }

    pub(super) const fn version(&self) -> u32 {
        self.version
    }

    pub(super) fn peer(&self, to: PeerPorts) -> Option<&Peer> {
        self.peers.get(&to)
    }

    pub(super) fn path(&self, to: PeerPorts, path: PathId) -> Option<&Record> {
        self.peer(to)?.paths.get(usize::from(path.0))
    }

    /// Changes the record of a path, and updates the totals.
    pub(super) fn change<R>(
        &mut self,
        to: PeerPorts,
        path: PathId,
        change: impl FnOnce(&mut Record) -> R,
    ) -> R {
        let record = &mut self.make_room(to, path.0 + 1).paths[usize::from(path.0)];
        let (was_suspected, was_closed) = (record.is_suspected(), record.is_closed());
        let result = change(record);
        let (is_suspected, is_closed) = (record.is_suspected(), record.is_closed());
        self.suspected = self.suspected + u32::from(is_suspected) - u32::from(was_suspected);
        self.closed = self.closed + u32::from(is_closed) - u32::from(was_closed);
        self.version = self.version.wrapping_add((was_closed != is_closed).into());
        result
    }

    /// Opens a path that was down; returns `true` if it was.
    pub(super) fn open(&mut self, to: PeerPorts, path: PathId) -> bool {
        if self.path(to, path).is_none() {
            return false;
        }
        self.change(to, path, |record| {
            record.losses = 0;
            record.prober = None;
            core::mem::take(&mut record.down)
        })
    }

    /// Resets the losses of the suspected paths to a peer for which `was_acked` returns `true`.
    pub(super) fn reset_losses(&mut self, to: PeerPorts, was_acked: impl Fn(PathId) -> bool) {
        let Some(peer) = self.peers.get_mut(&to) else { return };
        for (path, record) in (0..).zip(&mut peer.paths) {
            if record.is_suspected() && was_acked(PathId(path)) {
                record.losses = 0;
                self.suspected -= 1;
            }
        }
    }

    /// Makes `prober` the connection that probes a path, which is down from now on; returns `true` if it was before.
    pub(super) fn take_down(&mut self, to: PeerPorts, path: PathId, prober: ConnectionId) -> bool {
        self.version = self.version.wrapping_add(1);
        self.change(to, path, |record| {
            record.prober = Some(prober);
            record.lossy = Lossy::default();
            core::mem::replace(&mut record.down, true)
        })
    }

    /// Removes a connection from the records that it probes.
    pub(super) fn remove_prober(&mut self, to: PeerPorts, connection: ConnectionId) {
        if self.closed == 0 {
            return;
        }
        let Some(peer) = self.peers.get_mut(&to) else { return };
        for record in &mut peer.paths {
            if record.prober == Some(connection) {
                record.prober = None;
                self.version = self.version.wrapping_add(1);
            }
        }
    }

    /// Closes the paths that lose much more than the others: `on_closed` gets each of them with the time for which it is
    /// closed. Returns their number.
    pub(super) fn close_lossy(
        &mut self,
        to: PeerPorts,
        now: Instant,
        on_closed: impl FnMut(PathId, Duration),
    ) -> u16 {
        let Some(peer) = self.peers.get_mut(&to) else { return 0 };
        let closed = Lossy::evaluate(&mut peer.paths, now, on_closed);
        self.closed += u32::from(closed);
        self.version = self.version.wrapping_add(closed.into());
        closed
    }

    /// Opens the lossy paths to a peer whose time has passed.
    pub(super) fn open_expired(&mut self, to: PeerPorts, now: Instant) {
        if self.closed == 0 {
            return;
        }
        let Some(peer) = self.peers.get_mut(&to) else { return };
        for record in &mut peer.paths {
            if record.lossy.expire(now) {
                self.closed -= 1;
                self.version = self.version.wrapping_add(1);
            }
        }
    }

    /// Returns a peer with records of `count` paths or more, in place of other peers' if necessary.
    ///
    /// The owner changes neither `down` nor `losses` nor whether a path is lossy: [`Self::change`] does.
    pub(super) fn make_room(&mut self, to: PeerPorts, count: u16) -> &mut Peer {
        let known = self.peers.get(&to).map_or(0, |peer| peer.paths.len());
        let missing = usize::from(count).saturating_sub(known);
        while missing > 0 && self.count + missing > MAX_RECORDS {
            // The next peer in order is removed, so that each has its turn.
            let mut others = self.peers.range(to..).chain(&self.peers).map(|(&other, _)| other);
            let Some(other) = others.find(|&other| other != to) else { break };
            self.evict(other);
        }
        self.count += missing;
        let peer = self.peers.entry(to).or_default();
        if missing > 0 {
            let records = core::mem::take(&mut peer.paths).into_iter();
            let records = records.chain(core::iter::repeat_n(Record::default(), missing));
            peer.paths = records.collect();
        }
        peer
    }

    fn evict(&mut self, to: PeerPorts) {
        let Some(peer) = self.peers.remove(&to) else { return };
        self.count -= peer.paths.len();
        for record in peer.paths {
            self.suspected -= u32::from(record.is_suspected());
            self.closed -= u32::from(record.is_closed());
            self.version = self.version.wrapping_add(record.is_closed().into());
        }
    }
}

#[cfg(test)]
mod tests {
    use core::net::{Ipv4Addr, SocketAddrV4};

    use super::*;

    fn peer(number: u32) -> PeerPorts {
        PeerPorts { peer: SocketAddrV4::new(Ipv4Addr::from(number), 4791).into(), group: 0 }
    }

    #[test]
    fn records_are_bounded_and_make_room_for_each_other_in_turn() {
        let mut records = Records::default();
        for number in 0..40_000 {
            records.take_down(peer(number), PathId(0), ConnectionId(1));
        }
        let kept: usize = records.peers.values().map(|peer| peer.paths.len()).sum();
        assert_eq!((kept, records.count, records.closed as usize), (MAX_RECORDS, kept, kept));
        assert!(records.path(peer(39_999), PathId(0)).is_some_and(Record::is_closed));
        assert!(records.path(peer(1), PathId(0)).is_none());
        assert!(size_of::<Record>() <= 96, "docs/design/loss.md: {}", size_of::<Record>());
    }
}
