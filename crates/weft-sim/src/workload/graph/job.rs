//! The execution of a graph.
//!
//! A node starts when all that it waits for has happened. A rank acts at its own host; a node that waits for nodes of
//! other hosts starts one lookahead later, as its session schedules it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};

use weft_topo::NodeId;

use super::collectives::{Action, Collectives, Over};
use super::ranks::Ranks;
use super::tag::{LOCAL, Subject};
use crate::graph::{Graph, Matching, Op, When};
use crate::time::{SimSpan, SimTime};
use crate::traffic::{ChannelId, Notice, SendRequest, Side};
use crate::workload::{Connections, Iteration, Workload};
use crate::world::Session;

/// The longest message of a channel, bytes; longer ones are sent in pieces.
const MAX_MESSAGE: u64 = 1 << 30;

/// The workload: a graph in execution.
#[derive(Debug)]
pub(super) struct Job {
    graph: Graph,
    ranks: Ranks,
    connections: Connections,
    /// The start of the graph.
    start: SimTime,
    /// Number of events each node waits for.
    waits: Vec<u32>,
    /// The latest event that a node has waited for, while it waits for more: hosts are simulated one after another, so
    /// that the last event processed may not be the latest.
    latest: BTreeMap<u32, SimTime>,
    matching: Vec<Matching>,
    units: BTreeMap<(u32, u8), Unit>,
    collectives: Collectives,
    /// Number of dependents that a relay has started.
    relayed: BTreeMap<u32, usize>,
    /// The nodes that are to start now, in order.
    ready: VecDeque<u32>,
    /// The channels of pairs of hosts.
    channels: BTreeMap<(NodeId, NodeId), ChannelId>,
    /// The channels of single flows that are not done.
    flows: BTreeSet<ChannelId>,
    /// Number of nodes that are not done.
    left: usize,
    /// Number of messages sent, and of those that are acknowledged.
    sent: u64,
    acknowledged: u64,
    /// `true` if a channel closed under a message: the graph will never end.
    broken: bool,
    finished: Vec<Iteration>,
}

/// A unit of a rank that computes one node at a time.
#[derive(Debug, Default)]
struct Unit {
    is_busy: bool,
    ready: BinaryHeap<Reverse<u32>>,
}

impl Job {
    pub(super) fn new(
        graph: Graph,
        ranks: Ranks,
        connections: Connections,
        start: SimTime,
        collectives: Collectives,
    ) -> Self {
        Self {
            waits: graph.dependency_counts(),
            matching: graph.matching(),
            left: graph.nodes().len(),
            graph,
            ranks,
            connections,
            start,
            latest: BTreeMap::new(),
            units: BTreeMap::new(),
            collectives,
            relayed: BTreeMap::new(),
            ready: VecDeque::new(),
            channels: BTreeMap::new(),
            flows: BTreeSet::new(),
            sent: 0,
            acknowledged: 0,
            broken: false,
            finished: Vec::new(),
        }
    }

    /// Starts every node that waits for nothing.
    fn begin(&mut self, session: &mut Session<'_>) {
        let roots = (0u32..).zip(&self.waits).filter(|&(_, &waits)| waits == 0);
        self.ready = roots.map(|(node, _)| node).collect();
        self.start_ready(session);
    }

    /// Starts the nodes that are ready, and those that become ready by it.
    fn start_ready(&mut self, session: &mut Session<'_>) {
        while let Some(node) = self.ready.pop_front() {
            let rank = self.graph.nodes()[node as usize].rank;
            match self.latest.remove(&node).filter(|&at| at > session.now()) {
                Some(at) => {
                    session.wake_at(self.ranks.host(rank), at, Subject::Start(node).to_tag());
                }
                None => self.begin_node(node, session),
            }
        }
    }

    fn begin_node(&mut self, node: u32, session: &mut Session<'_>) {
        let rank = self.graph.nodes()[node as usize].rank;
        self.notify(node, When::Started, session.now());
        match self.graph.nodes()[node as usize].op {
            Op::Join | Op::Relay => self.finish(node, session),
            Op::Delay(span) => self.wake(node, session.now() + span, session),
            Op::Compute { unit, .. } => {
                self.units.entry((rank, unit)).or_default().ready.push(Reverse(node));
                self.compute_next((rank, unit), session);
            }
            Op::Send { to, bytes, .. } => {
                self.send(rank, to, bytes, Subject::Node(node), session);
            }
            Op::Receive { from, tag } => {
                if self.matching[rank as usize].post(node, from, tag) {
                    self.finish(node, session);
                }
            }
            Op::Collective(number) => {
                let place = self.place(number, rank);
                self.collectives.join(number, place, node, &self.graph, session.now());
                self.advance(number, place, session);
            }
        }
    }

