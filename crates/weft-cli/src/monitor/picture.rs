//! The data of the page: pairs of programs and of hosts with their rates and latencies, paths, and the largest
//! senders.

use std::collections::{BTreeMap, VecDeque};

use serde::Serialize;
use weft_stat::{Address, ChannelState};

use super::collect::{HostState, State};
use super::pairs::{End, Ends, Paths, Point};
use super::pings::Received;
use super::ports::Counter;
use super::watch::{Counts, HostEvent, Report, now};
use crate::stat::{ChannelView, NodeView};

/// Counters and rates of a pair, as its first end reports them.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Pair {
    pub(super) channels: u64,
    /// Number of open channels.
    pub(super) open: u64,
    /// Number of channels on a TCP stream instead of RDMA.
    pub(super) on_tcp: u64,
    pub(super) in_flight: u64,
    pub(super) backlog: u64,
    /// Bytes of messages sent and received per second.
    pub(super) bytes: f64,
    /// Messages sent and received per second.
    pub(super) messages: f64,
    /// Calls answered per second.
    pub(super) calls: f64,
    /// Median time of calls, ns.
    pub(super) p50: Option<u64>,
    /// 99th percentile of the time of calls, ns.
    pub(super) p99: Option<u64>,
    /// The share of sent packets that were retransmissions; `None` if the device is not Weft's.
    pub(super) retransmitted: Option<f64>,
    /// `true` if the host of the first end does not answer the monitor.
    pub(super) is_stale: bool,
}

/// A host, for the page's head.
#[derive(Clone, Debug, Serialize)]
struct HostRow {
    /// The name in the monitor's configuration.
    asked: String,
    /// The name that the host reports.
    name: String,
    /// The reason why it does not answer.
    silent: Option<String>,
    programs: usize,
    channels: u64,
    memory: u64,
    unreadable: Vec<String>,
}

/// A row of the table of the largest senders.
#[derive(Clone, Debug, Serialize)]
struct Talker {
    ends: Ends,
    bytes: f64,
    messages: f64,
    in_flight: u64,
    depth: u64,
    state: ChannelState,
    carrier: String,
}

/// All data of the page.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Picture<'a> {
    at: u64,
    hosts: Vec<HostRow>,
    /// Pairs of hosts, and of programs.
    by_host: Vec<(Ends, Pair, Vec<Point>)>,
    by_program: Vec<(Ends, Pair, Vec<Point>)>,
    paths: Vec<&'a Paths>,
    talkers: Vec<Talker>,
    events: Vec<&'a HostEvent>,
    /// Counters of ports that are not zero: host, port and counter.
    ports: Vec<(&'a str, &'a str, &'a Counter)>,
    /// The last matrix of `weft ping`.
    pings: Option<&'a Received>,
}

/// Number of columns of the page's latency map.
const COLUMNS: u64 = 120;
/// Maximum rows of the table of the largest senders.
const MAX_TALKERS: usize = 15;
/// Maximum number of events on the page.
const MAX_EVENTS: usize = 100;
/// Maximum number of connections whose paths are on the page.
const MAX_CONNECTIONS: usize = 40;
/// Maximum number of counters of ports on the page.
const MAX_COUNTERS: usize = 200;
/// The time for which the paths of an idle connection are shown, ms.
const PATH_RETENTION: u64 = 60_000;

/// A channel with its ends, and its counters over the time of its host's reports.
struct ChannelActivity<'a> {
    ends: Ends,
    channel: &'a ChannelView,
    counted: Counts,
    /// The time that `counted` covers, seconds.
    seconds: f64,
    is_stale: bool,
}

