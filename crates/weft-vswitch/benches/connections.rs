//! Thousands of pairs of interfaces through two daemons, over their real sockets and TAP interfaces: every
//! port of one host speaks with every port of the other (BIFROST, section 6.3). What they take in memory, set
//! up and idle, while all have frames under way, and after a rest; how long set-up, a round of frames and a status
//! take; and how much of it the threads carried. Needs root.
//!
//! `cargo bench -p weft-vswitch --bench connections -- [ports a host] [threads]`
#![allow(clippy::disallowed_methods, reason = "a benchmark runs in real time")]

#[path = "common/packet.rs"]
mod packet;

use std::fs;
use std::net::IpAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use packet::PacketSocket;
use weft_vpc::PortPolicies;
use weft_vswitch::Status;
use weft_vswitch::config::{Mac, Port, Route, Tap};
use weft_vswitch::control::{Answer, Request, ask};
use weft_vswitch::trial::{Trial, TrialConfig};
use weft_wire::MacAddr;

const VNI: u32 = 100;

/// Pairs that are set up at a time. All of a port's at once, on a machine that others keep busy, take longer
/// than their peers wait for an answer.
const AT_ONCE: usize = 64;

/// Frames of each pair in a run.
const ROUNDS: usize = 8;

fn mac(host: usize, port: usize) -> MacAddr {
    let [low, high, ..] = port.to_le_bytes();
    MacAddr([2, 0, 1, u8::try_from(host).expect("two hosts"), high, low])
}

/// The namespace in which all of a host's tenants are.
fn namespace(trial: &Trial, host: usize) -> String {
    trial.namespace("red", host)
}

/// Two hosts with as many ports each; every address of the other is known.
fn trial(ports: usize, threads: u8) -> Trial {
    let mut config = TrialConfig::named("conns");
    config.tenants = vec!["red".into()];
    config.host.threads = threads;
    let mut trial = Trial::up(&config).unwrap_or_else(|error| panic!("{error}"));
    for host in 0..2 {
        trial.stop(host);
        // Kernels of tenants have nothing to say of their own.
        let namespace = namespace(&trial, host);
        for key in ["all", "default"] {
            let setting = format!("net.ipv6.conf.{key}.disable_ipv6=1");
            run(&["netns", "exec", &namespace, "sysctl", "-qw", &setting]);
        }
    }
    for host in 0..2 {
        let (own, peer) = (namespace(&trial, host), address(&mut trial, 1 - host));
        let config = trial.config(host);
        config.ports = (0..ports).map(|port| tap(&own, host, port)).collect();
        let route = |port| Route { vni: VNI, mac: Mac(mac(1 - host, port)), peer };
        config.routes = (0..ports).map(route).collect();
        trial.start(host).unwrap_or_else(|error| panic!("{error}"));
    }
    trial
}

fn address(trial: &mut Trial, host: usize) -> IpAddr {
    trial.config(host).host.address
}

fn tap(namespace: &str, host: usize, port: usize) -> Port {
    Port {
        name: format!("p{port}"),
        vni: VNI,
        mac: Mac(mac(host, port)),
        addresses: vec![],
        policies: PortPolicies::default(),
        tap: Some(Tap {
            interface: format!("t{port}"),
            namespace: Some(namespace.to_owned()),
            persistent: false,
        }),
        vhost_user: None,
    }
}

