//! Pairs that communicate: two interfaces of the overlay, or a program and a peer of its channels.

use std::collections::BTreeMap;

use weft_report::{Cell, Column, Table};
use weft_stat::{Address, ChannelState, Latencies};
use weft_vswitch::{PairStatus, Status};

use super::super::rates::{Earlier, sum};
use super::super::sample::{Programs, Sample, Source};
use super::cells::{rate, time};
use super::paths::nanos;
use crate::stat::{ChannelView, NodeView};

/// Returns a row for each pair.
pub(crate) fn pairs(before: Option<&Sample>, now: &Sample) -> Table {
    let mut table = Table::new(vec![
        Column::text("from", "from"),
        Column::text("to", "to"),
        Column::text("state", "state"),
        Column::number("packets/s", "packets_per_second"),
        Column::number("again/s", "retransmits_per_second"),
        Column::number("waiting", "waiting"),
        Column::number("paths", "paths_up"),
        Column::number("rtt", "rtt_ns"),
        Column::number("bytes/s", "bytes_per_second"),
        Column::number("call p99", "call_p99_ns"),
    ]);
    if let Some(overlay) = &now.overlay {
        of_overlay(before.and_then(|it| it.overlay.as_ref()), overlay, &mut table);
    }
    for programs in &now.programs {
        of_programs(before.and_then(|it| it.programs_of(&programs.name)), programs, &mut table);
    }
    table
}

fn of_overlay(before: Option<&Source<Status>>, now: &Source<Status>, table: &mut Table) {
    let Some(status) = now.value() else { return };
    let key = |pair: &PairStatus| (pair.vni, pair.port.clone(), pair.remote.to_string());
    let counters = |pair: &PairStatus| [pair.packets.0, pair.packets.1];
    let earlier = Earlier::of(before, now, |status| {
        status.pairs.iter().map(|pair| (key(pair), counters(pair))).collect()
    });
    for pair in &status.pairs {
        let rates = earlier.rates(&key(pair), counters(pair));
        let up = pair.paths.iter().filter(|path| path.up).count();
        let round_trips = pair.paths.iter().filter_map(|path| path.rtt_us.map(nanos));
        table.push(vec![
            format!("port {}", pair.port).into(),
            format!("{} {}", pair.peer, pair.remote).into(),
            if pair.up { "up".into() } else { "connecting".into() },
            rate(rates.map(|[packets, _]| packets)),
            rate(rates.map(|[_, again]| again)),
            pair.waiting.into(),
            paths(up as u64, pair.paths.len() as u64),
            time(round_trips.min()),
            Cell::missing(),
            Cell::missing(),
        ]);
    }
}

/// Returns the number of paths that are up, of all; nothing for a pair that rests and has forgotten its paths.
fn paths(up: u64, all: u64) -> Cell {
    if all == 0 { Cell::missing() } else { Cell::new(format!("{up}/{all}"), up) }
}

/// The counters of a channel of which the page has rates: packets, retransmissions, and bytes of messages.
fn counters(channel: &ChannelView) -> [u64; 3] {
    let network = channel.network.as_ref();
    let [sent, retransmits] = network.map_or([0; 2], |it| [it.sent, it.retransmits]);
    [sent, retransmits, channel.record.sent_bytes + channel.record.received_bytes]
}

/// Returns each channel with its key: node and number.
fn channels(programs: &Programs) -> impl Iterator<Item = ((String, u64), &ChannelView)> {
    programs.view.nodes.iter().flat_map(|node| {
        node.channels.iter().map(|channel| ((node.name.clone(), channel.record.id), channel))
    })
}

fn of_programs(before: Option<&Source<Programs>>, now: &Source<Programs>, table: &mut Table) {
    let Some(programs) = now.value() else { return };
    let earlier = Earlier::of(before, now, |programs| {
        channels(programs).map(|(key, channel)| (key, counters(channel))).collect()
    });
    let calls: BTreeMap<(String, u64), &Latencies> = before
        .and_then(Source::value)
        .into_iter()
        .flat_map(channels)
        .map(|(key, channel)| (key, &channel.record.calls))
        .collect();
    for node in &programs.view.nodes {
        let mut peers: BTreeMap<Address, Vec<&ChannelView>> = BTreeMap::new();
        for channel in &node.channels {
            peers.entry(channel.record.peer).or_default().push(channel);
        }
        for (peer, group) in peers {
            let key = |channel: &ChannelView| (node.name.clone(), channel.record.id);
            let rates = sum(group.iter().map(|it| earlier.rates(&key(it), counters(it))));
            let mut answered = Latencies::default();
            for channel in &group {
                if let Some(before) = calls.get(&key(channel)) {
                    answered.add(&channel.record.calls.since(before));
                }
            }
            table.push(row(programs, node, peer, &group, rates, answered.quantile(990)));
        }
    }
}

/// Returns the row of a program's channels to one peer.
fn row(
    programs: &Programs,
    node: &NodeView,
    peer: Address,
    group: &[&ChannelView],
    rates: Option<[f64; 3]>,
    call_p99: Option<u64>,
) -> Vec<Cell> {
    let open = group.iter().filter(|it| it.record.state == ChannelState::Open).count();
    let state = match group {
        [channel] => channel.record.state.to_string(),
        _ => format!("{open}/{} open", group.len()),
    };
    let networks = || group.iter().filter_map(|it| it.network.as_ref());
    // Packets and paths are known of Weft's own device only.
    let is_known = networks().next().is_some();
    let known = rates.filter(|_| is_known);
    let waiting: u64 = group.iter().map(|it| it.record.in_flight + it.record.backlog).sum();
    vec![
        programs.named(&format!("{}/{}", node.program.name, node.program.pid)).into(),
        peer.to_string().into(),
        state.into(),
        rate(known.map(|[packets, ..]| packets)),
        rate(known.map(|[_, again, _]| again)),
        waiting.into(),
        paths(
            networks().map(|it| it.paths_up).min().unwrap_or(0),
            networks().map(|it| it.paths).max().unwrap_or(0),
        ),
        time(networks().filter_map(|it| it.rtt_min).min()),
        rate(rates.map(|[.., bytes]| bytes)),
        time(call_p99),
    ]
}
