//! A list of flows with known start times, from which most workloads are made.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_topo::NodeId;
use weft_units::Seed;

use super::{Workload, random_ring};
use crate::time::SimTime;
use crate::traffic::{ChannelId, Notice, SendRequest, Side};
use crate::world::Session;

/// One flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// The host that sends.
    pub source: NodeId,
    /// The host that receives.
    pub destination: NodeId,
    /// The flow's length, bytes.
    pub length: u32,
    /// The start of the flow.
    pub start: SimTime,
}

/// The flows that share a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Connections {
    /// No sharing: each flow has its own connection, which is closed when the flow has finished.
    #[default]
    PerFlow,
    /// One connection for all flows from one host to another, which are delivered in the order they started.
    PerPair,
}

/// A workload that sends a list of flows.
#[derive(Debug)]
pub struct Flows {
    flows: Vec<Flow>,
    connections: Connections,
    /// The open channel of each pair, if flows share connections.
    open: BTreeMap<(NodeId, NodeId), ChannelId>,
    /// Number of unfinished flows on each channel.
    unfinished: BTreeMap<ChannelId, usize>,
    /// Number of flows that have not finished, those that have not started included.
    remaining: usize,
}

impl Flows {
    /// Returns a workload of these flows, each on its own connection.
    pub fn new(flows: Vec<Flow>) -> Self {
        Self::over(Connections::PerFlow, flows)
    }

    /// Returns a workload of these flows; `connections` selects the flows that share a connection.
    pub fn over(connections: Connections, mut flows: Vec<Flow>) -> Self {
        flows.sort_by_key(|flow| flow.start);
        Self {
            remaining: flows.len(),
            flows,
            connections,
            open: BTreeMap::new(),
            unfinished: BTreeMap::new(),
        }
    }

    /// Returns one flow of `length` bytes from each host to another, all starting at `start`. Each host receives one
    /// flow.
    pub fn permutation(hosts: Vec<NodeId>, length: u32, start: SimTime, seed: Seed) -> Self {
        let flow = |(source, destination)| Flow { source, destination, length, start };
        Self::new(random_ring(hosts, seed).into_iter().map(flow).collect())
    }

    /// Returns `true` if no two flows that start until `now` have one source.
    fn have_distinct_sources(&self, now: SimTime) -> bool {
        let mut begun = self.flows.iter().filter(|flow| flow.start <= now);
        let mut sources = BTreeSet::new();
        begun.all(|flow| sources.insert(flow.source))
    }

    /// Opens a flow's channel, if there is none, and sends the flow.
    fn begin(&mut self, index: usize, session: &mut Session<'_>) {
        let channel = self.channel(index, session);
        self.send(index, channel, session);
    }

    /// Sends a flow on a channel.
    fn send(&mut self, index: usize, channel: ChannelId, session: &mut Session<'_>) {
        let flow = self.flows[index];
        let (from, length, tag) = (Side::Opener, flow.length, index as u64);
        session.send(SendRequest { channel, from, length, tag, recorded: true });
    }

    /// Returns the channel of a flow that begins, opened if there is none.
    fn channel(&mut self, index: usize, session: &mut Session<'_>) -> ChannelId {
        let flow = self.flows[index];
        let mut open = || session.open(flow.source, flow.destination);
        let channel = match self.connections {
            Connections::PerFlow => open(),
            Connections::PerPair => {
                *self.open.entry((flow.source, flow.destination)).or_insert_with(open)
            }
        };
        *self.unfinished.entry(channel).or_default() += 1;
        channel
    }

    /// Counts a finished flow, and closes its channel if no other flow uses it.
    fn finish(&mut self, channel: ChannelId, session: &mut Session<'_>) {
        self.remaining = self.remaining.saturating_sub(1);
        let Some(unfinished) = self.unfinished.get_mut(&channel) else { return };
        *unfinished -= 1;
        if *unfinished == 0 {
            self.unfinished.remove(&channel);
            if self.connections == Connections::PerFlow {
                session.close(channel);
            }
        }
    }
}

impl Workload for Flows {
    fn start(&mut self, session: &mut Session<'_>) {
        let now = session.now();
        // If no host sends two flows, all channels open first, so that several threads can submit the messages.
        let opens_first = self.have_distinct_sources(now);
        let mut begun = Vec::new();
        for index in 0..self.flows.len() {
            let Flow { source, start, .. } = self.flows[index];
            if start > now {
                session.wake_at(source, start, index as u64);
            } else if opens_first {
                begun.push((index, self.channel(index, session)));
            } else {
                self.begin(index, session);
            }
        }
        for (index, channel) in begun {
            self.send(index, channel, session);
        }
    }

    fn on_notice(&mut self, notice: &Notice, session: &mut Session<'_>) {
        match notice {
            Notice::Woken { token } => {
                self.begin(usize::try_from(*token).expect("an index of ours"), session);
            }
            Notice::Acknowledged { request } => self.finish(request.channel, session),
            Notice::Closed { channel, .. } => {
                self.remaining -= self.unfinished.remove(channel).unwrap_or(0);
                self.open.retain(|_, open| open != channel);
            }
            Notice::Delivered { .. } => {}
        }
    }

    fn opens_during_run(&self) -> bool {
        self.flows.iter().any(|flow| flow.start > SimTime::EPOCH)
    }

    fn acts_only_when_acknowledged(&self) -> bool {
        true
    }

    fn is_done(&self) -> bool {
        self.remaining == 0
    }
}
