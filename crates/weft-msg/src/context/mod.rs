//! A context: the channels of one thread with their memory and queue pairs, driven by one function,
//! [`Context::poll`] (X-RDMA, section IV).

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use slotmap::SlotMap;
use weft_rnic::Status;
use weft_units::{Duration, Instant, Seed};

use crate::channel::Channel;
use crate::event::{CloseReason, Event, Slow};
use crate::journal::NoteKind;
use crate::shared_receives::SharedReceives;
use crate::verbs::{Completion, Qp, Verbs};
use crate::{Config, ConfigError};

mod channels;
mod control;
mod failure;
mod flow;
mod renewal;
mod shared;
mod submit;
mod timers;

pub use channels::OfferError;
pub use control::SwitchError;
use shared::read_work_id;
pub(crate) use shared::{Shared, WorkId};
pub use submit::Payload;

slotmap::new_key_type! {
    /// A channel of a context; identifiers are never reused.
    pub struct ChannelId;
}

/// Maximum number of completions that one poll handles, so that a busy device does not block the owner.
const MAX_COMPLETIONS_PER_POLL: usize = 256;

/// The channels of one thread. It has no clock, thread or socket: the owner polls it.
#[derive(Debug)]
pub struct Context<V> {
    shared: Shared<V>,
    channels: SlotMap<ChannelId, Channel>,
    /// Channels by queue pair, for completions of the shared receive queue.
    by_qp: BTreeMap<Qp, ChannelId>,
    /// Cached queue pairs.
    qps: Vec<Qp>,
    timers: BTreeSet<(Instant, ChannelId)>,
    /// Channels to service at the end of this poll.
    touched: Vec<ChannelId>,
    /// Channels with fragments to request, each once.
    readers: VecDeque<ChannelId>,
    /// Channels that wait for memory, each once.
    memory_waiters: VecDeque<ChannelId>,
    /// Channels whose streams need the owner, each once.
    pending_streams: VecDeque<ChannelId>,
    last_poll: Option<Instant>,
    /// The last time at which no completion was left; `None` before the first poll.
    drained_at: Option<Instant>,
    /// The time that the owner takes to wake up after a pause.
    wake_up: Duration,
    next_number: u64,
    /// Number of requests sent.
    requests: u64,
    /// Number of completions, submissions, and channels begun or ended.
    activity: u64,
    secret: [u8; 16],
}

impl<V: Verbs> Context<V> {
    /// Returns a context on a device. All random choices, such as the filter's, derive from `seed`; channels'
    /// tokens derive from `secret`, which must be known to nobody else.
    ///
    /// # Errors
    /// A parameter is out of range.
    pub fn new(
        config: Config,
        verbs: V,
        seed: Seed,
        secret: [u8; 16],
    ) -> Result<Self, ConfigError> {
        config.check()?;
        let shared = Shared::new(config, verbs, seed);
        Ok(Self {
            shared,
            channels: SlotMap::with_key(),
            by_qp: BTreeMap::new(),
            qps: Vec::new(),
            timers: BTreeSet::new(),
            touched: Vec::new(),
            readers: VecDeque::new(),
            memory_waiters: VecDeque::new(),
            pending_streams: VecDeque::new(),
            last_poll: None,
            drained_at: None,
            wake_up: Duration::ZERO,
            next_number: 1,
            requests: 0,
            activity: 0,
            secret,
        })
    }

    /// Handles the device's completions, expired timers and waiting frames; events follow. Returns `true` if
    /// more completions may wait.
    pub fn poll(&mut self, now: Instant) -> bool {
        let more = self.ingest(now);
        self.service(now);
        more
    }

