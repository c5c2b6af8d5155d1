//! One connection over a link.

use core::net::SocketAddr;

use alloc::collections::VecDeque;

use weft_units::Instant;
use weft_wire::{AckHeader, DataHeader, MessageHeader, Packet, U4};

use super::{Acknowledged, LinkId};
use crate::connection::{Outbox, VERSION};
use crate::path::PathId;
use crate::{ConnectionId, Departure, Message, Payload, PlacedError, Placement, SubmitError};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Setup {
    /// We asked and wait.
    Requesting,
    /// Both ends know each other.
    Established,
}

/// One connection.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) id: ConnectionId,
    pub(super) link: LinkId,
    /// The peer's address and receive port.
    pub(super) peer: SocketAddr,
    /// The peer's connection id; zero until it is known.
    pub(super) remote: u32,
    pub(super) setup: Setup,
    /// Whether the endpoint's queue holds it.
    pub(super) queued: bool,
    /// Since when the peer owes an answer.
    pub(super) waiting_since: Option<Instant>,
    pub(super) mtu: u16,
    outbox: Outbox,
    /// The first packet that is not acknowledged, and the next one.
    base: u32,
    next: u32,
    arrivals: Arrivals,
}

/// What came.
#[derive(Debug, Default)]
struct Arrivals {
    /// The first packet that is not placed, and for those after it whether they are.
    base: u32,
    placed: VecDeque<bool>,
    ack_due: bool,
    /// The message under way, how much of it came, and what its packets say of it.
    message: u32,
    offset: u32,
    said: Option<(u8, u32)>,
}

impl Acknowledged {
    /// The packet that says nothing else.
    pub(super) fn alone(self) -> Packet {
        let Self { destination_cid, psn_base } = self;
        let version = U4::truncate(VERSION);
        Packet::Ack(AckHeader { version, destination_cid, psn_base, ..AckHeader::default() })
    }
}

impl Stream {
    pub(super) const fn new(
        id: ConnectionId,
        link: LinkId,
        peer: SocketAddr,
        setup: Setup,
    ) -> Self {
        Self {
            id,
            link,
            peer,
            remote: 0,
            setup,
            queued: false,
            waiting_since: None,
            mtu: 0,
            outbox: Outbox::new(0),
            base: 0,
            next: 0,
            arrivals: Arrivals {
                base: 0,
                placed: VecDeque::new(),
                ack_due: false,
                message: 0,
                offset: 0,
                said: None,
            },
        }
    }

    pub(super) fn establish(&mut self, remote: u32, mtu: u16) {
        self.setup = Setup::Established;
        self.remote = remote;
        self.mtu = mtu;
        self.waiting_since = None;
    }

    #[inline]
    pub(super) fn is_up_over(&self, link: LinkId) -> bool {
        self.link == link && self.setup == Setup::Established
    }

    pub(super) const fn departure(&self, payload: Option<Payload>) -> Departure {
        Departure { to: self.peer, connection: Some(self.id), path: PathId(0), padding: 0, payload }
    }

    pub(super) fn submit(&mut self, message: Message, limit: u32) -> Result<(), SubmitError> {
        if self.setup != Setup::Established {
            return Err(SubmitError::NotConnected);
        }
        if self.outbox.len() >= limit as usize {
            return Err(SubmitError::QueueFull { limit });
        }
        self.outbox.push(message);
        Ok(())
    }

    #[inline]
    pub(super) fn wants_transmit(&self, window: u16) -> bool {
        self.arrivals.ack_due || self.may_send(window)
    }

    #[inline]
    pub(super) fn may_send(&self, window: u16) -> bool {
        self.outbox.has_segment() && self.has_room(window)
    }

    /// Whether the next message would leave at once.
    #[inline]
    pub(super) fn has_sent_all(&self, window: u16) -> bool {
        !self.outbox.has_segment() && self.has_room(window)
    }

    #[inline]
    fn has_room(&self, window: u16) -> bool {
        self.next.wrapping_sub(self.base) < window.into()
    }

