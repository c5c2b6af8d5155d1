//! Loss detection. On one path packets do not overtake each other, so a packet is lost once one sent later *on the same
//! path* was placed. Between paths they do, so being overtaken there means nothing until the reordering window has
//! passed. Silence means loss after the retransmission timeout.
//!
//! An ACK describes 256 packets, a window holds more, and ACKs get lost. So a packet was overtaken only if an ACK newer
//! than all before it described the packet as missing; a packet that no ACK described may have arrived.

use weft_units::{Duration, Instant, prefetch};
use weft_wire::{AckHeader, AckType, BITMAP_PACKETS};

use super::ack_received::{first_described, psn_range};
use super::in_flight::{PacketState, SentPacket};
use super::sender::Sender;
use super::{Connection, Shared};
use crate::congestion::Controllers;
use crate::path::{Feedback, PathId, PathPolicy, Paths};
use crate::pool::before;
use crate::recovery::Kind;
use crate::timers::Timer;
use crate::{ConnectionId, Event, Retransmission, Stats, TransportConfig, TrimmedAt};

/// The reason a packet is considered lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// The packet was overtaken on its own path.
    Overtaken,
    /// The packet was overtaken by other paths for too long. It may still arrive.
    Overdue,
    /// The peer reported the packet as missing, and its retransmission timeout passed.
    Timeout,
    /// A switch cut the packet to its headers, and the peer said so.
    Trimmed(TrimmedAt),
    /// The packet's path is silent: it answered neither for the packet nor a probe. The packet may have arrived.
    Silent,
    /// No ACK described the packet for the retransmission timeout: the packet was lost, or the ACKs were.
    Unreported,
}

impl Cause {
    /// Counts packets retransmitted for this reason.
    pub(super) fn count(self, packets: u64, stats: &mut Stats) {
        match self {
            Self::Overtaken | Self::Overdue | Self::Silent | Self::Trimmed(_) => {
                stats.fast_retransmits += packets;
            }
            Self::Timeout | Self::Unreported => stats.timeout_retransmits += packets,
        }
    }

    /// Notifies congestion control, or counts a loss on a suspended path for later. A packet of a silent path was probably
    /// not lost, if the path works.
    pub(super) fn notify(
        self,
        path: PathId,
        now: Instant,
        controllers: &mut Controllers,
        paths: &mut Paths,
    ) {
        let suspension = paths.suspension(path).filter(|_| !matches!(self, Self::Trimmed(_)));
        if let Some(suspension) = suspension {
            suspension.losses += u32::from(self != Self::Silent);
            return;
        }
        match self {
            Self::Overtaken | Self::Overdue => controllers.on_loss(path, now, paths),
            Self::Trimmed(at) => controllers.on_trimmed(path, now, at, paths),
            Self::Timeout | Self::Unreported => controllers.on_timeout(path, now, paths),
            Self::Silent => unreachable!("only a suspended path is silent"),
        }
    }

    /// Returns the feedback for the path policy.
    pub(super) const fn feedback(self) -> Feedback {
        match self {
            Self::Overtaken | Self::Overdue | Self::Silent => Feedback::Lost,
            Self::Trimmed(_) => Feedback::Trimmed,
            Self::Timeout | Self::Unreported => Feedback::TimedOut,
        }
    }
}

impl Sender {
    /// Returns the time that a packet sent now, retransmitted `retransmissions` times before, may stay unacknowledged.
    pub(crate) fn timeout(&self, shared: &Shared, retransmissions: u8) -> Duration {
        let config = &shared.config;
        config.retransmission.backed_off(self.first_timeout(shared), retransmissions)
    }

    /// Returns the timeout of a first transmission. While few packets are unacknowledged no NACK may come, so IRN's
    /// timeout is shorter.
    fn first_timeout(&self, shared: &Shared) -> Duration {
        let TransportConfig { retransmission, recovery, ack_delay, .. } = &*shared.config;
        let few_unacked = self.next.wrapping_sub(self.base) <= LOW_RTO_PACKETS;
        let low = (recovery.kind == Kind::Irn && few_unacked).then_some(recovery.rto_low);
        self.round_trip.timeout(low.unwrap_or(retransmission.rto_min), retransmission, *ack_delay)
    }

