//! An ACK arrived: what was placed, how long it took, what is missing.

use weft_units::{Duration, Instant};
use weft_wire::{AckHeader, AckType, BITMAP_PACKETS, U11};

use super::in_flight::Fate;
use super::sender::{Counts, NewestAck, Sender, charge};
use super::{Connection, Shared};
use crate::congestion::{AckSample, Scope};
use crate::path::{Feedback, PathId, PathPolicy};
use crate::pool::before;
use crate::timers::Timer;
use crate::{Arrival, DropReason, Event};

/// What the timestamps of an ACK say (BIFROST, appendix D and table C1).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delays {
    /// t5 - t1.
    pub(crate) round_trip: Duration,
    /// (t3 - t2) + (t5 - t4).
    pub(crate) endpoint: Duration,
}

impl Delays {
    /// Reads the five timestamps. t2 and t3 are of the peer's clock, so only their difference means
    /// something; a peer that claims to have held the packet longer than the round trip took is
    /// taken to have held it all that time.
    pub(crate) fn read(now: Instant, t1: Instant, arrival: &Arrival, ack: &AckHeader) -> Self {
        let round_trip = now.since(t1);
        let held = ack.timestamp.wrapping_sub(ack.timestamp_nic_rx);
        let here = now.since(arrival.received_at);
        let endpoint = (Duration::from_nanos(held.into()) + here).min(round_trip);
        Self { round_trip, endpoint }
    }

    /// The part spent between the hosts.
    pub(crate) fn fabric(&self) -> Duration {
        self.round_trip - self.endpoint
    }
}

/// What one ACK acknowledged that was not before.
#[derive(Debug, Default)]
pub(super) struct Gained {
    bytes: u32,
    pub(super) packets: u32,
    /// Congestion marks the ACK reported.
    pub(super) marks: u32,
    /// Of those, marks not yet attributed to a packet.
    marks_left: u32,
    /// Packets that were overtaken by more than the controller accepts.
    late: u32,
    /// One past the highest packet that ACKs before this one acknowledged.
    acked_end: u32,
    /// The packet echoed, and its delays, if it is still known.
    echo: Option<(u32, Delays)>,
    /// Hops it passed.
    hops: u8,
    /// The latest packets, where each path has a controller.
    run: Run,
}

/// Packets of one path that were acknowledged one after another and that its controller has not
/// heard of: with each alone, half of what an ACK costs would be telling it.
#[derive(Debug, Default)]
struct Run {
    path: PathId,
    bytes: u32,
    packets: u32,
    marks: u32,
}

impl Connection {
    /// Takes an ACK of our packets.
    pub(crate) fn handle_ack(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        ack: &AckHeader,
        shared: &mut Shared,
    ) -> Result<(), DropReason> {
        if ack.special {
            return self.handle_probe_answer(now, arrival, ack, shared);
        }
        let id = self.id;
        let sender = self.sender.as_deref_mut().ok_or(DropReason::StaleAck)?;
        sender.check_ack(ack)?;
        shared.stats.acks_received += 1;
        let newest = sender.is_newest(now, ack);
        let gained = sender.acknowledge(now, arrival, ack, shared);
        while let Some(message) = sender.outbox.pop_done(sender.base) {
            shared.events.push_back(Event::Sent { connection: id, token: message.token });
        }
        if !newest && gained.packets == 0 && ack.ack_type != AckType::Duplicate {
            return Err(DropReason::StaleAck);
        }
        sender.waiting_since = now;
        if shared.peer_paths.has_suspects() {
            sender.tell_others(now, shared);
        }
        sender.steer(now, &gained);
        if shared.config.recovery.rewind {
            sender.on_marked_duplicate(ack, now, &gained);
        }
        sender.probe_as_asked(now, shared.config.probe_interval);
        if newest {
            self.detect_loss(now, ack, shared);
        }
        self.arm_congestion();
        Ok(())
    }

    /// Arms the timer the congestion controllers ask for.
    pub(crate) fn arm_congestion(&mut self) {
        if let Some(at) = self.sender.as_deref().and_then(|sender| sender.controllers.timer()) {
            self.timers.arm(Timer::Congestion, at);
        }
    }
}

