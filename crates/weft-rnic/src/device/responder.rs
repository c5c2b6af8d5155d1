//! The half of a queue pair that answers: payload is placed when it arrives, requests are carried out
//! in order.

use weft_transport::{Message, Placement};
use weft_units::Instant;
use weft_wire::{RdmaHeader, RdmaOperation};

use super::Device;
use super::queue_pairs::failed;
use super::requester::{locate_answer, scatter};
use crate::completion::{Completion, Extra, Status, WorkKind};
use crate::memory::{Access, Accessor, Held, Memory, Place, Right};
use crate::queue_pair::{
    ATOMIC, Answer, HeldPart, Incoming, Intake, QueuePair, Refusal, Role, State, Syndrome, Token,
    after,
};
use crate::receive_queue::Receive;
use crate::{Event, QueuePairNumber};

/// Answers under way on one queue pair at most. The requester's own limit is lower; what it knows to be
/// answered may still wait to be acknowledged here, so that limit cannot be held to the number.
const MOST_ANSWERS: usize = 1024;

/// What became of a message in its turn.
enum Turn {
    Done,
    /// Sent before the requester heard that an earlier one was refused; it will come again.
    Stale,
    Refused(Refusal),
}

const fn is_send(operation: RdmaOperation) -> bool {
    matches!(
        operation,
        RdmaOperation::RcSend
            | RdmaOperation::RcSendWithImmediate
            | RdmaOperation::RcSendWithInvalidate
            | RdmaOperation::UcSend
            | RdmaOperation::UcSendWithImmediate
    )
}

const fn is_write(operation: RdmaOperation) -> bool {
    is_write_with_immediate(operation)
        || matches!(operation, RdmaOperation::RcWrite | RdmaOperation::UcWrite)
}

const fn is_write_with_immediate(operation: RdmaOperation) -> bool {
    matches!(operation, RdmaOperation::RcWriteWithImmediate | RdmaOperation::UcWriteWithImmediate)
}

impl Device {
    /// Takes in a packet that carries payload, or a message without any.
    pub(super) fn take_in(
        &mut self,
        now: Instant,
        placement: &Placement,
        header: &RdmaHeader,
        memory: &mut impl Memory,
    ) {
        let connection = placement.connection;
        let Some((qp, role)) = self.whose(placement, header) else {
            return self.endpoint.close(now, connection);
        };
        if self.is_over(qp, role) {
            return;
        }
        let Some(operation) = self.begin_message(qp, role, placement, header) else {
            return self.endpoint.close(now, connection);
        };
        let Some(is_turn) = self.put_payload(qp, role, placement, operation, memory) else {
            return self.endpoint.close(now, connection);
        };
        let mut gate = Some(placement.psn);
        if is_turn {
            self.take_turns(now, qp, role, &mut gate, memory);
        }
        if let Some(psn) = gate {
            let _ = self.endpoint.placed(now, connection, psn);
        }
    }

    /// The queue pair a packet is for, if it came on its connection.
    fn whose(&self, placement: &Placement, header: &RdmaHeader) -> Option<(QueuePairNumber, Role)> {
        let qp = QueuePairNumber(header.destination_qp.get());
        let pair = self.qps.get(qp.0)?;
        let came_on = |flow: &Option<crate::queue_pair::Flow>| {
            flow.as_ref().is_some_and(|flow| flow.connection == placement.connection)
        };
        if came_on(&pair.responder.flow) {
            Some((qp, Role::Responder))
        } else if came_on(&pair.requester.flow) {
            Some((qp, Role::Requester))
        } else {
            None
        }
    }

    /// Whether the queue pair answers nothing more, and only its last words are on their way.
    fn is_over(&self, qp: QueuePairNumber, role: Role) -> bool {
        let closing = |pair: &QueuePair| pair.responder.closing || !pair.receives();
        role == Role::Responder && self.qps.get(qp.0).is_none_or(closing)
    }

