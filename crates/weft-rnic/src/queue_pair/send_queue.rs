//! Send requests, from when they are posted until they are completed.

use alloc::collections::VecDeque;

use weft_transport::Message;
use weft_wire::{AtomicOperands, RdmaHeader, RdmaOperation, U24};

use super::{Service, Token};
use crate::completion::WorkKind;
use crate::work::{Inline, Pieces, total};
use crate::{Data, Datagram, Operation, Remote, SendRequest, Status, VerbsError};

/// Bytes an atomic works on.
pub(crate) const ATOMIC: u32 = 8;

/// A posted send request.
#[derive(Clone, Debug)]
pub(crate) struct Wqe {
    pub(crate) wr_id: u64,
    pub(crate) operation: Operation,
    pub(crate) sges: Pieces,
    /// Payload that was taken when the request was posted.
    pub(crate) inline: Option<Inline>,
    pub(crate) length: u64,
    pub(crate) signaled: bool,
    pub(crate) solicited: bool,
    pub(crate) fence: bool,
    /// Where a datagram goes.
    pub(crate) datagram: Option<Datagram>,
    /// Number of the request on the wire. One that stays here has the number of the next.
    pub(crate) psn: u32,
    /// Which of the peer's receive requests it takes, counted from the first.
    receive: u64,
    /// What became of it, once that is known.
    pub(crate) outcome: Option<Status>,
}

/// What a request that is taken from the queue leaves behind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    pub(crate) wr_id: u64,
    pub(crate) kind: WorkKind,
    pub(crate) signaled: bool,
    /// Bytes that came with the answer.
    pub(crate) length: u64,
    pub(crate) outcome: Option<Status>,
}

impl Done {
    #[inline]
    fn of(wqe: &Wqe) -> Self {
        let Wqe { wr_id, signaled, outcome, operation, .. } = wqe;
        let length = if operation.is_answered() { wqe.length } else { 0 };
        let (wr_id, signaled, outcome, kind) = (*wr_id, *signaled, *outcome, operation.kind());
        Self { wr_id, kind, signaled, length, outcome }
    }
}

/// The send queue. Requests before `next` have been handed to the transport.
#[derive(Debug)]
pub(crate) struct SendQueue {
    wqes: VecDeque<Wqe>,
    /// Number of the first of them, counted from the first that was ever posted.
    head: u32,
    next: usize,
    limit: u32,
    next_psn: u32,
    next_receive: u64,
    /// READs and atomics without an answer.
    pub(crate) reads: u32,
}

