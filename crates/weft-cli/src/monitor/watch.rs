//! Scans this host's programs periodically, and keeps the state that a single scan does not show: programs that died,
//! and counters of channels that have ended.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use weft_stat::{
    Address, ChannelRecord, EventKind, EventRecord, Latencies, ProgramState, Snapshot, StatusFile,
};

use super::ports::{self, Port, PortReader};
use crate::stat::{Host, NodeView, folders};

/// An agent's report of its host.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Report {
    /// The host's name.
    pub(crate) host: String,
    /// The start of the agent, ms since 1970: another value means that its events count from 1 again.
    pub(crate) epoch: u64,
    /// The time of the report, ms since 1970.
    pub(crate) at: u64,
    /// The state of its programs.
    pub(crate) view: Host,
    /// The totals of each program to each peer, channels that ended included.
    pub(crate) totals: Vec<Total>,
    /// Recent events, oldest first.
    pub(crate) events: Vec<HostEvent>,
    /// The host's ports that count congestion.
    #[serde(default)]
    pub(crate) ports: Vec<Port>,
}

/// An event on a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HostEvent {
    /// The number of the event: it counts up from 1 for as long as the agent runs.
    pub(crate) number: u64,
    /// The time of the event, ms since 1970.
    pub(crate) at: u64,
    pub(crate) host: String,
    pub(crate) program: String,
    pub(crate) pid: u64,
    pub(crate) kind: EventKind,
    pub(crate) peer: Address,
    /// The duration, ns, if the event is about one.
    pub(crate) took: u64,
    pub(crate) text: String,
}

impl HostEvent {
    /// Returns an event of a program. Its number and host are set when it is recorded.
    pub(super) fn to(program: &str, pid: u64, at: u64, kind: EventKind) -> Self {
        Self {
            number: 0,
            at,
            host: String::new(),
            program: program.to_owned(),
            pid,
            kind,
            peer: Address::default(),
            took: 0,
            text: String::new(),
        }
    }
}

/// The totals of all channels of a program to one peer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Total {
    pub(crate) program: String,
    pub(crate) pid: u64,
    pub(crate) peer: Address,
    #[serde(flatten)]
    pub(crate) counts: Counts,
}

/// The counters of channels that a monitor uses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counts {
    pub(crate) sent: u64,
    pub(crate) sent_bytes: u64,
    pub(crate) received: u64,
    pub(crate) received_bytes: u64,
    /// Total duration of answered calls, ns.
    pub(crate) call_time: u64,
    pub(crate) calls: Latencies,
}

impl Counts {
    pub(crate) fn of(channel: &ChannelRecord) -> Self {
        Self {
            sent: channel.sent,
            sent_bytes: channel.sent_bytes,
            received: channel.received,
            received_bytes: channel.received_bytes,
            call_time: channel.call_time,
            calls: channel.calls.clone(),
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        let sums = [
            (&mut self.sent, other.sent),
            (&mut self.sent_bytes, other.sent_bytes),
            (&mut self.received, other.received),
            (&mut self.received_bytes, other.received_bytes),
            (&mut self.call_time, other.call_time),
        ];
        sums.into_iter().for_each(|(sum, count)| *sum = sum.saturating_add(count));
        self.calls.add(&other.calls);
    }

    /// Returns the difference from `earlier`.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        Self {
            sent: self.sent.saturating_sub(earlier.sent),
            sent_bytes: self.sent_bytes.saturating_sub(earlier.sent_bytes),
            received: self.received.saturating_sub(earlier.received),
            received_bytes: self.received_bytes.saturating_sub(earlier.received_bytes),
            call_time: self.call_time.saturating_sub(earlier.call_time),
            calls: self.calls.since(&earlier.calls),
        }
    }
}

/// A watcher of this host's programs.
#[derive(Debug)]
pub(super) struct Watcher {
    folder: Option<PathBuf>,
    host: String,
    epoch: u64,
    known: BTreeMap<PathBuf, KnownFile>,
    events: VecDeque<HostEvent>,
    /// Number of events recorded since the start.
    events_recorded: u64,
    last: Host,
    ports: PortReader,
}

/// A program's file, as of the last scan.
#[derive(Debug)]
struct KnownFile {
    program: String,
    pid: u64,
    is_node: bool,
    /// The open file, to read how the program ended when its name is gone.
    file: File,
    /// The number of its last event that was read.
    event: u64,
    channels: BTreeMap<u64, (Address, Counts)>,
    /// Counters of channels that have ended, by peer.
    ended: BTreeMap<Address, Counts>,
}

/// Maximum number of events that are kept for collectors that request them late.
const MAX_EVENTS: usize = 1000;

impl Watcher {
    pub(super) fn new(folder: Option<PathBuf>) -> Self {
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        Self {
            folder,
            host: name.trim().to_owned(),
            epoch: now(),
            known: BTreeMap::new(),
            events: VecDeque::new(),
            events_recorded: 0,
            last: Host::default(),
            ports: PortReader::new(|| ports::read(Path::new("/sys"))),
        }
    }

