//! The network between the hosts: every link, every switch, and what becomes of a packet at each.
//!
//! [`Fabric::forward`] is the simulator's inner loop. A packet arrives at a switch; the routes give
//! the candidates, the forwarding model one of them, the queue and the shared buffer admit it, and
//! its arrival at the next node is scheduled. Nothing else happens for a hop.

use std::collections::BTreeMap;

use weft_topo::hash::FabricHash;
use weft_topo::{Failures, LinkId, NodeId, RouteError, Routes, Topology};
use weft_units::{Duration, Rng, Seed, prefetch};

use crate::event::{Event, Events};
use crate::fault::Change;
use crate::fault::impairment::{Impairment, Outcome};
use crate::freight::Freights;
use crate::link::{Condition, Link, LinkClass, Tally};
use crate::nic::FRAME_OVERHEAD;
use crate::packet::{EPOCHS, Hop, ParcelId, ParcelPool};
use crate::port::PortConfig;
use crate::port::pfc::{PfcConfig, Sending};
use crate::queue::{Admission, QueueConfig, QueueDiscipline};
use crate::switch::buffer::{BufferConfig, Request, SharedBuffers};
use crate::switch::{self, Decision, Forward, Forwarding, ForwardingConfig, Labels, Order};
use crate::time::{SimSpan, SimTime};

/// What a forwarding model decides from. A function would borrow the model with the rest.
macro_rules! decision {
    ($fabric:ident, $now:expr, $hop:expr, $candidates:expr) => {
        Decision {
            now: $now,
            switch: ($hop.node().0 - $fabric.hosts) as usize,
            hop: $hop,
            candidates: $candidates,
            links: &$fabric.links,
            classes: &$fabric.classes,
            parcels: &$fabric.parcels,
            topology: &$fabric.topology,
            routes: &$fabric.routes,
        }
    };
}

mod attend;
mod plain;
mod queued;

use queued::Ports;

/// Why the network lost a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Loss {
    /// No room in a queue or in its switch's buffer.
    QueueFull,
    /// A switch (or the host itself) knew no way.
    NoRoute,
    /// The link was down, or went down under it.
    LinkDown,
    /// A lossy link lost it.
    LossyLink,
    /// The receiving host's checksum did not match.
    BadChecksum,
    /// The receiving host could not parse it.
    Malformed,
}

impl Loss {
    /// Every reason, in the order of [`Counters::lost`].
    pub const ALL: [Self; 6] = [
        Self::QueueFull,
        Self::NoRoute,
        Self::LinkDown,
        Self::LossyLink,
        Self::BadChecksum,
        Self::Malformed,
    ];

    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::QueueFull => "queue_full",
            Self::NoRoute => "no_route",
            Self::LinkDown => "link_down",
            Self::LossyLink => "lossy_link",
            Self::BadChecksum => "bad_checksum",
            Self::Malformed => "malformed",
        }
    }
}

/// What the network counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets hosts put in.
    pub injected: u64,
    /// Packets faulty links made.
    pub duplicated: u64,
    /// Control packets switches made.
    pub switch_made: u64,
    /// Packets given to hosts.
    pub delivered: u64,
    /// Control packets that reached the switch they were for.
    pub switch_taken: u64,
    /// Packets lost, by [`Loss`].
    pub lost: [u64; Loss::ALL.len()],
    /// Packets damaged so that their receivers cannot tell.
    pub forged: u64,
    /// Packets marked, each time a switch marked one that was not.
    pub marked: u64,
}

/// How switches and ports are built.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FabricConfig {
    /// How they choose among links.
    pub forwarding: ForwardingConfig,
    /// How their ports queue.
    pub queue: QueueConfig,
    /// What their ports share.
    pub buffer: BufferConfig,
    /// What a port is.
    pub port: PortConfig,
    /// Whether switches have their neighbours pause.
    pub pfc: PfcConfig,
    /// What hosts may send.
    pub sending: Sending,
}

