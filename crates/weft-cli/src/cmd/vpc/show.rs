//! The overlay daemon's status as text.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::IpAddr;

use anyhow::Result;
use weft_report::{Cell, Column, Table};
use weft_udp::sockets::Wire;
use weft_vswitch::evpn::{EvpnNeighbourStatus, EvpnStatus};
use weft_vswitch::fleet::FleetStatus;
use weft_vswitch::{
    EncryptionStatus, FlowLogStatus, PairStatus, PathStatus, PortStatus, Status, ThreadStatus,
};

use weft_report::terminal::{Output, render};

/// Prints the whole status, as text or as JSON.
pub(super) fn status(status: &Status, output: Output) -> Result<()> {
    output.value(status, || {
        let mut text = format!("host {}, tenants' MTU {}", status.address, status.tenant_mtu);
        if status.threads.iter().any(|thread| thread.wire == Wire::AfXdp) {
            text.push_str(", packets by AF_XDP");
        }
        text.push('\n');
        text.push_str(&encryption(&status.encryption));
        status.fleet.iter().for_each(|it| text.push_str(&fleet(it)));
        status.flow_log.iter().for_each(|it| text.push_str(&flow_log(it)));
        status.evpn.iter().for_each(|it| text.push_str(&evpn(it)));
        for network in &status.networks {
            let network = &network.network;
            let peers: Vec<_> = network.peers.iter().map(ToString::to_string).collect();
            let how = match (network.reliable, network.in_order) {
                (true, true) => "reliable, in order",
                (true, false) => "reliable, in any order",
                (false, _) => "plain VXLAN",
            };
            let peers = if peers.is_empty() { "nobody".into() } else { peers.join(", ") };
            writeln!(text, "network {}: {how}, with {peers}", network.vni).expect("a string");
        }
        let sections = [
            thread_table(&status.threads),
            port_table(&status.ports),
            pair_table(&status.pairs),
            path_table(&status.pairs),
        ];
        for table in sections.iter().filter(|table| !table.is_empty()) {
            text.push('\n');
            text.push_str(&render(table));
        }
        let pairs: usize = status.threads.iter().map(|thread| thread.pairs).sum();
        if pairs > status.pairs.len() {
            writeln!(text, "\n{} of {pairs} pairs are shown", status.pairs.len())
                .expect("a string");
        }
        // Without tail loss probes: they ask for an ACK before a packet is found lost.
        let [sent, fast, timeouts, spurious] =
            ["data_sent", "fast_retransmits", "timeout_retransmits", "spurious_retransmits"]
                .map(|name| status.transport.get(name).copied().unwrap_or(0));
        writeln!(
            text,
            "\n{sent} packets sent, {} again ({timeouts} after a timeout, {spurious} needlessly)",
            fast + timeouts
        )
        .expect("a string");
        if !status.dropped.is_empty() {
            writeln!(text, "dropped: {}", causes(&status.dropped)).expect("a string");
        }
        text
    })
}

/// Returns the state of the flow logs' export.
fn flow_log(status: &FlowLogStatus) -> String {
    let FlowLogStatus { collector, sent, unsent, unrecorded, error } = status;
    let mut text = format!("flow log: {sent} records sent to {collector}");
    if let Some(error) = error {
        write!(text, ", {unsent} not sent: {error}").expect("a string");
    }
    if *unrecorded > 0 {
        write!(text, "; {unrecorded} frames of flows beyond `max-flows` not recorded")
            .expect("a string");
    }
    text + "\n"
}

/// Returns the state of the host in its fleet, with the faults.
fn fleet(status: &FleetStatus) -> String {
    let etcd = match &status.etcd {
        Some(endpoint) => format!("follows etcd at {endpoint}"),
        None => "etcd is not reached, what is known stays in force".into(),
    };
    let registered = if status.registered { "registered" } else { "not registered" };
    let objects: usize = status.objects.values().sum();
    let mut text = format!(
        "fleet: {} {registered}, {etcd}, {objects} objects at revision {}\n",
        status.name, status.revision
    );
    let failures = [("error", &status.error), ("not applied", &status.refused)];
    for (kind, reason) in failures {
        reason.iter().for_each(|reason| writeln!(text, "  {kind}: {reason}").expect("a string"));
    }
    for (key, fault) in &status.faults {
        writeln!(text, "  fault: {key}: {fault}").expect("a string");
    }
    text
}

/// Returns the BGP sessions, the hosts to which their routes lead, and machines that are in two places.
fn evpn(status: &EvpnStatus) -> String {
    let EvpnStatus { asn, router_id, machines, .. } = status;
    let mut text =
        format!("evpn: AS {asn}, router id {router_id}, {machines} machines on other hosts\n");
    for neighbour in &status.neighbours {
        writeln!(text, "  {}", session(neighbour)).expect("a string");
    }
    for (vni, vteps) in &status.vteps {
        let name = |(vtep, floods): (&IpAddr, &bool)| match floods {
            true => vtep.to_string(),
            false => format!("{vtep} (no broadcasts)"),
        };
        let vteps: Vec<_> = vteps.iter().map(name).collect();
        writeln!(text, "  network {vni}: with {}", vteps.join(", ")).expect("a string");
    }
    for (vni, mac) in &status.duplicates {
        writeln!(text, "  fault: {mac} of network {vni} is here and elsewhere").expect("a string");
    }
    text
}

