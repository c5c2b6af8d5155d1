//! Placement of the payload of requests and responses on arrival.

use alloc::vec::Vec;

use weft_transport::{ConnectionId, Placement};
use weft_wire::{MissingOperands, RdmaHeader, RdmaOpcode, RdmaOperation, RdmaRemote, U24};

use super::active::ActiveQp;
use super::requester::{expects, is_request, locate_answer, scatter};
use crate::Event;
use crate::memory::{Access, Memory, Place, Right};
use crate::queue_pair::{Flow, Incoming, Intake, Refusal, Role};
use crate::receive_queue::Receive;

/// The destination of a message's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Destination {
    /// The memory of the receive request with the peer's number `number`.
    Receive { number: u64 },
    /// Memory that the request names.
    Remote(RdmaRemote),
    /// The local memory of the request to which the response belongs.
    Request,
    /// None: the message has no payload.
    Nowhere,
}

impl Destination {
    /// Returns the destination of an operation's payload.
    #[inline]
    pub(super) const fn of(operation: &Result<RdmaOperation, MissingOperands>) -> Self {
        match operation {
            Ok(RdmaOperation::Send { receive, .. }) => Self::Receive { number: *receive },
            Ok(RdmaOperation::Write { remote, .. }) => Self::Remote(*remote),
            Ok(RdmaOperation::ReadResponse) => Self::Request,
            Ok(
                RdmaOperation::Datagram { .. }
                | RdmaOperation::Read { .. }
                | RdmaOperation::Atomic { .. }
                | RdmaOperation::AtomicAcknowledge { .. }
                | RdmaOperation::Acknowledge { .. },
            )
            | Err(MissingOperands) => Self::Nowhere,
        }
    }

    /// Returns `true` if the payload goes to the memory of a receive request.
    #[inline]
    pub(super) const fn is_receive(self) -> bool {
        matches!(self, Self::Receive { .. })
    }

    /// Returns `true` if the payload goes to memory that the request names.
    #[inline]
    pub(super) const fn is_remote(self) -> bool {
        matches!(self, Self::Remote(_))
    }
}

/// The result of placing a packet's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Put {
    /// The payload was placed, held or dropped, and completes the next message.
    Next,
    /// The payload was placed, held or dropped, and other packets must arrive first.
    Waits,
    /// The payload would have to be held, and the limit is reached: the packet is declined, and the peer retransmits
    /// it.
    Declined,
}

impl Put {
    /// Returns the result for a payload that was handled; `completes_next` is `true` if it completes the next message.
    pub(super) const fn handled(completes_next: bool) -> Self {
        if completes_next { Self::Next } else { Self::Waits }
    }
}

/// A part of a message that arrived.
#[derive(Clone, Copy)]
pub(super) struct Piece<'a> {
    pub(super) psn: U24,
    pub(super) destination: Destination,
    /// The receive request that the message consumed from a shared queue.
    pub(super) receive: Option<&'a Receive>,
    pub(super) offset: u32,
    pub(super) len: u16,
}

