//! Commands for queue pairs: creation, state transitions, posting of work requests, destruction.

use weft_units::Instant;

use super::active::ActiveQp;
use super::{Device, Source, Transmit};
use crate::error::Object;
use crate::queue_pair::{Attributes, QueuePair, QueuePairRequest, Service, State, transition};
use crate::{CompletionQueue, Limits, QueuePairNumber, ReceiveRequest, SendRequest, VerbsError};

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

    /// Returns the state and attributes of a queue pair (`ibv_query_qp`).
    ///
    /// # Errors
    /// The queue pair does not exist.
    pub fn query_qp(&self, qp: QueuePairNumber) -> Result<(State, Attributes), VerbsError> {
        let pair = self.qps.get(qp.0).ok_or(VerbsError::Unknown(Object::QueuePair))?;
        Ok((pair.state, pair.attributes))
    }

    /// Returns `true` if a queue pair in states RTR to SQE has send requests, or completions that the program has not
    /// polled; `false` if it does not exist.
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
    /// The queue pair or the transition does not exist, or attributes are missing, surplus or out of range.
    pub fn modify_qp(
        &mut self,
        now: Instant,
        qp: QueuePairNumber,
        attributes: &Attributes,
    ) -> Result<(), VerbsError> {
        self.qp(qp)?.modify(now, attributes)?;
        self.handle_transport_events(now);
        Ok(())
    }

    /// Destroys a queue pair, and removes its completions (`ibv_destroy_qp`).
    ///
    /// # Errors
    /// The queue pair does not exist.
    pub fn destroy_qp(&mut self, now: Instant, qp: QueuePairNumber) -> Result<(), VerbsError> {
        let mut active = self.qp(qp)?;
        active.detach_flow();
        active.reset(now);
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
    /// See [`Self::post_send`].
    pub fn post_sends(
        &mut self,
        now: Instant,
        qp: QueuePairNumber,
        requests: &[SendRequest<'_>],
    ) -> Result<(), VerbsError> {
        let mut active = self.qp(qp)?;
        active.enqueue(requests)?;
        active.pump(now);
        self.handle_transport_events(now);
        Ok(())
    }

    /// Posts a send request, and passes its packet to `send` in the same call if it can be sent now: over a link, as one packet,
    /// with no request before it.
    ///
    /// # Errors
    /// See [`Self::post_send`].
    pub fn post_send_and_transmit(
        &mut self,
        now: Instant,
        qp: QueuePairNumber,
        request: &SendRequest<'_>,
        send: impl FnOnce(&Transmit, Source<'_>),
    ) -> Result<(), VerbsError> {
        let mut active = self.qp(qp)?;
        active.enqueue(core::slice::from_ref(request))?;
        if !active.begin_at_once(now, send) {
            active.pump(now);
            self.handle_transport_events(now);
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
        let mut active = self.qp(qp)?;
        active.pair.request.check_receive(active.pair.state, request)?;
        active.pair.receive.post(request)?;
        if active.pair.state == State::Error {
            active.flush_receives();
        }
        Ok(())
    }
}

impl ActiveQp<'_> {
    fn modify(&mut self, now: Instant, attributes: &Attributes) -> Result<(), VerbsError> {
        let to = transition(self.pair.request.service, self.pair.state, attributes)?;
        let reads = self.limits.reads;
        for got in [attributes.max_rd_atomic, attributes.max_dest_rd_atomic].into_iter().flatten() {
            if got > reads {
                let (got, limit) = (got.into(), reads.into());
                return Err(VerbsError::OverLimit { field: "max_rd_atomic", got, limit });
            }
        }
        self.pair.set_attributes(attributes);
        if attributes.access.is_some() {
            self.revoke_leases();
        }
        let flows = [&self.pair.requester.flow, &self.pair.responder.flow];
        for connection in
            flows.map(|flow| flow.as_ref().map(|flow| flow.connection)).into_iter().flatten()
        {
            self.prepare_connection(connection);
        }
        match to {
            State::Reset => self.reset(now),
            State::Error => self.fail(now),
            to => {
                self.pair.state = to;
                self.pair.requester.draining = to == State::SendQueueDrained;
            }
        }
        self.pump(now);
        Ok(())
    }

    fn enqueue(&mut self, requests: &[SendRequest<'_>]) -> Result<(), VerbsError> {
        let pair = &mut *self.pair;
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
            self.flush_sends();
        }
        Ok(())
    }
}
