//! The time that a client's requests and their answers spend in each part of their way, from captures at both
//! tenants' ports and both hosts' sockets: all have one clock, as both hosts are this machine.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use weft_trace::pcapng::Direction;
use weft_vswitch::control::{Answer, Request, send_request};
use weft_wire::{Packet, VirtioNetHeader, VxlanHeader, VxlanNext};

use super::capture::{self, Captured};
use super::{Site, TENANT};

/// The parts of a frame's way through the overlay, and the time between a request and its answer.
const PARTS: [&str; 9] = [
    "request waits to be sent",
    "request is retransmitted",
    "request on its way, and read",
    "request to the server",
    "server",
    "answer waits to be sent",
    "answer is retransmitted",
    "answer on its way, and read",
    "answer to the client",
];

/// The key of a segment with data: the client's port, `true` if it goes to the client, its sequence number.
type Key = (u16, bool, u32);

/// The times at which a frame passed each point, nanoseconds; zero if it has not.
#[derive(Default)]
struct Journey {
    /// The time at which the sending host took it from its tenant.
    taken: u64,
    sent: Vec<u64>,
    /// The time at which the receiving host first read it from its socket.
    arrived: u64,
    /// The time at which the receiving tenant saw it.
    shown: u64,
    /// Number of times that its tenant sent it.
    by_tenant: u32,
}

impl Journey {
    /// Returns the four parts of its way; `None` if it has not arrived.
    fn parts(&self) -> Option<[u64; 4]> {
        let first = *self.sent.first()?;
        let last = self.sent.iter().copied().take_while(|&sent| sent <= self.arrived).last()?;
        let [taken, arrived, shown] = [self.taken, self.arrived, self.shown];
        (taken > 0 && shown >= arrived)
            .then(|| [first.saturating_sub(taken), last - first, arrived - last, shown - arrived])
    }
}

/// A request and its answer: each part of the time from tenant to tenant, nanoseconds.
struct RoundTrip {
    parts: [u64; PARTS.len()],
    /// Number of packets of both that were retransmitted.
    retransmits: usize,
    /// Number of segments that the tenants retransmitted themselves.
    by_tenant: u32,
}

impl RoundTrip {
    fn total(&self) -> u64 {
        self.parts.iter().sum()
    }
}

/// The captures of a run.
pub(crate) struct Trace {
    sockets: PathBuf,
    ports: [PathBuf; 2],
    service: u16,
}

impl Trace {
    /// Starts captures of the ports; the sockets are already captured to `sockets`. `service` is the
    /// server's TCP port.
    pub(crate) fn begin(site: &Site, sockets: PathBuf, service: u16) -> Self {
        let ports = [0, 1].map(|host| sockets.with_extension(format!("port{host}")));
        for (host, file) in ports.iter().enumerate() {
            set_capture(site, host, Some(file));
        }
        Self { sockets, ports, service }
    }

    /// Stops the captures, prints the time of each part, and removes the files.
    pub(crate) fn end(self, site: &Site) {
        (0..2).for_each(|host| set_capture(site, host, None));
        let mut journeys = BTreeMap::<Key, Journey>::new();
        for (host, file) in self.ports.iter().enumerate() {
            for seen in capture::read(file) {
                self.at_port(host, &seen, &mut journeys);
            }
        }
        let client = IpAddr::V4(site.trial.lab.fabric().address(0));
        for seen in capture::read(&self.sockets) {
            self.at_socket(client, &seen, &mut journeys);
        }
        print(&round_trips(journeys));
        self.ports.iter().chain([&self.sockets]).for_each(|file| {
            std::fs::remove_file(file).expect("a file of this process");
        });
    }

    /// Records a frame that passed the port of a host.
    fn at_port(&self, host: usize, seen: &Captured, journeys: &mut BTreeMap<Key, Journey>) {
        let Some(key) = self.key(&seen.bytes) else { return };
        let to_client = key.1;
        let journey = journeys.entry(key).or_default();
        match seen.direction {
            Direction::Out if to_client == (host == 1) => {
                journey.by_tenant += 1;
                first(&mut journey.taken, seen.at_ns);
            }
            Direction::In if to_client == (host == 0) => first(&mut journey.shown, seen.at_ns),
            _ => {}
        }
    }

    /// Records a packet that passed the sockets of a host.
    fn at_socket(&self, client: IpAddr, seen: &Captured, journeys: &mut BTreeMap<Key, Journey>) {
        let from = seen.bytes.get(12..16).and_then(|bytes| <[u8; 4]>::try_from(bytes).ok());
        let Some(key) = seen.bytes.get(28..).and_then(|udp| self.key_inside(udp)) else { return };
        let from_client = from.is_some_and(|from| IpAddr::from(from) == client);
        if key.1 == from_client {
            return;
        }
        let journey = journeys.entry(key).or_default();
        match seen.direction {
            Direction::Out => journey.sent.push(seen.at_ns),
            Direction::In => first(&mut journey.arrived, seen.at_ns),
        }
    }

