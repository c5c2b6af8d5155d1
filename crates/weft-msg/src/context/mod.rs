//! A context: the channels of one thread, their memory and queue pairs, and the one function that moves them
//! all, [`Context::poll`] (X-RDMA, section IV).

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::net::Ipv6Addr;

use slotmap::{Key, KeyData, SlotMap};
use weft_rnic::Status;
use weft_units::{Duration, Instant, Rng, Seed};
use weft_wire::{Call, FrameHeader, FrameKind};

use crate::channel::{Channel, Outgoing, State};
use crate::event::{CloseReason, Event, Message, Slow};
use crate::filter::Filter;
use crate::journal::{Journal, Note, Noted};
use crate::memory::{Block, MemoryCache, MemoryLimits};
use crate::shared_receives::SharedReceives;
use crate::stats::ContextStats;
use crate::verbs::{Completion, Qp, Refused, Slice, Verbs};
use crate::{Config, ConfigError};

mod channels;
mod control;
mod submit;

pub use channels::OfferError;
pub use control::SwitchError;
pub use submit::Payload;

slotmap::new_key_type! {
    /// Names a channel of a context; no other channel has the name later.
    pub struct ChannelId;
}

/// Completions that one poll handles, so that a busy device does not keep the owner from its own work.
const BUDGET: usize = 256;

/// The channels of one thread. It owns no clock, no thread and no socket: the owner polls it.
#[derive(Debug)]
pub struct Context<V> {
    shared: Shared<V>,
    channels: SlotMap<ChannelId, Channel>,
    /// Whose queue pairs take from the shared receive queue.
    by_qp: BTreeMap<Qp, ChannelId>,
    /// Queue pairs for the next channels.
    qps: Vec<Qp>,
    timers: BTreeSet<(Instant, ChannelId)>,
    /// Channels to see to at the end of this poll.
    touched: Vec<ChannelId>,
    /// Channels that have fragments to ask for, each once.
    readers: VecDeque<ChannelId>,
    /// Channels that wait for memory, each once.
    want: VecDeque<ChannelId>,
    last_poll: Option<Instant>,
    next_number: u64,
    /// What was completed, handed in or ended: grows whenever something happens.
    activity: u64,
    secret: [u8; 16],
}

/// What channels share.
#[derive(Debug)]
pub(crate) struct Shared<V> {
    pub(crate) verbs: V,
    pub(crate) config: Config,
    pub(crate) memory: MemoryCache,
    pub(crate) events: VecDeque<Event>,
    pub(crate) filter: Filter,
    pub(crate) rng: Rng,
    pub(crate) stats: ContextStats,
    /// The receive queue of all channels, where they share one.
    pub(crate) receives: Option<SharedReceives>,
    pub(crate) journal: Journal,
    /// READs under way.
    pub(crate) reading: u32,
    /// The channel that is being seen to.
    pub(crate) current: ChannelId,
    /// Messages that a filter rule delays.
    held: BTreeMap<(Instant, u64), Held>,
    held_count: u64,
}

#[derive(Debug)]
enum Held {
    In(ChannelId, Message),
    Out(ChannelId, Outgoing),
}

/// What a completion is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkId {
    Send = 0,
    Receive = 1,
    Read = 2,
    Probe = 3,
    /// The ACK of the peer's close: nothing comes after it.
    LastAck = 4,
    /// A receive request of the queue that channels share: its number is not a channel's.
    SharedReceive = 5,
}

impl WorkId {
    /// Bits that it takes of a number.
    pub(crate) const BITS: u32 = 3;
}