    /// Performs the first half of [`poll`](Self::poll): handles the device's completions. Their consequences,
    /// except events, wait for [`service`](Self::service), so that an owner that waits for a message receives it
    /// earlier. Returns `true` if more completions may wait.
    #[inline(always)]
    pub fn ingest(&mut self, now: Instant) -> bool {
        let gap = self.last_poll.replace(now).map(|last| now.since(last));
        // A second half of a poll has the same time.
        if gap != Some(Duration::ZERO) {
            self.shared.poll_gap = gap.unwrap_or(self.wake_up);
        }
        let mut handled = 0;
        while handled < MAX_COMPLETIONS_PER_POLL
            && let Some(completion) = self.shared.next_completion()
        {
            handled += 1;
            self.complete(now, completion);
        }
        if handled > 0 {
            self.activity += handled as u64;
            self.check_poll_gap(now, gap);
        }
        if handled < MAX_COMPLETIONS_PER_POLL {
            self.drained_at = Some(now);
            self.shared.receives.iter_mut().for_each(SharedReceives::caught_up);
        }
        handled == MAX_COMPLETIONS_PER_POLL
    }

    /// Performs the second half of [`poll`](Self::poll): handles expired timers and sends waiting frames.
    #[inline(always)]
    pub fn service(&mut self, now: Instant) {
        self.release_held(now);
        self.serve_timers(now);
        self.trim_qps(now);
        self.shared.fill_shared();
        self.replenish(now);
        self.service_touched(now);
    }

    /// Returns the next event, oldest first.
    #[inline]
    pub fn poll_event(&mut self) -> Option<Event> {
        self.shared.events.pop_front()
    }

    /// Returns `true` if an event waits.
    #[inline]
    pub fn has_event(&self) -> bool {
        !self.shared.events.is_empty()
    }