    /// Returns the reason why `packet` is lost; as the error, the time of the next evaluation of a packet that is not.
    fn evaluate(
        &self,
        packet: &SentPacket,
        now: Instant,
        limits: &Limits,
    ) -> Result<Cause, Instant> {
        let sent_at = self.last_stamp.from_wire(packet.sent_at);
        let missing = packet.state == PacketState::Missing;
        let by_path = limits.by_path;
        if by_path && missing && sent_at < self.paths.acked_sent_at(packet.path) {
            // Since an ACK described it, the packet may have arrived with those that overtook it.
            return Ok(if limits.described { Cause::Overtaken } else { Cause::Overdue });
        }
        if limits.suspends && self.paths.is_silent(packet.path) {
            return Ok(Cause::Silent);
        }
        let timeout = sent_at + limits.timeout(packet.retransmissions);
        if timeout <= now {
            return Ok(if missing { Cause::Timeout } else { Cause::Unreported });
        }
        if !(by_path && missing) {
            return Err(timeout);
        }
        let overdue = sent_at + limits.reordering_window;
        if overdue <= now { Ok(Cause::Overdue) } else { Err(overdue.min(timeout)) }
    }
}

/// The limits of one loss detection, computed once.
struct Limits {
    reordering_window: Duration,
    /// The timeout of a first transmission.
    timeout: Duration,
    config: Retransmission,
    /// `true` if an overtaken packet is lost.
    by_path: bool,
    /// `true` if silent paths are suspended.
    suspends: bool,
    /// `true` if the newest ACK described the packets.
    described: bool,
}

impl Limits {
    fn new(sender: &Sender, described: bool, shared: &Shared) -> Self {
        let config = shared.config.retransmission;
        let reordering_window =
            sender.round_trip.reordering_window(&config, sender.reordering_multiplier);
        let by_path = shared.config.recovery.kind == Kind::PerPath;
        let suspends = shared.config.recovery.suspends();
        let timeout = sender.first_timeout(shared);
        Self { reordering_window, timeout, config, by_path, suspends, described }
    }

    fn timeout(&self, retransmissions: u8) -> Duration {
        self.config.backed_off(self.timeout, retransmissions)
    }
}

impl Connection {
    /// Detects losses among the packets that the newest ACK described. Does nothing if the ACK reported no gap.
    #[inline]
    pub(crate) fn detect_loss(&mut self, now: Instant, ack: &AckHeader, shared: &mut Shared) {
        let Some(sender) = self.sender.as_deref_mut() else { return };
        sender.on_probe_answered(self.id, ack, now, shared);
        if matches!(shared.config.recovery.kind, Kind::Irn | Kind::GoBackN) {
            if ack.bitmap.last().is_none() {
                sender.rewound_to = None;
            }
            if ack.ack_type == AckType::Nack {
                self.handle_nack(now, ack, shared);
            }
            return;
        }
        let first = first_described(ack);
        if sender.acked_end != sender.base {
            sender.note_missing(first);
            let mut next =
                sender.detect_losses(self.id, sender.described(first), true, now, shared);
            if sender.finds_silent_path(now) {
                next = sender.detect_losses(self.id, sender.all(), false, now, shared);
            }
            self.arm_loss_timers(next);
        }
    }

    /// Handles the loss timer: evaluates all packets in flight.
    pub(crate) fn on_loss_timer(&mut self, now: Instant, shared: &mut Shared) {
        if shared.config.recovery.kind == Kind::GoBackN {
            return self.go_back_on_timeout(now, shared);
        }
        let Some(sender) = self.sender.as_deref_mut() else { return };
        let next = sender.detect_losses(self.id, sender.all(), false, now, shared);
        self.arm_loss_timers(next);
    }

    /// Arms the timers for the next evaluation, probe and congestion deadline.
    pub(super) fn arm_loss_timers(&mut self, next: Option<Instant>) {
        if let Some(at) = next {
            self.timers.arm_by(Timer::Loss, at);
        }
        if let Some(at) = self.sender.as_deref().and_then(|sender| sender.health.next()) {
            self.timers.arm_by(Timer::PathProbe, at);
        }
        self.arm_congestion();
    }
}

impl Sender {
    /// Returns the range of packets that an ACK can have described as missing, where it described 256 from `first` on:
    /// from the first unacknowledged one to the last acknowledged one.
    pub(super) fn described(&self, first: u32) -> (u32, u32) {
        let last = first.wrapping_add(BITMAP_PACKETS);
        let first = if before(first, self.base) { self.base } else { first };
        let end = if before(last, self.acked_end) { last } else { self.acked_end };
        (first, if before(first, end) { end } else { first })
    }