impl<V: Verbs> Context<V> {
    /// A context on a device. Everything random, such as the filter's draws, comes from `seed`; channels'
    /// tokens from `secret`, which nobody else may know.
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
        let limits = MemoryLimits {
            region: config.memory_region,
            total: config.memory_limit,
            keep: config.memory_keep,
        };
        let memory = MemoryCache::new(limits, frame_len(&config));
        let shared = Shared {
            verbs,
            config,
            memory,
            events: VecDeque::new(),
            filter: Filter::default(),
            rng: seed.child("messages", 0).rng(),
            stats: ContextStats::default(),
            receives: None,
            journal: Journal::default(),
            reading: 0,
            current: ChannelId::null(),
            held: BTreeMap::new(),
            held_count: 0,
        };
        Ok(Self {
            shared,
            channels: SlotMap::with_key(),
            by_qp: BTreeMap::new(),
            qps: Vec::new(),
            timers: BTreeSet::new(),
            touched: Vec::new(),
            readers: VecDeque::new(),
            want: VecDeque::new(),
            last_poll: None,
            next_number: 1,
            activity: 0,
            secret,
        })
    }

    /// Takes in what the device completed, does what is due, and sends what may leave. Events follow. Says
    /// whether there may be more to take in at once.
    pub fn poll(&mut self, now: Instant) -> bool {
        let more = self.take_in(now);
        self.tend(now);
        more
    }

    /// The first half of [`poll`](Self::poll): takes in what the device completed. What follows from it, but for
    /// events, waits for [`tend`](Self::tend), so that an owner who waited for a message has it sooner.
    pub fn take_in(&mut self, now: Instant) -> bool {
        let gap = self.last_poll.replace(now).map(|last| now.since(last));
        let mut handled = 0;
        while handled < BUDGET
            && let Some(completion) = self.shared.verbs.poll()
        {
            handled += 1;
            self.complete(now, &completion);
        }
        if handled > 0 {
            self.activity += handled as u64;
            self.watch(now, gap);
        }
        if handled < BUDGET {
            self.shared.receives.iter_mut().for_each(SharedReceives::caught_up);
        }
        handled == BUDGET
    }

    /// The second half of [`poll`](Self::poll): does what is due, and sends what may leave.
    pub fn tend(&mut self, now: Instant) {
        self.release_held(now);
        self.serve_timers(now);
        self.trim_qps(now);
        self.shared.fill_shared();
        self.replenish(now);
        self.attend(now);
    }

    /// What happened, oldest first.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.shared.events.pop_front()
    }

    /// Whether [`poll_event`](Self::poll_event) would say something.
    pub fn has_event(&self) -> bool {
        !self.shared.events.is_empty()
    }

    /// When [`poll`](Self::poll) is to be called at the latest, besides when the device has completions.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let timer = self.timers.first().map(|(at, _)| *at);
        let held = self.shared.held.keys().next().map(|(at, _)| *at);
        [timer, held, self.shared.memory.shrink_at()].into_iter().flatten().min()
    }

    /// The owner is about to sleep until something completes: the time until the next poll is not held
    /// against it.
    pub const fn pause(&mut self) {
        self.last_poll = None;
    }

    /// Tries again for channels that there was no memory for.
    fn replenish(&mut self, now: Instant) {
        for _ in 0..self.want.len() {
            let Some(id) = self.want.pop_front() else { break };
            self.with(now, id, |channel, shared| {
                channel.in_want = false;
                channel.replenish(now, shared)
            });
        }
    }

    /// Completions waited for an owner that was elsewhere (section VI.A, method II).
    fn watch(&mut self, now: Instant, gap: Option<Duration>) {
        if let Some(gap) = gap.filter(|&gap| gap > self.shared.config.polling_warn) {
            self.shared.stats.slow_polls += 1;
            self.shared.note(now, None, Noted::SlowPoll(gap));
            self.shared.events.push_back(Event::Slow(Slow::Poll { gap }));
        }
    }

    fn complete(&mut self, now: Instant, completion: &Completion) {
        let (id, work) = read_work_id(completion.wr_id);
        if work == WorkId::SharedReceive {
            return self.complete_shared(now, completion);
        }
        let status = completion.status;
        self.with(now, id, |channel, shared| {
            if status != Status::Success {
                return Err(CloseReason::PeerGone(status));
            }
            match work {
                WorkId::Receive => return channel.received(now, shared, completion),
                WorkId::SharedReceive => {}
                WorkId::Read => channel.fragment_read(now, shared),
                WorkId::Probe => channel.probing = false,
                WorkId::LastAck => return Err(CloseReason::ByPeer),
                WorkId::Send => {}
            }
            channel.last_heard = now;
            Ok(())
        });
    }

    /// A receive request of the shared queue completed.
    fn complete_shared(&mut self, now: Instant, completion: &Completion) {
        let Some(block) = self.shared.take_shared(completion.wr_id) else { return };
        match self.by_qp.get(&completion.qp) {
            Some(&id) if completion.status == Status::Success => {
                self.with(now, id, |channel, shared| {
                    channel.received_in(now, shared, completion, block)
                });
            }
            found => {
                let found = found.copied();
                self.shared.memory.release(now, block);
                let reason = CloseReason::PeerGone(completion.status);
                found.into_iter().for_each(|id| self.fail(now, id, reason));
            }
        }
        self.shared.fill_shared();
    }

    /// Has something done to a channel, and sees to what follows.
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
                self.touch(id);
                Some(result)
            }
            Err(reason) => {
                self.fail(now, id, reason);
                None
            }
        }
    }

    /// A channel's carrier failed, or its peer did.
    fn fail(&mut self, now: Instant, id: ChannelId, reason: CloseReason) {
        let Some(channel) = self.channels.get_mut(id) else { return };
        let device = matches!(reason, CloseReason::PeerGone(_) | CloseReason::Device(_));
        if device && channel.stream.attached && !channel.stream.rdma_lost {
            self.shared.current = id;
            match channel.fail_over(now, &mut self.shared) {
                Ok(()) => return self.touch(id),
                Err(reason) => return self.end(now, id, reason),
            }
        }
        let reason = match channel.state {
            // Its close crossed ours, or it has all and is gone.
            State::PeerClosed { .. } => CloseReason::ByPeer,
            _ => reason,
        };
        self.end(now, id, reason);
    }

    fn touch(&mut self, id: ChannelId) {
        if let Some(channel) = self.channels.get_mut(id).filter(|channel| !channel.touched) {
            channel.touched = true;
            self.touched.push(id);
        }
    }

    /// Sees to the channels something happened to: sends, acknowledges, reads.
    fn attend(&mut self, now: Instant) {
        // What one channel does may touch it again, through an error.
        while let Some(id) = self.touched.pop() {
            let Some(channel) = self.channels.get_mut(id) else { continue };
            channel.touched = false;
            self.shared.current = id;
            if let Err(reason) = Self::serve(now, channel, &mut self.shared) {
                self.fail(now, id, reason);
                continue;
            }
            self.note(id);
        }
        self.read(now);
    }

    fn serve(
        now: Instant,
        channel: &mut Channel,
        shared: &mut Shared<V>,
    ) -> Result<(), CloseReason> {
        if channel.stream.in_use() {
            channel.read_stream(now, shared)?;
        }
        channel.replenish(now, shared)?;
        channel.switch_if_wanted(now, shared)?;
        channel.flush(now, shared)?;
        channel.nop_if_stuck(now, shared)?;
        channel.acknowledge_if_due(now, shared)?;
        channel.probe_if_due(now, shared)?;
        channel.expire(now, &shared.config)
    }

    /// Notes when a channel is to be seen to again, and what it waits for.
    fn note(&mut self, id: ChannelId) {
        let Some(channel) = self.channels.get_mut(id) else { return };
        let wants = !channel.unposted.is_empty() || channel.stream.waits_for_memory();
        if wants && !core::mem::replace(&mut channel.in_want, true) {
            self.want.push_back(id);
        }
        if !channel.in_read_queue && channel.wants_to_read(self.shared.config.reads) {
            channel.in_read_queue = true;
            self.readers.push_back(id);
        }
        let Some(due) = channel.deadline(&self.shared.config) else { return };
        if channel.timer.is_none_or(|noted| due < noted) {
            if let Some(noted) = channel.timer.replace(due) {
                self.timers.remove(&(noted, id));
            }
            self.timers.insert((due, id));
        }
    }

    fn serve_timers(&mut self, now: Instant) {
        while let Some(&(at, id)) = self.timers.first().filter(|(at, _)| *at <= now) {
            self.timers.remove(&(at, id));
            if let Some(channel) = self.channels.get_mut(id) {
                channel.timer = None;
            }
            self.touch(id);
        }
        let Shared { memory, verbs, .. } = &mut self.shared;
        if memory.shrink_at().is_some_and(|at| at <= now) {
            memory.shrink(now, verbs);
        }
    }

    /// Asks for fragments, a channel after the other, as many as the context may (section V.C).
    fn read(&mut self, now: Instant) {
        let reads = self.shared.config.reads;
        let mut waiting = self.readers.len();
        while waiting > 0 && self.shared.reading < self.shared.config.outstanding {
            waiting -= 1;
            let Some(id) = self.readers.pop_front() else { break };
            let Some(channel) = self.channels.get_mut(id) else { continue };
            channel.in_read_queue = false;
            if !channel.wants_to_read(reads) {
                continue;
            }
            self.shared.current = id;
            match channel.read_fragment(now, &mut self.shared) {
                Ok(true) if channel.wants_to_read(reads) => {
                    channel.in_read_queue = true;
                    self.readers.push_back(id);
                    waiting += 1;
                }
                Ok(true) => {}
                Ok(false) => {
                    if !core::mem::replace(&mut channel.in_want, true) {
                        self.want.push_back(id);
                    }
                }
                Err(reason) => self.fail(now, id, reason),
            }
        }
    }

    /// Lets messages go that a filter rule held back.
    fn release_held(&mut self, now: Instant) {
        while let Some(entry) = self.shared.held.first_entry().filter(|entry| entry.key().0 <= now)
        {
            match entry.remove() {
                Held::In(channel, message) => {
                    self.shared.events.push_back(Event::Message { channel, message });
                }
                Held::Out(id, frame) => {
                    let frame = match self.channels.get_mut(id) {
                        Some(channel) => {
                            channel.backlog.push_back(frame);
                            None
                        }
                        None => Some(frame),
                    };
                    self.touch(id);
                    if let Some(frame) = frame {
                        self.shared.drop_frame(now, frame);
                    }
                }
            }
        }
    }
}

