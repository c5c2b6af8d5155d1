//! Receive queues, of one queue pair or shared by several.

use alloc::collections::VecDeque;

use crate::work::{SgeList, total};
use crate::{Context, ProtectionDomain, ReceiveRequest, VerbsError};

/// A receive request.
#[derive(Clone, Debug)]
pub(crate) struct Receive {
    pub(crate) wr_id: u64,
    pub(crate) sges: SgeList,
}

impl Receive {
    /// Returns the length of its buffers in bytes.
    pub(crate) fn room(&self) -> u64 {
        total(&self.sges)
    }
}

/// Receive requests in the order of posting.
#[derive(Debug)]
pub(crate) struct ReceiveQueue {
    requests: VecDeque<Receive>,
    /// Number of the first request, counted from the first ever posted.
    head: u64,
    limit: u32,
    /// Maximum number of scatter/gather entries of a request.
    max_sge: u32,
}

impl ReceiveQueue {
    pub(crate) const fn new(limit: u32, max_sge: u32) -> Self {
        Self { requests: VecDeque::new(), head: 0, limit, max_sge }
    }

    /// Adds a request.
    ///
    /// # Errors
    /// The request has too many scatter/gather entries, or the queue is full.
    pub(crate) fn post(&mut self, request: &ReceiveRequest<'_>) -> Result<(), VerbsError> {
        if request.sges.len() > self.max_sge as usize {
            let (got, limit) = (request.sges.len() as u64, self.max_sge.into());
            return Err(VerbsError::OverLimit { field: "num_sge", got, limit });
        }
        if self.len() >= self.limit {
            return Err(VerbsError::QueueFull { limit: self.limit });
        }
        self.requests.push_back(Receive { wr_id: request.wr_id, sges: request.sges.into() });
        Ok(())
    }

    pub(crate) fn len(&self) -> u32 {
        u32::try_from(self.requests.len()).expect("at most the limit")
    }

    /// Returns the number of the first request.
    pub(crate) fn head(&self) -> u64 {
        self.head
    }

    /// Returns the request that is consumed next.
    pub(crate) fn first(&self) -> Option<&Receive> {
        self.requests.front()
    }

    /// Returns the request with this number, if it is in the queue.
    #[inline]
    pub(crate) fn numbered(&self, number: u64) -> Option<&Receive> {
        let index = usize::try_from(number.checked_sub(self.head)?).ok()?;
        self.requests.get(index)
    }

    /// Takes the first request.
    pub(crate) fn take(&mut self) -> Option<Receive> {
        let request = self.requests.pop_front()?;
        self.head += 1;
        Some(request)
    }

    /// Returns the request that was taken last to the head of the queue.
    pub(crate) fn put_back(&mut self, request: Receive) {
        self.requests.push_front(request);
        self.head -= 1;
    }

    /// Removes all requests, and restarts their numbering.
    pub(crate) fn reset(&mut self) {
        self.requests.clear();
        self.head = 0;
    }
}

/// A shared receive queue.
#[derive(Debug)]
pub(crate) struct Srq {
    pub(crate) context: Context,
    pub(crate) domain: ProtectionDomain,
    pub(crate) queue: ReceiveQueue,
    /// The limit below which the owner gets an event, once.
    pub(crate) low_water: u32,
    /// Queue pairs that receive from it.
    pub(crate) users: u32,
}

impl Srq {
    /// Takes the first request; also returns `true` if fewer requests than the limit are left, once for each limit.
    pub(crate) fn take(&mut self) -> Option<(Receive, bool)> {
        let request = self.queue.take()?;
        let low = self.queue.len() < self.low_water;
        if low {
            self.low_water = 0;
        }
        Some((request, low))
    }
}
