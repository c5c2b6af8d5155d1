//! The simulated world: hosts that run the engine, the fabric between them, and time.
//!
//! [`World::run`] pops one event after another and hands it to whom it concerns. Everything a host
//! does follows from two calls the agent makes too: a packet arrived, or a deadline passed; after
//! either, the engine is asked for packets as long as a port has room.

use std::collections::VecDeque;
use std::hint::black_box;

use weft_topo::{Failures, LinkId, NodeId, RouteError, Routes, Topology};
use weft_transport::{
    Arrival, ConfigError, ConnectionId, Endpoint, Event as EngineEvent, Message, Transmit,
    TransportConfig, Verdict,
};
use weft_units::{ByteCount, Duration, Seed};

use crate::check::Observer;
use crate::event::{Event, Events};
use crate::fabric::{Fabric, FabricConfig, Loss, idle_latency};
use crate::fault::Action;
use crate::host::{Host, Port};
use crate::measure::{PortWatch, QueueWatch};
use crate::nic::{self, FRAME_OVERHEAD};
use crate::packet::{Ecn, Hop, Integrity, Parcel, ParcelId};
use crate::scenario::MeasureConfig;
use crate::time::{SimSpan, SimTime};
use crate::traffic::{
    ChannelId, ChannelState, Contradiction, MessageId, Notice, Order, Side, Traffic,
};
use crate::workload::{Workload, WorkloadError};

/// How the world is built.
#[derive(Clone, Debug)]
pub struct WorldConfig {
    /// How every host's engine behaves.
    pub transport: TransportConfig,
    /// How switches are built.
    pub fabric: FabricConfig,
    /// Connections are set up by packets instead of over another channel.
    pub handshake: bool,
    /// How long a payload takes from the NIC to where it belongs.
    pub place_delay: Duration,
    /// Bound on the irregularity of a host's sending; see [`nic::Jitter`].
    pub jitter: SimSpan,
    /// A host's port takes packets from the engine until it has this many to send.
    pub nic_packets: u16,
    /// How long the control plane needs to route around a failure; `None` never does.
    pub reroute_after: Option<Duration>,
}

