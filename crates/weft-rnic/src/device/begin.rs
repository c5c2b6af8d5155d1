//! How send requests begin: in order, as soon as their turn has come.

use weft_units::Instant;

use super::Device;
use super::carriers::Carriers;
use crate::memory::{Accessor, Emtt, Right};
use crate::queue_pair::{ATOMIC, QueuePair, Requester, Service, State, Token, Wqe};
use crate::{Operation, QueuePairNumber, Status};

/// What may be done with the next request.
enum Next {
    /// Nothing before something else happens.
    Wait,
    /// Nothing before those before it are done.
    Hold,
    /// It was dealt with; look at the next.
    Go,
    /// There is no connection to send it over.
    Connect,
    /// A lease allows it: it is carried out there, from here.
    Reach,
    /// Nobody is there to be asked.
    Fail,
}

impl Device {
    /// Begins every request that may begin.
    pub(super) fn pump(&mut self, now: Instant, qp: QueuePairNumber) {
        let Some(pair) = self.qps.get_mut(qp.0) else { return };
        if pair.request.service == Service::UnreliableDatagram {
            self.pump_datagrams(now, qp);
        } else {
            let most = self.limits.message_bytes;
            let (emtt, carriers) = (&mut self.emtt, &mut self.carriers);
            let stopped_by = loop {
                match begin(now, qp, pair, emtt, carriers, most) {
                    Next::Go => {}
                    other => break other,
                }
            };
            let held = matches!(stopped_by, Next::Hold);
            match stopped_by {
                Next::Connect => self.connect(now, qp),
                Next::Fail => self.fail_orphan(now, qp),
                Next::Reach if self.reaching.contains(&qp) => {}
                Next::Reach => self.reaching.push_back(qp),
                Next::Wait | Next::Hold | Next::Go => {}
            }
            if held {
                self.retire(now, qp);
                if self.qps.get(qp.0).is_some_and(|pair| !pair.send.is_under_way()) {
                    return self.pump(now, qp);
                }
            }
        }
        self.retire(now, qp);
    }
}

/// Begins the next request, if its turn has come.
#[inline]
fn begin(
    now: Instant,
    qp: QueuePairNumber,
    pair: &mut QueuePair,
    emtt: &mut Emtt,
    carriers: &mut Carriers,
    most: u32,
) -> Next {
    let requester = &mut pair.requester;
    let idle = pair.state != State::ReadyToSend || requester.broken;
    if idle || requester.wait_until.is_some() {
        return Next::Wait;
    }
    let who = Accessor { domain: pair.request.domain, qp: qp.0 };
    let (reads, at_most) = (pair.send.reads, pair.attributes.max_rd_atomic.unwrap_or(0));
    let latest = pair.send.latest().map(Wqe::only_reaches);
    let Some((number, wqe)) = pair.send.upcoming() else { return Next::Wait };
    if let Some(next) = held_back(requester, wqe, reads, at_most) {
        return next;
    }
    if let Some(outcome) = wqe.outcome {
        // Those before it are being sent again.
        pair.send.advance();
        requester.broken = outcome != Status::Success;
        return Next::Go;
    }
    let travels = wqe.operation.travels();
    let failure = if let Some(status) = execute_locally(emtt, who, &wqe.operation) {
        wqe.outcome = Some(status);
        (status != Status::Success).then_some(status)
    } else if wqe.operation.is_answered() && at_most == 0 {
        Some(Status::LocalQpOperation)
    } else {
        check_memory(emtt, who, wqe, most)
    };
    if let Some(status) = failure {
        wqe.outcome = Some(status);
        pair.send.advance();
        requester.broken = true;
        return Next::Wait;
    }
    if requester.goes_by_lease(now, wqe, latest) {
        match latest {
            None => return Next::Reach,
            // It waits, as do those behind it, for soon all can go that way. What follows a SEND goes after it at once.
            Some(true) => return Next::Hold,
            Some(false) => {}
        }
    }
    if let Some(flow) = requester.flow.as_ref().filter(|_| travels) {
        let token = Token::Request { qp, round: requester.round, number };
        let message = wqe.message(token, pair.request.service);
        if carriers.submit(now, flow.connection, message).is_err() {
            return Next::Wait;
        }
    }
    pair.send.advance();
    Next::Go
}

/// What is to come before a request, while so many READs and atomics wait for answers.
#[inline]
fn held_back(requester: &Requester, wqe: &Wqe, reads: u32, at_most: u8) -> Option<Next> {
    if wqe.operation.travels() {
        if requester.orphaned {
            return Some(Next::Fail);
        }
        if requester.flow.is_none() {
            return Some(Next::Connect);
        }
        if !requester.ready {
            return Some(Next::Wait);
        }
    }
    let waits = wqe.fence && reads > 0
        || wqe.operation.is_answered() && reads >= at_most.into() && at_most > 0;
    // What failed already is passed over, while those before it are sent again.
    (waits && wqe.outcome.is_none()).then_some(Next::Wait)
}

/// Why a request cannot begin, from its length and its own memory.
pub(super) fn check_memory(emtt: &Emtt, who: Accessor, wqe: &Wqe, most: u32) -> Option<Status> {
    let right = if wqe.operation.is_answered() { Right::LocalWrite } else { Right::LocalRead };
    if wqe.length > most.into() || wqe.operation.is_atomic() && wqe.length != ATOMIC.into() {
        return Some(Status::LocalLength);
    }
    let allowed = wqe
        .sges
        .iter()
        .filter(|sge| sge.length > 0)
        .all(|sge| emtt.translate(who, sge.lkey, sge.address, sge.length, right).is_ok());
    (!allowed).then_some(Status::LocalProtection)
}

/// Executes a request that sends no message and returns its status; `None` for one that does.
fn execute_locally(emtt: &mut Emtt, who: Accessor, operation: &Operation) -> Option<Status> {
    let done = match operation {
        Operation::LocalInvalidate(key) => emtt.invalidate(who, *key),
        Operation::BindWindow { window, key, bind } => {
            emtt.bind(who, *window, *key, bind).map(|_| ())
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
