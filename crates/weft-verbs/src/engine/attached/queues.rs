//! This process's record of its queues: requests that are posted and not completed, completions that are not polled.

use std::collections::{BTreeMap, VecDeque};

use weft_rnic::{
    Arm, Completion, CompletionQueue, Completions, Event, Pushed, QueuePairNumber,
    QueuePairRequest, ReceiveRequest, SendRequest, SharedReceiveQueue, State, Status, VerbsError,
    WorkKind,
};

use crate::engine::command::{Command, Reply};
use crate::errno::{EINVAL, Errno, Outcome};

/// The state of all queues.
#[derive(Debug, Default)]
pub(super) struct Queues {
    cqs: BTreeMap<CompletionQueue, Completions>,
    qps: BTreeMap<QueuePairNumber, Pair>,
    srqs: BTreeMap<SharedReceiveQueue, Shared>,
}

/// A queue pair.
#[derive(Debug)]
struct Pair {
    request: QueuePairRequest,
    state: State,
    /// The program's numbers of send requests that are not completed. The device has consecutive numbers for them, so a
    /// completion also completes all requests before it.
    sends: VecDeque<u64>,
    /// The device's number of the first of them.
    first_send: u64,
    /// The program's numbers of receive requests that are not completed, by the device's numbers: datagrams may
    /// complete in another order than they take them.
    receives: BTreeMap<u64, u64>,
    /// The device's number of the next one.
    next_receive: u64,
}

/// A shared receive queue.
#[derive(Debug)]
struct Shared {
    requests: u32,
    pieces: u32,
    waiting: u32,
}

fn full(limit: u32) -> Errno {
    VerbsError::QueueFull { limit }.into()
}

impl Queues {
    fn pair(&self, qp: QueuePairNumber) -> Outcome<&Pair> {
        self.qps.get(&qp).ok_or(EINVAL)
    }

    /// Applies a command that was executed.
    pub(super) fn follow(&mut self, command: &Command, reply: &Reply) {
        match (*command, *reply) {
            (Command::CreateCq(_, capacity), Reply::Number(cq)) => {
                self.cqs.insert(CompletionQueue(cq), Completions::new(capacity));
            }
            (Command::ResizeCq(cq, capacity), _) => {
                if let Some(queue) = self.cqs.get_mut(&cq) {
                    // More completions may have arrived since the check: then the size stays.
                    let _ = queue.resize(capacity);
                }
            }
            (Command::DestroyCq(cq), _) => drop(self.cqs.remove(&cq)),
            (Command::CreateSrq { requests, pieces, .. }, Reply::Number(srq)) => {
                let shared = Shared { requests, pieces, waiting: 0 };
                self.srqs.insert(SharedReceiveQueue(srq), shared);
            }
            (Command::Waiting(srq), Reply::Number(waiting)) => {
                if let Some(shared) = self.srqs.get_mut(&srq) {
                    shared.waiting = waiting;
                }
            }
            (Command::DestroySrq(srq), _) => drop(self.srqs.remove(&srq)),
            (Command::CreateQp(request), Reply::Number(qp)) => {
                self.qps.insert(QueuePairNumber(qp), Pair::new(request));
            }
            (Command::ModifyQp(qp, attributes), _) => {
                if let (Some(pair), Some(state)) = (self.qps.get_mut(&qp), attributes.state) {
                    pair.state = state;
                    if state == State::Reset {
                        let request = pair.request;
                        *pair = Pair::new(request);
                        self.forget(qp, &request);
                    }
                }
            }
            (Command::DestroyQp(qp), _) => {
                if let Some(pair) = self.qps.remove(&qp) {
                    self.forget(qp, &pair.request);
                }
            }
            _ => {}
        }
    }

    fn forget(&mut self, qp: QueuePairNumber, request: &QueuePairRequest) {
        for cq in [request.send_cq, request.receive_cq] {
            if let Some(queue) = self.cqs.get_mut(&cq) {
                queue.discard(qp);
            }
        }
    }

