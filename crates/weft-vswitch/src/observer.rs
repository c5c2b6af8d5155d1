//! The events of the daemon's log that follow from its threads' counters: paths and hosts that went away or came back,
//! drops, refused keys and packets. Answers of the threads are compared with the former ones (`looks.rs` asks for them): no
//! packet costs more for it, and a burst is one event with a count.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use weft_events::{
    FramesDenied, FramesDropped, KeysRefused, PacketsRefused, PathsDown, PathsUp, PeerFound,
    PeerLost, per_second,
};
use weft_ports::PortCounters;
use weft_units::{Duration, Instant};
use weft_vpc::{DropCause, PortId};

use crate::worker::Worker;

/// The interval between two looks at paths and hosts.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// The interval in which drops and refusals are counted.
const COUNT_INTERVAL: Duration = Duration::from_secs(10);
/// The largest number of paths that an event lists.
const MAX_PATHS_LISTED: usize = 32;

/// Numbers of dropped frames by cause and port; `None` for those that belong to no port.
type Drops = BTreeMap<(&'static str, Option<PortId>), u64>;

/// Number of pairs of interfaces that use a path which is down, by host and path.
pub(crate) type DownPaths = BTreeMap<(IpAddr, u16), u64>;

/// The daemon's knowledge as of its last look.
#[derive(Debug)]
pub(crate) struct Observer {
    looked_at: Instant,
    counted_at: Instant,
    /// Number of times that a path went down or came back.
    path_changes: u64,
    down: DownPaths,
    lost: BTreeSet<IpAddr>,
    drops: Drops,
    refusals: BTreeMap<&'static str, u64>,
}

/// A thread's answer to a look.
#[derive(Debug)]
pub(crate) struct Look {
    path_changes: u64,
    peers: Vec<(IpAddr, bool)>,
}

/// A thread's counters.
#[derive(Debug)]
pub(crate) struct Counts {
    drops: Drops,
    refusals: Vec<(&'static str, u64)>,
}

impl Observer {
    /// Returns the knowledge of a daemon that starts now.
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            looked_at: now,
            counted_at: now,
            path_changes: 0,
            down: DownPaths::new(),
            lost: BTreeSet::new(),
            drops: Drops::new(),
            refusals: BTreeMap::new(),
        }
    }

    /// Returns `true` if another look at paths and hosts is due, and begins its interval.
    pub(crate) fn begins_look(&mut self, now: Instant) -> bool {
        let is_due = now.since(self.looked_at) >= LOOK_INTERVAL;
        if is_due {
            self.looked_at = now;
        }
        is_due
    }

    /// Returns `true` if another count is due.
    pub(crate) fn counts(&self, now: Instant) -> bool {
        now.since(self.counted_at) >= COUNT_INTERVAL
    }

    /// Logs hosts that were lost and found.
    pub(crate) fn on_looks(&mut self, looks: &[Look]) {
        let mut reached = BTreeMap::new();
        for &(peer, is_reached) in looks.iter().flat_map(|look| &look.peers) {
            *reached.entry(peer).or_insert(true) &= is_reached;
        }
        let (lost, found) = compare_peers(&mut self.lost, &reached);
        lost.into_iter().for_each(|peer| PeerLost { peer }.emit());
        found.into_iter().for_each(|peer| PeerFound { peer }.emit());
    }

    /// Returns `true` if paths must be listed: some have changed, or some were down and it is time to count. A connection that
    /// ends forgets its paths without a change.
    pub(crate) fn wants_paths(&mut self, looks: &[Look], counts: bool) -> bool {
        let changes = looks.iter().map(|look| look.path_changes).sum();
        let changed = std::mem::replace(&mut self.path_changes, changes) != changes;
        changed || (counts && !self.down.is_empty())
    }

    /// Logs paths that went down and came back.
    pub(crate) fn on_paths(&mut self, of_threads: Vec<DownPaths>) {
        let mut down = DownPaths::new();
        for (path, pairs) in of_threads.into_iter().flatten() {
            *down.entry(path).or_default() += pairs;
        }
        let before = std::mem::replace(&mut self.down, down);
        for (peer, paths, pairs) in only_in(&self.down, &before) {
            PathsDown { peer, paths, pairs }.emit();
        }
        for (peer, paths, pairs) in only_in(&before, &self.down) {
            PathsUp { peer, paths, pairs }.emit();
        }
    }

    /// Logs drops and refusals since the last count. `name` returns a port's name.
    pub(crate) fn on_counts(
        &mut self,
        of_threads: Vec<Counts>,
        now: Instant,
        name: impl Fn(PortId) -> String,
    ) {
        let seconds = now.since(self.counted_at).as_secs_f64();
        self.counted_at = now;
        let (mut drops, mut refusals) = (Drops::new(), BTreeMap::<_, u64>::new());
        for counts in of_threads {
            for (key, count) in counts.drops {
                *drops.entry(key).or_default() += count;
            }
            for (cause, count) in counts.refusals {
                *refusals.entry(cause).or_default() += count;
            }
        }
        for dropped in compare_drops(&self.drops, &drops) {
            dropped.emit(dropped.most.map_or_else(String::new, &name), seconds);
        }
        for (&cause, &count) in &refusals {
            let before = self.refusals.get(cause).copied().unwrap_or(0);
            emit_refused(cause, count.saturating_sub(before), seconds);
        }
        (self.drops, self.refusals) = (drops, refusals);
    }
}