    /// Returns the range of all packets that are not acknowledged cumulatively.
    const fn all(&self) -> (u32, u32) {
        (self.base, self.next)
    }

    /// Marks as missing those packets from number `first` on that the newest ACK described as not placed, and that were
    /// sent before others that were placed.
    pub(super) fn note_missing(&mut self, first: u32) {
        let (first, end) = self.described(first);
        for psn in psn_range(first, end) {
            let packet = self.sent.slot_mut(psn).expect("a sent packet has a slot");
            let sent_at = self.last_stamp.from_wire(packet.sent_at);
            if packet.state == PacketState::InFlight && sent_at < self.acked_sent_at {
                packet.state = PacketState::Missing;
            }
            if packet.state == PacketState::Missing {
                prefetch(self.paths.state(packet.path));
            }
        }
    }

    /// Evaluates the packets in flight from `first` up to `end`; returns the earliest next deadline. `described` is
    /// `true` if the newest ACK described them.
    fn detect_losses(
        &mut self,
        id: ConnectionId,
        (first, end): (u32, u32),
        described: bool,
        now: Instant,
        shared: &mut Shared,
    ) -> Option<Instant> {
        if now >= self.multiplier_until {
            self.reordering_multiplier = 1;
        }
        let limits = Limits::new(self, described, shared);
        let mut next = None::<Instant>;
        let mut soonest = |at: Instant| next = Some(next.map_or(at, |next| next.min(at)));
        // A packet may be unreported because ACKs were lost. So of packets that no ACK described, one in 256 is
        // retransmitted as a probe, which requests an ACK that describes them all.
        let mut probed_psn = None::<u32>;
        let is_near = |probed_psn: Option<u32>, psn: u32| {
            probed_psn.is_some_and(|probed_psn| psn.wrapping_sub(probed_psn) < BITMAP_PACKETS)
        };
        for psn in psn_range(first, end) {
            let packet = *self.sent.slot(psn).expect("a sent packet has a slot");
            if !packet.is_in_flight() {
                continue;
            }
            match self.evaluate(&packet, now, &limits) {
                Err(at) => {
                    soonest(at);
                    if limits.suspends && packet.state == PacketState::Missing {
                        self.suspend_if_overdue(&packet, now, shared)
                            .into_iter()
                            .for_each(&mut soonest);
                    }
                }
                Ok(Cause::Unreported) if now < self.probe_deadline => soonest(self.probe_deadline),
                Ok(Cause::Unreported) if is_near(probed_psn, psn) => soonest(now + limits.timeout),
                Ok(Cause::Unreported) => {
                    probed_psn = Some(psn);
                    self.queue_probe(psn, &packet);
                    Cause::Unreported.count(1, &mut shared.stats);
                }
                Ok(Cause::Silent) => self.declare_lost(psn, &packet, Cause::Silent, now, shared),
                Ok(cause) => {
                    if limits.suspends {
                        self.suspend_if_silent(&packet, now, shared);
                    }
                    self.declare_lost(psn, &packet, cause, now, shared);
                    self.note_path_loss(id, &packet, now, shared);
                }
            }
        }
        if probed_psn.is_some() {
            self.probe_deadline = now + limits.timeout.max(self.round_trip.smoothed());
        }
        next
    }

    /// Queues a retransmission of a packet that no ACK described, as a probe. Missing ACKs alone are not counted
    /// against a path: when a peer is silent, that would take down working paths.
    pub(super) fn queue_probe(&mut self, psn: u32, packet: &SentPacket) {
        self.remove_in_flight(packet.path, self.payload_len(packet));
        self.sent.slot_mut(psn).expect("a sent packet has a slot").state = PacketState::Lost;
        self.probe_queue.push_back(psn);
        self.probed.get_or_insert((psn, *packet));
    }

