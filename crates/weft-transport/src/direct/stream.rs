//! One connection over a link.

use core::net::SocketAddr;

use alloc::collections::VecDeque;

use weft_units::{Duration, Instant};
use weft_wire::{AckHeader, DataHeader, MessageHeader, Packet, SetupParameters};

use super::{Acknowledgement, DirectConfig, LinkId};
use crate::connection::{SendQueue, VERSION};
use crate::path::PathId;
use crate::{ConnectionId, Departure, Message, Payload, PlacedError, Placement, SubmitError};

/// The state of set-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Setup {
    /// This end sent a request and waits for the answer.
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
    /// `true` if the queue of connections that may send holds it.
    pub(super) queued: bool,
    /// The time since which the peer owes an answer.
    pub(super) waiting_since: Option<Instant>,
    /// The time without a packet on the link, while the peer owes an answer, after which it is considered gone.
    pub(super) peer_timeout: Duration,
    pub(super) mtu: u16,
    /// Maximum number of packets sent and not acknowledged; zero until it is agreed.
    window: u16,
    send_queue: SendQueue,
    /// The first packet that is not acknowledged, and the next new one.
    base: u32,
    next: u32,
    arrivals: Arrivals,
}

/// The state of received packets.
#[derive(Debug, Default)]
struct Arrivals {
    /// The first packet that is not placed, and for each packet after it `true` if it is placed.
    base: u32,
    placed: VecDeque<bool>,
    ack_due: bool,
    /// The current message, the number of its bytes received, and the opcode and length in its packets.
    message: u32,
    offset: u32,
    message_fields: Option<(u8, u32)>,
}

impl Acknowledgement {
    /// Returns an ACK packet with this acknowledgement alone.
    pub(super) fn alone(self) -> Packet {
        let Self { destination_cid, psn_base } = self;
        let version = VERSION;
        Packet::Ack(AckHeader { version, destination_cid, psn_base, ..AckHeader::default() })
    }
}

impl Stream {
    pub(super) const fn new(
        id: ConnectionId,
        link: LinkId,
        peer: SocketAddr,
        setup: Setup,
        peer_timeout: Duration,
    ) -> Self {
        Self {
            id,
            link,
            peer,
            remote: 0,
            setup,
            queued: false,
            waiting_since: None,
            peer_timeout,
            mtu: 0,
            window: 0,
            send_queue: SendQueue::new(0),
            base: 0,
            next: 0,
            arrivals: Arrivals {
                base: 0,
                placed: VecDeque::new(),
                ack_due: false,
                message: 0,
                offset: 0,
                message_fields: None,
            },
        }
    }

    /// Establishes the connection to the peer's end `remote`, with the smaller of both ends' limits.
    pub(super) fn establish(
        &mut self,
        remote: u32,
        theirs: &SetupParameters,
        config: &DirectConfig,
    ) {
        self.setup = Setup::Established;
        self.remote = remote;
        self.mtu = theirs.mtu.min(config.mtu);
        self.window = theirs.window.min(config.window);
        self.waiting_since = None;
    }

    #[inline]
    pub(super) fn is_established_on(&self, link: LinkId) -> bool {
        self.link == link && self.setup == Setup::Established
    }

    pub(super) const fn departure(&self, payload: Option<Payload>) -> Departure {
        Departure { to: self.peer, connection: Some(self.id), path: PathId(0), padding: 0, payload }
    }

    pub(super) fn submit(&mut self, message: Message, limit: u32) -> Result<(), SubmitError> {
        if self.setup != Setup::Established {
            return Err(SubmitError::NotConnected);
        }
        if self.send_queue.len() >= limit as usize {
            return Err(SubmitError::QueueFull { limit });
        }
        self.send_queue.push(message);
        Ok(())
    }

    #[inline]
    pub(super) fn wants_transmit(&self) -> bool {
        self.arrivals.ack_due || self.may_send()
    }

    #[inline]
    pub(super) fn may_send(&self) -> bool {
        self.send_queue.has_segment() && self.has_room()
    }

    /// Returns `true` if the next message would leave at once.
    #[inline]
    pub(super) fn has_sent_all(&self) -> bool {
        !self.send_queue.has_segment() && self.has_room()
    }

    #[inline]
    fn has_room(&self) -> bool {
        self.next.wrapping_sub(self.base) < self.window.into()
    }

    /// Clears the waiting time if the peer owes nothing.
    #[inline]
    pub(super) fn stop_waiting(&mut self) {
        if !self.is_waiting() {
            self.waiting_since = None;
        }
    }

    /// Returns the acknowledgement that is owed, if any.
    #[inline]
    pub(super) fn poll_ack(&mut self) -> Option<Acknowledgement> {
        core::mem::take(&mut self.arrivals.ack_due).then_some(Acknowledgement {
            destination_cid: self.remote,
            psn_base: self.arrivals.base,
        })
    }

    /// Writes the next packet's headers to `packet` and returns its payload, if it has any; `None` if there is no
    /// packet to send. A message goes first: it may carry an acknowledgement along.
    #[inline]
    pub(super) fn poll(&mut self, packet: &mut Packet) -> Option<Option<Payload>> {
        if !self.may_send() {
            *packet = self.poll_ack()?.alone();
            return Some(None);
        }
        let psn = self.next;
        let segment = self.send_queue.cut(self.mtu, psn)?;
        self.next = psn.wrapping_add(1);
        let Message { token, opcode, tag, length } = segment.message;
        let (version, destination_cid) = (VERSION, self.remote);
        let header = DataHeader { version, psn, destination_cid, ..DataHeader::default() };
        let (id, offset, len) = (segment.number, segment.offset, segment.len);
        *packet = Packet::data(header, Some(MessageHeader { opcode, tag, id, offset, length }));
        Some(Some(Payload { token, offset, len }))
    }

    /// Returns `true` if the peer owes an acknowledgement.
    #[inline]
    pub(super) fn is_waiting(&self) -> bool {
        self.base != self.next
    }

    /// Processes the peer's acknowledgement of every packet before `base`. Returns `false` if they were not all sent.
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
        self.send_queue.pop_done(self.base)
    }

    /// Processes a data packet and returns the place of its payload; `None` if it is not the next one, or does not fit
    /// its message.
    #[inline]
    pub(super) fn ingest(
        &mut self,
        header: &DataHeader,
        message: &MessageHeader,
        len: u16,
        window: u16,
    ) -> Option<Placement> {
        let arrivals = &mut self.arrivals;
        let waiting = u32::try_from(arrivals.placed.len()).unwrap_or(u32::MAX);
        let MessageHeader { opcode, tag, id, offset, length } = *message;
        let message_fields = *arrivals.message_fields.get_or_insert((opcode, length));
        let end = offset.checked_add(len.into()).filter(|&end| end <= length)?;
        let expected = header.psn == arrivals.base.wrapping_add(waiting)
            && waiting < window.into()
            && (id, offset) == (arrivals.message, arrivals.offset)
            && (opcode, length) == message_fields
            && (len > 0 || length == 0);
        if !expected {
            return None;
        }
        arrivals.placed.push_back(false);
        arrivals.offset = end;
        if end == length {
            (arrivals.message, arrivals.offset, arrivals.message_fields) =
                (id.wrapping_add(1), 0, None);
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