impl Sender {
    /// Refuses an ACK that names packets or times that were never sent.
    fn check_ack(&self, ack: &AckHeader) -> Result<(), DropReason> {
        let first = first_described(ack);
        let last = ack.bitmap.last().map(|index| first.wrapping_add(index));
        let unsent = |psn: u32| !before(psn, self.next);
        if before(self.next, ack.psn_base) || last.is_some_and(unsent) || unsent(ack.psn) {
            return Err(DropReason::AckOfUnsent);
        }
        let ahead = ack.timestamp_echo.wrapping_sub(self.last_stamp.to_wire());
        if ahead != 0 && ahead < 1 << 31 {
            return Err(DropReason::BadTimestamp);
        }
        Ok(())
    }

    /// Marks what was placed, moves the window, and counts.
    fn acknowledge(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        ack: &AckHeader,
        shared: &mut Shared,
    ) -> Gained {
        let marks = self.take_marks(now, ack);
        shared.stats.ecn_marks_heard += u64::from(marks);
        let hops = ack.hop_count.get();
        let acked_end = self.acked_end;
        let mut gained = Gained { marks, marks_left: marks, acked_end, hops, ..Gained::default() };
        self.read_echo(now, arrival, ack, &mut gained);
        if ack.ack_type == AckType::Duplicate {
            self.note_needless_repeat(now, ack, shared);
        }
        // The echoed packet goes first so that a mark is attributed to the path that caused it.
        if self.is_reported(ack, ack.psn) {
            self.acknowledge_packet(ack.psn, now, &mut gained);
        }
        if before(self.base, ack.psn_base) {
            for psn in circle(self.base, ack.psn_base) {
                self.acknowledge_packet(psn, now, &mut gained);
            }
        }
        let first = first_described(ack);
        for index in ack.bitmap.iter() {
            self.acknowledge_packet(first.wrapping_add(index), now, &mut gained);
        }
        self.end_run(now, None, &mut gained);
        self.advance(ack.psn_base, shared);
        gained
    }

    /// Takes the round trip of the packet that this ACK echoes. An echo of an earlier transmission
    /// of it says nothing about the path of the last, but is a round trip all the same: where every
    /// round trip is longer than the shortest timeout there is no other (RFC 7323, section 4). What
    /// comes twice is answered at once, without the time that placing takes and an ACK may wait: that
    /// is how long the network takes, but not how long an ACK does.
    fn read_echo(&mut self, now: Instant, arrival: &Arrival, ack: &AckHeader, gained: &mut Gained) {
        let Some(&packet) = self.packet(ack.psn) else { return };
        let sent_at = self.last_stamp.from_wire(ack.timestamp_echo);
        let of_last = packet.sent_at == ack.timestamp_echo;
        if of_last {
            gained.echo = Some((ack.psn, Delays::read(now, sent_at, arrival, ack)));
        }
        let first_heard = packet.fate != Fate::Acked && self.is_reported(ack, ack.psn);
        let tells = first_heard && (of_last || packet.repeats > 0);
        if tells && ack.ack_type != AckType::Duplicate {
            self.round_trip.sample(now.since(sent_at));
        }
    }

    /// Whether this ACK says that `psn` was placed.
    fn is_reported(&self, ack: &AckHeader, psn: u32) -> bool {
        let index = psn.wrapping_sub(first_described(ack));
        before(psn, ack.psn_base) || ack.bitmap.contains(index)
    }

    /// Whether no ACK that arrived before says more. The counts run through their circle of 2^11 in
    /// 0.3 ms at 200 Gb/s, so base and time decide, and the counts only between ACKs of one moment or
    /// after a silence in which the time may have run through its own.
    fn is_newest(&self, now: Instant, ack: &AckHeader) -> bool {
        let Some(newest) = self.newest_ack else { return true };
        if ack.psn_base != newest.psn_base {
            before(newest.psn_base, ack.psn_base)
        } else if ack.timestamp != newest.timestamp && now.since(newest.heard_at) < LONG_SILENCE {
            before(newest.timestamp, ack.timestamp)
        } else {
            counted(ack.num_ack, self.counts.acked) <= U11::MAX.get() / 2
        }
    }