    /// Enters the message a packet is part of, unless it is known; `None` for nonsense.
    fn begin_message(
        &mut self,
        qp: QueuePairNumber,
        role: Role,
        placement: &Placement,
        header: &RdmaHeader,
    ) -> Option<RdmaOperation> {
        let operation = RdmaOperation::from_number(placement.opcode)?;
        let pair = self.qps.get_mut(qp.0)?;
        let known = pair.flow(role)?.inbox.knows(placement, header);
        if known.ok()? {
            return Some(operation);
        }
        let (intake, receive, target) = match role {
            Role::Requester => {
                (Self::expects(pair, header, operation, placement.length), None, None)
            }
            Role::Responder => {
                if !super::requester::is_request(operation, pair.request.service) {
                    return None;
                }
                self.admit(qp, header, operation, placement.length)
            }
        };
        let incoming =
            Incoming::new(*header, operation, placement.length, intake, receive).into(target);
        self.qps.get_mut(qp.0)?.flow(role)?.inbox.begin(placement.message, incoming);
        Some(operation)
    }

    /// Whether a request's payload may be placed; the receive request it takes from a shared queue, or
    /// where it goes.
    fn admit(
        &mut self,
        qp: QueuePairNumber,
        header: &RdmaHeader,
        operation: RdmaOperation,
        length: u32,
    ) -> (Intake, Option<Receive>, Option<Place>) {
        if is_send(operation) {
            let (intake, receive) = self.admit_send(qp, header, length);
            return (intake, receive, None);
        }
        let Some(pair) = self.qps.get_mut(qp.0) else {
            return (Intake::Refuse(Refusal::InvalidRequest), None, None);
        };
        let mut target = None;
        let who = Accessor { domain: pair.request.domain, qp: qp.0 };
        let refusal = if length > self.limits.message_bytes {
            Some(Refusal::InvalidRequest)
        } else if is_write(operation) {
            let (key, address) = (header.key, header.address);
            target = self.emtt.translate(who, key, address, length, Right::RemoteWrite).ok();
            let allowed = pair.allows(Access::REMOTE_WRITE) && (length == 0 || target.is_some());
            (!allowed).then_some(Refusal::Access)
        } else {
            (length > 0).then_some(Refusal::InvalidRequest)
        };
        (refusal.map_or(Intake::Place, Intake::Refuse), None, target)
    }

    fn admit_send(
        &mut self,
        qp: QueuePairNumber,
        header: &RdmaHeader,
        length: u32,
    ) -> (Intake, Option<Receive>) {
        let pair = self.qps.get_mut(qp.0).expect("the caller found it");
        let Some(srq) = pair.request.srq else {
            let number = pair.receive_number(header.address);
            let refusal = match number.and_then(|number| pair.receive.numbered(number)) {
                None => Some(Refusal::NotReady),
                Some(receive) if receive.room() < length.into() => Some(Refusal::TooLong),
                Some(_) => None,
            };
            return (refusal.map_or(Intake::Place, Intake::Refuse), None);
        };
        let taken = self.srqs.get_mut(srq.0).and_then(|queue| queue.take());
        let Some((receive, low)) = taken else { return (Intake::Refuse(Refusal::NotReady), None) };
        if low {
            self.events.push_back(Event::SrqLimitReached { srq });
        }
        let fits = receive.room() >= length.into();
        let intake = if fits { Intake::Place } else { Intake::Refuse(Refusal::TooLong) };
        (intake, Some(receive))
    }

    /// Finds where a piece of a message goes: into `self.places`.
    fn locate(
        &mut self,
        qp: QueuePairNumber,
        role: Role,
        incoming: &Piece<'_>,
    ) -> Result<(), Refusal> {
        let Piece { header, operation, receive, offset, len } = *incoming;
        self.places.clear();
        if len == 0 {
            return Ok(());
        }
        let pair = self.qps.get_mut(qp.0).ok_or(Refusal::InvalidRequest)?;
        let (piece, places) = ((offset, u32::from(len)), &mut self.places);
        if role == Role::Requester {
            return locate_answer(&self.emtt, qp, pair, header.psn.get(), piece, places);
        }
        let who = Accessor { domain: pair.request.domain, qp: qp.0 };
        if is_write(operation) {
            let address = header.address.wrapping_add(offset.into());
            let right = Right::RemoteWrite;
            let place = self.emtt.translate(who, header.key, address, len.into(), right);
            places.push(place.map_err(|_| Refusal::Access)?);
            return Ok(());
        }
        let own = || pair.receive.numbered(pair.receive_number(header.address)?);
        let receive = receive.or_else(own).ok_or(Refusal::NotReady)?;
        scatter(&self.emtt, who, &receive.sges, piece, Right::LocalWrite, places)
            .map_err(|_| Refusal::LocalProtection)
    }

