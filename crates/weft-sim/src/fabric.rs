//! The network between the hosts: links, switches, and the treatment of packets at each.
//!
//! A packet arrives at a switch; the routes give the candidates, the forwarding model chooses one of them, the queue
//! and the shared buffer admit the packet, and its arrival at the next node is scheduled. Nothing else happens for a
//! hop. [`Fabric::forward`] does that for any packet; the simulator's inner loop does the same for packets without
//! special treatment ([`Fabric::forward_all`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use weft_topo::hash::FabricHash;
use weft_topo::{Failures, LinkId, NodeId, RouteError, Routes, Topology};
use weft_units::{Duration, Rng, Seed, prefetch};

use crate::datagram::Datagrams;
use crate::event::{Event, Events};
use crate::fault::attack::Attacker;
use crate::fault::impairment::{Chance, Impairment, Outcome};
use crate::link::{Condition, Link, LinkClass, Tally};
use crate::nic::FRAME_OVERHEAD;
use crate::packet::{Hop, PacketPool, PacketRef};
use crate::payload::PacketPayloads;
use crate::port::PortConfig;
use crate::port::pfc::{PfcConfig, Sending};
use crate::queue::{Admission, QueueConfig, QueueDiscipline};
use crate::switch::buffer::{BufferConfig, Request, SharedBuffers};
use crate::switch::{self, Command, Decision, Forward, Forwarding, ForwardingConfig, Labels};
use crate::time::{SimSpan, SimTime};

/// The input of a forwarding model. A function instead of this macro would borrow the model with the rest.
macro_rules! decision {
    ($fabric:ident, $now:expr, $hop:expr, $candidates:expr) => {
        Decision {
            now: $now,
            switch: ($hop.node().0 - $fabric.hosts) as usize,
            hop: $hop,
            candidates: $candidates,
            links: &$fabric.links,
            classes: &$fabric.classes,
            ports: Fabric::ports_of($fabric.ports.as_ref()),
            packets: &$fabric.packets,
            topology: &$fabric.topology,
            routes: &$fabric.routes,
        }
    };
}

mod attacked;
mod counters;
mod failing;
mod part;
mod paths;
mod plain;
mod queued;
mod sampler;
mod service;
mod telemetry;

pub use counters::{Counters, Loss};
pub use part::Share;
use queued::Ports;
pub use sampler::PacketSample;
use sampler::Sampler;
pub use telemetry::Telemetry;

/// Configuration of switches and ports.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FabricConfig {
    /// The choice among equal-cost links.
    pub forwarding: ForwardingConfig,
    /// The queues of switch ports.
    pub queue: QueueConfig,
    /// The buffer that a switch's ports share.
    pub buffer: BufferConfig,
    /// The kind of port.
    pub port: PortConfig,
    /// Priority flow control of the switches.
    pub pfc: PfcConfig,
    /// The packets that hosts may send.
    pub sending: Sending,
}

/// Next hops of single hosts, by switch and destination.
pub type Steered = BTreeMap<(NodeId, NodeId), Vec<LinkId>>;

/// The delay of a packet on a link.
#[derive(Clone, Copy)]
struct LinkDelay {
    /// The time in which the link's transmitter sends the packet.
    serialisation: SimSpan,
    /// The time from the departure of the packet's last bit to its arrival.
    propagation: SimSpan,
}

/// The network: every link and switch.
#[derive(Debug)]
pub struct Fabric {
    /// The nodes and links.
    pub topology: Arc<Topology>,
    /// Packets in flight.
    pub packets: PacketPool,
    /// The network's counters.
    pub counters: Counters,
    routes: Arc<Routes>,
    /// Next hops of single hosts at single switches, installed by a route controller.
    steered: Steered,
    failures: Failures,
    hosts: u32,
    links: Vec<Link>,
    tallies: Vec<Tally>,
    classes: Vec<LinkClass>,
    forwarding: Forwarding,
    /// The labels on packets, and the commands that switches have yet to execute; used if the model services packets.
    labels: Labels,
    /// The contents of packets, if hosts read them.
    pub payloads: PacketPayloads,
    /// The packets' bytes, if hosts encrypt.
    pub datagrams: Datagrams,
    /// The telemetry on packets, if hosts' congestion control needs it.
    pub telemetry: Option<Box<Telemetry>>,
    commands: Vec<Command>,
    hash: FabricHash,
    buffers: SharedBuffers,
    /// The ports, if they hold queues.
    ports: Option<Ports>,
    impairments: BTreeMap<LinkId, Impairment>,
    attacker: Attacker,
    /// The sampler, if samples are requested.
    sampler: Option<Sampler>,
    /// `true` once a link went down, so that arriving packets' epochs must be compared.
    epochs_matter: bool,
    /// Packets serialised so far, summed over all links.
    hops: u64,
    /// The draws of each switch's queues.
    draws: Vec<Rng>,
    seed: Seed,
}

