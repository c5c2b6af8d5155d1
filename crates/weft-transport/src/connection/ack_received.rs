//! The processing of a received ACK: newly acknowledged packets, round-trip samples, missing packets.

use weft_units::{Duration, Instant};
use weft_wire::{AckHeader, AckType, BITMAP_PACKETS, U11};

use super::credit::Credits;
use super::in_flight::PacketState;
use super::sender::{Counts, NewestAck, Sender, charge};
use super::{Connection, Shared};
use crate::congestion::{AckSample, Congestion, HopTelemetry, Scope};
use crate::path::{Feedback, PathId, PathPolicy};
use crate::pool::before;
use crate::timers::Timer;
use crate::{Arrival, DropReason, Event};

/// The delays that follow from an ACK's timestamps (BIFROST, appendix D and table C1).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delays {
    /// The round-trip time: t5 - t1.
    pub(crate) round_trip: Duration,
    /// The time spent in the hosts: (t3 - t2) + (t5 - t4).
    pub(crate) endpoint: Duration,
}

impl Delays {
    /// Computes the delays from the five timestamps. t2 and t3 are of the peer's clock, so only their difference is
    /// meaningful; if it exceeds the round trip, the round trip is used.
    pub(crate) fn read(now: Instant, t1: Instant, arrival: &Arrival, ack: &AckHeader) -> Self {
        let round_trip = now.since(t1);
        let peer_delay = ack.timestamp.wrapping_sub(ack.timestamp_nic_rx);
        let local_delay = now.since(arrival.received_at);
        let endpoint = (Duration::from_nanos(peer_delay.into()) + local_delay).min(round_trip);
        Self { round_trip, endpoint }
    }

    /// Returns the part of the round trip spent between the hosts.
    pub(crate) fn fabric(&self) -> Duration {
        self.round_trip - self.endpoint
    }
}

/// The packets that one ACK newly acknowledged.
#[derive(Debug, Default)]
pub(super) struct NewlyAcked {
    bytes: u32,
    pub(super) packets: u32,
    /// Number of congestion marks the ACK reported.
    pub(super) marks: u32,
    /// Number of those marks not yet attributed to a packet.
    marks_left: u32,
    /// Number of packets that were overtaken by more than the controller accepts.
    late: u32,
    /// One past the highest packet that earlier ACKs acknowledged.
    acked_end: u32,
    /// The number and the delays of the echoed packet, if its latest transmission is echoed.
    echo: Option<(u32, Delays)>,
    /// Number of hops the echoed packet passed.
    hops: u8,
    /// The latest packets of one path, where each path has a controller.
    run: Run,
}

/// Consecutively acknowledged packets of one path that its controller has not been notified of. Notifying it of each
/// packet would take half of an ACK's processing time.
#[derive(Debug, Default)]
struct Run {
    path: PathId,
    bytes: u32,
    packets: u32,
    marks: u32,
}

/// A packet that an ACK newly reports.
struct AckedPacket {
    psn: u32,
    path: PathId,
    /// Length of its payload, bytes.
    len: u16,
    /// `true` if it was not overtaken by more packets than the path policy accepts.
    in_bound: bool,
}

impl Connection {
    /// Processes an ACK of packets of this end.
    ///
    /// # Errors
    /// [`DropReason::StaleAck`] if it reports nothing new, [`DropReason::AckOfUnsent`] or [`DropReason::BadTimestamp`]
    /// if it names a packet or a timestamp that was never sent.
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
        let newly_acked = sender.acknowledge(now, arrival, ack, shared);
        while let Some(message) = sender.send_queue.pop_done(sender.base) {
            shared.events.push_back(Event::Acked { connection: id, token: message.token });
        }
        if !newest && newly_acked.packets == 0 && ack.ack_type != AckType::Duplicate {
            return Err(DropReason::StaleAck);
        }
        sender.waiting_since = now;
        if shared.peer_paths.has_suspects() {
            sender.notify_others(now, shared);
        }
        sender.notify_controller(now, &newly_acked);
        if shared.config.recovery.rewind {
            sender.on_marked_duplicate(ack, now, &newly_acked);
        }
        sender.probe_for_policy(now, shared.config.probe_interval);
        if newest {
            self.detect_loss(now, ack, shared);
        }
        self.arm_congestion();
        Ok(())
    }

    /// Passes the telemetry that came with an ACK to the controller of the echoed packet's path, if it echoes the latest
    /// transmission.
    #[cold]
    pub(crate) fn handle_telemetry(&mut self, ack: &AckHeader, hops: &[HopTelemetry]) {
        let Some(sender) = self.sender.as_deref_mut().filter(|_| !ack.special) else { return };
        let echoed = sender.packet(ack.psn).filter(|packet| packet.sent_at == ack.timestamp_echo);
        if let Some(path) = echoed.map(|packet| packet.path) {
            sender.controllers.of(path).on_telemetry(hops);
        }
    }

    /// Arms the congestion timer for the controllers' next deadline, or for the next grant of credit.
    pub(crate) fn arm_congestion(&mut self) {
        let controlled_at = self.sender.as_deref().and_then(|sender| sender.controllers.timer());
        let granted_at = self.credits.as_deref().and_then(Credits::grant_at);
        if let Some(at) = controlled_at.into_iter().chain(granted_at).min() {
            self.timers.arm(Timer::Congestion, at);
        }
    }
}

