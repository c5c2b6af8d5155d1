//! The sending half of a connection while it has something to send. An idle connection keeps only the [`Cursor`] from
//! which it resumes.

use alloc::collections::VecDeque;

use weft_units::{ByteCount, Duration, Instant, Rng, Seed};
use weft_wire::U11;

use super::in_flight::{PacketState, SentPacket};
use super::message::{SendQueue, segment_len};
use super::pacing::Pacer;
use super::rtt::RoundTrip;
use crate::TransportConfig;
use crate::congestion::{Congestion, Controllers};
use crate::path::{Health, PathId, PathPolicy, Paths, PeerPorts, Policy, Probation};
use crate::pool::{Pool, Window};

/// The point from which sending resumes after the connection was idle.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor {
    /// The sequence number of the next packet; everything before it is acknowledged.
    pub(crate) psn: u32,
    /// The number of the next message.
    pub(crate) message: u32,
    /// The peer's counts in the latest ACK.
    pub(crate) counts: Counts,
}

/// The peer's running counts of packets accepted and of congestion marks on them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) acked: U11,
    pub(crate) marked: U11,
}

/// The fields that order ACKs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewestAck {
    pub(crate) psn_base: u32,
    /// The time at which it left, by the peer's clock, nanoseconds modulo 2^32.
    pub(crate) timestamp: u32,
    /// The time at which it arrived.
    pub(crate) received_at: Instant,
}

/// A placeholder for the path of the spray unit before the first.
pub(crate) const NO_PATH: PathId = PathId(u16::MAX);

/// The sending half of an active connection.
#[derive(Debug)]
pub(crate) struct Sender {
    /// The destination of its packets, and the group of source ports they leave from.
    pub(crate) peer: PeerPorts,
    /// The largest payload of one packet, as agreed, bytes.
    pub(crate) mtu: u16,
    pub(crate) send_queue: SendQueue,
    pub(crate) sent: Window<SentPacket>,
    /// The first packet not acknowledged.
    pub(crate) base: u32,
    /// The next new packet.
    pub(crate) next: u32,
    /// One past the highest packet acknowledged.
    pub(crate) acked_end: u32,
    /// The packets to retransmit, lowest number first, because all later ones wait for it; entries acknowledged since
    /// are skipped.
    pub(crate) lost: VecDeque<u32>,
    /// The packets to retransmit as probes, to learn the state of their neighbours. No window holds them back;
    /// otherwise a window full of packets that no ACK describes would never open.
    pub(crate) probe_queue: VecDeque<u32>,
    /// The first probe and its packet before the retransmission: its path lost the packet if the answer shows that it
    /// had not arrived.
    pub(crate) probed: Option<(u32, SentPacket)>,
    /// Bytes sent and neither acknowledged nor lost.
    pub(crate) in_flight: u32,
    pub(crate) counts: Counts,
    /// The ACK that carried `counts`; `None` after the connection was idle.
    pub(crate) newest_ack: Option<NewestAck>,
    pub(crate) paths: Paths,
    pub(crate) policy: Policy,
    pub(crate) controllers: Controllers,
    /// Number of packets by which a packet may be overtaken before the policy does not get its ACK, and before the
    /// controller counts it as late.
    pub(crate) reordering_bounds: (u32, u32),
    pub(crate) health: Health,
    pub(crate) probation: Probation,
    /// The next new packet when idle paths were last selected for probing.
    pub(crate) probed_for: u32,
    /// The version of the shared path state that this connection has applied ([`PeerPaths::version`]).
    ///
    /// [`PeerPaths::version`]: crate::path::PeerPaths::version
    pub(crate) known_version: u32,
    /// The time at which it last shared its measurements.
    pub(crate) shared_at: Instant,
    pub(crate) rng: Rng,
    /// The path of the current spray unit and the number of packets left in it.
    pub(crate) unit: (PathId, u16),
    pub(crate) round_trip: RoundTrip,
    /// The multiplier of the reordering bound (RFC 8985: `reo_wnd_mult`); grows with each spurious retransmission
    /// (section 6.2).
    pub(crate) reordering_multiplier: u8,
    /// The time until which packets that no ACK described wait for the answers to probes.
    pub(crate) probe_deadline: Instant,
    pub(crate) tail: TailProbes,
    /// The time at which the multiplier is reset.
    pub(crate) multiplier_until: Instant,
    /// The timestamp of the latest packet that the peer reported as a duplicate.
    pub(crate) last_duplicate_stamp: Option<u32>,
    /// The timestamp of the latest packet; timestamps are unique and grow.
    pub(crate) last_stamp: Instant,
    /// The time at which the latest-sent of the acknowledged packets was sent.
    pub(crate) acked_sent_at: Instant,
    /// The time since which the peer owes an answer, or of its last answer if it owes none.
    pub(crate) waiting_since: Instant,
    pub(crate) pacer: Pacer,
    /// The time since which the policy holds payload back for a change of path.
    pub(crate) held_since: Option<Instant>,
    /// Under `recovery.rewind`, the end of the packets sent when an IRN sender last went back; `None` if no packet is
    /// missing.
    pub(crate) rewound_to: Option<u32>,
}