    /// Marks reported since the last ACK that was newer than all before it; an ACK that was
    /// overtaken adds nothing.
    fn take_marks(&mut self, now: Instant, ack: &AckHeader) -> u32 {
        let acked = counted(ack.num_ack, self.counts.acked);
        if acked == 0 || !self.is_newest(now, ack) {
            return 0;
        }
        let marks = counted(ack.num_ece, self.counts.marked).min(acked);
        self.counts = Counts { acked: ack.num_ack, marked: ack.num_ece };
        let AckHeader { psn_base, timestamp, .. } = *ack;
        self.newest_ack = Some(NewestAck { psn_base, timestamp, heard_at: now });
        marks.into()
    }

    fn acknowledge_packet(&mut self, psn: u32, now: Instant, gained: &mut Gained) {
        let Some(slot) = self.packet_mut(psn) else { return };
        if slot.fate == Fate::Acked {
            return;
        }
        let packet = *slot;
        slot.fate = Fate::Acked;
        let len = self.payload_len(&packet);
        if packet.is_in_flight() {
            self.leave_flight(packet.path, len);
        }
        if !before(psn, self.acked_end) {
            self.acked_end = psn.wrapping_add(1);
        }
        // Which transmission of a packet that was sent again arrived, only an echo tells: an earlier
        // one says nothing about the last one's path (Karn's rule; RFC 8985, section 6.2, step 2).
        if packet.repeats == 0 || gained.echo.is_some_and(|(echoed, _)| echoed == psn) {
            let sent_at = self.last_stamp.from_wire(packet.sent_at);
            self.acked_sent_at = self.acked_sent_at.max(sent_at);
            let state = self.paths.state_mut(packet.path);
            state.acked_sent_at = state.acked_sent_at.max(sent_at);
            state.heard_at = now;
            state.losses = 0;
            self.paths.count_acked(packet.path);
        }
        gained.bytes += charge(len);
        gained.packets += 1;
        // A packet that was sent again comes late for another reason.
        let overtaken = packet.repeats == 0 && before(psn, gained.acked_end);
        let by = if overtaken { gained.acked_end.wrapping_sub(psn) - 1 } else { 0 };
        let (of_policy, of_control) = self.reordering_bounds;
        gained.late += u32::from(by > of_control);
        self.feed_back(psn, packet.path, now, len, by <= of_policy, gained);
    }

    /// Tells the path policy, where the packet was not overtaken by more than it accepts, and a
    /// controller of this path alone, about one packet.
    fn feed_back(
        &mut self,
        psn: u32,
        path: PathId,
        now: Instant,
        len: u16,
        in_bound: bool,
        gained: &mut Gained,
    ) {
        let marked = gained.marks_left > 0;
        gained.marks_left -= u32::from(marked);
        let delays = gained.echo.filter(|(echoed, _)| *echoed == psn).map(|(_, delays)| delays);
        if let Some(delays) = delays {
            self.paths.sample_rtt(path, delays.fabric());
        }
        let feedback = Feedback::Acked { marked, rtt: delays.map(|delays| delays.fabric()) };
        if in_bound {
            self.policy.on_feedback(path, feedback, &self.paths, now);
        }
        if self.controllers.scope() == Scope::Path {
            if gained.run.path != path {
                self.end_run(now, None, gained);
                gained.run.path = path;
            }
            gained.run.bytes += charge(len);
            gained.run.packets += 1;
            gained.run.marks += u32::from(marked);
            if delays.is_some() {
                self.end_run(now, delays, gained);
            }
        }
    }

