//! Ports that hold packets in queues.
//!
//! The usual port is a number, the time at which it will be idle ([`link`](crate::link)): a packet's departure is
//! known on arrival, and a hop is one event. That does not hold if packets may overtake each other or a neighbour may
//! pause a port. Such a port holds two queues, control before data, and decides when the wire is free. It wakes only
//! while a packet waits: an idle port sends at once, and a hop through it is still one event.
//!
//! [`buffer`] has the exact accounts of a switch's memory, [`pfc`] decides which neighbours must pause, and
//! `fabric/queued.rs` moves packets between ports.

use std::collections::VecDeque;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_topo::NodeId;
use weft_units::ByteCount;

use crate::packet::{Class, Hop};
use crate::time::{SimSpan, SimTime};

pub mod buffer;
pub mod pfc;
mod trimmed;

use pfc::Pause;
pub use trimmed::Trimmed;

weft_units::registry! {
    /// The name of a way to build ports.
    #[non_exhaustive]
    pub enum Kind: "kind of port" {
        Fifo => "fifo", "one queue, known by when it will be empty: fast";
        Priority => "priority", "holds packets; control goes before data, and data may be paused";
    }
}

weft_units::registry! {
    /// The time at which a port decides about a packet's congestion mark.
    #[non_exhaustive]
    pub enum MarkAt: "time to mark" {
        Enqueue => "enqueue", "when it comes, by the queue before it (DCTCP's switches, htsim)";
        Dequeue => "dequeue", "when it goes, by the queue behind it (the ns-3 of HPCC and ConWeave)";
    }
}

/// Configuration of every port.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PortConfig {
    /// The kind of port.
    pub kind: Kind,
    /// The time of marking; ports that are `fifo` mark on enqueue.
    pub mark_at: MarkAt,
    /// Bytes of a switch's buffer that are reserved for this port; used by `priority`.
    pub reserved: ByteCount,
    /// `true` if a host's packets without payload, ACKs above all, are sent before the payload of its other
    /// connections; used by `priority`. If `false`, connections take turns with any packets.
    pub control_first: bool,
}

impl Default for PortConfig {
    /// Returns a reserve of two packets of 1000 bytes, as in ConWeave's simulations.
    fn default() -> Self {
        Self {
            kind: Kind::Fifo,
            mark_at: MarkAt::Enqueue,
            reserved: ByteCount(2_096),
            control_first: false,
        }
    }
}

/// An error of the ports' configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PortError {
    /// Pauses are enabled for ports that cannot pause.
    #[error("pfc is enabled, but port.kind is \"fifo\", expected \"priority\"")]
    CannotPause,
    /// Packets are cut at ports that have one queue.
    #[error("queue.kind is \"trim\", but port.kind is \"fifo\", expected \"priority\"")]
    CannotTrim,
    /// The congestion control needs telemetry, which ports with one queue do not write.
    #[error(
        "transport.congestion is \"hpcc\", but port.kind is \"fifo\", expected \"priority\": only its ports write telemetry"
    )]
    NoTelemetry,
    /// The congestion control needs telemetry, which does not pass what lies between the engine and the network.
    #[error(
        "transport.congestion is \"hpcc\", whose telemetry reaches no encrypted hosts, channels of messages or overlays"
    )]
    TelemetryOutOfReach,
    /// The reserved bytes exceed the buffer.
    #[error(
        "switch {switch} sets aside {needed} bytes for its {ports} ports, but buffer.size is {size}"
    )]
    BufferTooSmall {
        /// The switch.
        switch: u32,
        /// The number of its ports.
        ports: usize,
        /// Bytes that the ports need.
        needed: u64,
        /// Bytes of the buffer.
        size: u64,
    },
    /// A pause would end before it can be refreshed.
    #[error("pfc.pause is {bytes} bytes long, expected at least four packets of {largest}")]
    PauseTooShort {
        /// The pause's length in bytes, at any rate.
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
    /// The delay added to its flight; see [`Jitter`](crate::nic::Jitter).
    pub jitter: SimSpan,
}

/// The queued packets of one class.
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

