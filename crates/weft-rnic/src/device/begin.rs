//! The start of send requests, in order.

use weft_units::Instant;

use super::Device;
use super::active::ActiveQp;
use crate::memory::{Accessor, Emtt, Right};
use crate::queue_pair::{ATOMIC_BYTES, QueuePair, Requester, Service, State, Token, Wqe};
use crate::{Operation, QueuePairNumber, Status};

/// The next step of the send queue.
enum Next {
    /// Wait for another event.
    Wait,
    /// Wait until the requests in flight are done.
    Drain,
    /// Continue with the next request.
    Continue,
    /// Open a connection.
    Connect,
    /// Execute the request by a lease.
    LeasedAccess,
    /// Fail the request: the peer's process has exited.
    PeerExited,
}

impl Device {
    /// Starts the requests of a queue pair that can start, and completes those that are done.
    pub(super) fn pump(&mut self, now: Instant, qp: QueuePairNumber) {
        if let Some(mut active) = self.active(qp) {
            active.pump(now);
        }
    }
}

impl ActiveQp<'_> {
    /// Starts the requests that can start, and completes those that are done.
    pub(super) fn pump(&mut self, now: Instant) {
        if self.pair.request.service == Service::UnreliableDatagram {
            self.pump_datagrams(now);
            return self.retire(now);
        }
        loop {
            match self.begin(now) {
                Next::Continue => {}
                Next::Wait => break,
                Next::Drain => {
                    self.retire(now);
                    if self.pair.send.is_in_flight() {
                        break;
                    }
                }
                Next::Connect => {
                    self.connect(now);
                    break;
                }
                Next::PeerExited => {
                    self.fail_peer_exited(now);
                    break;
                }
                Next::LeasedAccess => {
                    if !self.leased_accesses.contains(&self.qp) {
                        self.leased_accesses.push_back(self.qp);
                    }
                    break;
                }
            }
        }
        self.retire(now);
    }

    /// Starts the next request, if it can start.
    #[inline]
    fn begin(&mut self, now: Instant) -> Next {
        let (qp, accessor, max_bytes) = (self.qp, self.accessor(), self.limits.message_bytes);
        let QueuePair { request, state, attributes, send, requester, .. } = &mut *self.pair;
        let idle = *state != State::ReadyToSend || requester.broken;
        if idle || requester.wait_until.is_some() {
            return Next::Wait;
        }
        let (reads, max_reads) = (send.reads, attributes.max_rd_atomic.unwrap_or(0));
        let latest = send.latest().map(Wqe::is_leasable);
        let Some((number, wqe)) = send.upcoming() else { return Next::Wait };
        if let Some(next) = held_back(requester, wqe, reads, max_reads) {
            return next;
        }
        if let Some(outcome) = wqe.outcome {
            // The request failed locally before an RNR NAK rewound the queue to a request before it.
            send.advance();
            requester.broken = outcome != Status::Success;
            return Next::Continue;
        }
        let sends_message = wqe.operation.sends_message();
        let failure = if let Some(status) = execute_locally(self.emtt, accessor, &wqe.operation) {
            wqe.outcome = Some(status);
            (status != Status::Success).then_some(status)
        } else if wqe.operation.is_answered() && max_reads == 0 {
            Some(Status::LocalQpOperation)
        } else {
            check_memory(self.emtt, accessor, wqe, max_bytes)
        };
        if let Some(status) = failure {
            wqe.outcome = Some(status);
            send.advance();
            requester.broken = true;
            return Next::Wait;
        }
        if requester.uses_lease(now, wqe, latest) {
            match latest {
                None => return Next::LeasedAccess,
                // Behind a READ or a WRITE, the request waits until those in flight are done, since later ones can then
                // use leases too. Behind another operation it is sent immediately.
                Some(true) => return Next::Drain,
                Some(false) => {}
            }
        }
        if let Some(flow) = requester.flow.as_ref().filter(|_| sends_message) {
            let token = Token::Request { qp, round: requester.round, number };
            let message = wqe.message(token, request.service);
            if self.carriers.submit(now, flow.connection, message).is_err() {
                return Next::Wait;
            }
        }
        send.advance();
        Next::Continue
    }
}

/// Returns the step that must precede a request, if any. `reads` is the number of READs and atomics without a response,
/// and `max_reads` its limit.
#[inline]
fn held_back(requester: &Requester, wqe: &Wqe, reads: u32, max_reads: u8) -> Option<Next> {
    if wqe.operation.sends_message() {
        if requester.peer_exited {
            return Some(Next::PeerExited);
        }
        if requester.flow.is_none() {
            return Some(Next::Connect);
        }
        if !requester.ready {
            return Some(Next::Wait);
        }
    }
    let waits = wqe.fence && reads > 0
        || wqe.operation.is_answered() && reads >= max_reads.into() && max_reads > 0;
    // A request with a status is skipped while earlier ones are retransmitted.
    (waits && wqe.outcome.is_none()).then_some(Next::Wait)
}

/// Checks the length and the local memory of a request; returns the status with which it fails.
pub(super) fn check_memory(
    emtt: &Emtt,
    accessor: Accessor,
    wqe: &Wqe,
    max_bytes: u32,
) -> Option<Status> {
    let right = if wqe.operation.is_answered() { Right::LocalWrite } else { Right::LocalRead };
    if wqe.length > max_bytes.into()
        || wqe.operation.is_atomic() && wqe.length != u64::from(ATOMIC_BYTES)
    {
        return Some(Status::LocalLength);
    }
    let allowed = wqe
        .sges
        .iter()
        .filter(|sge| sge.length > 0)
        .all(|sge| emtt.translate(accessor, sge.lkey, sge.address, sge.length, right).is_ok());
    (!allowed).then_some(Status::LocalProtection)
}

/// Executes a request that sends no message and returns its status; `None` for one that does.
fn execute_locally(emtt: &mut Emtt, accessor: Accessor, operation: &Operation) -> Option<Status> {
    let done = match operation {
        Operation::LocalInvalidate(key) => emtt.invalidate(accessor, *key),
        Operation::BindWindow { window, key, bind } => {
            emtt.bind(accessor, *window, *key, bind).map(|_| ())
        }
        Operation::Send
        | Operation::SendWithImmediate(_)
        | Operation::SendWithInvalidate(_)
        | Operation::Write(_)
        | Operation::WriteWithImmediate(..)
        | Operation::Read(_)
        | Operation::Atomic { .. } => return None,
    };
    Some(if done.is_ok() { Status::Success } else { Status::MwBind })
}