impl Fabric {
    /// Returns an idle network.
    ///
    /// # Errors
    /// The routes do not fit their bound.
    pub fn new(topology: Topology, config: &FabricConfig, seed: Seed) -> Result<Self, RouteError> {
        let failures = Failures::none();
        let routes = Routes::compute(&topology, &failures)?;
        let mut classes = Classes::default();
        let links = topology.link_ids().map(|link| classes.link(&topology, link, config));
        let links: Vec<_> = links.collect();
        let mut fabric = Self {
            hosts: topology.hosts(),
            tallies: vec![Tally::default(); links.len()],
            links,
            classes: classes.list,
            forwarding: config.forwarding.kind.build(&config.forwarding, &topology, seed),
            labels: Labels::default(),
            payloads: PacketPayloads::default(),
            datagrams: Datagrams::default(),
            telemetry: None,
            commands: Vec::new(),
            hash: switch::fabric_hash(&config.forwarding),
            buffers: SharedBuffers::new(&config.buffer, &topology),
            ports: Ports::new(config, &topology),
            impairments: BTreeMap::new(),
            attacker: Attacker::new(seed.child("attacker", 0), topology.hosts()),
            sampler: None,
            steered: Steered::new(),
            epochs_matter: false,
            hops: 0,
            draws: (0..u64::from(topology.switches()))
                .map(|it| seed.child("queue", it).rng())
                .collect(),
            seed,
            packets: PacketPool::default(),
            counters: Counters::default(),
            routes: Arc::new(routes),
            failures,
            topology: Arc::new(topology),
        };
        fabric.impair_from_topology();
        Ok(fabric)
    }

    /// Returns the hash that hosts compute once for each packet.
    #[inline]
    pub fn hash(&self) -> &FabricHash {
        &self.hash
    }

    /// Returns the seed of all its random draws, the switches' hash seeds included.
    pub fn seed(&self) -> Seed {
        self.seed
    }

    /// Returns a link's state.
    pub fn link(&self, link: LinkId) -> &Link {
        &self.links[link.index()]
    }

    /// Returns a link's counters of marked and refused packets.
    pub fn tally(&self, link: LinkId) -> &Tally {
        &self.tallies[link.index()]
    }

    /// Returns a link's class.
    pub fn class(&self, link: LinkId) -> &LinkClass {
        &self.classes[usize::from(self.links[link.index()].class)]
    }

    /// Returns the bytes that wait at a port, with the unsent rest of the packet on the wire.
    pub fn queued_bytes(&self, link: LinkId, now: SimTime) -> u64 {
        let by_time = || self.class(link).pace.bytes(self.link(link).backlog(now));
        self.held_bytes(link, now).unwrap_or_else(by_time)
    }

    /// Returns the bytes that have left a port; unlike [`Link::bytes`], without those that a `fifo` port has accepted
    /// and not sent yet.
    pub fn sent_bytes(&self, link: LinkId, now: SimTime) -> u64 {
        let unsent = self.unsent_bytes(link, now);
        let unsent = unsent.unwrap_or_else(|| self.queued_bytes(link, now));
        self.link(link).bytes.saturating_sub(unsent)
    }

    /// Returns the current routes.
    pub fn routes(&self) -> &Routes {
        &self.routes
    }

    /// Returns `true` if the node is a host.
    #[inline]
    pub fn is_host(&self, node: NodeId) -> bool {
        node.0 < self.hosts
    }

    /// Prefetches a switch's state.
    #[inline]
    pub fn prefetch(&self, switch: NodeId) {
        self.routes.prefetch(switch);
        for link in self.topology.ports(switch) {
            prefetch(&self.links[link.index()]);
            self.prefetch_port(*link);
        }
    }

    /// Returns `true` if switches only forward packets as they arrive: then [`Self::forward_all`] serves them,
    /// otherwise [`Self::serve`].
    pub fn only_forwards(&self) -> bool {
        !self.forwarding.services() && !self.holds_queues() && self.sampler.is_none()
    }

    /// Returns `true` if switches choose links by a hash alone.
    pub fn forwards_by_hash(&self) -> bool {
        matches!(self.forwarding, Forwarding::Ecmp(_))
    }

