//! Cost of the event queue, links and switches without any transport: every host sends 2 MB in 4 KB packets at line
//! rate to another, each packet with random entropy, and an ACK comes back for every fourth.
//!
//! `cargo bench -p weft-sim --bench fabric -- [hosts]`

use std::process::ExitCode;

use weft_sim::bench::{peak_resident_bytes, process_cpu_nanos};
use weft_sim::event::{Event, Events};
use weft_sim::fabric::{Fabric, FabricConfig};
use weft_sim::nic;
use weft_sim::packet::{Hop, Integrity, PacketSlot};
use weft_sim::{SimSpan, SimTime};
use weft_topo::NodeId;
use weft_topo::build::FatTree;
use weft_units::{BitRate, Rng, Seed};
use weft_wire::{DataHeader, MessageHeader, Packet};

/// Number of data packets of each host: 2 MB in 4 KB packets.
const PACKETS: u32 = 489;

fn main() -> ExitCode {
    let hosts = std::env::args().filter_map(|arg| arg.parse().ok()).next().unwrap_or(1024);
    let (tiers, rate) = if hosts > 2048 { (2, 400) } else { (3, 200) };
    let rate = BitRate::gbps(rate).expect("not zero");
    let topology = FatTree { hosts, tiers, rate, ..FatTree::default() }.build().expect("valid");
    let fabric = Fabric::new(topology, &FabricConfig::default(), Seed(1)).expect("small enough");
    let nodes = (hosts + fabric.topology.switches()) as usize;
    let events = Events::new(fabric.lookahead(), vec![0; nodes]);
    let mut world = World {
        fabric,
        events,
        rng: Seed(2).rng(),
        peers: (0..hosts).collect(),
        remaining: vec![PACKETS; hosts as usize],
        received: vec![0; hosts as usize],
    };
    let started = process_cpu_nanos();
    let events = world.run(hosts);
    let spent = process_cpu_nanos() - started;
    let hops = world.fabric.packet_hops();
    println!(
        "{hosts} hosts  {hops} packet-hops  {events} events  {:.1} ns/packet-hop  {} MB  {:?}",
        spent as f64 / hops as f64,
        peak_resident_bytes() >> 20,
        world.fabric.counters,
    );
    ExitCode::SUCCESS
}

struct World {
    fabric: Fabric,
    events: Events,
    rng: Rng,
    /// The destination of each host.
    peers: Vec<u32>,
    /// Number of data packets that each host has not yet sent.
    remaining: Vec<u32>,
    /// Number of data packets that each host received.
    received: Vec<u32>,
}

impl World {
    fn run(&mut self, hosts: u32) -> u64 {
        self.rng.shuffle(&mut self.peers);
        for host in 0..hosts {
            let phase = self.rng.below(164_000);
            self.events.schedule(SimTime::from_picos(phase), Event::Pull { host: NodeId(host) });
        }
        let mut handled = 0;
        while self.events.begin(SimTime::FAR_FUTURE) {
            while let Some(node) = self.events.next_node() {
                handled += if node.0 < hosts { self.serve_host() } else { self.serve_switch(node) };
            }
        }
        handled
    }

    fn serve_switch(&mut self, switch: NodeId) -> u64 {
        let arrivals = self.events.take_turn();
        self.fabric.forward_all(switch, &arrivals, &mut self.events);
        let handled = arrivals.len() as u64;
        self.events.end_turn(arrivals);
        handled
    }

    fn serve_host(&mut self) -> u64 {
        let mut handled = 0;
        while let Some((now, event)) = self.events.pop() {
            match event {
                Event::Arrive(hop) => self.arrive(now, hop),
                Event::Pull { host } => self.pull(now, host),
                _ => {}
            }
            handled += 1;
        }
        handled
    }

    fn arrive(&mut self, now: SimTime, hop: Hop) {
        let slot = self.fabric.packets.get(hop.packet());
        self.fabric.packets.remove(hop.packet());
        self.fabric.counters.delivered += 1;
        if slot.payload_len > 0 {
            let received = &mut self.received[hop.node().index()];
            *received += 1;
            if received.is_multiple_of(4) {
                self.send(now, hop.node(), slot.source, 0);
            }
        }
    }

    fn pull(&mut self, now: SimTime, host: NodeId) {
        for _ in 0..4.min(self.remaining[host.index()]) {
            self.remaining[host.index()] -= 1;
            self.send(now, host, NodeId(self.peers[host.index()]), 4096);
        }
        if self.remaining[host.index()] > 0 {
            let port = self.fabric.topology.ports(host)[0];
            let idle = self.fabric.link(port).busy_until;
            self.events.schedule(idle, Event::Pull { host });
        }
    }

    fn send(&mut self, now: SimTime, from: NodeId, to: NodeId, payload_len: u16) {
        let port = u16::try_from(0xc000 | self.rng.below(0x4000)).expect("below 65,536");
        let packet = Packet::data(DataHeader::default(), Some(MessageHeader::default()));
        let slot = PacketSlot {
            source: from,
            source_port: port,
            payload_len,
            integrity: Integrity::Sound,
            packet,
        };
        let packet = self.fabric.packets.insert(&slot);
        let hash = self.fabric.hash().base(&nic::five_tuple(from, to, port));
        let hop = Hop::new(packet, from, to, hash, payload_len + 78);
        let link = self.fabric.topology.ports(from)[0];
        self.fabric.inject(now, link, SimSpan::ZERO, hop, &mut self.events);
    }
}
