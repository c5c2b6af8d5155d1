//! The implementation of the workloads' world: channels and messages over real agents, and real time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use weft_perf::AgentGroup;
use weft_sim::traffic::{
    ChannelId, ChannelState, Contradiction, MessageId, MessageRecord, Notice, SendRequest, Side,
    Traffic,
};
use weft_sim::world::Stage;
use weft_sim::{SimSpan, SimTime};
use weft_topo::NodeId;
use weft_transport::{ConnectionId, Event, Message, Stats};
use weft_udp::{Agent, Endpoint};
use weft_units::{Duration, Instant};

use super::Host;

/// The agents, and the connections over them.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) crew: AgentGroup,
    pub(super) traffic: Traffic,
    pub(super) notices: VecDeque<(u32, Notice)>,
    pub(super) contradictions: Vec<Contradiction>,
    /// The engines' counters, once the run is over.
    pub(super) stats: Stats,
    /// `true` if connections are set up by packets.
    handshake: bool,
    began: Instant,
    now: SimTime,
    /// Each host's connections.
    connections: Vec<BTreeMap<ConnectionId, ChannelId>>,
    /// Messages that the engine does not accept yet.
    waiting: BTreeMap<(ChannelId, usize), Vec<MessageId>>,
    /// The workloads' timers: due time, workload, token.
    timers: BTreeSet<(SimTime, u32, u64)>,
}

impl Wire {
    pub(super) fn new(mut crew: AgentGroup, handshake: bool) -> Self {
        let (began, hosts) = (crew.now(), crew.agents().len());
        Self {
            crew,
            traffic: Traffic::default(),
            notices: VecDeque::new(),
            contradictions: Vec::new(),
            stats: Stats::default(),
            handshake,
            began,
            now: SimTime::EPOCH,
            connections: vec![BTreeMap::new(); hosts],
            waiting: BTreeMap::new(),
            timers: BTreeSet::new(),
        }
    }

    /// Returns the time since the start of the run.
    pub(super) fn elapsed(&self) -> SimSpan {
        self.now.since(SimTime::EPOCH)
    }

    /// Polls every host once; sleeps until an event, a workload's timer, or `limit`.
    pub(super) fn step(&mut self, hosts: &mut [Host], limit: SimTime) {
        let until = self.timers.first().map_or(limit, |&(at, ..)| at.min(limit));
        let nanos = until.since(SimTime::EPOCH).as_picos() / 1_000;
        self.crew.step(hosts, self.began + Duration::from_nanos(nanos));
        self.now = self.at(self.crew.now());
    }

    /// Queues a notice for each workload whose timer is due.
    pub(super) fn fire_timers(&mut self) {
        while let Some(&(at, workload, token)) = self.timers.first() {
            if at > self.now {
                return;
            }
            self.timers.pop_first();
            self.notices.push_back((workload, Notice::Woken { token }));
        }
    }

    /// Handles an event of a host's engine.
    pub(super) fn on_event(&mut self, host: usize, at: Instant, event: Event) {
        let at = self.at(at);
        match event {
            Event::Connected { connection } => {
                if let Some((channel, _)) = self.side_of(host, connection) {
                    self.set_state(channel, ChannelState::Open);
                    self.submit_waiting(channel, Side::Opener);
                }
            }
            Event::Accepted { connection, service } => {
                let Ok(channel) = u32::try_from(service).map(ChannelId) else { return };
                let hosts = self.traffic.channel(channel).map(|channel| channel.hosts);
                if hosts.is_some_and(|hosts| hosts[Side::Peer.index()].index() == host) {
                    self.bind(channel, Side::Peer, connection);
                    self.submit_waiting(channel, Side::Peer);
                }
            }
            Event::Acked { connection, token } => {
                if let Some((channel, side)) = self.side_of(host, connection) {
                    let completed = self.traffic.complete(channel, token, at);
                    self.queue_notice(completed, |request| Notice::Acknowledged { request });
                    self.submit_waiting(channel, side);
                }
            }
            Event::Delivered { connection, message, length, .. } => {
                if let Some((channel, side)) = self.side_of(host, connection) {
                    let delivered = self.traffic.deliver(channel, side, message, length, at);
                    self.queue_notice(delivered, |request| Notice::Delivered { request });
                }
            }
            Event::Closed { connection, reason } => {
                let Some(channel) = self.connections[host].remove(&connection) else { return };
                let workload = self.traffic.channel(channel).map(|channel| channel.workload);
                if let Some(workload) =
                    workload.filter(|_| self.traffic.close(channel, Some(reason)))
                {
                    let notice = Notice::Closed { channel, reason: Some(reason) };
                    self.notices.push_back((workload, notice));
                }
            }
            _ => {}
        }
    }

