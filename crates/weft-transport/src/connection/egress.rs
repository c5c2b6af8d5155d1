//! The transmission of packets: selection of the next packet and its path.
//!
//! There are three levels: [`Connection::poll_burst`] selects the kind of packet, [`Sender::poll_data`] the packet and
//! its path, [`Picked::header`] builds its header.

use weft_units::Instant;
use weft_wire::{DataHeader, MessageHeader, NextHeader, Packet, U3};

use super::in_flight::{PacketState, SentPacket};
use super::sender::{NO_PATH, Sender, charge};
use super::{Connection, Shared};
use crate::congestion::Congestion;
use crate::path::unit::Sending;
use crate::path::{Candidates, PathId, PathPolicy, Paths};
use crate::pool::before;
use crate::recovery::Kind;
use crate::timers::Timer;
use crate::{Departure, Message, Payload, TransportConfig};

/// A packet selected for sending.
pub(crate) struct Picked {
    psn: u32,
    packet: SentPacket,
    /// The message it is part of.
    message: Message,
    len: u16,
    /// `true` requests an ACK at once.
    ack_now: bool,
}

impl Connection {
    /// Passes the packets that this connection may send now to `send`, at most `limit`: first those without payload,
    /// then payload, which makes none of the former due. Returns the number of packets.
    #[inline]
    pub(crate) fn poll_burst(
        &mut self,
        now: Instant,
        limit: usize,
        shared: &mut Shared,
        packet: &mut Packet,
        send: &mut impl FnMut(&Departure, &Packet),
    ) -> usize {
        let mut sent = 0;
        while sent < limit {
            let Some(path) = self.poll_control(now, shared, packet) else {
                return sent + self.poll_payload(now, limit - sent, shared, packet, send);
            };
            send(&self.departure(path, packet, shared), packet);
            sent += 1;
        }
        sent
    }

    /// Returns the departure of a packet without payload.
    #[inline]
    pub(crate) fn departure(&self, path: PathId, packet: &Packet, shared: &Shared) -> Departure {
        let padding = self.padding_of(packet, shared);
        Departure { connection: Some(self.id), to: self.peer, path, padding, payload: None }
    }

    /// Returns the path of the next packet without payload, which is written to `packet`: set-up first, then packets
    /// the peer waits for (ACKs, probe answers), then probes of this end.
    #[inline]
    pub(crate) fn poll_control(
        &mut self,
        now: Instant,
        shared: &mut Shared,
        packet: &mut Packet,
    ) -> Option<PathId> {
        if let Some(setup) = self.poll_setup(shared) {
            *packet = setup;
            return Some(shared.any_path());
        }
        if !self.is_established() {
            return None;
        }
        if let Some((path, ack)) = self.poll_ack(now, shared) {
            *packet = Packet::Ack(ack);
            return Some(path);
        }
        if self.probe_is_due(now)
            && let Some((path, probe)) = self.poll_probe(now, shared)
        {
            *packet = Packet::Data(probe, None);
            return Some(path);
        }
        None
    }

    /// Sends payload as long as pacing, windows and paths permit. Returns the number of packets.
    #[inline]
    fn poll_payload(
        &mut self,
        now: Instant,
        limit: usize,
        shared: &mut Shared,
        packet: &mut Packet,
        send: &mut impl FnMut(&Departure, &Packet),
    ) -> usize {
        let Some(sender) = self.sender.as_deref_mut() else { return 0 };
        if sender.known_version != shared.peer_paths.version() {
            sender.follow_others(self.id, now, shared);
            if let Some(at) = sender.health.next() {
                self.timers.arm_by(Timer::PathProbe, at);
            }
        }
        let was_waiting = sender.is_waiting();
        let (mut sent, mut retransmissions) = (0, u8::MAX);
        while sent < limit {
            if let Some(at) = sender.paced_until(now) {
                self.timers.arm(Timer::Pacing, at);
                break;
            }
            let Some(picked) = sender.poll_data(now, self.send_window, shared) else {
                self.wait_for_policy(now);
                break;
            };
            retransmissions = retransmissions.min(picked.packet.retransmissions);
            self.retransmitted += u64::from(picked.packet.retransmissions > 0);
            let header = DataHeader {
                version: self.version,
                cc_type: shared.cc_type(),
                from_acceptor: !self.initiator,
                destination_cid: self.remote_cid,
                ..picked.header()
            };
            *packet = Packet::Data(header, Some(picked.extension()));
            let (connection, to) = (Some(self.id), self.peer);
            let (path, payload) = (picked.packet.path, Some(picked.payload()));
            send(&Departure { connection, to, path, padding: 0, payload }, packet);
            sent += 1;
        }
        if sent > 0 {
            shared.stats.data_sent += sent as u64;
            self.sent += sent as u64;
            self.last_sent_at = now;
            self.arm_payload_timers(now, was_waiting, retransmissions, shared);
            if shared.config.takes_credit() {
                self.request_credit(now, shared);
            }
        }
        sent
    }

