//! Events on their way from one part of the world to another, with the headers of the packets that arrive.
//!
//! Each pair of parts has a mailbox. Its sender fills it while parts run side by side, and its receiver empties it
//! before the next windows; the packets move from one part's pool to the other's.

use super::{Events, Packed};
use crate::event_queue::AtNode;
use crate::packet::{PacketPool, PacketSlot};
use crate::time::SimTime;

/// Number of events between the prefetch of what an event needs and its use.
const AHEAD: usize = 16;

/// The events from one part to another.
#[derive(Debug, Default)]
pub struct Mailbox {
    events: Vec<(SimTime, Packed)>,
    /// Number of events whose packets are in `slots`.
    copied: usize,
    /// The headers of the packets that arrive, in the order of their arrivals in `events`.
    slots: Vec<PacketSlot>,
    earliest: Option<SimTime>,
}

impl Mailbox {
    /// Returns the time of its earliest event.
    pub fn earliest(&self) -> Option<SimTime> {
        self.earliest
    }

    /// Returns the number of packets in it.
    pub fn packets(&self) -> u64 {
        self.slots.len() as u64
    }

    /// Adds an event. Its packet follows [`AHEAD`] events later, or with [`Self::copy_packets`].
    fn push(&mut self, at: SimTime, event: Packed, packets: &mut PacketPool) {
        if let Some(hop) = event.hop() {
            packets.prefetch(hop.packet());
        }
        self.events.push((at, event));
        self.earliest = Some(self.earliest.map_or(at, |earliest| earliest.min(at)));
        if self.events.len() > self.copied + AHEAD {
            self.copy_packet(packets);
        }
    }

    /// Moves the packet of the next event out of the sender's pool.
    fn copy_packet(&mut self, packets: &mut PacketPool) {
        let middle = self.events.get(self.copied + AHEAD / 2);
        if let Some(hop) = middle.and_then(|(_, event)| event.hop()) {
            packets.prefetch_headers(hop.packet(), hop.class());
        }
        if let Some(hop) = self.events[self.copied].1.hop() {
            self.slots.push(packets.get(hop.packet()));
            packets.remove(hop.packet());
        }
        self.copied += 1;
    }

    /// Moves the remaining packets out of the sender's pool.
    fn copy_packets(&mut self, packets: &mut PacketPool) {
        while self.copied < self.events.len() {
            self.copy_packet(packets);
        }
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

    /// Puts the events of other parts' nodes, and their packets, into the mailboxes of those parts. `part_of` is the
    /// part of each node.
    pub fn send_mail(&mut self, packets: &mut PacketPool, part_of: &[u16], to: &mut [Mailbox]) {
        self.0.take_elsewhere(|at, event| {
            let part = part_of[event.node() as usize];
            to[usize::from(part)].push(at, event, packets);
        });
        to.iter_mut().for_each(|mail| mail.copy_packets(packets));
    }

    /// Puts all events, and their packets, into the mailboxes of the parts of their nodes.
    pub fn send_all(&mut self, packets: &mut PacketPool, part_of: &[u16], to: &mut [Mailbox]) {
        self.0.take_all(|at, event| {
            let part = part_of[event.node() as usize];
            to[usize::from(part)].push(at, event, packets);
        });
        to.iter_mut().for_each(|mail| mail.copy_packets(packets));
    }

    /// Schedules the events of a mailbox, and empties it.
    pub fn receive_mail(&mut self, packets: &mut PacketPool, from: &mut Mailbox) {
        let mut slots = from.slots.drain(..);
        for (index, &(at, event)) in from.events.iter().enumerate() {
            if let Some(&(at, later)) = from.events.get(index + AHEAD) {
                self.0.prefetch_end(at, later);
            }
            if let Some(&(at, later)) = from.events.get(index + AHEAD / 2) {
                self.0.prefetch_place(at, later);
            }
            let event = match event.hop() {
                Some(hop) => {
                    let slot = slots.next().expect("each arrival has a packet");
                    Packed(hop.copied(packets.insert(&slot)).to_words())
                }
                None => event,
            };
            self.0.schedule_received(at, event);
        }
        from.events.clear();
        (from.copied, from.earliest) = (0, None);
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
    use crate::packet::Hop;
    use crate::time::SimSpan;

    #[test]
    fn packets_move_with_their_arrivals_from_pool_to_pool() {
        let whole = Events::new(SimSpan::from_picos(1_000), vec![0; 4]);
        let (mut sender, mut receiver) =
            (whole.part(|node| node < 2), whole.part(|node| node >= 2));
        let (mut from, mut to) = (PacketPool::default(), PacketPool::default());
        let mut boxes = [Mailbox::default(), Mailbox::default()];
        // Far enough for the heap, and near enough for the calendar.
        for (number, picos) in [(7, 1 << 40), (8, 500)] {
            let slot = PacketSlot { source_port: number, ..PacketSlot::default() };
            let hop = Hop::new(from.insert(&slot), NodeId(0), NodeId(3), 0, 100);
            let arrival = Event::Arrive(hop.on(LinkId(5), NodeId(3), 0));
            sender.schedule(SimTime::from_picos(picos), arrival);
        }
        sender.schedule(SimTime::from_picos(400), Event::Pull { host: NodeId(1) });
        sender.send_mail(&mut from, &[0, 0, 1, 1], &mut boxes);
        assert_eq!((boxes[0].packets(), boxes[1].packets(), from.live()), (0, 2, 0));
        assert_eq!(boxes[1].earliest(), Some(SimTime::from_picos(500)));
        receiver.receive_mail(&mut to, &mut boxes[1]);
        assert_eq!((boxes[1].packets(), boxes[1].earliest(), to.live()), (0, None, 2));
        let mut arrived = Vec::new();
        while receiver.begin(SimTime::from_picos(1 << 41)) {
            while receiver.next_node().is_some() {
                while let Some((at, hop)) = receiver.pop_arrival() {
                    arrived.push((at.as_picos(), to.get(hop.packet()).source_port));
                }
            }
        }
        assert_eq!(arrived, [(500, 8), (1 << 40, 7)]);
        assert!(sender.begin(SimTime::from_picos(1_000)), "the sender keeps its own event");
    }
}