/// Why a world cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The transport's configuration is out of range.
    #[error("transport: {0}")]
    Transport(#[from] ConfigError),
    /// The topology cannot be routed.
    #[error("routes: {0}")]
    Routes(#[from] RouteError),
    /// A workload does not fit the topology.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
}

/// Everything but the workloads, which act on it.
#[derive(Debug)]
pub struct Network {
    /// The time.
    pub now: SimTime,
    /// Links and switches.
    pub fabric: Fabric,
    /// Hosts, by number.
    pub hosts: Vec<Host>,
    /// Channels and messages.
    pub traffic: Traffic,
    /// What the engines did that contradicts what was sent.
    pub contradictions: Vec<Contradiction>,
    /// Who watches placements.
    pub observer: Option<Box<dyn Observer>>,
    /// What every engine said, in order, where somebody wants to know.
    pub record: Option<Vec<(NodeId, EngineEvent)>>,
    /// Events handled.
    pub events_handled: u64,
    events: Events,
    config: WorldConfig,
    notices: VecDeque<(u32, Notice)>,
    /// Hosts that will soon act, and on which packet.
    expected: Vec<(NodeId, Option<ParcelId>)>,
    /// Payloads on their way from the NIC to where they belong.
    placing: VecDeque<(NodeId, ConnectionId, u32)>,
}

/// The simulated world.
#[derive(Debug)]
pub struct World {
    /// Everything but the workloads.
    pub network: Network,
    workloads: Vec<Box<dyn Workload>>,
    plan: VecDeque<(SimTime, Action)>,
    stopped: bool,
    /// Whether this run ends when the workloads are done.
    until_done: bool,
    /// When this run ends at the latest.
    limit: SimTime,
    queues: Option<(SimSpan, QueueWatch)>,
    ports: Option<PortWatch>,
}

impl World {
    /// A world at rest.
    ///
    /// # Errors
    /// Its parts do not fit together.
    pub fn new(topology: Topology, config: WorldConfig, seed: Seed) -> Result<Self, BuildError> {
        let hosts = topology.host_ids().map(|id| new_host(&topology, id, &config, seed));
        let hosts = hosts.collect::<Result<Vec<_>, _>>()?;
        let count = topology.hosts();
        let network = Network {
            now: SimTime::EPOCH,
            fabric: Fabric::new(topology, &config.fabric, seed.child("fabric", 0))?,
            traffic: Traffic::new(count),
            contradictions: Vec::new(),
            observer: None,
            record: None,
            events_handled: 0,
            events: Events::new(u64::from(count) * EVENTS_PER_HOST_MICRO),
            notices: VecDeque::new(),
            expected: Vec::new(),
            placing: VecDeque::new(),
            hosts,
            config,
        };
        Ok(Self {
            network,
            workloads: Vec::new(),
            plan: VecDeque::new(),
            stopped: false,
            until_done: false,
            limit: SimTime::EPOCH,
            queues: None,
            ports: None,
        })
    }

    /// Adds a workload; it starts with the run.
    pub fn add_workload(&mut self, workload: Box<dyn Workload>) {
        self.workloads.push(workload);
    }

    /// The workloads, in the order they were added.
    pub fn workloads(&self) -> &[Box<dyn Workload>] {
        &self.workloads
    }

    /// What goes wrong and when, in order of time.
    pub fn set_plan(&mut self, plan: Vec<(SimTime, Action)>) {
        for (at, _) in &plan {
            self.network.events.schedule(*at, Event::Fault);
        }
        self.plan = plan.into();
    }

    /// Looks at queues and ports during the run.
    pub fn watch(&mut self, config: &MeasureConfig) {
        let start = SimTime::EPOCH + config.from.into();
        self.network.events.schedule(start, Event::Sample);
        if config.sample_every > Duration::ZERO {
            let watch = QueueWatch::new(&self.network.fabric.topology);
            self.queues = Some((config.sample_every.into(), watch));
        }
    }

    /// What was seen of the queues.
    pub fn queue_watch(&self) -> Option<&QueueWatch> {
        self.queues.as_ref().map(|(_, watch)| watch)
    }

    /// What was seen of the leaves' uplinks.
    pub fn port_watch(&self) -> Option<&PortWatch> {
        self.ports.as_ref()
    }

    fn sample(&mut self) {
        let (fabric, now) = (&self.network.fabric, self.network.now);
        self.ports.get_or_insert_with(|| PortWatch::new(fabric, now));
        if let Some((interval, watch)) = &mut self.queues {
            watch.sample(fabric, now);
            self.network.events.schedule(now + *interval, Event::Sample);
        }
    }

    /// Starts the workloads.
    pub fn start(&mut self) {
        for index in 0..self.workloads.len() {
            let number = u32::try_from(index).expect("a handful of workloads");
            self.workloads[index].start(&mut Session { network: &mut self.network, number });
        }
        self.give_notices();
    }

    /// Runs until every workload is done, nothing is left to happen, or `limit`. Gives whether the
    /// workloads are done.
    pub fn run(&mut self, limit: SimTime) -> bool {
        self.go(limit, true);
        self.is_done()
    }

    /// Runs to `end`, whatever the workloads wait for.
    pub fn run_to(&mut self, end: SimTime) {
        self.go(end, false);
    }

    fn go(&mut self, limit: SimTime, until_done: bool) {
        (self.limit, self.until_done) = (limit, until_done);
        self.network.events.schedule(limit, Event::Stop);
        // Only notices make a workload done, so only they are followed by that question.
        self.stopped = until_done && self.is_done();
        while !self.stopped && self.network.events.begin_day() {
            self.network.look_ahead();
            for _ in 0..LOOK_AHEAD {
                if self.stopped || !self.step() {
                    break;
                }
            }
        }
    }

    /// Whether every workload has all it waits for.
    pub fn is_done(&self) -> bool {
        self.workloads.iter().all(|workload| workload.is_done())
    }

    /// Handles the next event; false when there is none.
    #[inline]
    fn step(&mut self) -> bool {
        let Some((at, event, note)) = self.network.events.pop_today() else { return false };
        self.network.now = at;
        self.network.events_handled += 1;
        match event {
            Event::Arrive(hop) if hop.node().index() >= self.network.hosts.len() => {
                let Network { fabric, events, .. } = &mut self.network;
                fabric.forward(at, hop, note.map(LinkId), events);
                // No workload hears of that.
                return true;
            }
            Event::Arrive(hop) => self.network.arrive(hop),
            Event::Pull { host } => {
                self.network.hosts[host.index()].pull_scheduled = false;
                self.network.pull(host);
            }
            Event::Deadline { host } => self.network.deadline(host),
            Event::Placed => self.network.placed(),
            Event::Wake { workload, token } => {
                self.network.notices.push_back((workload, Notice::Woken { token }));
            }
            Event::Fault => self.fault(),
            Event::Reroute => self.network.reroute(),
            Event::Sample => self.sample(),
            // An earlier run may have left its own.
            Event::Stop => self.stopped = at >= self.limit,
        }
        if !self.network.notices.is_empty() {
            self.give_notices();
        }
        true
    }

    fn give_notices(&mut self) {
        while let Some((number, notice)) = self.network.notices.pop_front() {
            let mut session = Session { network: &mut self.network, number };
            self.workloads[number as usize].notice(&notice, &mut session);
        }
        self.stopped |= self.until_done && self.is_done();
    }

    fn fault(&mut self) {
        let Some((_, action)) = self.plan.pop_front() else { return };
        let now = self.network.now;
        let network = &mut self.network;
        match action {
            Action::LinkDown(link) => network.fabric.take_down(now, link),
            Action::LinkUp(link) => network.fabric.bring_up(now, link),
            Action::SwitchDown(switch) => network.fabric.take_down_switch(now, switch),
            Action::SwitchUp(switch) => network.fabric.bring_up_switch(now, switch),
            Action::Impair { link, change } => return network.fabric.impair(link, change),
            Action::Restart(host) => return network.restart(host),
        }
        if let Some(after) = network.config.reroute_after {
            network.events.schedule(now + after.into(), Event::Reroute);
        }
    }

    /// Makes the network as good as new: no more faults happen.
    pub fn heal(&mut self) {
        self.plan.clear();
        self.network.fabric.heal(self.network.now);
        self.network.reroute();
    }
}

/// Events looked ahead at together: enough to hide memory's latency, few enough that what was
/// fetched first is still there.
const LOOK_AHEAD: usize = 256;

/// The engines of so few hosts stay in the processor's cache without being looked ahead for.
const NEARBY_HOSTS: usize = 256;

/// Events a busy host adds to the queue in a microsecond, for the queue's first guess.
const EVENTS_PER_HOST_MICRO: u64 = 40;

fn new_host(
    topology: &Topology,
    id: NodeId,
    config: &WorldConfig,
    seed: Seed,
) -> Result<Host, ConfigError> {
    let frame = config.transport.mtu.saturating_add(FRAME_OVERHEAD + 32);
    let ports = topology.ports(id).iter().map(|&link| {
        let pace = crate::link::Pace::new(topology.link(link).rate);
        let ahead = pace.serialisation(frame).as_picos() * u64::from(config.nic_packets);
        let ahead = SimSpan::from_picos(ahead);
        Port { link, last_arrival: SimTime::EPOCH, ahead }
    });
    Host::new(id, ports.collect(), config.jitter, &config.transport, seed)
}

/// Round-trip time of an empty network, as a sender sees it: a full packet there, its ACK back, and
/// the packets that the receiver waits for before it acknowledges. The farthest pair of a sample of
/// hosts decides.
pub fn base_round_trip(topology: &Topology, transport: &TransportConfig) -> Option<Duration> {
    let routes = Routes::compute(topology, &Failures::none()).ok()?;
    let data = transport.mtu.saturating_add(FRAME_OVERHEAD + 32);
    let acknowledgement = FRAME_OVERHEAD + 32;
    let source = NodeId(0);
    let way = |to: NodeId, size| idle_latency(topology, &routes, source, to, size);
    let round_trip = |to: NodeId| Some(way(to, data)? + way(to, acknowledgement)?);
    let step = (topology.hosts() / 64).max(1) as usize;
    let farthest = topology.host_ids().skip(1).step_by(step).filter_map(round_trip).max()?;
    let waits = ByteCount(u64::from(data) * u64::from(transport.ack_every - 1));
    Some(farthest + transport.line_rate.serialization_delay(waits).min(transport.ack_delay))
}

/// What a workload may do.
#[derive(Debug)]
pub struct Session<'a> {
    /// The network it acts on.
    pub network: &'a mut Network,
    number: u32,
}

