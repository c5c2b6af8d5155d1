//! The overlay daemon's status as OpenMetrics.

use std::collections::BTreeMap;

use prometheus_client::registry::Registry;
use weft_vswitch::evpn::EvpnStatus;
use weft_vswitch::fleet::FleetStatus;
use weft_vswitch::{EncryptionStatus, FlowLogStatus, Status};

use crate::openmetrics::{self, Counters, counters, gauges};

/// Returns the status as one text.
pub(crate) fn text(status: &Status) -> String {
    openmetrics::text(&registry(status))
}

/// Returns the status as families of metrics.
pub(crate) fn registry(status: &Status) -> Registry {
    let mut registry = Registry::with_prefix("weft_vpc");
    encryption(&status.encryption, &mut registry);
    threads(status, &mut registry);
    ports(status, &mut registry);
    peers(status, &mut registry);
    pairs(status, &mut registry);
    let transport = counters(&mut registry, "transport", "Events of the transport, by name");
    by_name(&transport, "event", &status.transport);
    let dropped =
        counters(&mut registry, "dropped", "Frames dropped that belong to no port, by cause");
    by_name(&dropped, "cause", &status.dropped);
    let reloads = counters(&mut registry, "reloads", "Reloads of the configuration, by outcome");
    for (outcome, count) in [("applied", status.reloads.0), ("refused", status.reloads.1)] {
        reloads.get_or_create(&vec![("outcome", outcome.to_owned())]).inc_by(count);
    }
    status.fleet.iter().for_each(|it| fleet(it, &mut registry));
    status.flow_log.iter().for_each(|it| flow_log(it, &mut registry));
    status.evpn.iter().for_each(|it| evpn(it, &mut registry));
    registry
}

fn fleet(status: &FleetStatus, registry: &mut Registry) {
    let host = || vec![("host", status.name.clone())];
    let flag = |is_true: bool| f64::from(u8::from(is_true));
    let connected = gauges(registry, "fleet_connected", "1 if a member of etcd sends changes");
    connected.get_or_create(&host()).set(flag(status.etcd.is_some()));
    let registered =
        gauges(registry, "fleet_registered", "1 if the host is registered and its lease is valid");
    registered.get_or_create(&host()).set(flag(status.registered));
    let revision =
        gauges(registry, "fleet_revision", "Revision of the newest change that is known");
    revision.get_or_create(&host()).set(status.revision as f64);
    let faults = gauges(
        registry,
        "fleet_faults",
        "Objects that are refused, and ports that cannot be opened",
    );
    faults.get_or_create(&host()).set(status.faults.len() as f64);
    let objects = gauges(registry, "fleet_objects", "Objects that the host knows, by kind");
    for (kind, &count) in &status.objects {
        objects.get_or_create(&vec![("kind", kind.clone())]).set(count as f64);
    }
    let lost = counters(registry, "fleet_disconnects", "Times that etcd was lost");
    lost.get_or_create(&host()).inc_by(status.disconnects);
    let changes = counters(registry, "fleet_changes", "Changes of the fleet, by outcome");
    for (outcome, count) in [("applied", status.applied.0), ("refused", status.applied.1)] {
        changes.get_or_create(&vec![("outcome", outcome.to_owned())]).inc_by(count);
    }
}

fn flow_log(status: &FlowLogStatus, registry: &mut Registry) {
    let records = counters(
        registry,
        "flow_records",
        "Records of flow logs, by whether they were sent to the collector",
    );
    for (outcome, count) in [("sent", status.sent), ("unsent", status.unsent)] {
        records.get_or_create(&vec![("outcome", outcome.to_owned())]).inc_by(count);
    }
    let unrecorded = counters(
        registry,
        "flow_unrecorded_frames",
        "Frames in no record of the flow logs, because their port had more flows than `max-flows`",
    );
    unrecorded.get_or_create(&vec![]).inc_by(status.unrecorded);
}

