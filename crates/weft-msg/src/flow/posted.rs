//! The work of one channel in flight, and its round trips.

use alloc::collections::VecDeque;

use weft_units::{Duration, Instant};

use super::FlowLimit;
use super::base::BaseRtt;

/// The work of one channel in flight in one direction, oldest first, and its shortest round trip. A channel may have few
/// requests, and each of them may queue behind those of others, so only those that were posted when little was in flight
/// measure it. Before the first such request it is estimated: the time in which the bytes ahead arrive is subtracted.
#[derive(Debug, Default)]
pub(crate) struct Posted {
    /// Signalled requests.
    queue: VecDeque<Entry>,
    /// Bytes posted since the last signalled request, and the time of the first.
    unsignaled: u64,
    unsignaled_since: Option<Instant>,
    measured: BaseRtt,
    estimated: BaseRtt,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    at: Instant,
    /// Length of the signalled request in bytes.
    len: u64,
    /// Bytes that its completion covers, with those of unsignalled requests before it.
    covers: u64,
    /// `false` once the bytes no longer count against N.
    counted: bool,
    /// Bytes of the context in flight before it.
    ahead: u64,
}

impl Posted {
    /// Returns the number of signalled requests.
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Records a posted request.
    pub(crate) fn post(&mut self, flow: &mut FlowLimit, now: Instant, len: u64, signaled: bool) {
        let ahead = flow.on_posted(now, len);
        if signaled {
            flow.unsignaled -= self.unsignaled;
            let covers = core::mem::take(&mut self.unsignaled) + len;
            self.unsignaled_since = None;
            self.queue.push_back(Entry { at: now, len, covers, counted: true, ahead });
        } else {
            self.unsignaled += len;
            flow.unsignaled += len;
            self.unsignaled_since.get_or_insert(now);
        }
    }

    /// Records the completion of the oldest signalled request. The owner polled `gap` before, so the completion waited for
    /// at most that time. Returns the round trip.
    pub(crate) fn complete(
        &mut self,
        flow: &mut FlowLimit,
        now: Instant,
        gap: Duration,
    ) -> Option<Duration> {
        let Entry { at, len, covers, counted, ahead } = self.queue.pop_front()?;
        if counted {
            flow.on_returned(covers);
        }
        let took = now.since(at);
        let nanos = took.as_nanos();
        flow.base.on_sample(now, nanos, len);
        if flow.met_no_queue(at, ahead) {
            self.measured.on_sample(now, nanos, len);
        } else if let Some(queueing) = flow.queueing(ahead) {
            self.estimated.on_sample(now, nanos.saturating_sub(queueing), len);
        }
        if let Some(base) = self.base(flow).filter(|_| covers > 0) {
            // An owner that polls seldom needs more in flight, and its own delay is no queue of the network.
            let shortest = (base + gap.as_nanos()).min(nanos.max(base));
            flow.on_completed(now, covers, shortest, nanos.max(base));
        }
        Some(took)
    }

    /// Returns the shortest round trip in ns; `None` before the first sample of the context.
    fn base(&self, flow: &FlowLimit) -> Option<u64> {
        let estimate = || self.estimated.get().max(flow.base.get());
        self.measured.get().or_else(estimate)
    }

    /// Records that the peer has received everything that was posted before.
    #[inline]
    pub(crate) fn acknowledge(&mut self, flow: &mut FlowLimit) {
        self.unsignaled_since = None;
        let bytes = core::mem::take(&mut self.unsignaled);
        flow.unsignaled -= bytes;
        flow.on_returned(bytes);
    }

    /// Removes all requests: the queue pair is gone.
    pub(crate) fn abandon(&mut self, flow: &mut FlowLimit) {
        self.acknowledge(flow);
        self.queue.drain(..).filter(|it| it.counted).for_each(|it| flow.on_returned(it.covers));
    }

    /// Returns the time at which the oldest counted work was posted.
    #[inline]
    fn oldest(&self) -> Option<Instant> {
        let signaled = self.queue.iter().find(|it| it.counted).map(|it| it.at);
        signaled.or(self.unsignaled_since)
    }

    /// Returns the time from which the work counts as stuck: it has been in flight for `stuck_after` and for several round
    /// trips.
    #[inline]
    pub(crate) fn stuck_at(&self, stuck_after: Duration) -> Option<Instant> {
        let oldest = self.oldest()?;
        let trips =
            Duration::from_nanos(self.measured.get().unwrap_or(0).saturating_mul(STUCK_TRIPS));
        Some(oldest + stuck_after.max(trips))
    }

    /// Returns `true` if the oldest request is stuck: more would only wait behind it.
    #[inline]
    pub(crate) fn is_stuck(&self) -> bool {
        self.queue.front().is_some_and(|oldest| !oldest.counted)
    }

    /// Stops counting stuck work, for example of a dead peer: it occupies no network, and must not keep the other channels'
    /// from it.
    #[inline]
    pub(crate) fn release_stuck(
        &mut self,
        flow: &mut FlowLimit,
        now: Instant,
        stuck_after: Duration,
    ) {
        let may_be_stuck = self.oldest().is_some_and(|oldest| oldest + stuck_after <= now);
        if may_be_stuck && self.stuck_at(stuck_after).is_some_and(|at| at <= now) {
            self.stop_counting(flow);
        }
    }

    fn stop_counting(&mut self, flow: &mut FlowLimit) {
        self.acknowledge(flow);
        for entry in self.queue.iter_mut().filter(|it| it.counted) {
            entry.counted = false;
            flow.on_returned(entry.covers);
        }
    }
}

/// Number of round trips after which work counts as stuck.
const STUCK_TRIPS: u64 = 8;
