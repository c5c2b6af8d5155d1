//! A run as a trace for Perfetto (ui.perfetto.dev): messages as slices, faults, losses and paths as instants, pauses as
//! slices, queues and rates of links as counters.
//!
//! A [`Trace`] watches a run. It writes slices and instants as they happen and keeps none of them; the counters of the
//! links come from a [`Timeline`] at the end, because only then it is known which links were busiest. So memory and the
//! part of the file that is not messages are bounded for a run of any length.

mod counters;
mod encoder;
mod lanes;
mod packets;

use std::collections::BTreeMap;
use std::io::Write;

use weft_topo::{LinkId, NodeId};

use self::lanes::Lanes;
use self::packets::{Label, Packets, Track, Value};
use crate::fabric::Loss;
use crate::host::Host;
use crate::port::pfc::PauseFrame;
use crate::time::{SimSpan, SimTime};
use crate::timeline::{Timeline, link_name};
use crate::traffic::FinishedFlow;
use crate::world::{Network, Watcher, Window, World};

/// The bytes that a trace takes for each message, about; for estimates.
pub const MESSAGE_BYTES: u64 = 90;

/// The content of a trace, for people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Bytes of the trace.
    pub bytes: u64,
    /// Messages in it.
    pub messages: u64,
    /// Messages, pauses and losses that were left out because the trace had reached its size.
    pub left_out: u64,
}

/// A trace of a run.
#[derive(Debug)]
pub struct Trace<W> {
    packets: Packets<W>,
    /// Bytes from which on only counters are written.
    max_bytes: u64,
    counts: Written,
    /// The names of the workloads.
    workloads: Vec<String>,
    network: Track,
    /// The groups of tracks of hosts and of links.
    groups: [Track; 2],
    hosts: BTreeMap<NodeId, HostTracks>,
    links: BTreeMap<LinkId, Track>,
    pauses: BTreeMap<LinkId, Pausing>,
    /// Each host's counts of paths that went down and came up, and each link's refused packets, when last seen.
    paths: Vec<[u64; 2]>,
    refused: Vec<u32>,
    lost: [u64; Loss::ALL.len()],
    next_paths: SimTime,
    ended_at: SimTime,
}

#[derive(Debug)]
struct HostTracks {
    track: Track,
    lanes: Lanes,
}

/// A port that has been paused.
#[derive(Clone, Copy, Debug)]
struct Pausing {
    track: Track,
    /// The current pause: since when, and until when it lasts without a further frame.
    current: Option<(SimTime, SimTime)>,
}

impl<W: Write> Trace<W> {
    /// Returns a trace that is written to `out`, of about `max_bytes` at most; the counters come on top. `workloads` are
    /// the names of the scenario's workloads.
    pub fn new(out: W, max_bytes: u64, workloads: Vec<String>) -> Self {
        let mut packets = Packets::new(out);
        let network = packets.track(None, "network");
        let groups = ["hosts", "links"].map(|name| packets.track(None, name));
        Self {
            packets,
            max_bytes,
            counts: Written::default(),
            workloads,
            network,
            groups,
            hosts: BTreeMap::new(),
            links: BTreeMap::new(),
            pauses: BTreeMap::new(),
            paths: Vec::new(),
            refused: Vec::new(),
            lost: [0; Loss::ALL.len()],
            next_paths: SimTime::EPOCH,
            ended_at: SimTime::EPOCH,
        }
    }

    /// Returns `true` if there is room for another event; otherwise counts it as left out.
    fn has_room(&mut self) -> bool {
        let has_room = self.packets.written() < self.max_bytes;
        self.counts.left_out += u64::from(!has_room);
        has_room
    }

    fn host(&mut self, network: &Network, host: NodeId) -> &mut HostTracks {
        let Self { hosts, packets, groups, .. } = self;
        hosts.entry(host).or_insert_with(|| {
            let name = network.fabric.topology.name(host).to_string();
            HostTracks { track: packets.track(Some(groups[0]), &name), lanes: Lanes::default() }
        })
    }

    fn link(&mut self, network: &Network, link: LinkId) -> Track {
        let Self { links, packets, groups, .. } = self;
        *links.entry(link).or_insert_with(|| {
            packets.track(Some(groups[1]), &link_name(&network.fabric.topology, link))
        })
    }

    /// Adds a message, which may not have finished.
    fn message(&mut self, network: &Network, message: &FinishedFlow, end: Option<SimTime>) {
        if !self.has_room() {
            return;
        }
        self.counts.messages += 1;
        let FinishedFlow { source, destination, submitted, delivered, .. } = *message;
        let host = self.host(network, source).track;
        let Self { hosts, packets, .. } = self;
        let lanes = &mut hosts.get_mut(&source).expect("added above").lanes;
        let until = end.unwrap_or(SimTime::FAR_FUTURE);
        let lane = lanes.take(submitted, until, || packets.track(Some(host), "messages"));
        let name = format!("→ {}", network.fabric.topology.name(destination));
        let count = |name, value| (name, Value::Count(value));
        let attributes = [
            count("bytes", message.length.into()),
            count("tag", message.tag),
            count("submitted_ps", submitted.as_picos()),
            count("delivered_ps", delivered.as_picos()),
            count("acknowledged_ps", until.as_picos()),
        ];
        // A message in progress has neither been delivered nor acknowledged.
        let attributes = if end.is_some() { &attributes[..] } else { &attributes[..3] };
        let category =
            self.workloads.get(message.workload as usize).map_or("messages", String::as_str);
        packets.begin(submitted, lane, Label { name: &name, category, attributes });
        if let Some(end) = end {
            packets.end(end, lane);
        }
    }