    /// Scans all programs, records events since the last scan, and removes files of dead programs.
    ///
    /// # Errors
    /// Returns an error if a folder cannot be read.
    pub(super) fn scan(&mut self) -> Result<()> {
        let mut found = Vec::new();
        for folder in folders(self.folder.as_deref()) {
            found.extend(folder.scan().context("cannot look for running programs")?);
        }
        self.ports.poll();
        let view = Host::of(&found);
        let (boot, wall) = (view.now, now());
        self.record_ends(&found, wall);
        for file in found.into_iter().filter(|file| !file.is_dead) {
            self.add_file(file, wall);
        }
        for node in view.nodes.iter().filter(|node| !node.is_dead) {
            self.record_events(node, boot, wall);
        }
        self.last = view;
        self.last.nodes.retain(|node| !node.is_dead);
        self.last.devices.retain(|device| !device.is_dead);
        Ok(())
    }

    /// Returns the present state, with the events after the one of this number.
    pub(super) fn report(&self, after: u64) -> Report {
        let events = self.events.iter().filter(|event| event.number > after);
        Report {
            host: self.host.clone(),
            epoch: self.epoch,
            at: now(),
            view: self.last.clone(),
            totals: self.known.values().flat_map(KnownFile::totals).collect(),
            events: events.cloned().collect(),
            ports: self.ports.last().to_vec(),
        }
    }

    /// Records the end of programs whose file is gone or no longer locked.
    fn record_ends(&mut self, found: &[StatusFile], wall: u64) {
        let lives = |path: &PathBuf| found.iter().any(|it| it.path == *path && !it.is_dead);
        let gone: Vec<PathBuf> = self.known.keys().filter(|path| !lives(path)).cloned().collect();
        for path in gone {
            let Some(known) = self.known.remove(&path) else { continue };
            let ended =
                Snapshot::read(&known.file).is_ok_and(|last| last.life == ProgramState::Ended);
            if known.is_node {
                let kind = if ended { EventKind::Ended } else { EventKind::Died };
                self.record(HostEvent::to(&known.program, known.pid, wall, kind));
            }
        }
        found.iter().filter(|it| it.is_dead).for_each(StatusFile::clear);
    }

    /// Adds a file that was not known before.
    fn add_file(&mut self, found: StatusFile, wall: u64) {
        if self.known.contains_key(&found.path) {
            return;
        }
        let Ok(snapshot) = found.read() else { return };
        let (program, pid) = (snapshot.program.name.to_string(), snapshot.program.pid);
        let is_node = snapshot.device.is_none();
        if is_node {
            self.record(HostEvent::to(&program, pid, wall, EventKind::Began));
        }
        let (channels, ended) = (BTreeMap::new(), BTreeMap::new());
        let known =
            KnownFile { program, pid, is_node, file: found.file, event: 0, channels, ended };
        self.known.insert(found.path, known);
    }

    /// Records a node's new events, and the counters of its channels that have ended.
    fn record_events(&mut self, node: &NodeView, boot: u64, wall: u64) {
        let Some(known) = self.known.get_mut(&node.control.with_extension("node")) else { return };
        let now: BTreeMap<u64, (Address, Counts)> = node
            .channels
            .iter()
            .map(|it| (it.record.id, (it.record.peer, Counts::of(&it.record))))
            .collect();
        for (id, (peer, counts)) in &known.channels {
            if !now.contains_key(id) {
                known.ended.entry(*peer).or_default().add(counts);
            }
        }
        known.channels = now;
        let new: Vec<_> =
            node.events.iter().filter(|event| event.number > known.event).cloned().collect();
        known.event = new.last().map_or(known.event, |event| event.number);
        for event in new {
            let at = wall.saturating_sub(boot.saturating_sub(event.at) / 1_000_000);
            let EventRecord { kind, peer, took, text, .. } = event;
            let of = HostEvent::to(node.program.name.as_str(), node.program.pid, at, kind);
            self.record(HostEvent { peer, took, text: text.to_string(), ..of });
        }
    }

    fn record(&mut self, event: HostEvent) {
        if self.events.len() == MAX_EVENTS {
            self.events.pop_front();
        }
        self.events_recorded += 1;
        let (number, host) = (self.events_recorded, self.host.clone());
        self.events.push_back(HostEvent { number, host, ..event });
    }
}

impl KnownFile {
    fn totals(&self) -> impl Iterator<Item = Total> {
        let mut by_peer = self.ended.clone();
        for (peer, counts) in self.channels.values() {
            by_peer.entry(*peer).or_default().add(counts);
        }
        let (program, pid) = (self.program.clone(), self.pid);
        by_peer.into_iter().map(move |(peer, counts)| Total {
            program: program.clone(),
            pid,
            peer,
            counts,
        })
    }
}

/// Returns the time in milliseconds since 1970.
pub(super) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