/// The next PSN.
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

    /// Requests that wait or are under way.
    pub(crate) fn len(&self) -> u32 {
        u32::try_from(self.wqes.len()).expect("at most the limit")
    }

    /// Numbers what is posted from here on anew.
    pub(crate) fn number_from(&mut self, psn: u32) {
        self.next_psn = psn;
        self.next_receive = 0;
    }

    /// Forgets everything.
    pub(crate) fn reset(&mut self) {
        // Datagrams of before may still be on their way: their numbers stay theirs.
        self.head = self.head.wrapping_add(self.len());
        self.wqes.clear();
        (self.next, self.reads) = (0, 0);
    }

    /// Whether there is room for so many more.
    pub(crate) fn admit(&self, requests: usize) -> Result<(), VerbsError> {
        let limit = self.limit;
        let fits = self.wqes.len() + requests <= limit as usize;
        if fits { Ok(()) } else { Err(VerbsError::QueueFull { limit }) }
    }

    pub(crate) fn post(&mut self, request: &SendRequest<'_>) -> Result<(), VerbsError> {
        self.admit(1)?;
        let (sges, inline) = match request.data {
            Data::Gather(sges) => (Pieces::from(sges), None),
            Data::Inline(bytes) => (Pieces::from(&[][..]), Some(Inline::from(bytes))),
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
            psn: self.next_psn,
            receive: self.next_receive,
            outcome: None,
        });
        self.next_psn =
            if request.operation.travels() { after(self.next_psn) } else { self.next_psn };
        self.next_receive += u64::from(request.operation.takes_receive());
        Ok(())
    }

    /// The first request that was not handed to the transport, and its number.
    pub(crate) fn upcoming(&mut self) -> Option<(u32, &mut Wqe)> {
        let number = self.head.wrapping_add(u32::try_from(self.next).expect("at most the limit"));
        self.wqes.get_mut(self.next).map(|wqe| (number, wqe))
    }

    /// The upcoming request was handed to the transport, or done.
    pub(crate) fn advance(&mut self) {
        let wqe = &self.wqes[self.next];
        self.reads += u32::from(wqe.operation.is_answered() && wqe.outcome.is_none());
        self.next += 1;
    }

    /// Whether requests were handed over and are not completed.
    pub(crate) fn is_under_way(&self) -> bool {
        self.next > 0
    }

    /// The request with this number, while it is not completed.
    #[inline]
    pub(crate) fn numbered(&mut self, number: u32) -> Option<&mut Wqe> {
        self.wqes.get_mut(number.wrapping_sub(self.head) as usize)
    }

    /// Index of the request under way with this PSN.
    fn position(&self, psn: u32) -> Option<usize> {
        let first = self.wqes.front()?.psn;
        let distance = |psn: u32| psn.wrapping_sub(first) & 0xff_ffff;
        let under_way = self.wqes.range(..self.next);
        let wanted = distance(psn);
        let (mut low, mut high) = (0, under_way.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            let wqe = &self.wqes[middle];
            // A request that stays here has the PSN of the next one.
            if distance(wqe.psn) < wanted || wqe.psn == psn && !wqe.operation.travels() {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        (low < self.next && self.wqes[low].psn == psn).then_some(low)
    }

    /// The request under way with this PSN.
    #[inline]
    pub(crate) fn with_psn(&mut self, psn: u32) -> Option<&mut Wqe> {
        let position = self.position(psn)?;
        self.wqes.get_mut(position)
    }

    /// The peer has seen everything before this PSN; an answer that is still owed is an error.
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

    /// Sets what became of the request under way with this PSN.
    pub(crate) fn finish_psn(&mut self, psn: u32, status: Status) {
        if let Some(position) = self.position(psn) {
            self.finish(position, status);
        }
    }

    /// Sets what became of the request with this number.
    pub(crate) fn finish_number(&mut self, number: u32, status: Status) {
        let index = number.wrapping_sub(self.head) as usize;
        if index < self.wqes.len() {
            self.finish(index, status);
        }
    }

    /// Sets what became of the first request of which that is not known; whether there is one.
    pub(crate) fn finish_first(&mut self, status: Status) -> bool {
        let open = self.wqes.iter().position(|wqe| wqe.outcome.is_none());
        if let Some(index) = open {
            self.finish(index, status);
        }
        open.is_some()
    }

    /// Everything under way counts as done.
    pub(crate) fn finish_under_way(&mut self) {
        (0..self.next).for_each(|index| self.finish(index, Status::Success));
    }

    /// The request with this number failed; what became of those before it will not be known.
    pub(crate) fn fail_number(&mut self, number: u32, status: Status) {
        let index = number.wrapping_sub(self.head) as usize;
        if index < self.wqes.len() {
            (0..index).for_each(|earlier| self.finish(earlier, Status::WrFlush));
            self.finish(index, status);
        }
    }

    /// Begins again with the request of this PSN: nothing from there on was carried out.
    pub(crate) fn rewind(&mut self, psn: u32) {
        let Some(position) = self.position(psn) else { return };
        let answered = |wqe: &&Wqe| wqe.operation.is_answered() && wqe.outcome.is_none();
        let again = self.wqes.range(position..self.next).filter(answered).count();
        self.reads -= u32::try_from(again).expect("at most the limit");
        self.next = position;
    }

    /// Takes the first request if it is known what became of it.
    #[inline]
    pub(crate) fn pop_finished(&mut self) -> Option<(Done, Status)> {
        let status = self.wqes.front()?.outcome?;
        Some((self.pop()?, status))
    }

    /// Takes the first request.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Done> {
        let done = Done::of(self.wqes.front()?);
        // Dropped where it is: it is large, and nothing else of it is needed.
        self.wqes.pop_front();
        self.head = self.head.wrapping_add(1);
        self.next = self.next.saturating_sub(1);
        Some(done)
    }
}

