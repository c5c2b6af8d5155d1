//! The half of a queue pair that answers: payload is placed when it arrives, requests are carried out
//! in order.

use alloc::boxed::Box;

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

/// The outcome of a packet.
enum Taken {
    /// The turn of messages in the inbox has come.
    Next,
    /// Its message was executed at once, and the inbox has none.
    Executed,
    /// Its message had its turn at once, which ended in another way.
    Ended(Box<(Incoming, Turn)>),
    /// Other messages come first, or packets of the same one are missing.
    Waits,
    /// There is no room: the packet is to be retransmitted.
    Declined,
}

/// The outcome of a request in its turn.
pub(super) enum Turn {
    Done,
    /// It was executed, and its completion was lost.
    Overran,
    /// It was sent before the requester knew that an earlier one was refused; it will be retransmitted.
    Stale,
    /// The peer is to be told why.
    Refused(Refusal),
    /// The service has no acknowledgements (UC): nobody is told.
    Dropped(Refusal),
    /// Its PSN is not the expected one: the queue pairs were not set up for each other.
    OutOfStep,
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
            return self.take_datagram(now, placement, header, memory);
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
        match receiver.take_packet(now, role, placement, header, memory) {
            Some(Taken::Executed | Taken::Waits) => {}
            Some(Taken::Next) => self.take_turns(now, qp, role, &mut gate, memory),
            Some(Taken::Ended(ended)) => {
                let (mut incoming, turn) = *ended;
                self.end_turn(now, qp, &mut incoming, turn, &mut gate);
                self.take_turns(now, qp, role, &mut gate, memory);
            }
            Some(Taken::Declined) => return self.carriers.decline(connection, psn),
            None => return self.carriers.close(now, connection),
        }
        if let Some(psn) = gate {
            let _ = self.carriers.placed(now, connection, psn);
        }
    }

    /// Executes the messages of the inbox whose turn has come. The packet that made the first of them whole is the
    /// `gate`. The peer takes none of them for accepted before that packet is acknowledged, so its acknowledgement is
    /// withheld where one is refused.
    fn take_turns(
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
                Role::Requester => self.take_answer(now, qp, &incoming, memory),
                Role::Responder => match receiver.take_request(now, &mut incoming, memory) {
                    Turn::Done => {}
                    turn => self.end_turn(now, qp, &mut incoming, turn, gate),
                },
            }
        }
    }

    /// Does what follows from a request that was not executed, or whose completion was lost.
    fn end_turn(
        &mut self,
        now: Instant,
        qp: QueuePairNumber,
        incoming: &mut Incoming,
        turn: Turn,
        gate: &mut Option<u32>,
    ) {
        match turn {
            Turn::Done => {}
            Turn::Overran => self.fail_overrun(now, qp),
            Turn::Stale => self.put_back(qp, incoming),
            Turn::Refused(refusal) => self.refuse(now, qp, incoming, refusal, gate.take()),
            Turn::Dropped(refusal) => self.drop_message(now, qp, incoming, refusal),
            Turn::OutOfStep => {
                // Nothing of it is acknowledged: the peer's retries run out.
                *gate = None;
                self.put_back(qp, incoming);
                self.end_flow(now, qp, Role::Responder);
            }
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
        if Destination::of(&incoming.operation).is_receive() {
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

impl Receiver<'_> {
    /// Handles a packet of a message. `None` where the packet breaks the protocol, and where its payload is lost.
    #[inline]
    fn take_packet(
        &mut self,
        now: Instant,
        role: Role,
        placement: &Placement,
        header: &RdmaHeader,
        memory: &mut impl Memory,
    ) -> Option<Taken> {
        if self.is_whole_and_next(role, placement) {
            return self.take_whole(now, placement, header, memory);
        }
        let destination = self.begin_message(role, placement, header)?;
        Some(match self.put_payload(role, placement, destination, memory)? {
            Put::Next => Taken::Next,
            Put::Waits => Taken::Waits,
            Put::Declined => Taken::Declined,
        })
    }

    /// Executes a request that is one packet and whose turn has come with it: no part of it waits, so the inbox gets no
    /// entry for it. `None` as for [`take_packet`](Self::take_packet).
    #[inline]
    fn take_whole(
        &mut self,
        now: Instant,
        placement: &Placement,
        header: &RdmaHeader,
        memory: &mut impl Memory,
    ) -> Option<Taken> {
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
        Some(match self.take_request(now, &mut incoming, memory) {
            Turn::Done if others => Taken::Next,
            Turn::Done => Taken::Executed,
            turn => Taken::Ended(Box::new((incoming, turn))),
        })
    }

    /// Takes the first message of the inbox, if it is whole.
    fn next_whole(&mut self, role: Role) -> Option<Incoming> {
        self.pair.flow(role)?.inbox.pop_whole()
    }

    /// Executes a request whose turn has come.
    fn take_request(
        &mut self,
        now: Instant,
        incoming: &mut Incoming,
        memory: &mut impl Memory,
    ) -> Turn {
        let qp = self.qp;
        if self.pair.state == State::ReadyToReceive
            && self.pair.responder.expected == first_psn(self.pair)
        {
            self.completing.events.push_back(Event::CommunicationEstablished { qp });
        }
        let turn = self.carry_out(now, incoming, memory);
        for part in core::mem::take(&mut incoming.held) {
            self.holding.release(part, memory);
        }
        if matches!(turn, Turn::Done | Turn::Dropped(_)) {
            self.pair.responder.expected = after(self.pair.responder.expected);
        }
        if matches!(turn, Turn::Done) && self.overran() { Turn::Overran } else { turn }
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

/// The PSN of the first request ever.
fn first_psn(pair: &QueuePair) -> u32 {
    pair.attributes.rq_psn.unwrap_or(0)
}
