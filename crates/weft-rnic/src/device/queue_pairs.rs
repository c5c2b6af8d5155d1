//! Commands for queue pairs: creation, state transitions, posting of work requests, flushing, destruction.

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
    /// Creates a queue pair (`ibv_create_qp`).
    ///
    /// # Errors
    /// An object that it names does not exist or belongs to another context, a size is above its limit, or the limit of queue
    /// pairs is reached.
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

    /// Adds `change` to the number of users of the objects that a queue pair uses.
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

    /// Returns the state and attributes of a queue pair (`ibv_query_qp`).
    ///
    /// # Errors
    /// The queue pair does not exist.
    pub fn query_qp(&self, qp: QueuePairNumber) -> Result<(State, Attributes), VerbsError> {
        let pair = self.qps.get(qp.0).ok_or(VerbsError::Unknown(Object::QueuePair))?;
        Ok((pair.state, pair.attributes))
    }

    /// Returns `true` if a connected queue pair has send requests, or completions that the program has not polled.
    pub fn has_unseen(&self, qp: QueuePairNumber) -> bool {
        let Some(pair) = self.qps.get(qp.0) else { return false };
        let QueuePairRequest { send_cq, receive_cq, .. } = pair.request;
        let holds = |cq: CompletionQueue| {
            self.cqs.get(cq.0).is_some_and(|queue| queue.completions.holds(qp))
        };
        pair.state.works() && (pair.send.len() > 0 || holds(send_cq) || holds(receive_cq))
    }

    /// Changes the state and attributes of a queue pair (`ibv_modify_qp`).
    ///
    /// # Errors
    /// The transition does not exist, or attributes are missing, surplus or out of range.
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
        pair.set_attributes(attributes);
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

    /// Destroys a queue pair, and removes its completions (`ibv_destroy_qp`).
    ///
    /// # Errors
    /// The queue pair does not exist.
    pub fn destroy_qp(&mut self, now: Instant, qp: QueuePairNumber) -> Result<(), VerbsError> {
        self.qp(qp)?;
        self.detach_flow(qp);
        self.reset_qp(now, qp);
        let pair = self.qps.remove(qp.0).expect("found just now");
        self.count_user(&pair.request, -1);
        self.handle_transport_events(now);
        Ok(())
    }

    /// Posts a send request (`ibv_post_send`).
    ///
    /// # Errors
    /// The queue pair does not exist, does not accept it in its state, does not support it, or is full.
    pub fn post_send(
        &mut self,
        now: Instant,
        qp: QueuePairNumber,
        request: &SendRequest<'_>,
    ) -> Result<(), VerbsError> {
        self.post_sends(now, qp, core::slice::from_ref(request))
    }

    /// Posts send requests in order, or none of them on an error (`ibv_wr_complete`).
    ///
    /// # Errors
    /// Those of [`Self::post_send`].
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

    /// Posts a send request, and passes its packet to `send` in the same call if it can be sent now: over a link, as one packet,
    /// with no request before it.
    ///
    /// # Errors
    /// Those of [`Self::post_send`].
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
        pair.send.check_room(requests.len())?;
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
    /// The queue pair does not exist, does not accept it in its state, receives from a shared queue, or is full.
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

    /// Puts a queue pair in error, and flushes its requests.
    pub(super) fn fail_qp(&mut self, now: Instant, qp: QueuePairNumber) {
        let Some(pair) = self.qps.get_mut(qp.0).filter(|pair| pair.state != State::Error) else {
            return;
        };
        pair.state = State::Error;
        self.recall_from(qp);
        let pair = self.qps.get_mut(qp.0).expect("found just now");
        let acknowledges = !pair.responder.acknowledgements.is_empty();
        let srq = pair.request.srq.is_some();
        self.end_flow(now, qp, Role::Requester);
        if acknowledges {
            // The reason of the failure is in flight to the peer; the connection closes when it has arrived.
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

    /// Resets a queue pair: removes its requests, completions, connections and attributes.
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

    /// Closes a connection of a queue pair, and drops the messages that are arriving on it.
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
        // Incomplete messages may have consumed requests of a shared queue. In error these are flushed; if only the peer
        // closed the connection, they return to the queue, since hardware would not detect that.
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

    /// Detaches the responder's connection without closing it, if all its messages were executed: the transport then retransmits
    /// a lost acknowledgement as long as the peer has the connection. Any further message closes it.
    fn detach_flow(&mut self, qp: QueuePairNumber) {
        self.recall_from(qp);
        let Some(pair) = self.qps.get_mut(qp.0) else { return };
        let responder = &mut pair.responder;
        let idle = responder.answers.is_empty() && responder.acknowledgements.is_empty();
        if let Some(flow) = responder.flow.take_if(|flow| idle && flow.inbox.is_empty()) {
            self.connections.remove(&flow.connection);
        }
    }

    /// Cancels the wait of a queue pair.
    pub(super) fn stop_waiting(&mut self, qp: QueuePairNumber) {
        let Some(pair) = self.qps.get_mut(qp.0) else { return };
        if let Some(until) = pair.requester.wait_until.take() {
            self.waits.remove(&(until, qp));
        }
    }
}

/// Creates the completion of a request that failed.
pub(super) fn failed(
    qp: QueuePairNumber,
    wr_id: u64,
    status: Status,
    kind: WorkKind,
) -> Completion {
    Completion { wr_id, status, kind, length: 0, extra: None, qp, source: None, solicited: false }
}