/// A port that holds queues.
#[derive(Debug)]
pub struct Port {
    /// The node that owns it.
    pub node: NodeId,
    /// `true` if the node is a host.
    pub of_host: bool,
    control: Queue,
    /// The headers of cut packets, where the switch trims.
    pub trimmed: Option<Box<Trimmed>>,
    data: Queue,
    /// The most bytes that have waited at a time.
    deepest: u64,
    /// The time at which the last bit of the current packet has left.
    pub free_at: SimTime,
    /// The time of its next wake-up: the earliest of several possible events.
    pub wake_at: SimTime,
    /// The earliest time at which the next packet may arrive at the far end: jitter must not reorder packets.
    pub last_arrival: SimTime,
    /// The pause that its neighbour requested.
    pub pause: Pause,
    /// The span of the pause frame that it must send before any packet.
    pub frame: Option<SimSpan>,
}

impl Port {
    /// Returns an idle port.
    pub fn new(node: NodeId, of_host: bool) -> Self {
        Self {
            node,
            of_host,
            control: Queue::default(),
            trimmed: None,
            data: Queue::default(),
            deepest: 0,
            free_at: SimTime::EPOCH,
            wake_at: SimTime::FAR_FUTURE,
            last_arrival: SimTime::EPOCH,
            pause: Pause::default(),
            frame: None,
        }
    }

    /// Appends a packet to the queue of its class. Returns `true` if the port holds more bytes than ever before.
    #[inline]
    pub fn push(&mut self, waiting: Waiting) -> bool {
        match waiting.hop.class() {
            Class::Control => self.control.push(waiting),
            Class::Trimmed => match &mut self.trimmed {
                Some(trimmed) => trimmed.push(waiting),
                None => self.control.push(waiting),
            },
            Class::Data => self.data.push(waiting),
        }
        let deeper = self.queued_bytes() > self.deepest;
        self.deepest = self.deepest.max(self.queued_bytes());
        deeper
    }

    /// Returns `true` if a packet of `class` that arrives now can be sent at once.
    #[inline]
    pub fn is_free(&self, now: SimTime, class: Class) -> bool {
        let is_held = class == Class::Data && self.pause.holds(now);
        self.free_at <= now && self.is_empty() && !is_held
    }

    /// Returns `true` if it has no packet to send.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.queued_bytes() == 0 && self.frame.is_none()
    }

    /// Removes and returns the next packet to send.
    #[inline]
    pub fn pop(&mut self, now: SimTime) -> Option<Waiting> {
        if let Some(waiting) = self.control.pop() {
            return Some(waiting);
        }
        let is_paused = self.pause.holds(now);
        if self.trimmed.is_some() {
            return self.pop_with_trimmed(is_paused);
        }
        if is_paused { None } else { self.data.pop() }
    }

    /// Removes and returns the next packet of the classes that share the wire by weight.
    fn pop_with_trimmed(&mut self, is_paused: bool) -> Option<Waiting> {
        let trimmed = self.trimmed.as_deref_mut()?;
        let data_waits = self.data.bytes > 0 && !is_paused;
        if let Some(waiting) = trimmed.pop(data_waits) {
            return Some(waiting);
        }
        let waiting = if is_paused { None } else { self.data.pop() }?;
        trimmed.note_data(waiting.hop.size());
        Some(waiting)
    }

    /// Removes and returns any packet.
    pub fn pop_any(&mut self) -> Option<Waiting> {
        let trimmed = || self.trimmed.as_deref_mut().and_then(|trimmed| trimmed.pop(false));
        self.control.pop().or_else(trimmed).or_else(|| self.data.pop())
    }

    /// Returns the bytes of a class that wait for the wire.
    #[inline]
    pub fn waiting(&self, class: Class) -> u64 {
        match class {
            Class::Control => self.control.bytes,
            Class::Trimmed => self.trimmed_bytes(),
            Class::Data => self.data.bytes,
        }
    }

    #[inline]
    fn trimmed_bytes(&self) -> u64 {
        self.trimmed.as_deref().map_or(0, Trimmed::bytes)
    }

    /// Returns the bytes of all classes.
    #[inline]
    pub fn queued_bytes(&self) -> u64 {
        self.control.bytes + self.trimmed_bytes() + self.data.bytes
    }

    /// Returns the time at which it may send the next waiting packet.
    #[inline]
    pub fn next_departure(&self) -> Option<SimTime> {
        if self.frame.is_some() || self.control.bytes + self.trimmed_bytes() > 0 {
            return Some(self.free_at);
        }
        (self.data.bytes > 0).then(|| self.free_at.max(self.pause.until()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::PacketRef;

    fn packet(size: u16) -> Waiting {
        let hop = Hop::new(PacketRef::default(), NodeId(0), NodeId(1), 0, size);
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
        assert_eq!((port.queued_bytes(), port.next_departure()), (0, None));
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
