//! Completion queues: the results of work requests in order, and the notification of programs that wait for them.

use alloc::collections::VecDeque;

use weft_wire::AtomicKind;

use crate::{Context, QueuePairNumber, VerbsError};

/// The status of a completed work request (`enum ibv_wc_status`, with its numbers).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[repr(u32)]
pub enum Status {
    /// The request was executed.
    Success = 0,
    /// The request, or a received message, is longer than allowed or than its buffers.
    LocalLength = 1,
    /// The queue pair does not support the operation.
    LocalQpOperation = 2,
    /// The work request's local memory is not registered with the rights that it needs.
    LocalProtection = 4,
    /// The queue pair is in error; the request was not executed, or its execution is unknown.
    WrFlush = 5,
    /// The window cannot be bound, or the key cannot be invalidated.
    MwBind = 6,
    /// The peer's response violates the protocol.
    BadResponse = 7,
    /// The local memory of an immediate's receive request is not accessible.
    LocalAccess = 8,
    /// The peer rejected the request as invalid.
    RemoteInvalidRequest = 9,
    /// The peer does not allow the access to its memory.
    RemoteAccess = 10,
    /// The peer failed to execute the request.
    RemoteOperation = 11,
    /// The peer did not respond within all retries.
    RetryExceeded = 12,
    /// The peer had no receive request within all RNR retries.
    RnrRetryExceeded = 13,
    /// The peer aborted the operation.
    RemoteAborted = 16,
    /// The device failed.
    Fatal = 19,
    /// Another error.
    General = 21,
}

/// The kind of a completed work request (`enum ibv_wc_opcode`).
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
    /// A receive request that a SEND consumed.
    Receive,
    /// A receive request that an RDMA WRITE with immediate data consumed.
    ReceiveWriteWithImmediate,
}

/// The word that a message carries besides its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Extra {
    /// Immediate data, in wire byte order.
    Immediate(u32),
    /// The key that the message invalidated.
    Invalidated(u32),
}

/// The sender of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Source {
    /// The sending queue pair.
    pub qp: QueuePairNumber,
    /// The address and receive port of its host.
    pub address: core::net::SocketAddr,
}

/// A work completion (`struct ibv_wc`). For a failed request only `wr_id`, `status` and `qp` are meaningful.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Completion {
    /// The program's number for the request.
    pub wr_id: u64,
    /// The result.
    pub status: Status,
    /// The kind of request.
    pub kind: WorkKind,
    /// Bytes that were received or read.
    pub length: u32,
    /// The word that came with the message.
    pub extra: Option<Extra>,
    /// The queue pair.
    pub qp: QueuePairNumber,
    /// The sender of a datagram.
    pub source: Option<Source>,
    /// `true` if the sender requested a solicited event.
    pub solicited: bool,
}

/// The completions for which an armed queue notifies (`ibv_req_notify_cq`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Arm {
    /// The next completion.
    Next,
    /// The next completion that is solicited or failed.
    Solicited,
}

/// The result of adding a completion to a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// The completion is queued.
    Waits,
    /// The completion is queued, and the queue was armed for it: the owner notifies.
    Wakes,
    /// The queue was full: the completion is lost and the queue is in error.
    Overruns,
    /// The queue overran before: the completion is lost.
    Lost,
}

/// Completions in order, until they are polled. Where the device is in another process, the program's process has
/// this queue too.
#[derive(Clone, Debug)]
pub struct Completions {
    entries: VecDeque<Completion>,
    capacity: u32,
    armed: Option<Arm>,
    overrun: bool,
}

impl Completions {
    /// Returns an empty queue for `capacity` completions.
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

    /// Takes the next completion.
    ///
    /// # Errors
    /// The queue is empty and overran.
    pub fn poll(&mut self) -> Result<Option<Completion>, VerbsError> {
        match self.entries.pop_front() {
            None if self.overrun => Err(VerbsError::Invalid("the completion queue overran")),
            completion => Ok(completion),
        }
    }

    /// Arms the queue for one notification. If the queue is armed already, [`Arm::Next`] takes precedence over
    /// [`Arm::Solicited`].
    pub fn arm(&mut self, arm: Arm) {
        if self.armed != Some(Arm::Next) {
            self.armed = Some(arm);
        }
    }

    /// Returns `true` if the queue is armed.
    pub const fn is_armed(&self) -> bool {
        self.armed.is_some()
    }

    /// Returns `true` if another completion fits.
    pub fn has_room(&self) -> bool {
        self.entries.len() < self.capacity as usize
    }

    /// Returns `true` if the queue overran.
    pub const fn overran(&self) -> bool {
        self.overrun
    }

    /// Changes the capacity.
    ///
    /// # Errors
    /// More completions than `capacity` are queued.
    pub fn resize(&mut self, capacity: u32) -> Result<(), VerbsError> {
        self.fits(capacity)?;
        self.capacity = capacity;
        Ok(())
    }

    /// Checks that no more than `capacity` completions are queued.
    ///
    /// # Errors
    /// More completions are queued.
    pub fn fits(&self, capacity: u32) -> Result<(), VerbsError> {
        if self.entries.len() > capacity as usize {
            return Err(VerbsError::Invalid("more completions wait than that"));
        }
        Ok(())
    }

    /// Returns `true` if a completion of the queue pair is queued.
    pub fn holds(&self, qp: QueuePairNumber) -> bool {
        self.entries.iter().any(|completion| completion.qp == qp)
    }

    /// Removes the completions of a queue pair that no longer exists.
    pub fn discard(&mut self, qp: QueuePairNumber) {
        self.entries.retain(|completion| completion.qp != qp);
    }
}

/// A completion queue of the device.
#[derive(Debug)]
pub(crate) struct Cq {
    pub(crate) context: Context,
    pub(crate) completions: Completions,
    /// `true` while the queue is listed for `Device::poll_ready`.
    pub(crate) ready: bool,
    /// Queue pairs that complete to this queue.
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
    fn an_armed_queue_notifies_once_for_a_matching_completion() {
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
    fn an_overrun_is_permanent_and_reported_once() {
        let mut queue = Completions::new(1);
        let success = completion(Status::Success, false);
        assert_eq!(queue.push(success), Pushed::Waits);
        assert_eq!(queue.push(success), Pushed::Overruns);
        assert!(queue.poll().unwrap().is_some());
        assert_eq!(queue.push(success), Pushed::Lost);
        assert!(queue.poll().is_err());
    }
}