impl Operation {
    /// Whether it goes to the peer.
    pub(crate) const fn travels(&self) -> bool {
        !matches!(self, Self::LocalInvalidate(_) | Self::BindWindow { .. })
    }

    /// Whether the peer answers with data.
    pub(crate) const fn is_answered(&self) -> bool {
        matches!(self, Self::Read(_) | Self::FetchAdd { .. } | Self::CompareSwap { .. })
    }

    pub(crate) const fn is_atomic(&self) -> bool {
        matches!(self, Self::FetchAdd { .. } | Self::CompareSwap { .. })
    }

    /// Whether it takes one of the peer's receive requests.
    const fn takes_receive(&self) -> bool {
        matches!(
            self,
            Self::Send
                | Self::SendWithImmediate(_)
                | Self::SendWithInvalidate(_)
                | Self::WriteWithImmediate(..)
        )
    }

    /// What it is on the wire; `None` where the service does not have it.
    pub(crate) const fn on_the_wire(&self, service: Service) -> Option<RdmaOperation> {
        use Service::{
            ReliableConnected as Rc, UnreliableConnected as Uc, UnreliableDatagram as Ud,
        };
        Some(match (self, service) {
            (Self::Send, Rc) => RdmaOperation::RcSend,
            (Self::Send, Uc) => RdmaOperation::UcSend,
            (Self::Send, Ud) => RdmaOperation::UdSend,
            (Self::SendWithImmediate(_), Rc) => RdmaOperation::RcSendWithImmediate,
            (Self::SendWithImmediate(_), Uc) => RdmaOperation::UcSendWithImmediate,
            (Self::SendWithImmediate(_), Ud) => RdmaOperation::UdSendWithImmediate,
            (Self::SendWithInvalidate(_), Rc) => RdmaOperation::RcSendWithInvalidate,
            (Self::Write(_), Rc) => RdmaOperation::RcWrite,
            (Self::Write(_), Uc) => RdmaOperation::UcWrite,
            (Self::WriteWithImmediate(..), Rc) => RdmaOperation::RcWriteWithImmediate,
            (Self::WriteWithImmediate(..), Uc) => RdmaOperation::UcWriteWithImmediate,
            (Self::Read(_), Rc) => RdmaOperation::RcReadRequest,
            (Self::FetchAdd { .. }, Rc) => RdmaOperation::RcFetchAdd,
            (Self::CompareSwap { .. }, Rc) => RdmaOperation::RcCompareSwap,
            _ => return None,
        })
    }

    /// What its completion says it was.
    pub(crate) const fn kind(&self) -> WorkKind {
        match self {
            Self::Send | Self::SendWithImmediate(_) | Self::SendWithInvalidate(_) => WorkKind::Send,
            Self::Write(_) | Self::WriteWithImmediate(..) => WorkKind::Write,
            Self::Read(_) => WorkKind::Read,
            Self::FetchAdd { .. } => WorkKind::FetchAdd,
            Self::CompareSwap { .. } => WorkKind::CompareSwap,
            Self::LocalInvalidate(_) => WorkKind::LocalInvalidate,
            Self::BindWindow { .. } => WorkKind::BindWindow,
        }
    }

