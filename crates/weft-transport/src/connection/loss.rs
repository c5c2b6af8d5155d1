//! When a packet is lost. On one path packets do not overtake each other, so a packet is lost once
//! one sent later *on the same path* was placed. Between paths they do, so being overtaken there
//! means nothing until the reordering bound has passed. Silence means loss after the
//! retransmission timeout.
//!
//! An ACK describes 256 packets, a window holds more, and ACKs get lost. So a packet was overtaken
//! only if an ACK that is newer than all before it described the packet, and as missing: that it was
//! not heard of means nothing.

use weft_units::{Duration, Instant, prefetch};
use weft_wire::{AckHeader, AckType, BITMAP_PACKETS};

use super::ack_received::{circle, first_described};
use super::in_flight::{Fate, SentPacket};
use super::sender::Sender;
use super::{Connection, Shared};
use crate::congestion::Controllers;
use crate::path::{Feedback, PathId, PathPolicy, Paths};
use crate::pool::before;
use crate::recovery::Kind;
use crate::timers::Timer;
use crate::{ConnectionId, Event, Retransmission, Stats, TransportConfig};

/// Why a packet is taken for lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// Overtaken on its own path, or for too long by other paths.
    Overtaken,
    /// The peer had not got it at the end of the retransmission timeout.
    Timeout,
    /// Nothing was heard of it for the retransmission timeout: it was lost, or the ACKs that described
    /// it were.
    Unheard,
}

impl Cause {
    /// Counts packets that are sent again for it.
    pub(super) fn count(self, packets: u64, stats: &mut Stats) {
        match self {
            Self::Overtaken => stats.fast_retransmits += packets,
            Self::Timeout | Self::Unheard => stats.timeout_retransmits += packets,
        }
    }

    /// Tells congestion control of it; returns what the path policy is to hear.
    pub(super) fn tell(
        self,
        path: PathId,
        now: Instant,
        controllers: &mut Controllers,
        paths: &mut Paths,
    ) -> Feedback {
        match self {
            Self::Overtaken => {
                controllers.on_loss(path, now, paths);
                Feedback::Lost
            }
            Self::Timeout | Self::Unheard => {
                controllers.on_timeout(path, now, paths);
                Feedback::TimedOut
            }
        }
    }
}

impl Sender {
    /// How long a packet sent now may stay unacknowledged.
    pub(crate) fn timeout(&self, shared: &Shared, repeats: u8) -> Duration {
        let config = &shared.config;
        config.retransmission.backed_off(self.first_timeout(shared), repeats)
    }

    /// Likewise for a packet that was sent once. Where few packets are out no NACK may come, so IRN
    /// waits for less.
    fn first_timeout(&self, shared: &Shared) -> Duration {
        let TransportConfig { retransmission, recovery, ack_delay, .. } = &shared.config;
        let few = self.next.wrapping_sub(self.base) <= FEW;
        let low = (recovery.kind == Kind::Irn && few).then_some(recovery.rto_low);
        self.round_trip.timeout(low.unwrap_or(retransmission.rto_min), retransmission, *ack_delay)
    }

    /// Why `packet` is lost, or when to look again.
    fn judge(&self, packet: &SentPacket, now: Instant, limits: &Limits) -> Result<Cause, Instant> {
        let sent_at = self.last_stamp.from_wire(packet.sent_at);
        let missing = packet.fate == Fate::Missing;
        let by_path = limits.by_path;
        if by_path && missing && sent_at < self.paths.state(packet.path).acked_sent_at {
            return Ok(Cause::Overtaken);
        }
        let timeout = sent_at + limits.timeout(packet.repeats);
        if timeout <= now {
            return Ok(if missing { Cause::Timeout } else { Cause::Unheard });
        }
        if !(by_path && missing) {
            return Err(timeout);
        }
        let overdue = sent_at + limits.reordering;
        if overdue <= now { Ok(Cause::Overtaken) } else { Err(overdue.min(timeout)) }
    }
}

/// The bounds of one look, computed once.
struct Limits {
    reordering: Duration,
    /// The timeout of a packet that was sent once.
    timeout: Duration,
    config: Retransmission,
    /// Whether a packet that was overtaken is lost for that.
    by_path: bool,
}

