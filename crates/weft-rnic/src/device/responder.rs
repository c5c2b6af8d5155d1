//! The half of a queue pair that answers: payload is placed when it arrives, requests are carried out
//! in order.

use weft_transport::Placement;
use weft_units::Instant;
use weft_wire::{MissingOperands, RdmaHeader, RdmaOperation, SendExtension};

use super::Device;
use super::intake::{Destination, Put};
use super::queue_pairs::failed;
use crate::completion::{Completion, Extra, Status, WorkKind};
use crate::memory::{Accessor, Memory};
use crate::queue_pair::{Incoming, Intake, QueuePair, Refusal, Role, State, Syndrome, after};
use crate::receive_queue::Receive;
use crate::{Event, QueuePairNumber};

/// What became of a message in its turn.
enum Turn {
    Done,
    /// Sent before the requester heard that an earlier one was refused; it will come again.
    Stale,
    Refused(Refusal),
    /// Numbered otherwise than agreed: the queue pairs were not set up for each other.
    OutOfStep,
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
        if self.carries_datagrams(connection) {
            return self.take_datagram(now, placement, header, memory);
        }
        let Some((qp, role)) = self.whose(placement, header) else {
            return self.carriers.close(now, connection);
        };
        if self.is_over(qp, role) {
            return;
        }
        let mut gate = Some(placement.psn);
        let taken = if self.is_whole_and_next(qp, role, placement) {
            self.take_at_once(now, qp, placement, header, &mut gate, memory)
        } else {
            self.take_piece(now, (qp, role), placement, header, &mut gate, memory)
        };
        if taken.is_none() {
            return self.carriers.close(now, connection);
        }
        if let Some(psn) = gate {
            let _ = self.carriers.placed(now, connection, psn);
        }
    }

    /// Takes in a packet of a message that others belong to, or that others go before. `None` for nonsense, and
    /// where the payload is lost.
    fn take_piece(
        &mut self,
        now: Instant,
        (qp, role): (QueuePairNumber, Role),
        placement: &Placement,
        header: &RdmaHeader,
        gate: &mut Option<u32>,
        memory: &mut impl Memory,
    ) -> Option<()> {
        let destination = self.begin_message(qp, role, placement, header)?;
        match self.put_payload(qp, role, placement, destination, memory)? {
            Put::Next => self.take_turns(now, qp, role, gate, memory),
            Put::Waits => {}
            Put::Declined => {
                *gate = None;
                self.carriers.decline(placement.connection, placement.psn);
            }
        }
        Some(())
    }

    /// Takes in a request that is one packet, and whose turn has come with it: nothing of it waits, so it need not
    /// be entered. `None` as above.
    fn take_at_once(
        &mut self,
        now: Instant,
        qp: QueuePairNumber,
        placement: &Placement,
        header: &RdmaHeader,
        gate: &mut Option<u32>,
        memory: &mut impl Memory,
    ) -> Option<()> {
        let mut incoming = self.begin_request(qp, placement, header)?;
        if incoming.intake == Intake::Place
            && self.place_whole(qp, placement.message, &mut incoming, memory).is_none()
        {
            self.put_back(qp, &mut incoming);
            return None;
        }
        self.qps.get_mut(qp.0)?.responder.flow.as_mut()?.inbox.pass_first();
        self.take_request(now, qp, &mut incoming, gate, memory);
        let flow = self.qps.get(qp.0).and_then(|pair| pair.responder.flow.as_ref());
        if flow.is_some_and(|flow| flow.inbox.has_begun()) {
            self.take_turns(now, qp, Role::Responder, gate, memory);
        }
        Some(())
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
        for part in core::mem::take(&mut incoming.held) {
            self.let_go(part, memory);
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
            Turn::Refused(refusal) => self.drop_message(now, qp, incoming, refusal),
            Turn::OutOfStep => {
                // Nothing of it is acknowledged: the peer gives up in time.
                *gate = None;
                self.put_back(qp, incoming);
                self.end_flow(now, qp, Role::Responder);
            }
            Turn::Done => self.fail_if_overrun(now, qp),
        }
    }

    /// Drops a message of a service that does not tell (UC).
    fn drop_message(
        &mut self,
        now: Instant,
        qp: QueuePairNumber,
        incoming: &mut Incoming,
        refusal: Refusal,
    ) {
        match refusal {
            Refusal::TooLong | Refusal::LocalProtection => {
                self.fail_responder(now, qp, incoming, refusal);
            }
            Refusal::NotReady | Refusal::InvalidRequest | Refusal::Access => {
                self.put_back(qp, incoming);
            }
        }
    }

    /// A completion was lost: the queue pair cannot go on.
    pub(super) fn fail_if_overrun(&mut self, now: Instant, qp: QueuePairNumber) {
        let cq = self.qps.get(qp.0).map(|pair| pair.request.receive_cq);
        if cq.and_then(|cq| self.cqs.get(cq.0)).is_some_and(|cq| cq.completions.overran()) {
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
            let rewinds = pair.responder.rewinds;
            return if rewinds { Turn::Stale } else { Turn::OutOfStep };
        }
        pair.responder.rewinds = false;
        if let Intake::Refuse(refusal) = incoming.intake {
            return Turn::Refused(refusal);
        }
        match self.execute(now, qp, incoming, memory) {
            Ok(()) => Turn::Done,
            Err(refusal) => Turn::Refused(refusal),
        }
    }

    /// Executes a request.
    fn execute(
        &mut self,
        now: Instant,
        qp: QueuePairNumber,
        incoming: &mut Incoming,
        memory: &mut impl Memory,
    ) -> Result<(), Refusal> {
        let psn = incoming.header.psn;
        match incoming.operation() {
            Ok(RdmaOperation::Send { receive, extension }) => {
                self.receive_send(qp, incoming, receive, extension, memory)
            }
            Ok(RdmaOperation::Write { immediate, .. }) => {
                self.finish_write(qp, incoming, immediate, memory)
            }
            Ok(RdmaOperation::Read { remote, length }) => {
                self.answer_read(now, qp, psn, remote, length)
            }
            Ok(RdmaOperation::Atomic { remote, operation }) => {
                self.answer_atomic(now, qp, psn, remote, operation, memory)
            }
            Ok(
                RdmaOperation::Datagram { .. }
                | RdmaOperation::ReadResponse
                | RdmaOperation::AtomicAcknowledge { .. }
                | RdmaOperation::Acknowledge { .. },
            )
            | Err(MissingOperands) => Err(Refusal::InvalidRequest),
        }
    }

    fn receive_send(
        &mut self,
        qp: QueuePairNumber,
        incoming: &mut Incoming,
        number: u64,
        extension: SendExtension,
        memory: &mut impl Memory,
    ) -> Result<(), Refusal> {
        let Incoming { header, length, .. } = *incoming;
        let pair = self.qps.get_mut(qp.0).expect("the caller found it");
        let who = Accessor { domain: pair.request.domain, qp: qp.0 };
        let numbered = pair.is_reliable() && pair.request.srq.is_none();
        if numbered && number != pair.receive.head() {
            return Err(Refusal::InvalidRequest);
        }
        if pair.drops_messages() {
            let held = core::mem::take(&mut incoming.held);
            self.place_waiting(qp, &header, Destination::Receive { number }, length, held, memory)?;
        }
        let extra = match extension {
            SendExtension::None => None,
            SendExtension::Immediate(word) => Some(Extra::Immediate(word)),
            SendExtension::Invalidate(key) => {
                self.emtt.invalidate(who, key).map_err(|_| Refusal::Access)?;
                Some(Extra::Invalidated(key))
            }
        };
        let pair = self.qps.get_mut(qp.0).expect("the caller found it");
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
        let source = None;
        self.complete(cq, Completion { wr_id, status, kind, length, extra, qp, source, solicited });
    }

    fn finish_write(
        &mut self,
        qp: QueuePairNumber,
        incoming: &mut Incoming,
        immediate: Option<u32>,
        memory: &mut impl Memory,
    ) -> Result<(), Refusal> {
        let Incoming { header, length, .. } = *incoming;
        let pair = self.qps.get_mut(qp.0).expect("the caller found it");
        let srq = pair.request.srq;
        let available = match srq {
            Some(srq) => self.srqs.get(srq.0).map_or(0, |queue| queue.queue.len()),
            None => pair.receive.len(),
        };
        if immediate.is_some() && available == 0 {
            return Err(Refusal::NotReady);
        }
        if let Some(part) = incoming.held.pop() {
            let flow = self.qps.get(qp.0).and_then(|pair| pair.responder.flow.as_ref());
            let message = flow.expect("its turn came on it").inbox.last_taken();
            let destination = Destination::of(&incoming.operation());
            self.release(qp, message, &header, destination, part, memory)?;
        }
        if let Some(word) = immediate {
            let receive = self.take_receive(qp).ok_or(Refusal::NotReady)?;
            let (kind, extra) = (WorkKind::ReceiveWriteWithImmediate, Some(Extra::Immediate(word)));
            self.complete_receive(qp, &receive, kind, length, extra, header.solicited);
        }
        Ok(())
    }

    /// Takes the next receive request, shared or not.
    pub(super) fn take_receive(&mut self, qp: QueuePairNumber) -> Option<Receive> {
        let pair = self.qps.get_mut(qp.0)?;
        let Some(srq) = pair.request.srq else { return pair.receive.take() };
        let (receive, low) = self.srqs.get_mut(srq.0)?.take()?;
        if low {
            self.events.push_back(Event::SrqLimitReached { srq });
        }
        Some(receive)
    }

    /// Undoes [`take_receive`](Self::take_receive).
    pub(super) fn put_receive_back(&mut self, qp: QueuePairNumber, receive: Receive) {
        let Some(pair) = self.qps.get_mut(qp.0) else { return };
        match pair.request.srq.map(|srq| self.srqs.get_mut(srq.0)) {
            None => pair.receive.put_back(receive),
            Some(Some(srq)) => srq.queue.put_back(receive),
            Some(None) => {}
        }
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
        pair.responder.rewinds = refusal == Refusal::NotReady;
        self.acknowledge(now, qp, psn, syndrome, gate);
        if refusal == Refusal::NotReady {
            return self.put_back(qp, incoming);
        }
        self.fail_responder(now, qp, incoming, refusal);
    }

    /// Puts a queue pair in error for what a peer's message did to it.
    fn fail_responder(
        &mut self,
        now: Instant,
        qp: QueuePairNumber,
        incoming: &mut Incoming,
        refusal: Refusal,
    ) {
        if Destination::of(&incoming.operation()).is_receive() {
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
            self.complete(cq, failed(qp, receive.wr_id, status, WorkKind::Receive));
        }
    }
}

/// The PSN of the first request ever.
fn first_psn(pair: &QueuePair) -> u32 {
    pair.attributes.rq_psn.unwrap_or(0)
}
