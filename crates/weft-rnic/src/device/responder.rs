//! The responder half of a queue pair: payload is placed on arrival, requests are executed in order.

use weft_transport::Placement;
use weft_units::Instant;
use weft_wire::RdmaHeader;

use super::Device;
use super::intake::{Destination, Put};
use super::queue_pairs::failed;
use super::receiver::Receiver;
use crate::completion::{Status, WorkKind};
use crate::memory::Memory;
use crate::queue_pair::{Incoming, Intake, QueuePair, Refusal, Role, State, Syndrome, after};
use crate::receive_queue::Receive;
use crate::{Event, QueuePairNumber};

/// The result of handling a packet.
enum Received {
    /// Messages of the inbox may be next.
    Next,
    /// Its message was executed, and the inbox has none.
    Executed,
    /// Its message was handled, with an outcome other than `Done`.
    Ended(Incoming, Outcome),
    /// Other packets must arrive first.
    Waits,
    /// The limit of held bytes is reached: the packet is to be retransmitted.
    Declined,
}

/// The result of a request in its turn.
pub(super) enum Outcome {
    Done,
    /// It was executed, and its completion was lost.
    Overran,
    /// It was sent before the requester knew that an earlier one was refused; it will be retransmitted.
    Stale,
    /// It is refused, and the peer gets the reason.
    Refused(Refusal),
    /// It is dropped: the service has no acknowledgements (UC).
    Dropped(Refusal),
    /// Its PSN is not the expected one: the two queue pairs were configured with different first PSNs.
    WrongPsn,
}

impl Device {
    /// Handles a packet that carries payload, or a message without any.
    pub(super) fn ingest(
        &mut self,
        now: Instant,
        placement: &Placement,
        header: &RdmaHeader,
        memory: &mut impl Memory,
    ) {
        let Placement { connection, psn, .. } = *placement;
        if self.carries_datagrams(connection) {
            return self.handle_datagram_packet(now, placement, header, memory);
        }
        let qp = QueuePairNumber(header.destination_qp.get());
        let receiver = self.receiver(qp);
        let found = receiver.and_then(|receiver| Some((receiver.role(connection)?, receiver)));
        let Some((role, mut receiver)) = found else {
            return self.carriers.close(now, connection);
        };
        if receiver.is_over(role) {
            return;
        }
        let mut gate = Some(psn);
        match receiver.handle_packet(now, role, placement, header, memory) {
            Some(Received::Executed | Received::Waits) => {}
            Some(Received::Next) => self.handle_messages(now, qp, role, &mut gate, memory),
            Some(Received::Ended(mut incoming, outcome)) => {
                self.handle_outcome(now, qp, &mut incoming, outcome, &mut gate);
                self.handle_messages(now, qp, role, &mut gate, memory);
            }
            Some(Received::Declined) => return self.carriers.decline(connection, psn),
            None => return self.carriers.close(now, connection),
        }
        if let Some(psn) = gate {
            let _ = self.carriers.placed(now, connection, psn);
        }
    }

    /// Handles the messages of the inbox whose turn has come. The packet that completed the first of them is the `gate`: the
    /// peer considers none of them accepted before that packet is acknowledged, so its acknowledgement is withheld if one is
    /// refused.
    fn handle_messages(
        &mut self,
        now: Instant,
        qp: QueuePairNumber,
        role: Role,
        gate: &mut Option<u32>,
        memory: &mut impl Memory,
    ) {
        while let Some(mut receiver) = self.receiver(qp)
            && !receiver.is_over(role)
            && let Some(mut incoming) = receiver.next_whole(role)
        {
            match role {
                Role::Requester => self.handle_answer(now, qp, &incoming, memory),
                Role::Responder => match receiver.handle_request(now, &mut incoming, memory) {
                    Outcome::Done => {}
                    outcome => self.handle_outcome(now, qp, &mut incoming, outcome, gate),
                },
            }
        }
    }

    /// Handles a request that was not executed, or whose completion was lost.
    fn handle_outcome(
        &mut self,
        now: Instant,
        qp: QueuePairNumber,
        incoming: &mut Incoming,
        outcome: Outcome,
        gate: &mut Option<u32>,
    ) {
        match outcome {
            Outcome::Done => {}
            Outcome::Overran => self.fail_overrun(now, qp),
            Outcome::Stale => self.put_back(qp, incoming),
            Outcome::Refused(refusal) => self.refuse(now, qp, incoming, refusal, gate.take()),
            Outcome::Dropped(refusal) => self.drop_message(now, qp, incoming, refusal),
            Outcome::WrongPsn => {
                // The request is not acknowledged, so the peer's retries run out.
                *gate = None;
                self.put_back(qp, incoming);
                self.end_flow(now, qp, Role::Responder);
            }
        }
    }

    /// Drops a message of a service without acknowledgements (UC).
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

    /// Puts a queue pair whose completion was lost in error.
    pub(super) fn fail_overrun(&mut self, now: Instant, qp: QueuePairNumber) {
        self.events.push_back(Event::QpFatal { qp });
        self.fail_qp(now, qp);
    }

