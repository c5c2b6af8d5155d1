//! The receive requests of a channel, and the end of a frame: the owner has it, and other memory was posted in its place.

use alloc::vec::Vec;

use weft_units::Instant;

use super::{Channel, Unposted};
use crate::context::{Shared, WorkId};
use crate::event::{CloseReason, Event, Slow};
use crate::memory::Block;
use crate::verbs::{Slice, Verbs};

/// Windows of fewer frames are small: their receive requests are replaced immediately.
const SMALL_WINDOW: u16 = 8;

impl Channel {
    /// Posts receive requests for all frames that the peer may have in flight.
    pub(crate) fn post_receives<V: Verbs>(
        &mut self,
        shared: &mut Shared<V>,
    ) -> Result<(), CloseReason> {
        if shared.receives.is_some() {
            return Ok(());
        }
        let wanted = usize::from(self.offer.depth + self.offer.ack_frames);
        let before = self.posted.len();
        self.posted.reserve(wanted.saturating_sub(before));
        while self.posted.len() < wanted {
            self.posted.push_back(shared.frame_block().map_err(CloseReason::Device)?);
        }
        let len = shared.frame_len();
        let new = self.posted.range(before..);
        let to: Vec<_> = new.map(|block| Slice { len, ..block.slice() }).collect();
        let id = shared.work_id(WorkId::Receive);
        shared.verbs.post_receives(self.qp, id, &to).map_err(CloseReason::Device)
    }

    fn post_receive<V: Verbs>(
        &mut self,
        shared: &mut Shared<V>,
        block: Block,
    ) -> Result<(), CloseReason> {
        let to = Slice { len: shared.frame_len(), ..block.slice() };
        let id = shared.work_id(WorkId::Receive);
        self.posted.push_back(block);
        shared.verbs.post_receive(self.qp, id, to).map_err(CloseReason::Device)
    }

    /// Replaces the memory of a received frame: immediately if the window is small, because the peer may wait
    /// for it; otherwise when the channel is serviced, because the owner may wait for the frame.
    #[inline(always)]
    pub(super) fn replace_receive<V: Verbs>(
        &mut self,
        now: Instant,
        shared: &mut Shared<V>,
        frame: Unposted,
    ) -> Result<(), CloseReason> {
        if self.offer.depth < SMALL_WINDOW || shared.receives.is_some() {
            return self.replace_receive_now(now, shared, frame);
        }
        self.push_unposted(frame);
        Ok(())
    }

    /// Replaces the memory of a received frame, later if there is none or an earlier frame waits for some.
    fn replace_receive_now<V: Verbs>(
        &mut self,
        now: Instant,
        shared: &mut Shared<V>,
        frame: Unposted,
    ) -> Result<(), CloseReason> {
        // No frame waits for a replacement in the shared queue: a peer may find that empty in any case.
        if shared.receives.is_none() {
            let block = self.unposted.is_empty().then(|| shared.frame_block());
            let Some(Ok(block)) = block else {
                self.push_unposted(frame);
                return Ok(());
            };
            self.post_receive(shared, block)?;
        }
        self.on_replaced(now, frame);
        Ok(())
    }

    #[inline(always)]
    fn push_unposted(&mut self, frame: Unposted) {
        self.unposted_acks += usize::from(frame.number.is_none());
        self.unposted.push_back(frame);
    }

    /// Finishes a frame whose receive request was replaced, if the owner has received it.
    fn on_replaced(&mut self, now: Instant, frame: Unposted) {
        if let Some(number) = frame.number.filter(|_| frame.done) {
            self.finish_replaced(now, number);
        }
    }

    /// Posts the missing receive requests. While there is no memory for them, the peer's window is smaller by
    /// their number.
    pub(crate) fn replenish<V: Verbs>(
        &mut self,
        now: Instant,
        shared: &mut Shared<V>,
    ) -> Result<(), CloseReason> {
        while let Some(&frame) = self.unposted.front() {
            let Ok(block) = shared.frame_block() else { break };
            self.unposted.pop_front();
            self.unposted_acks -= usize::from(frame.number.is_none());
            self.starved_counted = self.starved_counted.saturating_sub(1);
            self.post_receive(shared, block)?;
            self.on_replaced(now, frame);
        }
        self.stats.starved += (self.unposted.len() - self.starved_counted) as u64;
        self.starved_counted = self.unposted.len();
        self.update_known();
        Ok(())
    }

    /// Marks a frame as received by the owner; it is finished when its receive request is replaced too.
    pub(crate) fn finish(&mut self, now: Instant, seq: u64) {
        // The most recent frame is usually finished first.
        let unposted = self.unposted.iter_mut().rfind(|frame| frame.number == Some(seq));
        if let Some(frame) = unposted {
            frame.done = true;
            return;
        }
        self.finish_replaced(now, seq);
    }

    /// Finishes a frame that the owner has received and whose receive request was replaced.
    fn finish_replaced(&mut self, now: Instant, seq: u64) {
        self.rx.finish(seq);
        if self.rx.unacknowledged() > 0 {
            self.ack_owed_since.get_or_insert(now);
        }
    }

    /// Finishes a message received by the owner, if it does not keep its place in the window.
    pub(super) fn finish_message<V: Verbs>(
        &mut self,
        now: Instant,
        shared: &mut Shared<V>,
        seq: u64,
    ) {
        if !self.keeps_place(shared, seq) {
            self.finish(now, seq);
        }
    }

    /// Returns `true` if a message received by the owner keeps its place in the window until a request is answered or
    /// declined, because too many of them wait for a response.
    #[inline(always)]
    pub(super) fn keeps_place<V: Verbs>(&mut self, shared: &mut Shared<V>, seq: u64) -> bool {
        let waiting = u32::try_from(self.to_answer.len()).unwrap_or(u32::MAX);
        if waiting <= shared.config.unanswered {
            return false;
        }
        if self.parked.is_empty() {
            let channel = shared.current;
            shared.events.push_back(Event::Slow(Slow::Answers { channel, waiting }));
        }
        self.parked.push_back(seq);
        true
    }

    /// Removes a request that was answered or declined, and finishes the oldest frame that kept its place.
    pub(crate) fn finish_request(&mut self, now: Instant, id: u64) {
        if self.to_answer.remove(id).is_some()
            && let Some(seq) = self.parked.pop_front()
        {
            self.finish(now, seq);
        }
    }

    /// Updates `known` once the receive requests of ACK frames are replaced: only then may this end confirm them.
    #[inline]
    pub(super) fn update_known(&mut self) {
        if self.unposted_acks == 0 {
            self.known = self.tx.acked();
        }
    }
}
