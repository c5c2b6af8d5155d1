//! What leaves: which packet is next, on which path.
//!
//! Three levels: [`Connection::poll_burst`] decides what kind of packets are due,
//! [`Sender::poll_data`] which packet and path, [`Picked::header`] what is said of it.

use weft_units::Instant;
use weft_wire::{DataHeader, MessageHeader, Next, Packet, U3};

use super::in_flight::{Fate, SentPacket};
use super::sender::{NO_PATH, Sender, charge};
use super::{Connection, Shared};
use crate::congestion::Congestion;
use crate::path::{PathId, PathPolicy, Spread};
use crate::pool::before;
use crate::recovery::Kind;
use crate::timers::Timer;
use crate::{Departure, Message, Payload, TransportConfig};

/// Spray units that a window has room for, at the least. With the 2 ms queue target of the overlay and the agent a unit
/// then takes 0.6 ms of the paths' rate, and from 1 Gb/s on it has the configured number of packets. Eight units, more
/// often of different paths, retransmit half as much again where one of four paths of 200 Gb/s loses packets.
const UNITS_IN_WINDOW: u32 = 4;

/// Packets of a spray unit at least, however small the window is: what begins a connection of the overlay, the hello and the
/// first packets of a frame, takes one path. A frame that overtakes its hello is retransmitted.
const MIN_UNIT: u16 = 8;

/// A packet picked for sending.
pub(crate) struct Picked {
    psn: u32,
    packet: SentPacket,
    /// The message it is part of.
    message: Message,
    len: u16,
}

impl Connection {
    /// Hands what this connection may send now to `send`, at most `most` packets: first what carries
    /// no payload, then payload, which makes nothing of the former due. Says how many there were.
    #[inline]
    pub(crate) fn poll_burst(
        &mut self,
        now: Instant,
        most: usize,
        shared: &mut Shared,
        packet: &mut Packet,
        send: &mut impl FnMut(&Departure, &Packet),
    ) -> usize {
        let mut sent = 0;
        while sent < most {
            let Some(path) = self.poll_control(now, shared, packet) else {
                return sent + self.poll_payload(now, most - sent, shared, packet, send);
            };
            send(&self.departure(path, packet, shared), packet);
            sent += 1;
        }
        sent
    }

    #[inline]
    pub(crate) fn departure(&self, path: PathId, packet: &Packet, shared: &Shared) -> Departure {
        let padding = self.padding_of(packet, shared);
        Departure { connection: Some(self.id), to: self.peer, path, padding, payload: None }
    }

    /// The next packet without payload, and its path: set-up first, then what the peer waits for
    /// (ACKs, answers to probes), then our probes.
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