impl Session<'_> {
    /// The time.
    pub fn now(&self) -> SimTime {
        self.network.now
    }

    /// Opens a channel between two different hosts; messages may be sent on it at once.
    pub fn open(&mut self, from: NodeId, to: NodeId) -> ChannelId {
        self.network.open(self.number, from, to)
    }

    /// Sends a message.
    pub fn send(&mut self, order: Order) {
        self.network.send(self.number, order);
    }

    /// Ends a channel; what is still on it may or may not arrive. [`Notice::Closed`] follows.
    pub fn close(&mut self, channel: ChannelId) {
        self.network.close(channel);
    }

    /// Asks for [`Notice::Woken`] with `token` at `at`.
    pub fn wake(&mut self, at: SimTime, token: u64) {
        let event = Event::Wake { workload: self.number, token };
        self.network.events.schedule(at, event);
    }
}

impl Network {
    // What workloads ask for.

    fn open(&mut self, workload: u32, from: NodeId, to: NodeId) -> ChannelId {
        let channel = self.traffic.add(workload, [from, to]);
        let now = self.now.engine_clock();
        if self.config.handshake {
            let peer = nic::address(to);
            let opener = &mut self.hosts[from.index()];
            // A host at its limit is a channel that never opens, as in life.
            if let Ok(connection) = opener.endpoint.connect(now, peer, channel.0) {
                opener.set_channel(connection, channel);
                self.bind(channel, Side::Opener, connection);
            }
            self.attend(from);
            return channel;
        }
        let pair = [from.index(), to.index()];
        let [a, b] = self.hosts.get_disjoint_mut(pair).expect("the ends are different hosts");
        let ends = ((&mut a.endpoint, nic::address(from)), (&mut b.endpoint, nic::address(to)));
        if let Ok((opener, peer)) = Endpoint::join(now, ends.0, ends.1) {
            a.set_channel(opener, channel);
            b.set_channel(peer, channel);
            self.bind(channel, Side::Opener, opener);
            self.bind(channel, Side::Peer, peer);
            self.set_state(channel, ChannelState::Open);
        }
        channel
    }

