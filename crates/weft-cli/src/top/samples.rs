//! Two samples of a small world, one second apart, for the tests of pages: two overlay ports, a store and its client on
//! Weft's device, a tenant's device, a controller that has moved flows.

use std::net::IpAddr;

use serde_json::json;
use weft_stat::{
    Address, Carrier, ChannelRecord, ChannelState, ConnectionRecord, ContextRecord, DeviceRecord,
    Latencies, PathRecord, ProgramRecord, ProgramState, Text,
};
use weft_steer::View;
use weft_units::{Duration, Histogram};
use weft_verbs::{Amounts, DeviceCounters, DeviceLimits, DeviceState};
use weft_vswitch::Status;

use super::sample::{Programs, Sample, Source};
use crate::stat::{ChannelView, DeviceView, Host, NetworkView, NodeView};

const SECOND: u64 = 1_000_000_000;

/// Returns the first sample.
pub(super) fn before() -> Sample {
    sample(0)
}

/// Returns the sample a second later: counters have increased, those of the port `db` have restarted, and the client's second
/// channel is new.
pub(super) fn now() -> Sample {
    sample(1)
}

/// Returns a sample without an answer, of this number of agents and of three daemons.
pub(super) fn nobody(agents: usize) -> Sample {
    fn absent<T>(name: &str, reason: &str) -> Source<T> {
        Source { name: name.into(), at: 0, answer: Err(reason.into()) }
    }
    let agent = |index| {
        let at = format!("10.0.0.{index}:7475");
        let reason = format!("cannot reach {at}: is `weft monitor agent` running there?");
        absent(&format!("agent {at}"), &reason)
    };
    let overlay =
        "no daemon at /run/weft/vpc.sock (start one: `weft vpc serve`, or name its --control)";
    let controller =
        "cannot reach 127.0.0.1:7490: is `weft route serve` running there?: Connection refused";
    Sample {
        programs: (0..agents).map(agent).collect(),
        overlay: Some(absent("overlay", overlay)),
        device: None,
        controller: Some(absent("controller", controller)),
    }
}

fn sample(second: u64) -> Sample {
    fn source<T>(name: &str, second: u64, value: T) -> Source<T> {
        Source { name: name.into(), at: (100 + second) * SECOND, answer: Ok(value) }
    }
    Sample {
        programs: vec![source("programs", second, programs(second))],
        overlay: Some(source("overlay", second, overlay(second))),
        device: Some(source("device", second, vec![device(second)])),
        controller: Some(source("controller", second, controller(second))),
    }
}

fn overlay(second: u64) -> Status {
    let port = |name: &str, frames: u64, dropped: u64, up: bool| {
        json!({
            "name": name, "vni": 100, "mac": "02:00:00:00:07:01", "thread": 0, "up": up,
            "sent": [frames, frames * 1000], "received": [2 * frames, frames * 1000], "carried": [frames, 0, 0],
            "declined": 0, "dropped": if dropped > 0 { json!({ "acl_denied": dropped, "too_long": 1 }) } else { json!({}) },
            "held": [3, 1],
        })
    };
    let path = |path: u64, up: bool, lost: u64| json!({ "path": path, "up": up, "rtt_us": if up { json!(41.25) } else { json!(null) }, "lost": lost, "in_flight": 1400 * path });
    let status = json!({
        "address": "10.0.0.1", "tenant_mtu": 1378, "networks": [],
        "ports": [
            port("web", 10_000 + 1_500 * second, 5 + 20 * second, true),
            // Its daemon has restarted: it counts from zero.
            port("db", if second == 0 { 90_000 } else { 40 }, 0, false),
        ],
        "pairs": [{
            "vni": 100, "port": "web", "remote": "02:00:00:00:07:02", "peer": "10.0.0.2", "up": true, "sealed": true,
            "waiting": 6, "packets": [20_000 + 12_345 * second, 100 + 7 * second],
            "paths": [path(1, true, 10), path(2, false, 40 + 25 * second), path(3, true, 0)],
        }, {
            "vni": 100, "port": "db", "remote": "02:00:00:00:07:03", "peer": "10.0.0.3", "up": false, "sealed": false,
            "waiting": 2, "packets": [0, 0], "paths": [],
        }],
        "threads": [], "transport": {}, "dropped": {},
        "encryption": { "mode": "preferred", "identity": "", "authenticates": false, "connections": [1, 0], "counters": {} },
    });
    serde_json::from_value(status).expect("a status")
}

