//! The simulator's inner loop: packets that a switch does nothing with but send them on.

use std::slice::Iter;

use weft_topo::NodeId;

use super::Fabric;
use crate::event::Events;
use crate::link::Condition;
use crate::packet::Hop;
use crate::switch::Forwarding;
use crate::time::SimTime;

impl Fabric {
    /// Sends on the packets that arrive at `switch` in its turn, named by `arrivals`.
    #[inline(never)]
    pub fn forward_all(&mut self, switch: NodeId, arrivals: &[u64], events: &mut Events) {
        let mut arrivals = arrivals.iter();
        while let Some((now, hop)) = self.forward_plain(switch, &mut arrivals, events) {
            self.forward(now, hop, events);
        }
    }

    /// Sends on packets until there is one with which there is more to do, and gives that: a link that
    /// is down or faulty, a queue that may mark, a buffer that may be full, a model that wants to see it.
    ///
    /// What all packets of the turn need is found once. Nothing that is rare happens in here, so what is
    /// frequent stays in the processor's registers.
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
        let Some(choice) = choice else { return arrivals.next().map(|&name| events.arrival(name)) };
        let (routes, mut room) = (routes.at(switch), buffers.room(index));
        for &name in arrivals {
            let (now, hop) = events.arrival(name);
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
