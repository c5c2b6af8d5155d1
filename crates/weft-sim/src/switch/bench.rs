//! Switches of one model on a leaf–spine fabric, for the unit tests of the models: a test sets the queues, and nothing
//! moves by itself.

use std::collections::BTreeSet;

use weft_topo::build::LeafSpine;
use weft_topo::{Failures, LinkId, NodeId, Routes, Topology};
use weft_units::{BitRate, Duration, Seed};

use super::{Command, Decision, Fate, Forward, Forwarding, ForwardingConfig, Kind, Labels};
use crate::link::{Link, LinkClass};
use crate::nic;
use crate::packet::{Hop, PacketPool, PacketRef, PacketSlot};
use crate::port::{Port, Waiting};
use crate::time::{SimSpan, SimTime};

/// The switches of one model, and the state that they decide by.
pub(super) struct Bench {
    pub(super) topology: Topology,
    pub(super) labels: Labels,
    pub(super) commands: Vec<Command>,
    routes: Routes,
    failures: Failures,
    links: Vec<Link>,
    classes: Vec<LinkClass>,
    ports: Vec<Port>,
    packets: PacketPool,
    model: Forwarding,
    config: ForwardingConfig,
}

pub(super) fn micros(micros: u64) -> SimTime {
    SimTime::from_picos(micros * 1_000_000)
}

impl Bench {
    /// Returns a bench with eight leaves of sixteen hosts and eight spines, all at 100 Gb/s.
    pub(super) fn new(kind: Kind) -> Self {
        Self::configured(kind, |_| {})
    }

    pub(super) fn configured(kind: Kind, change: impl FnOnce(&mut ForwardingConfig)) -> Self {
        Self::on(LeafSpine::default().build().unwrap(), kind, change)
    }

    pub(super) fn on(
        topology: Topology,
        kind: Kind,
        change: impl FnOnce(&mut ForwardingConfig),
    ) -> Self {
        let mut config = ForwardingConfig { kind, ..ForwardingConfig::default() };
        change(&mut config);
        let failures = Failures::none();
        let rate = BitRate::gbps(100).unwrap();
        Self {
            routes: Routes::compute(&topology, &failures).unwrap(),
            failures,
            links: topology.link_ids().map(|id| Link::new(topology.link(id).to.0, 0)).collect(),
            classes: vec![LinkClass::new(rate, Duration::from_micros(1), None)],
            ports: Vec::new(),
            packets: PacketPool::default(),
            labels: Labels::default(),
            commands: Vec::new(),
            model: kind.build(&config, &topology, Seed(1)),
            config,
            topology,
        }
    }

    /// Adds bytes to a link's backlog at time zero, or removes them if `bytes` is negative.
    pub(super) fn queue(&mut self, link: LinkId, bytes: i64) {
        let span = self.classes[0].pace.span(bytes.unsigned_abs());
        let busy_until = &mut self.links[link.index()].busy_until;
        *busy_until = if bytes < 0 {
            SimTime::EPOCH + SimSpan::from_picos(busy_until.as_picos() - span.as_picos())
        } else {
            *busy_until + span
        };
    }

    /// Fills the queue of a port with packets of these sizes; from the first call on, every port holds queues.
    pub(super) fn hold(&mut self, link: LinkId, sizes: &[u16]) {
        let topology = &self.topology;
        if self.ports.is_empty() {
            let new = |id| Port::new(topology.link(id).from, false);
            self.ports = topology.link_ids().map(new).collect();
        }
        for &size in sizes {
            let hop = Hop::new(PacketRef::default(), NodeId(0), NodeId(1), 0, size);
            self.ports[link.index()].push(Waiting { hop, jitter: SimSpan::ZERO });
        }
    }

    /// Takes a cable down and recomputes the routes.
    pub(super) fn fail(&mut self, link: LinkId) {
        self.failures.fail_link(link);
        self.routes = Routes::compute(&self.topology, &self.failures).unwrap();
        self.model.rerouted();
    }

    pub(super) fn leaf_of(&self, host: u32) -> NodeId {
        self.topology.link(self.topology.ports(NodeId(host))[0]).to
    }

    /// Returns the uplinks from the leaf of `from` towards `to`.
    pub(super) fn candidates(&self, from: u32, to: u32) -> Vec<LinkId> {
        self.routes.next_links(self.leaf_of(from), NodeId(to)).to_vec()
    }

    /// Returns a host's data packet just before it reaches its leaf.
    pub(super) fn packet(&mut self, from: u32, to: u32, port: u16) -> Hop {
        let (from, to) = (NodeId(from), NodeId(to));
        let slot = PacketSlot { source: from, source_port: port, ..PacketSlot::default() };
        let hash = super::fabric_hash(&self.config).base(&nic::five_tuple(from, to, port));
        let leaf = self.leaf_of(from.0);
        Hop::new(self.packets.insert(&slot), leaf, to, hash, 1048)
    }

