//! A congestion mark on the way slows the tenant's own TCP (RFC 6040, section 4.2; RFC 3168), with kernels as
//! tenants over paths that mark. Needs root; without it the test reports that it was skipped.
#![allow(clippy::disallowed_methods, reason = "tests of real programs give up after a real while")]

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use weft_lab::{Direction, Impairment};
use weft_trial::{Trial, TrialConfig};
use weft_units::{BitRate, ByteCount};

const LIMIT: Duration = Duration::from_secs(60);
const PORT: u16 = 5001;

/// The rate, queue and marking threshold of four paths: 50 Mb/s, 20 ms of queue, marks above 2 ms.
const MARKING: (u64, u64, u64) = (50_000_000, 125_000, 12_500);

/// Sets TCP's ECN, and Reno, which slows down on losses and marks only, at both ends of red.
fn set_tcp(trial: &Trial, ecn: &str) {
    for host in 0..2 {
        let set = || {
            std::fs::write("/proc/sys/net/ipv4/tcp_ecn", ecn).unwrap();
            std::fs::write("/proc/sys/net/ipv4/tcp_congestion_control", "reno").unwrap();
        };
        weft_lab::enter(&trial.namespace("red", host), set).unwrap();
    }
}

/// Returns the kernel's counters of red at one host, by name.
fn counters(trial: &Trial, host: usize) -> BTreeMap<String, u64> {
    let read = || std::fs::read_to_string("/proc/thread-self/net/netstat").unwrap();
    let text = weft_lab::enter(&trial.namespace("red", host), read).unwrap();
    let lines: Vec<_> = text.lines().collect();
    let of_two = |two: &[&str]| {
        let values = two[1].split_whitespace().skip(1).map(|value| value.parse().unwrap_or(0));
        two[0].split_whitespace().skip(1).map(str::to_owned).zip(values).collect::<Vec<_>>()
    };
    lines.chunks_exact(2).flat_map(of_two).collect()
}

/// Returns the sender's connection as `ss` reports it, by key; `ssthresh` is absent before TCP has slowed down.
fn connection(trial: &Trial) -> BTreeMap<String, u64> {
    let mut ss = trial.command("red", 0, "ss");
    let output = ss.args(["-tinH", "dst", "192.168.7.2"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let pairs = text.split_whitespace().filter_map(|word| word.split_once(':'));
    pairs.filter_map(|(key, value)| Some((key.to_owned(), value.parse().ok()?))).collect()
}

/// The counters of both ends of a stream that ran until `enough` was true.
struct Stream {
    sender: BTreeMap<String, u64>,
    receiver: BTreeMap<String, u64>,
    connection: BTreeMap<String, u64>,
}

/// Sends from red on host 0 to host 1 as fast as TCP allows. Returns the kernels' counters once `enough` is true,
/// or after [`LIMIT`]; `None` without a lab.
fn stream(name: &str, ecn: &str, enough: impl Fn(&Stream) -> bool) -> Option<Stream> {
    if weft_testkit::lab_is_missing(&format!("congestion_marks, {name}"), &["ss"]) {
        return None;
    }
    let mut trial = Trial::up(&TrialConfig::named(name)).unwrap();
    let (rate, queue, mark_above) = MARKING;
    let marking = Impairment {
        rate: BitRate::bps(rate),
        queue: Some(ByteCount(queue)),
        mark_above: Some(ByteCount(mark_above)),
        ..Impairment::default()
    };
    for spine in 0..4 {
        trial.lab.impair(&format!("l1-s{spine}"), Direction::Both, &marking).unwrap();
    }
    set_tcp(&trial, ecn);
    let bind = || TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT)).unwrap();
    let listener = weft_lab::enter(&trial.namespace("red", 1), bind).unwrap();
    let to = SocketAddr::from((Trial::address(1), PORT));
    let connect = || TcpStream::connect_timeout(&to, LIMIT).unwrap();
    let mut out = weft_lab::enter(&trial.namespace("red", 0), connect).unwrap();
    let stop = out.try_clone().unwrap();
    let sender = thread::spawn(move || while out.write_all(&[7; 65_536]).is_ok() {});
    let receiver = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut bytes = vec![0; 1 << 20];
        while stream.read(&mut bytes).is_ok_and(|read| read > 0) {}
    });
    let deadline = Instant::now() + LIMIT;
    let seen = loop {
        thread::sleep(Duration::from_millis(100));
        let seen = Stream {
            sender: counters(&trial, 0),
            receiver: counters(&trial, 1),
            connection: connection(&trial),
        };
        if enough(&seen) || Instant::now() > deadline {
            break seen;
        }
    };
    stop.shutdown(std::net::Shutdown::Both).unwrap();
    sender.join().unwrap();
    receiver.join().unwrap();
    Some(seen)
}

impl Stream {
    /// Returns the number of packets that arrived marked at the receiving tenant, and of those that its ACKs
    /// reported.
    fn marks(&self) -> (u64, u64) {
        (self.receiver["InCEPkts"], self.sender["TCPDeliveredCE"])
    }
}

#[test]
fn a_mark_on_the_way_slows_a_tenants_tcp_with_ecn() {
    let marks_echoed =
        |seen: &Stream| seen.marks().1 >= 5 && seen.connection.contains_key("ssthresh");
    let Some(seen) = stream("marks-on", "1", marks_echoed) else { return };
    let (marked, echoed) = seen.marks();
    println!("with ECN: {marked} marked, {echoed} echoed, {:?}", seen.connection);
    assert!(marked > 0 && echoed >= 5, "{marked} packets marked, {echoed} echoed");
    // Nothing else slows Reno down: the overlay has lost no packet of the tenant.
    assert_eq!(seen.sender["TCPLostRetransmit"] + seen.sender["TCPTimeouts"], 0);
    let window = seen.connection["cwnd"];

    // A tenant without ECN is not marked and sees no congestion at all: its window only grows.
    let bytes = |seen: &Stream| seen.receiver["InOctets"] > 30_000_000;
    let seen = stream("marks-off", "0", bytes).expect("the lab was there");
    println!("without ECN: {:?}", seen.connection);
    assert_eq!(seen.marks(), (0, 0));
    assert!(!seen.connection.contains_key("ssthresh"), "{:?}", seen.connection);
    assert!(seen.connection["cwnd"] > 2 * window, "{:?} beside {window}", seen.connection);
}