    /// Arms the timer for the end of a policy's hold.
    #[cold]
    fn wait_for_policy(&mut self, now: Instant) {
        let Some(sender) = self.sender.as_deref_mut() else { return };
        let until = sender.policy.holds_until();
        if let Some(at) = until.filter(|&at| at > now) {
            if sender.has_payload() {
                sender.held_since.get_or_insert(now);
            }
            self.timers.arm(Timer::Pacing, at);
        }
    }

    /// Arms the timers for payload that leaves now; `retransmissions` is the smallest number among its packets.
    #[inline]
    fn arm_payload_timers(
        &mut self,
        now: Instant,
        was_waiting: bool,
        retransmissions: u8,
        shared: &mut Shared,
    ) {
        let Some(sender) = self.sender.as_deref_mut() else { return };
        if let Some(since) = sender.held_since.take() {
            shared.stats.switch_stall_nanos += now.since(since).as_nanos();
        }
        if !was_waiting {
            sender.waiting_since = now;
            // The timer is armed once a flight, not once a packet: it checks for silence when it fires.
            self.timers.arm(Timer::Tail, now + sender.probe_timeout(shared));
        }
        // No timeout is shorter, so a timer armed for an earlier time stays.
        if self.timers.at(Timer::Loss) > now + shared.config.shortest_timeout() {
            self.timers.arm_by(Timer::Loss, now + sender.timeout(shared, retransmissions));
        }
        if !self.timers.is_armed(Timer::PathProbe) && sender.policy.compares_paths() {
            self.timers.arm(Timer::PathProbe, now + shared.config.probe_interval);
        }
    }
}

impl Picked {
    /// Returns the packet's header.
    #[inline]
    fn header(&self) -> DataHeader {
        DataHeader {
            ece: true,
            ack_now: self.ack_now,
            retransmitted: self.packet.retransmissions > 0,
            path_id: U3::truncate(self.packet.path.0.into()),
            next: NextHeader::Message,
            psn: self.psn,
            timestamp: self.packet.sent_at,
            ..DataHeader::default()
        }
    }

    /// Returns the packet's message header.
    #[inline]
    fn extension(&self) -> MessageHeader {
        MessageHeader {
            opcode: self.message.opcode,
            tag: self.message.tag,
            id: self.packet.message,
            offset: self.packet.offset,
            length: self.message.length,
        }
    }

    /// Returns the packet's payload.
    #[inline]
    fn payload(&self) -> Payload {
        Payload { token: self.message.token, offset: self.packet.offset, len: self.len }
    }
}

/// The limit on a packet beside the send window.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Limit {
    /// The window of its path.
    Window,
    /// No window: the other packets wait for this one.
    None,
}

impl Limit {
    /// Returns the candidates for the packet among the paths.
    #[inline]
    fn candidates(self, paths: &Paths) -> Candidates<'_> {
        match self {
            Self::Window => paths.candidates(),
            Self::None => paths.candidates().beyond_windows(),
        }
    }
}

impl Sender {
    /// Selects the next packet that congestion control, the send window and the paths permit: lost packets first.
    #[inline(always)] // The result stays in registers; in memory its parts are read together.
    fn poll_data(&mut self, now: Instant, send_window: u16, shared: &mut Shared) -> Option<Picked> {
        if let Some(psn) = self.pop_probe() {
            let ack_now = shared.config.recovery.suspends();
            let picked = self.retransmit(psn, Limit::None, now, shared);
            return picked.map(|picked| self.count_in_flight(Picked { ack_now, ..picked }, now));
        }
        if !self.has_window() {
            return None;
        }
        let picked = match self.pop_lost() {
            Some(psn) => self.retransmit(psn, Limit::Window, now, shared)?,
            None => self.send_new(now, send_window, shared)?,
        };
        Some(self.count_in_flight(picked, now))
    }

    /// Returns `true` if a packet of full length fits the window. One may always be in flight, unless the window is zero:
    /// the receiver permitted nothing.
    #[inline]
    fn has_window(&self) -> bool {
        let window = self.controllers.total_window();
        self.in_flight + u32::from(self.mtu) <= window || (self.in_flight == 0 && window > 0)
    }

