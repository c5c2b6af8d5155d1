//! The state that the channels of a context share, and the encoding of work request numbers.

use alloc::collections::{BTreeMap, VecDeque};
use core::net::Ipv6Addr;

use slotmap::{Key, KeyData};
use weft_units::{Duration, Instant, Rng, Seed};
use weft_wire::{CallRole, FrameHeader, FrameKind};

use super::ChannelId;
use crate::Config;
use crate::channel::Outgoing;
use crate::event::{Event, Message};
use crate::filter::Filter;
use crate::flow::FlowLimit;
use crate::journal::{Journal, Note, NoteKind};
use crate::memory::{Block, MemoryCache, MemoryLimits};
use crate::shared_receives::SharedReceives;
use crate::stats::{ContextStats, TracedTimes};
use crate::verbs::{Completion, DeviceError, Qp, Slice, Verbs};

/// The shared state of channels.
#[derive(Debug)]
pub(crate) struct Shared<V> {
    pub(crate) verbs: V,
    pub(crate) config: Config,
    pub(crate) memory: MemoryCache,
    pub(crate) events: VecDeque<Event>,
    pub(crate) filter: Filter,
    pub(crate) rng: Rng,
    pub(crate) stats: ContextStats,
    pub(crate) traced: TracedTimes,
    /// Completions that were taken from the device and are not handled yet, oldest first.
    unhandled: VecDeque<Completion>,
    /// The shared receive queue, if it is configured.
    pub(crate) receives: Option<SharedReceives>,
    pub(crate) journal: Journal,
    /// The limit of READs.
    pub(crate) reads: FlowLimit,
    /// The limit of SENDs.
    pub(crate) sends: FlowLimit,
    /// Channels with messages that wait for the limit of SENDs, each once.
    pub(crate) send_queue: VecDeque<ChannelId>,
    /// The time from the poll before to this one: a completion may have waited for so long.
    pub(crate) poll_gap: Duration,
    /// The channel being processed.
    pub(crate) current: ChannelId,
    /// Messages delayed by a filter rule, by the end of the delay and a unique number.
    pub(super) held: BTreeMap<(Instant, u64), Held>,
    held_count: u64,
}

/// An incoming or outgoing message that a filter rule delays.
#[derive(Debug)]
pub(super) enum Held {
    In(ChannelId, Message),
    Out(ChannelId, Outgoing),
}

/// The kind of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkId {
    Send = 0,
    Receive = 1,
    Read = 2,
    Probe = 3,
    /// The ACK of the peer's close, which is the last frame.
    LastAck = 4,
    /// A request of the shared receive queue, whose number is not a channel's.
    SharedReceive = 5,
}

impl WorkId {
    /// Number of bits that it takes in a work request number.
    pub(crate) const BITS: u32 = 3;
}

impl<V: Verbs> Shared<V> {
    pub(super) fn new(config: Config, verbs: V, seed: Seed) -> Self {
        let limits = MemoryLimits {
            region: config.memory_region,
            total: config.memory_limit,
            keep: config.memory_keep,
        };
        let memory = MemoryCache::new(limits, frame_len(&config));
        let bounds = config.flow_bounds();
        Self {
            verbs,
            config,
            memory,
            events: VecDeque::new(),
            filter: Filter::default(),
            rng: seed.child("messages", 0).rng(),
            stats: ContextStats::default(),
            traced: TracedTimes::default(),
            unhandled: VecDeque::new(),
            receives: None,
            journal: Journal::default(),
            reads: FlowLimit::new(bounds),
            sends: FlowLimit::new(bounds),
            send_queue: VecDeque::new(),
            poll_gap: Duration::ZERO,
            current: ChannelId::null(),
            held: BTreeMap::new(),
            held_count: 0,
        }
    }

    /// Records an event in the journal, with the channel being processed if `peer` is given.
    pub(crate) fn note(&mut self, at: Instant, peer: Option<Ipv6Addr>, kind: NoteKind) {
        let channel = peer.map(|peer| (self.current, peer));
        self.journal.note(Note { at, channel, kind });
    }

    /// Returns the maximum length of a frame in bytes.
    pub(crate) const fn frame_len(&self) -> u32 {
        frame_len(&self.config)
    }

    /// Allocates memory for a frame.
    #[inline(always)]
    pub(crate) fn frame_block(&mut self) -> Result<Block, DeviceError> {
        self.memory.allocate_frame(&mut self.verbs)
    }