    /// Returns the latest time for the next [`poll`](Self::poll) if the device has no completion before; `None` if
    /// there is no deadline.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let timer = self.timers.first().map(|(at, _)| *at);
        let held = self.shared.held.keys().next().map(|(at, _)| *at);
        [timer, held, self.shared.memory.shrink_at()].into_iter().flatten().min()
    }

    /// Announces that the owner sleeps until the next completion, after which it wakes up within `wake_up`: the time until
    /// the next poll does not count as late.
    pub const fn pause(&mut self, wake_up: Duration) {
        self.last_poll = None;
        self.wake_up = wake_up;
    }

    /// Retries for channels that wait for memory.
    #[inline(always)]
    fn replenish(&mut self, now: Instant) {
        if !self.memory_waiters.is_empty() {
            self.retry_waiters(now);
        }
    }

    fn retry_waiters(&mut self, now: Instant) {
        for _ in 0..self.memory_waiters.len() {
            let Some(id) = self.memory_waiters.pop_front() else { break };
            self.with(now, id, |channel, shared| {
                channel.in_memory_queue = false;
                channel.replenish(now, shared)
            });
        }
    }

    /// Detects completions that waited because the owner polled late (section VI.A, method II).
    fn check_poll_gap(&mut self, now: Instant, gap: Option<Duration>) {
        if let Some(gap) = gap.filter(|&gap| gap > self.shared.config.polling_warn) {
            self.shared.stats.slow_polls += 1;
            self.shared.note(now, None, NoteKind::SlowPoll(gap));
            self.shared.events.push_back(Event::Slow(Slow::Poll { gap }));
        }
    }

    #[inline(always)]
    fn complete(&mut self, now: Instant, completion: Completion) {
        let (id, work) = read_work_id(completion.wr_id);
        if work == WorkId::SharedReceive {
            return self.complete_shared(now, completion);
        }
        let Some(channel) = self.channels.get_mut(id) else { return };
        let shared = &mut self.shared;
        shared.current = id;
        let outcome = match (completion.status, work) {
            (Status::Success, WorkId::Receive) => channel.received(now, shared, &completion),
            (Status::Success, _) => channel.completed(now, shared, work),
            (status, _) => Err(CloseReason::PeerUnreachable(status)),
        };
        match outcome {
            Ok(()) => channel.touch(id, &mut self.touched),
            Err(reason) => self.fail(now, id, reason),
        }
    }

    /// Handles a completed receive request of the shared queue.
    fn complete_shared(&mut self, now: Instant, completion: Completion) {
        let Some(block) = self.shared.take_shared(completion.wr_id) else { return };
        match self.by_qp.get(&completion.qp) {
            Some(&id) if completion.status == Status::Success => {
                self.with(now, id, |channel, shared| {
                    let room = block.slice();
                    channel.received_in(now, shared, &completion, room, |_| block)
                });
            }
            found => {
                let found = found.copied();
                self.shared.memory.release(now, block);
                let reason = CloseReason::PeerUnreachable(completion.status);
                found.into_iter().for_each(|id| self.fail(now, id, reason));
            }
        }
        self.shared.fill_shared();
    }

    /// Runs `act` on a channel and handles its result.
    #[inline(always)]
    fn with<R>(
        &mut self,
        now: Instant,
        id: ChannelId,
        act: impl FnOnce(&mut Channel, &mut Shared<V>) -> Result<R, CloseReason>,
    ) -> Option<R> {
        let channel = self.channels.get_mut(id)?;
        self.shared.current = id;
        match act(channel, &mut self.shared) {
            Ok(result) => {
                channel.touch(id, &mut self.touched);
                Some(result)
            }
            Err(reason) => {
                self.fail(now, id, reason);
                None
            }
        }
    }

    /// Registers a channel for the next [`service_touched`](Self::service_touched).
    fn touch(&mut self, id: ChannelId) {
        if let Some(channel) = self.channels.get_mut(id) {
            channel.touch(id, &mut self.touched);
        }
    }

    /// Services the touched channels: sends, acknowledges, reads.
    #[inline(always)]
    fn service_touched(&mut self, now: Instant) {
        let waits = !self.shared.send_queue.is_empty() || !self.readers.is_empty();
        if waits || !self.touched.is_empty() {
            self.service_all(now);
        }
    }

    fn service_all(&mut self, now: Instant) {
        loop {
            // Servicing one channel may touch it again after an error.
            while let Some(id) = self.touched.pop() {
                let Some(channel) = self.channels.get_mut(id) else { continue };
                channel.touched = false;
                self.shared.current = id;
                if let Err(reason) = Self::serve(now, channel, &mut self.shared) {
                    self.fail(now, id, reason);
                    continue;
                }
                if self.host_is_silent(now, id) {
                    self.fail(now, id, CloseReason::PeerUnreachable(Status::RetryExceeded));
                    continue;
                }
                self.reschedule(id);
                self.renew(now, id);
            }
            self.send_waiting(now);
            self.request_fragments(now);
            // A channel that failed over there must be serviced too: no deadline leads to it.
            if self.touched.is_empty() {
                return;
            }
        }
    }

    fn serve(
        now: Instant,
        channel: &mut Channel,
        shared: &mut Shared<V>,
    ) -> Result<(), CloseReason> {
        if channel.stream.in_use() {
            channel.read_stream(now, shared)?;
        }
        channel.release_acknowledged(now, shared)?;
        channel.replenish(now, shared)?;
        channel.release_stuck(now, shared);
        channel.switch_if_wanted(now, shared)?;
        channel.flush(now, shared)?;
        channel.nop_if_stuck(now, shared)?;
        channel.acknowledge_if_due(now, shared)?;
        channel.probe_if_due(now, shared)?;
        channel.measure_if_due(now, shared)?;
        channel.expire(now, &shared.config)
    }

    /// Registers a channel's next deadline and the resources that it waits for. A touched channel's follow from its service.
    fn reschedule(&mut self, id: ChannelId) {
        let Some(channel) = self.channels.get_mut(id).filter(|it| !it.touched) else { return };
        let wants = !channel.unposted.is_empty() || channel.stream.waits_for_memory();
        if wants && !core::mem::replace(&mut channel.in_memory_queue, true) {
            self.memory_waiters.push_back(id);
        }
        if !channel.in_read_queue && channel.wants_to_read(self.shared.config.reads) {
            channel.in_read_queue = true;
            self.readers.push_back(id);
        }
        if !channel.in_stream_queue && channel.stream.wants_to_write() {
            channel.in_stream_queue = true;
            self.pending_streams.push_back(id);
        }
        if !channel.in_send_queue && channel.waits_for_limit() {
            channel.in_send_queue = true;
            self.shared.send_queue.push_back(id);
        }
        let Some(due) = channel.deadline(&self.shared.config) else { return };
        if channel.timer.is_none_or(|registered| due < registered) {
            if let Some(registered) = channel.timer.replace(due) {
                self.timers.remove(&(registered, id));
            }
            self.timers.insert((due, id));
        }
    }
}
