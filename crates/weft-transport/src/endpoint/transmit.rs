//! Packets that leave: connections take turns.

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
    /// Of which connection; `None` for an answer that has none.
    pub connection: Option<ConnectionId>,
    /// The path it must take: the owner maps it to a UDP source port.
    pub path: PathId,
    /// Bytes of zeros that follow the headers of a probe; the peer ignores them.
    pub padding: u16,
    /// The payload that follows, if any.
    pub payload: Option<Payload>,
    /// Its headers.
    pub packet: Packet,
}

/// A [`Transmit`] whose headers are where the owner wanted them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// The peer's address and receive port.
    pub to: SocketAddr,
    /// Of which connection; `None` for an answer that has none.
    pub connection: Option<ConnectionId>,
    /// The path it must take: the owner maps it to a UDP source port.
    pub path: PathId,
    /// Bytes of zeros that follow the headers of a probe; the peer ignores them.
    pub padding: u16,
    /// The payload that follows, if any.
    pub payload: Option<Payload>,
}

impl Transmit {
    const fn departure(&self) -> Departure {
        let Self { to, connection, path, padding, payload, .. } = *self;
        Departure { to, connection, path, padding, payload }
    }
}

impl Departure {
    /// Returns the bytes that follow the headers: payload or padding.
    #[inline]
    pub fn payload_len(&self) -> u16 {
        self.payload.map_or(self.padding, |payload| payload.len)
    }
}

impl Endpoint {
    /// Whether [`Self::poll_transmit`] might give a packet; if not, it need not be asked.
    #[inline]
    pub fn wants_transmit(&self) -> bool {
        !self.ready.is_empty() || !self.answers.is_empty()
    }

    /// Connections that may have something to send, ACKs included: the last of them is served after as many
    /// turns. Owners with thousands of connections take no more messages while that is many.
    #[inline]
    pub fn wanting_to_send(&self) -> usize {
        self.ready.len()
    }

    /// The next packet to send, if anything may be sent now. Call until `None`, or until the
    /// owner's budget is spent; connections take turns of one spray unit.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Transmit> {
        let mut packet = Packet::default();
        let Departure { to, connection, path, padding, payload } =
            self.poll_transmit_into(now, &mut packet)?;
        Some(Transmit { to, connection, path, padding, payload, packet })
    }

    /// Likewise with the headers put into `packet`: with hundreds of thousands of them a second,
    /// each time they are passed on costs.
    #[inline]
    pub fn poll_transmit_into(&mut self, now: Instant, packet: &mut Packet) -> Option<Departure> {
        let mut departure = None;
        self.poll_burst(now, 1, packet, |only, _| departure = Some(*only));
        departure
    }

    /// Hands the packets that may be sent now to `send`, at most `most` of them, and says how many
    /// there were. They are what [`Self::poll_transmit_into`] would say in turn, but what stays the
    /// same from packet to packet is asked for once. Each one's headers are put into `packet`.
    #[inline]
    pub fn poll_burst(
        &mut self,
        now: Instant,
        most: usize,
        packet: &mut Packet,
        mut send: impl FnMut(&Departure, &Packet),
    ) -> usize {
        let mut sent = 0;
        while sent < most {
            if let Some(answer) = self.answers.pop_front() {
                *packet = answer.packet;
                send(&answer.departure(), packet);
                self.note_forgotten(&answer);
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
            let room = (unit - self.turn).min(most - sent);
            let burst = connection.poll_burst(now, room, &mut self.shared, packet, &mut send);
            sent += burst;
            self.turn += burst;
            if burst < room {
                connection.queued = false;
                self.end_turn();
            } else if self.turn == unit {
                self.end_turn();
                self.ready.push_back(slot);
            }
            self.reschedule(slot);
        }
        sent
    }

    /// Like [`Self::poll_transmit_into`] for an owner whose port must hold payload back (priority flow
    /// control): only what carries none.
    pub fn poll_control_into(&mut self, now: Instant, packet: &mut Packet) -> Option<Departure> {
        if let Some(answer) = self.answers.pop_front() {
            *packet = answer.packet;
            self.note_forgotten(&answer);
            return Some(answer.departure());
        }
        let (connections, shared) = (&mut self.connections, &mut self.shared);
        let (slot, departure) = self.ready.iter().find_map(|&slot| {
            let connection = connections.get_mut(slot).filter(|connection| connection.queued)?;
            let path = connection.poll_control(now, shared, packet)?;
            Some((slot, connection.departure(path, packet, shared)))
        })?;
        self.settle(now, slot);
        Some(departure)
    }

    fn end_turn(&mut self) {
        self.turn = 0;
        self.ready.pop_front();
    }
}
