//! Analysers of a tenant's port: a collector of flow logs, read by tshark, which knows IPFIX, and copies of frames at a
//! kernel's VXLAN interface. Needs root and tshark; without them each test reports that it was skipped.
#![allow(clippy::disallowed_methods, reason = "tests of real programs give up after a real while")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Map, Value};
use weft_trace::Datagram;
use weft_trace::pcapng::{Direction, LinkType, Record, Writer};
use weft_trial::{Trial, TrialConfig};
use weft_vpc::{AclConfig, Action};
use weft_vswitch::config::Config;
use weft_vswitch::control::{Answer, Request, send_request};
use weft_vswitch::{FlowLogSettings, MirrorSettings, Status};
use weft_wire::Ecn;

/// The port of IPFIX (RFC 7011, section 10.3.4).
const IPFIX: u16 = 4739;
/// The decisions on a flow, the upper two bits of its forwarding status (RFC 7270, section 4.12).
const FORWARDED: u64 = 1;
const DROPPED: u64 = 2;

fn is_missing(test: &str) -> bool {
    weft_testkit::lab_is_missing(test, &[])
        || !weft_testkit::can_run(test, "tshark", &["--version"], "tshark")
}

#[test]
fn a_collector_is_told_whom_a_tenant_reached_and_what_was_denied() {
    if is_missing("flow logs") {
        return;
    }
    let mut trial = Trial::up(&TrialConfig::named("vs-flow")).unwrap();
    let at = SocketAddr::from((trial.lab.fabric().address(trial.lab.spec().hosts_per_leaf), IPFIX));
    let collector = trial.lab.enter("h1", || UdpSocket::bind(at).unwrap()).unwrap();
    collector.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let config = trial.config(0);
    let rules = vec!["deny egress udp to any port 9".parse().unwrap()];
    config.policies.acls.push(AclConfig { name: "out".into(), default: Action::Allow, rules });
    config.ports[0].policies.acl = Some("out".into());
    let interval = weft_units::Duration::from_secs(1);
    config.flow_log = Some(FlowLogSettings { collector: at, interval, max_flows: 100 });
    // The new daemon's socket is in the host's namespace.
    trial.stop(0);
    trial.start(0).unwrap();

    let mut ping = trial.command("red", 0, "ping");
    let to = Trial::address(1).to_string();
    assert!(ping.args(["-c", "3", "-i", "0.05", "-W", "20", &to]).status().unwrap().success());
    let denied = weft_lab::enter(&trial.namespace("red", 0), || {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
        socket.send_to(b"no", (Trial::address(1), 9)).unwrap()
    });
    assert_eq!(denied.unwrap(), 2);

    // Requests and replies, and the datagram; each may be of several intervals.
    let mut messages = vec![];
    while !has_all(&messages) {
        let mut message = vec![0; 2000];
        let length = collector.recv(&mut message).unwrap_or_else(|error| {
            panic!("{error}; {} messages, {:?}", messages.len(), status(&trial).flow_log)
        });
        message.truncate(length);
        messages.push(message);
    }
    let status = status(&trial).flow_log.unwrap();
    assert!(status.collector == at && status.sent >= 3, "{status:?}");
    assert_eq!((status.unsent, status.unrecorded, status.error), (0, 0, None));
}

/// A program that is killed when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the lines of a program's output as they come.
fn lines(output: impl Read + Send + 'static) -> Receiver<String> {
    let (send, lines) = channel();
    thread::spawn(move || {
        BufReader::new(output).lines().map_while(Result::ok).try_for_each(|line| send.send(line))
    });
    lines
}