    /// Places a packet's payload, or has it held; whether its message's turn has come with it. `None` for
    /// nonsense.
    fn put_payload(
        &mut self,
        qp: QueuePairNumber,
        role: Role,
        placement: &Placement,
        operation: RdmaOperation,
        memory: &mut impl Memory,
    ) -> Option<bool> {
        let Placement { connection, psn, message, offset, len, length, .. } = *placement;
        let flow = self.qps.get_mut(qp.0)?.flow(role)?;
        let first = flow.inbox.ahead_of(message) == 0;
        let incoming = flow.inbox.message(message);
        let completes = incoming.completes(len);
        if !incoming.note(len) {
            return None;
        }
        let (header, intake) = (incoming.header, incoming.intake);
        if intake != Intake::Place {
            return Some(first && completes);
        }
        let last = offset + u32::from(len) == length;
        if is_write(operation) && last && len > 0 {
            // Of a relaxed region only the message's own bytes must come before its last.
            let in_order = completes && (first || self.emtt.is_relaxed(header.key));
            if !in_order {
                let packet = Held { connection, psn };
                memory.hold(packet);
                let incoming = self.qps.get_mut(qp.0)?.flow(role)?.inbox.message(message);
                incoming.held = Some(HeldPart { packet, offset, len });
                return Some(first && completes);
            }
        }
        let receive = self.qps.get_mut(qp.0)?.flow(role)?.inbox.message(message).receive.take();
        let piece = Piece { header: &header, operation, receive: receive.as_ref(), offset, len };
        let located = self.locate(qp, role, &piece);
        let incoming = self.qps.get_mut(qp.0)?.flow(role)?.inbox.message(message);
        incoming.receive = receive;
        match located {
            Ok(()) => {
                self.lay_out(qp, role, message, operation);
                self.parts.iter().for_each(|&(place, from)| memory.place(place, from));
                if is_write(operation) && !first {
                    self.qps.get_mut(qp.0)?.flow(role)?.inbox.note_early(message, offset, len);
                }
            }
            Err(refusal) => incoming.intake = Intake::Refuse(refusal),
        }
        if completes && self.emtt.is_relaxed(header.key) {
            self.place_held(qp, role, message, memory);
        }
        Some(first && completes)
    }

    /// Which part of the payload goes to which of `self.places`: into `self.parts`.
    fn lay_out(&mut self, qp: QueuePairNumber, role: Role, message: u32, operation: RdmaOperation) {
        self.parts.clear();
        let mut from = 0;
        for &place in &self.places {
            self.parts.push((place, from));
            from += u16::try_from(place.len).expect("a part of a packet");
        }
        let flow = self.qps.get_mut(qp.0).and_then(|pair| pair.flow(role));
        if let Some(flow) = flow.filter(|_| is_write(operation)) {
            flow.inbox.cut_newer(message, &mut self.parts);
        }
    }

    /// Places what is held of a message in a relaxed region, whose other bytes have all come.
    fn place_held(
        &mut self,
        qp: QueuePairNumber,
        role: Role,
        message: u32,
        memory: &mut impl Memory,
    ) {
        let Some(flow) = self.qps.get_mut(qp.0).and_then(|pair| pair.flow(role)) else { return };
        let incoming = flow.inbox.message(message);
        let (header, operation) = (incoming.header, incoming.operation);
        let Some(part) = incoming.held.take() else { return };
        if let Err(refusal) = self.release(qp, message, &header, operation, part, memory) {
            let pair = self.qps.get_mut(qp.0).expect("found just now");
            let flow = pair.flow(role).expect("found just now");
            flow.inbox.message(message).intake = Intake::Refuse(refusal);
        }
    }