    /// Returns `true` if a connected queue pair has unsent requests, or completions that wait to be polled.
    pub(super) fn has_unseen(&self, qp: QueuePairNumber) -> bool {
        let Some(pair) = self.qps.get(&qp) else { return false };
        let QueuePairRequest { send_cq, receive_cq, .. } = pair.request;
        let holds = |cq: CompletionQueue| self.cqs.get(&cq).is_some_and(|queue| queue.holds(qp));
        pair.state.works() && (!pair.sends.is_empty() || holds(send_cq) || holds(receive_cq))
    }

    /// Checks that a completion queue exists and holds at most `capacity` completions.
    pub(super) fn check_resize(&self, cq: CompletionQueue, capacity: u32) -> Outcome<()> {
        self.cqs.get(&cq).ok_or(EINVAL)?.fits(capacity).map_err(Errno::from)
    }

    pub(super) fn arm(&mut self, cq: CompletionQueue, arm: Arm) -> Outcome<()> {
        self.cqs.get_mut(&cq).ok_or(EINVAL)?.arm(arm);
        Ok(())
    }

    /// Returns `true` if the program waits for any completion.
    pub(super) fn any_armed(&self) -> bool {
        self.cqs.values().any(Completions::is_armed)
    }

    pub(super) fn poll(
        &mut self,
        cq: CompletionQueue,
        max: usize,
        each: &mut impl FnMut(Completion),
    ) -> Outcome<usize> {
        let queue = self.cqs.get_mut(&cq).ok_or(EINVAL)?;
        let mut taken = 0;
        while taken < max
            && let Some(completion) = queue.poll()?
        {
            each(completion);
            taken += 1;
        }
        Ok(taken)
    }

    /// Records a completion of the device; returns the event for the program, if any.
    pub(super) fn complete(
        &mut self,
        cq: CompletionQueue,
        mut completion: Completion,
    ) -> Option<Event> {
        let pair = self.qps.get_mut(&completion.qp)?;
        match (is_receive(completion.kind), pair.request.srq) {
            (false, _) => completion.wr_id = pair.done(completion.wr_id)?,
            (true, Some(srq)) => {
                let shared = self.srqs.get_mut(&srq)?;
                shared.waiting = shared.waiting.saturating_sub(1);
            }
            (true, None) => completion.wr_id = pair.receives.remove(&completion.wr_id)?,
        }
        self.push(cq, completion)
    }

    fn push(&mut self, cq: CompletionQueue, completion: Completion) -> Option<Event> {
        match self.cqs.get_mut(&cq)?.push(completion) {
            Pushed::Wakes => Some(Event::Completion { cq }),
            Pushed::Overruns => Some(Event::CqError { cq }),
            Pushed::Waits | Pushed::Lost => None,
        }
    }

    /// Flushes all posted requests after the daemon's end; returns the events for the program.
    pub(super) fn flush(&mut self) -> Vec<Event> {
        let mut flushed = Vec::new();
        for (&qp, pair) in &mut self.qps {
            pair.state = State::Error;
            let QueuePairRequest { send_cq, receive_cq, .. } = pair.request;
            let sends = pair.sends.drain(..).map(|wr_id| (send_cq, wr_id, WorkKind::Send));
            let receives = core::mem::take(&mut pair.receives).into_values();
            let receives = receives.map(|wr_id| (receive_cq, wr_id, WorkKind::Receive));
            flushed.extend(sends.chain(receives).map(|(cq, wr_id, kind)| {
                let (status, length, extra, source) = (Status::WrFlush, 0, None, None);
                let solicited = false;
                (cq, Completion { wr_id, status, kind, length, extra, qp, source, solicited })
            }));
        }
        flushed.into_iter().filter_map(|(cq, completion)| self.push(cq, completion)).collect()
    }

    /// Checks that a queue pair has room for `requests` more send requests.
    pub(super) fn check_room(&self, qp: QueuePairNumber, requests: usize) -> Outcome<()> {
        let pair = self.pair(qp)?;
        let limit = pair.request.max_send;
        if pair.sends.len() + requests > limit as usize { Err(full(limit)) } else { Ok(()) }
    }