impl State {
    /// Returns the data to draw.
    pub(super) fn picture(&self, at: u64) -> Picture<'_> {
        let seen = self.channels();
        let pairs = |whole| {
            let pairs = sum(&seen, whole).into_iter();
            pairs.map(|(ends, pair)| {
                let points = self.history.get(&ends).map(|points| downsample(points, self.keep));
                (ends, pair, points.unwrap_or_default())
            })
        };
        let mut paths: Vec<&Paths> = self.paths.values().collect();
        paths.sort_by_key(|paths| {
            (at.saturating_sub(paths.at) > 5000, std::cmp::Reverse(paths.sent))
        });
        paths.truncate(MAX_CONNECTIONS);
        Picture {
            at,
            hosts: self.hosts.iter().map(|(asked, known)| host_row(asked, known)).collect(),
            by_host: pairs(true).collect(),
            by_program: pairs(false).collect(),
            paths,
            talkers: talkers(&seen),
            events: self.events.iter().rev().take(MAX_EVENTS).collect(),
            ports: self.ports(),
            pings: self.pings.as_ref(),
        }
    }

    /// Returns the counters of ports that are not zero.
    fn ports(&self) -> Vec<(&str, &str, &Counter)> {
        let all = self.living().flat_map(|report| {
            report.ports.iter().flat_map(move |port| {
                let counters = port.counters.iter().filter(|counter| counter.count > 0);
                counters.map(move |it| (report.host.as_str(), port.name.as_str(), it))
            })
        });
        all.take(MAX_COUNTERS).collect()
    }

    /// Adds a point of history for every pair, and the paths; called after each round of reports.
    pub(super) fn record_history(&mut self) {
        let at = now();
        for (ends, point) in self.points(at) {
            self.history.entry(ends).or_default().push_back(point);
        }
        let oldest = at.saturating_sub(self.keep);
        self.history.retain(|_, points| {
            let old = points.iter().take_while(|point| point.at < oldest).count();
            points.drain(..old);
            !points.is_empty()
        });
        let seen: Vec<_> = self.living().flat_map(|report| paths_of(report, at)).collect();
        self.paths.extend(seen);
        self.paths.retain(|_, paths| at.saturating_sub(paths.at) < PATH_RETENTION);
    }

    /// Returns a point of the present for every pair.
    fn points(&self, at: u64) -> Vec<(Ends, Point)> {
        let seen = self.channels();
        let both = [true, false].into_iter().flat_map(|whole| sum(&seen, whole));
        let point = |pair: &Pair| Point { at, bytes: pair.bytes, p50: pair.p50, p99: pair.p99 };
        both.filter(|(_, pair)| !pair.is_stale).map(|(ends, pair)| (ends, point(&pair))).collect()
    }

    fn channels(&self) -> Vec<ChannelActivity<'_>> {
        let index = Index::of(self);
        let mut all = Vec::new();
        for known in self.hosts.values() {
            let (Some(first), Some(last)) = (known.reports.front(), known.reports.back()) else {
                continue;
            };
            let before = counts_of(first);
            let nanos = last.view.now.saturating_sub(first.view.now);
            #[expect(clippy::cast_precision_loss, reason = "a rate has no nine digits")]
            let seconds = (nanos as f64 / 1e9).max(0.001);
            for node in &last.view.nodes {
                for channel in &node.channels {
                    let counts = Counts::of(&channel.record);
                    let earlier = before.get(&(node.name.as_str(), channel.record.id));
                    // A channel seen for the first time may have counted for a long time.
                    let counted = earlier.map(|earlier| counts.since(earlier)).unwrap_or_default();
                    let ends = index.ends(&last.host, node, channel);
                    let is_stale = known.silent.is_some();
                    all.push(ChannelActivity { ends, channel, counted, seconds, is_stale });
                }
            }
        }
        all
    }
}

/// Returns one point for each column of the page: the time of the column's first point, and its largest values. The
/// times do not change when later points arrive.
fn downsample(points: &VecDeque<Point>, keep: u64) -> Vec<Point> {
    let width = (keep / COLUMNS).max(1);
    let mut points_shown: Vec<Point> = Vec::new();
    for point in points {
        match points_shown.last_mut().filter(|last| last.at / width == point.at / width) {
            Some(last) => {
                last.bytes = last.bytes.max(point.bytes);
                last.p50 = last.p50.max(point.p50);
                last.p99 = last.p99.max(point.p99);
            }
            None => points_shown.push(*point),
        }
    }
    points_shown
}

fn counts_of(report: &Report) -> BTreeMap<(&str, u64), Counts> {
    let nodes = report.view.nodes.iter();
    nodes
        .flat_map(|node| {
            let channels = node.channels.iter();
            channels.map(|it| ((node.name.as_str(), it.record.id), Counts::of(&it.record)))
        })
        .collect()
}

/// Indices of hosts by address, and of programs by queue pair.
struct Index<'a> {
    hosts: BTreeMap<Address, &'a str>,
    programs: BTreeMap<(Address, u64), (&'a str, &'a NodeView)>,
}

impl<'a> Index<'a> {
    fn of(state: &'a State) -> Self {
        let mut index = Self { hosts: BTreeMap::new(), programs: BTreeMap::new() };
        let reports = state.hosts.values().filter_map(|known| known.reports.back());
        for report in reports {
            let host = report.host.as_str();
            for node in &report.view.nodes {
                index.hosts.insert(node.program.address, host);
                for channel in &node.channels {
                    let qp = (node.program.address, channel.record.qp);
                    index.programs.insert(qp, (host, node));
                }
            }
        }
        index
    }