impl Sender {
    /// Refuses an ACK that names packets or timestamps that were never sent.
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

    /// Marks the packets that an ACK reports as acknowledged and advances the window; returns those newly acknowledged.
    fn acknowledge(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        ack: &AckHeader,
        shared: &mut Shared,
    ) -> NewlyAcked {
        let marks = self.take_marks(now, ack);
        shared.stats.ecn_marks_reported += u64::from(marks);
        let hops = ack.hop_count.get();
        let acked_end = self.acked_end;
        let mut newly_acked =
            NewlyAcked { marks, marks_left: marks, acked_end, hops, ..NewlyAcked::default() };
        self.read_echo(now, arrival, ack, &mut newly_acked);
        if ack.ack_type == AckType::Duplicate {
            self.note_spurious_retransmission(now, ack, shared);
        }
        // The echoed packet is processed first, so that a mark is attributed to the path that caused it.
        if self.is_reported(ack, ack.psn) {
            self.acknowledge_packet(ack.psn, now, &mut newly_acked);
        }
        if before(self.base, ack.psn_base) {
            for psn in psn_range(self.base, ack.psn_base) {
                self.acknowledge_packet(psn, now, &mut newly_acked);
            }
        }
        let first = first_described(ack);
        for index in ack.bitmap.iter() {
            self.acknowledge_packet(first.wrapping_add(index), now, &mut newly_acked);
        }
        self.flush_run(now, None, &mut newly_acked);
        self.advance(ack.psn_base, shared);
        newly_acked
    }

    /// Takes the round trip of the packet that this ACK echoes. An echo of an earlier transmission is no sample of the
    /// last transmission's path, but it is a valid round trip: where every round trip exceeds the shortest timeout
    /// there is no other (RFC 7323, section 4). A duplicate is no sample: it is answered at once, without the time for
    /// placing and the ACK delay, so it measures the network but not the time to an ACK.
    fn read_echo(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        ack: &AckHeader,
        newly_acked: &mut NewlyAcked,
    ) {
        let Some(&packet) = self.packet(ack.psn) else { return };
        let sent_at = self.last_stamp.from_wire(ack.timestamp_echo);
        let of_last = packet.sent_at == ack.timestamp_echo;
        if of_last {
            newly_acked.echo = Some((ack.psn, Delays::read(now, sent_at, arrival, ack)));
        }
        let is_first_report = packet.state != PacketState::Acked && self.is_reported(ack, ack.psn);
        let is_sample = is_first_report && (of_last || packet.retransmissions > 0);
        if is_sample && ack.ack_type != AckType::Duplicate {
            self.round_trip.sample(now.since(sent_at));
        }
    }

    /// Returns `true` if this ACK reports that `psn` was placed.
    fn is_reported(&self, ack: &AckHeader, psn: u32) -> bool {
        let index = psn.wrapping_sub(first_described(ack));
        before(psn, ack.psn_base) || ack.bitmap.contains(index)
    }