impl<V: Verbs> Shared<V> {
    /// Notes what happened, to the channel that is being seen to where it has a peer.
    pub(crate) fn note(&mut self, at: Instant, peer: Option<Ipv6Addr>, what: Noted) {
        let channel = peer.map(|peer| (self.current, peer));
        self.journal.note(Note { at, channel, what });
    }

    /// Bytes of memory that a frame may take.
    pub(crate) const fn frame_len(&self) -> u32 {
        frame_len(&self.config)
    }

    /// Memory for a frame.
    pub(crate) fn frame_block(&mut self) -> Result<Block, Refused> {
        let len = self.frame_len();
        self.memory.allocate(&mut self.verbs, len)
    }

    /// The number for a work request of the channel that is being seen to.
    pub(crate) fn work_id(&self, work: WorkId) -> u64 {
        let key = self.current.data().as_ffi();
        let (version, index) = (key >> 32, key & 0xffff_ffff);
        debug_assert!(index < 1 << 29, "fewer channels than that fit any memory");
        version << 32 | index << 3 | work as u64
    }

    /// A frame that is no message.
    pub(crate) fn control(&mut self, kind: FrameKind) -> Result<Outgoing, Refused> {
        let frame = self.frame_block()?;
        let (call, number, length) = (Call::OneWay, 0, 0);
        Ok(Outgoing { kind, call, number, length, frame, body: None, trace: None })
    }

