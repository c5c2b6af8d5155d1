//! Checks of completions against the model.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::case::Case;
use super::pool::{SLOT, memory_of};
use super::side::{Condition, InFlight, Posted, Side, result_slot};
use super::windows::{Use, WindowState};
use super::{Checked, Violation, count, ensure};
use crate::{Completion, Status, WorkKind};

const fn status_name(status: Status) -> &'static str {
    match status {
        Status::Success => "success",
        Status::LocalLength => "local length error",
        Status::LocalQpOperation => "local QP operation error",
        Status::LocalProtection => "local protection error",
        Status::WrFlush => "flushed",
        Status::MwBind => "window bind error",
        Status::BadResponse => "bad response",
        Status::LocalAccess => "local access error",
        Status::RemoteInvalidRequest => "remote invalid request",
        Status::RemoteAccess => "remote access error",
        Status::RemoteOperation => "remote operation error",
        Status::RetryExceeded => "retries exceeded",
        Status::RnrRetryExceeded => "RNR retries exceeded",
        Status::RemoteAborted => "remote aborted",
        Status::Fatal => "fatal",
        Status::General => "general",
    }
}

impl Case {
    /// Takes and checks all completions.
    pub(super) fn check_completions(&mut self) -> Checked {
        for host in 0..self.hosts.len() {
            let cq = self.hosts[host].cq;
            loop {
                let polled = self.network.hosts[host].device.poll_cq(cq);
                let polled = polled.map_err(|error| Violation(format!("host {host}: {error}")))?;
                let Some(completion) = polled else { break };
                count(&mut self.tally.outcomes, status_name(completion.status));
                match self.by_qp.get(&(host, completion.qp)).copied() {
                    Some(at) => self.check_completion(at, &completion)?,
                    None => self.check_datagram(host, &completion)?,
                }
            }
        }
        Ok(())
    }

    fn check_completion(&mut self, at: usize, completion: &Completion) -> Checked {
        match completion.kind {
            WorkKind::Receive | WorkKind::ReceiveWriteWithImmediate => {
                self.check_receive(at, completion)
            }
            _ => self.check_send(at, completion),
        }
    }

    /// Describes an end and a completion, for violations.
    pub(super) fn about(&self, at: usize, completion: &Completion) -> String {
        let Side { end, condition, reliable, .. } = &self.sides[at];
        let service = if *reliable { "RC" } else { "UC" };
        let (host, qp) = (end.host, end.qp.0);
        format!("host {host}, {service} queue pair {qp:#x} ({condition:?}): {completion:?}")
    }

    fn check_send(&mut self, at: usize, completion: &Completion) -> Checked {
        loop {
            let Some(posted) = self.sides[at].posted.pop_front() else {
                return Err(Violation(format!("nobody posted: {}", self.about(at, completion))));
            };
            if posted.wr_id == completion.wr_id {
                return match completion.status {
                    Status::Success => self.check_success(at, posted, completion),
                    _ => self.check_failure(at, posted, completion),
                };
            }
            ensure(!posted.signaled, || {
                format!("{} was passed over: {}", posted.wr_id, self.about(at, completion))
            })?;
            self.check_success(at, posted, completion)?;
        }
    }

    fn check_success(&mut self, at: usize, posted: Posted, completion: &Completion) -> Checked {
        let about = || format!("request {} of {}", posted.wr_id, self.about(at, completion));
        let (me, peer) = (&self.sides[at], &self.sides[at ^ 1]);
        ensure(!me.failed, || format!("success after a failure: {}", about()))?;
        ensure(posted.fails.is_none(), || format!("{:?} expected: {}", posted.fails, about()))?;
        if posted.wr_id == completion.wr_id {
            let length = posted.answer.as_ref().map_or(0, Vec::len);
            let is_as_posted =
                (posted.kind, length) == (completion.kind, completion.length as usize);
            ensure(is_as_posted, || format!("{:?}, {length} bytes: {}", posted.kind, about()))?;
        }
        if let Some(effect) = posted.effect.as_ref().filter(|_| !me.may_be_lost()) {
            let memory = memory_of(&self.network, peer.end.host, peer.end.owner);
            ensure(peer.image.shows(effect, memory), || {
                format!("it is not at {:?}: {}", effect.range(), about())
            })?;
        }
        if let Some(answer) = &posted.answer {
            let slot = result_slot(posted.wr_id);
            let memory = memory_of(&self.network, me.end.host, me.end.owner);
            let got = &memory[slot..slot + answer.len()];
            ensure(got == answer, || format!("it brought wrong bytes: {}", about()))?;
            self.sides[at].image.change(slot, answer);
        }
        match posted.window {
            Some(Use::Through(index)) => self.sides[at ^ 1].windows[index].users -= 1,
            Some(Use::Invalidate(index)) => {
                self.sides[at ^ 1].windows[index].state = WindowState::Idle
            }
            Some(Use::Bind(index)) => self.sides[at].windows[index].state = WindowState::Bound,
            Some(Use::Unbind(index)) => self.sides[at].windows[index].state = WindowState::Idle,
            None => {}
        }
        Ok(())
    }

