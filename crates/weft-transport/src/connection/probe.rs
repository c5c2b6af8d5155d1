//! Probes and keepalives: special data packets without a place in the sequence, and the ACKs that answer them. Trimmed
//! packets are answered likewise (`trimmed.rs`).

use alloc::collections::VecDeque;

use weft_units::{Duration, Instant};
use weft_wire::{AckHeader, AckType, DataHeader, Packet, U3, U4};

use super::ack_received::Delays;
use super::ack_sent::reverse_path;
use super::sender::Sender;
use super::{Connection, Shared};
use crate::path::{Feedback, PathId, PathPolicy};
use crate::timers::Timer;
use crate::{Arrival, DropReason, Event};

/// Maximum number of queued answers to probes; further probes are not answered.
const MAX_ANSWERS: usize = 64;

/// Maximum number of idle paths probed at a time, so that 128 of them do not make a burst.
const MAX_IDLE_PROBES: u32 = 8;

/// Number of packets with payload per probe of an idle path. On slow links the probes of many senders would otherwise
/// use much of the link and of the hosts' processors: 16 senders into one link of 200 Mb/s sent three probes for four
/// packets.
const PACKETS_PER_IDLE_PROBE: u32 = 16;

/// Maximum factor by which the probe interval of a path that stays down grows. Where silent paths are suspended it is
/// half of this, so that an agent, whose interval is 10 ms, uses a repaired path within 100 ms.
const MAX_BACKOFF: u64 = 16;

/// The sequence number of a keepalive, which measures no path; a probe carries its path in this field.
const KEEPALIVE: u32 = u32::MAX;

/// A probe, or a trimmed packet, to answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceivedProbe {
    psn: u32,
    path_id: U3,
    ack_type: AckType,
    timestamp: u32,
    received_at: Instant,
    hops: u8,
}

/// The probes and trimmed packets of the peer that wait for their answers.
pub(crate) type ReceivedProbes = VecDeque<ReceivedProbe>;

impl Connection {
    /// Queues an answer to the peer's probe or keepalive.
    pub(crate) fn handle_probe(&mut self, arrival: &Arrival, header: &DataHeader) {
        self.queue_answer(arrival, header, AckType::Plain, MAX_ANSWERS);
    }

    /// Queues an answer of this type, unless `max` of them wait.
    pub(super) fn queue_answer(
        &mut self,
        arrival: &Arrival,
        header: &DataHeader,
        ack_type: AckType,
        max: usize,
    ) {
        if self.received_probes.len() < max {
            self.received_probes.push_back(ReceivedProbe {
                psn: header.psn,
                path_id: header.path_id,
                ack_type,
                timestamp: header.timestamp,
                received_at: arrival.received_at,
                hops: arrival.hops,
            });
        }
    }

    /// Queues an ACK that answers no packet and carries `psn`, unless many wait.
    pub(super) fn queue_special_ack(&mut self, now: Instant, psn: u32, ack_type: AckType) {
        let (path_id, timestamp, received_at) = (U3::default(), 0, now);
        let answer = ReceivedProbe { psn, path_id, ack_type, timestamp, received_at, hops: 0 };
        if self.received_probes.len() < super::trimmed::MAX_ANSWERS {
            self.received_probes.push_back(answer);
        }
    }

    /// Returns the next answer to a probe and its path.
    #[inline]
    pub(crate) fn poll_probe_answer(
        &mut self,
        now: Instant,
        shared: &mut Shared,
    ) -> Option<(PathId, AckHeader)> {
        let probe = self.received_probes.pop_front()?;
        if probe.ack_type == AckType::Plain && probe.psn != KEEPALIVE {
            shared.stats.probe_bytes += AckHeader::LEN as u64;
        }
        Some(self.answer(&probe, now, shared))
    }

    fn answer(
        &mut self,
        probe: &ReceivedProbe,
        now: Instant,
        shared: &Shared,
    ) -> (PathId, AckHeader) {
        let header = AckHeader {
            special: true,
            path_id: probe.path_id,
            hop_count: U4::truncate(probe.hops.into()),
            ack_type: probe.ack_type,
            psn: probe.psn,
            timestamp: now.to_wire(),
            timestamp_echo: probe.timestamp,
            timestamp_nic_rx: probe.received_at.to_wire(),
            ..self.ack_header(shared)
        };
        let peer = self.peer_ports(shared);
        let next = &mut self.receiver.acks.next_answer_path;
        (reverse_path(next, self.sender.as_deref(), peer, shared), header)
    }

