//! Completion queues: what became of work requests, in order; and whom to wake.

use alloc::collections::VecDeque;

use crate::{Context, Event, QueuePairNumber};

/// Names a completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CompletionQueue(pub u32);

/// What became of a work request (`enum ibv_wc_status`, with its numbers).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Status {
    /// Done.
    Success = 0,
    /// More bytes than there is room for.
    LocalLength = 1,
    /// The queue pair cannot do that.
    LocalQpOperation = 2,
    /// The work request's own memory is not registered for it.
    LocalProtection = 4,
    /// The queue pair is in error; the request was not carried out, or nobody knows.
    WrFlush = 5,
    /// The window cannot be bound, or the key not invalidated.
    MwBind = 6,
    /// The peer's answer makes no sense.
    BadResponse = 7,
    /// The local memory of an immediate's receive request is not accessible.
    LocalAccess = 8,
    /// The peer: such a request cannot be.
    RemoteInvalidRequest = 9,
    /// The peer: that memory is not for you.
    RemoteAccess = 10,
    /// The peer: it could not be carried out here.
    RemoteOperation = 11,
    /// The peer does not answer.
    RetryExceeded = 12,
    /// The peer has had no receive request for too long.
    RnrRetryExceeded = 13,
    /// The peer gave up.
    RemoteAborted = 16,
    /// The device broke.
    Fatal = 19,
    /// Something else.
    General = 21,
}

/// What was completed (`enum ibv_wc_opcode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WorkKind {
    /// A SEND.
    Send,
    /// An RDMA WRITE.
    Write,
    /// An RDMA READ.
    Read,
    /// A compare-and-swap.
    CompareSwap,
    /// A fetch-and-add.
    FetchAdd,
    /// A bind of a memory window.
    BindWindow,
    /// A local invalidate.
    LocalInvalidate,
    /// A receive request that a SEND took.
    Receive,
    /// A receive request that an RDMA WRITE with immediate took.
    ReceiveWriteWithImmediate,
}

/// What came with a message besides its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Extra {
    /// Immediate data, in the order of its bytes on the wire.
    Immediate(u32),
    /// A key that was invalidated.
    Invalidated(u32),
}

/// Where a datagram came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Source {
    /// The queue pair that sent it.
    pub qp: QueuePairNumber,
    /// Its host's address and receive port.
    pub address: core::net::SocketAddr,
}

/// What became of one work request (`struct ibv_wc`). Of one that failed, `wr_id`, `status` and `qp`
/// say something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Completion {
    /// The request's own number.
    pub wr_id: u64,
    /// What became of it.
    pub status: Status,
    /// What it was.
    pub kind: WorkKind,
    /// Bytes received or read.
    pub length: u32,
    /// What came besides.
    pub extra: Option<Extra>,
    /// The queue pair.
    pub qp: QueuePairNumber,
    /// Where a datagram came from.
    pub source: Option<Source>,
}

/// Which completion wakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arm {
    /// The next one.
    Next,
    /// The next one that is solicited or failed.
    Solicited,
}

#[derive(Debug)]
pub(crate) struct Cq {
    pub(crate) context: Context,
    entries: VecDeque<Completion>,
    capacity: u32,
    armed: Option<Arm>,
    pub(crate) overrun: bool,
    /// Queue pairs that complete here.
    pub(crate) users: u32,
}

impl Cq {
    pub(crate) const fn new(context: Context, capacity: u32) -> Self {
        let entries = VecDeque::new();
        Self { context, entries, capacity, armed: None, overrun: false, users: 0 }
    }

    /// Adds a completion; false when there was no room and the queue is no more to be trusted.
    pub(crate) fn push(
        &mut self,
        name: CompletionQueue,
        completion: Completion,
        solicited: bool,
        events: &mut VecDeque<Event>,
    ) -> bool {
        if self.overrun || self.entries.len() >= self.capacity as usize {
            if !self.overrun {
                self.overrun = true;
                events.push_back(Event::CqError { cq: name });
            }
            return false;
        }
        self.entries.push_back(completion);
        let wakes = match self.armed {
            Some(Arm::Next) => true,
            Some(Arm::Solicited) => solicited || completion.status != Status::Success,
            None => false,
        };
        if wakes {
            self.armed = None;
            events.push_back(Event::Completion { cq: name });
        }
        true
    }

    pub(crate) fn pop(&mut self) -> Option<Completion> {
        self.entries.pop_front()
    }

    /// The stronger of two requests holds: the next completion rather than a solicited one.
    pub(crate) fn arm(&mut self, arm: Arm) {
        if self.armed != Some(Arm::Next) {
            self.armed = Some(arm);
        }
    }

    pub(crate) fn resize(&mut self, capacity: u32) -> bool {
        let fits = self.entries.len() <= capacity as usize;
        if fits {
            self.capacity = capacity;
        }
        fits
    }

    /// Drops what a queue pair that is gone completed.
    pub(crate) fn forget(&mut self, qp: QueuePairNumber) {
        self.entries.retain(|completion| completion.qp != qp);
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    const NAME: CompletionQueue = CompletionQueue(5);

    fn completion(status: Status) -> Completion {
        Completion {
            wr_id: 1,
            status,
            kind: WorkKind::Send,
            length: 0,
            extra: None,
            qp: QueuePairNumber(9),
            source: None,
        }
    }

    #[test]
    fn an_armed_queue_wakes_once_for_what_it_was_armed_for() {
        let mut cq = Cq::new(Context(1), 100);
        let mut events = VecDeque::new();
        let mut woken = |cq: &mut Cq, status, solicited| {
            assert!(cq.push(NAME, completion(status), solicited, &mut events));
            events.drain(..).collect::<Vec<_>>() == [Event::Completion { cq: NAME }]
        };
        assert!(!woken(&mut cq, Status::Success, true), "not armed");
        cq.arm(Arm::Solicited);
        assert!(!woken(&mut cq, Status::Success, false));
        assert!(woken(&mut cq, Status::Success, true));
        assert!(!woken(&mut cq, Status::Success, true), "once");
        cq.arm(Arm::Solicited);
        assert!(woken(&mut cq, Status::WrFlush, false), "failures are solicited");
        cq.arm(Arm::Next);
        cq.arm(Arm::Solicited);
        assert!(woken(&mut cq, Status::Success, false), "the stronger request holds");
    }

    #[test]
    fn a_full_queue_is_in_error_for_good_and_says_so_once() {
        let mut cq = Cq::new(Context(1), 1);
        let mut events = VecDeque::new();
        assert!(cq.push(NAME, completion(Status::Success), false, &mut events));
        assert!(!cq.push(NAME, completion(Status::Success), false, &mut events));
        assert!(cq.pop().is_some());
        assert!(!cq.push(NAME, completion(Status::Success), false, &mut events));
        assert_eq!(events, [Event::CqError { cq: NAME }]);
    }
}