/// The state with which a sender begins a period of activity.
pub(crate) struct SenderStart {
    pub(crate) cursor: Cursor,
    pub(crate) peer: PeerPorts,
    pub(crate) mtu: u16,
    /// The binary logarithm of the number of connections about to send to the peer.
    pub(crate) sharers: u8,
    /// The seed of the connection's path choices.
    pub(crate) seed: Seed,
}

/// The probes of one silence.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TailProbes {
    /// Number of probes sent since the last ACK.
    pub(super) count: u8,
    /// The time of the last probe.
    pub(super) at: Instant,
}

impl TailProbes {
    pub(crate) const NONE: Self = Self { count: 0, at: Instant::EPOCH };
}

impl Sender {
    pub(crate) fn new(start: SenderStart, config: &TransportConfig, now: Instant) -> Self {
        let SenderStart { cursor, peer, mtu, sharers, seed } = start;
        let mut paths = Paths::new(config.paths, mtu, now);
        let mut controllers = Controllers::new(config, sharers);
        controllers.open_windows(&mut paths);
        let policy = config.build_policy();
        let of_control = controllers.of(PathId(0)).reordering_bound();
        let reordering_bounds = (policy.reordering_bound(), of_control);
        Self {
            peer,
            mtu,
            send_queue: SendQueue::new(cursor.message),
            sent: Window::new(),
            base: cursor.psn,
            next: cursor.psn,
            acked_end: cursor.psn,
            lost: VecDeque::new(),
            probe_queue: VecDeque::new(),
            probed: None,
            in_flight: 0,
            counts: cursor.counts,
            newest_ack: None,
            paths,
            policy,
            controllers,
            reordering_bounds,
            health: Health::default(),
            probation: Probation::new(config.probe_interval),
            probed_for: cursor.psn,
            known_version: 0,
            shared_at: now,
            // Each period of activity draws anew, because a restarted spray would repeat the last one's paths; each
            // begins with another message.
            rng: seed.child("paths", cursor.message.into()).rng(),
            unit: (NO_PATH, 0),
            round_trip: RoundTrip::default(),
            reordering_multiplier: 1,
            probe_deadline: Instant::EPOCH,
            tail: TailProbes::NONE,
            multiplier_until: Instant::EPOCH,
            last_duplicate_stamp: None,
            last_stamp: now,
            acked_sent_at: Instant::EPOCH,
            waiting_since: now,
            pacer: Pacer::new(config.packet_overhead),
            held_since: None,
            rewound_to: None,
        }
    }

    /// Returns the point at which to resume, once everything is acknowledged.
    pub(crate) fn cursor(&self) -> Cursor {
        Cursor { psn: self.next, message: self.send_queue.next_number(), counts: self.counts }
    }

    /// Returns `true` if nothing is waiting to be sent or acknowledged.
    pub(crate) fn is_done(&self) -> bool {
        self.send_queue.is_empty() && self.base == self.next
    }

    /// Returns `true` if payload is waiting to be sent, if the windows permit.
    #[inline]
    pub(crate) fn has_payload(&self) -> bool {
        self.send_queue.has_segment() || !self.lost.is_empty() || !self.probe_queue.is_empty()
    }

    /// Returns the bytes that are not sent or must be retransmitted; as soon as these are four times `product`, no more
    /// are counted.
    pub(crate) fn unsent(&self, product: ByteCount) -> u32 {
        let most = u32::try_from(product.0.saturating_mul(4)).unwrap_or(u32::MAX);
        let lost = u32::try_from(self.lost.len()).unwrap_or(u32::MAX);
        let lost = lost.saturating_mul(self.mtu.into());
        lost.saturating_add(self.send_queue.unsent(most)).min(most)
    }

