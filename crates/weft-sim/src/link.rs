//! One direction of a cable and the FIFO in front of it.
//!
//! A FIFO's departure times are known on arrival: a packet leaves when everything before it has left. So the queue is
//! one number, the time at which the port will be idle, and a hop costs one event. The queue's depth is the port's
//! unsent work: a time, or, times the rate, bytes. It includes the unsent rest of the packet on the wire and is exact
//! to the byte.

use weft_units::{BitRate, Duration};

pub use crate::pace::Pace;
use crate::queue::{Discipline, QueueDiscipline};
use crate::time::{SimSpan, SimTime};

/// The properties that all links of one rate, length and kind share; a fabric has few classes.
#[derive(Clone, Debug)]
pub struct LinkClass {
    /// Its speed.
    pub pace: Pace,
    /// Its rate for reports.
    pub rate: BitRate,
    /// Time from the last bit sent to the last bit received.
    pub propagation: SimSpan,
    /// The discipline that admits packets to the queue; `None` for a host's own port, whose queue is the host.
    pub discipline: Option<Discipline>,
    /// The queue length up to which every packet is accepted without the discipline.
    pub accepts_up_to: SimSpan,
    /// The same in bytes.
    pub accepts_bytes: u64,
}

impl LinkClass {
    /// Returns a class of links.
    pub fn new(rate: BitRate, propagation: Duration, discipline: Option<Discipline>) -> Self {
        let accepts_up_to = discipline.as_ref().map_or(SimSpan::MAX, Discipline::accepts_up_to);
        let (pace, propagation) = (Pace::new(rate), propagation.into());
        let accepts_bytes = pace.bytes(accepts_up_to);
        Self { pace, rate, propagation, discipline, accepts_up_to, accepts_bytes }
    }
}

/// One direction of a cable: the fields that every packet uses, in half a cache line.
#[derive(Clone, Debug)]
#[repr(align(32))]
pub struct Link {
    /// The time at which everything accepted so far has been sent.
    pub busy_until: SimTime,
    /// Longest queue so far, as the time to send it.
    pub max_backlog: SimSpan,
    /// Bytes sent.
    pub bytes: u64,
    /// The node at the end of the link.
    pub to: u32,
    /// Index of its [`LinkClass`].
    pub class: u16,
    /// Number of times it went down, modulo 16.
    pub epoch: u8,
    /// The checks that a packet needs before it is sent.
    pub condition: Condition,
}

/// Counters of packets that a link marked or refused.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Packets marked.
    pub marked: u32,
    /// Packets refused because there was no room.
    pub refused: u32,
}

/// The condition of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Condition {
    /// The link carries every packet.
    #[default]
    Healthy,
    /// The link is subject to a fault: see [`crate::fault`].
    Impaired,
    /// The link carries nothing.
    Down,
}

impl Link {
    /// Returns an idle link to `to`.
    pub fn new(to: u32, class: u16) -> Self {
        Self {
            busy_until: SimTime::EPOCH,
            max_backlog: SimSpan::ZERO,
            bytes: 0,
            to,
            class,
            epoch: 0,
            condition: Condition::Healthy,
        }
    }

    /// Returns the time that the port needs for its backlog.
    #[inline]
    pub fn backlog(&self, now: SimTime) -> SimSpan {
        self.busy_until.since(now)
    }

    /// Accepts a packet that needs `serialisation`; returns the time at which its last bit leaves.
    #[inline]
    pub fn accept(&mut self, now: SimTime, serialisation: SimSpan, bytes: u16) -> SimTime {
        self.accept_queue(now, self.backlog(now) + serialisation, bytes)
    }

    /// Accepts a packet if the backlog with it is known already.
    #[inline(always)]
    pub fn accept_queue(&mut self, now: SimTime, queue: SimSpan, bytes: u16) -> SimTime {
        self.busy_until = now + queue;
        self.max_backlog = self.max_backlog.max(queue);
        self.bytes += u64::from(bytes);
        self.busy_until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_leaves_when_everything_before_it_has() {
        let mut link = Link::new(0, 0);
        let packet = SimSpan::from_picos(100);
        assert_eq!(link.accept(SimTime::from_picos(50), packet, 10), SimTime::from_picos(150));
        assert_eq!(link.accept(SimTime::from_picos(60), packet, 10), SimTime::from_picos(250));
        assert_eq!(link.backlog(SimTime::from_picos(70)), SimSpan::from_picos(180));
        assert_eq!(link.accept(SimTime::from_picos(900), packet, 10), SimTime::from_picos(1000));
        assert_eq!(link.bytes, 30);
    }

    #[test]
    fn a_link_is_half_a_cache_line() {
        assert_eq!(size_of::<Link>(), 32);
    }
}