    fn bind(&mut self, channel: ChannelId, side: Side, connection: ConnectionId) {
        if let Some(channel) = self.traffic.channel_mut(channel) {
            channel.connections[side.index()] = Some(connection);
        }
    }

    fn set_state(&mut self, channel: ChannelId, state: ChannelState) {
        if let Some(channel) = self.traffic.channel_mut(channel) {
            channel.state = state;
        }
    }

    fn send(&mut self, workload: u32, order: Order) {
        let message = self.traffic.begin(order, workload, self.now);
        let channel = self.traffic.channel_mut(order.channel).expect("workloads name their own");
        channel.waiting.push(message);
        self.submit_waiting(order.channel);
    }

    fn close(&mut self, id: ChannelId) {
        let Some(channel) = self.traffic.channel(id) else { return };
        let (host, connection) = (channel.hosts[0], channel.connections[0]);
        if let Some(connection) = connection {
            let now = self.now.engine_clock();
            self.hosts[host.index()].endpoint.close(now, connection);
            self.attend(host);
        }
    }

    /// Gives the engines what waits on a channel, as far as they take it.
    fn submit_waiting(&mut self, id: ChannelId) {
        let Some(channel) = self.traffic.channel_mut(id) else { return };
        if channel.waiting.is_empty() {
            return;
        }
        let waiting = std::mem::take(&mut channel.waiting);
        let (hosts, connections) = (channel.hosts, channel.connections);
        let mut refused = Vec::new();
        for message in waiting {
            if !self.submit(hosts, connections, message) {
                refused.push(message);
            }
        }
        if let Some(channel) = self.traffic.channel_mut(id) {
            channel.waiting = refused;
        }
        hosts.into_iter().for_each(|host| self.attend(host));
    }