    /// Returns `true` if the peer owes an answer.
    #[inline]
    pub(crate) fn is_waiting(&self) -> bool {
        self.base != self.next
    }

    /// Returns the length of a packet's payload, computed from its message's length.
    #[inline]
    pub(crate) fn payload_len(&self, packet: &SentPacket) -> u16 {
        segment_len(self.send_queue.message(packet.message).length, packet.offset, self.mtu)
    }

    /// Subtracts a packet that leaves the network (acknowledged or lost) from the bytes in flight.
    #[inline]
    pub(crate) fn remove_in_flight(&mut self, path: PathId, len: u16) {
        let bytes = charge(len);
        let of_path = &mut self.paths.state_mut(path).in_flight;
        let counted = bytes <= *of_path && *of_path <= self.in_flight;
        assert!(counted, "a packet leaves the network once");
        *of_path -= bytes;
        self.in_flight -= bytes;
    }

    /// Returns the time at which the next packet may leave, if that is not now.
    #[inline]
    pub(crate) fn paced_until(&mut self, now: Instant) -> Option<Instant> {
        if self.pacer.is_idle() { None } else { self.due(now) }
    }

    #[cold]
    fn due(&mut self, now: Instant) -> Option<Instant> {
        let rate = self.controllers.of(self.pacer.path()).rate()?;
        Some(self.pacer.due(rate)).filter(|&due| due > now)
    }

    /// Handles the timer armed for [`Self::paced_until`].
    pub(crate) fn on_pacing_timer(&mut self, now: Instant) {
        if !self.pacer.is_idle()
            && let Some(rate) = self.controllers.of(self.pacer.path()).rate()
        {
            self.pacer.note_timer(now, rate);
        }
    }

    /// Returns a timestamp for a packet leaving now: unique and growing, so that its echo identifies the packet.
    #[inline]
    pub(crate) fn stamp(&mut self, now: Instant) -> Instant {
        self.last_stamp = now.max(self.last_stamp + Duration::from_nanos(1));
        self.last_stamp
    }

    /// Returns the packet sent as `psn`, while it is not acknowledged cumulatively.
    #[inline]
    pub(crate) fn packet(&self, psn: u32) -> Option<&SentPacket> {
        if self.is_known(psn) { self.sent.slot(psn) } else { None }
    }

    /// Returns the same packet, mutably.
    #[inline]
    pub(crate) fn packet_mut(&mut self, psn: u32) -> Option<&mut SentPacket> {
        if self.is_known(psn) { self.sent.slot_mut(psn) } else { None }
    }

    #[inline]
    const fn is_known(&self, psn: u32) -> bool {
        psn.wrapping_sub(self.base) < self.next.wrapping_sub(self.base)
    }

    /// Queues a packet for retransmission, in the order of sequence numbers.
    pub(crate) fn push_lost(&mut self, psn: u32) {
        let base = self.base;
        let is_before = |other: &u32| other.wrapping_sub(base) < psn.wrapping_sub(base);
        if self.lost.back().is_none_or(is_before) {
            return self.lost.push_back(psn);
        }
        let at = self.lost.partition_point(is_before);
        self.lost.insert(at, psn);
    }

    /// Removes and returns the next packet to retransmit.
    pub(crate) fn pop_lost(&mut self) -> Option<u32> {
        while let Some(psn) = self.lost.pop_front() {
            if self.is_lost(psn) {
                return Some(psn);
            }
        }
        None
    }

    /// Removes and returns the next packet to retransmit as a probe, regardless of windows.
    pub(crate) fn pop_probe(&mut self) -> Option<u32> {
        while let Some(psn) = self.probe_queue.pop_front() {
            if self.is_lost(psn) {
                return Some(psn);
            }
        }
        None
    }

    fn is_lost(&self, psn: u32) -> bool {
        self.packet(psn).is_some_and(|packet| packet.state == PacketState::Lost)
    }

    pub(crate) fn release(&mut self, pool: &mut Pool<SentPacket>) {
        self.sent.release(pool);
    }
}

/// Returns the bytes a payload occupies in a window: an empty one still occupies the network.
#[inline]
pub(crate) fn charge(len: u16) -> u32 {
    u32::from(len).max(1)
}