    /// Places a held part and lets its packet go.
    fn release(
        &mut self,
        qp: QueuePairNumber,
        message: u32,
        header: &RdmaHeader,
        operation: RdmaOperation,
        part: HeldPart,
        memory: &mut impl Memory,
    ) -> Result<(), Refusal> {
        let HeldPart { packet, offset, len } = part;
        let piece = Piece { header, operation, receive: None, offset, len };
        let located = self.locate(qp, Role::Responder, &piece);
        if located.is_ok() {
            self.lay_out(qp, Role::Responder, message, operation);
            self.parts.iter().for_each(|&(place, from)| memory.place_held(packet, place, from));
        }
        memory.release(packet);
        located
    }

    /// Carries out messages whose turn has come. The packet that made the first of them whole is the
    /// `gate`: the peer takes none of them for accepted before it is acknowledged, so it is kept back where
    /// one is refused.
    fn take_turns(
        &mut self,
        now: Instant,
        qp: QueuePairNumber,
        role: Role,
        gate: &mut Option<u32>,
        memory: &mut impl Memory,
    ) {
        while !self.is_over(qp, role)
            && let Some(flow) = self.qps.get_mut(qp.0).and_then(|pair| pair.flow(role))
        {
            let Some(mut incoming) = flow.inbox.pop_whole() else { break };
            match role {
                Role::Requester => self.take_answer(now, qp, &incoming, memory),
                Role::Responder => self.take_request(now, qp, &mut incoming, gate, memory),
            }
        }
    }

    /// A request's turn has come.
    fn take_request(
        &mut self,
        now: Instant,
        qp: QueuePairNumber,
        incoming: &mut Incoming,
        gate: &mut Option<u32>,
        memory: &mut impl Memory,
    ) {
        let Some(pair) = self.qps.get_mut(qp.0) else { return };
        if pair.state == State::ReadyToReceive && pair.responder.expected == first_psn(pair) {
            self.events.push_back(Event::CommunicationEstablished { qp });
        }
        let turn = self.carry_out(now, qp, incoming, memory);
        if let Some(part) = incoming.held.take() {
            memory.release(part.packet);
        }
        let Some(pair) = self.qps.get_mut(qp.0) else { return };
        let reliable = pair.is_reliable();
        if matches!(turn, Turn::Done) || matches!(turn, Turn::Refused(_)) && !reliable {
            pair.responder.expected = after(pair.responder.expected);
        }
        match turn {
            Turn::Stale => self.put_back(qp, incoming),
            Turn::Refused(refusal) if reliable => {
                self.refuse(now, qp, incoming, refusal, gate.take());
            }
            Turn::Refused(_) => self.drop_message(qp, incoming),
            Turn::Done => self.fail_if_overrun(now, qp),
        }
    }

    /// Forgets a message of a service that does not tell (UC).
    fn drop_message(&mut self, qp: QueuePairNumber, incoming: &mut Incoming) {
        self.put_back(qp, incoming);
        let Some(pair) = self.qps.get_mut(qp.0) else { return };
        let (operation, head) = (incoming.operation, pair.receive.head());
        let responder = &mut pair.responder;
        if is_send(operation) {
            let counted = incoming.header.address.wrapping_add(1);
            responder.skipped = match responder.skipped {
                Some(skipped) => Some(skipped + 1),
                None => counted.checked_sub(head),
            };
        } else if is_write_with_immediate(operation) {
            responder.skipped = responder.skipped.map(|skipped| skipped + 1);
        }
    }

    /// A completion was lost: the queue pair cannot go on.
    fn fail_if_overrun(&mut self, now: Instant, qp: QueuePairNumber) {
        let cq = self.qps.get(qp.0).map(|pair| pair.request.receive_cq);
        if cq.and_then(|cq| self.cqs.get(cq.0)).is_some_and(|cq| cq.overrun) {
            self.events.push_back(Event::QpFatal { qp });
            self.fail_qp(now, qp);
        }
    }