    fn queue_notice(
        &mut self,
        outcome: Result<MessageRecord, Contradiction>,
        notice: impl FnOnce(SendRequest) -> Notice,
    ) {
        match outcome {
            Ok(record) => self.notices.push_back((record.workload, notice(record.request))),
            Err(contradiction) => self.contradictions.push(contradiction),
        }
    }

    fn at(&self, instant: Instant) -> SimTime {
        SimTime::EPOCH + SimSpan::from(instant.since(self.began))
    }

    /// Returns the channel of a host's connection and the host's side of it; `None` if the channel is not open.
    fn side_of(&self, host: usize, connection: ConnectionId) -> Option<(ChannelId, Side)> {
        let channel = *self.connections[host].get(&connection)?;
        let is_open = self.traffic.channel(channel)?.state != ChannelState::Closed;
        let host = NodeId(u32::try_from(host).expect("a lab has few hosts"));
        let side = self.traffic.side_of(channel, host, connection)?;
        is_open.then_some((channel, side))
    }

    fn bind(&mut self, id: ChannelId, side: Side, connection: ConnectionId) {
        if let Some(channel) = self.traffic.channel_mut(id) {
            channel.connections[side.index()] = Some(connection);
            self.connections[channel.hosts[side.index()].index()].insert(connection, id);
        }
    }

    fn set_state(&mut self, channel: ChannelId, state: ChannelState) {
        if let Some(channel) = self.traffic.channel_mut(channel) {
            channel.state = state;
        }
    }

    /// Sets up both ends of a channel without a handshake.
    fn join(&mut self, channel: ChannelId, from: NodeId, to: NodeId) {
        let now = self.crew.now();
        let pair = [from.index(), to.index()];
        let ends = self.crew.agents().get_disjoint_mut(pair);
        let [a, b] = ends.expect("the ends are different hosts");
        let at = (a.local(), b.local());
        let joined = Endpoint::join(now, (a.endpoint(), at.0), (b.endpoint(), at.1));
        if let Ok((opener, peer)) = joined {
            self.bind(channel, Side::Opener, opener);
            self.bind(channel, Side::Peer, peer);
            self.set_state(channel, ChannelState::Open);
        }
    }

    fn connect(&mut self, channel: ChannelId, from: NodeId, to: NodeId) {
        let (now, peer) = (self.crew.now(), self.crew.agents()[to.index()].local());
        let opener = self.crew.agents()[from.index()].endpoint();
        // If a host is at its limit, the channel never opens.
        if let Ok(connection) = opener.connect(now, peer, channel.0.into()) {
            self.bind(channel, Side::Opener, connection);
        }
    }

    /// Submits the messages that wait on a channel, as far as the engine accepts them.
    fn submit_waiting(&mut self, id: ChannelId, side: Side) {
        let Some(channel) = self.traffic.channel(id) else { return };
        let host = channel.hosts[side.index()].index();
        let Some(connection) = channel.connections[side.index()] else { return };
        let Some(mut waiting) = self.waiting.remove(&(id, side.index())) else { return };
        let now = self.crew.now();
        let engine = Agent::endpoint(&mut self.crew.agents()[host]);
        waiting.retain(|&message| {
            let Some(record) = self.traffic.message(message) else { return false };
            let length = record.request.length;
            let message = Message { token: message.0.into(), opcode: 0, tag: 0, length };
            engine.submit(now, connection, message).is_err()
        });
        if !waiting.is_empty() {
            self.waiting.insert((id, side.index()), waiting);
        }
    }
}

impl Stage for Wire {
    fn now(&self) -> SimTime {
        self.now
    }

    fn open(&mut self, workload: u32, from: NodeId, to: NodeId) -> ChannelId {
        let channel = self.traffic.add(workload, [from, to]);
        match self.handshake {
            true => self.connect(channel, from, to),
            false => self.join(channel, from, to),
        }
        channel
    }

    fn send(&mut self, workload: u32, request: SendRequest) {
        let message = self.traffic.begin(request, workload, self.now);
        self.waiting.entry((request.channel, request.from.index())).or_default().push(message);
        self.submit_waiting(request.channel, request.from);
    }

    fn close(&mut self, id: ChannelId) {
        let Some(channel) = self.traffic.channel(id) else { return };
        let opener = channel.hosts[Side::Opener.index()].index();
        if let Some(connection) = channel.connections[Side::Opener.index()] {
            let now = self.crew.now();
            self.crew.agents()[opener].endpoint().close(now, connection);
        }
    }

    fn wake(&mut self, workload: u32, at: SimTime, token: u64) {
        self.timers.insert((at, workload, token));
    }

    fn wake_at(&mut self, workload: u32, _: NodeId, at: SimTime, token: u64) {
        self.wake(workload, at, token);
    }
}
