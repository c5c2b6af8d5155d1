//! Ports that hold their packets.
//!
//! The usual port is a number, the time at which it will be idle ([`link`](crate::link)): a packet's
//! departure is known on arrival, and a hop is one event. That is no longer so where packets may pass
//! each other or a neighbour may stop a port. Such a port holds two queues, control before data, and
//! decides when the wire is free. It wakes only while something waits: an idle port sends at once, and
//! a hop through it is still one event.
//!
//! [`buffer`] is the exact account of a switch's memory, [`pfc`] who must pause; what moves packets
//! between ports is `fabric/queued.rs`.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use weft_topo::NodeId;
use weft_units::ByteCount;

use crate::packet::{Class, Hop};
use crate::registry::named_kinds;
use crate::time::{SimSpan, SimTime};

pub mod buffer;
pub mod pfc;

use pfc::Pause;

named_kinds! {
    /// The name of a way to build ports.
    Kind, "kind of port", {
        Fifo, "fifo", "one queue, known by when it will be empty: fast";
        Priority, "priority", "holds packets; control goes before data, and data may be paused";
    }
}

named_kinds! {
    /// When a port decides about a packet's congestion mark.
    MarkAt, "time to mark", {
        Enqueue, "enqueue", "when it comes, by the queue before it (DCTCP's switches, htsim)";
        Dequeue, "dequeue", "when it goes, by the queue behind it (the ns-3 of HPCC and ConWeave)";
    }
}

/// How every port is built.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PortConfig {
    /// The kind.
    pub kind: Kind,
    /// When packets are marked; ports that are `fifo` mark on enqueue.
    pub mark_at: MarkAt,
    /// Bytes of a switch's buffer that nobody but this port may use; for `priority`.
    pub reserved: ByteCount,
    /// A host's packets without payload, ACKs first of all, leave before the payload of its other
    /// connections; for `priority`. Without it connections take turns with whatever they have.
    pub control_first: bool,
}

impl Default for PortConfig {
    /// Two packets of 1000 bytes, as in ConWeave's simulations.
    fn default() -> Self {
        Self {
            kind: Kind::Fifo,
            mark_at: MarkAt::Enqueue,
            reserved: ByteCount(2_096),
            control_first: false,
        }
    }
}

/// Why ports cannot be built as they are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PortError {
    /// Pauses are wanted of ports that cannot pause.
    #[error("pfc is enabled, but port.kind is \"fifo\", expected \"priority\"")]
    CannotPause,
    /// What is set aside is more than there is.
    #[error(
        "switch {switch} sets aside {needed} bytes for its {ports} ports, but buffer.size is {size}"
    )]
    BufferTooSmall {
        /// The switch.
        switch: u32,
        /// Its ports.
        ports: usize,
        /// What they need.
        needed: u64,
        /// What there is.
        size: u64,
    },
    /// A pause would be over before it can be asked for again.
    #[error("pfc.pause is {bytes} bytes long, expected at least four packets of {largest}")]
    PauseTooShort {
        /// How long, in bytes at any rate.
        bytes: u64,
        /// The largest packet.
        largest: u16,
    },
}

/// A packet that waits for the wire.
#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    /// The packet, still on the link by which it came.
    pub hop: Hop,
    /// What is added to its way; see [`Jitter`](crate::nic::Jitter).
    pub jitter: SimSpan,
}

/// Packets of one class.
#[derive(Debug, Default)]
struct Queue {
    packets: VecDeque<Waiting>,
    bytes: u64,
}

impl Queue {
    fn push(&mut self, waiting: Waiting) {
        self.bytes += u64::from(waiting.hop.size());
        self.packets.push_back(waiting);
    }

    fn pop(&mut self) -> Option<Waiting> {
        let waiting = self.packets.pop_front()?;
        self.bytes -= u64::from(waiting.hop.size());
        Some(waiting)
    }
}

/// One port.
#[derive(Debug)]
pub struct Port {
    /// Whose it is.
    pub node: NodeId,
    /// Whether that is a host.
    pub of_host: bool,
    control: Queue,
    data: Queue,
    /// Most bytes that ever waited.
    deepest: u64,
    /// When the last bit of what it sends has left.
    pub free_at: SimTime,
    /// When it will be woken; the soonest of what may be several events.
    pub wake_at: SimTime,
    /// No packet may arrive at the far end before this: jitter must not reorder.
    pub last_arrival: SimTime,
    /// What its neighbour wants of it.
    pub pause: Pause,
    /// What it is to tell its neighbour, before anything else: for how long to pause.
    pub frame: Option<SimSpan>,
}