    /// Sends payload as long as pacing, windows and paths let it.
    #[inline]
    fn poll_payload(
        &mut self,
        now: Instant,
        most: usize,
        shared: &mut Shared,
        packet: &mut Packet,
        send: &mut impl FnMut(&Departure, &Packet),
    ) -> usize {
        let Some(sender) = self.sender.as_deref_mut() else { return 0 };
        if sender.known != shared.peer_paths.version() {
            sender.follow_others(self.id, now, shared);
            if let Some(at) = sender.health.next() {
                self.timers.arm_by(Timer::PathProbe, at);
            }
        }
        let was_waiting = sender.is_waiting();
        let (mut sent, mut repeats) = (0, u8::MAX);
        while sent < most {
            if let Some(at) = sender.paced_until(now) {
                self.timers.arm(Timer::Pacing, at);
                break;
            }
            let Some(picked) = sender.poll_data(now, self.send_window, shared) else {
                self.wait_for_policy(now);
                break;
            };
            repeats = repeats.min(picked.packet.repeats);
            self.repeated += u64::from(picked.packet.repeats > 0);
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
            self.sent_anything_at = now;
            self.watch(now, was_waiting, repeats, shared);
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

    /// Arms the timers of payload that leaves now; `repeats` is how often that of its packets was
    /// sent before that was sent least.
    #[inline]
    fn watch(&mut self, now: Instant, was_waiting: bool, repeats: u8, shared: &mut Shared) {
        let Some(sender) = self.sender.as_deref_mut() else { return };
        if let Some(since) = sender.held_since.take() {
            shared.stats.switch_stall_nanos += now.since(since).as_nanos();
        }
        if !was_waiting {
            sender.waiting_since = now;
            // Once a flight, not once a packet: whether there was silence is seen when it fires.
            self.timers.arm(Timer::Tail, now + sender.probe_timeout(shared));
        }
        // No timeout is shorter, so a timer that is armed by then stays.
        if self.timers.at(Timer::Loss) > now + shared.config.shortest_timeout() {
            self.timers.arm_by(Timer::Loss, now + sender.timeout(shared, repeats));
        }
        if !self.timers.is_armed(Timer::PathProbe) && sender.policy.compares_paths() {
            self.timers.arm(Timer::PathProbe, now + shared.config.probe_interval);
        }
    }
}

impl Picked {
    /// What its header says of this packet.
    #[inline]
    fn header(&self) -> DataHeader {
        DataHeader {
            ece: true,
            retransmitted: self.packet.repeats > 0,
            path_id: U3::truncate(self.packet.path.0.into()),
            next: Next::Message,
            psn: self.psn,
            timestamp: self.packet.sent_at,
            ..DataHeader::default()
        }
    }

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

    #[inline]
    fn payload(&self) -> Payload {
        Payload { token: self.message.token, offset: self.packet.offset, len: self.len }
    }
}

impl Sender {
    /// Picks the next packet that congestion control, the send window and the paths allow: lost
    /// ones first.
    #[inline(always)] // What it picks stays in registers; in memory its parts are read together.
    fn poll_data(&mut self, now: Instant, send_window: u16, shared: &mut Shared) -> Option<Picked> {
        if let Some(psn) = self.pop_ask() {
            self.paths.lift_windows(true);
            let picked = self.repeat(psn, now, shared);
            self.paths.lift_windows(false);
            return picked.map(|picked| self.charged(picked, now));
        }
        if self.in_flight > 0
            && self.in_flight + u32::from(self.mtu) > self.controllers.total_window()
        {
            return None;
        }
        let picked = match self.pop_lost() {
            Some(psn) => self.repeat(psn, now, shared)?,
            None => self.fresh(now, send_window, shared)?,
        };
        Some(self.charged(picked, now))
    }

    /// Counts a picked packet as in flight.
    #[inline(always)]
    fn charged(&mut self, picked: Picked, now: Instant) -> Picked {
        let bytes = charge(picked.len);
        self.in_flight += bytes;
        self.paths.state_mut(picked.packet.path).in_flight += bytes;
        if let Some(rate) = self.controllers.of(picked.packet.path).rate() {
            self.pacer.note_sent(now, picked.len.into(), picked.packet.path, rate);
        }
        picked
    }

    /// Sends a lost packet again.
    #[cold]
    fn repeat(&mut self, psn: u32, now: Instant, shared: &mut Shared) -> Option<Picked> {
        let mut packet = *self.packet(psn).expect("a lost packet is not acknowledged");
        let path = match shared.config.recovery.kind {
            // The peer wants them in order, and one path keeps it.
            Kind::GoBackN => self.next_path(now, shared),
            Kind::Irn if shared.config.recovery.rewind => self.next_path(now, shared),
            Kind::PerPath | Kind::Irn | Kind::Timeout => self.path_of_repeat(&packet, now),
        };
        let Some(path) = path else {
            self.lost.push_front(psn);
            return None;
        };
        packet.path = path;
        packet.sent_at = self.stamp(now).to_wire();
        packet.repeats = packet.repeats.saturating_add(1);
        packet.fate = Fate::InFlight;
        *self.sent.enter(psn, self.base, &mut shared.send_pool) = packet;
        let message = *self.outbox.message(packet.message);
        Some(Picked { psn, packet, message, len: self.payload_len(&packet) })
    }

    /// Another path than last time if one is open: first as the policy says; after that, or where
    /// everything waits for it, the likeliest to work.
    fn path_of_repeat(&mut self, packet: &SentPacket, now: Instant) -> Option<PathId> {
        self.paths.set_avoid(Some(packet.path));
        let mut other = self.policy.select(&self.paths, now, &mut self.rng);
        if other.is_some() && (packet.repeats > 0 || self.paths.are_windows_lifted()) {
            other = self.paths.likeliest(packet.repeats, &mut self.rng);
        }
        self.paths.set_avoid(None);
        other.or_else(|| self.policy.select(&self.paths, now, &mut self.rng))
    }

    /// Cuts a new packet from the messages.
    #[inline(always)]
    fn fresh(&mut self, now: Instant, send_window: u16, shared: &mut Shared) -> Option<Picked> {
        let psn = self.next;
        let full = psn.wrapping_sub(self.base) >= u32::from(send_window);
        if full || !self.outbox.has_segment() {
            return None;
        }
        let path = self.next_path(now, shared)?;
        let segment = self.outbox.cut(self.mtu, psn)?;
        let packet = SentPacket {
            message: segment.number,
            offset: segment.offset,
            sent_at: self.stamp(now).to_wire(),
            path,
            repeats: 0,
            fate: Fate::InFlight,
        };
        *self.sent.enter(psn, self.base, &mut shared.send_pool) = packet;
        self.next = psn.wrapping_add(1);
        debug_assert!(before(self.base, self.next), "the window is far smaller than the circle");
        Some(Picked { psn, packet, message: segment.message, len: segment.len })
    }

    /// The path of the next packet: the spray unit's, until the unit is used up or its path closed.
    #[inline]
    fn next_path(&mut self, now: Instant, shared: &mut Shared) -> Option<PathId> {
        let (before, left) = self.unit;
        if left > 0 && self.paths.is_open(before) {
            self.unit.1 -= 1;
            return Some(before);
        }
        let path = self.policy.select(&self.paths, now, &mut self.rng)?;
        shared.stats.path_switches += u64::from(path != before && before != NO_PATH);
        self.unit = (path, self.spray_unit(&shared.config) - 1);
        Some(path)
    }

    /// Returns how many packets take one path in a row: the configured number, or fewer if that many exceed a quarter of
    /// the window, but [`MIN_UNIT`]. A larger unit would fill the window with one or two paths' packets and leave the others
    /// idle. A policy that uses one path at a time has the configured number.
    fn spray_unit(&self, config: &TransportConfig) -> u16 {
        if config.spray_unit == 1 || config.policy.spread() == Spread::One {
            return config.spray_unit;
        }
        let packets = self.controllers.total_window() / (UNITS_IN_WINDOW * u32::from(config.mtu));
        let least = MIN_UNIT.min(config.spray_unit);
        u16::try_from(packets).unwrap_or(u16::MAX).clamp(least, config.spray_unit)
    }
}
