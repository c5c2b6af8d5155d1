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

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::net::SocketAddr;

use weft_units::{Duration, Instant};

use super::news::{Advertised, Finding, PathNews, PeerPorts};
use super::{PathId, Paths};
use crate::ConnectionId;
use crate::connection::RoundTrip;

mod lossy;

use lossy::Lossy;

/// Maximum number of records; those of another peer are removed to make room.
const MAX_RECORDS: usize = 16_384;

/// Maximum age of a round trip: routes and their lengths change.
const MAX_AGE: Duration = Duration::from_secs(10);

/// The state of one path.
#[derive(Clone, Copy, Debug, Default)]
struct Record {
    /// Number of consecutive losses without an acknowledgement between them, over all connections.
    losses: u8,
    /// `true` if the path is down.
    down: bool,
    /// The smoothed round-trip time, nanoseconds; zero until measured.
    srtt_ns: u32,
    /// The time at which the last of `losses` was detected.
    noticed_at: Instant,
    /// The time at which the path was last measured.
    measured_at: Instant,
    /// The connection that probes it.
    prober: Option<ConnectionId>,
    lossy: Lossy,
    advertised: Advertised,
}

impl Record {
    const fn is_closed(&self) -> bool {
        self.down || self.lossy.is_closed()
    }

    /// Returns `true` if the latest packet on it was lost, as far as known: it may be dead rather than lossy.
    const fn is_suspected(&self) -> bool {
        self.losses > 0 && !self.down
    }
}

/// The records of one peer.
#[derive(Debug, Default)]
struct Peer {
    /// The round trip over all paths, of the connection that wrote last.
    round_trip: RoundTrip,
    measured_at: Instant,
    paths: Box<[Record]>,
}