fn controller(second: u64) -> View {
    let now = 1_790_000_000 * SECOND + second * SECOND;
    let link = |port: &str, to: &str, load: u64, marks: u64, alarm: Option<&str>, up: bool| {
        json!({
            "from": "leaf-0", "port": port, "to": to, "capacity": 10_000_000_000_u64, "load": load,
            "marks": marks, "marks_from": "queue", "up": up, "alarm": alarm,
        })
    };
    let view = json!({
        "at": now, "holder": "leaf-0/1/1", "steers": true, "other": null, "dry_run": false, "nodes": [],
        "links": [
            link("s0", "spine-0", 9_100_000_000, 512, Some("high"), true),
            link("s1", "spine-1", 2_000_000_000, 0, None, true),
            link("s2", "spine-2", 0, 0, None, false),
        ],
        "moves": [{
            "id": 1, "router": "leaf-0", "destination": "10.0.3.0/24", "from": "s0", "to": ["s1"], "flows": 3,
            "stage": "kept", "decided": now - 90 * SECOND, "reason": "s0 is 91 % full, and s1 20 %", "commands": [],
        }, {
            "id": 2, "router": "leaf-1", "destination": "10.0.0.0/24", "from": "s0", "to": ["s1", "s3"], "flows": 12,
            "stage": "verifying", "decided": now - 2 * SECOND, "reason": "s0 marks 512 packets", "commands": [],
        }],
        "barred": [{ "router": "leaf-0", "destination": "10.0.2.0/24", "to": ["s2"], "until": now + 30 * SECOND }],
        "jobs": [], "events": [], "happened": {}, "listening": "", "heard": weft_steer::CollectorCounters::default(),
        "refused": [], "probes": weft_steer::ProbesView::default(), "unread": {},
    });
    serde_json::from_value(view).expect("a controller's view")
}

fn device(second: u64) -> DeviceState {
    let counters = DeviceCounters {
        requests_posted: 1_000_000 * second,
        messages_received: 7_000 + 999 * second,
        requests_failed: 4,
        waits: 12 * second,
        ..DeviceCounters::default()
    };
    let objects = Amounts { queue_pairs: 64, ..Amounts::default() };
    DeviceState {
        name: "tenant-a".into(),
        owner: 1000,
        limits: DeviceLimits { objects, memory: None, messages_per_second: Some(1_000_000) },
        used: Amounts { processes: 2, queue_pairs: 16, ..Amounts::NONE },
        memory: 0,
        counters,
        processes: vec![41, 42],
        transport: Vec::new(),
        daemon: Vec::new(),
    }
}

fn programs(second: u64) -> Programs {
    let nodes = vec![
        node("kv_store", 4711, vec![channel(1, 2, second)]),
        node("kv_client", 4712, {
            let second_channel = (second == 1).then(|| channel(9, 2, 50));
            [channel(3, 2, second)].into_iter().chain(second_channel).collect()
        }),
    ];
    let view = Host {
        now: (100 + second) * SECOND,
        nodes,
        devices: vec![program_device(second)],
        unreadable: Vec::new(),
    };
    Programs { host: String::new(), view, ports: Vec::new() }
}

fn address(last: u8) -> Address {
    Address(IpAddr::from([10, 0, 0, last]))
}

fn program(name: &str, pid: u64) -> ProgramRecord {
    ProgramRecord { pid, name: Text::new(name), address: address(1), ..ProgramRecord::default() }
}

fn node(name: &str, pid: u64, channels: Vec<ChannelView>) -> NodeView {
    NodeView {
        name: format!("{pid}-0"),
        is_dead: false,
        life: ProgramState::Running,
        unattended: 0,
        program: program(name, pid),
        context: ContextRecord::default(),
        channels,
        events: Vec::new(),
        control: "/dev/null".into(),
    }
}

/// Returns a channel whose counters follow from the time: 100 calls a second, of 12 us each.
fn channel(id: u64, peer: u8, second: u64) -> ChannelView {
    let mut calls = Histogram::default();
    (0..100 * second).for_each(|_| calls.record(Duration::from_nanos(12_000)));
    let record = ChannelRecord {
        id,
        peer: address(peer),
        state: if id == 9 { ChannelState::Offered } else { ChannelState::Open },
        carrier: Carrier::Rdma,
        in_flight: 12,
        depth: 64,
        backlog: 5,
        sent: 1_000 + 250 * second,
        sent_bytes: 64_000 + 2_500_000 * second,
        received: 1_000 + 250 * second,
        calls: Latencies::from(&calls),
        ..ChannelRecord::default()
    };
    let network = NetworkView {
        carrier: Carrier::Network,
        encrypted: true,
        sent: 9_000 + 4_000 * second,
        retransmits: 30 + 3 * second,
        in_flight: 0,
        paths: 4,
        paths_up: 3,
        rtt_min: Some(18_200),
        rtt_max: Some(61_000),
        path_list: Vec::new(),
    };
    ChannelView { record, call_p50: None, call_p99: None, network: Some(network) }
}

fn program_device(second: u64) -> DeviceView {
    let path = |path, up, lost| PathRecord {
        connection: 7,
        path,
        rtt: Some(18_200 + path),
        in_flight: 8_192,
        lost,
        up,
    };
    DeviceView {
        name: "4711-1".into(),
        is_dead: false,
        program: program("kv_store", 4711),
        device: DeviceRecord::default(),
        connections: vec![ConnectionRecord {
            id: 7,
            peer: address(2),
            carrier: Carrier::Network,
            ..ConnectionRecord::default()
        }],
        paths: vec![path(0, 1, 0), path(1, 0, 3 + 9 * second)],
    }
}