impl Port {
    /// An idle one.
    pub fn new(node: NodeId, of_host: bool) -> Self {
        Self {
            node,
            of_host,
            control: Queue::default(),
            data: Queue::default(),
            deepest: 0,
            free_at: SimTime::EPOCH,
            wake_at: SimTime::FAR_FUTURE,
            last_arrival: SimTime::EPOCH,
            pause: Pause::default(),
            frame: None,
        }
    }

    /// Puts a packet behind the others of its class. Gives whether more waits than ever before.
    #[inline]
    pub fn push(&mut self, waiting: Waiting) -> bool {
        match waiting.hop.class() {
            Class::Control => self.control.push(waiting),
            Class::Data => self.data.push(waiting),
        }
        let deeper = self.waiting_in_all() > self.deepest;
        self.deepest = self.deepest.max(self.waiting_in_all());
        deeper
    }

    /// Whether a packet of `class` that comes now need not wait.
    #[inline]
    pub fn is_free(&self, now: SimTime, class: Class) -> bool {
        let is_held = class == Class::Data && self.pause.holds(now);
        self.free_at <= now && self.is_empty() && !is_held
    }

    /// Whether it has nothing to send.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.waiting_in_all() == 0 && self.frame.is_none()
    }

    /// Takes out the packet to send now.
    #[inline]
    pub fn pop(&mut self, now: SimTime) -> Option<Waiting> {
        self.control.pop().or_else(|| if self.pause.holds(now) { None } else { self.data.pop() })
    }

    /// Takes out any packet.
    pub fn pop_any(&mut self) -> Option<Waiting> {
        self.control.pop().or_else(|| self.data.pop())
    }

    /// Bytes of a class that wait for the wire.
    #[inline]
    pub fn waiting(&self, class: Class) -> u64 {
        match class {
            Class::Control => self.control.bytes,
            Class::Data => self.data.bytes,
        }
    }

    /// Bytes of both.
    #[inline]
    pub fn waiting_in_all(&self) -> u64 {
        self.control.bytes + self.data.bytes
    }

    /// When it may send the next of what waits.
    #[inline]
    pub fn next_departure(&self) -> Option<SimTime> {
        if self.frame.is_some() || self.control.bytes > 0 {
            return Some(self.free_at);
        }
        (self.data.bytes > 0).then(|| self.free_at.max(self.pause.until()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::ParcelId;

    fn packet(size: u16) -> Waiting {
        let hop = Hop::new(ParcelId::default(), NodeId(0), NodeId(1), 0, size);
        Waiting { hop, jitter: SimSpan::ZERO }
    }

    fn control(size: u16) -> Waiting {
        let Waiting { hop, jitter } = packet(size);
        Waiting { hop: hop.as_control(), jitter }
    }

    #[test]
    fn control_goes_before_data_and_each_in_the_order_it_came() {
        let mut port = Port::new(NodeId(2), false);
        for waiting in [packet(1_000), control(60), packet(1_001), control(61)] {
            port.push(waiting);
        }
        assert_eq!((port.waiting(Class::Control), port.waiting(Class::Data)), (121, 2_001));
        let order = std::iter::from_fn(|| port.pop(SimTime::EPOCH));
        assert_eq!(order.map(|w| w.hop.size()).collect::<Vec<_>>(), [60, 61, 1_000, 1_001]);
        assert_eq!((port.waiting_in_all(), port.next_departure()), (0, None));
    }

    #[test]
    fn a_pause_stops_data_and_nothing_else() {
        let mut port = Port::new(NodeId(2), false);
        let micros = |count: u64| SimTime::from_picos(count * 1_000_000);
        port.pause.set(micros(1), SimSpan::from_picos(5_000_000));
        assert!(!port.is_free(micros(2), Class::Data) && port.is_free(micros(2), Class::Control));
        assert!(port.push(packet(1_000)));
        assert_eq!(port.next_departure(), Some(micros(6)));
        port.push(control(60));
        assert_eq!(port.next_departure(), Some(SimTime::EPOCH));
        assert_eq!(port.pop(micros(2)).map(|waiting| waiting.hop.size()), Some(60));
        assert!(port.pop(micros(2)).is_none());
        assert_eq!(port.pop(micros(6)).map(|waiting| waiting.hop.size()), Some(1_000));
    }
}
