//! Queue pairs: made, moved from state to state, given work, flushed, ended.

use alloc::vec::Vec;

use weft_units::Instant;

use super::{Device, Source, Transmit};
use crate::completion::{Completion, Status, WorkKind};
use crate::error::Object;
use crate::queue_pair::{
    Attributes, QueuePair, QueuePairRequest, Requester, Responder, Role, Service, State, transition,
};
use crate::{
    CompletionQueue, Event, Limits, QueuePairNumber, ReceiveRequest, SendRequest, VerbsError,
};

impl Device {
    /// Makes a queue pair (`ibv_create_qp`).
    ///
    /// # Errors
    /// Something it names is not there or of another context, too much is asked for, or there are too
    /// many.
    pub fn create_qp(&mut self, request: &QueuePairRequest) -> Result<QueuePairNumber, VerbsError> {
        self.check_sizes(request)?;
        let context = self.domain(request.domain)?.context;
        for cq in [request.send_cq, request.receive_cq] {
            let queue = self.cqs.get(cq.0).filter(|queue| queue.context == context);
            queue.ok_or(VerbsError::Unknown(Object::CompletionQueue))?;
        }
        if let Some(srq) = request.srq
            && self.srq(srq)?.context != context
        {
            return Err(VerbsError::Unknown(Object::SharedReceiveQueue));
        }
        let (object, limit) = (Object::QueuePair, self.limits.queue_pairs);
        let number = self.qps.insert(QueuePair::new(context, *request));
        let number = number.ok_or(VerbsError::TooMany { object, limit })?;
        self.count_user(request, 1);
        Ok(QueuePairNumber(number))
    }

    fn check_sizes(&self, request: &QueuePairRequest) -> Result<(), VerbsError> {
        let Limits { work_requests, scatter_gather, inline_bytes, .. } = self.limits;
        for (field, got, limit) in [
            ("max_send_wr", request.max_send, work_requests),
            ("max_recv_wr", request.max_receive, work_requests),
            ("max_send_sge", request.max_send_sge, scatter_gather),
            ("max_recv_sge", request.max_receive_sge, scatter_gather),
            ("max_inline_data", request.max_inline, inline_bytes),
        ] {
            if got > limit {
                let (got, limit) = (got.into(), limit.into());
                return Err(VerbsError::OverLimit { field, got, limit });
            }
        }
        Ok(())
    }

    /// What the queue pair uses has one user more, or one less.
    fn count_user(&mut self, request: &QueuePairRequest, change: i32) {
        let count = |users: &mut u32| *users = users.wrapping_add_signed(change);
        count(&mut self.domains.get_mut(request.domain.0).expect("checked").users);
        if request.service == Service::UnreliableDatagram {
            count(&mut self.datagrams.queue_pairs);
        }
        for cq in [request.send_cq, request.receive_cq] {
            count(&mut self.cqs.get_mut(cq.0).expect("checked").users);
        }
        if let Some(srq) = request.srq {
            count(&mut self.srqs.get_mut(srq.0).expect("checked").users);
        }
    }

    pub(super) fn qp(&mut self, qp: QueuePairNumber) -> Result<&mut QueuePair, VerbsError> {
        self.qps.get_mut(qp.0).ok_or(VerbsError::Unknown(Object::QueuePair))
    }

    /// A queue pair's state and attributes (`ibv_query_qp`).
    ///
    /// # Errors
    /// There is none.
    pub fn query_qp(&self, qp: QueuePairNumber) -> Result<(State, Attributes), VerbsError> {
        let pair = self.qps.get(qp.0).ok_or(VerbsError::Unknown(Object::QueuePair))?;
        Ok((pair.state, pair.attributes))
    }

    /// Whether a queue pair that works has done something that the program has not seen, or has yet to: requests
    /// to send, or completions that wait to be polled.
    pub fn has_unseen(&self, qp: QueuePairNumber) -> bool {
        let Some(pair) = self.qps.get(qp.0) else { return false };
        let QueuePairRequest { send_cq, receive_cq, .. } = pair.request;
        let holds = |cq: CompletionQueue| {
            self.cqs.get(cq.0).is_some_and(|queue| queue.completions.holds(qp))
        };
        pair.state.works() && (pair.send.len() > 0 || holds(send_cq) || holds(receive_cq))
    }