    /// Returns `true` if [`Self::poll_probe`] has a probe or keepalive to send.
    #[inline]
    pub(crate) fn probe_is_due(&self, now: Instant) -> bool {
        self.keepalive_due || self.sender.as_deref().is_some_and(|sender| sender.health.is_due(now))
    }

    /// Returns the next probe or keepalive and its path.
    pub(crate) fn poll_probe(
        &mut self,
        now: Instant,
        shared: &mut Shared,
    ) -> Option<(PathId, DataHeader)> {
        if self.keepalive_due {
            self.keepalive_due = false;
            let path = shared.any_path();
            return Some((path, self.probe_header(path, KEEPALIVE, now, shared)));
        }
        let backoff = if shared.config.recovery.suspends() { MAX_BACKOFF / 2 } else { MAX_BACKOFF };
        let max_wait = shared.config.probe_interval * backoff;
        let sender = self.sender.as_deref_mut()?;
        if !sender.health.is_due(now) {
            return None;
        }
        let stamp = sender.stamp(now);
        let (path, unanswered) = sender.health.pop_due(now, stamp, max_wait)?;
        if let Some(at) = sender.health.next() {
            self.timers.arm_by(Timer::PathProbe, at);
        }
        if unanswered {
            self.on_probe_timeout(path, now, shared);
        }
        shared.stats.probes_sent += 1;
        let header = self.probe_header(path, path.0.into(), stamp, shared);
        let padding = self.padding_of(&Packet::Data(header, None), shared);
        shared.stats.probe_bytes += DataHeader::LEN as u64 + u64::from(padding);
        Some((path, header))
    }

    /// Returns the bytes of padding after the headers of a packet without payload; zero unless it is a probe.
    #[inline]
    pub(super) fn padding_of(&self, packet: &Packet, shared: &Shared) -> u16 {
        match (packet, self.sender.as_deref()) {
            (Packet::Data(header, _), Some(sender)) if header.psn != KEEPALIVE => {
                shared.config.probe_bytes.min(sender.mtu)
            }
            _ => 0,
        }
    }

    /// Counts an unanswered probe; enough consecutive ones take the path down.
    fn on_probe_timeout(&mut self, path: PathId, now: Instant, shared: &mut Shared) {
        let sender = self.sender.as_deref_mut().expect("it probed");
        if let Some(suspension) = sender.paths.suspension(path) {
            if self.last_received_at < suspension.answer_expected {
                // The peer is silent on all paths.
                return;
            }
            if suspension.evaluate(self.last_received_at, now) {
                self.on_loss_timer(now, shared);
            }
        }
        let sender = self.sender.as_deref_mut().expect("it probed");
        sender.probation.on_missed_probe(path);
        shared.peer_paths.note_loss(sender.peer, path, now, now);
        sender.paths.mark_suspected(path, now);
        let losses = sender.paths.losses(path);
        if !sender.paths.is_down(path) && losses >= shared.config.path_down_after {
            sender.take_down(self.id, path, now, shared);
            sender.probation.note_silent(path, now);
        }
    }

    fn probe_header(
        &mut self,
        path: PathId,
        psn: u32,
        stamp: Instant,
        shared: &Shared,
    ) -> DataHeader {
        self.last_sent_at = stamp;
        DataHeader {
            version: self.version,
            cc_type: shared.cc_type(),
            special: true,
            ack_now: true,
            from_acceptor: !self.initiator,
            path_id: U3::truncate(path.0.into()),
            psn,
            destination_cid: self.remote_cid,
            timestamp: stamp.to_wire(),
            ..DataHeader::default()
        }
    }

