//! The sending half of a connection while it has something to send. An idle connection keeps only
//! the [`Cursor`] it resumes from.

use alloc::collections::VecDeque;

use weft_units::{Duration, Instant, Rng, Seed};
use weft_wire::U11;

use super::in_flight::{Fate, SentPacket};
use super::message::{Outbox, piece};
use super::pacing::Pacer;
use super::rtt::RoundTrip;
use super::tail::TailProbes;
use crate::TransportConfig;
use crate::congestion::{Congestion, Controllers};
use crate::path::{Health, PathId, PathPolicy, Paths, PeerPorts, Policy, Probation};
use crate::pool::{Pool, Window};

/// Where sending goes on after the connection was idle.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor {
    /// Sequence number of the next packet; everything before it is acknowledged.
    pub(crate) psn: u32,
    /// Number of the next message.
    pub(crate) message: u32,
    /// The peer's counts in the latest ACK.
    pub(crate) counts: Counts,
}

/// The peer's running counts of packets accepted and of congestion marks among them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) acked: U11,
    pub(crate) marked: U11,
}

/// What tells an ACK from one that it overtook.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewestAck {
    pub(crate) psn_base: u32,
    /// When it left, by the peer's clock, nanoseconds modulo 2^32.
    pub(crate) timestamp: u32,
    /// When it arrived.
    pub(crate) heard_at: Instant,
}

/// The path of the spray unit before the first.
pub(crate) const NO_PATH: PathId = PathId(u16::MAX);

/// The sending half of an active connection.
#[derive(Debug)]
pub(crate) struct Sender {
    /// Where its packets go, and which group of source ports they leave from.
    pub(crate) peer: PeerPorts,
    /// Largest payload of one packet, as agreed, bytes.
    pub(crate) mtu: u16,
    pub(crate) outbox: Outbox,
    pub(crate) sent: Window<SentPacket>,
    /// The first packet not acknowledged.
    pub(crate) base: u32,
    /// The next new packet.
    pub(crate) next: u32,
    /// One past the highest packet acknowledged.
    pub(crate) acked_end: u32,
    /// Packets to send again, the lowest number first, as everything waits for it; entries acknowledged
    /// since are skipped.
    pub(crate) lost: VecDeque<u32>,
    /// Packets to send again to learn what became of their neighbours; no window holds them back, or
    /// a window full of packets that nothing is heard of would never open.
    pub(crate) asks: VecDeque<u32>,
    /// The first packet that was sent again to ask, as it was before: its path is guilty if the
    /// answer is that it had not arrived.
    pub(crate) accused: Option<(u32, SentPacket)>,
    /// Bytes sent and neither acknowledged nor lost.
    pub(crate) in_flight: u32,
    pub(crate) counts: Counts,
    /// The ACK that `counts` are of; `None` after the connection was idle.
    pub(crate) newest_ack: Option<NewestAck>,
    pub(crate) paths: Paths,
    pub(crate) policy: Policy,
    pub(crate) controllers: Controllers,
    /// Packets by which a packet may be overtaken before the policy is not told of its ACK, and before
    /// the controller hears that it is late.
    pub(crate) reordering_bounds: (u32, u32),
    pub(crate) health: Health,
    pub(crate) probation: Probation,
    /// The next new packet when idle paths were last looked for.
    pub(crate) probed_for: u32,
    /// What it knows of what other connections learnt of its paths, as [`PeerPaths::version`] counts.
    ///
    /// [`PeerPaths::version`]: crate::path::PeerPaths::version
    pub(crate) known: u32,
    /// When it last left its measurements to them.
    pub(crate) shared_at: Instant,
    pub(crate) rng: Rng,
    /// The path of the spray unit under way and how many packets it has left.
    pub(crate) unit: (PathId, u16),
    pub(crate) round_trip: RoundTrip,
    /// Multiplies the reordering bound; grows with each needless repeat (RFC 8985, section 6.2).
    pub(crate) patience: u8,
    /// Until then packets that nothing was heard of wait for what the peer says of those among them
    /// that were sent again.
    pub(crate) answer_by: Instant,
    pub(crate) tail: TailProbes,
    /// When patience has worn off.
    pub(crate) patient_until: Instant,
    /// The stamp of the latest packet that the peer said it got twice.
    pub(crate) needless: Option<u32>,
    /// When the latest packet was stamped; stamps are unique and grow.
    pub(crate) last_stamp: Instant,
    /// When the latest-sent packet among the acknowledged was sent.
    pub(crate) acked_sent_at: Instant,
    /// Since when the peer owes an answer, or when it gave the last where it owes none.
    pub(crate) waiting_since: Instant,
    pub(crate) pacer: Pacer,
    /// When the policy began to hold payload back for a change of path.
    pub(crate) held_since: Option<Instant>,
    /// Under `recovery.rewind`, the end of what was sent when an IRN sender last went back; `None`
    /// where nothing is missing.
    pub(crate) rewound_to: Option<u32>,
}

