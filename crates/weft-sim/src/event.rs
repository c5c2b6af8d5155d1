//! The events of single nodes of the simulated world. Events that concern several nodes are the world's [global
//! events](crate::world).

use weft_topo::{LinkId, NodeId};
use weft_transport::ConnectionId;
use weft_units::Seed;

use crate::event_queue::{AtNode, EventQueue};
use crate::packet::Hop;
use crate::time::{SimSpan, SimTime};
use crate::traffic::ChannelId;

mod mail;

pub use mail::{Mailbox, SuspendedTurn};

/// The queue of all nodes' future events, or of those of a part of the world.
#[derive(Debug)]
pub struct Events(EventQueue<Packed>);

impl Events {
    /// See [`EventQueue::new`].
    pub fn new(lookahead: SimSpan, side_of: Vec<u8>) -> Self {
        Self(EventQueue::new(lookahead, side_of))
    }

    /// See [`EventQueue::schedule`].
    #[inline]
    pub fn schedule(&mut self, at: SimTime, event: Event) {
        self.0.schedule(at, Packed::from(event));
    }

    /// Schedules the most frequent event: a packet's arrival.
    #[inline(always)]
    pub fn schedule_arrival(&mut self, at: SimTime, hop: Hop) {
        self.0.schedule(at, Packed(hop.to_words()));
    }

    /// Schedules the arrival of a packet that a switch forwards; at the same switch it is in a later turn.
    #[inline(always)]
    pub fn schedule_onward(&mut self, at: SimTime, hop: Hop) {
        self.0.schedule_elsewhere(at, Packed(hop.to_words()));
    }

    /// See [`EventQueue::take_turn`].
    #[inline]
    pub fn take_turn(&mut self) -> Vec<u64> {
        self.0.take_turn()
    }

    /// Returns the arrival at a switch to which [`Self::take_turn`] returned `key`. The switch must have arrivals only,
    /// as for [`Self::pop_arrival`].
    #[inline(always)]
    pub fn arrival(&self, key: u64) -> (SimTime, Hop) {
        let (at, packed) = self.0.named(key);
        (at, Hop::from_words(packed.0))
    }

    /// See [`EventQueue::end_turn`].
    #[inline]
    pub fn end_turn(&mut self, keys: Vec<u64>) {
        self.0.end_turn(keys);
    }

    /// See [`EventQueue::until`].
    pub fn until(&self) -> SimTime {
        self.0.until()
    }

    /// See [`EventQueue::begin`].
    pub fn begin(&mut self, limit: SimTime) -> bool {
        self.0.begin(limit)
    }

    /// See [`EventQueue::next_node`].
    #[inline]
    pub fn next_node(&mut self) -> Option<NodeId> {
        self.0.next_node().map(NodeId)
    }

    /// See [`EventQueue::pop`].
    #[inline]
    pub fn pop(&mut self) -> Option<(SimTime, Event)> {
        self.0.pop().map(|(at, packed)| (at, Event::from(packed)))
    }

    /// Like [`Self::pop`], at a switch that has arrivals only: no port holds queues, and the forwarding model has no
    /// timers.
    #[inline]
    pub fn pop_arrival(&mut self) -> Option<(SimTime, Hop)> {
        self.0.pop().map(|(at, packed)| (at, Hop::from_words(packed.0)))
    }

    /// Like [`Self::pop`], at any other switch.
    #[inline(always)] // A call would pass the event through memory.
    pub fn pop_at_switch(&mut self) -> Option<(SimTime, Event)> {
        self.0.pop().map(|(at, packed)| (at, Event::from(packed)))
    }

    /// See [`EventQueue::upcoming`].
    #[inline]
    pub fn upcoming(&self, others: usize) -> Option<(usize, NodeId)> {
        self.0.upcoming(others).map(|(place, node)| (place, NodeId(node)))
    }

    /// See [`EventQueue::prefetch_list`].
    #[inline]
    pub fn prefetch_list(&self, node: NodeId) {
        self.0.prefetch_list(node.0);
    }

    /// See [`EventQueue::prefetch`].
    #[inline]
    pub fn prefetch(&self, node: NodeId) {
        self.0.prefetch(node.0);
    }

    /// Returns the packets that arrive at a node in the current windows, in no particular order.
    #[inline]
    pub fn arrivals(&self, node: NodeId) -> impl Iterator<Item = Hop> + '_ {
        self.0.of(node.0).filter_map(Packed::hop)
    }
}