/// Returns the state of the session with a neighbour in a line.
fn session(neighbour: &EvpnNeighbourStatus) -> String {
    let EvpnNeighbourStatus { address, asn, state, seconds, routes, error, .. } = neighbour;
    let error = error.as_ref().map_or_else(String::new, |error| format!(": {error}"));
    let (received, sent) = routes;
    format!(
        "neighbour {address} AS {asn}: {state} for {seconds:.0} s, {received} routes received, {sent} sent{error}"
    )
}

/// Prints the ports alone.
pub(super) fn ports(ports: &[PortStatus], output: Output) -> Result<()> {
    output.value(&ports, || match ports.is_empty() {
        true => "no ports (`weft vpc port add`)".into(),
        false => render(&port_table(ports)),
    })
}

/// Returns the encryption mode, the connections, and the counts of refused ones.
fn encryption(status: &EncryptionStatus) -> String {
    let EncryptionStatus { mode, authenticates, connections: (sealed, clear), .. } = status;
    if mode == "off" {
        return "encryption off\n".to_owned();
    }
    let checked = if *authenticates { "hosts are authenticated" } else { "any host is accepted" };
    let is_refusal = |name: &str| !["opened", "sealed", "exchanges", "clear"].contains(&name);
    let refused: BTreeMap<_, _> = status
        .counters
        .iter()
        .filter(|(name, count)| **count > 0 && is_refusal(name))
        .map(|(name, &count)| (name.clone(), count))
        .collect();
    let refused = match refused.is_empty() {
        true => String::new(),
        false => format!("; refused: {}", causes(&refused)),
    };
    format!(
        "encryption {mode}, {checked}: {sealed} connections sealed, {clear} in the clear{refused}\n\
         identity {}\n",
        status.identity
    )
}

fn causes(dropped: &BTreeMap<String, u64>) -> String {
    let parts: Vec<_> = dropped.iter().map(|(cause, count)| format!("{cause} {count}")).collect();
    parts.join(", ")
}

pub(super) fn text(text: impl Into<String>) -> Cell {
    let text = text.into();
    Cell::new(text.clone(), text)
}

pub(super) fn count(count: u64) -> Cell {
    Cell::new(count.to_string(), count)
}

fn state(up: bool) -> Cell {
    text(if up { "up" } else { "down" })
}

/// Returns a row for each thread; an empty table if there is only one.
fn thread_table(threads: &[ThreadStatus]) -> Table {
    let mut table = Table::new(vec![
        Column::number("thread", "thread"),
        Column::number("ports", "ports"),
        Column::number("pairs", "pairs"),
        Column::number("sent", "sent"),
        Column::number("received", "received"),
        Column::number("redirected", "redirected"),
        Column::number("handed over", "handed_over"),
    ]);
    for (number, thread) in threads.iter().enumerate().filter(|_| threads.len() > 1) {
        table.push(vec![
            count(number as u64),
            count(thread.ports as u64),
            count(thread.pairs as u64),
            count(thread.packets.0),
            count(thread.packets.1),
            count(thread.redirected.0 + thread.redirected.1),
            count(thread.handed_over),
        ]);
    }
    table
}

fn port_table(ports: &[PortStatus]) -> Table {
    let mut table = Table::new(vec![
        Column::text("port", "port"),
        Column::number("VNI", "vni"),
        Column::text("address", "mac"),
        Column::text("state", "state"),
        Column::number("sent", "sent"),
        Column::number("received", "received"),
        Column::number("came again", "declined"),
        Column::text("dropped", "dropped"),
    ]);
    for port in ports {
        table.push(vec![
            text(port.name.clone()),
            count(port.vni.into()),
            text(port.mac.to_string()),
            state(port.up),
            count(port.sent.0),
            count(port.received.0),
            count(port.declined),
            text(causes(&port.dropped)),
        ]);
    }
    table
}

fn pair_table(pairs: &[PairStatus]) -> Table {
    let mut table = Table::new(vec![
        Column::text("port", "port"),
        Column::text("remote", "remote"),
        Column::text("host", "peer"),
        Column::text("state", "state"),
        Column::text("encryption", "encryption"),
        Column::number("packets", "packets"),
        Column::number("again", "again"),
        Column::number("unacknowledged", "waiting"),
        Column::number("paths up", "paths_up"),
    ]);
    for pair in pairs {
        let up = pair.paths.iter().filter(|path| path.up).count();
        let paths = format!("{up} of {}", pair.paths.len());
        table.push(vec![
            text(pair.port.clone()),
            text(pair.remote.to_string()),
            text(pair.peer.to_string()),
            text(if pair.up { "up" } else { "connecting" }),
            text(if pair.sealed { "sealed" } else { "clear" }),
            count(pair.packets.0),
            count(pair.packets.1),
            count(pair.waiting as u64),
            if pair.paths.is_empty() { text("resting") } else { text(paths) },
        ]);
    }
    table
}

fn path_table(pairs: &[PairStatus]) -> Table {
    let mut table = Table::new(vec![
        Column::text("port", "port"),
        Column::text("host", "peer"),
        Column::number("path", "path"),
        Column::text("state", "state"),
        Column::number("round trip", "rtt_us"),
        Column::number("lost", "lost"),
    ]);
    for pair in pairs {
        let known = |path: &&PathStatus| path.rtt_us.is_some() || path.lost > 0 || !path.up;
        for path in pair.paths.iter().filter(known) {
            let rtt = |us: f64| Cell::new(format!("{us:.0} us"), us);
            table.push(vec![
                text(pair.port.clone()),
                text(pair.peer.to_string()),
                count(path.path.into()),
                state(path.up),
                path.rtt_us.map_or_else(Cell::missing, rtt),
                count(path.lost),
            ]);
        }
    }
    table
}
