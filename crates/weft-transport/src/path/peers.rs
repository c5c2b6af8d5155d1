//! The path measurements that all connections of an endpoint to one peer share.
//!
//! If the owner sends path `p` of every connection from one source port
//! ([`Endpoint::with_shared_ports`](crate::Endpoint::with_shared_ports)), packets of path `p` to one address take the
//! same route: a path that is dead, lossy or slow for one connection is so for all (RFC 9040 shares round trips
//! likewise). Consecutive losses are counted over all connections, so that many connections that send one packet each
//! detect a dead path. One connection probes a path that is down: the one that detected it, or, once that one is idle,
//! the next to send.
//!
//! Connections write here when their idle timer fires, every 10 ms while they are active, and read when they become
//! active; a version number shows active ones that a path opened or closed. No packet costs a lookup. Records are
//! bounded, and measurements expire.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::SocketAddr;
use core::num::NonZeroU16;

use weft_units::{Duration, Instant};

use super::news::{Finding, PathNews, PeerPorts};
use super::{PathId, Paths};
use crate::ConnectionId;
use crate::connection::RoundTrip;

mod records;

use records::{Lossy, MAX_RECORDS, Record, Records};

/// Maximum age of a round trip: routes and their lengths change.
const MAX_AGE: Duration = Duration::from_secs(10);

/// The paths to all peers, of all connections of an endpoint.
#[derive(Debug, Default)]
pub(crate) struct PeerPaths {
    /// Number of groups of source ports to one address; zero if connections do not share paths.
    groups: u8,
    records: Records,
    /// The findings for other endpoints of the process; `None` unless the owner polls them.
    news: Option<VecDeque<PathNews>>,
}

impl PeerPaths {
    /// Starts the sharing of paths. Source ports differ by the peer's thread modulo `groups`.
    pub(crate) const fn share(&mut self, groups: u8) {
        self.groups = groups;
    }

    /// Starts to keep findings for [`Self::poll_news`].
    pub(crate) fn keep_news(&mut self) {
        self.news = Some(VecDeque::new());
    }

    /// Returns `true` if connections share paths.
    #[inline]
    pub(crate) const fn is_shared(&self) -> bool {
        self.groups > 0
    }

    /// Returns the key of a connection to `peer`'s thread `thread`.
    #[inline]
    pub(crate) fn key(&self, peer: SocketAddr, thread: u8) -> PeerPorts {
        PeerPorts { peer, group: thread.checked_rem(self.groups).unwrap_or(0).into() }
    }

    /// Returns the key of a connection to `peer` whose packets all leave from one source port.
    #[inline]
    pub(crate) const fn key_of_port(peer: SocketAddr, port: NonZeroU16) -> PeerPorts {
        // Groups are counted in eight bits.
        PeerPorts { peer, group: port.get() | 1 << 15 }
    }

    /// Returns the version, which a connection stores once it has applied all changes; zero at first.
    #[inline]
    pub(crate) const fn version(&self) -> u32 {
        self.records.version()
    }

    /// Returns `true` if a loss is counted on any path that is not down.
    #[inline]
    pub(crate) const fn has_suspects(&self) -> bool {
        self.records.suspected() > 0
    }

    /// Returns `true` if the path is down or lossy.
    #[inline]
    pub(crate) fn is_closed(&self, to: PeerPorts, path: PathId) -> bool {
        self.records.closed() > 0 && self.records.path(to, path).is_some_and(Record::is_closed)
    }

    /// Returns `true` if the path loses too much to be used.
    pub(crate) fn is_lossy(&self, to: PeerPorts, path: PathId) -> bool {
        self.records.closed() > 0
            && self.records.path(to, path).is_some_and(|record| record.lossy.is_closed())
    }

    /// Returns `true` if the path is down and a connection probes it.
    pub(crate) fn is_probed(&self, to: PeerPorts, path: PathId) -> bool {
        self.records.path(to, path).is_some_and(|record| record.down && record.prober.is_some())
    }

    /// Returns the paths to a peer that are down, each with `true` if a connection probes it.
    pub(crate) fn down(&self, to: PeerPorts) -> impl Iterator<Item = (PathId, bool)> {
        let records = self.records.peer(to).into_iter().flat_map(|peer| (0..).zip(&peer.paths));
        let down = records.filter(|(_, record)| record.down);
        down.map(|(path, record)| (PathId(path), record.prober.is_some()))
    }

    /// Counts the loss of a packet that was sent at `sent_at`; returns the number of consecutive losses, and `true` if
    /// this one counts. Packets lost together count once, of whatever connections they are.
    pub(crate) fn note_loss(
        &mut self,
        to: PeerPorts,
        path: PathId,
        sent_at: Instant,
        now: Instant,
    ) -> (u8, bool) {
        if !self.is_shared() {
            return (0, true);
        }
        self.records.change(to, path, |record| {
            let counts = record.losses == 0 || sent_at > record.noticed_at;
            if counts {
                record.losses = record.losses.saturating_add(1);
                record.noticed_at = now;
            }
            (record.losses, counts)
        })
    }

    /// Resets the consecutive losses of those paths to a peer for which `was_acked` returns `true`, unless they are
    /// down.
    pub(crate) fn note_acked(&mut self, to: PeerPorts, was_acked: impl Fn(PathId) -> bool) {
        self.records.reset_losses(to, was_acked);
    }