impl Sender {
    pub(crate) fn new(
        cursor: Cursor,
        config: &TransportConfig,
        peer: PeerPorts,
        mtu: u16,
        sharers: u8,
        seed: Seed,
        now: Instant,
    ) -> Self {
        let mut paths = Paths::new(config.paths, mtu, now);
        let mut controllers = Controllers::new(config, sharers);
        controllers.open_windows(&mut paths);
        let policy = config.policy.build(config);
        let of_control = controllers.of(PathId(0)).reordering_bound();
        let reordering_bounds = (policy.reordering_bound(), of_control);
        Self {
            peer,
            mtu,
            outbox: Outbox::new(cursor.message),
            sent: Window::new(),
            base: cursor.psn,
            next: cursor.psn,
            acked_end: cursor.psn,
            lost: VecDeque::new(),
            asks: VecDeque::new(),
            accused: None,
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
            known: 0,
            shared_at: now,
            // Each burst of activity draws anew, or a restarted spray would repeat the last one's
            // paths; and each begins with another message.
            rng: seed.child("paths", cursor.message.into()).rng(),
            unit: (NO_PATH, 0),
            round_trip: RoundTrip::default(),
            patience: 1,
            answer_by: Instant::EPOCH,
            tail: TailProbes::NONE,
            patient_until: Instant::EPOCH,
            needless: None,
            last_stamp: now,
            acked_sent_at: Instant::EPOCH,
            waiting_since: now,
            pacer: Pacer::new(config.packet_overhead),
            held_since: None,
            rewound_to: None,
        }
    }

    /// Where to resume, once everything is acknowledged.
    pub(crate) fn cursor(&self) -> Cursor {
        Cursor { psn: self.next, message: self.outbox.next_number(), counts: self.counts }
    }

    /// Whether nothing waits to be sent or acknowledged.
    pub(crate) fn is_done(&self) -> bool {
        self.outbox.is_empty() && self.base == self.next
    }

    /// Whether payload waits to be sent, if the windows let it.
    #[inline]
    pub(crate) fn has_payload(&self) -> bool {
        self.outbox.has_segment() || !self.lost.is_empty() || !self.asks.is_empty()
    }

    /// Whether the peer owes an answer.
    #[inline]
    pub(crate) fn is_waiting(&self) -> bool {
        self.base != self.next
    }

    /// Length of a packet's payload, from its message's length.
    #[inline]
    pub(crate) fn payload_len(&self, packet: &SentPacket) -> u16 {
        piece(self.outbox.message(packet.message).length, packet.offset, self.mtu)
    }

    /// Takes a packet that leaves the network (acknowledged or lost) out of what is in flight.
    #[inline]
    pub(crate) fn leave_flight(&mut self, path: PathId, len: u16) {
        let bytes = charge(len);
        let of_path = &mut self.paths.state_mut(path).in_flight;
        let counted = bytes <= *of_path && *of_path <= self.in_flight;
        assert!(counted, "a packet leaves the network once");
        *of_path -= bytes;
        self.in_flight -= bytes;
    }

    /// When the next packet may leave, if not now.
    #[inline]
    pub(crate) fn paced_until(&mut self, now: Instant) -> Option<Instant> {
        if self.pacer.is_idle() { None } else { self.due(now) }
    }

    #[cold]
    fn due(&mut self, now: Instant) -> Option<Instant> {
        let rate = self.controllers.of(self.pacer.path()).rate()?;
        Some(self.pacer.due(rate)).filter(|&due| due > now)
    }

    /// The timer armed for [`Self::paced_until`] fired.
    pub(crate) fn on_pacing_timer(&mut self, now: Instant) {
        if !self.pacer.is_idle()
            && let Some(rate) = self.controllers.of(self.pacer.path()).rate()
        {
            self.pacer.note_timer(now, rate);
        }
    }

    /// A stamp for a packet leaving now: unique and growing, so that its echo names it.
    #[inline]
    pub(crate) fn stamp(&mut self, now: Instant) -> Instant {
        self.last_stamp = now.max(self.last_stamp + Duration::from_nanos(1));
        self.last_stamp
    }

    /// The packet sent as `psn`, while it is not acknowledged cumulatively.
    #[inline]
    pub(crate) fn packet(&self, psn: u32) -> Option<&SentPacket> {
        if self.is_known(psn) { self.sent.slot(psn) } else { None }
    }

    /// The same, to change it.
    #[inline]
    pub(crate) fn packet_mut(&mut self, psn: u32) -> Option<&mut SentPacket> {
        if self.is_known(psn) { self.sent.slot_mut(psn) } else { None }
    }

    #[inline]
    const fn is_known(&self, psn: u32) -> bool {
        psn.wrapping_sub(self.base) < self.next.wrapping_sub(self.base)
    }

    /// Has a packet sent again after those before it.
    pub(crate) fn push_lost(&mut self, psn: u32) {
        let base = self.base;
        let is_before = |other: &u32| other.wrapping_sub(base) < psn.wrapping_sub(base);
        if self.lost.back().is_none_or(is_before) {
            return self.lost.push_back(psn);
        }
        let at = self.lost.partition_point(is_before);
        self.lost.insert(at, psn);
    }

    /// Takes the next packet to send again.
    pub(crate) fn pop_lost(&mut self) -> Option<u32> {
        while let Some(psn) = self.lost.pop_front() {
            if self.is_lost(psn) {
                return Some(psn);
            }
        }
        None
    }

    /// Takes the next packet to send again whatever the windows say.
    pub(crate) fn pop_ask(&mut self) -> Option<u32> {
        while let Some(psn) = self.asks.pop_front() {
            if self.is_lost(psn) {
                return Some(psn);
            }
        }
        None
    }

    fn is_lost(&self, psn: u32) -> bool {
        self.packet(psn).is_some_and(|packet| packet.fate == Fate::Lost)
    }

    pub(crate) fn release(&mut self, pool: &mut Pool<SentPacket>) {
        self.sent.release(pool);
    }
}

/// What a payload counts for in a window: an empty one still occupies the network.
#[inline]
pub(crate) fn charge(len: u16) -> u32 {
    u32::from(len).max(1)
}