/// An event at one node. A switch has [`Event::Timer`] and [`Event::Port`] only if the fabric requires it: see
/// [`Fabric::only_forwards`](crate::fabric::Fabric::only_forwards).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A packet's last bit arrives at the end of a link.
    Arrive(Hop),
    /// A host's port has room for more packets.
    Pull {
        /// The host.
        host: NodeId,
    },
    /// A host's engine requested a wake-up.
    Deadline {
        /// The host.
        host: NodeId,
    },
    /// A payload has been placed.
    Placed {
        /// The host.
        host: NodeId,
        /// The engine's connection.
        connection: ConnectionId,
        /// The packet.
        psn: u32,
    },
    /// A workload requested a wake-up at a host.
    Wake {
        /// The host.
        host: NodeId,
        /// The workload's number.
        workload: u32,
        /// The token of its request.
        token: u64,
    },
    /// A host acts on one of its channels.
    Act {
        /// The host.
        host: NodeId,
        /// The channel.
        channel: ChannelId,
        /// The action.
        act: Act,
    },
    /// A switch's forwarding model requested a wake-up.
    Timer {
        /// The switch.
        switch: NodeId,
        /// The token of its request.
        token: u64,
    },
    /// A port that holds queues has an event.
    Port {
        /// The node whose port it is.
        node: NodeId,
        /// The link it sends on; for [`PortEvent::Refresh`], the one it receives from.
        link: LinkId,
        /// The event.
        event: PortEvent,
    },
}

/// An event of a port that holds queues; see [`port`](crate::port).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortEvent {
    /// The port may send again: its last packet has left, or a pause is over.
    Wake,
    /// A pause frame arrived: the port sends no data for this span. Zero ends a pause.
    Pause(SimSpan),
    /// The neighbour's pause must be refreshed.
    Refresh,
}

/// An action of a host on behalf of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Starts the handshake.
    Connect,
    /// Submits the channel's waiting messages to the engine.
    Submit,
    /// Closes the channel.
    Close,
}

impl Act {
    const ALL: [Self; 3] = [Self::Connect, Self::Submit, Self::Close];
}

/// An event in three words, as the queue stores it. As in a [`Hop`], the second word's lower half is the node, and the
/// last word's top byte is the event's tag.
#[derive(Clone, Copy, Debug, Default)]
struct Packed([u64; 3]);

mod tag {
    use crate::packet::Hop;

    pub(super) const PULL: u64 = Hop::LAST_TAG + 1;
    pub(super) const DEADLINE: u64 = Hop::LAST_TAG + 2;
    pub(super) const PLACED: u64 = Hop::LAST_TAG + 3;
    pub(super) const WAKE: u64 = Hop::LAST_TAG + 4;
    pub(super) const ACT: u64 = Hop::LAST_TAG + 5;
    pub(super) const TIMER: u64 = Hop::LAST_TAG + 6;
    pub(super) const WAKE_PORT: u64 = Hop::LAST_TAG + 7;
    pub(super) const PAUSE: u64 = Hop::LAST_TAG + 8;
    pub(super) const REFRESH: u64 = Hop::LAST_TAG + 9;
}

impl Packed {
    /// Returns the packet if the event is an arrival.
    #[inline]
    fn hop(self) -> Option<Hop> {
        (self.0[2] >> Hop::TAG_BITS <= Hop::LAST_TAG).then(|| Hop::from_words(self.0))
    }
}

impl AtNode for Packed {
    #[inline]
    fn node(self) -> u32 {
        low(self.0[1])
    }

    #[inline]
    fn with_node(self, number: u32) -> Self {
        let [token, place, state] = self.0;
        Self([token, place >> 32 << 32 | u64::from(number), state])
    }

    /// Arrivals come first, by link in an order that differs from instant to instant, so that no link is always served
    /// before another. Other events follow by their content, so that two of equal precedence are equal.
    fn precedence(self, at: SimTime) -> (u64, u64) {
        let [token, place, state] = self.0;
        match state >> Hop::TAG_BITS {
            tag if tag <= Hop::LAST_TAG => {
                let link = token >> 32;
                let drawn = Seed(at.as_picos() ^ link << 32).rng().next_u32();
                (drawn.into(), link)
            }
            tag => (tag << 32 | place >> 32, token),
        }
    }
}