    /// Returns the place of a rank in the group of an operation.
    fn place(&self, number: u32, rank: u32) -> usize {
        let group = self.graph.operations()[number as usize].group;
        let ranks = &self.graph.groups()[group as usize];
        ranks.iter().position(|&other| other == rank).expect("checked when it was built")
    }

    fn wake(&self, node: u32, at: SimTime, session: &mut Session<'_>) {
        let rank = self.graph.nodes()[node as usize].rank;
        session.wake_at(self.ranks.host(rank), at, Subject::Node(node).to_tag());
    }

    /// Starts the lowest node that is ready on a unit, if the unit is free.
    fn compute_next(&mut self, key: (u32, u8), session: &mut Session<'_>) {
        let unit = self.units.entry(key).or_default();
        if unit.is_busy {
            return;
        }
        let Some(Reverse(node)) = unit.ready.pop() else { return };
        unit.is_busy = true;
        let Op::Compute { span, .. } = self.graph.nodes()[node as usize].op else { return };
        self.wake(node, session.now() + span, session);
    }

    /// Ends a node that took time.
    fn on_time(&mut self, node: u32, session: &mut Session<'_>) {
        let work = self.graph.nodes()[node as usize];
        self.finish(node, session);
        if let Op::Compute { unit, .. } = work.op {
            let key = (work.rank, unit);
            self.units.entry(key).or_default().is_busy = false;
            self.start_ready(session);
            self.compute_next(key, session);
        }
    }

    /// Advances a rank in a collective as far as possible.
    fn advance(&mut self, number: u32, place: usize, session: &mut Session<'_>) {
        loop {
            match self.collectives.next(number, place, session.now()) {
                Action::Wait => return,
                Action::Send { to, bytes } => {
                    let group = self.graph.operations()[number as usize].group;
                    let ranks = &self.graph.groups()[group as usize];
                    let (rank, peer) = (ranks[place], ranks[to]);
                    let small = |place: usize| u16::try_from(place).expect("at most 2,048 ranks");
                    let (from, to) = (small(place), small(to));
                    let subject = Subject::Part { operation: number, from, to };
                    self.send(rank, peer, bytes, subject, session);
                }
                Action::Done { node, over } => {
                    if let Some(over) = over {
                        self.record(&over);
                    }
                    self.finish(node, session);
                    return;
                }
            }
        }
    }

    /// Adds a finished collective to the report.
    #[expect(clippy::cast_precision_loss, reason = "sizes of a report")]
    fn record(&mut self, over: &Over) {
        let operation = self.graph.operations()[over.operation as usize];
        let ranks = self.graph.groups()[operation.group as usize].len();
        // A collective of one rank takes no time.
        let time = over.latest.since(over.began).max(SimSpan::from_picos(1));
        let bits = operation.kind.bus_factor(ranks) * operation.bytes as f64 * 8.0;
        self.finished.push(Iteration {
            start_us: over.began.since(SimTime::EPOCH).as_micros_f64(),
            time_us: time.as_micros_f64(),
            bus_gbps: bits / time.as_secs_f64() / 1e9,
            shares: None,
        });
    }

    /// Sends a message to a rank, over the network or inside its server.
    fn send(&mut self, rank: u32, to: u32, bytes: u64, about: Subject, session: &mut Session<'_>) {
        let (source, destination) = (self.ranks.host(rank), self.ranks.host(to));
        if let Some(at) = self.ranks.local_arrival(rank, to, bytes, session.now()) {
            return session.wake_at(destination, at, about.to_tag() | LOCAL);
        }
        let mut open = || session.open(source, destination);
        let channel = match self.connections {
            Connections::PerFlow => open(),
            Connections::PerPair => {
                *self.channels.entry((source, destination)).or_insert_with(open)
            }
        };
        if self.connections == Connections::PerFlow {
            self.flows.insert(channel);
        }
        let mut left = bytes.max(1);
        while left > 0 {
            let length = left.min(MAX_MESSAGE);
            left -= length;
            self.sent += 1;
            let subject = if left == 0 { about } else { Subject::Piece };
            session.send(SendRequest {
                channel,
                from: Side::Opener,
                length: u32::try_from(length).expect("at most 2^30"),
                tag: subject.to_tag(),
                recorded: matches!(about, Subject::Node(_)),
            });
        }
    }

