//! The simulator's inner loop: packets that a switch only forwards.

use std::slice::Iter;

use weft_topo::NodeId;

use super::Fabric;
use crate::event::Events;
use crate::link::Condition;
use crate::packet::Hop;
use crate::switch::Forwarding;
use crate::time::SimTime;

impl Fabric {
    /// Forwards the packets that arrive at `switch` in its turn; `arrivals` are their keys ([`Events::take_turn`]).
    #[inline(never)]
    pub fn forward_all(&mut self, switch: NodeId, arrivals: &[u64], events: &mut Events) {
        let mut arrivals = arrivals.iter();
        while let Some((now, hop)) = self.forward_plain(switch, &mut arrivals, events) {
            self.forward(now, hop, events);
        }
    }

    /// Forwards packets until one needs more work, and returns that one: its link is down or faulty, its queue may
    /// mark, its buffer may be full, it has no route, or the model must choose its link.
    ///
    /// The state that all packets of the turn need is loaded once. Rare cases are handled outside, so that the
    /// frequent case stays in the processor's registers.
    #[inline(always)]
    fn forward_plain(
        &mut self,
        switch: NodeId,
        arrivals: &mut Iter<'_, u64>,
        events: &mut Events,
    ) -> Option<(SimTime, Hop)> {
        let Self { routes, links, classes, buffers, hops, .. } = self;
        let index = (switch.0 - self.hosts) as usize;
        let choice = match &self.forwarding {
            Forwarding::Ecmp(hash) if !self.epochs_matter => hash.choice(index),
            _ => None,
        };
        let choice = choice.filter(|_| !events.until().is_remote());
        let Some(choice) = choice else { return arrivals.next().map(|&key| events.arrival(key)) };
        let (routes, mut room) = (routes.at(switch), buffers.room(index));
        for &key in arrivals {
            let (now, hop) = events.arrival(key);
            let candidates = routes.next_links(hop.destination());
            if candidates.is_empty() {
                return Some((now, hop));
            }
            let link = candidates[choice.of(hop.hash(), candidates.len())];
            let state = &mut links[link.index()];
            let class = &classes[usize::from(state.class)];
            let is_plain = state.condition == Condition::Healthy && !state.busy_until.is_remote();
            let queue = state.busy_until.since_either(now) + class.pace.serialisation(hop.size());
            let is_short = queue <= class.accepts_up_to;
            if !is_plain || !is_short || !room.take(class.accepts_bytes, hop.size()) {
                return Some((now, hop));
            }
            let departure = state.accept_queue(now, queue, hop.size());
            let onward = hop.past_switch().on(link, NodeId(state.to), state.epoch);
            events.schedule_onward(departure + class.propagation, onward);
            *hops += 1;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use weft_topo::build::LeafSpine;
    use weft_units::{ByteCount, Seed};

    use super::*;
    use crate::fabric::FabricConfig;
    use crate::packet::PacketSlot;
    use crate::queue::QueueConfig;
    use crate::switch::buffer::BufferConfig;
    use crate::switch::{ForwardingConfig, Kind};
    use crate::time::SimSpan;

    /// Returns a fabric with small queues and buffers, and its events.
    fn fabric(forwarding: Kind) -> (Fabric, Events) {
        let topology = LeafSpine::default().build().unwrap();
        let (ecn_min, ecn_max) = (ByteCount(6_000), ByteCount(30_000));
        let config = FabricConfig {
            queue: QueueConfig { limit: ByteCount(50_000), ecn_min, ecn_max, ..Default::default() },
            buffer: BufferConfig { size: ByteCount(200_000), alpha: 1.0 },
            forwarding: ForwardingConfig { kind: forwarding, ..Default::default() },
            ..Default::default()
        };
        let nodes = (topology.hosts() + topology.switches()) as usize;
        let fabric = Fabric::new(topology, &config, Seed(1)).unwrap();
        let events = Events::new(fabric.lookahead(), vec![0; nodes]);
        (fabric, events)
    }

    /// Returns the start of a round, which lasts a millisecond.
    fn beginning(round: u64) -> SimTime {
        SimTime::from_picos(round * 1_000_000_000)
    }

    /// Injects four packets for each host at the start of a round, most of them to few hosts.
    fn inject(fabric: &mut Fabric, events: &mut Events, round: u64) {
        let mut rng = Seed(round).rng();
        for packet in 0..4 * fabric.hosts {
            let source = NodeId(packet % fabric.hosts);
            let among = if rng.chance(1, 2) { 8 } else { fabric.hosts.into() };
            let destination = NodeId(u32::try_from(rng.below(among)).unwrap());
            let size = u16::try_from(64 + rng.below(4_000)).unwrap();
            let slot = fabric.packets.insert(&PacketSlot::default());
            let hop = Hop::new(slot, source, destination, rng.next_u32(), size);
            let (up, at) = (
                fabric.topology.ports(source)[0],
                beginning(round) + SimSpan::from_picos(rng.below(99)),
            );
            let hop = hop.on(up, fabric.topology.link(up).to, 0);
            events.schedule(at, crate::event::Event::Arrive(hop));
        }
    }

    /// Serves a round; returns the packets that reach hosts, and the fabric's counters.
    fn serve(
        fabric: &mut Fabric,
        events: &mut Events,
        round: u64,
        mut switch: impl FnMut(&mut Fabric, NodeId, &mut Events),
    ) -> String {
        let mut arrived = Vec::new();
        while events.begin(beginning(round + 1)) {
            while let Some(node) = events.next_node() {
                if node.0 < fabric.hosts {
                    arrived.extend(std::iter::from_fn(|| events.pop_arrival()));
                } else {
                    switch(fabric, node, events);
                }
            }
        }
        let Fabric { counters, links, tallies, hops, .. } = fabric;
        format!("{arrived:?} {counters:?} {links:?} {tallies:?} {hops}")
    }

    #[test]
    fn the_fast_loop_agrees_with_forwarding_each_packet_alone() {
        for kind in [Kind::Ecmp, Kind::Random] {
            let (mut fast, mut fast_events) = fabric(kind);
            let (mut slow, mut slow_events) = fabric(kind);
            for round in 0..10 {
                if round == 5 {
                    let up = fast.topology.ports(NodeId(fast.hosts))[20];
                    fast.take_down(SimTime::EPOCH, up);
                    slow.take_down(SimTime::EPOCH, up);
                }
                inject(&mut fast, &mut fast_events, round);
                inject(&mut slow, &mut slow_events, round);
                let together = serve(&mut fast, &mut fast_events, round, |fabric, node, events| {
                    let arrivals = events.take_turn();
                    fabric.forward_all(node, &arrivals, events);
                    events.end_turn(arrivals);
                });
                let alone = serve(&mut slow, &mut slow_events, round, |fabric, _, events| {
                    while let Some((now, hop)) = events.pop_arrival() {
                        fabric.forward(now, hop, events);
                    }
                });
                assert_eq!(together, alone, "{kind:?}, round {round}");
            }
            assert!(slow.counters.marked > 0 && slow.counters.lost[0] > 0, "nothing was too much");
            assert!(slow.counters.lost[2] > 0, "nothing was down: {:?}", slow.counters);
        }
    }
}