    /// Records that `prober` considers the path dead and probes it. It closes for all connections after
    /// `path_down_after` consecutive losses over all: a path on which another connection gets ACKs closes for the
    /// prober only.
    pub(crate) fn note_down(
        &mut self,
        to: PeerPorts,
        path: PathId,
        prober: ConnectionId,
        path_down_after: u8,
    ) {
        let is_down = |record: &Record| record.down || record.losses >= path_down_after;
        if !self.is_shared() || !self.records.path(to, path).is_some_and(is_down) {
            return;
        }
        if !self.records.take_down(to, path, prober) {
            self.notify(to, path, Finding::Down);
        }
    }

    /// Records that the path carried a probe and its answer.
    pub(crate) fn note_up(&mut self, to: PeerPorts, path: PathId) {
        if self.records.path(to, path).is_some_and(|record| record.down || record.losses > 0)
            && self.records.open(to, path)
        {
            self.notify(to, path, Finding::Up);
        }
    }

    /// Records that a connection no longer probes.
    pub(crate) fn remove_prober(&mut self, to: PeerPorts, connection: ConnectionId) {
        self.records.remove_prober(to, connection);
    }

    /// Writes a connection's measurements since `since`; returns the number of paths that closed as lossy.
    pub(crate) fn note_measured(
        &mut self,
        to: PeerPorts,
        paths: &mut Paths,
        round_trip: RoundTrip,
        since: Instant,
        now: Instant,
    ) -> usize {
        if !self.is_shared() {
            return 0;
        }
        let mut findings = Vec::new();
        let advertises = self.news.is_some();
        let peer = self.records.make_room(to, paths.count());
        for (id, record) in (0..paths.count()).map(PathId).zip(&mut peer.paths) {
            let counts = paths.take_counts(id);
            if !record.down {
                record.lossy.count(counts, now);
            }
            if paths.last_response_at(id) <= since {
                continue;
            }
            let Some(rtt) = paths.rtt(id) else { continue };
            record.srtt_ns = u32::try_from(rtt.as_nanos()).unwrap_or(u32::MAX);
            record.measured_at = now;
            if advertises && record.advertised.is_due(record.srtt_ns, now) {
                findings.push((id, Finding::RoundTrip(rtt)));
            }
        }
        if round_trip.smoothed() > Duration::ZERO {
            (peer.round_trip, peer.measured_at) = (round_trip, now);
        }
        let closed = self.records.close_lossy(to, now, |path, hold| {
            findings.push((path, Finding::Lossy(hold)));
        });
        self.records.open_expired(to, now);
        for (path, finding) in findings {
            self.notify(to, path, finding);
        }
        closed.into()
    }

    /// Copies to an idle connection's `paths` the round trips that others measured after it did; returns the round trip
    /// over all paths, and `true` if any of `paths` changed.
    ///
    /// Each is the shortest round trip times a power of two: otherwise thousands of connections that become active at
    /// once would all take the path that was measured 1 % shorter, while among equal paths each draws its own.
    pub(crate) fn seed(
        &mut self,
        to: PeerPorts,
        paths: &mut Paths,
        now: Instant,
    ) -> (RoundTrip, bool) {
        self.records.open_expired(to, now);
        let Some(peer) = self.records.peer(to) else { return (RoundTrip::default(), false) };
        let mut changed = false;
        let is_known =
            |record: &Record| record.srtt_ns > 0 && now.since(record.measured_at) < MAX_AGE;
        let known = peer.paths.iter().filter(|record| is_known(record));
        let shortest = known.map(|record| record.srtt_ns).min().unwrap_or(1);
        for (id, record) in (0..paths.count()).map(PathId).zip(&peer.paths) {
            let is_newer = record.measured_at > paths.last_response_at(id);
            if is_known(record) && (is_newer || paths.rtt(id).is_none()) {
                paths.set_rtt(id, shortest << (record.srtt_ns / shortest).ilog2());
                changed = true;
            }
        }
        let is_known = now.since(peer.measured_at) < MAX_AGE;
        (if is_known { peer.round_trip } else { RoundTrip::default() }, changed)
    }

    /// Returns the next finding for the other endpoints of the process.
    pub(crate) fn poll_news(&mut self) -> Option<PathNews> {
        self.news.as_mut()?.pop_front()
    }

    /// Processes a finding of another endpoint of the process. It is not passed on.
    pub(crate) fn handle_news(&mut self, now: Instant, news: &PathNews, path_down_after: u8) {
        let PathNews { to, path, finding } = *news;
        if !self.is_shared() {
            return;
        }
        match finding {
            // The next connection to send probes it: each endpoint probes for itself.
            Finding::Down => self.records.change(to, path, |record| {
                record.losses = record.losses.max(path_down_after);
                record.noticed_at = now;
                record.lossy = Lossy::default();
                record.down = true;
            }),
            Finding::Up => {
                self.records.open(to, path);
            }
            Finding::Lossy(hold) => self.records.change(to, path, |record| {
                if !record.down {
                    record.lossy.close(hold, now);
                }
            }),
            Finding::RoundTrip(rtt) => self.records.change(to, path, |record| {
                record.srtt_ns = u32::try_from(rtt.as_nanos()).unwrap_or(u32::MAX);
                record.measured_at = now;
                record.advertised.note(record.srtt_ns, now);
            }),
        }
    }

    /// Queues a finding for other endpoints. If the owner does not drain the queue in time, the oldest finding is lost:
    /// each endpoint detects changes by itself too.
    fn notify(&mut self, to: PeerPorts, path: PathId, finding: Finding) {
        let Some(news) = &mut self.news else { return };
        if news.len() >= MAX_RECORDS {
            news.pop_front();
        }
        news.push_back(PathNews { to, path, finding });
    }
}

#[cfg(test)]
mod tests;