    fn check_failure(&mut self, at: usize, posted: Posted, completion: &Completion) -> Checked {
        let status = completion.status;
        let about = || self.about(at, completion);
        let me = &self.sides[at];
        let may_be = match status {
            Status::WrFlush => me.condition != Condition::Healthy,
            // The peer failed, or cannot be reached.
            Status::RetryExceeded => {
                me.reliable
                    && !me.failed
                    && (me.condition == Condition::Partitioned || me.peer_may_fail)
            }
            status => posted.fails == Some(status),
        };
        ensure(may_be, || format!("{:?} expected: {}", posted.fails, about()))?;
        let me = &mut self.sides[at];
        me.failed = true;
        if posted.fails == Some(status) {
            me.expected_status = None;
        }
        me.flushed.push(posted);
        Ok(())
    }

    fn check_receive(&mut self, at: usize, completion: &Completion) -> Checked {
        let pool = self.sides[at].pool;
        let Some(slot) = self.pools[pool].take(completion.wr_id) else {
            let about = self.about(at, completion);
            return Err(Violation(format!("not that receive request: {about}")));
        };
        if completion.status != Status::Success {
            let me = &mut self.sides[at];
            let named = me.receive_fails.take_if(|status| *status == completion.status).is_some();
            let flushed =
                completion.status == Status::WrFlush && me.condition != Condition::Healthy;
            // The queue pair is in error: further requests would be flushed too.
            self.pools[pool].starved |= flushed && !self.pools[pool].is_shared();
            return ensure(named || flushed, || {
                format!("a receive request failed: {}", self.about(at, completion))
            });
        }
        let in_flight = loop {
            let Some(in_flight) = self.sides[at].in_flight.pop_front() else {
                return Err(Violation(format!("nobody sent: {}", self.about(at, completion))));
            };
            self.pools[self.sides[at].pool].in_flight -= 1;
            if in_flight.certain
                || in_flight.is_shown_by(completion) && self.arrived(at, &in_flight, slot)
            {
                break in_flight;
            }
        };
        let about = || self.about(at, completion);
        ensure(in_flight.is_shown_by(completion), || {
            format!("{:?}, {} bytes were sent: {}", in_flight.extra, in_flight.length, about())
        })?;
        ensure(self.arrived(at, &in_flight, slot), || format!("wrong bytes arrived: {}", about()))?;
        let Self { sides, pools, .. } = self;
        if let Some(data) = &in_flight.data {
            pools[sides[at].pool].image.change(slot * SLOT, data);
        }
        Ok(())
    }

    /// Returns `true` if the bytes of a message that consumed a receive request are in place.
    fn arrived(&self, at: usize, in_flight: &InFlight, slot: usize) -> bool {
        let me = &self.sides[at];
        let pool = &self.pools[me.pool];
        let at_slot = slot * SLOT;
        if let Some(data) = &in_flight.data {
            return pool.memory(&self.network)[at_slot..at_slot + data.len()] == **data;
        }
        let memory = memory_of(&self.network, me.end.host, me.end.owner);
        in_flight.effect.as_ref().is_none_or(|effect| me.image.shows(effect, memory))
    }
}

impl InFlight {
    fn is_shown_by(&self, completion: &Completion) -> bool {
        let kind = match self.data {
            Some(_) => WorkKind::Receive,
            None => WorkKind::ReceiveWriteWithImmediate,
        };
        (completion.kind, completion.length as usize, completion.extra)
            == (kind, self.length, self.extra)
    }
}