    /// Gives one message to its engine; false where it must wait.
    fn submit(
        &mut self,
        hosts: [NodeId; 2],
        connections: [Option<ConnectionId>; 2],
        id: MessageId,
    ) -> bool {
        let Some(record) = self.traffic.message(id) else { return true };
        let side = record.order.from.index();
        let message = Message { token: id.0.into(), opcode: 0, length: record.order.length };
        let Some(connection) = connections[side] else { return false };
        let engine = &mut self.hosts[hosts[side].index()].endpoint;
        engine.submit(self.now.engine_clock(), connection, message).is_ok()
    }

    // What happens to packets.

    /// Looks at what the next events will need: links for packets at switches, engines for packets
    /// at hosts. Most of it is in no nearby cache, and looked up for many at once the waits for
    /// memory overlap.
    fn look_ahead(&mut self) {
        let Self { events, fabric, hosts, expected, now, .. } = self;
        let far = hosts.len() > NEARBY_HOSTS;
        expected.clear();
        events.note(LOOK_AHEAD, |event| match event {
            Event::Arrive(hop) if hop.node().index() >= hosts.len() => {
                fabric.foresee(*now, hop).map(|link| link.0)
            }
            Event::Arrive(hop) if far => {
                expected.push((hop.node(), Some(hop.packet())));
                None
            }
            Event::Pull { host } if far => {
                expected.push((host, None));
                None
            }
            _ => None,
        });
        for &(node, packet) in &*expected {
            black_box(packet.map(|packet| fabric.parcels.get(packet).payload_len));
            black_box(hosts[node.index()].wake_at);
        }
        for &(node, packet) in &*expected {
            let host = &hosts[node.index()];
            match packet {
                Some(packet) => host.endpoint.look_ahead(&fabric.parcels.get(packet).packet),
                None => {
                    black_box(fabric.link(host.ports[0].link).busy_until);
                    host.endpoint.look_ahead_to_transmit();
                }
            }
        }
    }

    /// A packet reached its host.
    fn arrive(&mut self, hop: Hop) {
        if !self.fabric.survived_the_link(hop) {
            return self.fabric.lose(hop, Loss::LinkDown);
        }
        let parcel = self.fabric.parcels.get(hop.packet());
        match parcel.integrity {
            Integrity::Sound => {}
            Integrity::BadChecksum => return self.fabric.lose(hop, Loss::BadChecksum),
            Integrity::Malformed => return self.fabric.lose(hop, Loss::Malformed),
        }
        self.fabric.counters.delivered += 1;
        let now = self.now.engine_clock();
        let mut from = nic::address(parcel.source);
        from.set_port(parcel.source_port);
        let arrival = Arrival {
            from,
            received_at: now,
            congestion_experienced: hop.ecn() == Ecn::CongestionExperienced,
            hops: hop.switches(),
        };
        let host = &mut self.hosts[hop.node().index()];
        let verdict =
            host.endpoint.handle_packet(now, &arrival, &parcel.packet, parcel.payload_len);
        self.fabric.parcels.remove(hop.packet());
        if let Verdict::Place(placement) = verdict {
            if let Some(observer) = &mut self.observer {
                observer.asked(hop.node(), &placement);
            }
            if self.config.place_delay > Duration::ZERO {
                let waiting = (hop.node(), placement.connection, placement.psn);
                self.placing.push_back(waiting);
                let at = self.now + self.config.place_delay.into();
                self.events.schedule(at, Event::Placed);
            } else {
                if let Some(observer) = &mut self.observer {
                    observer.placed(hop.node(), placement.connection, placement.psn);
                }
                host.endpoint
                    .placed(now, placement.connection, placement.psn)
                    .expect("the engine asked for it just now");
            }
        }
        self.attend(hop.node());
    }

