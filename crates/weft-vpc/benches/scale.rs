//! The memory cost of 100,000 pairs of vNICs: two switches, where every port of one sends to every port of
//! the other (BIFROST, section 6.3). `cargo bench -p weft-vpc --bench scale -- [ports of a host]`
//!
//! Prints the resident memory of an end: after set-up, idle; and after all ends have been active at once. Then it
//! prints the memory of a frame in flight, and the memory that a sender holds for one connection, by its rate (figure
//! 22).

use std::collections::VecDeque;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};

use weft_testkit::{figure_row, json};
use weft_transport::{Arrival, Secret, TransportConfig};
use weft_units::{Duration, Instant, Seed};
use weft_vpc::{
    Inbound, Place, PortConfig, PortId, Reading, Slot, Staging, Switch, SwitchConfig, TenantFrame,
    Tenants, Token, Turn, Vni,
};
use weft_wire::{MacAddr, Packet, VirtioNetHeader};

const VNI: Vni = Vni::new(7).unwrap();

/// Length of a frame with its virtio-net header, bytes.
const LEN: usize = VirtioNetHeader::LEN + 1400;

fn host(end: usize) -> SocketAddr {
    let last = u8::try_from(end + 1).expect("two hosts");
    (Ipv4Addr::new(10, 0, 0, last), 4789).into()
}

fn mac(end: usize, port: u32) -> MacAddr {
    let [_, _, high, low] = port.to_be_bytes();
    MacAddr([2, 0, 0, u8::try_from(end).expect("two hosts"), high, low])
}

/// Returns the beginning of every frame from a port of host 0 to one of host 1.
fn head(from: u32, to: u32) -> [u8; VirtioNetHeader::LEN + 256] {
    let mut head = [0; VirtioNetHeader::LEN + 256];
    let ethernet = &mut head[VirtioNetHeader::LEN..];
    ethernet[..6].copy_from_slice(&mac(1, to).0);
    ethernet[6..12].copy_from_slice(&mac(0, from).0);
    ethernet[12..14].copy_from_slice(&[0x88, 0xb5]);
    head
}

/// Tenants that keep only the ports of a sent frame, and the last piece of an arriving one.
#[derive(Default)]
struct MinimalTenants {
    sent: Vec<(u32, u32)>,
    arriving: Vec<u8>,
    seen: usize,
}

impl Tenants for MinimalTenants {
    fn read(&mut self, _: PortId, token: Token, offset: u32, out: &mut [u8], _: Reading) {
        assert_eq!(offset, 0, "a frame fits one packet");
        let (from, to) = self.sent[token.0 as usize];
        let head = head(from, to);
        out.fill(0);
        out[..head.len()].copy_from_slice(&head);
    }
    fn release(&mut self, _: PortId, _: Token) {}
    fn claim(&mut self, _: PortId, _: u32, _: Turn, _: Staging, _: &[u8]) -> Option<Slot> {
        Some(Slot(0))
    }
    fn place(&mut self, _: PortId, _: Slot, _: u32, bytes: &[u8]) {
        self.arriving.clear();
        self.arriving.extend_from_slice(bytes);
    }
    fn peek(&mut self, _: PortId, _: Slot, out: &mut [u8]) -> usize {
        let len = out.len().min(self.arriving.len());
        out[..len].copy_from_slice(&self.arriving[..len]);
        len
    }
    fn complete(&mut self, _: PortId, _: Slot) {
        self.seen += 1;
    }
    fn cancel(&mut self, _: PortId, _: Slot) {}
}

/// Two hosts and the packets between them.
struct Hosts {
    now: Instant,
    switches: [Switch; 2],
    tenants: [MinimalTenants; 2],
}

impl Hosts {
    fn new(ports: u32) -> Self {
        let switch = |end: usize| {
            let config = SwitchConfig::new(TransportConfig::bifrost());
            let seed = Seed(end as u64 + 1);
            let mut switch = Switch::new(config, seed, Secret::new([7; 16])).expect("the default");
            switch.set_peers(VNI, vec![host(1 - end)]);
            for port in 0..ports {
                let addresses = vec![mac(end, port)];
                switch.set_port(PortId(port), PortConfig { vni: VNI, addresses });
                let table = switch.table(VNI);
                table.set_mac(mac(end, port), Some(Place::Port(PortId(port))));
                table.set_mac(mac(1 - end, port), Some(Place::Peer(host(1 - end))));
            }
            switch
        };
        let switches = [switch(0), switch(1)];
        let tenants = [MinimalTenants::default(), MinimalTenants::default()];
        Self { now: Instant::EPOCH + Duration::from_secs(1), switches, tenants }
    }

    /// Sends a frame from a port of host 0 to one of host 1.
    fn send(&mut self, from: u32, to: u32) {
        let (switch, tenants) = (&mut self.switches[0], &mut self.tenants[0]);
        let token = Token(u32::try_from(tenants.sent.len()).expect("a short run"));
        tenants.sent.push((from, to));
        let len = u32::try_from(LEN).expect("short");
        let sent = TenantFrame { port: PortId(from), token, len };
        switch.handle_frame(self.now, sent, &head(from, to), tenants);
    }