    /// Handles an ACK that answers the probe: the original packet had arrived, perhaps late, or its path lost it.
    fn on_probe_answered(
        &mut self,
        id: ConnectionId,
        ack: &AckHeader,
        now: Instant,
        shared: &mut Shared,
    ) {
        let Some((psn, packet)) = self.probed else { return };
        if self.packet(psn).is_some_and(|packet| packet.state != PacketState::Acked) {
            return;
        }
        self.probed = None;
        let late = ack.timestamp_echo == packet.sent_at;
        if ack.ack_type != AckType::Duplicate && ack.psn == psn && !late {
            if shared.config.recovery.suspends() {
                self.suspend_if_silent(&packet, now, shared);
            }
            self.paths.count_lost(packet.path, true);
            Cause::Unreported.notify(packet.path, now, &mut self.controllers, &mut self.paths);
            self.policy.on_feedback(packet.path, Feedback::TimedOut, &self.paths, now);
            self.note_path_loss(id, &packet, now, shared);
        }
    }

    /// Declares a packet lost: removes it from the packets in flight, queues it for retransmission, and notifies
    /// congestion control and the path policy.
    pub(super) fn declare_lost(
        &mut self,
        psn: u32,
        packet: &SentPacket,
        cause: Cause,
        now: Instant,
        shared: &mut Shared,
    ) {
        self.remove_in_flight(packet.path, self.payload_len(packet));
        self.sent.slot_mut(psn).expect("a sent packet has a slot").state = PacketState::Lost;
        self.push_lost(psn);
        if !matches!(cause, Cause::Silent | Cause::Trimmed(_)) {
            self.paths.count_lost(packet.path, cause == Cause::Overtaken);
        }
        cause.count(1, &mut shared.stats);
        cause.notify(packet.path, now, &mut self.controllers, &mut self.paths);
        self.policy.on_feedback(packet.path, cause.feedback(), &self.paths, now);
    }

    /// Counts a loss against its path. A path is down after several consecutive losses, each of a packet sent after the
    /// loss before was detected, *and* two round trips of silence. Packets lost together count once: a full queue, or
    /// ACKs lost on another path, affect several at a time.
    pub(super) fn note_path_loss(
        &mut self,
        id: ConnectionId,
        packet: &SentPacket,
        now: Instant,
        shared: &mut Shared,
    ) {
        let path = packet.path;
        let sent_at = self.last_stamp.from_wire(packet.sent_at);
        let silence = (self.round_trip.smoothed() * 2).max(MIN_SILENCE);
        if sent_at <= self.paths.suspected_at(path) {
            return;
        }
        self.paths.mark_suspected(path, now);
        let (shared_losses, counts) = shared.peer_paths.note_loss(self.peer, path, sent_at, now);
        let silent_for = now.since(self.paths.last_response_at(path));
        let losses = self.paths.losses(path).max(shared_losses);
        if self.paths.is_down(path) {
            return;
        }
        if losses >= shared.config.path_down_after {
            if silent_for >= silence {
                self.take_down(id, path, now, shared);
            }
            return;
        }
        // Further payload would also show whether the path is dead, but would be late itself.
        let probe_timeout = self.probe_timeout(shared).max(MIN_PROBE_TIMEOUT);
        if counts && silent_for >= probe_timeout {
            self.health.watch(path, now, probe_timeout);
        }
    }

    /// Takes a path down. One connection probes it for all until it works again.
    pub(super) fn take_down(
        &mut self,
        id: ConnectionId,
        path: PathId,
        now: Instant,
        shared: &mut Shared,
    ) {
        self.paths.set_up(path, false);
        if shared.peer_paths.is_probed(self.peer, path) {
            self.health.forget(path);
            return;
        }
        self.probation.begin(path, now);
        let interval = shared.config.probe_interval;
        if self.health.is_watched(path) {
            self.health.reschedule(path, now + interval, interval);
        } else {
            self.health.watch(path, now, interval);
        }
        shared.stats.paths_down += 1;
        shared.events.push_back(Event::PathDown { connection: id, path });
        let path_down_after = shared.config.path_down_after;
        shared.peer_paths.note_down(self.peer, path, id, path_down_after);
    }
}

/// Maximum number of unacknowledged packets for which IRN uses its low timeout (Mittal et al., section 4.2).
const LOW_RTO_PACKETS: u32 = 3;

/// The shortest wait for the answer to a probe of a suspected path: a queue that has grown since the last round trip
/// delays it this long.
const MIN_PROBE_TIMEOUT: Duration = Duration::from_micros(250);

/// The shortest silence that takes a path down: scheduling alone can silence a host this long.
const MIN_SILENCE: Duration = Duration::from_micros(20);