impl Worker {
    /// Returns the paths' changes and the hosts that are reached.
    pub(crate) fn look(&self, now: Instant) -> Look {
        let stats = self.switch.transport();
        Look {
            path_changes: stats.paths_down + stats.paths_up,
            peers: self.switch.peers_reached(now).collect(),
        }
    }

    /// Returns the paths that are down, with the number of pairs that use each.
    pub(crate) fn down_paths(&self) -> DownPaths {
        let mut down = DownPaths::new();
        for pair in self.switch.pairs() {
            let Some(paths) = pair.stats.and_then(|stats| stats.paths) else { continue };
            if paths.up_count() == paths.count() {
                continue;
            }
            for path in paths.ids().filter(|path| !paths.is_up(*path)) {
                *down.entry((pair.peer.ip(), path.0)).or_default() += 1;
            }
        }
        down
    }

    /// Returns the numbers of drops and refusals.
    pub(crate) fn counts(&self) -> Counts {
        let mut drops = Drops::new();
        let mut add =
            |port: Option<PortId>, counts: &mut dyn Iterator<Item = (&'static str, u64)>| {
                drops.extend(
                    counts.filter(|row| row.1 > 0).map(|(cause, count)| ((cause, port), count)),
                );
            };
        let of_switch = self.switch.counters();
        add(None, &mut DropCause::ALL.iter().map(|&it| (it.name(), of_switch.dropped_for(it))));
        add(None, &mut self.dropped_by_thread().into_iter());
        for (id, port) in self.ports.iter() {
            if let Some(counters) = self.switch.port_counters(id) {
                let causes = DropCause::ALL.iter();
                add(Some(id), &mut causes.map(|&it| (it.name(), counters.dropped_for(it))));
            }
            add(Some(id), &mut dropped_by_port(&port.counters()));
        }
        Counts { drops, refusals: self.driver.seals.counters().rows().collect() }
    }
}

/// Returns the numbers of frames that the port itself dropped, by cause.
pub(crate) fn dropped_by_port(
    counters: &PortCounters,
) -> impl Iterator<Item = (&'static str, u64)> {
    [
        ("bad_frame", counters.bad_frame),
        ("bad_header", counters.bad_header),
        ("lost_at_port", counters.lost),
    ]
    .into_iter()
}

/// Returns the hosts that are lost now, and those that were lost and are reached again. A host that nobody has asked for a
/// while stays as it was.
fn compare_peers(
    lost: &mut BTreeSet<IpAddr>,
    reached: &BTreeMap<IpAddr, bool>,
) -> (Vec<IpAddr>, Vec<IpAddr>) {
    let (mut now_lost, mut found) = (vec![], vec![]);
    for (&peer, &is_reached) in reached {
        if !is_reached && lost.insert(peer) {
            now_lost.push(peer);
        } else if is_reached && lost.remove(&peer) {
            found.push(peer);
        }
    }
    (now_lost, found)
}

/// Returns, for each host, the paths that are in one set alone, and the largest number of pairs that use one of them.
fn only_in(one: &DownPaths, other: &DownPaths) -> Vec<(IpAddr, String, u64)> {
    let mut by_peer: BTreeMap<IpAddr, (Vec<String>, u64)> = BTreeMap::new();
    for (&(peer, path), &pairs) in one.iter().filter(|(path, _)| !other.contains_key(path)) {
        let (paths, most) = by_peer.entry(peer).or_default();
        paths.push(path.to_string());
        *most = pairs.max(*most);
    }
    let listed = |mut paths: Vec<String>| {
        let others = paths.len().saturating_sub(MAX_PATHS_LISTED);
        paths.truncate(MAX_PATHS_LISTED);
        let rest = if others > 0 { format!(" and {others} more") } else { String::new() };
        paths.join(",") + &rest
    };
    by_peer.into_iter().map(|(peer, (paths, pairs))| (peer, listed(paths), pairs)).collect()
}

/// The frames that were dropped for one cause in an interval.
#[derive(Debug, PartialEq, Eq)]
struct Dropped {
    cause: &'static str,
    count: u64,
    /// The port with most of them.
    most: Option<PortId>,
    /// Number of ports that dropped some.
    ports: u64,
}

