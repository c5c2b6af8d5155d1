//! The optional shared receive queue (X-RDMA, section VII.F). It has memory for one frame per request, for any number
//! of channels. It may be empty when a frame arrives, so a receiver is not always
//! ready; the sender then retries.

use alloc::vec::Vec;

use crate::memory::Block;

/// The requests by slot.
#[derive(Debug)]
pub(crate) struct SharedReceives {
    posted: Vec<Option<Block>>,
    free: Vec<u32>,
    /// Number of frames handled since the completion queue was last empty.
    taken: usize,
}

impl SharedReceives {
    pub(crate) fn new(requests: u32) -> Self {
        let posted = (0..requests).map(|_| None).collect();
        Self { posted, free: (0..requests).collect(), taken: 0 }
    }

    /// Returns a slot without a request, for [`post`](Self::post) or [`put_back`](Self::put_back).
    pub(crate) fn take_free(&mut self) -> Option<u32> {
        self.free.pop()
    }

    /// Returns a slot whose request could not be posted.
    pub(crate) fn put_back(&mut self, slot: u32) {
        self.free.push(slot);
    }

    /// Records the memory of a slot's request.
    pub(crate) fn post(&mut self, slot: u32, block: Block) {
        self.posted[slot as usize] = Some(block);
    }

    /// Returns the memory of a slot whose request completed.
    pub(crate) fn take(&mut self, slot: u64) -> Option<Block> {
        let slot = u32::try_from(slot).ok()?;
        let block = self.posted.get_mut(slot as usize)?.take()?;
        self.free.push(slot);
        Some(block)
    }

    /// Counts a handled frame. Returns `true` if as many frames as the queue has requests were handled since the
    /// completion queue was last empty: a peer may have found no request.
    pub(crate) fn ran_dry(&mut self) -> bool {
        self.taken += 1;
        let dry = self.taken == self.posted.len();
        if dry {
            self.taken = 0;
        }
        dry
    }

    /// Records that no completion waits.
    pub(crate) const fn caught_up(&mut self) {
        self.taken = 0;
    }
}