fn run(arguments: &[&str]) {
    let output = Command::new("ip").args(arguments).output().expect("iproute2 is there");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// The tenants of host 0, as far as they send.
struct Tenants {
    socket: PacketSocket,
    interfaces: Vec<i32>,
}

impl Tenants {
    fn new(trial: &Trial, ports: usize) -> Self {
        let open = || {
            let interfaces = (0..ports).map(|port| packet::interface(&format!("t{port}")));
            let interfaces = interfaces.collect::<Result<_, _>>()?;
            Ok::<_, std::io::Error>(Self { socket: PacketSocket::open()?, interfaces })
        };
        let tenants = weft_lab::enter(&namespace(trial, 0), open);
        tenants.expect("a namespace of the trial").expect("its interfaces are up")
    }

    /// A frame of `len` bytes from a port of host 0 to one of host 1, as soon as there is room.
    fn send(&self, from: usize, to: usize, len: usize) {
        let mut frame = vec![0; len];
        frame[..6].copy_from_slice(&mac(1, to).0);
        frame[6..12].copy_from_slice(&mac(0, from).0);
        frame[12..14].copy_from_slice(&[0x88, 0xb5]);
        while !self.socket.send(self.interfaces[from], &frame).expect("the interface is up") {
            std::thread::yield_now();
        }
    }
}

fn status(trial: &Trial, host: usize) -> Status {
    match ask(&trial.control(host), &Request::Status).expect("the daemon is there") {
        Answer::Status(status) => *status,
        other => panic!("{other:?}"),
    }
}

/// Waits until the tenants of host 1 have received so many frames, or nothing more for five seconds; how many are
/// missing. On a machine that is too busy peers give each other up, and lose what was under way.
fn missing(trial: &Trial, frames: u64) -> u64 {
    let (mut before, mut since) = (0, Instant::now());
    loop {
        let status = status(trial, 1);
        let seen: u64 = status.ports.iter().map(|port| port.received.0).sum();
        if seen >= frames || since.elapsed() > Duration::from_secs(5) {
            return frames.saturating_sub(seen);
        }
        if seen > before {
            (before, since) = (seen, Instant::now());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Bytes of this process in memory.
fn resident() -> usize {
    let text = fs::read_to_string("/proc/self/status").expect("Linux");
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("always there");
    let kib: usize = line.trim().trim_end_matches(" kB").parse().expect("a number");
    kib * 1024
}

fn print(what: &str, bytes: usize, ends: usize) {
    println!("{what:36} {:9.1} {:9}", bytes as f64 / f64::from(1 << 20), bytes / ends);
}

fn main() {
    let mut numbers = std::env::args().skip(1).filter_map(|word| word.parse::<usize>().ok());
    let (ports, threads) = (numbers.next().unwrap_or(60), numbers.next().unwrap_or(1));
    let trial = trial(ports, u8::try_from(threads).expect("at most 64 threads"));
    let (pairs, tenants) = (ports * ports, Tenants::new(&trial, ports));
    println!(
        "{pairs} pairs, {ports} ports a host, {threads} threads a host, both hosts in this process"
    );
    println!("{:36} {:>9} {:>9}", "", "MiB", "bytes an end");
    let before = resident();
    print("daemons with ports, nobody speaks", before, 2 * pairs);
    let (began, mut lost) = (Instant::now(), 0);
    for first in (0..pairs).step_by(AT_ONCE) {
        let last = (first + AT_ONCE).min(pairs);
        (first..last).for_each(|pair| tenants.send(pair / ports, pair % ports, 100));
        lost += missing(&trial, last as u64 - lost);
    }
    let set_up = began.elapsed();
    std::thread::sleep(Duration::from_secs(2));
    print("more, set up and idle", resident() - before, 2 * pairs);
    let (began, mut most) = (Instant::now(), 0);
    for _ in 0..ROUNDS {
        for from in 0..ports {
            (0..ports).for_each(|to| tenants.send(from, to, 1400));
        }
        most = most.max(resident());
    }
    lost += missing(&trial, (pairs * (1 + ROUNDS)) as u64 - lost);
    let carried = began.elapsed();
    print("more, all of them active", most.max(resident()) - before, 2 * pairs);
    std::thread::sleep(Duration::from_secs(5));
    print("more, after a rest", resident() - before, 2 * pairs);
    let began = Instant::now();
    let status = status(&trial, 0);
    println!("\nset up: {:.1} us a pair", set_up.as_secs_f64() * 1e6 / pairs as f64);
    let frames = (pairs * ROUNDS) as f64;
    println!(
        "{ROUNDS} frames of each, 1,400 bytes: {:.0} a second",
        frames / carried.as_secs_f64()
    );
    println!("frames that did not arrive: {lost}");
    println!("status: {:.1} ms", began.elapsed().as_secs_f64() * 1e3);
    for (number, thread) in status.threads.iter().enumerate() {
        println!("thread {number}: {thread:?}");
    }
}
