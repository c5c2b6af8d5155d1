//! The send queue: requests from posting to completion.

use alloc::collections::VecDeque;

use super::{Done, Wqe};
use crate::work::{Inline, SgeList, total};
use crate::{Data, SendRequest, Status, VerbsError};

/// The send queue. Requests before `next` are in flight: they have been submitted to the transport.
#[derive(Debug)]
pub(crate) struct SendQueue {
    wqes: VecDeque<Wqe>,
    /// Number of the first request, counted from the first ever posted.
    head: u32,
    /// Index of the first request that is not in flight.
    next: usize,
    limit: u32,
    /// PSN of the next request.
    next_psn: u32,
    /// Number of the peer's next receive request, counted from the first.
    next_receive: u64,
    /// Number of READs and atomics without a response.
    pub(crate) reads: u32,
}

/// Returns the PSN after `psn`, modulo 2^24.
pub(crate) const fn after(psn: u32) -> u32 {
    (psn + 1) & 0xff_ffff
}

impl SendQueue {
    pub(crate) const fn new(limit: u32) -> Self {
        Self {
            wqes: VecDeque::new(),
            head: 0,
            next: 0,
            limit,
            next_psn: 0,
            next_receive: 0,
            reads: 0,
        }
    }

    /// Returns the number of queued requests.
    pub(crate) fn len(&self) -> u32 {
        u32::try_from(self.wqes.len()).expect("at most the limit")
    }

    /// Sets the PSN of the next request, and restarts the count of receive requests.
    pub(crate) fn number_from(&mut self, psn: u32) {
        self.next_psn = psn;
        self.next_receive = 0;
    }

    /// Removes all requests.
    pub(crate) fn reset(&mut self) {
        // Earlier datagrams may still be in flight: their numbers are not reused.
        self.head = self.head.wrapping_add(self.len());
        self.wqes.clear();
        (self.next, self.reads) = (0, 0);
    }

    /// Checks that `requests` more requests fit.
    ///
    /// # Errors
    /// [`VerbsError::QueueFull`] if they do not.
    pub(crate) fn check_room(&self, requests: usize) -> Result<(), VerbsError> {
        let limit = self.limit;
        let fits = self.wqes.len() + requests <= limit as usize;
        if fits { Ok(()) } else { Err(VerbsError::QueueFull { limit }) }
    }

    /// Adds a request.
    ///
    /// # Errors
    /// [`VerbsError::QueueFull`] at the limit.
    pub(crate) fn post(&mut self, request: &SendRequest<'_>) -> Result<(), VerbsError> {
        self.check_room(1)?;
        let (sges, inline) = match request.data {
            Data::Gather(sges) => (SgeList::from(sges), None),
            Data::Inline(bytes) => (SgeList::from(&[][..]), Some(Inline::from(bytes))),
        };
        let length = inline.as_ref().map_or_else(|| total(&sges), |bytes| bytes.len() as u64);
        self.wqes.push_back(Wqe {
            wr_id: request.wr_id,
            operation: request.operation,
            sges,
            inline,
            length,
            signaled: request.signaled,
            solicited: request.solicited,
            fence: request.fence,
            datagram: request.datagram,
            psn: 0,
            receive: self.next_receive,
            outcome: None,
        });
        self.next_receive += u64::from(request.operation.takes_receive());
        Ok(())
    }

    /// Returns the first request that is not in flight, and its number; assigns its PSN.
    pub(crate) fn upcoming(&mut self) -> Option<(u32, &mut Wqe)> {
        let number = self.head.wrapping_add(u32::try_from(self.next).expect("at most the limit"));
        let wqe = self.wqes.get_mut(self.next)?;
        wqe.psn = self.next_psn;
        Some((number, wqe))
    }

    /// Returns the request before the upcoming one, if it is in flight.
    pub(crate) fn latest(&self) -> Option<&Wqe> {
        self.wqes.get(self.next.checked_sub(1)?)
    }