    /// Returns `true` if no earlier ACK reports more. The counts wrap at 2^11, in 0.3 ms at 200 Gb/s, so base and
    /// timestamp decide; the counts decide only between ACKs with the same timestamp, or after a silence in which the
    /// timestamp may have wrapped.
    fn is_newest(&self, now: Instant, ack: &AckHeader) -> bool {
        let Some(newest) = self.newest_ack else { return true };
        if ack.psn_base != newest.psn_base {
            before(newest.psn_base, ack.psn_base)
        } else if ack.timestamp != newest.timestamp && now.since(newest.received_at) < LONG_SILENCE
        {
            before(newest.timestamp, ack.timestamp)
        } else {
            counted(ack.num_ack, self.counts.acked) <= U11::MAX.get() / 2
        }
    }

    /// Returns the number of marks reported since the newest ACK so far; zero for an ACK that was overtaken.
    fn take_marks(&mut self, now: Instant, ack: &AckHeader) -> u32 {
        let acked = counted(ack.num_ack, self.counts.acked);
        if acked == 0 || !self.is_newest(now, ack) {
            return 0;
        }
        let marks = counted(ack.num_ece, self.counts.marked).min(acked);
        self.counts = Counts { acked: ack.num_ack, marked: ack.num_ece };
        let AckHeader { psn_base, timestamp, .. } = *ack;
        self.newest_ack = Some(NewestAck { psn_base, timestamp, received_at: now });
        marks.into()
    }

    fn acknowledge_packet(&mut self, psn: u32, now: Instant, newly_acked: &mut NewlyAcked) {
        let Some(slot) = self.packet_mut(psn) else { return };
        if slot.state == PacketState::Acked {
            return;
        }
        let packet = *slot;
        slot.state = PacketState::Acked;
        let len = self.payload_len(&packet);
        if packet.is_in_flight() {
            self.remove_in_flight(packet.path, len);
        }
        if !before(psn, self.acked_end) {
            self.acked_end = psn.wrapping_add(1);
        }
        // Only an echo identifies the transmission of a retransmitted packet that arrived: an earlier one is no sample
        // of the last one's path (Karn's rule; RFC 8985, section 6.2, step 2).
        if packet.retransmissions == 0 || newly_acked.echo.is_some_and(|(echoed, _)| echoed == psn)
        {
            let sent_at = self.last_stamp.from_wire(packet.sent_at);
            self.acked_sent_at = self.acked_sent_at.max(sent_at);
            if self.paths.note_acked(packet.path, sent_at, now) {
                self.on_suspended_acked(packet.path, sent_at, now);
            }
        }
        newly_acked.bytes += charge(len);
        newly_acked.packets += 1;
        // A retransmitted packet is late for another reason.
        let overtaken = packet.retransmissions == 0 && before(psn, newly_acked.acked_end);
        let by = if overtaken { newly_acked.acked_end.wrapping_sub(psn) - 1 } else { 0 };
        let (of_policy, of_control) = self.reordering_bounds;
        newly_acked.late += u32::from(by > of_control);
        let packet = AckedPacket { psn, path: packet.path, len, in_bound: by <= of_policy };
        self.notify_path(now, &packet, newly_acked);
    }

    /// Notifies the path policy of one acknowledged packet, unless it was overtaken by more than the policy accepts,
    /// and the path's own controller, if it has one.
    fn notify_path(&mut self, now: Instant, packet: &AckedPacket, newly_acked: &mut NewlyAcked) {
        let AckedPacket { psn, path, len, in_bound } = *packet;
        let marked = newly_acked.marks_left > 0;
        newly_acked.marks_left -= u32::from(marked);
        let delays =
            newly_acked.echo.filter(|(echoed, _)| *echoed == psn).map(|(_, delays)| delays);
        if let Some(delays) = delays {
            self.paths.sample_rtt(path, delays.fabric());
        }
        let feedback = Feedback::Acked { marked, rtt: delays.map(|delays| delays.fabric()) };
        if in_bound {
            self.policy.on_feedback(path, feedback, &self.paths, now);
        }
        if self.controllers.scope() == Scope::Path {
            if newly_acked.run.path != path {
                self.flush_run(now, None, newly_acked);
                newly_acked.run.path = path;
            }
            newly_acked.run.bytes += charge(len);
            newly_acked.run.packets += 1;
            newly_acked.run.marks += u32::from(marked);
            if delays.is_some() {
                self.flush_run(now, delays, newly_acked);
            }
        }
    }