    /// Carries every packet that may leave an end to the other. Returns the number of packets.
    fn carry(&mut self, end: usize) -> usize {
        let mut wire: VecDeque<(u16, Vni, Packet, Vec<u8>)> = VecDeque::new();
        let (switch, tenants) = (&mut self.switches[end], &mut self.tenants[end]);
        switch.handle_timeout(self.now, tenants);
        let mut packet = Packet::default();
        switch.poll_burst(self.now, 256, &mut packet, |leaving| {
            let mut payload = vec![0; usize::from(leaving.payload_len())];
            leaving.read(tenants, &mut payload);
            let path = 49_152 + leaving.departure.path.0;
            wire.push_back((path, leaving.vni, *leaving.packet, payload));
        });
        let count = wire.len();
        let (switch, tenants) = (&mut self.switches[1 - end], &mut self.tenants[1 - end]);
        for (path, vni, packet, payload) in wire {
            let arrival = Arrival {
                from: SocketAddr::new(host(end).ip(), path),
                received_at: self.now,
                congestion_experienced: false,
                hops: 3,
            };
            let inbound = Inbound { arrival: &arrival, vni, packet: &packet, payload: &payload };
            switch.handle_packet(self.now, &inbound, tenants);
        }
        switch.handle_timeout(self.now, tenants);
        count
    }

    /// Runs until no packet and no timer is left, at most for `limit`.
    fn run_until_idle(&mut self, limit: Duration) {
        let until = self.now + limit;
        while self.now < until {
            if self.carry(0) + self.carry(1) == 0 {
                let next = self.switches.iter().filter_map(Switch::poll_timeout).min();
                self.now = next.unwrap_or(until).max(self.now + Duration::from_micros(10));
            }
        }
    }
}

/// Returns the resident memory of this process, bytes.
fn resident() -> usize {
    let text = fs::read_to_string("/proc/self/status").expect("Linux");
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("always there");
    let kib: usize = line.trim().trim_end_matches(" kB").parse().expect("a number");
    kib * 1024
}

/// Number of frames of one connection in flight at once: the send window.
const WINDOW: u32 = 512;

/// Sets up a connection for each pair of `ports` ports and waits until all are idle.
fn idle(hosts: &mut Hosts, ports: u32) {
    for from in 0..ports {
        (0..ports).for_each(|to| hosts.send(from, to));
        hosts.run_until_idle(Duration::from_millis(2));
    }
    hosts.run_until_idle(Duration::from_millis(100));
    assert_eq!(hosts.tenants[1].seen, (ports * ports) as usize, "every pair carried its frame");
}

fn print(label: &str, bytes: usize, ends: usize) {
    println!("{label:52} {:9.1} {:9}", bytes as f64 / f64::from(1 << 20), bytes / ends);
}

fn many(ports: u32) {
    let pairs = (ports * ports) as usize;
    println!("{pairs} pairs of vNICs, {ports} ports a host, both hosts in this process");
    println!("{:52} {:>9} {:>9}", "", "MiB", "bytes each");
    let mut hosts = Hosts::new(ports);
    let before = resident();
    idle(&mut hosts, ports);
    print("an end, set up, idle", resident() - before, 2 * pairs);
    for from in 0..ports {
        for to in 0..ports {
            (0..8).for_each(|_| hosts.send(from, to));
        }
    }
    hosts.run_until_idle(Duration::from_secs(4));
    assert_eq!(hosts.tenants[1].seen, 9 * pairs, "every pair carried its frames");
    print("an end, all of them active at once", resident() - before, 2 * pairs);
}

/// Measures the memory that connections would take if they reserved their windows, and that of a frame in
/// flight.
fn windows() {
    let ports = 24;
    let pairs = (ports * ports) as usize;
    let mut hosts = Hosts::new(ports);
    idle(&mut hosts, ports);
    let before = resident();
    for from in 0..ports {
        for to in 0..ports {
            (0..WINDOW).for_each(|_| hosts.send(from, to));
        }
    }
    // The frames leave and arrive; no acknowledgement arrives yet.
    while hosts.carry(0) > 0 {}
    let frames = pairs * WINDOW as usize;
    let bytes = (resident() - before) / frames;
    println!("\n{frames} frames in flight at once, of {pairs} pairs");
    print("a sender with a full window", bytes * WINDOW as usize * pairs, pairs);
    print("a frame in flight, its bytes in the tenant's memory", bytes * frames, frames);
    for gigabits in [1.0, 5.0, 10.0] {
        let in_flight = gigabits * 1e9 / 8.0 / 1400.0 * 300e-6;
        let held = in_flight * bytes as f64 / 1e3;
        println!("{gigabits:4} Gb/s, 300 us: {in_flight:5.0} frames in flight, {held:6.1} KB");
        let rate = format!("{gigabits} Gb/s");
        figure_row("bifrost-fig22", &json!({ "part": "switch", "rate": rate, "held": held }));
    }
}

fn main() {
    if std::env::args().any(|word| word == "windows") {
        return windows();
    }
    many(std::env::args().skip(1).find_map(|word| word.parse().ok()).unwrap_or(317));
    // The measurement needs a process of its own: memory freed here would be reused and not show.
    let own = std::env::current_exe().expect("Linux");
    let status =
        std::process::Command::new(own).arg("windows").status().expect("it was started once");
    assert!(status.success(), "{status}");
}
