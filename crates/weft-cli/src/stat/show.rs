//! The tables of `weft stat`.

use std::fmt::Write as _;

use anyhow::Result;
use clap::ValueEnum;
use weft_report::{Cell, Column, Table};
use weft_stat::{EventRecord, ProgramState};
use weft_units::ByteCount;

use super::host::{ChannelView, Host, NetworkView, NodeView};
use weft_report::terminal::{Output, render};

/// The tables that `weft stat` can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum View {
    /// A row for each channel
    Channels,
    /// A row for each program
    Nodes,
    /// A row for each path, on Weft's own device
    Paths,
    /// Recent events, oldest first
    Events,
}

/// Prints a view as text, or all data as JSON.
pub(crate) fn show(host: &Host, view: View, output: Output) -> Result<()> {
    output.value(host, || {
        let mut text = match view {
            View::Channels => channels(host),
            View::Nodes => nodes(host),
            View::Paths => paths(host),
            View::Events => events(host),
        };
        for line in &host.unreadable {
            let _ = write!(text, "\nnot read: {line}");
        }
        text
    })
}

/// The advice if there is no program.
const NO_PROGRAMS: &str = "no program of this user writes statistics here: one that uses weft-xrdma or runs under \
                           `weft run` does";

fn channels(host: &Host) -> String {
    let mut table = Table::new(vec![
        Column::text("program", "program"),
        Column::number("pid", "pid"),
        Column::text("peer", "peer"),
        Column::text("state", "state"),
        Column::text("by", "by"),
        Column::number("window", "window"),
        Column::number("waiting", "waiting"),
        Column::number("sent", "sent"),
        Column::number("received", "received"),
        Column::number("calls", "calls"),
        Column::number("p50", "p50"),
        Column::number("p99", "p99"),
        Column::number("retransmits", "retransmits"),
        Column::number("paths", "paths"),
        Column::number("rtt", "rtt"),
        Column::number("memory", "memory"),
    ]);
    for node in &host.nodes {
        node.channels.iter().for_each(|channel| table.push(row(node, channel)));
    }
    if host.nodes.is_empty() {
        return NO_PROGRAMS.into();
    }
    if table.is_empty() {
        return format!("{}\nno channels", nodes(host));
    }
    render(&table)
}

fn row(node: &NodeView, channel: &ChannelView) -> Vec<Cell> {
    let ChannelView { record, network, call_p50, call_p99 } = channel;
    let state = if node.is_dead { "died".into() } else { record.state.to_string() };
    let network = network.as_ref();
    vec![
        text(node.program.name.as_str()),
        number(node.program.pid),
        text(&record.peer.to_string()),
        text(&state),
        text(&channel.carrier_name()),
        text(&format!("{}/{}", record.in_flight, record.depth)),
        number(record.backlog),
        number(record.sent),
        number(record.received),
        number(record.calls.total()),
        time(*call_p50),
        time(*call_p99),
        network.map_or_else(Cell::missing, |it| number(it.retransmits)),
        network
            .filter(|it| it.paths > 0)
            .map_or_else(Cell::missing, |it| text(&format!("{}/{}", it.paths_up, it.paths))),
        network.map_or_else(Cell::missing, round_trips),
        text(&ByteCount(record.memory).to_string()),
    ]
}

/// Returns the shortest and the longest round-trip time of a channel's paths.
fn round_trips(network: &NetworkView) -> Cell {
    match (network.rtt_min, network.rtt_max) {
        (Some(least), Some(most)) if least < most => {
            text(&format!("{}..{}", duration(least), duration(most)))
        }
        (Some(least), _) => text(&duration(least)),
        _ => Cell::missing(),
    }
}

fn nodes(host: &Host) -> String {
    let mut table = Table::new(vec![
        Column::text("program", "program"),
        Column::number("pid", "pid"),
        Column::text("state", "state"),
        Column::text("device", "device"),
        Column::text("address", "address"),
        Column::text("listens", "listens"),
        Column::number("channels", "channels"),
        Column::number("closed", "closed"),
        Column::number("memory", "memory"),
        Column::number("in use", "used"),
        Column::number("queue pairs", "qps"),
        Column::number("reused", "reused"),
        Column::number("slow calls", "slow_calls"),
        Column::number("slow polls", "slow_polls"),
        Column::number("slow segments", "slow_segments"),
        Column::number("N send", "sends_limit"),
        Column::number("N read", "reads_limit"),
        Column::number("traced", "traced"),
        Column::number("request", "request_p50"),
        Column::number("peer", "peer_p50"),
        Column::number("response", "response_p50"),
    ]);
    for node in &host.nodes {
        let NodeView { program, context, .. } = node;
        table.push(vec![
            text(program.name.as_str()),
            number(program.pid),
            text(&state(node)),
            text(program.device.as_str()),
            text(&program.address.to_string()),
            if program.listens.as_str().is_empty() {
                Cell::missing()
            } else {
                text(program.listens.as_str())
            },
            number(program.entries),
            number(context.channels_closed),
            text(&ByteCount(context.memory_registered).to_string()),
            text(&ByteCount(context.memory_used).to_string()),
            number(context.qps_created),
            number(context.qps_reused),
            number(context.slow_calls),
            number(context.slow_polls),
            number(context.slow_segments),
            text(&ByteCount(context.sends_limit).to_string()),
            text(&ByteCount(context.reads_limit).to_string()),
            number(context.requests.total()),
            time(context.requests.quantile(500)),
            time(context.peers.quantile(500)),
            time(context.responses.quantile(500)),
        ]);
    }
    if table.is_empty() { NO_PROGRAMS.into() } else { render(&table) }
}