impl Limits {
    fn new(sender: &Sender, shared: &Shared) -> Self {
        let config = shared.config.retransmission;
        let reordering = sender.round_trip.reordering(&config, sender.patience);
        let by_path = shared.config.recovery.kind == Kind::PerPath;
        Self { reordering, timeout: sender.first_timeout(shared), config, by_path }
    }

    fn timeout(&self, repeats: u8) -> Duration {
        self.config.backed_off(self.timeout, repeats)
    }
}

impl Connection {
    /// Looks for losses among the packets that the newest ACK described. Does nothing where the ACK left
    /// nothing out.
    #[inline]
    pub(crate) fn detect_loss(&mut self, now: Instant, ack: &AckHeader, shared: &mut Shared) {
        let Some(sender) = self.sender.as_deref_mut() else { return };
        sender.hear_answer(self.id, ack, now, shared);
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
            let next = sender.look_for_losses(self.id, sender.described(first), now, shared);
            self.after_look(next);
        }
    }

    /// The loss timer fired: looks at everything in flight.
    pub(crate) fn on_loss_timer(&mut self, now: Instant, shared: &mut Shared) {
        if shared.config.recovery.kind == Kind::GoBackN {
            return self.go_back_on_timeout(now, shared);
        }
        let Some(sender) = self.sender.as_deref_mut() else { return };
        let all = (sender.base, sender.next);
        let next = sender.look_for_losses(self.id, all, now, shared);
        self.after_look(next);
    }

    /// Arms the timers for what comes next.
    pub(super) fn after_look(&mut self, next: Option<Instant>) {
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
    /// The packets that an ACK can have described as missing, where it described 256 from `first`
    /// on: from the first unacknowledged one to the last acknowledged one.
    pub(super) fn described(&self, first: u32) -> (u32, u32) {
        let last = first.wrapping_add(BITMAP_PACKETS);
        let first = if before(first, self.base) { self.base } else { first };
        let end = if before(last, self.acked_end) { last } else { self.acked_end };
        (first, if before(first, end) { end } else { first })
    }

    /// The newest ACK described packets from `first` on: those that were sent before others which
    /// arrived and did not arrive themselves are missing.
    pub(super) fn note_missing(&mut self, first: u32) {
        let (first, end) = self.described(first);
        for psn in circle(first, end) {
            let packet = self.sent.slot_mut(psn).expect("a sent packet has a slot");
            let sent_at = self.last_stamp.from_wire(packet.sent_at);
            if packet.fate == Fate::InFlight && sent_at < self.acked_sent_at {
                packet.fate = Fate::Missing;
            }
            if packet.fate == Fate::Missing {
                prefetch(self.paths.state(packet.path));
            }
        }
    }

    /// Judges the packets in flight from `first` up to `end`; returns when the next of them is due.
    fn look_for_losses(
        &mut self,
        id: ConnectionId,
        (first, end): (u32, u32),
        now: Instant,
        shared: &mut Shared,
    ) -> Option<Instant> {
        if now >= self.patient_until {
            self.patience = 1;
        }
        let limits = Limits::new(self, shared);
        let mut next = None::<Instant>;
        let mut soonest = |at: Instant| next = Some(next.map_or(at, |next| next.min(at)));
        // Silence may be lost ACKs. So of the packets that nothing was heard of one in 256 is sent
        // again, which asks for an ACK that describes them all.
        let mut asked = None::<u32>;
        let is_near = |asked: Option<u32>, psn: u32| {
            asked.is_some_and(|asked| psn.wrapping_sub(asked) < BITMAP_PACKETS)
        };
        for psn in circle(first, end) {
            let packet = *self.sent.slot(psn).expect("a sent packet has a slot");
            if !packet.is_in_flight() {
                continue;
            }
            match self.judge(&packet, now, &limits) {
                Err(at) => soonest(at),
                Ok(Cause::Unheard) if now < self.answer_by => soonest(self.answer_by),
                Ok(Cause::Unheard) if is_near(asked, psn) => soonest(now + limits.timeout),
                Ok(Cause::Unheard) => {
                    asked = Some(psn);
                    self.ask(psn, &packet);
                    Cause::Unheard.count(1, &mut shared.stats);
                }
                Ok(cause) => {
                    self.lose(psn, &packet, cause, now, shared);
                    self.suspect(id, &packet, now, shared);
                }
            }
        }
        if asked.is_some() {
            self.answer_by = now + limits.timeout.max(self.round_trip.smoothed());
        }
        next
    }

    /// Sends a packet again that nothing was heard of. In a silence nobody is to blame: taking the
    /// peer's silence for that of the paths asked on took paths down that were well.
    pub(super) fn ask(&mut self, psn: u32, packet: &SentPacket) {
        self.leave_flight(packet.path, self.payload_len(packet));
        self.sent.slot_mut(psn).expect("a sent packet has a slot").fate = Fate::Lost;
        self.asks.push_back(psn);
        self.accused.get_or_insert((psn, *packet));
    }

    /// An ACK arrived: if it answers for the accused, the packet had arrived, if late, or its path is
    /// guilty.
    fn hear_answer(
        &mut self,
        id: ConnectionId,
        ack: &AckHeader,
        now: Instant,
        shared: &mut Shared,
    ) {
        let Some((psn, packet)) = self.accused else { return };
        if self.packet(psn).is_some_and(|packet| packet.fate != Fate::Acked) {
            return;
        }
        self.accused = None;
        let late = ack.timestamp_echo == packet.sent_at;
        if ack.ack_type != AckType::Duplicate && ack.psn == psn && !late {
            self.paths.count_lost(packet.path);
            self.controllers.on_timeout(packet.path, now, &mut self.paths);
            self.policy.on_feedback(packet.path, Feedback::TimedOut, &self.paths, now);
            self.suspect(id, &packet, now, shared);
        }
    }

    /// Takes a packet for lost: it is out of the network, will be sent again, and everybody who
    /// decides hears of it.
    pub(super) fn lose(
        &mut self,
        psn: u32,
        packet: &SentPacket,
        cause: Cause,
        now: Instant,
        shared: &mut Shared,
    ) {
        self.leave_flight(packet.path, self.payload_len(packet));
        self.sent.slot_mut(psn).expect("a sent packet has a slot").fate = Fate::Lost;
        self.push_lost(psn);
        self.paths.count_lost(packet.path);
        cause.count(1, &mut shared.stats);
        let feedback = cause.tell(packet.path, now, &mut self.controllers, &mut self.paths);
        self.policy.on_feedback(packet.path, feedback, &self.paths, now);
    }

    /// Counts a loss against its path. A path is down after several losses in a row, each of a packet
    /// sent after the one before was noticed, *and* two round trips of silence. Packets lost together
    /// count once: a full queue, or ACKs lost on another path, take several at a time.
    pub(super) fn suspect(
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
        self.paths.suspect(path, now);
        let of_all = shared.peer_paths.note_loss(self.peer, path, sent_at, now);
        let state = self.paths.state(path);
        let silent = now.since(state.heard_at) >= silence;
        if state.up && silent && state.losses.max(of_all) >= shared.config.path_down_after {
            self.take_down(id, path, now, shared);
        }
    }

    /// A path carries nothing from here on, and is probed until it may again, by one connection for all.
    pub(super) fn take_down(
        &mut self,
        id: ConnectionId,
        path: PathId,
        now: Instant,
        shared: &mut Shared,
    ) {
        self.paths.set_up(path, false);
        if shared.peer_paths.is_probed(self.peer, path) {
            return;
        }
        self.probation.begin(path, now);
        self.health.watch(path, now, shared.config.probe_interval);
        shared.stats.paths_down += 1;
        shared.events.push_back(Event::PathDown { connection: id, path });
        let least = shared.config.path_down_after;
        shared.peer_paths.note_down(self.peer, path, id, least);
    }
}

/// With so many packets unacknowledged IRN takes its low timeout (Mittal et al., section 4.2).
const FEW: u32 = 3;

/// Shortest silence that takes a path down: scheduling alone can keep a host quiet this long.
const MIN_SILENCE: Duration = Duration::from_micros(20);