    /// What was taken from a shared queue for a message that is not carried out goes back.
    fn put_back(&mut self, qp: QueuePairNumber, incoming: &mut Incoming) {
        let srq = self.qps.get(qp.0).and_then(|pair| pair.request.srq);
        if let Some(srq) = srq
            && let Some(receive) = incoming.receive.take()
            && let Some(queue) = self.srqs.get_mut(srq.0)
        {
            queue.queue.put_back(receive);
        }
    }

    fn carry_out(
        &mut self,
        now: Instant,
        qp: QueuePairNumber,
        incoming: &mut Incoming,
        memory: &mut impl Memory,
    ) -> Turn {
        let Some(pair) = self.qps.get_mut(qp.0) else { return Turn::Stale };
        if !pair.is_reliable() {
            // Nothing is sent twice: what is missing was lost.
            pair.responder.expected = incoming.header.psn.get();
        } else if incoming.header.psn.get() != pair.responder.expected {
            return Turn::Stale;
        }
        if let Intake::Refuse(refusal) = incoming.intake {
            return Turn::Refused(refusal);
        }
        let operation = incoming.operation;
        let done = if is_send(operation) {
            self.receive_send(qp, incoming)
        } else if is_write(operation) {
            self.finish_write(qp, incoming, memory)
        } else if operation == RdmaOperation::RcReadRequest {
            self.answer_read(now, qp, &incoming.header)
        } else {
            self.answer_atomic(now, qp, incoming, memory)
        };
        match done {
            Ok(()) => Turn::Done,
            Err(refusal) => Turn::Refused(refusal),
        }
    }

    fn receive_send(
        &mut self,
        qp: QueuePairNumber,
        incoming: &mut Incoming,
    ) -> Result<(), Refusal> {
        let Incoming { header, operation, length, .. } = *incoming;
        let pair = self.qps.get_mut(qp.0).expect("the caller found it");
        let who = Accessor { domain: pair.request.domain, qp: qp.0 };
        let number = pair.receive_number(header.address);
        if pair.request.srq.is_none() && number != Some(pair.receive.head()) {
            return Err(Refusal::InvalidRequest);
        }
        let extra = match operation {
            RdmaOperation::RcSendWithInvalidate => {
                let gone = self.emtt.invalidate(who, header.immediate);
                gone.map_err(|_| Refusal::Access)?;
                Some(Extra::Invalidated(header.immediate))
            }
            RdmaOperation::RcSendWithImmediate | RdmaOperation::UcSendWithImmediate => {
                Some(Extra::Immediate(header.immediate))
            }
            _ => None,
        };
        let receive = incoming.receive.take().or_else(|| pair.receive.take());
        let receive = receive.ok_or(Refusal::NotReady)?;
        self.complete_receive(qp, &receive, WorkKind::Receive, length, extra, header.solicited);
        Ok(())
    }

    fn complete_receive(
        &mut self,
        qp: QueuePairNumber,
        receive: &Receive,
        kind: WorkKind,
        length: u32,
        extra: Option<Extra>,
        solicited: bool,
    ) {
        let cq = self.qps.get(qp.0).expect("the caller found it").request.receive_cq;
        let (wr_id, status) = (receive.wr_id, Status::Success);
        let completion = Completion { wr_id, status, kind, length, extra, qp, source: None };
        self.complete(cq, completion, solicited);
    }

    fn finish_write(
        &mut self,
        qp: QueuePairNumber,
        incoming: &mut Incoming,
        memory: &mut impl Memory,
    ) -> Result<(), Refusal> {
        let Incoming { header, operation, length, .. } = *incoming;
        let immediate = is_write_with_immediate(operation);
        let pair = self.qps.get_mut(qp.0).expect("the caller found it");
        let srq = pair.request.srq;
        let available = match srq {
            Some(srq) => self.srqs.get(srq.0).map_or(0, |queue| queue.queue.len()),
            None => pair.receive.len(),
        };
        if immediate && available == 0 {
            return Err(Refusal::NotReady);
        }
        if let Some(part) = incoming.held.take() {
            let flow = self.qps.get(qp.0).and_then(|pair| pair.responder.flow.as_ref());
            let message = flow.expect("its turn came on it").inbox.last_taken();
            self.release(qp, message, &header, operation, part, memory)?;
        }
        if immediate {
            let receive = self.take_receive(qp).ok_or(Refusal::NotReady)?;
            let (kind, extra) =
                (WorkKind::ReceiveWriteWithImmediate, Some(Extra::Immediate(header.immediate)));
            self.complete_receive(qp, &receive, kind, length, extra, header.solicited);
        }
        Ok(())
    }

