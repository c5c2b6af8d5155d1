//! Everything that can happen in the simulated world.

use weft_topo::NodeId;

use crate::event_queue::EventQueue;
use crate::packet::Hop;
use crate::time::SimTime;

/// The world's future.
#[derive(Debug)]
pub struct Events(EventQueue<Packed>);

impl Events {
    /// See [`EventQueue::new`].
    pub fn new(events_per_micro: u64) -> Self {
        Self(EventQueue::new(events_per_micro))
    }

    /// See [`EventQueue::schedule`].
    #[inline]
    pub fn schedule(&mut self, at: SimTime, event: Event) {
        self.0.schedule(at, Packed::from(event));
    }

    /// Schedules what happens most: a packet's arrival.
    #[inline]
    pub fn schedule_arrival(&mut self, at: SimTime, hop: Hop) {
        self.0.schedule(at, Packed(hop.to_words()));
    }

    /// See [`EventQueue::pop`].
    #[inline]
    pub fn pop(&mut self) -> Option<(SimTime, Event)> {
        self.0.pop().map(|(at, packed)| (at, Event::from(packed)))
    }

    /// See [`EventQueue::begin_day`].
    #[inline]
    pub fn begin_day(&mut self) -> bool {
        self.0.begin_day()
    }

    /// See [`EventQueue::pop_today`].
    #[inline]
    pub fn pop_today(&mut self) -> Option<(SimTime, Event, Option<u32>)> {
        self.0.pop_today().map(|(at, packed, note)| (at, Event::from(packed), note))
    }

    /// See [`EventQueue::note`].
    #[inline]
    pub fn note(&mut self, most: usize, mut note: impl FnMut(Event) -> Option<u32>) {
        self.0.note(most, |packed| note(Event::from(*packed)));
    }

    /// See [`EventQueue::forget_notes`].
    pub fn forget_notes(&mut self) {
        self.0.forget_notes();
    }

    /// Events that were scheduled and not popped.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether nothing is scheduled.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// One thing that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A packet's last bit arrives at the end of a link.
    Arrive(Hop),
    /// A host's port has room for more.
    Pull {
        /// The host.
        host: NodeId,
    },
    /// A host's engine asked to be woken.
    Deadline {
        /// The host.
        host: NodeId,
    },
    /// The oldest payload that waits to be placed has been.
    Placed,
    /// A workload asked to be woken.
    Wake {
        /// Which workload.
        workload: u32,
        /// What it asked for.
        token: u64,
    },
    /// The next action of the fault plan.
    Fault,
    /// The control plane has converged.
    Reroute,
    /// Time to look at the queues.
    Sample,
    /// The run's time is up.
    Stop,
}

/// An event in three words, as the queue holds it: 32 bytes with its time, half a cache line. The
/// last word's top byte says which event it is; a hop has it anyway.
#[derive(Clone, Copy, Debug, Default)]
struct Packed([u64; 3]);

mod tag {
    use crate::packet::Hop;

    pub(super) const PULL: u64 = Hop::LAST_TAG + 1;
    pub(super) const DEADLINE: u64 = Hop::LAST_TAG + 2;
    pub(super) const PLACED: u64 = Hop::LAST_TAG + 3;
    pub(super) const WAKE: u64 = Hop::LAST_TAG + 4;
    pub(super) const FAULT: u64 = Hop::LAST_TAG + 5;
    pub(super) const REROUTE: u64 = Hop::LAST_TAG + 6;
    pub(super) const SAMPLE: u64 = Hop::LAST_TAG + 7;
    pub(super) const STOP: u64 = Hop::LAST_TAG + 8;
}

impl Packed {
    #[inline]
    const fn tag(self) -> u64 {
        self.0[2] >> Hop::TAG_BITS
    }

    /// The packet, if that is what it is about.
    #[inline]
    fn hop(self) -> Option<Hop> {
        (self.tag() <= Hop::LAST_TAG).then(|| Hop::from_words(self.0))
    }
}

impl From<Event> for Packed {
    #[inline]
    fn from(event: Event) -> Self {
        let rare = |tag: u64, number: u32, token: u64| {
            Self([u64::from(number), token, tag << Hop::TAG_BITS])
        };
        match event {
            Event::Arrive(hop) => Self(hop.to_words()),
            Event::Pull { host } => rare(tag::PULL, host.0, 0),
            Event::Deadline { host } => rare(tag::DEADLINE, host.0, 0),
            Event::Placed => rare(tag::PLACED, 0, 0),
            Event::Wake { workload, token } => rare(tag::WAKE, workload, token),
            Event::Fault => rare(tag::FAULT, 0, 0),
            Event::Reroute => rare(tag::REROUTE, 0, 0),
            Event::Sample => rare(tag::SAMPLE, 0, 0),
            Event::Stop => rare(tag::STOP, 0, 0),
        }
    }
}

impl From<Packed> for Event {
    #[inline]
    fn from(packed: Packed) -> Self {
        if let Some(hop) = packed.hop() {
            return Self::Arrive(hop);
        }
        let (Packed([number, token, _]), tag) = (packed, packed.tag());
        let number = u32::try_from(number).expect("a number of 32 bits was put in");
        match tag {
            tag::PULL => Self::Pull { host: NodeId(number) },
            tag::DEADLINE => Self::Deadline { host: NodeId(number) },
            tag::PLACED => Self::Placed,
            tag::WAKE => Self::Wake { workload: number, token },
            tag::FAULT => Self::Fault,
            tag::REROUTE => Self::Reroute,
            tag::SAMPLE => Self::Sample,
            tag::STOP => Self::Stop,
            unknown => unreachable!("no event has tag {unknown}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use weft_topo::LinkId;

    use super::*;
    use crate::packet::ParcelId;

    #[test]
    fn an_event_and_its_time_are_half_a_cache_line() {
        assert_eq!(size_of::<(SimTime, Packed)>(), 32);
    }

    #[test]
    fn every_event_comes_out_as_it_went_in() {
        let hop = Hop::new(ParcelId::default(), NodeId(7), NodeId(u32::MAX), 0x8000_0001, 9216);
        let hop = hop.on(LinkId(0xffff_fffe), NodeId(8), 15).past_switch();
        let host = NodeId(12);
        for event in [
            Event::Arrive(hop),
            Event::Arrive(hop.marked()),
            Event::Pull { host },
            Event::Deadline { host },
            Event::Placed,
            Event::Wake { workload: 3, token: u64::MAX },
            Event::Fault,
            Event::Reroute,
            Event::Sample,
            Event::Stop,
        ] {
            assert_eq!(Event::from(Packed::from(event)), event);
        }
    }
}