impl ActiveQp<'_> {
    /// Returns the role of the queue pair on this connection; `None` if it has no such connection.
    #[inline]
    pub(super) fn role(&self, connection: ConnectionId) -> Option<Role> {
        let has =
            |flow: &Option<Flow>| flow.as_ref().is_some_and(|flow| flow.connection == connection);
        if has(&self.pair.responder.flow) {
            Some(Role::Responder)
        } else if has(&self.pair.requester.flow) {
            Some(Role::Requester)
        } else {
            None
        }
    }

    /// Returns `true` for a responder that executes no more requests, and has at most its last acknowledgements in
    /// flight.
    #[inline]
    pub(super) fn is_over(&self, role: Role) -> bool {
        role == Role::Responder && (self.pair.responder.closing || !self.pair.receives())
    }

    /// Adds the message of a packet to the inbox, unless it is there; returns `None` if the packet violates the protocol.
    pub(super) fn begin_message(
        &mut self,
        role: Role,
        placement: &Placement,
        header: &RdmaHeader,
    ) -> Option<Destination> {
        let known = self.pair.flow(role)?.inbox.known(placement, header).ok()?;
        if let Some(known) = known {
            return Some(Destination::of(&known.operation));
        }
        let incoming = match role {
            Role::Requester => {
                let opcode = RdmaOpcode::from_number(placement.opcode)?;
                let mut incoming = Incoming::new(*header, opcode, placement.length);
                incoming.intake = expects(self.pair, &incoming);
                incoming
            }
            Role::Responder => self.begin_request(placement, header)?,
        };
        let destination = Destination::of(&incoming.operation);
        self.pair.flow(role)?.inbox.begin(placement.message, incoming);
        Some(destination)
    }

    /// Creates the entry of a request whose first packet arrived; returns `None` if the packet violates the protocol.
    #[inline]
    pub(super) fn begin_request(
        &mut self,
        placement: &Placement,
        header: &RdmaHeader,
    ) -> Option<Incoming> {
        let opcode = RdmaOpcode::from_number(placement.opcode)?;
        if !is_request(opcode, self.pair.request.service) {
            return None;
        }
        let mut incoming = Incoming::new(*header, opcode, placement.length);
        (incoming.intake, incoming.receive, incoming.target) = match incoming.operation {
            Ok(operation) => self.admit(&operation, placement.length),
            Err(MissingOperands) => (Intake::Refuse(Refusal::InvalidRequest), None, None),
        };
        Some(incoming)
    }

    /// Returns `true` if a packet is a complete request, and the next message.
    #[inline]
    pub(super) fn is_whole_and_next(&self, role: Role, placement: &Placement) -> bool {
        let flow = self.pair.responder.flow.as_ref();
        role == Role::Responder
            && u32::from(placement.len) == placement.length
            && flow.is_some_and(|flow| flow.inbox.is_next(placement.message))
    }

    /// Places the payload of a request of one packet in its turn. Returns `None` if the payload is lost.
    #[inline]
    pub(super) fn place_whole(
        &mut self,
        message: u32,
        incoming: &mut Incoming,
        memory: &mut impl Memory,
    ) -> Option<()> {
        let Incoming { header, length, .. } = *incoming;
        let destination = Destination::of(&incoming.operation);
        let len = u16::try_from(length).expect("one packet");
        let mut outcome = Ok(());
        if self.waits_for_turn(destination) {
            outcome = self.place_waiting(&header, destination, length, Vec::new(), memory);
        }
        let receive = incoming.receive.as_ref();
        let piece = Piece { psn: header.psn, destination, receive, offset: 0, len };
        match outcome.and_then(|()| self.locate(Role::Responder, &piece)) {
            Ok(()) => {
                if let [only] = self.places[..]
                    && destination.is_receive()
                {
                    return memory.place(only, 0).ok();
                }
                self.lay_out(Role::Responder, message, destination);
                let mut parts = self.parts.iter();
                parts.try_for_each(|&(place, from)| memory.place(place, from)).ok()
            }
            Err(refusal) => {
                incoming.intake = Intake::Refuse(refusal);
                Some(())
            }
        }
    }

    /// Checks whether a request's payload may be placed. Returns the handling of the payload, the receive request that
    /// the message consumes from a shared queue, and the target of a WRITE.
    fn admit(
        &mut self,
        operation: &RdmaOperation,
        length: u32,
    ) -> (Intake, Option<Receive>, Option<Place>) {
        let remote = match *operation {
            RdmaOperation::Send { receive: number, .. } => {
                let (intake, receive) = self.admit_send(number, length);
                return (intake, receive, None);
            }
            RdmaOperation::Write { remote, .. } => Some(remote),
            RdmaOperation::Read { .. } | RdmaOperation::Atomic { .. } => None,
            RdmaOperation::Datagram { .. }
            | RdmaOperation::ReadResponse
            | RdmaOperation::AtomicAcknowledge { .. }
            | RdmaOperation::Acknowledge { .. } => {
                return (Intake::Refuse(Refusal::InvalidRequest), None, None);
            }
        };
        let mut target = None;
        let accessor = self.accessor();
        let refusal = if length > self.limits.message_bytes {
            Some(Refusal::InvalidRequest)
        } else if let Some(RdmaRemote { rkey: key, address }) = remote {
            target = self.emtt.translate(accessor, key, address, length, Right::RemoteWrite).ok();
            let allowed =
                self.pair.allows(Access::REMOTE_WRITE) && (length == 0 || target.is_some());
            if allowed && length > 0 {
                self.grant_lease(key);
            }
            (!allowed).then_some(Refusal::Access)
        } else {
            (length > 0).then_some(Refusal::InvalidRequest)
        };
        (refusal.map_or(Intake::Place, Intake::Refuse), None, target)
    }

    /// Checks whether a receive request for a SEND of `length` bytes is available; takes it if the queue is shared.
    fn admit_send(&mut self, number: u64, length: u32) -> (Intake, Option<Receive>) {
        let pair = &*self.pair;
        let Some(srq) = pair.request.srq else {
            let refusal = match pair.receive.numbered(number) {
                // Without a reliable count, the receive request is determined in the message's turn.
                _ if !pair.is_reliable() => None,
                None => Some(Refusal::NotReady),
                Some(receive) if receive.room() < length.into() => Some(Refusal::TooLong),
                Some(_) => None,
            };
            return (refusal.map_or(Intake::Place, Intake::Refuse), None);
        };
        let taken = self.srqs.get_mut(srq.0).and_then(|queue| queue.take());
        let Some((receive, low)) = taken else { return (Intake::Refuse(Refusal::NotReady), None) };
        if low {
            self.completing.events.push_back(Event::SrqLimitReached { srq });
        }
        let fits = receive.room() >= length.into();
        let intake = if fits { Intake::Place } else { Intake::Refuse(Refusal::TooLong) };
        (intake, Some(receive))
    }

    /// Finds the places of a part of a message, and stores them in `self.places`.
    pub(super) fn locate(&mut self, role: Role, incoming: &Piece<'_>) -> Result<(), Refusal> {
        let Piece { psn, destination, receive, offset, len } = *incoming;
        self.places.clear();
        if len == 0 {
            return Ok(());
        }
        let accessor = self.accessor();
        let (piece, places) = ((offset, u32::from(len)), &mut *self.places);
        if role == Role::Requester {
            return locate_answer(
                self.emtt,
                accessor,
                &mut self.pair.send,
                psn.get(),
                piece,
                places,
            );
        }
        let number = match destination {
            Destination::Receive { number } => number,
            Destination::Remote(RdmaRemote { address, rkey }) => {
                let address = address.wrapping_add(offset.into());
                let right = Right::RemoteWrite;
                let place = self.emtt.translate(accessor, rkey, address, len.into(), right);
                places.push(place.map_err(|_| Refusal::Access)?);
                return Ok(());
            }
            // The payload was refused when the message began.
            Destination::Request | Destination::Nowhere => return Err(Refusal::InvalidRequest),
        };
        let own = || self.pair.own_receive(number);
        let receive = receive.or_else(own).ok_or(Refusal::NotReady)?;
        scatter(self.emtt, accessor, &receive.sges, piece, Right::LocalWrite, places)
            .map_err(|_| Refusal::LocalProtection)
    }

    /// Places or holds a packet's payload. Returns `None` if the packet violates the protocol, or the payload is lost.
    pub(super) fn put_payload(
        &mut self,
        role: Role,
        placement: &Placement,
        destination: Destination,
        memory: &mut impl Memory,
    ) -> Option<Put> {
        let Placement { message, offset, len, length, .. } = *placement;
        let flow = self.pair.flow(role)?;
        let first = flow.inbox.ahead_of(message) == 0;
        let incoming = flow.inbox.message(message);
        let completes = incoming.completes(len);
        if !incoming.note(len) {
            return None;
        }
        let (header, intake) = (incoming.header, incoming.intake);
        if intake != Intake::Place {
            return Some(Put::handled(first && completes));
        }
        if self.waits_for_turn(destination) {
            if !first {
                return self.hold_payload(role, placement, false, memory);
            }
            let incoming = self.pair.flow(role)?.inbox.message(message);
            let held = core::mem::take(&mut incoming.held);
            let placed = self.place_waiting(&header, destination, length, held, memory);
            if let Err(refusal) = placed {
                let incoming = self.pair.flow(role)?.inbox.message(message);
                incoming.intake = Intake::Refuse(refusal);
                return Some(Put::handled(completes));
            }
        }
        let last = offset + u32::from(len) == length;
        if destination.is_remote() && last && len > 0 {
            // In a relaxed region only the message's own bytes must be placed before its last one.
            let in_order = completes && (first || self.emtt.is_relaxed(header.key));
            if !in_order {
                return self.hold_payload(role, placement, first && completes, memory);
            }
        }
        let receive = self.pair.flow(role)?.inbox.message(message).receive.take();
        let piece = Piece { psn: header.psn, destination, receive: receive.as_ref(), offset, len };
        let located = self.locate(role, &piece);
        let incoming = self.pair.flow(role)?.inbox.message(message);
        incoming.receive = receive;
        match located {
            Ok(()) => {
                self.lay_out(role, message, destination);
                let mut parts = self.parts.iter();
                parts.try_for_each(|&(place, from)| memory.place(place, from)).ok()?;
                if destination.is_remote() && !first {
                    self.pair.flow(role)?.inbox.note_early(message, offset, len);
                }
            }
            Err(refusal) => incoming.intake = Intake::Refuse(refusal),
        }
        if completes && self.emtt.is_relaxed(header.key) {
            self.place_held(role, message, memory);
        }
        Some(Put::handled(first && completes))
    }

    /// Splits the payload over `self.places`, and stores the parts in `self.parts`.
    pub(super) fn lay_out(&mut self, role: Role, message: u32, destination: Destination) {
        self.parts.clear();
        let mut from = 0;
        for &place in &*self.places {
            self.parts.push((place, from));
            from += u16::try_from(place.len).expect("a part of a packet");
        }
        let flow = self.pair.flow(role);
        if let Some(flow) = flow.filter(|_| destination.is_remote()) {
            flow.inbox.cut_newer(message, self.parts);
        }
    }
}