    /// The oldest payload on its way has been placed. Its connection may have ended meanwhile.
    fn placed(&mut self) {
        let Some((node, connection, psn)) = self.placing.pop_front() else { return };
        let now = self.now.engine_clock();
        if let Some(observer) = &mut self.observer {
            observer.placed(node, connection, psn);
        }
        let _ = self.hosts[node.index()].endpoint.placed(now, connection, psn);
        self.attend(node);
    }

    fn deadline(&mut self, node: NodeId) {
        let host = &mut self.hosts[node.index()];
        if host.wake_at != self.now {
            return;
        }
        host.wake_at = SimTime::FAR_FUTURE;
        host.endpoint.handle_timeout(self.now.engine_clock());
        self.attend(node);
    }

    /// After anything happened to a host: hears its engine out, sends what it may, and sees to its
    /// deadline.
    #[inline]
    fn attend(&mut self, node: NodeId) {
        while let Some(event) = self.hosts[node.index()].endpoint.poll_event() {
            if let Some(observer) = &mut self.observer {
                observer.heard(node, &event);
            }
            if let Some(record) = &mut self.record {
                record.push((node, event));
            }
            self.hear(node, event);
        }
        if !self.hosts[node.index()].pull_scheduled {
            self.pull(node);
        }
        self.rearm(node);
    }

    /// Schedules the engine's deadline unless the world will look earlier anyway.
    #[inline]
    fn rearm(&mut self, node: NodeId) {
        let host = &mut self.hosts[node.index()];
        let Some(at) = host.endpoint.poll_timeout() else { return };
        let at = SimTime::serving(at).max(self.now);
        if at < host.wake_at {
            host.wake_at = at;
            self.events.schedule(at, Event::Deadline { host: node });
        }
    }

    /// Takes packets from the engine as long as the ports have room.
    fn pull(&mut self, node: NodeId) {
        let now = self.now.engine_clock();
        loop {
            if let Some(at) = self.full_until(node) {
                self.hosts[node.index()].pull_scheduled = true;
                self.events.schedule(at, Event::Pull { host: node });
                break;
            }
            let Some(transmit) = self.hosts[node.index()].endpoint.poll_transmit(now) else {
                break;
            };
            self.put_on_wire(node, &transmit);
        }
        self.rearm(node);
    }

    /// When the fullest port will be half empty again; `None` while all have room.
    #[inline]
    fn full_until(&self, node: NodeId) -> Option<SimTime> {
        let mut until = None;
        for port in &self.hosts[node.index()].ports {
            let busy_until = self.fabric.link(port.link).busy_until;
            if busy_until.since(self.now) >= port.ahead {
                let half_empty = busy_until.as_picos() - port.ahead.as_picos() / 2;
                until = until.max(Some(SimTime::from_picos(half_empty)));
            }
        }
        until
    }

    /// A packet leaves its engine.
    #[inline]
    fn put_on_wire(&mut self, node: NodeId, transmit: &Transmit) {
        let host = &mut self.hosts[node.index()];
        let payload_len = transmit.payload.map_or(0, |payload| payload.len);
        let header_len = u16::try_from(transmit.packet.len()).expect("headers are short");
        let size = FRAME_OVERHEAD + header_len + payload_len;
        let source_port = host.entropy.source_port(transmit.connection, transmit.path);
        let destination = nic::host_at(transmit.to, self.fabric.topology.hosts());
        // An answer to a stranger's made-up address goes nowhere.
        let destination = destination.unwrap_or(node);
        let tuple = nic::five_tuple(node, destination, source_port);
        let hash = self.fabric.hash().base(&tuple);
        let index = usize::from(transmit.path.0) % host.ports.len();
        let link = host.ports[index].link;
        let parcel = Parcel {
            source: node,
            source_port,
            payload_len,
            integrity: Integrity::Sound,
            packet: transmit.packet,
        };
        let packet = self.fabric.parcels.insert(parcel);
        let hop = Hop::new(packet, node, destination, hash, size);
        let extra = self.irregularity(node, index, size);
        self.fabric.inject(self.now, link, extra, hop, &mut self.events);
    }