    /// Notifies a path's controller of the run of packets acknowledged last. `delays` are those of one of them.
    fn flush_run(&mut self, now: Instant, delays: Option<Delays>, newly_acked: &mut NewlyAcked) {
        let Run { path, bytes, packets, marks } = core::mem::take(&mut newly_acked.run);
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
                hops: newly_acked.hops,
                in_flight: self.paths.in_flight(path),
            };
            self.controllers.on_ack(path, &sample, &mut self.paths);
        }
    }

    /// Notifies a controller of the whole connection of one ACK.
    fn notify_controller(&mut self, now: Instant, newly_acked: &NewlyAcked) {
        if self.controllers.scope() == Scope::Path || newly_acked.packets == 0 {
            return;
        }
        let delays = newly_acked.echo.map(|(_, delays)| delays);
        let sample = AckSample {
            now,
            acked_bytes: newly_acked.bytes,
            acked_packets: newly_acked.packets,
            marked_packets: newly_acked.marks,
            late_packets: newly_acked.late,
            rtt: delays.map(|delays| delays.round_trip),
            fabric_delay: delays.map(|delays| delays.fabric()),
            endpoint_delay: delays.map(|delays| delays.endpoint),
            hops: newly_acked.hops,
            in_flight: self.in_flight,
        };
        self.controllers.on_ack(PathId(0), &sample, &mut self.paths);
    }

    /// Advances the window past the acknowledged packets: everything before `psn_base`, and the acknowledged ones after
    /// it.
    #[inline]
    fn advance(&mut self, psn_base: u32, shared: &mut Shared) {
        if before(self.base, psn_base) {
            self.base = psn_base;
        }
        while self.base != self.next {
            let slot = self.sent.slot(self.base).expect("a sent packet has a slot");
            if slot.state != PacketState::Acked {
                break;
            }
            self.base = self.base.wrapping_add(1);
        }
        assert!(
            self.base != self.next || self.in_flight == 0,
            "no acknowledged packet is in flight"
        );
        if before(self.acked_end, self.base) {
            self.acked_end = self.base;
        }
        self.sent.release_before(self.base, &mut shared.send_pool);
    }

    /// Records that the peer received a packet twice: a spurious retransmission. Unless it was a probe, the reordering
    /// window is widened (RFC 8985, section 6.2, step 4). A network that duplicates packets looks the same, so at most
    /// as many are counted as were retransmitted. The peer answers each duplicate twice; the second answer is ignored.
    fn note_spurious_retransmission(&mut self, now: Instant, ack: &AckHeader, shared: &mut Shared) {
        if self.last_duplicate_stamp.replace(ack.timestamp_echo) == Some(ack.timestamp_echo) {
            return;
        }
        let stats = &mut shared.stats;
        if stats.spurious_retransmits < stats.retransmissions() {
            stats.spurious_retransmits += 1;
            if self.probed.is_none_or(|(probed, _)| probed != ack.psn) {
                self.reordering_multiplier =
                    self.reordering_multiplier.saturating_add(1).min(MAX_REORDERING_MULTIPLIER);
                self.multiplier_until = now + self.round_trip.smoothed() * MULTIPLIER_ROUND_TRIPS;
            }
        }
    }
}

/// Returns the first packet that the bitmap of an ACK describes.
pub(crate) fn first_described(ack: &AckHeader) -> u32 {
    ack.psn_base.wrapping_add(u32::from(ack.block.get()) * BITMAP_PACKETS)
}

/// Returns the difference of a running count from `old` to `new`, modulo 2^11.
fn counted(new: U11, old: U11) -> u16 {
    new.get().wrapping_sub(old.get()) & U11::MAX.get()
}

/// A silence after which timestamps are not compared: less than half of the 2^32 ns in which they wrap.
const LONG_SILENCE: Duration = Duration::from_secs(2);

/// Maximum multiplier of the reordering bound.
const MAX_REORDERING_MULTIPLIER: u8 = 16;

/// Number of round trips without a further spurious retransmission after which the multiplier is reset (RFC 8985 counts
/// 16 recoveries).
const MULTIPLIER_ROUND_TRIPS: u64 = 16;

/// Returns the sequence numbers from `first` up to, but not including, `end`.
pub(crate) fn psn_range(first: u32, end: u32) -> impl Iterator<Item = u32> {
    (0..end.wrapping_sub(first)).map(move |step| first.wrapping_add(step))
}
