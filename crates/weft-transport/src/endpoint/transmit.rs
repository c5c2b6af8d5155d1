//! Outgoing packets: connections take turns.

use core::net::SocketAddr;

use weft_units::Instant;
use weft_wire::Packet;

use super::{ConnectionId, Endpoint, Payload};
use crate::path::PathId;

/// A packet to send.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Transmit {
    /// The peer's address and receive port.
    pub to: SocketAddr,
    /// The packet's connection; `None` for an answer that belongs to none.
    pub connection: Option<ConnectionId>,
    /// The packet's path: the owner maps it to a UDP source port.
    pub path: PathId,
    /// Number of zero bytes that follow the headers of a probe; the peer ignores them.
    pub padding: u16,
    /// The payload that follows the headers, if any.
    pub payload: Option<Payload>,
    /// The packet's headers.
    pub packet: Packet,
}

/// A [`Transmit`] without its headers, which were written to the owner's [`Packet`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// The peer's address and receive port.
    pub to: SocketAddr,
    /// The packet's connection; `None` for an answer that belongs to none.
    pub connection: Option<ConnectionId>,
    /// The packet's path: the owner maps it to a UDP source port.
    pub path: PathId,
    /// Number of zero bytes that follow the headers of a probe; the peer ignores them.
    pub padding: u16,
    /// The payload that follows the headers, if any.
    pub payload: Option<Payload>,
}

impl Transmit {
    const fn departure(&self) -> Departure {
        let Self { to, connection, path, padding, payload, .. } = *self;
        Departure { to, connection, path, padding, payload }
    }
}

impl Departure {
    /// Returns the number of bytes that follow the headers: payload or padding.
    #[inline]
    pub fn payload_len(&self) -> u16 {
        self.payload.map_or(self.padding, |payload| payload.len)
    }
}

impl Endpoint {
    /// Returns `false` if [`Self::poll_transmit`] has nothing to send; `true` if it may have.
    #[inline]
    pub fn wants_transmit(&self) -> bool {
        !self.ready.is_empty() || !self.answers.is_empty()
    }

    /// Returns the number of connections that may have something to send, ACKs included: the last of them is served
    /// after as many turns. An owner with thousands of connections accepts no further messages while the number is
    /// high.
    #[inline]
    pub fn ready_connections(&self) -> usize {
        self.ready.len()
    }

    /// Returns the next packet to send, if any may be sent now. Call it until it returns `None`, or until the owner's
    /// budget is spent; connections take turns of one spray unit.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Transmit> {
        let mut packet = Packet::default();
        let Departure { to, connection, path, padding, payload } =
            self.poll_transmit_into(now, &mut packet)?;
        Some(Transmit { to, connection, path, padding, payload, packet })
    }

    /// Returns the next packet to send, as [`Self::poll_transmit`] does, with the headers written to `packet`: at
    /// hundreds of thousands of packets a second, each copy of them costs time.
    #[inline]
    pub fn poll_transmit_into(&mut self, now: Instant, packet: &mut Packet) -> Option<Departure> {
        let mut departure = None;
        self.poll_burst(now, 1, packet, |only, _| departure = Some(*only));
        departure
    }

    /// Passes the packets that may be sent now to `send`, at most `limit` of them, and returns their number. They are
    /// the packets [`Self::poll_transmit_into`] would return one by one, but values that do not change from packet to
    /// packet are computed once. Each packet's headers are written to `packet`.
    #[inline]
    pub fn poll_burst(
        &mut self,
        now: Instant,
        limit: usize,
        packet: &mut Packet,
        mut send: impl FnMut(&Departure, &Packet),
    ) -> usize {
        let mut sent = 0;
        while sent < limit {
            if let Some(answer) = self.answers.pop_front() {
                *packet = answer.packet;
                send(&answer.departure(), packet);
                self.note_ended(&answer);
                sent += 1;
                continue;
            }
            let Some(&slot) = self.ready.front() else { break };
            let connection = self.connections.get_mut(slot);
            let Some(connection) = connection.filter(|connection| connection.queued) else {
                self.end_turn();
                continue;
            };
            let unit = usize::from(self.shared.config.spray_unit);
            let room = (unit - self.sent_in_turn).min(limit - sent);
            let burst = connection.poll_burst(now, room, &mut self.shared, packet, &mut send);
            sent += burst;
            self.sent_in_turn += burst;
            if burst < room {
                connection.queued = false;
                self.end_turn();
            } else if self.sent_in_turn == unit {
                self.end_turn();
                self.ready.push_back(slot);
            }
            self.schedule_timeout(slot);
        }
        sent
    }

    /// Returns the next packet without payload, as [`Self::poll_transmit_into`] does, for an owner whose port must hold
    /// payload back (priority flow control).
    pub fn poll_control_into(&mut self, now: Instant, packet: &mut Packet) -> Option<Departure> {
        if let Some(answer) = self.answers.pop_front() {
            *packet = answer.packet;
            self.note_ended(&answer);
            return Some(answer.departure());
        }
        let (connections, shared) = (&mut self.connections, &mut self.shared);
        let (slot, departure) = self.ready.iter().find_map(|&slot| {
            let connection = connections.get_mut(slot).filter(|connection| connection.queued)?;
            let path = connection.poll_control(now, shared, packet)?;
            Some((slot, connection.departure(path, packet, shared)))
        })?;
        self.reschedule(now, slot);
        Some(departure)
    }

    fn end_turn(&mut self) {
        self.sent_in_turn = 0;
        self.ready.pop_front();
    }
}