    /// Returns the segment in a datagram of the overlay.
    fn key_inside(&self, datagram: &[u8]) -> Option<Key> {
        let (vxlan, inside) = VxlanHeader::parse(datagram).ok()?;
        let frame = match vxlan.next {
            VxlanNext::Frame => inside,
            VxlanNext::Weft => {
                let (Packet::Data(_, Some(message)), payload) = Packet::parse(inside).ok()? else {
                    return None;
                };
                (message.offset == 0).then(|| payload.get(VirtioNetHeader::LEN..)).flatten()?
            }
        };
        self.key(frame)
    }

    /// Returns the segment in an Ethernet frame, if it is TCP over IPv4 with data, between a client and the
    /// server.
    fn key(&self, frame: &[u8]) -> Option<Key> {
        let ip = frame.get(14..).filter(|ip| ip.len() >= 40 && ip[0] == 0x45 && ip[9] == 6)?;
        let short = |at: usize| u16::from_be_bytes([ip[at], ip[at + 1]]);
        let headers = 20 + u16::from(ip[32] >> 4) * 4;
        let seq = u32::from_be_bytes([ip[24], ip[25], ip[26], ip[27]]);
        let (from, to) = (short(20), short(22));
        let client = if to == self.service { from } else { to };
        let is_service = from == self.service || to == self.service;
        (is_service && short(2) > headers).then_some((client, from == self.service, seq))
    }
}

fn first(at: &mut u64, now: u64) {
    if *at == 0 {
        *at = now;
    }
}

fn set_capture(site: &Site, host: usize, file: Option<&Path>) {
    let request = Request::Capture { port: TENANT.into(), file: file.map(Into::into) };
    let answer = send_request(&site.trial.control(host), &request).expect("a daemon that runs");
    assert_eq!(answer, Answer::Done);
}

/// Pairs requests with their answers: a connection sends the next request only after the answer.
fn round_trips(journeys: BTreeMap<Key, Journey>) -> Vec<RoundTrip> {
    let mut connections = BTreeMap::<u16, [Vec<Journey>; 2]>::new();
    for ((port, to_client, _), journey) in journeys {
        connections.entry(port).or_default()[usize::from(to_client)].push(journey);
    }
    let mut all = vec![];
    for [mut requests, mut answers] in connections.into_values() {
        requests.sort_by_key(|journey| journey.taken);
        answers.sort_by_key(|journey| journey.taken);
        for (request, answer) in requests.iter().zip(&answers) {
            let (Some(there), Some(back)) = (request.parts(), answer.parts()) else { continue };
            let server = answer.taken.saturating_sub(request.shown);
            let mut parts = [0; PARTS.len()];
            parts[..4].copy_from_slice(&there);
            parts[4] = server;
            parts[5..].copy_from_slice(&back);
            let retransmits = request.sent.len() + answer.sent.len() - 2;
            let by_tenant = request.by_tenant + answer.by_tenant - 2;
            all.push(RoundTrip { parts, retransmits, by_tenant });
        }
    }
    all.sort_by_key(RoundTrip::total);
    all
}

/// Prints the means over all requests, and over the slowest.
fn print(all: &[RoundTrip]) {
    println!(
        "from the client's port and back to it, {} requests, means in us; requests with retransmitted packets",
        all.len()
    );
    let groups = [("all", 1), ("slowest 1 %", 100), ("slowest 0.1 %", 1000)]
        .map(|(name, part)| (name, &all[all.len() - all.len() / part..]));
    print!("{:30}", "");
    groups.iter().for_each(|(name, _)| print!(" {name:>14}"));
    println!();
    let row = |label: &str, value: &dyn Fn(&[RoundTrip]) -> f64| {
        print!("{label:30}");
        groups.iter().for_each(|(_, group)| print!(" {:14.1}", value(group)));
        println!();
    };
    let mean = |group: &[RoundTrip], of: &dyn Fn(&RoundTrip) -> u64| {
        group.iter().map(of).sum::<u64>() as f64 / group.len().max(1) as f64 / 1e3
    };
    row("requests", &|group| group.len() as f64);
    row("fastest of them", &|group| group.first().map_or(0.0, |one| one.total() as f64 / 1e3));
    row("mean", &|group| mean(group, &RoundTrip::total));
    for (index, part) in PARTS.iter().enumerate() {
        row(part, &|group| mean(group, &|one| one.parts[index]));
    }
    let share = |group: &[RoundTrip], is: &dyn Fn(&RoundTrip) -> bool| {
        group.iter().filter(|one| is(one)).count() as f64 * 100.0 / group.len().max(1) as f64
    };
    row("retransmitted once, %", &|group| share(group, &|one| one.retransmits == 1));
    row("retransmitted more often, %", &|group| share(group, &|one| one.retransmits > 1));
    row("retransmitted by a tenant, %", &|group| share(group, &|one| one.by_tenant > 0));
}
