//! Events on their way from one part of the world to another.
//!
//! Each pair of parts has a mailbox. Its sender fills it while parts run side by side, and its receiver empties it
//! before the next windows. The headers of a packet that arrives stay in the pool that all parts share.

use super::{Events, Packed};
use crate::event_queue::AtNode;
use crate::time::SimTime;

/// Number of events between the prefetch of what an event needs and its use.
const AHEAD: usize = 16;

/// The events from one part to another.
#[derive(Debug, Default)]
pub struct Mailbox {
    events: Vec<(SimTime, Packed)>,
    earliest: Option<SimTime>,
}

impl Mailbox {
    /// Returns the time of its earliest event.
    pub fn earliest(&self) -> Option<SimTime> {
        self.earliest
    }

    /// Adds an event.
    fn push(&mut self, at: SimTime, event: Packed) {
        self.events.push((at, event));
        self.earliest = Some(self.earliest.map_or(at, |earliest| earliest.min(at)));
    }
}

impl Events {
    /// See [`EventQueue::part`](crate::EventQueue::part).
    pub fn part(&self, is_own: impl Fn(u32) -> bool) -> Self {
        Self(self.0.part(is_own))
    }

    /// See [`EventQueue::follow`](crate::EventQueue::follow).
    pub fn follow(&mut self, other: &Self) {
        self.0.follow(&other.0);
    }

    /// See [`EventQueue::next_window_with`](crate::EventQueue::next_window_with).
    pub fn next_window_with(&self, mail: Option<SimTime>) -> Option<u64> {
        self.0.next_window_with(mail)
    }

    /// See [`EventQueue::advance_to`](crate::EventQueue::advance_to).
    pub fn advance_to(&mut self, next: Option<u64>, limit: SimTime) -> bool {
        self.0.advance_to(next, limit)
    }

    /// See [`EventQueue::collect_nodes`](crate::EventQueue::collect_nodes).
    pub fn collect_nodes(&mut self) {
        self.0.collect_nodes();
    }

    /// See [`EventQueue::suspend`](crate::EventQueue::suspend).
    pub fn suspend(&mut self) -> SuspendedTurn {
        SuspendedTurn(self.0.suspend())
    }

    /// See [`EventQueue::resume`](crate::EventQueue::resume).
    pub fn resume(&mut self, turn: SuspendedTurn) {
        self.0.resume(turn.0);
    }

    /// Puts the events of other parts' nodes into the mailboxes of those parts. `part_of` is the part of each node.
    pub fn send_mail(&mut self, part_of: &[u16], to: &mut [Mailbox]) {
        self.0.take_elsewhere(|at, event| {
            to[usize::from(part_of[event.node() as usize])].push(at, event);
        });
    }

    /// Puts all events into the mailboxes of the parts of their nodes.
    pub fn send_all(&mut self, part_of: &[u16], to: &mut [Mailbox]) {
        self.0.take_all(|at, event| {
            to[usize::from(part_of[event.node() as usize])].push(at, event);
        });
    }

    /// Schedules the events of a mailbox, and empties it. The pool must know the packets that arrive
    /// ([`PacketPool::follow`](crate::packet::PacketPool::follow)).
    pub fn receive_mail(&mut self, from: &mut Mailbox) {
        for (index, &(at, event)) in from.events.iter().enumerate() {
            if let Some(&(at, later)) = from.events.get(index + AHEAD) {
                self.0.prefetch_end(at, later);
            }
            if let Some(&(at, later)) = from.events.get(index + AHEAD / 2) {
                self.0.prefetch_place(at, later);
            }
            self.0.schedule_received(at, event);
        }
        from.events.clear();
        from.earliest = None;
    }
}

/// The turn of a host, suspended before an event that concerns the whole world.
#[derive(Debug)]
pub struct SuspendedTurn(crate::event_queue::Turn<Packed>);

#[cfg(test)]
mod tests {
    use weft_topo::{LinkId, NodeId};

    use super::*;
    use crate::event::Event;
    use crate::packet::{Hop, PacketPool, PacketSlot};
    use crate::time::SimSpan;

    #[test]
    fn events_of_other_parts_arrive_with_their_packets() {
        let whole = Events::new(SimSpan::from_picos(1_000), vec![0; 4]);
        let (mut sender, mut receiver) =
            (whole.part(|node| node < 2), whole.part(|node| node >= 2));
        let mut whole = PacketPool::default();
        let (mut from, mut to) = (whole.part(), whole.part());
        let mut boxes = [Mailbox::default(), Mailbox::default()];
        // Far enough for the heap, and near enough for the calendar.
        for (number, picos) in [(7, 1 << 40), (8, 500)] {
            let slot = PacketSlot { source_port: number, ..PacketSlot::default() };
            let hop = Hop::new(from.insert(&slot), NodeId(0), NodeId(3), 0, 100);
            let arrival = Event::Arrive(hop.on(LinkId(5), NodeId(3), 0));
            sender.schedule(SimTime::from_picos(picos), arrival);
        }
        sender.schedule(SimTime::from_picos(400), Event::Pull { host: NodeId(1) });
        sender.send_mail(&[0, 0, 1, 1], &mut boxes);
        assert_eq!(boxes.each_ref().map(|mail| mail.events.len()), [0, 2]);
        assert_eq!(boxes[1].earliest(), Some(SimTime::from_picos(500)));
        to.follow();
        receiver.receive_mail(&mut boxes[1]);
        assert_eq!((boxes[1].events.len(), boxes[1].earliest()), (0, None));
        let mut arrived = Vec::new();
        while receiver.begin(SimTime::from_picos(1 << 41)) {
            while receiver.next_node().is_some() {
                while let Some((at, hop)) = receiver.pop_arrival() {
                    arrived.push((at.as_picos(), to.get(hop.packet()).source_port));
                    to.remove(hop.packet());
                }
            }
        }
        assert_eq!(arrived, [(500, 8), (1 << 40, 7)]);
        assert!(sender.begin(SimTime::from_picos(1_000)), "the sender keeps its own event");
        whole.take(&mut from);
        whole.take(&mut to);
        assert_eq!(whole.live(), 0);
    }
}