    /// Adds a pause frame: a pause is a slice from its first frame to its end.
    fn pause(&mut self, network: &Network, frame: &PauseFrame) {
        let PauseFrame { at, link, span } = *frame;
        if !self.pauses.contains_key(&link) {
            let link_track = self.link(network, link);
            let track = self.packets.track(Some(link_track), "paused");
            self.pauses.insert(link, Pausing { track, current: None });
        }
        let pausing = self.pauses.get_mut(&link).expect("added above");
        let (track, until) = (pausing.track, at + span);
        let continues = pausing.current.filter(|(_, end)| at <= *end);
        let ended = pausing.current.filter(|(_, end)| at > *end);
        pausing.current = match continues {
            Some((since, _)) if span > SimSpan::ZERO => Some((since, until)),
            Some((since, _)) => return self.end_pause(link, track, since, at),
            None => (span > SimSpan::ZERO).then_some((at, until)),
        };
        if let Some((since, end)) = ended {
            self.pause_slice(track, since, end);
        }
    }

    fn end_pause(&mut self, link: LinkId, track: Track, since: SimTime, end: SimTime) {
        self.pauses.get_mut(&link).expect("it is paused").current = None;
        self.pause_slice(track, since, end);
    }

    fn pause_slice(&mut self, track: Track, since: SimTime, end: SimTime) {
        if self.has_room() {
            let attributes = [("duration_ps", Value::Count(end.since(since).as_picos()))];
            let label = Label { name: "paused", category: "pfc", attributes: &attributes };
            self.packets.begin(since, track, label);
            self.packets.end(end, track);
        }
    }

    /// Adds the losses since the window before: on the links that refused packets, and others on the network's track.
    fn losses(&mut self, network: &Network, now: SimTime) {
        let lost = network.fabric.counters.lost;
        if lost == self.lost {
            return;
        }
        for (index, reason) in Loss::ALL.iter().enumerate() {
            let count = lost[index] - self.lost[index];
            if count > 0 && *reason != Loss::QueueFull && self.has_room() {
                let label = Label {
                    name: &format!("lost: {}", reason.name()),
                    category: "loss",
                    attributes: &[("packets", Value::Count(count))],
                };
                self.packets.instant(now, self.network, label);
            }
        }
        if lost[Loss::QueueFull as usize] > self.lost[Loss::QueueFull as usize] {
            self.refusals(network, now);
        }
        self.lost = lost;
    }

    fn refusals(&mut self, network: &Network, now: SimTime) {
        for (index, link) in network.fabric.topology.link_ids().enumerate() {
            let refused = network.fabric.tally(link).refused;
            let count = refused - std::mem::replace(&mut self.refused[index], refused);
            if count > 0 && self.has_room() {
                let track = self.link(network, link);
                let label = Label {
                    name: "lost: queue_full",
                    category: "loss",
                    attributes: &[("packets", Value::Count(count.into()))],
                };
                self.packets.instant(now, track, label);
            }
        }
    }

    /// Adds the paths that hosts found down or up again.
    fn path_changes(&mut self, network: &Network, now: SimTime) {
        for host in &network.hosts {
            let seen = paths_of(host);
            let before = std::mem::replace(&mut self.paths[host.id().index()], seen);
            for (change, name) in ["paths down", "paths up"].into_iter().enumerate() {
                // The counters restart with the host.
                let count = seen[change].saturating_sub(before[change]);
                if count > 0 && self.has_room() {
                    let track = self.host(network, host.id()).track;
                    let attributes = [("paths", Value::Count(count))];
                    let label = Label { name, category: "paths", attributes: &attributes };
                    self.packets.instant(now, track, label);
                }
            }
        }
    }
}

/// Returns how many of a host's paths went down and came up so far.
fn paths_of(host: &Host) -> [u64; 2] {
    let stats = host.stats();
    [stats.paths_down, stats.paths_up]
}

impl<W: Write> Watcher for Trace<W> {
    fn wants_events(&self) -> bool {
        true
    }

    fn on_start(&mut self, world: &World) {
        self.paths = world.network.hosts.iter().map(paths_of).collect();
        self.refused = vec![0; world.network.fabric.topology.link_ids().count()];
    }

    fn on_window(&mut self, window: &Window<'_>) {
        let Window { network, now, .. } = *window;
        for message in window.messages {
            self.message(network, message, Some(message.acknowledged));
        }
        window.pauses.iter().for_each(|frame| self.pause(network, frame));
        self.losses(network, now);
        if now >= self.next_paths {
            self.path_changes(network, now);
            self.next_paths = now + SimSpan::from_picos(PATHS_EVERY);
        }
    }

    fn on_end(&mut self, network: &Network, ended_at: SimTime) {
        self.ended_at = ended_at;
        self.path_changes(network, network.now);
        for (record, source, destination) in network.traffic.unfinished() {
            let message = FinishedFlow {
                workload: record.workload,
                tag: record.request.tag,
                source,
                destination,
                length: record.request.length,
                submitted: record.submitted,
                delivered: SimTime::FAR_FUTURE,
                acknowledged: SimTime::FAR_FUTURE,
            };
            self.message(network, &message, None);
        }
        let paused: Vec<Pausing> = self.pauses.values().copied().collect();
        for Pausing { track, current } in paused {
            if let Some((since, until)) = current {
                self.pause_slice(track, since, until.min(network.now));
            }
        }
    }
}

/// Picoseconds between two looks at the hosts' paths: a timeout that takes a path down is longer.
const PATHS_EVERY: u64 = 1_000_000;

#[cfg(test)]
mod tests;