impl From<Event> for Packed {
    #[inline]
    fn from(event: Event) -> Self {
        let at_node = |node: NodeId, tag: u64, number: u32, token: u64| {
            Self([token, u64::from(node.0) | u64::from(number) << 32, tag << Hop::TAG_BITS])
        };
        match event {
            Event::Arrive(hop) => Self(hop.to_words()),
            Event::Pull { host } => at_node(host, tag::PULL, 0, 0),
            Event::Deadline { host } => at_node(host, tag::DEADLINE, 0, 0),
            Event::Placed { host, connection, psn } => {
                at_node(host, tag::PLACED, connection.0, psn.into())
            }
            Event::Wake { host, workload, token } => at_node(host, tag::WAKE, workload, token),
            Event::Act { host, channel, act } => at_node(host, tag::ACT, channel.0, act as u64),
            Event::Timer { switch, token } => at_node(switch, tag::TIMER, 0, token),
            Event::Port { node, link, event } => match event {
                PortEvent::Wake => at_node(node, tag::WAKE_PORT, link.0, 0),
                PortEvent::Pause(span) => at_node(node, tag::PAUSE, link.0, span.as_picos()),
                PortEvent::Refresh => at_node(node, tag::REFRESH, link.0, 0),
            },
        }
    }
}

impl From<Packed> for Event {
    #[inline]
    fn from(packed: Packed) -> Self {
        let Packed([token, place, state]) = packed;
        let (host, number) = (NodeId(low(place)), low(place >> 32));
        match state >> Hop::TAG_BITS {
            tag if tag <= Hop::LAST_TAG => Self::Arrive(Hop::from_words(packed.0)),
            tag::PULL => Self::Pull { host },
            tag::DEADLINE => Self::Deadline { host },
            tag::PLACED => Self::Placed { host, connection: ConnectionId(number), psn: low(token) },
            tag::WAKE => Self::Wake { host, workload: number, token },
            tag::ACT => {
                let act = Act::ALL[low(token) as usize];
                Self::Act { host, channel: ChannelId(number), act }
            }
            tag => Self::of_port_or_switch(tag, host, number, token),
        }
    }
}

impl Event {
    /// Unpacks an event of a switch, or of a port that holds queues.
    #[inline(never)] // Out of the frequent path: hosts have none of these events if ports hold no queues.
    fn of_port_or_switch(tag: u64, node: NodeId, number: u32, token: u64) -> Self {
        let port = |event| Self::Port { node, link: LinkId(number), event };
        match tag {
            tag::TIMER => Self::Timer { switch: node, token },
            tag::WAKE_PORT => port(PortEvent::Wake),
            tag::PAUSE => port(PortEvent::Pause(SimSpan::from_picos(token))),
            tag::REFRESH => port(PortEvent::Refresh),
            unknown => unreachable!("no event has tag {unknown}"),
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "takes a word apart")]
#[inline]
const fn low(word: u64) -> u32 {
    word as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::PacketRef;

    #[test]
    fn every_event_is_unpacked_as_it_was_packed() {
        let hop = Hop::new(PacketRef::default(), NodeId(7), NodeId(u32::MAX), 0x8000_0001, 9216);
        let hop = hop.on(LinkId(0xffff_fffe), NodeId(8), 15).past_switch();
        let host = NodeId(12);
        let port = |event| Event::Port { node: host, link: LinkId(0xffff_fffd), event };
        for event in [
            Event::Arrive(hop),
            Event::Arrive(hop.marked()),
            Event::Pull { host },
            Event::Deadline { host },
            Event::Placed { host, connection: ConnectionId(u32::MAX), psn: 0x8000_0001 },
            Event::Wake { host, workload: 3, token: u64::MAX },
            Event::Act { host, channel: ChannelId(9), act: Act::Connect },
            Event::Act { host, channel: ChannelId(9), act: Act::Submit },
            Event::Act { host, channel: ChannelId(9), act: Act::Close },
            Event::Timer { switch: host, token: u64::MAX },
            port(PortEvent::Wake),
            port(PortEvent::Pause(SimSpan::from_picos(1 << 60))),
            port(PortEvent::Refresh),
        ] {
            let packed = Packed::from(event);
            assert_eq!(Event::from(packed), event);
            let node = if matches!(event, Event::Arrive(_)) { 8 } else { 12 };
            assert_eq!(packed.node(), node);
        }
    }
}