    /// Handles the arrival of a message.
    fn arrived(&mut self, subject: Subject, session: &mut Session<'_>) {
        match subject {
            Subject::Node(node) => {
                let sender = self.graph.nodes()[node as usize];
                self.notify(node, When::Delivered, session.now());
                if let Op::Send { to, tag, .. } = sender.op
                    && let Some(receiver) = self.matching.get_mut(to as usize)
                    && let Some(receive) = receiver.arrive(sender.rank, tag)
                {
                    self.finish(receive, session);
                }
            }
            Subject::Part { operation, from, to } => {
                let (from, to) = (usize::from(from), usize::from(to));
                self.collectives.arrive(operation, from, to, &self.graph, session.now());
                self.advance(operation, to, session);
            }
            Subject::Start(_) | Subject::Piece => {}
        }
    }

    /// Ends a node.
    fn finish(&mut self, node: u32, session: &mut Session<'_>) {
        self.left -= 1;
        if self.graph.nodes()[node as usize].op != Op::Relay {
            self.notify(node, When::Done, session.now());
        }
    }

    /// Notifies the dependents of a node of an event.
    fn notify(&mut self, node: u32, event: When, now: SimTime) {
        let graph = std::mem::take(&mut self.graph);
        for (dependent, _) in graph.dependents(node).filter(|(_, when)| *when == event) {
            self.release(dependent, now, &graph);
        }
        self.graph = graph;
    }

    /// Counts an event that a node waited for.
    fn release(&mut self, node: u32, now: SimTime, graph: &Graph) {
        let waits = &mut self.waits[node as usize];
        *waits -= 1;
        if *waits == 0 {
            self.ready.push_back(node);
        } else {
            let latest = self.latest.entry(node).or_insert(now);
            *latest = now.max(*latest);
        }
        if graph.nodes()[node as usize].op == Op::Relay {
            let number = self.relayed.entry(node).or_default();
            let next = graph.dependent(node, *number);
            *number += 1;
            if let Some(dependent) = next {
                self.release(dependent, now, graph);
            }
        }
    }

    /// Handles an acknowledgement: a send is done, and its channel is closed if no other flow uses it.
    fn on_acknowledged(&mut self, request: SendRequest, session: &mut Session<'_>) {
        self.acknowledged += 1;
        let subject = Subject::from_tag(request.tag);
        if subject != Subject::Piece && self.flows.remove(&request.channel) {
            session.close(request.channel);
        }
        if let Subject::Node(node) = subject {
            self.finish(node, session);
        }
    }
}

impl Workload for Job {
    fn start(&mut self, session: &mut Session<'_>) {
        if self.start <= session.now() {
            self.begin(session);
        } else {
            session.wake(self.start, Subject::Piece.to_tag());
        }
    }

    fn on_notice(&mut self, notice: &Notice, session: &mut Session<'_>) {
        match *notice {
            Notice::Woken { token } => match (token & LOCAL != 0, Subject::from_tag(token)) {
                (true, subject) => {
                    self.arrived(subject, session);
                    // Inside a server nothing is lost, and the sender learns of it at the same time.
                    if let Subject::Node(node) = subject {
                        self.finish(node, session);
                    }
                }
                (false, Subject::Piece) => return self.begin(session),
                (false, Subject::Start(node)) => self.begin_node(node, session),
                (false, Subject::Node(node)) => self.on_time(node, session),
                (false, Subject::Part { .. }) => {}
            },
            Notice::Delivered { request } => self.arrived(Subject::from_tag(request.tag), session),
            Notice::Acknowledged { request } => self.on_acknowledged(request, session),
            Notice::Closed { channel, .. } => {
                // A flow's own channel is closed when the flow is done.
                self.broken |= self.connections == Connections::PerPair;
                self.broken |= self.flows.contains(&channel);
            }
        }
        self.start_ready(session);
    }

    fn is_done(&self) -> bool {
        self.broken || self.left == 0 && self.acknowledged == self.sent
    }

    fn iterations(&self) -> &[Iteration] {
        &self.finished
    }
}