    /// How much later than its port alone would make it a packet arrives, without overtaking.
    #[inline]
    fn irregularity(&mut self, node: NodeId, index: usize, size: u16) -> SimSpan {
        let host = &mut self.hosts[node.index()];
        let port = &mut host.ports[index];
        let serialisation = self.fabric.class(port.link).pace.serialisation(size);
        let departure = self.fabric.link(port.link).busy_until.max(self.now) + serialisation;
        let jittered = departure + SimSpan::from_picos(host.jitter.draw());
        port.last_arrival = jittered.max(port.last_arrival);
        port.last_arrival.since(departure)
    }

    // What engines say.

    fn hear(&mut self, node: NodeId, event: EngineEvent) {
        // What an end says of a channel whose other end is gone cannot be held against anything.
        let side_of = |network: &Self, connection: ConnectionId| {
            let channel = network.hosts[node.index()].channel(connection)?;
            let side = network.traffic.side_of(channel, node, connection)?;
            let closed = network.traffic.channel(channel)?.state == ChannelState::Closed;
            (!closed).then_some((channel, side))
        };
        match event {
            EngineEvent::Connected { connection } => {
                if let Some((channel, _)) = side_of(self, connection) {
                    self.set_state(channel, ChannelState::Open);
                    self.submit_waiting(channel);
                }
            }
            EngineEvent::Accepted { connection, service } => {
                let channel = ChannelId(service);
                let known = self.traffic.channel(channel);
                if known.is_some_and(|channel| channel.hosts[Side::Peer.index()] == node) {
                    self.hosts[node.index()].set_channel(connection, channel);
                    self.bind(channel, Side::Peer, connection);
                    self.submit_waiting(channel);
                }
            }
            EngineEvent::Sent { connection, token } => {
                if let Some((channel, _)) = side_of(self, connection) {
                    let completed = self.traffic.complete(channel, token, self.now);
                    self.note(completed, |order| Notice::Sent { order });
                    self.submit_waiting(channel);
                }
            }
            EngineEvent::Delivered { connection, message, length, .. } => {
                if let Some((channel, side)) = side_of(self, connection) {
                    let now = self.now;
                    let delivered = self.traffic.deliver(channel, side, message, length, now);
                    self.note(delivered, |order| Notice::Delivered { order });
                }
            }
            EngineEvent::Closed { connection, reason } => {
                if let Some(channel) = self.hosts[node.index()].forget(connection) {
                    self.end(channel, Some(reason));
                }
            }
            _ => {}
        }
    }

    /// Passes what happened to a message on to its workload, or keeps the contradiction.
    fn note(
        &mut self,
        outcome: Result<crate::traffic::MessageRecord, Contradiction>,
        notice: impl FnOnce(Order) -> Notice,
    ) {
        match outcome {
            Ok(record) => self.notices.push_back((record.workload, notice(record.order))),
            Err(contradiction) => self.contradictions.push(contradiction),
        }
    }

    /// A channel is no more.
    fn end(&mut self, id: ChannelId, reason: Option<weft_transport::CloseReason>) {
        let Some(workload) = self.traffic.channel(id).map(|channel| channel.workload) else {
            return;
        };
        if self.traffic.close(id, reason) {
            self.notices.push_back((workload, Notice::Closed { channel: id, reason }));
        }
    }

    /// The control plane has converged. Where the new routes do not fit, the old ones stay.
    fn reroute(&mut self) {
        self.events.forget_notes();
        let _ = self.fabric.reroute();
    }

    /// A host's engine forgets everything.
    fn restart(&mut self, host: NodeId) {
        let ended = self.hosts[host.index()].restart();
        self.hosts[host.index()].wake_at = SimTime::FAR_FUTURE;
        if let Some(observer) = &mut self.observer {
            observer.restarted(host, &ended, &self.traffic);
        }
        ended.into_iter().for_each(|channel| self.end(channel, None));
    }

    /// Bytes waiting at each of `links` now.
    pub fn queues(&self, links: &[LinkId]) -> Vec<u64> {
        links.iter().map(|&link| self.fabric.queued_bytes(link, self.now)).collect()
    }
}
