//! A list of flows, each with its start; a permutation is one flow from each host to another.

use weft_topo::NodeId;
use weft_units::Seed;

use super::Workload;
use crate::time::SimTime;
use crate::traffic::{Notice, Order, Side};
use crate::world::Session;

/// One flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Who sends.
    pub source: NodeId,
    /// Who receives.
    pub destination: NodeId,
    /// Bytes.
    pub length: u32,
    /// When it starts.
    pub start: SimTime,
}

/// A list of flows, each on its own channel.
#[derive(Debug)]
pub struct Flows {
    flows: Vec<Flow>,
    left: usize,
}

impl Flows {
    /// These flows.
    pub fn new(flows: Vec<Flow>) -> Self {
        Self { left: flows.len(), flows }
    }

    /// One flow of `length` bytes from each of `hosts` hosts to another, all starting at once. Each
    /// host receives one.
    pub fn permutation(hosts: u32, length: u32, seed: Seed) -> Self {
        let mut ring: Vec<u32> = (0..hosts).collect();
        seed.rng().shuffle(&mut ring);
        // Neighbours on a random ring are never the same host.
        let next = ring.iter().cycle().skip(1);
        let flow = |(&source, &destination): (&u32, &u32)| Flow {
            source: NodeId(source),
            destination: NodeId(destination),
            length,
            start: SimTime::EPOCH,
        };
        Self::new(ring.iter().zip(next).map(flow).collect())
    }

    fn begin(&self, index: usize, session: &mut Session<'_>) {
        let flow = self.flows[index];
        let channel = session.open(flow.source, flow.destination);
        let (from, length, tag) = (Side::Opener, flow.length, index as u64);
        session.send(Order { channel, from, length, tag, recorded: true });
    }
}

impl Workload for Flows {
    fn start(&mut self, session: &mut Session<'_>) {
        for (index, flow) in self.flows.iter().enumerate() {
            session.wake(flow.start, index as u64);
        }
    }

    fn notice(&mut self, notice: &Notice, session: &mut Session<'_>) {
        match notice {
            Notice::Woken { token } => {
                self.begin(usize::try_from(*token).expect("an index of ours"), session);
            }
            Notice::Sent { .. } | Notice::Closed { .. } => self.left = self.left.saturating_sub(1),
            Notice::Delivered { .. } => {}
        }
    }

    fn is_done(&self) -> bool {
        self.left == 0
    }
}