fn evpn(status: &EvpnStatus, registry: &mut Registry) {
    let up =
        gauges(registry, "evpn_neighbour_up", "1 if the session with a neighbour is established");
    let routes = gauges(
        registry,
        "evpn_routes",
        "Routes that a neighbour has announced, and that it has of this host, by direction",
    );
    let updates = counters(registry, "evpn_updates", "UPDATE messages, by direction");
    let faulty = counters(
        registry,
        "evpn_updates_faulty",
        "UPDATE messages whose routes counted as withdrawn for a fault",
    );
    let sessions =
        counters(registry, "evpn_sessions", "Sessions that were established, and that ended");
    for neighbour in &status.neighbours {
        let with = |more: Option<(&'static str, &str)>| {
            let mut labels = vec![("neighbour", neighbour.address.to_string())];
            labels.extend(more.map(|(label, value)| (label, value.to_owned())));
            labels
        };
        let is_up = neighbour.state == "established";
        up.get_or_create(&with(None)).set(f64::from(u8::from(is_up)));
        faulty.get_or_create(&with(None)).inc_by(neighbour.faulty);
        let (routes_in, routes_out) = neighbour.routes;
        for (way, routes_known, messages) in [
            ("received", routes_in, neighbour.updates.0),
            ("sent", routes_out, neighbour.updates.1),
        ] {
            let labels = with(Some(("direction", way)));
            routes.get_or_create(&labels).set(routes_known as f64);
            updates.get_or_create(&labels).inc_by(messages);
        }
        for (event, count) in
            [("established", neighbour.sessions.0), ("ended", neighbour.sessions.1)]
        {
            sessions.get_or_create(&with(Some(("event", event)))).inc_by(count);
        }
    }
    let machines = gauges(registry, "evpn_machines", "Machines whose places come from routes");
    machines.get_or_create(&vec![]).set(status.machines as f64);
    let duplicates = gauges(registry, "evpn_duplicates", "Machines that are here and elsewhere");
    duplicates.get_or_create(&vec![]).set(status.duplicates.len() as f64);
    let vteps = gauges(registry, "evpn_vteps", "Hosts to which the routes of a network lead");
    for (vni, hosts) in &status.vteps {
        vteps.get_or_create(&vec![("vni", vni.to_string())]).set(hosts.len() as f64);
    }
}

fn by_name(family: &Counters, label: &'static str, counts: &BTreeMap<String, u64>) {
    for (name, &count) in counts {
        family.get_or_create(&vec![(label, name.clone())]).inc_by(count);
    }
}

fn encryption(status: &EncryptionStatus, registry: &mut Registry) {
    let connections = gauges(registry, "connections", "Connections, by how they are encrypted");
    let (sealed, clear) = status.connections;
    for (kind, count) in [("sealed", sealed), ("clear", clear)] {
        let labels = vec![("mode", status.mode.clone()), ("as", kind.to_owned())];
        connections.get_or_create(&labels).set(count as f64);
    }
    let counted =
        counters(registry, "encryption", "Packets sealed, opened and refused, by outcome");
    by_name(&counted, "event", &status.counters);
}

fn threads(status: &Status, registry: &mut Registry) {
    let ports = gauges(registry, "thread_ports", "Ports that belong to a thread");
    let pairs = gauges(registry, "thread_pairs", "Pairs of interfaces that belong to a thread");
    let packets =
        counters(registry, "thread_packets", "Packets with payload of a thread, by direction");
    let redirected = counters(
        registry,
        "thread_redirected",
        "Packets and frames that arrived at a thread and belong to another, by kind",
    );
    for (number, thread) in status.threads.iter().enumerate() {
        let with = |more: Option<(&'static str, &str)>| {
            let mut labels = vec![("thread", number.to_string())];
            labels.extend(more.map(|(label, value)| (label, value.to_owned())));
            labels
        };
        ports.get_or_create(&with(None)).set(thread.ports as f64);
        pairs.get_or_create(&with(None)).set(thread.pairs as f64);
        for (way, count) in [("sent", thread.packets.0), ("received", thread.packets.1)] {
            packets.get_or_create(&with(Some(("direction", way)))).inc_by(count);
        }
        let (setups, others) = thread.redirected;
        for (kind, count) in [("setup", setups), ("packet", others), ("frame", thread.handed_over)]
        {
            redirected.get_or_create(&with(Some(("kind", kind)))).inc_by(count);
        }
    }
}