    /// Counts a selected packet as in flight.
    #[inline(always)]
    fn count_in_flight(&mut self, picked: Picked, now: Instant) -> Picked {
        let bytes = charge(picked.len);
        self.in_flight += bytes;
        self.paths.state_mut(picked.packet.path).in_flight += bytes;
        if let Some(rate) = self.controllers.of(picked.packet.path).rate() {
            self.pacer.note_sent(now, picked.len.into(), picked.packet.path, rate);
        }
        picked
    }

    /// Retransmits a lost packet.
    #[cold]
    fn retransmit(
        &mut self,
        psn: u32,
        limit: Limit,
        now: Instant,
        shared: &mut Shared,
    ) -> Option<Picked> {
        let mut packet = *self.packet(psn).expect("a lost packet is not acknowledged");
        let path = match shared.config.recovery.kind {
            // The peer requires packets in order, and a single path keeps the order.
            Kind::GoBackN => self.next_path(limit, now, shared),
            Kind::Irn if shared.config.recovery.rewind => self.next_path(limit, now, shared),
            Kind::PerPath | Kind::Irn | Kind::Timeout => {
                self.path_of_retransmission(&packet, limit, now)
            }
        };
        let Some(path) = path else {
            self.lost.push_front(psn);
            return None;
        };
        packet.path = path;
        packet.sent_at = self.stamp(now).to_wire();
        packet.retransmissions = packet.retransmissions.saturating_add(1);
        packet.state = PacketState::InFlight;
        *self.sent.enter(psn, self.base, &mut shared.send_pool) = packet;
        let message = *self.send_queue.message(packet.message);
        Some(Picked { psn, packet, message, len: self.payload_len(&packet), ack_now: false })
    }

    /// Returns the path of a retransmission. If another path than the last one is open, it is the policy's choice for
    /// the first retransmission, and the path most likely to work for later ones and for probes.
    fn path_of_retransmission(
        &mut self,
        packet: &SentPacket,
        limit: Limit,
        now: Instant,
    ) -> Option<PathId> {
        let all = limit.candidates(&self.paths);
        let others = all.avoiding(packet.path);
        let mut other = self.policy.select(&others, now, &mut self.rng);
        if other.is_some() && (packet.retransmissions > 0 || limit == Limit::None) {
            other = others.likeliest(packet.retransmissions, &mut self.rng);
        }
        other.or_else(|| self.policy.select(&all, now, &mut self.rng))
    }

    /// Cuts a new packet from the queued messages.
    #[inline(always)]
    fn send_new(&mut self, now: Instant, send_window: u16, shared: &mut Shared) -> Option<Picked> {
        let psn = self.next;
        let full = psn.wrapping_sub(self.base) >= u32::from(send_window);
        if full || !self.send_queue.has_segment() {
            return None;
        }
        let path = self.next_path(Limit::Window, now, shared)?;
        let segment = self.send_queue.cut(self.mtu, psn)?;
        let packet = SentPacket {
            message: segment.number,
            offset: segment.offset,
            sent_at: self.stamp(now).to_wire(),
            path,
            retransmissions: 0,
            state: PacketState::InFlight,
        };
        *self.sent.enter(psn, self.base, &mut shared.send_pool) = packet;
        self.next = psn.wrapping_add(1);
        debug_assert!(
            before(self.base, self.next),
            "the window is far smaller than the sequence space"
        );
        Some(Picked { psn, packet, message: segment.message, len: segment.len, ack_now: false })
    }

    /// Returns the path of the next packet: the spray unit's, until the unit is used up or its path closed.
    #[inline]
    fn next_path(&mut self, limit: Limit, now: Instant, shared: &mut Shared) -> Option<PathId> {
        let paths = limit.candidates(&self.paths);
        let (current, left) = self.unit;
        if left > 0 && paths.is_open(current) {
            self.unit.1 -= 1;
            return Some(current);
        }
        let path = self.policy.select(&paths, now, &mut self.rng)?;
        shared.stats.path_switches += u64::from(path != current && current != NO_PATH);
        self.unit = (path, self.unit_packets(&shared.config) - 1);
        Some(path)
    }

    /// Returns the number of packets of the next spray unit.
    #[inline]
    fn unit_packets(&self, config: &TransportConfig) -> u16 {
        if config.spray_unit == 1 {
            return 1;
        }
        let sending = Sending {
            window: self.controllers.total_window(),
            round_trip: self.round_trip.smoothed(),
            waiting: self.send_queue.waiting_packets(self.mtu, config.spray_unit),
        };
        config.unit.packets(config, sending)
    }
}