    /// Checks that a queue pair accepts a send request now; returns the device's number for it.
    pub(super) fn check_send(
        &self,
        qp: QueuePairNumber,
        request: &SendRequest<'_>,
    ) -> Outcome<u64> {
        let pair = self.pair(qp)?;
        QueuePairRequest::sends_in(pair.state)?;
        self.check_room(qp, 1)?;
        pair.request.check_send(request)?;
        Ok(pair.first_send + pair.sends.len() as u64)
    }

    /// Records that a send request was posted.
    pub(super) fn record_send(&mut self, qp: QueuePairNumber, wr_id: u64) {
        if let Some(pair) = self.qps.get_mut(&qp) {
            pair.sends.push_back(wr_id);
        }
    }

    /// Checks that a queue pair accepts a receive request now; returns the device's number for it.
    pub(super) fn check_receive(
        &self,
        qp: QueuePairNumber,
        request: &ReceiveRequest<'_>,
    ) -> Outcome<u64> {
        let pair = self.pair(qp)?;
        pair.request.check_receive(pair.state, request)?;
        let limit = pair.request.max_receive;
        if pair.receives.len() >= limit as usize { Err(full(limit)) } else { Ok(pair.next_receive) }
    }

    /// Records that a receive request was posted.
    pub(super) fn record_receive(&mut self, qp: QueuePairNumber, wr_id: u64) {
        if let Some(pair) = self.qps.get_mut(&qp) {
            pair.receives.insert(pair.next_receive, wr_id);
            pair.next_receive += 1;
        }
    }

    /// Returns `true` if, as far as this process knows, a shared queue has no room.
    pub(super) fn is_full(&self, srq: SharedReceiveQueue) -> bool {
        self.srqs.get(&srq).is_some_and(|shared| shared.waiting >= shared.requests)
    }

    /// Checks that a shared queue accepts a receive request.
    pub(super) fn check_shared_receive(
        &self,
        srq: SharedReceiveQueue,
        request: &ReceiveRequest<'_>,
    ) -> Outcome<()> {
        let shared = self.srqs.get(&srq).ok_or(EINVAL)?;
        if request.sges.len() > shared.pieces as usize {
            return Err(EINVAL);
        }
        if shared.waiting >= shared.requests { Err(full(shared.requests)) } else { Ok(()) }
    }

    /// Records that a receive request was posted to a shared queue.
    pub(super) fn record_shared_receive(&mut self, srq: SharedReceiveQueue) {
        if let Some(shared) = self.srqs.get_mut(&srq) {
            shared.waiting += 1;
        }
    }
}

impl Pair {
    fn new(request: QueuePairRequest) -> Self {
        let (sends, receives) = (VecDeque::new(), BTreeMap::new());
        Self { request, state: State::Reset, sends, first_send: 0, receives, next_receive: 0 }
    }

    /// Completes the send request with this number, and those before it; returns the program's number of it.
    fn done(&mut self, number: u64) -> Option<u64> {
        let before = usize::try_from(number.checked_sub(self.first_send)?).ok()?;
        let wr_id = *self.sends.get(before)?;
        self.sends.drain(..=before);
        self.first_send = number + 1;
        Some(wr_id)
    }
}

const fn is_receive(kind: WorkKind) -> bool {
    matches!(kind, WorkKind::Receive | WorkKind::ReceiveWriteWithImmediate)
}

#[cfg(test)]
mod tests {
    use weft_rnic::{Attributes, Context, Data, Operation, ProtectionDomain, Service};

    use super::*;

    const CQ: CompletionQueue = CompletionQueue(7);
    const QP: QueuePairNumber = QueuePairNumber(9);