    /// Changes a queue pair's state and attributes (`ibv_modify_qp`).
    ///
    /// # Errors
    /// No such transition, attributes missing, too many or out of range.
    pub fn modify_qp(
        &mut self,
        now: Instant,
        qp: QueuePairNumber,
        attributes: &Attributes,
    ) -> Result<(), VerbsError> {
        let reads = self.limits.reads;
        let pair = self.qp(qp)?;
        let to = transition(pair.request.service, pair.state, attributes)?;
        for got in [attributes.max_rd_atomic, attributes.max_dest_rd_atomic].into_iter().flatten() {
            if got > reads {
                let (got, limit) = (got.into(), reads.into());
                return Err(VerbsError::OverLimit { field: "max_rd_atomic", got, limit });
            }
        }
        pair.assume(attributes);
        if attributes.access.is_some() {
            self.recall_from(qp);
        }
        match to {
            State::Reset => self.reset_qp(now, qp),
            State::Error => self.fail_qp(now, qp),
            to => {
                let pair = self.qp(qp)?;
                pair.state = to;
                pair.requester.draining = to == State::SendQueueDrained;
            }
        }
        self.pump(now, qp);
        self.handle_transport_events(now);
        Ok(())
    }

    /// Ends a queue pair (`ibv_destroy_qp`) and what it has in its completion queues.
    ///
    /// # Errors
    /// There is none.
    pub fn destroy_qp(&mut self, now: Instant, qp: QueuePairNumber) -> Result<(), VerbsError> {
        self.qp(qp)?;
        self.leave_flow(qp);
        self.reset_qp(now, qp);
        let pair = self.qps.remove(qp.0).expect("found just now");
        self.count_user(&pair.request, -1);
        self.handle_transport_events(now);
        Ok(())
    }

    /// Posts a send request (`ibv_post_send`).
    ///
    /// # Errors
    /// The queue pair does not take it in its state, cannot do that, or has no room.
    pub fn post_send(
        &mut self,
        now: Instant,
        qp: QueuePairNumber,
        request: &SendRequest<'_>,
    ) -> Result<(), VerbsError> {
        self.post_sends(now, qp, core::slice::from_ref(request))
    }