#[test]
fn an_analyser_receives_what_a_tenant_sends_and_receives() {
    if is_missing("mirrors") {
        return;
    }
    let mut trial = Trial::up(&TrialConfig::named("vs-mirror")).unwrap();
    let other = trial.lab.spec().hosts_per_leaf;
    let to = IpAddr::from(trial.lab.fabric().address(other));
    // Both daemons have the port of VXLAN on their hosts.
    let (udp_port, vni, direction) = (4790, 900, None);
    trial
        .lab
        .enter(&format!("h{other}"), || {
            let add = "link add mir type vxlan id 900 dstport 4790 nolearning".split(' ');
            assert!(Command::new("ip").args(add).status().unwrap().success());
            assert!(
                Command::new("ip").args(["link", "set", "mir", "up"]).status().unwrap().success()
            );
        })
        .unwrap();
    let mut tshark = Command::new("tshark");
    tshark.args(["-i", "mir", "-l", "-f", "icmp", "-T", "fields"]);
    tshark.args(["-e", "ip.src", "-e", "icmp.type", "-e", "icmp.seq", "-e", "data.len"]);
    tshark.stdout(Stdio::piped()).stderr(Stdio::piped());
    let start = || Running(tshark.spawn().unwrap());
    let mut tshark = trial.lab.enter(&format!("h{other}"), start).unwrap();
    let [seen, progress]: [Receiver<String>; 2] =
        [lines(tshark.0.stdout.take().unwrap()), lines(tshark.0.stderr.take().unwrap())];
    let mut reports = progress.iter().inspect(|line| println!("{line}"));
    assert!(reports.any(|line| line.contains("Capturing on")), "tshark ended");

    let mut config = trial.config(0).clone();
    let mirror = MirrorSettings { to, udp_port, vni, direction };
    config.ports[0].mirror = Some(mirror.clone());
    let reload = |config: &Config| {
        let request = Request::Reload { config: Box::new(config.clone()), discard_changes: false };
        send_request(&trial.control(0), &request).unwrap()
    };
    assert!(matches!(reload(&config), Answer::Reloaded(done) if done.ports_changed == 1));
    let peer = Trial::address(1).to_string();
    let ping = |count: &str, bytes: u16| {
        let mut ping = trial.command("red", 0, "ping");
        let size = bytes.to_string();
        ping.args(["-c", count, "-i", "0.05", "-W", "20", "-s", &size, &peer]);
        assert!(ping.status().unwrap().success());
    };
    // It says so before it captures: the first copies may be missed.
    let give_up = Instant::now() + Duration::from_secs(30);
    while seen.recv_timeout(Duration::from_millis(500)).is_err() {
        assert!(Instant::now() < give_up, "no copy");
        ping("1", 100);
    }
    // The next copies of pings of a size, sorted: requests and replies take paths of their own. The time in the payload, 8
    // bytes, is not part of its length.
    let copies = |count: usize, bytes: u16| -> Vec<String> {
        let size = format!("\t{}", bytes - 8);
        let next = || seen.recv_timeout(Duration::from_secs(30)).ok();
        let own = std::iter::from_fn(next).filter(|line| line.ends_with(&size));
        let mut copies: Vec<String> = own.take(count).collect();
        copies.sort_unstable();
        copies
    };
    let own = Trial::address(0).to_string();
    let copy = |from: &str, kind: u8, number: u8, bytes: u16| {
        format!("{from}\t{kind}\t{number}\t{}", bytes - 8)
    };
    ping("2", 1300);
    let requests = [1, 2].map(|number| copy(&own, 8, number, 1300));
    let replies = [1, 2].map(|number| copy(&peer, 0, number, 1300));
    assert_eq!(copies(4, 1300), [requests, replies].concat());
    let counts = status(&trial).ports[0].mirrored.unwrap();
    assert!(counts.copied >= 4 && counts.dropped == 0, "{counts:?}");

    // One direction; then none.
    let direction = Some(weft_vpc::Direction::Ingress);
    config.ports[0].mirror = Some(MirrorSettings { direction, ..mirror });
    assert!(matches!(reload(&config), Answer::Reloaded(_)));
    ping("2", 1200);
    assert_eq!(copies(2, 1200), [1, 2].map(|number| copy(&peer, 0, number, 1200)));
    config.ports[0].mirror = None;
    assert!(matches!(reload(&config), Answer::Reloaded(_)));
    assert_eq!(status(&trial).ports[0].mirrored, None);
    // A host that must encrypt sends no copies.
    config.ports[0].mirror = Some(MirrorSettings { to, udp_port, vni, direction: None });
    config.host.encryption.mode = Some("required".into());
    let refused = config.check().unwrap_err().to_string();
    assert!(refused.contains("port.mirror") && refused.contains("unencrypted"), "{refused}");
}