fn ports(status: &Status, registry: &mut Registry) {
    let up = gauges(registry, "port_up", "1 if a tenant is attached to the port");
    let frames = counters(registry, "port_frames", "Frames of a port, by direction");
    let bytes = counters(registry, "port_bytes", "Bytes of a port's frames, by direction");
    let carried = counters(
        registry,
        "port_carried",
        "Frames that a port's tenant sent, by the way they were forwarded",
    );
    let dropped =
        counters(registry, "port_dropped", "Frames of a port that were dropped, by cause");
    let declined =
        counters(registry, "port_declined", "Packets declined for lack of room, and retransmitted");
    let held = gauges(registry, "port_held", "Frames held for a port, by direction");
    let mirrored = counters(
        registry,
        "port_mirrored",
        "Copies of a port's frames for its analyser, by whether there was room",
    );
    for port in &status.ports {
        let with = |more: Option<(&'static str, &str)>| {
            let mut labels = vec![("port", port.name.clone()), ("vni", port.vni.to_string())];
            labels.extend(more.map(|(label, value)| (label, value.to_owned())));
            labels
        };
        up.get_or_create(&with(None)).set(f64::from(u8::from(port.up)));
        declined.get_or_create(&with(None)).inc_by(port.declined);
        let directions =
            [("sent", port.sent, port.held.0), ("received", port.received, port.held.1)];
        for (way, (count, size), holding) in directions {
            let labels = with(Some(("direction", way)));
            frames.get_or_create(&labels).inc_by(count);
            bytes.get_or_create(&labels).inc_by(size);
            held.get_or_create(&labels).set(holding as f64);
        }
        let (reliable, plain, local) = port.carried;
        for (by, count) in [("reliable", reliable), ("plain", plain), ("local", local)] {
            carried.get_or_create(&with(Some(("by", by)))).inc_by(count);
        }
        if let Some(counts) = &port.mirrored {
            for (outcome, count) in [("copied", counts.copied), ("dropped", counts.dropped)] {
                mirrored.get_or_create(&with(Some(("outcome", outcome)))).inc_by(count);
            }
        }
        for (cause, &count) in &port.dropped {
            dropped.get_or_create(&with(Some(("cause", cause)))).inc_by(count);
        }
    }
}

fn peers(status: &Status, registry: &mut Registry) {
    let reached = gauges(
        registry,
        "peer_reached",
        "1 if a host accepted the last request for a connection, 0 if it did not within the last minute",
    );
    for (peer, &is_reached) in &status.peers {
        reached
            .get_or_create(&vec![("peer", peer.to_string())])
            .set(f64::from(u8::from(is_reached)));
    }
}

fn pairs(status: &Status, registry: &mut Registry) {
    let up = gauges(registry, "pair_up", "1 if a pair's connection is set up");
    let packets =
        counters(registry, "pair_packets", "Packets sent for a pair, retransmissions included");
    let retransmits = counters(registry, "pair_retransmits", "Packets retransmitted for a pair");
    let waiting = gauges(registry, "pair_waiting_frames", "Frames of a pair not acknowledged");
    let path_up = gauges(registry, "path_up", "1 if a path is usable");
    let rtt = gauges(registry, "path_rtt_seconds", "Smoothed round trip of a path");
    let lost = counters(registry, "path_lost_packets", "Packets lost on a path");
    for pair in &status.pairs {
        let labels = vec![
            ("vni", pair.vni.to_string()),
            ("port", pair.port.clone()),
            ("remote", pair.remote.to_string()),
            ("peer", pair.peer.to_string()),
        ];
        up.get_or_create(&labels).set(f64::from(u8::from(pair.up)));
        packets.get_or_create(&labels).inc_by(pair.packets.0);
        retransmits.get_or_create(&labels).inc_by(pair.packets.1);
        waiting.get_or_create(&labels).set(pair.waiting as f64);
        for path in &pair.paths {
            let mut labels = labels.clone();
            labels.push(("path", path.path.to_string()));
            path_up.get_or_create(&labels).set(f64::from(u8::from(path.up)));
            lost.get_or_create(&labels).inc_by(path.lost);
            if let Some(us) = path.rtt_us {
                rtt.get_or_create(&labels).set(us / 1e6);
            }
        }
    }
}