    /// Takes the next receive request, shared or not.
    fn take_receive(&mut self, qp: QueuePairNumber) -> Option<Receive> {
        let pair = self.qps.get_mut(qp.0)?;
        let Some(srq) = pair.request.srq else { return pair.receive.take() };
        let (receive, low) = self.srqs.get_mut(srq.0)?.take()?;
        if low {
            self.events.push_back(Event::SrqLimitReached { srq });
        }
        Some(receive)
    }

    fn answer_read(
        &mut self,
        now: Instant,
        qp: QueuePairNumber,
        header: &RdmaHeader,
    ) -> Result<(), Refusal> {
        let RdmaHeader { key, address, immediate: length, .. } = *header;
        let pair = self.qps.get_mut(qp.0).expect("the caller found it");
        let who = Accessor { domain: pair.request.domain, qp: qp.0 };
        if length > self.limits.message_bytes {
            return Err(Refusal::InvalidRequest);
        }
        let place = self.emtt.translate(who, key, address, length, Right::RemoteRead);
        if !pair.allows(Access::REMOTE_READ) || length > 0 && place.is_err() {
            return Err(Refusal::Access);
        }
        let psn = header.psn.get();
        self.answer(now, qp, Answer::Read { psn, key, address }, length)
    }

    fn answer_atomic(
        &mut self,
        now: Instant,
        qp: QueuePairNumber,
        incoming: &Incoming,
        memory: &mut impl Memory,
    ) -> Result<(), Refusal> {
        let RdmaHeader { key, address, operands, psn, .. } = incoming.header;
        let pair = self.qps.get_mut(qp.0).expect("the caller found it");
        let who = Accessor { domain: pair.request.domain, qp: qp.0 };
        let operands = operands.ok_or(Refusal::InvalidRequest)?;
        if !address.is_multiple_of(ATOMIC.into()) {
            return Err(Refusal::InvalidRequest);
        }
        let place = self.emtt.translate(who, key, address, ATOMIC, Right::RemoteAtomic);
        let place = place.ok().filter(|_| pair.allows(Access::REMOTE_ATOMIC));
        let place = place.ok_or(Refusal::Access)?;
        if !has_room(pair) {
            return Err(Refusal::InvalidRequest);
        }
        let value = if incoming.operation == RdmaOperation::RcFetchAdd {
            memory.fetch_add(place, operands.swap_or_add)
        } else {
            memory.compare_swap(place, operands.compare, operands.swap_or_add)
        };
        self.answer(now, qp, Answer::Atomic { psn: psn.get(), value }, 0)
    }

    /// Sends an answer with data.
    fn answer(
        &mut self,
        now: Instant,
        qp: QueuePairNumber,
        answer: Answer,
        length: u32,
    ) -> Result<(), Refusal> {
        let pair = self.qps.get_mut(qp.0).expect("the caller found it");
        if !has_room(pair) {
            return Err(Refusal::InvalidRequest);
        }
        let responder = &mut pair.responder;
        let waiting = u32::try_from(responder.answers.len()).expect("at most the limit");
        let number = responder.first_answer.wrapping_add(waiting);
        responder.answers.push_back(answer);
        let connection = responder.flow.as_ref().expect("its turn came on it").connection;
        let opcode = match answer {
            Answer::Read { .. } => RdmaOperation::RcReadResponse,
            Answer::Atomic { .. } => RdmaOperation::RcAtomicAcknowledge,
        };
        let token = Token::Answer { qp, number }.pack();
        let message = Message { token, opcode: opcode as u8, length };
        self.endpoint.submit(now, connection, message).map_err(|_| Refusal::InvalidRequest)
    }