    /// Puts a queue pair in error if a completion of a receive request was lost.
    pub(super) fn fail_if_overrun(&mut self, now: Instant, qp: QueuePairNumber) {
        if self.receiver(qp).is_some_and(|receiver| receiver.overran()) {
            self.fail_overrun(now, qp);
        }
    }

    /// Returns a receive request that a message took from a shared queue to it.
    fn put_back(&mut self, qp: QueuePairNumber, incoming: &mut Incoming) {
        if let Some(mut receiver) = self.receiver(qp) {
            receiver.put_back(incoming);
        }
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

    /// Refuses a request with an acknowledgement. Unless only a receive request is missing, the queue pair fails.
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

    /// Puts a queue pair in error because of a peer's message.
    fn fail_responder(
        &mut self,
        now: Instant,
        qp: QueuePairNumber,
        incoming: &mut Incoming,
        refusal: Refusal,
    ) {
        if Destination::of(&incoming.operation).is_receive() {
            self.fail_receive(qp, incoming, refusal);
        }
        self.put_back(qp, incoming);
        let access = refusal == Refusal::Access;
        let event = if access { Event::QpAccessError { qp } } else { Event::QpRequestError { qp } };
        self.events.push_back(event);
        self.fail_qp(now, qp);
    }

    /// Completes the receive request of a failed SEND with the matching status.
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

impl Receiver<'_> {
    /// Handles a packet of a message. Returns `None` if the packet violates the protocol, or its payload is lost.
    #[inline]
    fn handle_packet(
        &mut self,
        now: Instant,
        role: Role,
        placement: &Placement,
        header: &RdmaHeader,
        memory: &mut impl Memory,
    ) -> Option<Received> {
        if self.is_whole_and_next(role, placement) {
            return self.handle_whole(now, placement, header, memory);
        }
        let destination = self.begin_message(role, placement, header)?;
        Some(match self.put_payload(role, placement, destination, memory)? {
            Put::Next => Received::Next,
            Put::Waits => Received::Waits,
            Put::Declined => Received::Declined,
        })
    }

    /// Handles a request of one packet that is the next message: no part of it waits, so it gets no entry in the inbox. Returns
    /// `None` as [`handle_packet`](Self::handle_packet) does.
    #[inline]
    fn handle_whole(
        &mut self,
        now: Instant,
        placement: &Placement,
        header: &RdmaHeader,
        memory: &mut impl Memory,
    ) -> Option<Received> {
        let mut incoming = self.begin_request(placement, header)?;
        if incoming.intake == Intake::Place
            && self.place_whole(placement.message, &mut incoming, memory).is_none()
        {
            self.put_back(&mut incoming);
            return None;
        }
        let inbox = &mut self.pair.responder.flow.as_mut()?.inbox;
        inbox.pass_first();
        let others = inbox.has_begun();
        Some(match self.handle_request(now, &mut incoming, memory) {
            Outcome::Done if others => Received::Next,
            Outcome::Done => Received::Executed,
            outcome => Received::Ended(incoming, outcome),
        })
    }

    /// Takes the first message of the inbox, if it is complete.
    fn next_whole(&mut self, role: Role) -> Option<Incoming> {
        self.pair.flow(role)?.inbox.pop_whole()
    }

    /// Executes a request in its turn.
    fn handle_request(
        &mut self,
        now: Instant,
        incoming: &mut Incoming,
        memory: &mut impl Memory,
    ) -> Outcome {
        let qp = self.qp;
        if self.pair.state == State::ReadyToReceive
            && self.pair.responder.expected == first_psn(self.pair)
        {
            self.completing.events.push_back(Event::CommunicationEstablished { qp });
        }
        let outcome = self.execute_in_order(now, incoming, memory);
        for part in core::mem::take(&mut incoming.held) {
            self.holding.release(part, memory);
        }
        if matches!(outcome, Outcome::Done | Outcome::Dropped(_)) {
            self.pair.responder.expected = after(self.pair.responder.expected);
        }
        if matches!(outcome, Outcome::Done) && self.overran() { Outcome::Overran } else { outcome }
    }

    /// Returns `true` if a completion of a receive request was lost.
    fn overran(&self) -> bool {
        let cq = self.completing.cqs.get(self.pair.request.receive_cq.0);
        cq.is_some_and(|cq| cq.completions.overran())
    }

    /// Returns a receive request that a message took from a shared queue to it.
    fn put_back(&mut self, incoming: &mut Incoming) {
        if let Some(srq) = self.pair.request.srq
            && let Some(receive) = incoming.receive.take()
            && let Some(queue) = self.srqs.get_mut(srq.0)
        {
            queue.queue.put_back(receive);
        }
    }
}

/// Returns the PSN of the first request on the queue pair.
fn first_psn(pair: &QueuePair) -> u32 {
    pair.attributes.rq_psn.unwrap_or(0)
}