    fn ends(&self, host: &str, node: &NodeView, channel: &ChannelView) -> Ends {
        let program = |node: &NodeView| Some((node.program.name.to_string(), node.program.pid));
        let from = End { host: host.to_owned(), program: program(node) };
        let (peer, qp) = (channel.record.peer, channel.record.peer_qp);
        let to = match (self.programs.get(&(peer, qp)), self.hosts.get(&peer)) {
            (Some((host, node)), _) => End { host: (*host).to_owned(), program: program(node) },
            (None, Some(host)) => End { host: (*host).to_owned(), program: None },
            (None, None) => End { host: peer.to_string(), program: None },
        };
        Ends { from, to }
    }
}

/// Sums the channels of the same ends.
fn sum(seen: &[ChannelActivity<'_>], hosts: bool) -> BTreeMap<Ends, Pair> {
    let mut groups: BTreeMap<Ends, Vec<&ChannelActivity<'_>>> = BTreeMap::new();
    for it in seen {
        let ends = if hosts { it.ends.hosts() } else { it.ends.clone() };
        groups.entry(ends).or_default().push(it);
    }
    groups.into_iter().map(|(ends, group)| (ends, pair(&group))).collect()
}

#[expect(clippy::cast_precision_loss, reason = "rates have no nine digits")]
fn pair(group: &[&ChannelActivity<'_>]) -> Pair {
    let mut pair = Pair { is_stale: group.iter().all(|it| it.is_stale), ..Pair::default() };
    let mut counted = Counts::default();
    let (mut sent, mut retransmits, mut is_ours) = (0, 0, false);
    for ChannelActivity { channel, counted: own, seconds, .. } in group {
        let record = &channel.record;
        pair.channels += 1;
        pair.open += u64::from(record.state == ChannelState::Open);
        pair.on_tcp += u64::from(record.carrier == weft_stat::Carrier::Stream);
        pair.in_flight += record.in_flight;
        pair.backlog += record.backlog;
        pair.bytes += (own.sent_bytes + own.received_bytes) as f64 / seconds;
        pair.messages += (own.sent + own.received) as f64 / seconds;
        pair.calls += own.calls.total() as f64 / seconds;
        counted.add(own);
        if let Some(network) = &channel.network {
            is_ours = true;
            sent += network.sent;
            retransmits += network.retransmits;
        }
    }
    pair.p50 = counted.calls.quantile(500);
    pair.p99 = counted.calls.quantile(990);
    pair.retransmitted = is_ours.then(|| retransmits as f64 / sent.max(1) as f64);
    pair
}

#[expect(clippy::cast_precision_loss, reason = "rates have no nine digits")]
fn talkers(seen: &[ChannelActivity<'_>]) -> Vec<Talker> {
    let talker = |it: &ChannelActivity<'_>| Talker {
        ends: it.ends.clone(),
        bytes: it.counted.sent_bytes as f64 / it.seconds,
        messages: it.counted.sent as f64 / it.seconds,
        in_flight: it.channel.record.in_flight,
        depth: it.channel.record.depth,
        state: it.channel.record.state,
        carrier: it.channel.carrier_name(),
    };
    let mut all: Vec<Talker> = seen.iter().map(talker).filter(|it| it.messages > 0.0).collect();
    all.sort_by(|one, other| other.bytes.total_cmp(&one.bytes));
    all.truncate(MAX_TALKERS);
    all
}

fn host_row(asked: &str, known: &HostState) -> HostRow {
    let last = known.reports.back();
    let nodes = last.map_or(&[][..], |report| &report.view.nodes);
    HostRow {
        asked: asked.to_owned(),
        name: last.map_or(asked, |report| &report.host).to_owned(),
        silent: known.silent.clone(),
        programs: nodes.len(),
        channels: nodes.iter().map(|node| node.channels.len() as u64).sum(),
        memory: nodes.iter().map(|node| node.context.memory_registered).sum(),
        unreadable: last.map(|report| report.view.unreadable.clone()).unwrap_or_default(),
    }
}

/// Returns the paths that a host's devices report.
fn paths_of(report: &Report, at: u64) -> impl Iterator<Item = ((String, String, u64), Paths)> + '_ {
    report.view.devices.iter().flat_map(move |device| {
        device.connections.iter().filter_map(move |connection| {
            let own = device.paths.iter().filter(|path| path.connection == connection.id);
            let paths: Vec<_> =
                own.map(|path| (path.path, path.rtt, path.lost, path.up != 0)).collect();
            let key = (report.host.clone(), device.name.clone(), connection.id);
            (!paths.is_empty()).then(|| {
                let paths = Paths {
                    at,
                    host: report.host.clone(),
                    program: device.program.name.to_string(),
                    pid: device.program.pid,
                    peer: connection.peer.to_string(),
                    sent: connection.sent,
                    retransmits: connection.retransmits,
                    paths,
                };
                (key, paths)
            })
        })
    })
}
