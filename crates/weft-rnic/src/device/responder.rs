//! The responder half of a queue pair: payload is placed on arrival, requests are executed in order.

use weft_transport::Placement;
use weft_units::Instant;
use weft_wire::RdmaHeader;

use super::Device;
use super::active::ActiveQp;
use super::intake::{Destination, Put};
use super::teardown::failed;
use crate::completion::{Status, WorkKind};
use crate::memory::Memory;
use crate::queue_pair::{Incoming, Intake, QueuePair, Refusal, Role, State, Syndrome, after};
use crate::receive_queue::Receive;
use crate::{Event, QueuePairNumber};

/// The result of handling a packet.
enum Received {
    /// Messages of the inbox may be next.
    Next,
    /// Other packets must arrive first.
    Waits,
    /// The limit of held bytes is reached: the packet is declined, and the peer retransmits it.
    Declined,
}

/// The result of a request in its turn.
pub(super) enum Outcome {
    /// The request was executed.
    Done,
    /// The request was executed, and its completion was lost.
    Overran,
    /// The request was sent before the requester received an RNR NAK for an earlier one; it will be retransmitted.
    Stale,
    /// The request is refused, and the peer is notified of the reason.
    Refused(Refusal),
    /// The request is dropped: the service has no acknowledgements (UC).
    Dropped(Refusal),
    /// The request's PSN is not the expected one: the two queue pairs were configured with different first PSNs.
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
        let active = self.active(QueuePairNumber(header.destination_qp.get()));
        let found = active.and_then(|active| Some((active.role(connection)?, active)));
        let Some((role, mut active)) = found else {
            return self.carriers.close(now, connection);
        };
        if active.is_over(role) {
            return;
        }
        let mut to_acknowledge = Some(psn);
        let received = if active.is_whole_and_next(role, placement) {
            active.handle_whole(now, placement, header, &mut to_acknowledge, memory)
        } else {
            active.handle_part(role, placement, header, memory)
        };
        match received {
            Some(Received::Next) => active.handle_messages(now, role, &mut to_acknowledge, memory),
            Some(Received::Waits) => {}
            Some(Received::Declined) => return self.carriers.decline(connection, psn),
            None => return self.carriers.close(now, connection),
        }
        if let Some(psn) = to_acknowledge {
            let _ = self.carriers.placed(now, connection, psn);
        }
    }
}