/// The paths to all peers, of all connections of an endpoint.
#[derive(Debug, Default)]
pub(crate) struct PeerPaths {
    /// Number of groups of source ports to one address; zero if connections do not share paths.
    groups: u8,
    peers: BTreeMap<PeerPorts, Peer>,
    records: usize,
    /// Number of records with losses that are not down.
    suspected: u32,
    /// Number of records of paths that are down or lossy.
    closed: u32,
    /// A version that changes when a path closes, opens, or needs another connection to probe it.
    version: u32,
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
        PeerPorts { peer, group: thread.checked_rem(self.groups).unwrap_or(0) }
    }

    /// Returns the version, which a connection stores once it has applied all changes; zero at first.
    #[inline]
    pub(crate) const fn version(&self) -> u32 {
        self.version
    }

    /// Returns `true` if a loss is counted on any path that is not down.
    #[inline]
    pub(crate) const fn has_suspects(&self) -> bool {
        self.suspected > 0
    }

    /// Returns `true` if the path is down or lossy.
    #[inline]
    pub(crate) fn is_closed(&self, to: PeerPorts, path: PathId) -> bool {
        self.closed > 0 && self.record(to, path).is_some_and(Record::is_closed)
    }

    /// Returns `true` if the path loses too much to be used.
    pub(crate) fn is_lossy(&self, to: PeerPorts, path: PathId) -> bool {
        self.closed > 0 && self.record(to, path).is_some_and(|record| record.lossy.is_closed())
    }

    /// Returns `true` if the path is down and a connection probes it.
    pub(crate) fn is_probed(&self, to: PeerPorts, path: PathId) -> bool {
        self.record(to, path).is_some_and(|record| record.down && record.prober.is_some())
    }

    /// Returns the paths to a peer that are down, each with `true` if a connection probes it.
    pub(crate) fn down(&self, to: PeerPorts) -> impl Iterator<Item = (PathId, bool)> {
        let records = self.peers.get(&to).into_iter().flat_map(|peer| (0..).zip(&peer.paths));
        let down = records.filter(|(_, record)| record.down);
        down.map(|(path, record)| (PathId(path), record.prober.is_some()))
    }

    /// Counts the loss of a packet that was sent at `sent_at`; returns the number of consecutive losses. Packets lost
    /// together count once, of whatever connections they are.
    pub(crate) fn note_loss(
        &mut self,
        to: PeerPorts,
        path: PathId,
        sent_at: Instant,
        now: Instant,
    ) -> u8 {
        if !self.is_shared() {
            return 0;
        }
        self.change(to, path, |record| {
            if record.losses == 0 || sent_at > record.noticed_at {
                record.losses = record.losses.saturating_add(1);
                record.noticed_at = now;
            }
            record.losses
        })
    }

    /// Resets the consecutive losses of those paths to a peer for which `was_acked` returns `true`, unless they are
    /// down.
    pub(crate) fn note_acked(&mut self, to: PeerPorts, was_acked: impl Fn(PathId) -> bool) {
        let Some(peer) = self.peers.get_mut(&to) else { return };
        for (path, record) in (0..).zip(&mut peer.paths) {
            if record.is_suspected() && was_acked(PathId(path)) {
                record.losses = 0;
                self.suspected -= 1;
            }
        }
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
        if !self.is_shared() || !self.record(to, path).is_some_and(is_down) {
            return;
        }
        let was_down = self.change(to, path, |record| {
            record.prober = Some(prober);
            record.lossy = Lossy::default();
            core::mem::replace(&mut record.down, true)
        });
        self.version = self.version.wrapping_add(1);
        if !was_down {
            self.notify(to, path, Finding::Down);
        }
    }

    /// Records that the path carried a probe and its answer.
    pub(crate) fn note_up(&mut self, to: PeerPorts, path: PathId) {
        if self.record(to, path).is_some_and(|record| record.down || record.losses > 0)
            && self.open(to, path)
        {
            self.notify(to, path, Finding::Up);
        }
    }

    /// Records that a connection no longer probes.
    pub(crate) fn remove_prober(&mut self, to: PeerPorts, connection: ConnectionId) {
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
        self.make_room(to, paths.count());
        let mut findings = Vec::new();
        let advertises = self.news.is_some();
        let peer = self.peers.get_mut(&to).expect("made just now");
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
        let closed = Lossy::evaluate(&mut peer.paths, now, |path, hold| {
            findings.push((path, Finding::Lossy(hold)));
        });
        self.closed += u32::from(closed);
        self.version = self.version.wrapping_add(closed.into());
        self.expire(to, now);
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
        self.expire(to, now);
        let Some(peer) = self.peers.get(&to) else { return (RoundTrip::default(), false) };
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
            Finding::Down => self.change(to, path, |record| {
                record.losses = record.losses.max(path_down_after);
                record.noticed_at = now;
                record.lossy = Lossy::default();
                record.down = true;
            }),
            Finding::Up => {
                self.open(to, path);
            }
            Finding::Lossy(hold) => self.change(to, path, |record| {
                if !record.down {
                    record.lossy.close(hold, now);
                }
            }),
            Finding::RoundTrip(rtt) => self.change(to, path, |record| {
                record.srtt_ns = u32::try_from(rtt.as_nanos()).unwrap_or(u32::MAX);
                record.measured_at = now;
                record.advertised.note(record.srtt_ns, now);
            }),
        }
    }

    /// Opens a path that was down; returns `true` if it was.
    fn open(&mut self, to: PeerPorts, path: PathId) -> bool {
        if self.record(to, path).is_none() {
            return false;
        }
        self.change(to, path, |record| {
            record.losses = 0;
            record.prober = None;
            core::mem::take(&mut record.down)
        })
    }

    /// Opens the lossy paths to a peer whose time has passed.
    fn expire(&mut self, to: PeerPorts, now: Instant) {
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

    fn record(&self, to: PeerPorts, path: PathId) -> Option<&Record> {
        self.peers.get(&to)?.paths.get(usize::from(path.0))
    }

    /// Changes the record of a path, and updates the totals.
    fn change<R>(
        &mut self,
        to: PeerPorts,
        path: PathId,
        change: impl FnOnce(&mut Record) -> R,
    ) -> R {
        self.make_room(to, path.0 + 1);
        let peer = self.peers.get_mut(&to).expect("made just now");
        let record = &mut peer.paths[usize::from(path.0)];
        let (was_suspected, was_closed) = (record.is_suspected(), record.is_closed());
        let result = change(record);
        let (is_suspected, is_closed) = (record.is_suspected(), record.is_closed());
        self.suspected = self.suspected + u32::from(is_suspected) - u32::from(was_suspected);
        self.closed = self.closed + u32::from(is_closed) - u32::from(was_closed);
        self.version = self.version.wrapping_add((was_closed != is_closed).into());
        result
    }

    /// Ensures that a peer has records of `count` paths, in place of other peers' if necessary.
    fn make_room(&mut self, to: PeerPorts, count: u16) {
        let known = self.peers.get(&to).map_or(0, |peer| peer.paths.len());
        let missing = usize::from(count).saturating_sub(known);
        if missing == 0 {
            return;
        }
        while self.records + missing > MAX_RECORDS {
            // The next peer in order is removed, so that each has its turn.
            let mut others = self.peers.range(to..).chain(&self.peers).map(|(&other, _)| other);
            let Some(other) = others.find(|&other| other != to) else { break };
            self.evict(other);
        }
        self.records += missing;
        let peer = self.peers.entry(to).or_default();
        let records = core::mem::take(&mut peer.paths).into_iter();
        let records = records.chain(core::iter::repeat_n(Record::default(), missing));
        peer.paths = records.collect();
    }

    fn evict(&mut self, to: PeerPorts) {
        let Some(peer) = self.peers.remove(&to) else { return };
        self.records -= peer.paths.len();
        for record in peer.paths {
            self.suspected -= u32::from(record.is_suspected());
            self.closed -= u32::from(record.is_closed());
            self.version = self.version.wrapping_add(record.is_closed().into());
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
mod tests {
    use core::net::{Ipv4Addr, SocketAddrV4};

    use super::*;

    fn peer(number: u32) -> PeerPorts {
        PeerPorts { peer: SocketAddrV4::new(Ipv4Addr::from(number), 4791).into(), group: 0 }
    }

    fn at(micros: u64) -> Instant {
        Instant::from_nanos(micros * 1_000)
    }

    fn shared() -> PeerPaths {
        let mut paths = PeerPaths::default();
        paths.share(1);
        paths
    }

    /// Returns four paths, one of which was measured and lost packets.
    fn measured(micros: u64, acked: u32, lost: u32) -> Paths {
        let mut paths = Paths::new(4, 1000, at(0));
        paths.count_packets();
        for id in paths.ids() {
            let rtt = if id == PathId(3) { micros } else { 10 };
            paths.sample_rtt(id, Duration::from_micros(rtt));
            let count = if id == PathId(3) { acked } else { 100 };
            (0..count).for_each(|_| paths.note_acked(id, at(0), at(50)));
        }
        (0..lost).for_each(|_| paths.count_lost(PathId(3)));
        paths
    }

    fn write(shared: &mut PeerPaths, mut paths: Paths, now: Instant) -> usize {
        shared.note_measured(peer(1), &mut paths, RoundTrip::default(), at(0), now)
    }

    #[test]
    fn packets_lost_together_count_once_and_one_that_arrives_clears_the_count() {
        let mut paths = PeerPaths::default();
        assert_eq!(paths.note_loss(peer(1), PathId(3), at(1), at(9)), 0, "nobody shares");
        paths.share(1);
        let mut lose = |sent, now| paths.note_loss(peer(1), PathId(3), at(sent), at(now));
        assert_eq!([lose(1, 10), lose(2, 11), lose(9, 12), lose(11, 13)], [1, 1, 1, 2]);
        paths.note_acked(peer(2), |_| true);
        assert!(paths.has_suspects());
        paths.note_acked(peer(1), |path| path == PathId(3));
        assert!(!paths.has_suspects());
    }

    #[test]
    fn a_path_that_is_down_needs_a_prober_until_it_is_back() {
        let mut paths = shared();
        paths.note_loss(peer(1), PathId(3), at(1), at(2));
        paths.note_down(peer(1), PathId(3), ConnectionId(7), 2);
        assert!(!paths.is_closed(peer(1), PathId(3)), "one loss is not enough");
        paths.note_loss(peer(1), PathId(3), at(3), at(4));
        paths.note_down(peer(1), PathId(3), ConnectionId(7), 2);
        paths.note_acked(peer(1), |_| true);
        assert_eq!(paths.down(peer(1)).collect::<Vec<_>>(), [(PathId(3), true)]);
        assert_eq!(paths.down(peer(2)).count(), 0);
        let version = paths.version();
        paths.remove_prober(peer(1), ConnectionId(8));
        assert_eq!(paths.version(), version);
        paths.remove_prober(peer(1), ConnectionId(7));
        assert_ne!(paths.version(), version);
        assert_eq!(paths.down(peer(1)).collect::<Vec<_>>(), [(PathId(3), false)]);
        paths.note_up(peer(1), PathId(3));
        assert!(!paths.is_closed(peer(1), PathId(3)) && !paths.has_suspects());
    }

    #[test]
    fn records_are_bounded_and_make_room_for_each_other_in_turn() {
        let mut paths = shared();
        for number in 0..40_000 {
            paths.note_loss(peer(number), PathId(0), at(1), at(2));
            paths.note_down(peer(number), PathId(0), ConnectionId(1), 1);
        }
        let kept: usize = paths.peers.values().map(|peer| peer.paths.len()).sum();
        assert_eq!((kept, paths.records, paths.closed as usize), (MAX_RECORDS, kept, kept));
        assert!(paths.is_closed(peer(39_999), PathId(0)));
        assert!(!paths.is_closed(peer(1), PathId(0)));
        assert!(size_of::<Record>() <= 96, "docs/design/loss.md: {}", size_of::<Record>());
    }

    #[test]
    fn ports_that_differ_by_the_peers_thread_are_distinguished() {
        let mut paths = PeerPaths::default();
        let address = peer(1).peer;
        assert_eq!(paths.key(address, 5).group, 0);
        paths.share(4);
        assert_eq!(paths.key(address, 5).group, 1);
        for thread in [5, 5] {
            paths.note_loss(paths.key(address, thread), PathId(0), at(1), at(2));
        }
        paths.note_down(paths.key(address, 1), PathId(0), ConnectionId(1), 1);
        assert!(paths.is_closed(paths.key(address, 9), PathId(0)));
        assert!(!paths.is_closed(paths.key(address, 2), PathId(0)));
    }

    #[test]
    fn a_connection_that_wakes_gets_round_trips_that_are_newer_than_its_own() {
        let mut paths = shared();
        write(&mut paths, measured(900, 10, 0), at(100));
        let mut fresh = Paths::new(4, 1000, at(200));
        assert!(paths.seed(peer(1), &mut fresh, at(200)).1);
        // The round trip is 90 times the shortest, rounded to a power of two.
        assert_eq!(fresh.rtt(PathId(3)), Some(Duration::from_micros(640)));
        assert_eq!(fresh.rtt(PathId(0)), Some(Duration::from_micros(10)));
        // A connection that measured later keeps its own.
        let mut later = Paths::new(4, 1000, at(0));
        later.sample_rtt(PathId(3), Duration::from_micros(20));
        later.note_response(PathId(3), at(150));
        paths.seed(peer(1), &mut later, at(200));
        assert_eq!(later.rtt(PathId(3)), Some(Duration::from_micros(20)));
        // After ten seconds the measurement has expired; another peer's was never used.
        for (to, micros) in [(peer(1), 10_000_101), (peer(2), 200)] {
            let mut fresh = Paths::new(4, 1000, at(micros));
            assert!(!paths.seed(to, &mut fresh, at(micros)).1);
            assert_eq!(fresh.rtt(PathId(3)), None);
        }
    }

    #[test]
    fn a_lossy_path_closes_for_all_and_opens_after_its_time() {
        let mut paths = shared();
        assert_eq!(write(&mut paths, measured(10, 50, 6), at(100)), 1);
        assert!(paths.is_closed(peer(1), PathId(3)) && paths.is_lossy(peer(1), PathId(3)));
        let version = paths.version();
        paths.seed(peer(1), &mut Paths::new(4, 1000, at(200)), at(900_000));
        assert_eq!((paths.version(), paths.closed), (version, 1));
        paths.seed(peer(1), &mut Paths::new(4, 1000, at(200)), at(1_000_101));
        assert_eq!(paths.closed, 0);
        assert_ne!(paths.version(), version);
    }

    #[test]
    fn another_endpoint_is_notified_of_a_change_once() {
        let (mut here, mut there) = (shared(), shared());
        here.keep_news();
        there.keep_news();
        let pass = |here: &mut PeerPaths, there: &mut PeerPaths, now| {
            let news: Vec<_> = core::iter::from_fn(|| here.poll_news()).collect();
            news.iter().for_each(|news| there.handle_news(now, news, 2));
            assert_eq!(there.poll_news(), None, "it is not passed on");
            news.len()
        };
        write(&mut here, measured(10, 50, 6), at(100));
        assert_eq!(pass(&mut here, &mut there, at(101)), 5);
        assert!(there.is_lossy(peer(1), PathId(3)));
        let mut fresh = Paths::new(4, 1000, at(200));
        there.seed(peer(1), &mut fresh, at(200));
        assert_eq!(fresh.rtt(PathId(0)), Some(Duration::from_micros(10)));
        // The same round trips again are not advertised.
        write(&mut here, measured(10, 50, 0), at(500_000));
        assert_eq!(pass(&mut here, &mut there, at(500_001)), 0);
        for _ in 0..2 {
            here.note_loss(peer(1), PathId(1), at(600_000), at(600_001));
            here.note_loss(peer(1), PathId(1), at(600_002), at(600_003));
            here.note_down(peer(1), PathId(1), ConnectionId(7), 2);
        }
        assert_eq!(pass(&mut here, &mut there, at(600_004)), 1);
        assert_eq!(there.down(peer(1)).collect::<Vec<_>>(), [(PathId(1), false)]);
        there.note_down(peer(1), PathId(1), ConnectionId(9), 2);
        assert_eq!(there.poll_news(), None, "it is not passed back");
        here.note_up(peer(1), PathId(1));
        assert_eq!(pass(&mut here, &mut there, at(700_000)), 1);
        assert_eq!(there.down(peer(1)).count(), 0);
    }
}