    /// Returns a work request number for the channel being processed.
    #[inline]
    pub(crate) fn work_id(&self, work: WorkId) -> u64 {
        let key = self.current.data().as_ffi();
        let (version, index) = (key >> 32, key & 0xffff_ffff);
        debug_assert!(index < 1 << 29, "fewer channels than that fit any memory");
        version << 32 | index << 3 | work as u64
    }

    /// Returns a control frame.
    pub(crate) fn control(&mut self, kind: FrameKind) -> Result<Outgoing, DeviceError> {
        let frame = self.frame_block()?;
        let (call, number, length) = (CallRole::OneWay, 0, 0);
        Ok(Outgoing { kind, call, number, length, frame, body: None, trace: None })
    }

    /// Returns the next completion.
    #[inline]
    pub(super) fn next_completion(&mut self) -> Option<Completion> {
        if self.unhandled.is_empty() { self.verbs.poll() } else { self.unhandled.pop_front() }
    }

    /// Discards the unhandled completions of a queue pair before it is reset or destroyed, as the device does with those
    /// that it has, and releases the memory of its frames in the shared receive queue: their requests would never be
    /// posted again.
    pub(crate) fn reclaim_shared(&mut self, now: Instant, qp: Qp) {
        if self.receives.is_none() {
            return;
        }
        // `None` may follow the last completion of a batch, without another look at the device.
        for _ in 0..2 {
            self.unhandled.extend(core::iter::from_fn(|| self.verbs.poll()));
        }
        for completion in core::mem::take(&mut self.unhandled) {
            let (_, work) = read_work_id(completion.wr_id);
            if completion.qp != qp {
                self.unhandled.push_back(completion);
            } else if work == WorkId::SharedReceive
                && let Some(block) = self.take_shared(completion.wr_id)
            {
                self.memory.release(now, block);
            }
        }
        self.fill_shared();
    }

    /// Returns the memory of a completed shared request.
    pub(super) fn take_shared(&mut self, wr_id: u64) -> Option<Block> {
        let receives = self.receives.as_mut()?;
        let block = receives.take(wr_id >> WorkId::BITS)?;
        self.stats.srq_dry += u64::from(receives.ran_dry());
        Some(block)
    }

    /// Posts missing shared requests while memory is available.
    #[inline]
    pub(super) fn fill_shared(&mut self) {
        if self.receives.is_some() {
            self.post_shared();
        }
    }

    fn post_shared(&mut self) {
        while let Some(slot) = self.receives.as_mut().and_then(SharedReceives::take_free) {
            let posted = self.frame_block().and_then(|block| {
                let to = Slice { len: self.frame_len(), ..block.slice() };
                let wr_id = u64::from(slot) << WorkId::BITS | WorkId::SharedReceive as u64;
                self.verbs.post_shared_receive(wr_id, to).map(|()| block)
            });
            let Some(receives) = self.receives.as_mut() else { return };
            match posted {
                Ok(block) => receives.post(slot, block),
                Err(_) => return receives.put_back(slot),
            }
        }
    }

    /// Delays the delivery of a message.
    pub(crate) fn hold_back(&mut self, until: Instant, message: Message) {
        let held = Held::In(self.current, message);
        self.hold(until, held);
    }

    pub(super) fn hold(&mut self, until: Instant, held: Held) {
        self.held_count += 1;
        self.held.insert((until, self.held_count), held);
    }

    /// Returns the delayed outgoing messages of a channel before their time, in the order of their deadlines.
    pub(super) fn take_held(&mut self, id: ChannelId) -> impl Iterator<Item = Outgoing> {
        let ours = move |_: &_, held: &mut Held| matches!(held, Held::Out(of, _) if *of == id);
        self.held.extract_if(.., ours).filter_map(|(_, held)| match held {
            Held::Out(_, frame) => Some(frame),
            Held::In(..) => None,
        })
    }
}

/// Returns the channel and the kind that a work request number encodes.
#[inline]
pub(super) fn read_work_id(wr_id: u64) -> (ChannelId, WorkId) {
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

/// Returns the maximum length of a frame in bytes.
const fn frame_len(config: &Config) -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "a header is short")]
    let header = FrameHeader::MAX_LEN as u32;
    config.small + header
}
