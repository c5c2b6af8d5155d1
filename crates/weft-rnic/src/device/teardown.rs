//! The end of a queue pair's work: flushing, failure, reset, and the end of its connections.

use alloc::vec::Vec;

use weft_units::Instant;

use super::active::ActiveQp;
use crate::completion::{Completion, Status, WorkKind};
use crate::queue_pair::{Attributes, Flow, Requester, Responder, Role, State};
use crate::receive_queue::Receive;
use crate::{Event, QueuePairNumber};

impl ActiveQp<'_> {
    /// Puts the queue pair in error, and flushes its requests.
    pub(super) fn fail(&mut self, now: Instant) {
        if self.pair.state == State::Error {
            return;
        }
        self.pair.state = State::Error;
        self.revoke_leases();
        let acknowledges = !self.pair.responder.acknowledgements.is_empty();
        self.end_flow(now, Role::Requester);
        if acknowledges {
            // The reason of the failure is in flight to the peer; the connection closes when it has arrived.
            self.pair.responder.closing = true;
        } else {
            self.end_flow(now, Role::Responder);
        }
        self.stop_waiting();
        self.flush_sends();
        self.flush_receives();
        if self.pair.request.srq.is_some() {
            self.completing.events.push_back(Event::LastWqeReached { qp: self.qp });
        }
    }

    /// Puts the queue pair in error because one of its completions was lost.
    pub(super) fn fail_overrun(&mut self, now: Instant) {
        self.completing.events.push_back(Event::QpFatal { qp: self.qp });
        self.fail(now);
    }

    /// Completes all send requests: those that have not failed are flushed.
    pub(super) fn flush_sends(&mut self) {
        let cq = self.pair.request.send_cq;
        while let Some(done) = self.pair.send.pop() {
            let failure = done.outcome.filter(|&status| status != Status::Success);
            let (status, kind) = (failure.unwrap_or(Status::WrFlush), done.kind);
            self.completing.complete(cq, failed(self.qp, done.wr_id, status, kind));
        }
    }

    /// Flushes all receive requests of its own queue.
    pub(super) fn flush_receives(&mut self) {
        while let Some(receive) = self.pair.receive.take() {
            self.flush_receive(&receive);
        }
    }

    fn flush_receive(&mut self, receive: &Receive) {
        let flushed = failed(self.qp, receive.wr_id, Status::WrFlush, WorkKind::Receive);
        self.completing.complete(self.pair.request.receive_cq, flushed);
    }

    /// Resets the queue pair: removes its requests, completions, connections and attributes.
    pub(super) fn reset(&mut self, now: Instant) {
        self.end_flow(now, Role::Requester);
        self.end_flow(now, Role::Responder);
        self.stop_waiting();
        let pair = &mut *self.pair;
        pair.state = State::Reset;
        pair.attributes = Attributes::default();
        pair.send.reset();
        pair.receive.reset();
        let round = pair.requester.round.wrapping_add(1);
        pair.requester = Requester { round, ..Requester::default() };
        pair.responder = Responder::default();
        for cq in [pair.request.send_cq, pair.request.receive_cq] {
            let queue = self.completing.cqs.get_mut(cq.0);
            let queue = queue.expect("queue pairs keep their completion queues");
            queue.completions.discard(self.qp);
        }
    }

    /// Closes a connection of the queue pair, and drops the messages that are arriving on it.
    pub(super) fn end_flow(&mut self, now: Instant, role: Role) {
        if role == Role::Responder {
            self.revoke_leases();
        }
        let pair = &mut *self.pair;
        let flow = match role {
            Role::Requester => pair.requester.flow.take(),
            Role::Responder => pair.responder.flow.take(),
        };
        let Some(Flow { connection, mut inbox, .. }) = flow else { return };
        match role {
            Role::Requester => {
                pair.requester.ready = false;
                pair.requester.leases.clear();
            }
            Role::Responder => {
                pair.responder.acknowledgements.clear();
                pair.responder.answers.clear();
            }
        }
        let (mut held, mut taken) = (false, Vec::new());
        for incoming in inbox.drain() {
            held |= !incoming.held.is_empty();
            incoming.held.iter().for_each(|part| self.holding.free_packet(part));
            taken.extend(incoming.receive);
        }
        self.return_receives(taken);
        if held {
            self.completing.events.push_back(Event::ReleaseHeld { connection });
        }
        self.connections.remove(&connection);
        self.carriers.close(now, connection);
    }

    /// Returns the receive requests that incomplete messages consumed to the shared queue. In error they are flushed; if only
    /// the peer closed the connection, they return to the queue, since hardware would not detect that.
    fn return_receives(&mut self, taken: Vec<Receive>) {
        let Some(srq) = self.pair.request.srq else { return };
        let is_error = self.pair.state == State::Error;
        for receive in taken.into_iter().rev() {
            match self.srqs.get_mut(srq.0).filter(|_| !is_error) {
                Some(srq) => srq.queue.put_back(receive),
                None => self.flush_receive(&receive),
            }
        }
    }

    /// Detaches the responder's connection without closing it, if all its messages were executed: the transport then retransmits
    /// a lost acknowledgement as long as the peer has the connection. Any further message closes it.
    pub(super) fn detach_flow(&mut self) {
        self.revoke_leases();
        let responder = &mut self.pair.responder;
        let idle = responder.answers.is_empty() && responder.acknowledgements.is_empty();
        if let Some(flow) = responder.flow.take_if(|flow| idle && flow.inbox.is_empty()) {
            self.connections.remove(&flow.connection);
        }
    }

    /// Cancels the wait of the queue pair.
    pub(super) fn stop_waiting(&mut self) {
        if let Some(until) = self.pair.requester.wait_until.take() {
            self.waits.remove(&(until, self.qp));
        }
    }
}

/// Returns the completion of a request that failed.
pub(super) fn failed(
    qp: QueuePairNumber,
    wr_id: u64,
    status: Status,
    kind: WorkKind,
) -> Completion {
    Completion { wr_id, status, kind, length: 0, extra: None, qp, source: None, solicited: false }
}