/// Every link and switch.
#[derive(Debug)]
pub struct Fabric {
    /// What is connected.
    pub topology: Topology,
    /// Packets in flight.
    pub parcels: ParcelPool,
    /// What was counted.
    pub counters: Counters,
    routes: Routes,
    failures: Failures,
    hosts: u32,
    links: Vec<Link>,
    tallies: Vec<Tally>,
    classes: Vec<LinkClass>,
    forwarding: Forwarding,
    /// What switches wrote on packets, and what they have yet to do: only where they attend.
    labels: Labels,
    /// What packets carry, where hosts look at it.
    pub freights: Freights,
    orders: Vec<Order>,
    hash: FabricHash,
    buffers: SharedBuffers,
    /// Where ports hold queues.
    ports: Option<Ports>,
    impairments: BTreeMap<LinkId, Impairment>,
    /// Whether a link ever went down, so that arriving packets' epochs must be compared.
    epochs_matter: bool,
    hops: u64,
    rng: Rng,
    seed: Seed,
}

impl Fabric {
    /// An idle network.
    ///
    /// # Errors
    /// The routes would not fit.
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
            freights: Freights::default(),
            orders: Vec::new(),
            hash: switch::fabric_hash(&config.forwarding),
            buffers: SharedBuffers::new(&config.buffer, &topology),
            ports: Ports::new(config, &topology),
            impairments: BTreeMap::new(),
            epochs_matter: false,
            hops: 0,
            rng: seed.child("queue", 0).rng(),
            seed,
            parcels: ParcelPool::default(),
            counters: Counters::default(),
            routes,
            failures,
            topology,
        };
        fabric.impair_from_topology();
        Ok(fabric)
    }

    /// Loss that the topology itself declares (ns-3 topology files have it for each link).
    fn impair_from_topology(&mut self) {
        for link in self.topology.link_ids() {
            let rate = self.topology.error_rate(link);
            if rate > 0.0 {
                self.impair(link, Change::Loss(crate::fault::Chance::new(rate)));
            }
        }
    }

    /// The hash that hosts compute once for each packet.
    #[inline]
    pub fn hash(&self) -> &FabricHash {
        &self.hash
    }

    /// What everything that it draws comes from, its switches' hash seeds among them.
    pub fn seed(&self) -> Seed {
        self.seed
    }

    /// A link's state.
    pub fn link(&self, link: LinkId) -> &Link {
        &self.links[link.index()]
    }

    /// What a link marked and refused.
    pub fn tally(&self, link: LinkId) -> &Tally {
        &self.tallies[link.index()]
    }

    /// What a link is like.
    pub fn class(&self, link: LinkId) -> &LinkClass {
        &self.classes[usize::from(self.links[link.index()].class)]
    }

    /// Bytes that wait at a port, with the unsent rest of the packet on the wire.
    pub fn queued_bytes(&self, link: LinkId, now: SimTime) -> u64 {
        let by_time = || self.class(link).pace.bytes(self.link(link).backlog(now));
        self.held_bytes(link, now).unwrap_or_else(by_time)
    }

    /// Where packets go at present.
    pub fn routes(&self) -> &Routes {
        &self.routes
    }

    /// Begins to fetch what a switch will need.
    #[inline]
    pub fn prefetch(&self, switch: NodeId) {
        self.routes.prefetch(switch);
        for link in self.topology.ports(switch) {
            prefetch(&self.links[link.index()]);
            self.prefetch_port(*link);
        }
    }

    /// Whether switches do nothing but send on packets as they arrive; [`Self::forward`] is then all
    /// they need, otherwise [`Self::serve`].
    pub fn only_forwards(&self) -> bool {
        !self.forwarding.attends() && !self.holds_queues()
    }

    /// Something happens at a switch.
    #[inline]
    pub fn serve(&mut self, now: SimTime, event: Event, events: &mut Events) {
        match event {
            Event::Arrive(hop) if self.forwarding.attends() => self.attend(now, hop, events),
            Event::Arrive(hop) if self.holds_queues() => self.forward_to_queue(now, hop, events),
            Event::Arrive(hop) => self.forward(now, hop, events),
            Event::Port { link, what, .. } => self.port_event(now, link, what, events),
            Event::Timer { switch, token } => self.timer(now, switch, token, events),
            other => unreachable!("{other:?} is no event of a switch"),
        }
    }

    /// A packet arrived at a switch: sends it on, or loses it.
    pub fn forward(&mut self, now: SimTime, hop: Hop, events: &mut Events) {
        if !self.survived_the_link(hop) {
            return self.lose(hop.packet(), Loss::LinkDown);
        }
        match self.next_link(now, hop) {
            Some(link) => self.enqueue(now, link, hop, events),
            None => self.lose(hop.packet(), Loss::NoRoute),
        }
    }

    #[inline(always)]
    fn next_link(&mut self, now: SimTime, hop: Hop) -> Option<LinkId> {
        let candidates = self.routes.next_links(hop.node(), hop.destination());
        if candidates.is_empty() {
            return None;
        }
        match &mut self.forwarding {
            // A model that is called apart has its decision in memory; the hash shall not pay for it.
            Forwarding::Ecmp(hash) => Some(hash.choose(&decision!(self, now, hop, candidates))),
            _ => self.choose_apart(now, hop),
        }
    }

    #[inline(never)]
    fn choose_apart(&mut self, now: SimTime, hop: Hop) -> Option<LinkId> {
        let candidates = self.routes.next_links(hop.node(), hop.destination());
        Some(self.forwarding.choose(&decision!(self, now, hop, candidates)))
    }

    /// A packet that leaves a node is nowhere else before this long, whatever link it takes.
    pub fn lookahead(&self) -> SimSpan {
        let least =
            |class: &LinkClass| class.propagation + class.pace.serialisation(FRAME_OVERHEAD);
        self.classes.iter().map(least).min().unwrap_or(SimSpan::MAX)
    }

    /// Whether the link a packet came by stayed up while it was on it.
    #[inline]
    pub fn survived_the_link(&self, hop: Hop) -> bool {
        !self.epochs_matter || self.links[hop.link().index()].epoch == hop.epoch()
    }

    /// Puts a packet into a switch port's queue.
    #[inline(always)]
    fn enqueue(&mut self, now: SimTime, link: LinkId, mut hop: Hop, events: &mut Events) {
        let state = &self.links[link.index()];
        let class = &self.classes[usize::from(state.class)];
        if state.condition == Condition::Down {
            return self.lose(hop.packet(), Loss::LinkDown);
        }
        let backlog = state.backlog(now);
        let (serialisation, propagation) =
            (class.pace.serialisation(hop.size()), class.propagation);
        let admission = match &class.discipline {
            Some(queue) => queue.admit(backlog, serialisation, &mut self.rng),
            None => Admission::Accept,
        };
        let request =
            Request { now, switch: (hop.node().0 - self.hosts) as usize, link, size: hop.size() };
        let refused = admission == Admission::Refuse
            || !self.buffers.admit(&request, &self.topology, &self.links, &self.classes);
        if refused {
            self.tallies[link.index()].refused += 1;
            return self.lose(hop.packet(), Loss::QueueFull);
        }
        if admission == Admission::Mark {
            hop = self.mark(link, hop);
        }
        self.send(now, link, serialisation, propagation, hop.past_switch(), events);
    }

    /// A host puts a packet on one of its own links, if ports hold no queues. `jitter` is added to
    /// its way, and must not let it overtake the host's earlier packets.
    #[inline(always)] // Likewise.
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
        let serialisation = class.pace.serialisation(hop.size());
        self.send(now, link, serialisation, class.propagation + jitter, hop, events);
    }

    /// Puts a packet on a link; it arrives `after` its last bit has left.
    #[inline(always)]
    fn send(
        &mut self,
        now: SimTime,
        link: LinkId,
        serialisation: SimSpan,
        after: SimSpan,
        hop: Hop,
        events: &mut Events,
    ) {
        self.hops += 1;
        let state = &mut self.links[link.index()];
        let departure = state.accept(now, serialisation, hop.size());
        let hop = hop.on(link, NodeId(state.to), state.epoch);
        let arrival = departure + after;
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
        let parcel = self.parcels.get_mut(hop.packet());
        let sent = *parcel;
        let Outcome { lost, delay, copy, forged } = impairment.apply(parcel, hop.destination());
        self.counters.forged += u64::from(forged);
        if lost {
            return self.lose(hop.packet(), Loss::LossyLink);
        }
        events.schedule_arrival(arrival + delay, hop);
        if let Some(late) = copy {
            self.counters.duplicated += 1;
            let packet = self.parcels.insert(sent);
            self.labels.copy(hop.packet(), packet);
            self.freights.copy(hop.packet(), packet);
            events.schedule_arrival(arrival + late, hop.copied(packet));
        }
    }

    /// Counts a packet as lost and forgets it.
    #[cold]
    pub fn lose(&mut self, packet: ParcelId, why: Loss) {
        self.counters.lost[why as usize] += 1;
        self.parcels.remove(packet);
    }

    /// Packet-hops so far: packets serialised, summed over all links.
    pub fn packet_hops(&self) -> u64 {
        self.hops
    }

    // Faults.

    /// Takes both directions of a cable down: what is on them and queued for them is lost.
    pub fn take_down(&mut self, now: SimTime, link: LinkId) {
        self.failures.fail_link(link);
        self.refresh_conditions(now);
    }

    /// Brings a cable back.
    pub fn bring_up(&mut self, now: SimTime, link: LinkId) {
        self.failures.repair_link(link);
        self.refresh_conditions(now);
    }

    /// Takes a switch down with all its cables.
    pub fn take_down_switch(&mut self, now: SimTime, switch: NodeId) {
        self.failures.fail_node(switch);
        self.refresh_conditions(now);
    }

    /// Brings a switch back; cables that are down on their own stay down.
    pub fn bring_up_switch(&mut self, now: SimTime, switch: NodeId) {
        self.failures.repair_node(switch);
        self.refresh_conditions(now);
    }

    /// Makes every link what the failures and impairments say.
    fn refresh_conditions(&mut self, now: SimTime) {
        self.epochs_matter = true;
        for id in self.topology.link_ids() {
            let up = self.failures.is_up(&self.topology, id);
            let link = &mut self.links[id.index()];
            let was_up = link.condition != Condition::Down;
            link.condition = match up {
                false => Condition::Down,
                true if self.impairments.contains_key(&id) => Condition::Impaired,
                true => Condition::Healthy,
            };
            if was_up && !up {
                link.epoch = (link.epoch + 1) % EPOCHS;
                link.busy_until = link.busy_until.min(now);
                self.flush(id);
            }
        }
    }

    /// Makes one direction of a cable better or worse.
    pub fn impair(&mut self, link: LinkId, change: Change) {
        let seed = self.seed.child("impairment", u64::from(link.0));
        let impairment = self.impairments.entry(link).or_insert_with(|| Impairment::new(seed));
        let rates = &mut impairment.rates;
        match change {
            Change::Loss(chance) => rates.loss = chance,
            Change::Duplication(chance) => rates.duplication = chance,
            Change::Reordering { chance, by } => {
                (rates.reordering, rates.reorder_by) = (chance, by);
            }
            Change::Corruption { chance, checksum } => {
                (rates.corruption, rates.checksum) = (chance, checksum);
            }
        }
        let state = &mut self.links[link.index()];
        if state.condition != Condition::Down {
            state.condition = Condition::Impaired;
        }
    }

    /// Makes every link as good as new.
    pub fn heal(&mut self, now: SimTime) {
        self.failures = Failures::none();
        self.impairments.clear();
        self.refresh_conditions(now);
    }

    /// The control plane has noticed what is down: routes avoid it from here on.
    ///
    /// # Errors
    /// The new routes would not fit: failed host cables split groups of hosts.
    pub fn reroute(&mut self) -> Result<(), RouteError> {
        self.routes = Routes::compute(&self.topology, &self.failures)?;
        self.forwarding.rerouted();
        Ok(())
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

/// Time a packet of `size` bytes needs from `source` to `destination` over an idle network, along
/// the first of the equal-cost paths; `None` where there is no path.
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
        let pace = crate::link::Pace::new(link.rate);
        SimSpan::from(link.propagation) + pace.serialisation(size)
    };
    let picos: u64 = path.into_iter().map(|link| hop(link).as_picos()).sum();
    Some(Duration::from_nanos(picos.div_ceil(1000)))
}