    fn queues() -> Queues {
        let mut queues = Queues::default();
        let request = QueuePairRequest {
            domain: ProtectionDomain(1),
            service: Service::ReliableConnected,
            send_cq: CQ,
            receive_cq: CQ,
            srq: None,
            max_send: 4,
            max_receive: 2,
            max_send_sge: 1,
            max_receive_sge: 1,
            max_inline: 0,
            signal_all: false,
        };
        queues.follow(&Command::CreateCq(Context(1), 8), &Reply::Number(CQ.0));
        queues.follow(&Command::CreateQp(request), &Reply::Number(QP.0));
        let state = Some(State::ReadyToSend);
        let ready = Attributes { state, ..Attributes::default() };
        queues.follow(&Command::ModifyQp(QP, ready), &Reply::Done);
        queues
    }

    fn post(queues: &mut Queues, wr_id: u64) -> Outcome<u64> {
        let request = SendRequest::new(wr_id, Operation::Send, Data::Gather(&[]));
        let number = queues.check_send(QP, &request)?;
        queues.record_send(QP, wr_id);
        Ok(number)
    }

    fn completion(wr_id: u64, kind: WorkKind) -> Completion {
        let (status, extra, source) = (Status::Success, None, None);
        Completion { wr_id, status, kind, length: 0, extra, qp: QP, source, solicited: false }
    }

    fn polled(queues: &mut Queues) -> Vec<u64> {
        let mut polled = Vec::new();
        queues.poll(CQ, 100, &mut |completion| polled.push(completion.wr_id)).unwrap();
        polled
    }

    #[test]
    fn a_completion_frees_the_unsignalled_before_it_and_has_the_program_s_number() {
        let mut queues = queues();
        let numbers: Vec<_> = (0..4).map(|_| post(&mut queues, 77)).collect();
        assert_eq!(numbers, [Ok(0), Ok(1), Ok(2), Ok(3)]);
        assert_eq!(post(&mut queues, 1), Err(Errno(libc::ENOMEM)));
        assert_eq!(queues.complete(CQ, completion(2, WorkKind::Send)), None);
        assert_eq!(polled(&mut queues), [77]);
        assert_eq!(
            [post(&mut queues, 5), post(&mut queues, 6), post(&mut queues, 7)].map(|p| p.is_ok()),
            [true; 3]
        );
        assert!(post(&mut queues, 8).is_err());
        // The device has completed that already, or names a request that never existed.
        assert_eq!(queues.complete(CQ, completion(2, WorkKind::Send)), None);
        assert_eq!(queues.complete(CQ, completion(u64::MAX, WorkKind::Send)), None);
        assert!(polled(&mut queues).is_empty());
    }

    #[test]
    fn receives_have_the_program_s_numbers_in_whatever_order_they_complete() {
        let mut queues = queues();
        for wr_id in [40, 50] {
            let number = queues.check_receive(QP, &ReceiveRequest { wr_id, sges: &[] }).unwrap();
            assert_eq!(number, (wr_id - 40) / 10);
            queues.record_receive(QP, wr_id);
        }
        queues.complete(CQ, completion(1, WorkKind::Receive));
        queues.complete(CQ, completion(0, WorkKind::Receive));
        assert_eq!(polled(&mut queues), [50, 40]);
    }

    #[test]
    fn a_queue_pair_that_was_reset_has_completed_nothing() {
        let mut queues = queues();
        post(&mut queues, 1).unwrap();
        queues.complete(CQ, completion(0, WorkKind::Send));
        let reset = Attributes { state: Some(State::Reset), ..Attributes::default() };
        queues.follow(&Command::ModifyQp(QP, reset), &Reply::Done);
        assert!(polled(&mut queues).is_empty());
        assert_eq!(post(&mut queues, 2), Err(EINVAL), "not in this state");
    }

    #[test]
    fn posted_requests_of_a_dead_device_are_flushed_and_waiters_notified() {
        let mut queues = queues();
        post(&mut queues, 3).unwrap();
        let receive = ReceiveRequest { wr_id: 4, sges: &[] };
        queues.check_receive(QP, &receive).unwrap();
        queues.record_receive(QP, 4);
        queues.arm(CQ, Arm::Solicited).unwrap();
        assert_eq!(queues.flush(), [Event::Completion { cq: CQ }]);
        assert_eq!(polled(&mut queues), [3, 4]);
        assert!(!queues.any_armed());
    }
}