/// The time, ns, after which a node that does not sleep is reported as not polled.
const POLL_OVERDUE: u64 = 1_000_000_000;

/// Returns the state of a node's program.
fn state(node: &NodeView) -> String {
    match node.life {
        _ if node.is_dead => "died".into(),
        ProgramState::Asleep => "asleep".into(),
        ProgramState::Ended => "ended".into(),
        ProgramState::Running if node.unattended > POLL_OVERDUE => {
            format!("not polled for {}", duration(node.unattended))
        }
        ProgramState::Running => "running".into(),
    }
}

fn paths(host: &Host) -> String {
    let mut table = Table::new(vec![
        Column::text("program", "program"),
        Column::number("pid", "pid"),
        Column::text("transport", "transport"),
        Column::text("peer", "peer"),
        Column::number("path", "path"),
        Column::text("state", "state"),
        Column::number("rtt", "rtt"),
        Column::number("lost", "lost"),
        Column::number("in flight", "in_flight"),
    ]);
    for device in &host.devices {
        for path in &device.paths {
            let of = device.connections.iter().find(|it| it.id == path.connection);
            table.push(vec![
                text(device.program.name.as_str()),
                number(device.program.pid),
                text(device.device.transport.as_str()),
                of.map_or_else(Cell::missing, |it| text(&it.peer.to_string())),
                number(path.path),
                text(if path.up == 0 { "down" } else { "up" }),
                time(path.rtt),
                number(path.lost),
                number(path.in_flight),
            ]);
        }
    }
    if table.is_empty() {
        "no paths: connections forget them after a tenth of a second of rest, and programs of one host have none".into()
    } else {
        render(&table)
    }
}

fn events(host: &Host) -> String {
    let mut table = Table::new(vec![
        Column::number("ago", "ago"),
        Column::text("program", "program"),
        Column::number("pid", "pid"),
        Column::text("what", "kind"),
        Column::text("peer", "peer"),
        Column::text("", "text"),
    ]);
    let of = |node: &NodeView| -> Vec<(NodeView, EventRecord)> {
        node.events.iter().map(|event| (node.clone(), event.clone())).collect()
    };
    let mut all: Vec<(NodeView, EventRecord)> = host.nodes.iter().flat_map(of).collect();
    all.sort_by_key(|(_, event)| event.at);
    for (node, event) in &all {
        table.push(vec![
            text(&duration(host.now.saturating_sub(event.at))),
            text(node.program.name.as_str()),
            number(node.program.pid),
            text(&event.kind.to_string()),
            text(&event.peer.to_string()),
            match event.took {
                0 => text(event.text.as_str()),
                took if event.text.as_str().is_empty() => text(&duration(took)),
                took => text(&format!("{} {}", event.text, duration(took))),
            },
        ]);
    }
    if table.is_empty() { "nothing happened".into() } else { render(&table) }
}

fn text(text: &str) -> Cell {
    Cell::new(text, text)
}

fn number(number: u64) -> Cell {
    Cell::new(number.to_string(), number)
}

fn time(nanos: Option<u64>) -> Cell {
    nanos.map_or_else(Cell::missing, |nanos| Cell::new(duration(nanos), nanos))
}

/// Formats a time: with one decimal below 100 units, without decimals above.
pub(crate) fn duration(nanos: u64) -> String {
    let scales = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)];
    let Some((unit, one)) = scales.into_iter().find(|(_, one)| nanos >= *one) else {
        return format!("{nanos}ns");
    };
    let (whole, tenths) = (nanos / one, nanos % one * 10 / one);
    if whole >= 100 { format!("{whole}{unit}") } else { format!("{whole}.{tenths}{unit}") }
}
