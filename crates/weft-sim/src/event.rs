//! Everything that can happen in the simulated world.

use weft_topo::{LinkId, NodeId};

use crate::event_queue::EventQueue;
use crate::packet::{Ecn, Hop, ParcelId, Progress};
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

    /// See [`EventQueue::pop`].
    #[inline]
    pub fn pop(&mut self) -> Option<(SimTime, Event)> {
        self.0.pop().map(|(at, packed)| (at, Event::from(packed)))
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

/// An event in three words, as the queue holds it: 32 bytes with its time, half a cache line.
///
/// The compiler's own layout of [`Event`] has this size too, but copies it in pieces that overlap,
/// and the stalls that followed took a quarter of the simulator's time.
#[derive(Clone, Copy, Debug, Default)]
struct Packed([u64; 3]);

mod tag {
    pub(super) const ARRIVE: u8 = 0;
    pub(super) const ARRIVE_MARKED: u8 = 1;
    pub(super) const PULL: u8 = 2;
    pub(super) const DEADLINE: u8 = 3;
    pub(super) const PLACED: u8 = 4;
    pub(super) const WAKE: u8 = 5;
    pub(super) const FAULT: u8 = 6;
    pub(super) const REROUTE: u8 = 7;
    pub(super) const SAMPLE: u8 = 8;
    pub(super) const STOP: u8 = 9;
}

const fn halves(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

#[expect(clippy::cast_possible_truncation, reason = "takes a word apart")]
const fn low(word: u64) -> u32 {
    word as u32
}

const fn high(word: u64) -> u32 {
    low(word >> 32)
}

impl From<Event> for Packed {
    #[inline]
    fn from(event: Event) -> Self {
        let rare = |tag: u8, first: u64, second: u64| Self([first, second, u64::from(tag) << 56]);
        match event {
            Event::Arrive(hop) => {
                let tag = match hop.ecn {
                    Ecn::Capable => tag::ARRIVE,
                    Ecn::CongestionExperienced => tag::ARRIVE_MARKED,
                };
                let rest = u64::from(hop.size) << 32 | u64::from(hop.progress.to_bits()) << 48;
                Self([
                    halves(hop.packet.to_bits(), hop.link.0),
                    halves(hop.node.0, hop.destination.0),
                    u64::from(hop.hash) | rest | u64::from(tag) << 56,
                ])
            }
            Event::Pull { host } => rare(tag::PULL, host.0.into(), 0),
            Event::Deadline { host } => rare(tag::DEADLINE, host.0.into(), 0),
            Event::Placed => rare(tag::PLACED, 0, 0),
            Event::Wake { workload, token } => rare(tag::WAKE, workload.into(), token),
            Event::Fault => rare(tag::FAULT, 0, 0),
            Event::Reroute => rare(tag::REROUTE, 0, 0),
            Event::Sample => rare(tag::SAMPLE, 0, 0),
            Event::Stop => rare(tag::STOP, 0, 0),
        }
    }
}

impl From<Packed> for Event {
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "takes words apart")]
    fn from(Packed([first, second, third]): Packed) -> Self {
        let host = NodeId(low(first));
        match (third >> 56) as u8 {
            mark @ (tag::ARRIVE | tag::ARRIVE_MARKED) => Self::Arrive(Hop {
                packet: ParcelId::from_bits(low(first)),
                link: LinkId(high(first)),
                node: NodeId(low(second)),
                destination: NodeId(high(second)),
                hash: low(third),
                size: (third >> 32) as u16,
                progress: Progress::from_bits((third >> 48) as u8),
                ecn: if mark == tag::ARRIVE { Ecn::Capable } else { Ecn::CongestionExperienced },
            }),
            tag::PULL => Self::Pull { host },
            tag::DEADLINE => Self::Deadline { host },
            tag::PLACED => Self::Placed,
            tag::WAKE => Self::Wake { workload: low(first), token: second },
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
    use super::*;

    #[test]
    fn an_event_and_its_time_are_half_a_cache_line() {
        assert_eq!(size_of::<(SimTime, Packed)>(), 32);
    }

    #[test]
    fn every_event_comes_out_as_it_went_in() {
        let hop = Hop {
            packet: ParcelId::from_bits(0xdead_beef),
            link: LinkId(0xffff_fffe),
            node: NodeId(7),
            destination: NodeId(u32::MAX),
            hash: 0x8000_0001,
            size: 9216,
            progress: Progress::default().in_epoch(15).past_switch(),
            ecn: Ecn::Capable,
        };
        let host = NodeId(12);
        for event in [
            Event::Arrive(hop),
            Event::Arrive(Hop { ecn: Ecn::CongestionExperienced, ..hop }),
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