    /// Handles an event at a switch.
    #[inline]
    pub fn serve(&mut self, now: SimTime, event: Event, events: &mut Events) {
        match event {
            Event::Arrive(hop) if self.forwarding.services() => self.service(now, hop, events),
            Event::Arrive(hop) if self.holds_queues() => self.forward_to_queue(now, hop, events),
            Event::Arrive(hop) => self.forward(now, hop, events),
            Event::Port { link, event, .. } => self.port_event(now, link, event, events),
            Event::Timer { switch, token } => self.timer(now, switch, token, events),
            other => unreachable!("{other:?} is no event of a switch"),
        }
    }

    /// Handles a packet's arrival at a switch: forwards it, or drops it.
    pub fn forward(&mut self, now: SimTime, hop: Hop, events: &mut Events) {
        if !self.link_stayed_up(hop) {
            return self.lose(hop.packet(), Loss::LinkDown);
        }
        match self.next_link(now, hop) {
            Some(link) => self.enqueue(now, link, hop, events),
            None => self.lose(hop.packet(), Loss::NoRoute),
        }
    }

    /// Returns the link that the forwarding model chooses; `None` if there is no route.
    #[inline(always)]
    fn next_link(&mut self, now: SimTime, hop: Hop) -> Option<LinkId> {
        let candidates = self.routes.next_links(hop.node(), hop.destination());
        if candidates.is_empty() {
            return None;
        }
        let link = match &mut self.forwarding {
            // The decision of a model that is called out of line is in memory; the hash avoids that cost.
            Forwarding::Ecmp(hash) => Some(hash.choose(&decision!(self, now, hop, candidates))),
            _ => self.choose_out_of_line(now, hop),
        };
        if let (Some(sampler), Some(link)) = (&mut self.sampler, link) {
            sampler.on_forward(hop, link, &self.packets);
        }
        link
    }

    #[inline(never)]
    fn choose_out_of_line(&mut self, now: SimTime, hop: Hop) -> Option<LinkId> {
        let candidates = self.routes.next_links(hop.node(), hop.destination());
        Some(self.forwarding.choose(&decision!(self, now, hop, candidates)))
    }

    /// Returns the shortest time in which a packet that leaves a node reaches another one.
    pub fn lookahead(&self) -> SimSpan {
        let shortest_delay =
            |class: &LinkClass| class.propagation + class.pace.serialisation(FRAME_OVERHEAD);
        self.classes.iter().map(shortest_delay).min().unwrap_or(SimSpan::MAX)
    }

    /// Returns `true` if the packet's link stayed up while the packet was on it.
    #[inline]
    pub fn link_stayed_up(&self, hop: Hop) -> bool {
        !self.epochs_matter || self.links[hop.link().index()].epoch == hop.epoch()
    }

    /// Puts a packet into a switch port's queue.
    #[inline(always)]
    fn enqueue(&mut self, now: SimTime, link: LinkId, mut hop: Hop, events: &mut Events) {
        let switch = (hop.node().0 - self.hosts) as usize;
        let state = &self.links[link.index()];
        let class = &self.classes[usize::from(state.class)];
        if state.condition == Condition::Down {
            return self.lose(hop.packet(), Loss::LinkDown);
        }
        let backlog = state.backlog(now);
        let (serialisation, propagation) =
            (class.pace.serialisation(hop.size()), class.propagation);
        let admission = match &class.discipline {
            Some(queue) => queue.admit(backlog, serialisation, &mut self.draws[switch]),
            None => Admission::Accept,
        };
        let request = Request { now, switch, link, size: hop.size() };
        let refused = matches!(admission, Admission::Refuse | Admission::Trim)
            || !self.buffers.admit(&request, &self.topology, &self.links, &self.classes);
        if refused {
            self.tallies[link.index()].refused += 1;
            return self.lose(hop.packet(), Loss::QueueFull);
        }
        if admission == Admission::Mark {
            hop = self.mark(link, hop);
        }
        let delay = LinkDelay { serialisation, propagation };
        self.send(now, link, delay, hop.past_switch(), events);
    }

    /// Puts a host's packet on one of the host's links, if ports hold no queues. `jitter` is added to its delay and
    /// must not let it overtake the host's earlier packets.
    #[inline(always)] // A call would pass the hop through memory.
    pub fn inject(
        &mut self,
        now: SimTime,
        link: LinkId,
        jitter: SimSpan,
        hop: Hop,
        events: &mut Events,
    ) {
        self.counters.injected += 1;
        let state = &self.links[link.index()];
        if state.condition == Condition::Down {
            return self.lose(hop.packet(), Loss::LinkDown);
        }
        let class = &self.classes[usize::from(state.class)];
        let delay = LinkDelay {
            serialisation: class.pace.serialisation(hop.size()),
            propagation: class.propagation + jitter,
        };
        self.send(now, link, delay, hop, events);
    }