    pub(super) fn service(&mut self, now: SimTime, hop: Hop) -> Fate {
        let decision = Decision {
            now,
            switch: (hop.node().0 - self.topology.hosts()) as usize,
            hop,
            candidates: self.routes.next_links(hop.node(), hop.destination()),
            links: &self.links,
            classes: &self.classes,
            ports: &self.ports,
            packets: &self.packets,
            topology: &self.topology,
            routes: &self.routes,
        };
        let fate = self.model.service(&decision, &mut self.labels, &mut self.commands);
        if let Fate::Forward(link) = fate {
            assert!(decision.candidates.contains(&link), "{link:?} is no candidate");
        }
        fate
    }

    pub(super) fn timer(&mut self, now: SimTime, switch: NodeId, token: u64) {
        let index = (switch.0 - self.topology.hosts()) as usize;
        self.model.timer(now, index, token, &mut self.commands);
    }

    /// Returns the control packet of an emit command, at the leaf that it is addressed to.
    pub(super) fn emitted(&mut self, command: Command) -> Hop {
        let Command::Emit { source, destination, port, label } = command else {
            panic!("{command:?} emits nothing")
        };
        let slot = PacketSlot { source, source_port: port, ..PacketSlot::default() };
        let packet = self.packets.insert(&slot);
        self.labels.set(packet, label);
        let leaf = self.leaf_of(destination.0);
        Hop::new(packet, leaf, destination, 0, 64).as_control().past_switch()
    }

    /// Returns the link on which the first leaf sends a host's data packet.
    pub(super) fn send(&mut self, now: SimTime, from: u32, to: u32, port: u16) -> LinkId {
        let hop = self.packet(from, to, port);
        self.step(now, hop).link()
    }

    /// Returns the link of [`Self::send`] as an index among the leaf's uplinks.
    pub(super) fn uplink(&mut self, now: SimTime, from: u32, to: u32, port: u16) -> usize {
        let link = self.send(now, from, to, port);
        self.candidates(from, to).iter().position(|&uplink| uplink == link).unwrap()
    }

    /// Forwards a packet over one switch to the next node.
    pub(super) fn step(&mut self, now: SimTime, hop: Hop) -> Hop {
        let Fate::Forward(link) = self.service(now, hop) else { panic!("the model kept {hop:?}") };
        hop.on(link, NodeId(self.links[link.index()].to), 0).past_switch()
    }

    /// Forwards a packet to its destination at one instant; returns the links that it took.
    pub(super) fn carry(&mut self, now: SimTime, mut hop: Hop) -> Vec<LinkId> {
        let mut path = Vec::new();
        while !self.topology.is_host(hop.node()) {
            hop = self.step(now, hop);
            path.push(hop.link());
        }
        path
    }
}

/// With any queues and failures, a model chooses one of the candidates, and the same ones for the same seed.
#[test]
fn every_model_chooses_candidates_and_is_deterministic() {
    for &kind in Kind::ALL {
        assert_eq!(kind.name().parse(), Ok(kind));
        let [one, other] = [(); 2].map(|()| walk(kind));
        assert_eq!(one, other, "{kind}");
        let used: BTreeSet<_> = one.iter().collect();
        assert!(used.len() > 3, "{kind} used {used:?} only");
    }
}

/// Sends data of many flows while queues grow and links fail.
fn walk(kind: Kind) -> Vec<LinkId> {
    let mut bench = Bench::new(kind);
    let mut used = Vec::new();
    for round in 0..400u16 {
        let now = micros(u64::from(round) * 7);
        if round % 100 == 99 {
            let uplinks = bench.candidates(0, 16);
            bench.fail(uplinks[usize::from(round) % uplinks.len()]);
        }
        let candidates = bench.candidates(0, 16);
        bench.queue(candidates[usize::from(round) % candidates.len()], 1_000_000);
        let link = bench.send(now, u32::from(round % 16), 16, round % 40);
        assert!(candidates.contains(&link), "{kind}");
        used.push(link);
    }
    used
}

#[test]
fn control_packets_take_the_hash_whatever_the_queues() {
    let older = [Kind::Random, Kind::LeastQueued];
    for &kind in Kind::ALL.iter().filter(|kind| !older.contains(kind)) {
        for port in 0..50 {
            let mut bench = Bench::new(kind);
            let hop = bench.packet(0, 16, port).as_control();
            let want = Bench::new(Kind::Ecmp).send(micros(0), 0, 16, port);
            bench.queue(want, 50_000);
            assert_eq!(bench.step(micros(0), hop).link(), want, "{kind}");
        }
    }
}