/// A flow's protocol, whether the tenant sent it, and the decision on it.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    protocol: u64,
    sent: bool,
    status: u64,
}

/// Returns `true` if messages have all frames and bytes of the flows that the test expects.
fn has_all(messages: &[Vec<u8>]) -> bool {
    let mut sums: BTreeMap<Key, (u64, u64)> = BTreeMap::new();
    for record in records(messages) {
        let number_in = |value: Option<&Value>| -> u64 {
            let text = value.and_then(Value::as_str).unwrap_or_else(|| panic!("{record:#?}"));
            text.parse().unwrap()
        };
        let number = |field: &str| number_in(record.get(field));
        // Of the tenant's own traffic in IPv6 nothing is known.
        if !record.contains_key("cflow.srcaddr") {
            continue;
        }
        assert_eq!(number("cflow.layer2_segment_id") & 0xff_ffff, 100, "{record:#?}");
        let sent = record["cflow.srcaddr"] == Trial::address(0).to_string();
        assert_eq!(number("cflow.direction"), u64::from(!sent), "{record:#?}");
        let key = Key {
            protocol: number("cflow.protocol"),
            sent,
            status: number_in(record["Forwarding Status"].get("cflow.forwarding_status")),
        };
        let sum = sums.entry(key).or_default();
        *sum = (sum.0 + number("cflow.packets"), sum.1 + number("cflow.octets"));
    }
    let flow = |protocol, sent, status| Key { protocol, sent, status };
    // Echo requests and replies of 84 bytes, and a datagram of 30.
    let expected = BTreeMap::from([
        (flow(1, true, FORWARDED), (3, 252)),
        (flow(1, false, FORWARDED), (3, 252)),
        (flow(17, true, DROPPED), (1, 30)),
    ]);
    let beyond = sums.iter().find(|(key, sum)| expected.get(key).is_none_or(|it| it < sum));
    assert_eq!(beyond, None, "{sums:?}");
    sums == expected
}

/// Returns the records of messages as tshark reads them.
fn records(messages: &[Vec<u8>]) -> Vec<Map<String, Value>> {
    let file = std::env::temp_dir().join(format!("weft-flows-{}.pcapng", std::process::id()));
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, "a test").unwrap();
    let interface = writer.interface("h1", LinkType::Raw, 0).unwrap();
    for (message, time_ns) in messages.iter().zip(0..) {
        let mut headers = [0; Datagram::MAX_LEN];
        let datagram = Datagram {
            source: "10.0.0.1:50000".parse().unwrap(),
            destination: SocketAddr::from(([10, 0, 0, 2], IPFIX)),
            ecn: Ecn::NotCapable,
            hop_limit: 64,
            payload_len: message.len().try_into().unwrap(),
        };
        let len = datagram.emit(&mut headers);
        let length = len + message.len();
        let bytes: &[&[u8]] = &[&headers[..len], message];
        let direction = Direction::In;
        writer.packet(&Record { interface, time_ns, direction, bytes, length }).unwrap();
    }
    std::fs::write(&file, bytes).unwrap();
    let output = Command::new("tshark").arg("-r").arg(&file).args(["-T", "json"]).output().unwrap();
    let _ = std::fs::remove_file(&file);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let mut found = vec![];
    find(serde_json::from_slice(&output.stdout).unwrap(), &mut found);
    found
}

/// Finds the records in what tshark prints: the objects that have a record's fields.
fn find(value: Value, found: &mut Vec<Map<String, Value>>) {
    match value {
        Value::Object(record) if record.contains_key("cflow.packets") => found.push(record),
        Value::Object(object) => object.into_iter().for_each(|(_, value)| find(value, found)),
        Value::Array(values) => values.into_iter().for_each(|value| find(value, found)),
        _ => {}
    }
}

fn status(trial: &Trial) -> Status {
    match send_request(&trial.control(0), &Request::Status).unwrap() {
        Answer::Status(status) => *status,
        other => panic!("{other:?}"),
    }
}