    /// Nothing is waited for where the peer owes nothing.
    #[inline]
    pub(super) fn rest(&mut self) {
        if !self.is_waiting() {
            self.waiting_since = None;
        }
    }

    /// The acknowledgement that is owed, if one is.
    #[inline]
    pub(super) fn poll_ack(&mut self) -> Option<Acknowledged> {
        core::mem::take(&mut self.arrivals.ack_due)
            .then_some(Acknowledged { destination_cid: self.remote, psn_base: self.arrivals.base })
    }

    /// Puts the next packet into `packet`; its payload, if it has any. `None` if there is none to send. A message
    /// goes first: an acknowledgement may go along with it.
    #[inline]
    pub(super) fn poll(&mut self, window: u16, packet: &mut Packet) -> Option<Option<Payload>> {
        if !self.may_send(window) {
            *packet = self.poll_ack()?.alone();
            return Some(None);
        }
        let psn = self.next;
        let segment = self.outbox.cut(self.mtu, psn)?;
        self.next = psn.wrapping_add(1);
        let Message { token, opcode, tag, length } = segment.message;
        let (version, destination_cid) = (U4::truncate(VERSION), self.remote);
        let header = DataHeader { version, psn, destination_cid, ..DataHeader::default() };
        let (id, offset, len) = (segment.number, segment.offset, segment.len);
        *packet = Packet::data(header, Some(MessageHeader { opcode, tag, id, offset, length }));
        Some(Some(Payload { token, offset, len }))
    }

    /// Whether the peer owes an acknowledgement.
    #[inline]
    pub(super) fn is_waiting(&self) -> bool {
        self.base != self.next
    }

    /// The peer has placed every packet before this one; false if it cannot have.
    #[inline]
    pub(super) fn acknowledge(&mut self, base: u32) -> bool {
        let possible = base.wrapping_sub(self.base) <= self.next.wrapping_sub(self.base);
        if possible {
            self.base = base;
        }
        possible
    }

    #[inline]
    pub(super) fn pop_done(&mut self) -> Option<Message> {
        self.outbox.pop_done(self.base)
    }

    /// Where a packet's payload belongs; `None` if it is not the next one, or does not fit its message.
    #[inline]
    pub(super) fn take_in(
        &mut self,
        header: &DataHeader,
        message: &MessageHeader,
        len: u16,
        window: u16,
    ) -> Option<Placement> {
        let arrivals = &mut self.arrivals;
        let waiting = u32::try_from(arrivals.placed.len()).unwrap_or(u32::MAX);
        let MessageHeader { opcode, tag, id, offset, length } = *message;
        let said = *arrivals.said.get_or_insert((opcode, length));
        let end = offset.checked_add(len.into()).filter(|&end| end <= length)?;
        let expected = header.psn == arrivals.base.wrapping_add(waiting)
            && waiting < window.into()
            && (id, offset) == (arrivals.message, arrivals.offset)
            && (opcode, length) == said
            && (len > 0 || length == 0);
        if !expected {
            return None;
        }
        arrivals.placed.push_back(false);
        arrivals.offset = end;
        if end == length {
            (arrivals.message, arrivals.offset, arrivals.said) = (id.wrapping_add(1), 0, None);
        }
        let (connection, psn, message) = (self.id, header.psn, id);
        Some(Placement { connection, psn, opcode, tag, message, offset, len, length })
    }

    #[inline]
    pub(super) fn placed(&mut self, psn: u32) -> Result<(), PlacedError> {
        let arrivals = &mut self.arrivals;
        let index = psn.wrapping_sub(arrivals.base) as usize;
        match arrivals.placed.get_mut(index) {
            Some(placed) if !*placed => *placed = true,
            _ => return Err(PlacedError::NotWaiting { psn }),
        }
        while arrivals.placed.front() == Some(&true) {
            arrivals.placed.pop_front();
            arrivals.base = arrivals.base.wrapping_add(1);
            arrivals.ack_due = true;
        }
        Ok(())
    }
}