    /// Returns the upcoming request and its number, if no request is behind it.
    #[inline]
    pub(crate) fn only_upcoming(&mut self) -> Option<(u32, &mut Wqe)> {
        if self.next + 1 == self.wqes.len() { self.upcoming() } else { None }
    }

    /// Advances past the upcoming request, which was submitted to the transport or is done.
    pub(crate) fn advance(&mut self) {
        let wqe = &self.wqes[self.next];
        self.next_psn =
            if wqe.operation.sends_message() { after(self.next_psn) } else { self.next_psn };
        self.reads += u32::from(wqe.operation.is_answered() && wqe.outcome.is_none());
        self.next += 1;
    }

    /// Completes the upcoming request, which was executed by a lease without a message to the peer.
    pub(crate) fn complete_leased(&mut self) {
        self.wqes[self.next].outcome = Some(Status::Success);
        self.next += 1;
    }

    /// Returns `true` if requests are in flight.
    pub(crate) fn is_in_flight(&self) -> bool {
        self.next > 0
    }

    /// Returns the request with this number, unless it is completed.
    #[inline]
    pub(crate) fn numbered(&mut self, number: u32) -> Option<&mut Wqe> {
        self.wqes.get_mut(number.wrapping_sub(self.head) as usize)
    }

    /// Returns the index of the request in flight with this PSN.
    fn position(&self, psn: u32) -> Option<usize> {
        let first = self.wqes.front()?.psn;
        let distance = |psn: u32| psn.wrapping_sub(first) & 0xff_ffff;
        let in_flight = self.wqes.range(..self.next);
        let wanted = distance(psn);
        let (mut low, mut high) = (0, in_flight.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            let wqe = &self.wqes[middle];
            // A request without a message has the PSN of the next one.
            if distance(wqe.psn) < wanted || wqe.psn == psn && !wqe.operation.sends_message() {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        (low < self.next && self.wqes[low].psn == psn).then_some(low)
    }

    /// Returns the request in flight with this PSN.
    #[inline]
    pub(crate) fn with_psn(&mut self, psn: u32) -> Option<&mut Wqe> {
        let position = self.position(psn)?;
        self.wqes.get_mut(position)
    }

    /// Finishes the requests before this PSN, which the peer acknowledges; a missing response is an error.
    pub(crate) fn acknowledge_before(&mut self, psn: u32) {
        let Some(position) = self.position(psn) else { return };
        for index in 0..position {
            let owed = self.wqes[index].operation.is_answered();
            self.finish(index, if owed { Status::BadResponse } else { Status::Success });
        }
    }

    fn finish(&mut self, index: usize, status: Status) {
        let wqe = &mut self.wqes[index];
        if wqe.outcome.is_none() {
            wqe.outcome = Some(status);
            self.reads -= u32::from(wqe.operation.is_answered() && index < self.next);
        }
    }

    /// Sets the status of the request in flight with this PSN.
    pub(crate) fn finish_psn(&mut self, psn: u32, status: Status) {
        if let Some(position) = self.position(psn) {
            self.finish(position, status);
        }
    }

    /// Sets the status of the request with this number.
    pub(crate) fn finish_number(&mut self, number: u32, status: Status) {
        let index = number.wrapping_sub(self.head) as usize;
        if index < self.wqes.len() {
            self.finish(index, status);
        }
    }

    /// Sets the status of the first request without one; returns `true` if there is one.
    pub(crate) fn finish_first(&mut self, status: Status) -> bool {
        let open = self.wqes.iter().position(|wqe| wqe.outcome.is_none());
        if let Some(index) = open {
            self.finish(index, status);
        }
        open.is_some()
    }

    /// Finishes all requests in flight successfully.
    pub(crate) fn finish_in_flight(&mut self) {
        (0..self.next).for_each(|index| self.finish(index, Status::Success));
    }

    /// Fails the request with this number, and flushes those before it, whose status will not be known.
    pub(crate) fn fail_number(&mut self, number: u32, status: Status) {
        let index = number.wrapping_sub(self.head) as usize;
        if index < self.wqes.len() {
            (0..index).for_each(|earlier| self.finish(earlier, Status::WrFlush));
            self.finish(index, status);
        }
    }

    /// Makes the request with this PSN the upcoming one again: it and later requests were not executed.
    pub(crate) fn rewind(&mut self, psn: u32) {
        let Some(position) = self.position(psn) else { return };
        self.next_psn = psn;
        let answered = |wqe: &&Wqe| wqe.operation.is_answered() && wqe.outcome.is_none();
        let again = self.wqes.range(position..self.next).filter(answered).count();
        self.reads -= u32::try_from(again).expect("at most the limit");
        self.next = position;
    }

    /// Takes the first request if it has a status.
    #[inline]
    pub(crate) fn pop_finished(&mut self) -> Option<(Done, Status)> {
        let status = self.wqes.front()?.outcome?;
        Some((self.pop()?, status))
    }

    /// Takes the first request.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Done> {
        let done = Done::of(self.wqes.front()?);
        // The WQE is large: it is dropped in place, not moved out.
        self.wqes.pop_front();
        self.head = self.head.wrapping_add(1);
        self.next = self.next.saturating_sub(1);
        Some(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Operation, Remote};

    fn queue(operations: &[Operation]) -> SendQueue {
        let mut queue = SendQueue::new(16);
        queue.number_from(0xff_fffe);
        for (number, operation) in (0..).zip(operations) {
            queue.post(&SendRequest::new(number, *operation, Data::Inline(&[]))).unwrap();
        }
        queue
    }

    fn begin(queue: &mut SendQueue, requests: u32) {
        for _ in 0..requests {
            queue.upcoming().unwrap();
            queue.advance();
        }
    }

    const REMOTE: Remote = Remote { address: 0, rkey: 0 };

    #[test]
    fn requests_are_found_by_psn_across_its_wrap_and_past_local_ones() {
        let mut queue = queue(&[
            Operation::Send,
            Operation::LocalInvalidate(0),
            Operation::LocalInvalidate(0),
            Operation::Send,
            Operation::Read(REMOTE),
        ]);
        begin(&mut queue, 5);
        for (psn, wr_id) in [(0xff_fffe, 0), (0xff_ffff, 3), (0, 4)] {
            assert_eq!(queue.with_psn(psn).unwrap().wr_id, wr_id, "{psn:#x}");
        }
        assert!(queue.with_psn(1).is_none());
        assert!(queue.with_psn(0xff_fffd).is_none());
    }

    #[test]
    fn rewinding_uncounts_reads_without_a_response() {
        let mut queue = queue(&[Operation::Read(REMOTE), Operation::Send, Operation::Read(REMOTE)]);
        begin(&mut queue, 3);
        assert_eq!(queue.reads, 2);
        queue.finish_psn(0xff_fffe, Status::Success);
        queue.rewind(0xff_ffff);
        assert_eq!(queue.reads, 0);
        let (number, wqe) = queue.upcoming().unwrap();
        assert_eq!((number, wqe.psn), (1, 0xff_ffff));
    }

    #[test]
    fn a_request_executed_by_a_lease_uses_no_psn() {
        let mut queue = queue(&[Operation::Write(REMOTE), Operation::Send]);
        queue.upcoming().unwrap();
        queue.complete_leased();
        assert_eq!(queue.pop_finished().unwrap().1, Status::Success);
        assert_eq!(queue.upcoming().unwrap().1.psn, 0xff_fffe);
    }

    #[test]
    fn the_limit_holds() {
        let mut queue = SendQueue::new(1);
        let request = SendRequest::new(0, Operation::Send, Data::Inline(&[0; 2]));
        assert_eq!(queue.post(&request), Ok(()));
        assert_eq!(queue.post(&request), Err(VerbsError::QueueFull { limit: 1 }));
    }

    /// All 2^24.
    #[test]
    fn every_psn_has_one_that_follows_it() {
        for psn in 0..=0xff_ffff {
            let next = after(psn);
            assert!(next <= 0xff_ffff && next.wrapping_sub(psn) & 0xff_ffff == 1);
        }
    }
}