    const fn remote(&self) -> Option<Remote> {
        match self {
            Self::Write(remote)
            | Self::WriteWithImmediate(remote, _)
            | Self::Read(remote)
            | Self::FetchAdd { remote, .. }
            | Self::CompareSwap { remote, .. } => Some(*remote),
            _ => None,
        }
    }
}

impl Wqe {
    /// Bytes that travel with the request.
    pub(crate) fn payload(&self) -> u64 {
        if self.operation.is_answered() { 0 } else { self.length }
    }

    /// The message that carries it.
    #[inline]
    pub(crate) fn message(&self, token: Token, service: Service) -> Message {
        let operation = self.operation.on_the_wire(service).expect("checked when it was posted");
        let length = u32::try_from(self.payload()).expect("checked when it was begun");
        Message { token: token.pack(), opcode: operation as u8, tag: 0, length }
    }

    /// What its packets say beside their place in the message.
    pub(crate) fn header(&self, destination_qp: u32) -> RdmaHeader {
        let operands = match self.operation {
            Operation::FetchAdd { add, .. } => {
                Some(AtomicOperands { swap_or_add: add, compare: 0 })
            }
            Operation::CompareSwap { compare, swap, .. } => {
                Some(AtomicOperands { swap_or_add: swap, compare })
            }
            _ => None,
        };
        let immediate = match self.operation {
            Operation::SendWithImmediate(word)
            | Operation::SendWithInvalidate(word)
            | Operation::WriteWithImmediate(_, word) => word,
            Operation::Read(_) => u32::try_from(self.length).expect("checked when it was begun"),
            _ => 0,
        };
        let remote = self.operation.remote();
        RdmaHeader {
            solicited: self.solicited,
            destination_qp: U24::truncate(destination_qp),
            psn: U24::truncate(self.psn),
            address: remote.map_or(self.receive, |remote| remote.address),
            key: remote.map_or(0, |remote| remote.rkey),
            immediate,
            operands,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(operations: &[Operation]) -> SendQueue {
        let mut queue = SendQueue::new(16);
        queue.number_from(0xff_fffe);
        for (number, operation) in (0..).zip(operations) {
            queue.post(&SendRequest::new(number, *operation, Data::Inline(&[]))).unwrap();
        }
        queue
    }

    const REMOTE: Remote = Remote { address: 0, rkey: 0 };

    #[test]
    fn requests_are_found_by_psn_across_its_wrap_and_past_those_that_stay() {
        let mut queue = queue(&[
            Operation::Send,
            Operation::LocalInvalidate(0),
            Operation::LocalInvalidate(0),
            Operation::Send,
            Operation::Read(REMOTE),
        ]);
        (0..5).for_each(|_| queue.advance());
        for (psn, wr_id) in [(0xff_fffe, 0), (0xff_ffff, 3), (0, 4)] {
            assert_eq!(queue.with_psn(psn).unwrap().wr_id, wr_id, "{psn:#x}");
        }
        assert!(queue.with_psn(1).is_none());
        assert!(queue.with_psn(0xff_fffd).is_none());
    }

    #[test]
    fn rewinding_forgets_reads_that_nobody_answered() {
        let mut queue = queue(&[Operation::Read(REMOTE), Operation::Send, Operation::Read(REMOTE)]);
        (0..3).for_each(|_| queue.advance());
        assert_eq!(queue.reads, 2);
        queue.finish_psn(0xff_fffe, Status::Success);
        queue.rewind(0xff_ffff);
        assert_eq!(queue.reads, 0);
        assert_eq!(queue.upcoming().unwrap().0, 1);
    }

    #[test]
    fn the_limit_holds() {
        let mut queue = SendQueue::new(1);
        let request = SendRequest::new(0, Operation::Send, Data::Inline(&[0; 2]));
        assert_eq!(queue.post(&request), Ok(()));
        assert_eq!(queue.post(&request), Err(VerbsError::QueueFull { limit: 1 }));
    }
}
