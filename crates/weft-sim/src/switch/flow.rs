//! Flows as switches identify them, and a table with a switch's state for each.

use std::collections::BTreeMap;

use weft_topo::NodeId;

use crate::packet::{Hop, PacketPool};
use crate::time::{SimSpan, SimTime};

/// The fields of the five-tuple that differ here: source, destination, UDP source port. A host that changes the
/// entropy of a connection makes another flow of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Flow(u64);

impl Flow {
    /// Returns the flow that a packet belongs to.
    #[inline]
    pub fn of(hop: Hop, packets: &PacketPool) -> Self {
        let slot = packets.get(hop.packet());
        Self::between(slot.source, hop.destination(), slot.source_port)
    }

    /// Returns the flow between two hosts with source port `port`. Node numbers have fewer than 24 bits.
    pub const fn between(source: NodeId, destination: NodeId, port: u16) -> Self {
        Self((source.0 as u64) << 40 | (destination.0 as u64) << 16 | port as u64)
    }

    /// Returns the flow as a number, for timers.
    pub const fn token(self) -> u64 {
        self.0
    }

    /// Returns the flow of a number that [`Self::token`] returned.
    pub const fn from_token(token: u64) -> Self {
        Self(token)
    }
}

/// The state that one switch keeps for each flow until the flow has been idle for a while.
#[derive(Debug)]
pub struct FlowTable<T> {
    entries: BTreeMap<Flow, Entry<T>>,
    aging: SimSpan,
    sweep_at: SimTime,
}

/// A flow's state, with the time of its latest packet.
#[derive(Debug, Default)]
struct Entry<T> {
    last_seen: SimTime,
    state: T,
}

impl<T: Default> FlowTable<T> {
    /// Returns a table that forgets a flow after an idle time between one and two `aging`.
    pub const fn new(aging: SimSpan) -> Self {
        Self { entries: BTreeMap::new(), aging, sweep_at: SimTime::EPOCH }
    }

    /// Records a packet of `flow`; returns the time since the flow's previous packet and its state. A new flow has the
    /// longest time and the default state.
    pub fn pass(&mut self, flow: Flow, now: SimTime) -> (SimSpan, &mut T) {
        if now >= self.sweep_at {
            self.sweep(now);
        }
        let mut idle = SimSpan::MAX;
        let entry = self.entries.entry(flow);
        let entry = entry.and_modify(|entry| idle = now.since(entry.last_seen)).or_default();
        entry.last_seen = now;
        (idle, &mut entry.state)
    }

    /// Returns a flow's state without recording a packet.
    pub fn recall(&mut self, flow: Flow) -> Option<&mut T> {
        self.entries.get_mut(&flow).map(|entry| &mut entry.state)
    }

    /// Removes idle flows.
    fn sweep(&mut self, now: SimTime) {
        self.sweep_at = now + self.aging;
        self.entries.retain(|_, entry| now.since(entry.last_seen) <= self.aging);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGING: SimSpan = SimSpan::from_picos(100);

    fn at(picos: u64) -> SimTime {
        SimTime::from_picos(picos)
    }

    #[test]
    fn hosts_and_ports_make_flows_that_differ() {
        let flow =
            |source, destination, port| Flow::between(NodeId(source), NodeId(destination), port);
        let all = [flow(1, 2, 3), flow(2, 1, 3), flow(1, 2, 4), flow(1, 3, 3), flow(0, 2, 3)];
        for (index, one) in all.iter().enumerate() {
            assert!(all[..index].iter().all(|other| other != one), "{one:?}");
        }
    }

    #[test]
    fn a_table_returns_a_flows_idle_time_and_forgets_idle_flows() {
        let mut table = FlowTable::<u32>::new(AGING);
        let [one, other] = [3, 4].map(|port| Flow::between(NodeId(1), NodeId(2), port));
        assert_eq!(table.pass(one, at(10)), (SimSpan::MAX, &mut 0));
        *table.pass(one, at(30)).1 = 7;
        assert_eq!(table.pass(one, at(60)), (SimSpan::from_picos(30), &mut 7));
        assert_eq!(table.recall(one), Some(&mut 7));
        // The sweep at 110 keeps it, the next one does not.
        table.pass(other, at(110));
        assert_eq!(table.recall(one), Some(&mut 7));
        table.pass(other, at(210));
        assert_eq!(table.recall(one), None);
        assert_eq!(table.pass(one, at(215)), (SimSpan::MAX, &mut 0));
    }
}