    /// Tells a controller of one path about the packets that were acknowledged last. `delays` are of
    /// one of them.
    fn end_run(&mut self, now: Instant, delays: Option<Delays>, gained: &mut Gained) {
        let Run { path, bytes, packets, marks } = core::mem::take(&mut gained.run);
        if packets > 0 {
            let sample = AckSample {
                now,
                acked_bytes: bytes,
                acked_packets: packets,
                marked_packets: marks,
                late_packets: 0,
                rtt: delays.map(|delays| delays.round_trip),
                fabric_delay: delays.map(|delays| delays.fabric()),
                endpoint_delay: delays.map(|delays| delays.endpoint),
                hops: gained.hops,
                in_flight: self.paths.in_flight(path),
            };
            self.controllers.on_ack(path, &sample, &mut self.paths);
        }
    }

    /// Tells a controller of the whole connection about one ACK.
    fn steer(&mut self, now: Instant, gained: &Gained) {
        if self.controllers.scope() == Scope::Path || gained.packets == 0 {
            return;
        }
        let delays = gained.echo.map(|(_, delays)| delays);
        let sample = AckSample {
            now,
            acked_bytes: gained.bytes,
            acked_packets: gained.packets,
            marked_packets: gained.marks,
            late_packets: gained.late,
            rtt: delays.map(|delays| delays.round_trip),
            fabric_delay: delays.map(|delays| delays.fabric()),
            endpoint_delay: delays.map(|delays| delays.endpoint),
            hops: gained.hops,
            in_flight: self.in_flight,
        };
        self.controllers.on_ack(PathId(0), &sample, &mut self.paths);
    }

    /// Moves the window past what is acknowledged: everything before `psn_base`, and what follows.
    #[inline]
    fn advance(&mut self, psn_base: u32, shared: &mut Shared) {
        if before(self.base, psn_base) {
            self.base = psn_base;
        }
        while self.base != self.next {
            let slot = self.sent.slot(self.base).expect("a sent packet has a slot");
            if slot.fate != Fate::Acked {
                break;
            }
            self.base = self.base.wrapping_add(1);
        }
        assert!(self.base != self.next || self.in_flight == 0, "what is acknowledged has left");
        if before(self.acked_end, self.base) {
            self.acked_end = self.base;
        }
        self.sent.release_before(self.base, &mut shared.send_pool);
    }

    /// The peer got a packet twice: we sent it again without need. Where that was out of impatience,
    /// not to ask, wait longer next time (RFC 8985, section 6.2, step 4). A network that duplicates
    /// looks the same, so no more are counted than were sent again; and each is answered twice.
    fn note_needless_repeat(&mut self, now: Instant, ack: &AckHeader, shared: &mut Shared) {
        if self.needless.replace(ack.timestamp_echo) == Some(ack.timestamp_echo) {
            return;
        }
        let stats = &mut shared.stats;
        if stats.spurious_retransmits < stats.repeats() {
            stats.spurious_retransmits += 1;
            if self.accused.is_none_or(|(asked, _)| asked != ack.psn) {
                self.patience = self.patience.saturating_add(1).min(MAX_PATIENCE);
                self.patient_until = now + self.round_trip.smoothed() * PATIENT_ROUND_TRIPS;
            }
        }
    }
}

/// The first packet that the bitmap of an ACK describes.
pub(crate) fn first_described(ack: &AckHeader) -> u32 {
    ack.psn_base.wrapping_add(u32::from(ack.block.get()) * BITMAP_PACKETS)
}

/// How far a running count has come from `old` to `new`.
fn counted(new: U11, old: U11) -> u16 {
    new.get().wrapping_sub(old.get()) & U11::MAX.get()
}

/// Less than half of the 2^32 ns in which timestamps wrap: two that lie closer can be told apart.
const LONG_SILENCE: Duration = Duration::from_secs(2);

/// The reordering bound is multiplied by at most this.
const MAX_PATIENCE: u8 = 16;

/// After so many round trips without another needless repeat patience has worn off (RFC 8985 counts
/// 16 recoveries).
const PATIENT_ROUND_TRIPS: u64 = 16;

/// The sequence numbers from `first` up to and without `end`.
pub(crate) fn circle(first: u32, end: u32) -> impl Iterator<Item = u32> {
    (0..end.wrapping_sub(first)).map(move |step| first.wrapping_add(step))
}