    /// Posts send requests in this order, or none of them where one is refused (`ibv_wr_complete`).
    ///
    /// # Errors
    /// As for [`Self::post_send`].
    pub fn post_sends(
        &mut self,
        now: Instant,
        qp: QueuePairNumber,
        requests: &[SendRequest<'_>],
    ) -> Result<(), VerbsError> {
        self.enqueue(qp, requests)?;
        self.pump(now, qp);
        self.handle_transport_events(now);
        Ok(())
    }

    /// Likewise one, which is handed to `send` in this very call where it may leave at once: over a link, as one
    /// packet, with nothing before it.
    ///
    /// # Errors
    /// As for [`Self::post_send`].
    pub fn post_send_and_transmit(
        &mut self,
        now: Instant,
        qp: QueuePairNumber,
        request: &SendRequest<'_>,
        send: impl FnOnce(&Transmit, Source<'_>),
    ) -> Result<(), VerbsError> {
        self.enqueue(qp, core::slice::from_ref(request))?;
        if !self.begin_at_once(now, qp, send) {
            self.pump(now, qp);
            self.handle_transport_events(now);
        }
        Ok(())
    }

    fn enqueue(
        &mut self,
        qp: QueuePairNumber,
        requests: &[SendRequest<'_>],
    ) -> Result<(), VerbsError> {
        let pair = self.qp(qp)?;
        QueuePairRequest::sends_in(pair.state)?;
        pair.send.admit(requests.len())?;
        for request in requests {
            pair.request.check_send(request)?;
        }
        for request in requests {
            let signaled = request.signaled || pair.request.signal_all;
            pair.send.post(&SendRequest { signaled, ..*request })?;
        }
        if matches!(pair.state, State::Error | State::SendQueueError) {
            self.flush_sends(qp);
        }
        Ok(())
    }

    /// Posts a receive request (`ibv_post_recv`).
    ///
    /// # Errors
    /// The queue pair does not take it in its state, has no queue of its own, or no room.
    pub fn post_receive(
        &mut self,
        qp: QueuePairNumber,
        request: &ReceiveRequest<'_>,
    ) -> Result<(), VerbsError> {
        let pair = self.qp(qp)?;
        pair.request.check_receive(pair.state, request)?;
        pair.receive.post(request)?;
        if pair.state == State::Error {
            self.flush_receives(qp);
        }
        Ok(())
    }

    /// Puts a queue pair in error: everything it has is flushed.
    pub(super) fn fail_qp(&mut self, now: Instant, qp: QueuePairNumber) {
        let Some(pair) = self.qps.get_mut(qp.0).filter(|pair| pair.state != State::Error) else {
            return;
        };
        pair.state = State::Error;
        self.recall_from(qp);
        let pair = self.qps.get_mut(qp.0).expect("found just now");
        let last_words = !pair.responder.acknowledgements.is_empty();
        let srq = pair.request.srq.is_some();
        self.end_flow(now, qp, Role::Requester);
        if last_words {
            // Why it failed is on its way to the peer; the connection ends when that has arrived.
            let pair = self.qps.get_mut(qp.0).expect("found just now");
            pair.responder.closing = true;
        } else {
            self.end_flow(now, qp, Role::Responder);
        }
        self.stop_waiting(qp);
        self.flush_sends(qp);
        self.flush_receives(qp);
        if srq {
            self.events.push_back(Event::LastWqeReached { qp });
        }
    }

    pub(super) fn flush_sends(&mut self, qp: QueuePairNumber) {
        while let Some(pair) = self.qps.get_mut(qp.0)
            && let Some(done) = pair.send.pop()
        {
            let cq = pair.request.send_cq;
            let failure = done.outcome.filter(|&status| status != Status::Success);
            let (status, kind) = (failure.unwrap_or(Status::WrFlush), done.kind);
            self.complete(cq, failed(qp, done.wr_id, status, kind));
        }
    }

    fn flush_receives(&mut self, qp: QueuePairNumber) {
        while let Some(pair) = self.qps.get_mut(qp.0)
            && let Some(receive) = pair.receive.take()
        {
            let cq = pair.request.receive_cq;
            let flushed = failed(qp, receive.wr_id, Status::WrFlush, WorkKind::Receive);
            self.complete(cq, flushed);
        }
    }

    /// Forgets everything a queue pair had.
    fn reset_qp(&mut self, now: Instant, qp: QueuePairNumber) {
        self.end_flow(now, qp, Role::Requester);
        self.end_flow(now, qp, Role::Responder);
        self.stop_waiting(qp);
        let Some(pair) = self.qps.get_mut(qp.0) else { return };
        pair.state = State::Reset;
        pair.attributes = Attributes::default();
        pair.send.reset();
        pair.receive.reset();
        let round = pair.requester.round.wrapping_add(1);
        pair.requester = Requester { round, ..Requester::default() };
        pair.responder = Responder::default();
        let cqs = [pair.request.send_cq, pair.request.receive_cq];
        for cq in cqs {
            let queue = self.cqs.get_mut(cq.0).expect("queue pairs keep their completion queues");
            queue.completions.forget(qp);
        }
    }

    /// Ends a connection of a queue pair, with what has begun to arrive on it.
    pub(super) fn end_flow(&mut self, now: Instant, qp: QueuePairNumber, role: Role) {
        if role == Role::Responder {
            self.recall_from(qp);
        }
        let Some(pair) = self.qps.get_mut(qp.0) else { return };
        let flow = match role {
            Role::Requester => pair.requester.flow.take(),
            Role::Responder => pair.responder.flow.take(),
        };
        let Some(mut flow) = flow else { return };
        let (srq, receive_cq) = (pair.request.srq, pair.request.receive_cq);
        if role == Role::Requester {
            pair.requester.ready = false;
            pair.requester.leases.clear();
        } else {
            pair.responder.acknowledgements.clear();
            pair.responder.answers.clear();
        }
        let is_error = pair.state == State::Error;
        let mut held = false;
        let mut taken = Vec::new();
        for incoming in flow.inbox.drain() {
            held |= !incoming.held.is_empty();
            incoming.held.iter().for_each(|part| self.holding.let_go(part));
            taken.extend(incoming.receive.filter(|_| srq.is_some()));
        }
        // What messages that came in part had taken from a shared queue is completed in error. Else, the
        // peer went: hardware would not hear of it, and the requests are there for others.
        for receive in taken.into_iter().rev() {
            match srq.and_then(|srq| self.srqs.get_mut(srq.0)).filter(|_| !is_error) {
                Some(srq) => srq.queue.put_back(receive),
                None => {
                    let flushed = failed(qp, receive.wr_id, Status::WrFlush, WorkKind::Receive);
                    self.complete(receive_cq, flushed);
                }
            }
        }
        let connection = flow.connection;
        if held {
            self.events.push_back(Event::ReleaseHeld { connection });
        }
        self.connections.remove(&connection);
        self.carriers.close(now, connection);
    }

    /// Lets go of the connection that requests came on, where all that came was carried out: an
    /// acknowledgement may have been lost, and the transport repeats it as long as the peer has the
    /// connection. What else comes there ends it.
    fn leave_flow(&mut self, qp: QueuePairNumber) {
        self.recall_from(qp);
        let Some(pair) = self.qps.get_mut(qp.0) else { return };
        let responder = &mut pair.responder;
        let quiet = responder.answers.is_empty() && responder.acknowledgements.is_empty();
        if let Some(flow) = responder.flow.take_if(|flow| quiet && flow.inbox.is_empty()) {
            self.connections.remove(&flow.connection);
        }
    }

    /// Nothing is waited for any more.
    pub(super) fn stop_waiting(&mut self, qp: QueuePairNumber) {
        let Some(pair) = self.qps.get_mut(qp.0) else { return };
        if let Some(until) = pair.requester.wait_until.take() {
            self.waits.remove(&(until, qp));
        }
    }
}

/// A completion of something that failed.
pub(super) fn failed(
    qp: QueuePairNumber,
    wr_id: u64,
    status: Status,
    kind: WorkKind,
) -> Completion {
    Completion { wr_id, status, kind, length: 0, extra: None, qp, source: None, solicited: false }
}