impl ActiveQp<'_> {
    /// Handles the complete messages at the head of the inbox. `to_acknowledge` is the PSN of the packet that completed
    /// the first of them. The peer considers none of them accepted before that packet is acknowledged, so it becomes
    /// `None` if one is refused.
    fn handle_messages(
        &mut self,
        now: Instant,
        role: Role,
        to_acknowledge: &mut Option<u32>,
        memory: &mut impl Memory,
    ) {
        while !self.is_over(role)
            && let Some(mut incoming) = self.next_whole(role)
        {
            match role {
                Role::Requester => self.handle_answer(now, &incoming, memory),
                Role::Responder => match self.handle_request(now, &mut incoming, memory) {
                    Outcome::Done => {}
                    outcome => self.handle_outcome(now, &mut incoming, outcome, to_acknowledge),
                },
            }
        }
    }

    /// Handles a request that was not executed, or whose completion was lost.
    fn handle_outcome(
        &mut self,
        now: Instant,
        incoming: &mut Incoming,
        outcome: Outcome,
        to_acknowledge: &mut Option<u32>,
    ) {
        match outcome {
            Outcome::Done => {}
            Outcome::Overran => self.fail_overrun(now),
            Outcome::Stale => self.put_back(incoming),
            Outcome::Refused(refusal) => self.refuse(now, incoming, refusal, to_acknowledge.take()),
            Outcome::Dropped(refusal) => self.drop_message(now, incoming, refusal),
            Outcome::WrongPsn => {
                // The request is not acknowledged, so the peer's retries run out.
                *to_acknowledge = None;
                self.put_back(incoming);
                self.end_flow(now, Role::Responder);
            }
        }
    }

    /// Drops a message of a service without acknowledgements (UC).
    fn drop_message(&mut self, now: Instant, incoming: &mut Incoming, refusal: Refusal) {
        match refusal {
            Refusal::TooLong | Refusal::LocalProtection => {
                self.fail_responder(now, incoming, refusal);
            }
            Refusal::NotReady | Refusal::InvalidRequest | Refusal::Access => {
                self.put_back(incoming);
            }
        }
    }

    /// Refuses a request with a NAK, after whose arrival the packet `withheld` is acknowledged. Unless only a receive
    /// request is missing, the queue pair fails.
    fn refuse(
        &mut self,
        now: Instant,
        incoming: &mut Incoming,
        refusal: Refusal,
        withheld: Option<u32>,
    ) {
        let timer = self.pair.attributes.min_rnr_timer.unwrap_or(0);
        let (psn, syndrome) = (incoming.header.psn.get(), Syndrome::of(refusal, timer));
        self.pair.responder.rewinds = refusal == Refusal::NotReady;
        self.acknowledge(now, psn, syndrome, withheld);
        if refusal == Refusal::NotReady {
            return self.put_back(incoming);
        }
        self.fail_responder(now, incoming, refusal);
    }

    /// Puts the queue pair in error because of a peer's message.
    fn fail_responder(&mut self, now: Instant, incoming: &mut Incoming, refusal: Refusal) {
        if Destination::of(&incoming.operation).is_receive() {
            self.fail_receive(incoming, refusal);
        }
        self.put_back(incoming);
        let (access, qp) = (refusal == Refusal::Access, self.qp);
        let event = if access { Event::QpAccessError { qp } } else { Event::QpRequestError { qp } };
        self.completing.events.push_back(event);
        self.fail(now);
    }

    /// Completes the receive request of a failed SEND with the matching status.
    fn fail_receive(&mut self, incoming: &mut Incoming, refusal: Refusal) {
        let status = match refusal {
            Refusal::TooLong => Status::LocalLength,
            Refusal::LocalProtection => Status::LocalProtection,
            _ => return,
        };
        let cq = self.pair.request.receive_cq;
        if let Some(receive) = incoming.receive.take().or_else(|| self.pair.receive.take()) {
            let failed = failed(self.qp, receive.wr_id, status, WorkKind::Receive);
            self.completing.complete(cq, failed);
        }
    }

    /// Puts the queue pair in error if a completion of a receive request was lost.
    pub(super) fn fail_if_overrun(&mut self, now: Instant) {
        if self.overran() {
            self.fail_overrun(now);
        }
    }

    /// Handles a packet of a message that has other packets, or that is not the next. Returns `None` if the packet
    /// violates the protocol, or its payload is lost.
    fn handle_part(
        &mut self,
        role: Role,
        placement: &Placement,
        header: &RdmaHeader,
        memory: &mut impl Memory,
    ) -> Option<Received> {
        let destination = self.begin_message(role, placement, header)?;
        Some(match self.put_payload(role, placement, destination, memory)? {
            Put::Next => Received::Next,
            Put::Waits => Received::Waits,
            Put::Declined => Received::Declined,
        })
    }

    /// Handles a request of one packet that is the next message: no part of it waits, so it gets no entry in the inbox. Returns
    /// `None` as [`handle_part`](Self::handle_part) does.
    #[inline]
    fn handle_whole(
        &mut self,
        now: Instant,
        placement: &Placement,
        header: &RdmaHeader,
        to_acknowledge: &mut Option<u32>,
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
        match self.handle_request(now, &mut incoming, memory) {
            Outcome::Done => {}
            outcome => self.handle_outcome(now, &mut incoming, outcome, to_acknowledge),
        }
        Some(if others { Received::Next } else { Received::Waits })
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

    /// Returns the receive request that a message consumed, if it did, to the shared queue.
    fn put_back(&mut self, incoming: &mut Incoming) {
        if self.pair.request.srq.is_some()
            && let Some(receive) = incoming.receive.take()
        {
            self.put_receive_back(receive);
        }
    }

    /// Undoes [`take_receive`](Self::take_receive).
    pub(super) fn put_receive_back(&mut self, receive: Receive) {
        let Some(srq) = self.pair.request.srq else { return self.pair.receive.put_back(receive) };
        if let Some(srq) = self.srqs.get_mut(srq.0) {
            srq.queue.put_back(receive);
        }
    }
}

/// Returns the PSN of the first request on the queue pair.
fn first_psn(pair: &QueuePair) -> u32 {
    pair.attributes.rq_psn.unwrap_or(0)
}