    /// Puts a packet on a link.
    #[inline(always)]
    fn send(
        &mut self,
        now: SimTime,
        link: LinkId,
        delay: LinkDelay,
        hop: Hop,
        events: &mut Events,
    ) {
        self.hops += 1;
        let state = &mut self.links[link.index()];
        let departure = state.accept(now, delay.serialisation, hop.size());
        let hop = hop.on(link, NodeId(state.to), state.epoch);
        let arrival = departure + delay.propagation;
        if state.condition == Condition::Impaired {
            return self.send_impaired(arrival, hop, events);
        }
        events.schedule_arrival(arrival, hop);
    }

    #[cold]
    fn send_impaired(&mut self, arrival: SimTime, hop: Hop, events: &mut Events) {
        let Some(impairment) = self.impairments.get_mut(&hop.link()) else {
            return events.schedule_arrival(arrival, hop);
        };
        let sent = self.packets.get(hop.packet());
        let mut slot = sent;
        let datagram = self.datagrams.get_mut(hop.packet());
        let sent_datagram = datagram.as_deref().cloned();
        let outcome = impairment.apply(&mut slot, datagram, hop.destination());
        self.packets.set(hop.packet(), &slot);
        let Outcome { lost, delay, copy, forged, attacked } = outcome;
        let has_attacker = impairment.rates.attack != Chance::default();
        self.counters.forged += u64::from(forged);
        if lost {
            return self.lose(hop.packet(), Loss::LossyLink);
        }
        events.schedule_arrival(arrival + delay, hop);
        if let Some(late) = copy {
            self.counters.duplicated += 1;
            let packet = self.packets.insert(&sent);
            self.labels.copy(hop.packet(), packet);
            if let Some(telemetry) = &mut self.telemetry {
                telemetry.copy(hop.packet(), packet);
            }
            self.payloads.copy(hop.packet(), packet);
            if let Some(datagram) = sent_datagram {
                *self.datagrams.of(packet) = datagram;
            }
            events.schedule_arrival(arrival + late, hop.copied(packet));
        }
        if has_attacker {
            self.attack(attacked, arrival, hop, events);
        }
    }

    /// Counts a packet as lost and frees it.
    #[cold]
    pub fn lose(&mut self, packet: PacketRef, reason: Loss) {
        self.counters.lost[reason as usize] += 1;
        self.packets.remove(packet);
    }

    /// Returns the packet-hops so far: packets serialised, summed over all links.
    pub fn packet_hops(&self) -> u64 {
        self.hops
    }
}

/// The distinct kinds of link of a fabric.
#[derive(Default)]
struct Classes {
    list: Vec<LinkClass>,
    keys: BTreeMap<(u64, u64, bool), u16>,
}

impl Classes {
    fn link(&mut self, topology: &Topology, id: LinkId, config: &FabricConfig) -> Link {
        let link = topology.link(id);
        let from_switch = !topology.is_host(link.from);
        let key = (link.rate.as_bps(), link.propagation.as_nanos(), from_switch);
        let class = *self.keys.entry(key).or_insert_with(|| {
            let queue = || config.queue.kind.build(&config.queue, link.rate);
            let discipline = from_switch.then(queue);
            self.list.push(LinkClass::new(link.rate, link.propagation, discipline));
            u16::try_from(self.list.len() - 1).expect("links come in fewer than 65,536 kinds")
        });
        Link::new(link.to.0, class)
    }
}

/// Returns the time a packet of `size` bytes takes from `source` to `destination` over an idle network, along the
/// first of the equal-cost paths; `None` if there is no path.
pub fn idle_latency(
    topology: &Topology,
    routes: &Routes,
    source: NodeId,
    destination: NodeId,
    size: u16,
) -> Option<Duration> {
    let path = routes.paths(topology, source, destination).next()?;
    let hop = |link: LinkId| {
        let link = topology.link(link);
        let pace = crate::pace::Pace::new(link.rate);
        SimSpan::from(link.propagation) + pace.serialisation(size)
    };
    let picos: u64 = path.into_iter().map(|link| hop(link).as_picos()).sum();
    Some(Duration::from_nanos(picos.div_ceil(1000)))
}