    /// Says why a request is refused; for good unless it is only too early.
    fn refuse(
        &mut self,
        now: Instant,
        qp: QueuePairNumber,
        incoming: &mut Incoming,
        refusal: Refusal,
        gate: Option<u32>,
    ) {
        let Some(pair) = self.qps.get_mut(qp.0) else { return };
        let timer = pair.attributes.min_rnr_timer.unwrap_or(0);
        let (psn, syndrome) = (incoming.header.psn.get(), Syndrome::of(refusal, timer));
        self.acknowledge(now, qp, psn, syndrome, gate);
        if refusal == Refusal::NotReady {
            return self.put_back(qp, incoming);
        }
        if is_send(incoming.operation) {
            self.fail_receive(qp, incoming, refusal);
        }
        self.put_back(qp, incoming);
        let access = refusal == Refusal::Access;
        let event = if access { Event::QpAccessError { qp } } else { Event::QpRequestError { qp } };
        self.events.push_back(event);
        self.fail_qp(now, qp);
    }

    /// The receive request that a SEND did not fit is completed so.
    fn fail_receive(&mut self, qp: QueuePairNumber, incoming: &mut Incoming, refusal: Refusal) {
        let status = match refusal {
            Refusal::TooLong => Status::LocalLength,
            Refusal::LocalProtection => Status::LocalProtection,
            _ => return,
        };
        let pair = self.qps.get_mut(qp.0).expect("the caller found it");
        let cq = pair.request.receive_cq;
        if let Some(receive) = incoming.receive.take().or_else(|| pair.receive.take()) {
            self.complete(cq, failed(qp, receive.wr_id, status, WorkKind::Receive), false);
        }
    }

    /// Sends an acknowledgement; `withheld` is acknowledged by the transport only after it has arrived, so
    /// that the peer hears the reason first.
    pub(super) fn acknowledge(
        &mut self,
        now: Instant,
        qp: QueuePairNumber,
        psn: u32,
        syndrome: Syndrome,
        withheld: Option<u32>,
    ) {
        let Some(pair) = self.qps.get_mut(qp.0) else { return };
        let Some(flow) = pair.responder.flow.as_ref() else { return };
        let connection = flow.connection;
        let token = Token::Acknowledge { qp, psn, syndrome }.pack();
        let opcode = RdmaOperation::RcAcknowledge as u8;
        let message = Message { token, opcode, length: 0 };
        if self.endpoint.submit(now, connection, message).is_ok() {
            pair.responder.acknowledgements.push_back(withheld);
        }
    }

    /// An answer or an acknowledgement has arrived.
    pub(super) fn on_answer_sent(&mut self, now: Instant, token: Token) {
        match token {
            Token::Answer { qp, .. } => {
                let Some(pair) = self.qps.get_mut(qp.0) else { return };
                pair.responder.answers.pop_front();
                pair.responder.first_answer = pair.responder.first_answer.wrapping_add(1);
            }
            Token::Acknowledge { qp, .. } => {
                let Some(pair) = self.qps.get_mut(qp.0) else { return };
                let Some(flow) = pair.responder.flow.as_ref() else { return };
                let connection = flow.connection;
                let withheld = pair.responder.acknowledgements.pop_front().flatten();
                let over = pair.responder.closing && pair.responder.acknowledgements.is_empty();
                if over {
                    return self.end_flow(now, qp, Role::Responder);
                }
                if let Some(psn) = withheld.filter(|_| !pair.responder.closing) {
                    let _ = self.endpoint.placed(now, connection, psn);
                }
            }
            Token::Request { .. } => {}
        }
    }
}

/// A piece of a message that arrived.
#[derive(Clone, Copy)]
struct Piece<'a> {
    header: &'a RdmaHeader,
    operation: RdmaOperation,
    /// The receive request it takes, if that is from a shared queue.
    receive: Option<&'a Receive>,
    offset: u32,
    len: u16,
}

fn has_room(pair: &QueuePair) -> bool {
    pair.attributes.max_dest_rd_atomic.unwrap_or(0) > 0
        && pair.responder.answers.len() < MOST_ANSWERS
}

/// The PSN of the first request ever.
fn first_psn(pair: &QueuePair) -> u32 {
    pair.attributes.rq_psn.unwrap_or(0)
}