    /// Processes credit, a request for it, the answer to a trimmed packet, or that to a probe: samples the path's round-trip time and takes the path up, unless it flaps and
    /// has not yet answered for long enough.
    ///
    /// # Errors
    /// [`DropReason::AckOfUnsent`] if there is no such path, [`DropReason::StaleAck`] if it answers no outstanding
    /// probe and no packet in flight.
    pub(crate) fn handle_probe_answer(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        ack: &AckHeader,
        shared: &mut Shared,
    ) -> Result<(), DropReason> {
        match ack.ack_type {
            AckType::Trimmed | AckType::TrimmedLastHop => {
                return self.handle_trimmed_answer(now, ack, shared);
            }
            AckType::Credit => return self.handle_credit(now, ack.psn, shared),
            AckType::CreditRequest => {
                self.handle_credit_request(now, ack.psn, shared);
                return Ok(());
            }
            _ => {}
        }
        if ack.psn == KEEPALIVE {
            return Ok(());
        }
        let sender = self.sender.as_deref_mut().ok_or(DropReason::StaleAck)?;
        let path = u16::try_from(ack.psn).ok().filter(|&path| path < sender.paths.count());
        let path = PathId(path.ok_or(DropReason::AckOfUnsent)?);
        let answer =
            sender.health.on_answer(path, ack.timestamp_echo).ok_or(DropReason::StaleAck)?;
        shared.peer_paths.note_up(sender.peer, path);
        let delays = Delays::read(now, answer.sent_at, arrival, ack);
        let was_up = !sender.paths.is_down(path);
        sender.paths.sample_rtt(path, delays.fabric());
        if sender.paths.up_count() == 0 {
            sender.probation.reset_all();
        }
        if !was_up && !sender.probation.on_answer(path, answer.sent_at, now) {
            // The next probe must not leave before this one's answer can arrive, or it counts as missed.
            let wait = shared.config.probe_interval.max(delays.round_trip * 2);
            sender.health.watch(path, now + wait, wait);
            self.timers.arm_by(Timer::PathProbe, now + wait);
            return Ok(());
        }
        sender.resume(path, now);
        sender.paths.set_up(path, !shared.peer_paths.is_lossy(sender.peer, path));
        sender.paths.note_answered(path, now);
        let feedback = Feedback::Acked { marked: false, rtt: Some(delays.fabric()) };
        sender.policy.on_feedback(path, feedback, &sender.paths, now);
        if !was_up {
            shared.stats.paths_up += 1;
            shared.events.push_back(Event::PathUp { connection: self.id, path });
        }
        Ok(())
    }

    /// Handles the probe timer: begins to probe paths that were silent for a probe interval, under a policy that
    /// compares paths, and arms the timer again.
    pub(crate) fn on_probe_timer(&mut self, now: Instant, shared: &Shared) {
        let interval = shared.config.probe_interval;
        let Some(sender) = self.sender.as_deref_mut() else { return };
        let compares = sender.policy.compares_paths() && !sender.is_done();
        if compares {
            let sent = sender.next.wrapping_sub(sender.probed_for);
            sender.probed_for = sender.next;
            let share = (sent / PACKETS_PER_IDLE_PROBE).clamp(1, MAX_IDLE_PROBES);
            for _ in 0..share {
                if sender.health.count() >= MAX_IDLE_PROBES as usize
                    || !sender.watch_idle(now, interval)
                {
                    break;
                }
            }
        }
        let tick = compares.then(|| now + interval);
        // A due probe leaves with the next `poll_burst`, which arms the timer again.
        let later = sender.health.next().filter(|&at| at > now);
        if let Some(at) = later.into_iter().chain(tick).min() {
            self.timers.arm(Timer::PathProbe, at);
        }
    }

    /// Handles the congestion timer.
    pub(crate) fn on_congestion_timer(&mut self, now: Instant, shared: &mut Shared) {
        if let Some(sender) = self.sender.as_deref_mut() {
            sender.controllers.on_timer(now, &mut sender.paths);
        }
        if shared.config.takes_credit() {
            self.request_credit(now, shared);
        }
        self.on_grant_timer(now, shared);
        self.arm_congestion();
    }
}

impl Sender {
    /// Begins to probe the path that was silent for longest, if that is at least `interval`. Returns `false` if there
    /// is none.
    fn watch_idle(&mut self, now: Instant, interval: Duration) -> bool {
        let is_idle = |path: &PathId| {
            let is_silent = now.since(self.paths.last_response_at(*path)) >= interval;
            !self.paths.is_down(*path) && is_silent && !self.health.is_watched(*path)
        };
        let idle = self.paths.ids().filter(is_idle);
        let Some(path) = idle.min_by_key(|&path| self.paths.last_response_at(path)) else {
            return false;
        };
        // An answer takes a round trip, which may be long for a path that is idle because it is slow.
        let rtt = self.paths.rtt(path).unwrap_or_default();
        let wait = interval.max(rtt.max(self.round_trip.smoothed()) * 2);
        self.health.watch(path, now, wait);
        true
    }

    /// Begins to probe the paths that the policy wants measured.
    #[inline]
    pub(super) fn probe_for_policy(&mut self, now: Instant, interval: Duration) {
        while let Some(path) = self.policy.probe(&self.paths, now, &mut self.rng) {
            self.health.watch(path, now, interval);
        }
    }
}