/// Returns the drops since `before`, by cause. Counters are listed without zeros, and those of removed ports are gone.
fn compare_drops(before: &Drops, now: &Drops) -> Vec<Dropped> {
    let mut causes: BTreeMap<&'static str, (Dropped, u64)> = BTreeMap::new();
    for (&(cause, port), &count) in now {
        let increase = count.saturating_sub(before.get(&(cause, port)).copied().unwrap_or(0));
        if increase == 0 {
            continue;
        }
        let none = Dropped { cause, count: 0, most: None, ports: 0 };
        let (dropped, most) = causes.entry(cause).or_insert((none, 0));
        dropped.count += increase;
        dropped.ports += u64::from(port.is_some());
        if port.is_some() && increase > *most {
            (dropped.most, *most) = (port, increase);
        }
    }
    causes.into_values().map(|(dropped, _)| dropped).collect()
}

/// Causes by which a port's policies drop frames on purpose.
const INTENDED: [DropCause; 3] = [DropCause::Denied, DropCause::RateLimited, DropCause::HopLimit];

impl Dropped {
    fn emit(&self, port: String, seconds: f64) {
        let &Self { cause, count, ports, .. } = self;
        let per_second = per_second(count, seconds);
        if INTENDED.iter().any(|it| it.name() == cause) {
            FramesDenied { cause, count, seconds, per_second, port, ports }.emit();
        } else {
            FramesDropped { cause, count, seconds, per_second, port, ports }.emit();
        }
    }
}

/// Logs refused key exchanges or packets. Other counters of encryption are no refusals.
fn emit_refused(cause: &'static str, count: u64, seconds: f64) {
    let per_second = per_second(count, seconds);
    match cause {
        _ if count == 0 => {}
        "refused_exchanges" | "refused_clear" => {
            KeysRefused { cause, count, seconds, per_second }.emit();
        }
        "not_authentic" | "replayed" | "in_clear" | "malformed" => {
            PacketsRefused { cause, count, seconds, per_second }.emit();
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    #[test]
    fn a_host_is_lost_once_and_found_once() {
        let mut lost = BTreeSet::new();
        let mut compare = |reached: &[(u8, bool)]| {
            let reached = reached.iter().map(|&(last, is)| (peer(last), is)).collect();
            compare_peers(&mut lost, &reached)
        };
        assert_eq!(compare(&[(2, true), (3, false)]), (vec![peer(3)], vec![]));
        assert_eq!(compare(&[(2, true), (3, false)]), (vec![], vec![]));
        // Nobody has asked for it within the last minute, which says nothing about it.
        assert_eq!(compare(&[(2, true)]), (vec![], vec![]));
        assert_eq!(compare(&[(2, true), (3, true)]), (vec![], vec![peer(3)]));
        assert_eq!(compare(&[(3, true)]), (vec![], vec![]));
    }

    #[test]
    fn paths_of_a_host_are_one_event_however_many_pairs_use_them() {
        let before = DownPaths::from([((peer(2), 1), 5)]);
        let now = DownPaths::from([
            ((peer(2), 1), 9),
            ((peer(2), 4), 100),
            ((peer(2), 7), 90),
            ((peer(3), 0), 1),
        ]);
        let down = vec![(peer(2), "4,7".to_owned(), 100), (peer(3), "0".to_owned(), 1)];
        assert_eq!(only_in(&now, &before), down);
        assert_eq!(only_in(&before, &now), []);
        assert_eq!(only_in(&before, &DownPaths::new()), [(peer(2), "1".to_owned(), 5)]);
        let many: DownPaths = (0..128).map(|path| ((peer(2), path), 1)).collect();
        let listed = only_in(&many, &DownPaths::new());
        assert!(listed[0].1.ends_with("30,31 and 96 more"), "{listed:?}");
    }

    #[test]
    fn a_burst_of_drops_is_one_event_for_each_cause() {
        let (web, db) = (Some(PortId(1)), Some(PortId(2)));
        let before = Drops::from([(("queue_full", web), 10), (("denied", db), 3)]);
        let now = Drops::from([
            (("queue_full", web), 15),
            (("queue_full", db), 1_000),
            (("denied", db), 3),
            (("unknown_peer", None), 2),
        ]);
        let want = [
            Dropped { cause: "queue_full", count: 1_005, most: db, ports: 2 },
            Dropped { cause: "unknown_peer", count: 2, most: None, ports: 0 },
        ];
        assert_eq!(compare_drops(&before, &now), want);
        assert_eq!(compare_drops(&now, &now), []);
        // The port was removed.
        assert_eq!(compare_drops(&now, &Drops::from([(("unknown_peer", None), 2)])), []);
    }

    #[test]
    fn rates_have_one_decimal() {
        assert_eq!((per_second(1_005, 10.0), per_second(1, 10.02)), (100.5, 0.1));
    }
}
