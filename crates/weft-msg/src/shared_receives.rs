//! The optional shared receive queue (X-RDMA, section VII.F). It has memory for one frame per request, for any number
//! of channels. It may be empty when a frame arrives, so a receiver is not always
//! ready; the sender then retries.

use alloc::vec::Vec;

use crate::context::{Shared, WorkId};
use crate::memory::Block;
use crate::verbs::Verbs;

/// The posted requests by number.
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

    /// Returns the memory of a completed request.
    fn take(&mut self, wr_id: u64) -> Option<Block> {
        let slot = u32::try_from(wr_id >> WorkId::BITS).ok()?;
        let block = self.posted.get_mut(slot as usize)?.take()?;
        self.free.push(slot);
        Some(block)
    }

    /// Counts a handled frame. Returns `true` if as many frames as the queue has requests were handled since the
    /// completion queue was last empty: a peer may have found no request.
    fn ran_dry(&mut self) -> bool {
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

impl<V: Verbs> Shared<V> {
    /// Returns the memory of a completed shared request.
    pub(crate) fn take_shared(&mut self, wr_id: u64) -> Option<Block> {
        let receives = self.receives.as_mut()?;
        let block = receives.take(wr_id)?;
        self.stats.srq_dry += u64::from(receives.ran_dry());
        Some(block)
    }

    /// Posts missing shared requests while memory is available.
    pub(crate) fn fill_shared(&mut self) {
        while let Some(slot) = self.receives.as_mut().and_then(|receives| receives.free.pop()) {
            let posted = self.frame_block().and_then(|block| {
                let to = crate::verbs::Slice { len: self.frame_len(), ..block.slice() };
                let wr_id = u64::from(slot) << WorkId::BITS | WorkId::SharedReceive as u64;
                self.verbs.post_shared_receive(wr_id, to).map(|()| block)
            });
            let Some(receives) = self.receives.as_mut() else { return };
            match posted {
                Ok(block) => receives.posted[slot as usize] = Some(block),
                Err(_) => return receives.free.push(slot),
            }
        }
    }
}
