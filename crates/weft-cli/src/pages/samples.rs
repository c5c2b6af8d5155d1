//! States in which every metric has a sample, for the page that lists them.

use serde_json::{Value, json};
use weft_stat::{ChannelRecord, ContextRecord, DeviceRecord, ProgramRecord, ProgramState};
use weft_steer::View;
use weft_transport::Stats;
use weft_verbs::{Amounts, DeviceCounters, DeviceLimits, DeviceState};
use weft_vswitch::Status;

use crate::monitor::Received;
use crate::monitor::watch::{Report, Total};
use crate::stat::{ChannelView, Host, NetworkView, NodeView};

/// A report of a host with a node, a channel and a device.
pub(super) fn report() -> Report {
    let network = NetworkView {
        carrier: weft_stat::Carrier::Network,
        encrypted: true,
        sent: 0,
        retransmits: 0,
        in_flight: 0,
        paths: 1,
        paths_up: 1,
        rtt_min: Some(1),
        rtt_max: Some(1),
        path_list: Vec::new(),
    };
    let channel = ChannelView {
        record: ChannelRecord::default(),
        call_p50: None,
        call_p99: None,
        network: Some(network),
    };
    let node = NodeView {
        name: String::new(),
        is_dead: false,
        life: ProgramState::Running,
        unattended: 0,
        program: ProgramRecord::default(),
        context: ContextRecord::default(),
        channels: vec![channel],
        events: Vec::new(),
        control: std::path::PathBuf::new(),
    };
    let device = read(json!({
        "name": "", "is_dead": false, "program": ProgramRecord::default(), "device": DeviceRecord::default(),
        "connections": [], "paths": [],
    }));
    let view = Host { now: 0, nodes: vec![node], devices: vec![device], unreadable: Vec::new() };
    Report {
        host: String::new(),
        epoch: 0,
        at: 0,
        view,
        totals: vec![Total::default()],
        events: Vec::new(),
        ports: read(json!([{
            "name": "eth0", "counters": [{ "kind": "pause", "name": "rx_prio3_pause", "count": 0 }],
        }])),
    }
}

/// A matrix of pings with a pair.
pub(super) fn pings() -> Received {
    let round_trip = weft_perf::LatencyMicros::default();
    read(json!({
        "at": 0, "unreachable": [], "pairs": [{
            "from": "10.0.0.1", "from_tor": "", "to": "10.0.0.2", "to_tor": "", "answered": 1, "lost": 0, "loss": 0.0,
            "round_trip_us": round_trip, "error": null, "outlier": false,
        }],
    }))
}

/// The status of an overlay with a thread, a port, a pair and a path.
pub(super) fn status() -> Status {
    let port = json!({
        "name": "", "vni": 1, "mac": "02:00:00:00:00:01", "thread": 0, "up": true, "sent": [0, 0], "received": [0, 0],
        "carried": [0, 0, 0], "declined": 0, "dropped": { "cause": 0 }, "held": [0, 0],
        "mirrored": { "copied": 0, "dropped": 0 },
    });
    let path = json!({ "path": 0, "up": true, "rtt_us": 1.0, "lost": 0, "in_flight": 0 });
    let pair = json!({
        "vni": 1, "port": "", "remote": "02:00:00:00:00:02", "peer": "10.0.0.2", "up": true, "waiting": 0,
        "packets": [0, 0], "paths": [path],
    });
    let thread = json!({
        "ports": 1, "pairs": 1, "packets": [0, 0], "redirected": [0, 0], "handed_over": 0,
    });
    read(json!({
        "address": "10.0.0.1", "tenant_mtu": 1378, "networks": [], "ports": [port], "pairs": [pair], "threads": [thread],
        "peers": { "10.0.0.2": true },
        "encryption": {
            "mode": "", "identity": "", "authenticates": false, "connections": [0, 0], "counters": { "name": 0 },
        },
        "transport": Stats::default(), "dropped": { "cause": 0 },
        "fleet": {
            "name": "", "etcd": "10.9.0.1:2379", "registered": true, "revision": 1, "objects": { "kind": 1 }, "disconnects": 0,
            "applied": [0, 0], "error": null, "refused": null, "faults": {},
        },
        "flow_log": { "collector": "10.9.0.2:4739", "sent": 0, "unsent": 0, "unrecorded": 0 },
        "evpn": {
            "as": 65001, "router_id": "10.0.0.1", "machines": 1, "vteps": { "1": { "10.0.0.3": true } },
            "neighbours": [{
                "address": "10.0.0.3", "as": 65000, "state": "established", "seconds": 1.0, "routes": [1, 1],
                "updates": [1, 1], "faulty": 0, "sessions": [1, 0],
            }],
        },
    }))
}

/// The state of a device.
pub(super) fn device() -> DeviceState {
    DeviceState {
        name: String::new(),
        owner: 0,
        limits: DeviceLimits::default(),
        used: Amounts::NONE,
        memory: 0,
        counters: DeviceCounters::default(),
        processes: Vec::new(),
        transport: Vec::new(),
        daemon: Vec::new(),
    }
}

/// The picture of a controller with a link, a move, a job and a record that it cannot read.
pub(super) fn view() -> View {
    let suspected = json!({
        "fault": "loss", "since": 0, "lost_per_mille": 0, "delay_ns": 0, "paths": 0, "suffering": 0, "hosts": 0,
        "votes": 0, "others": [], "avoided": true,
    });
    let link = json!({
        "from": "", "port": "1", "to": "", "capacity": 1, "load": 0, "reserved": 0, "marks": 0, "marks_from": "samples", "up": true, "alarm": null,
        "probes": [suspected],
    });
    let step = json!({
        "id": 0, "router": "", "destination": "", "from": "", "to": [], "flows": 0, "stage": "kept", "decided": 0,
        "reason": "", "commands": [],
    });
    let job = json!({
        "name": "", "flows": 0, "announced": 0, "begun": true, "version": 1, "rate": 0, "fullest_per_mille": 0,
        "bursts": { "period_ns": 1, "length_ns": 1, "jitter_ns": 0, "next": 0 },
    });
    View {
        links: read(json!([link])),
        moves: read(json!([step])),
        jobs: read(json!([job])),
        unreadable_records: read(json!({ "": "" })),
        event_counts: read(json!({ "kind": 0 })),
        ..View::default()
    }
}

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}