    /// Keeps a message for later.
    pub(crate) fn hold_back(&mut self, until: Instant, message: Message) {
        let held = Held::In(self.current, message);
        self.hold(until, held);
    }

    fn hold(&mut self, until: Instant, held: Held) {
        self.held_count += 1;
        self.held.insert((until, self.held_count), held);
    }

    /// Changes one bit.
    pub(crate) fn corrupt(&mut self, body: Slice) {
        if body.len > 0 {
            let bit = self.rng.below(u64::from(body.len) * 8);
            let at = usize::try_from(bit / 8).expect("an index");
            self.verbs.bytes_mut(body)[at] ^= 1 << (bit % 8);
        }
    }
}

fn read_work_id(wr_id: u64) -> (ChannelId, WorkId) {
    let work = match wr_id & 7 {
        0 => WorkId::Send,
        1 => WorkId::Receive,
        2 => WorkId::Read,
        3 => WorkId::Probe,
        4 => WorkId::LastAck,
        _ => WorkId::SharedReceive,
    };
    let key = (wr_id >> 32) << 32 | (wr_id & 0xffff_ffff) >> 3;
    (KeyData::from_ffi(key).into(), work)
}

const fn frame_len(config: &Config) -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "a header is short")]
    let header = FrameHeader::MAX_LEN as u32;
    config.small + header
}
