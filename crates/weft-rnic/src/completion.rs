//! Completion queues: what became of work requests, in order; and whom to wake.

use alloc::collections::VecDeque;

use weft_wire::AtomicKind;

use crate::{Context, QueuePairNumber, VerbsError};

/// Names a completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct CompletionQueue(pub u32);

/// What became of a work request (`enum ibv_wc_status`, with its numbers).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
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
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum WorkKind {
    /// A SEND.
    Send,
    /// An RDMA WRITE.
    Write,
    /// An RDMA READ.
    Read,
    /// An atomic operation.
    Atomic(AtomicKind),
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
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Extra {
    /// Immediate data, in the order of its bytes on the wire.
    Immediate(u32),
    /// A key that was invalidated.
    Invalidated(u32),
}

/// Where a datagram came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Source {
    /// The queue pair that sent it.
    pub qp: QueuePairNumber,
    /// Its host's address and receive port.
    pub address: core::net::SocketAddr,
}

/// What became of one work request (`struct ibv_wc`). Of one that failed, `wr_id`, `status` and `qp`
/// say something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
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
    /// Whether the sender asked that it wake who waits for solicited ones.
    pub solicited: bool,
}

/// Which completion wakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Arm {
    /// The next one.
    Next,
    /// The next one that is solicited or failed.
    Solicited,
}

/// What adding a completion to a queue comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// It waits.
    Waits,
    /// It waits, and the queue was armed for it.
    Wakes,
    /// There was no room: from here on the queue is not to be trusted.
    Overruns,
    /// The queue has overrun before.
    Lost,
}

/// Completions that wait to be polled, in order. A program's process has these too, where the device is
/// elsewhere.
#[derive(Clone, Debug)]
pub struct Completions {
    entries: VecDeque<Completion>,
    capacity: u32,
    armed: Option<Arm>,
    overrun: bool,
}

impl Completions {
    /// Room for `capacity`.
    pub const fn new(capacity: u32) -> Self {
        Self { entries: VecDeque::new(), capacity, armed: None, overrun: false }
    }

    /// Adds a completion.
    pub fn push(&mut self, completion: Completion) -> Pushed {
        if self.overrun {
            return Pushed::Lost;
        }
        if self.entries.len() >= self.capacity as usize {
            self.overrun = true;
            return Pushed::Overruns;
        }
        self.entries.push_back(completion);
        let wakes = match self.armed {
            Some(Arm::Next) => true,
            Some(Arm::Solicited) => completion.solicited || completion.status != Status::Success,
            None => false,
        };
        if wakes {
            self.armed = None;
            return Pushed::Wakes;
        }
        Pushed::Waits
    }

    /// The next completion.
    ///
    /// # Errors
    /// There is none, and the queue overran.
    pub fn poll(&mut self) -> Result<Option<Completion>, VerbsError> {
        match self.entries.pop_front() {
            None if self.overrun => Err(VerbsError::Invalid("the completion queue overran")),
            completion => Ok(completion),
        }
    }

    /// Asks to be told of a completion, once. The stronger of two requests holds: the next completion
    /// rather than a solicited one.
    pub fn arm(&mut self, arm: Arm) {
        if self.armed != Some(Arm::Next) {
            self.armed = Some(arm);
        }
    }

    /// Whether it waits to be told of a completion.
    pub const fn is_armed(&self) -> bool {
        self.armed.is_some()
    }

    /// Whether it takes another without overrunning.
    pub fn has_room(&self) -> bool {
        self.entries.len() < self.capacity as usize
    }

    /// Whether it overran.
    pub const fn overran(&self) -> bool {
        self.overrun
    }

    /// Gives it room for `capacity`.
    ///
    /// # Errors
    /// More completions wait.
    pub fn resize(&mut self, capacity: u32) -> Result<(), VerbsError> {
        self.fits(capacity)?;
        self.capacity = capacity;
        Ok(())
    }

    /// Whether no more completions wait than that.
    ///
    /// # Errors
    /// More do.
    pub fn fits(&self, capacity: u32) -> Result<(), VerbsError> {
        if self.entries.len() > capacity as usize {
            return Err(VerbsError::Invalid("more completions wait than that"));
        }
        Ok(())
    }

    /// Whether something waits that a queue pair completed.
    pub fn holds(&self, qp: QueuePairNumber) -> bool {
        self.entries.iter().any(|completion| completion.qp == qp)
    }

    /// Drops what a queue pair that is gone completed.
    pub fn forget(&mut self, qp: QueuePairNumber) {
        self.entries.retain(|completion| completion.qp != qp);
    }
}

/// A completion queue of the device.
#[derive(Debug)]
pub(crate) struct Cq {
    pub(crate) context: Context,
    pub(crate) completions: Completions,
    /// Whether it is among the queues that got something (`Device::poll_ready`).
    pub(crate) ready: bool,
    /// Queue pairs that complete here.
    pub(crate) users: u32,
}

impl Cq {
    pub(crate) const fn new(context: Context, capacity: u32) -> Self {
        Self { context, completions: Completions::new(capacity), ready: false, users: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completion(status: Status, solicited: bool) -> Completion {
        Completion {
            wr_id: 1,
            status,
            kind: WorkKind::Send,
            length: 0,
            extra: None,
            qp: QueuePairNumber(9),
            source: None,
            solicited,
        }
    }

    #[test]
    fn an_armed_queue_wakes_once_for_what_it_was_armed_for() {
        let mut queue = Completions::new(100);
        let woken = |queue: &mut Completions, status, solicited| {
            queue.push(completion(status, solicited)) == Pushed::Wakes
        };
        assert!(!woken(&mut queue, Status::Success, true), "not armed");
        queue.arm(Arm::Solicited);
        assert!(!woken(&mut queue, Status::Success, false));
        assert!(woken(&mut queue, Status::Success, true));
        assert!(!woken(&mut queue, Status::Success, true), "once");
        queue.arm(Arm::Solicited);
        assert!(woken(&mut queue, Status::WrFlush, false), "failures are solicited");
        queue.arm(Arm::Next);
        queue.arm(Arm::Solicited);
        assert!(woken(&mut queue, Status::Success, false), "the stronger request holds");
    }

    #[test]
    fn a_full_queue_is_in_error_for_good_and_says_so_once() {
        let mut queue = Completions::new(1);
        let success = completion(Status::Success, false);
        assert_eq!(queue.push(success), Pushed::Waits);
        assert_eq!(queue.push(success), Pushed::Overruns);
        assert!(queue.poll().unwrap().is_some());
        assert_eq!(queue.push(success), Pushed::Lost);
        assert!(queue.poll().is_err());
    }
}
