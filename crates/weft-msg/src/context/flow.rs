//! The order of channels that wait for the context's limits (X-RDMA, section V.C): in turn, one work request each.

use weft_units::Instant;

use super::{Context, Shared};
use crate::channel::Channel;
use crate::verbs::Verbs;

impl<V: Verbs> Context<V> {
    /// Sends messages that wait, within the limit of SENDs.
    pub(super) fn send_waiting(&mut self, now: Instant) {
        while let Some(&id) = self.shared.send_queue.front() {
            let channel = self.channels.get_mut(id).filter(|channel| channel.waits_for_limit());
            let len = channel.as_ref().and_then(|channel| channel.counted_len());
            if len.is_some_and(|len| !self.shared.sends.has_room(len)) {
                return;
            }
            self.shared.send_queue.pop_front();
            let Some(channel) = channel else {
                // It has ended, or its window is full.
                if let Some(channel) = self.channels.get_mut(id) {
                    channel.in_send_queue = false;
                }
                continue;
            };
            channel.in_send_queue = false;
            self.shared.current = id;
            match channel.send_next(now, &mut self.shared) {
                Ok(()) => self.reschedule(id),
                Err(reason) => self.fail(now, id, reason),
            }
        }
    }

    /// Requests fragments within the limit of READs.
    pub(super) fn request_fragments(&mut self, now: Instant) {
        let (reads, fragment) = (self.shared.config.reads, self.shared.config.fragment);
        while let Some(&id) = self.readers.front() {
            let channel = self.channels.get_mut(id).filter(|channel| channel.wants_to_read(reads));
            let len = channel.as_ref().map(|channel| channel.next_fragment(fragment).into());
            if len.is_some_and(|len| !self.shared.reads.has_room(len)) {
                return;
            }
            self.readers.pop_front();
            let Some(channel) = channel else {
                if let Some(channel) = self.channels.get_mut(id) {
                    channel.in_read_queue = false;
                }
                continue;
            };
            channel.in_read_queue = false;
            self.shared.current = id;
            match channel.read_fragment(now, &mut self.shared) {
                Ok(true) => self.reschedule(id),
                Ok(false) => {
                    if !core::mem::replace(&mut channel.in_memory_queue, true) {
                        self.memory_waiters.push_back(id);
                    }
                }
                Err(reason) => self.fail(now, id, reason),
            }
        }
    }
}

impl Channel {
    /// Stops counting work that is stuck against the context's limits.
    pub(super) fn release_stuck<V: Verbs>(&mut self, now: Instant, shared: &mut Shared<V>) {
        let stuck_after = shared.config.deadlock_after;
        self.sends.release_stuck(&mut shared.sends, now, stuck_after);
        self.reads.release_stuck(&mut shared.reads, now, stuck_after);
    }
}
