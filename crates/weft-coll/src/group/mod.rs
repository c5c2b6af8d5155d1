//! One rank of a group: calls in order, blocks of them under way, messages in and out.
//!
//! **Nobody runs far ahead.** A message for a block leaves only when its receiver is at most a window of blocks behind
//! on that channel, as heads of messages tell. So what waits at a receiver is bounded, also of calls it has not made
//! yet; and nothing can stand still for that: of the blocks that some rank has not finished, the first is in every
//! rank's window.

use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use weft_plan::collective::{Schedule, Step, Windows};
use weft_units::Instant;

use crate::algorithm::{Algorithm, Key, blocks};
use crate::head::{Head, Kind};
use crate::{Call, CallError, Error, Link};

mod arrive;
mod assign;
mod block;
mod tell;

pub use weft_plan::collective::Channel;

use block::Running;

/// How a group works. All its ranks have the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// In which order rings and chains go through the ranks, as `weft plan ring` finds it; each once.
    pub order: Vec<usize>,
    /// How all-reduces of long buffers go.
    pub algorithm: Algorithm,
    /// Bytes of the longest body of a message.
    pub piece: usize,
    /// Blocks of a channel that a rank may be ahead of another.
    pub window: u32,
    /// Blocks of a channel that a rank works on at a time.
    pub under_way: u32,
    /// The channel that everything takes, or none for both: blocks of long calls are shared between them, and short
    /// calls take the inner one.
    pub only: Option<Channel>,
}

impl Config {
    /// What serves best on most networks: pieces that fill a block of 64 KiB of the messaging layer's memory, and windows that
    /// keep some megabytes under way.
    pub fn of(ranks: usize, only: Option<Channel>) -> Self {
        Self {
            order: (0..ranks).collect(),
            algorithm: Algorithm::default(),
            piece: (64 << 10) - 64,
            window: 32,
            under_way: 16,
            only,
        }
    }
}

/// What a call came to.
#[derive(Debug)]
pub struct Event<B> {
    /// Its number, as [`Group::submit`] gave it.
    pub call: u64,
    /// Whether the buffer holds the result.
    pub result: Result<(), Error>,
    /// The buffer.
    pub buffer: B,
}

/// What each channel carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Blocks that the inner channel took.
    pub inner: u64,
    /// Blocks that the network took.
    pub network: u64,
}

/// One rank of a group, with buffers of type `B` and messages of type `M`.
#[derive(Debug)]
pub struct Group<B, M> {
    rank: usize,
    config: Config,
    schedules: BTreeMap<Key, Arc<Schedule>>,
    calls: VecDeque<Asked<B>>,
    /// Number of the first of `calls`.
    first: u64,
    /// The last calls that are done, to compare late messages with.
    past: VecDeque<Call>,
    /// Which of `calls` is being assigned to channels.
    assigning: usize,
    /// What the leader said of who takes what, in its order.
    announced: VecDeque<Head>,
    channels: [Lanes; 2],
    /// Messages that wait for the step that wants them: by call, block and sender.
    inbox: BTreeMap<(u64, u32, usize), VecDeque<M>>,
    /// What others ask for in calls that this rank has not made yet.
    ahead: BTreeMap<(u64, usize), Call>,
    peers: Vec<Peer>,
    events: VecDeque<Event<B>>,
    failed: Option<Error>,
    share: Share,
    /// What channels carried of the last long calls, bytes a second, and how long the network took for a part.
    rates: assign::Rates,
    now: Instant,
}

/// A call that is under way.
#[derive(Debug)]
struct Asked<B> {
    call: Call,
    schedule: Arc<Schedule>,
    buffer: B,
    blocks: u32,
    assigned: u32,
    finished: u32,
    /// How the leader shares blocks between two channels.
    sharing: Option<assign::Sharing>,
}

/// A channel's blocks. They are numbered on through all calls.
#[derive(Debug, Default)]
struct Lanes {
    /// Blocks that are assigned to it and not begun: call and block.
    waiting: VecDeque<(u64, u32)>,
    running: Vec<Running>,
    begun: u64,
    /// All blocks before this one are finished.
    done: u64,
    beyond: BTreeSet<u64>,
    peers: Vec<Progress>,
}

/// How far another rank is on a channel, and what it knows of this one.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    done: u64,
    told: u64,
}

/// Another rank.
#[derive(Debug, Default)]
struct Peer {
    left: bool,
    gone: bool,
    /// Messages of control that it is to be sent, in order.
    notices: VecDeque<(Head, String)>,
}

const fn index(channel: Channel) -> usize {
    match channel {
        Channel::Inner => 0,
        Channel::Network => 1,
    }
}

const BOTH: [Channel; 2] = [Channel::Inner, Channel::Network];

/// Calls that late messages are compared with.
const REMEMBERED: usize = 64;
/// The longest text that is sent when a rank gives up, bytes.
const LONGEST_REASON: usize = 512;

impl<B: AsMut<[u8]>, M> Group<B, M> {
    /// A rank of a group.
    ///
    /// # Panics
    /// If the order does not name every rank once, this one among them, the algorithm does not fit so many, or a window
    /// or piece is zero.
    pub fn new(rank: usize, config: Config) -> Self {
        let ranks = config.order.len();
        let named: BTreeSet<usize> = config.order.iter().copied().collect();
        assert!(named.len() == ranks && named.last() == Some(&(ranks - 1)), "each rank once");
        assert!(rank < ranks, "rank {rank} of {ranks}");
        assert!(config.algorithm.fits(ranks), "{} for {ranks} ranks", config.algorithm);
        assert!(config.piece > 0 && config.window >= config.under_way && config.under_way > 0);
        let lanes = || Lanes { peers: alloc::vec![Progress::default(); ranks], ..Lanes::default() };
        Self {
            rank,
            config,
            schedules: BTreeMap::new(),
            calls: VecDeque::new(),
            first: 0,
            past: VecDeque::new(),
            assigning: 0,
            announced: VecDeque::new(),
            channels: [lanes(), lanes()],
            inbox: BTreeMap::new(),
            ahead: BTreeMap::new(),
            peers: (0..ranks).map(|_| Peer::default()).collect(),
            events: VecDeque::new(),
            failed: None,
            share: Share::default(),
            rates: assign::Rates::default(),
            now: Instant::default(),
        }
    }

    /// Which rank this is.
    pub const fn rank(&self) -> usize {
        self.rank
    }

    /// How many there are.
    pub const fn ranks(&self) -> usize {
        self.peers.len()
    }

    /// Asks for a collective on a buffer, which comes back with its [`Event`]. Calls are numbered from 0, and done in
    /// order; several may be under way. [`advance`](Self::advance) begins it.
    ///
    /// # Errors
    /// The call cannot be, or the group failed before.
    pub fn submit(&mut self, call: Call, mut buffer: B) -> Result<u64, CallError> {
        if let Some(error) = &self.failed {
            return Err(error.clone().into());
        }
        call.check(self.ranks(), buffer.as_mut().len())?;
        if call.op == crate::Op::Average && call.collective.reduces() && call.data_type.is_float() {
            let ranks = u32::try_from(self.ranks()).unwrap_or(u32::MAX);
            call.data_type.divide(ranks, buffer.as_mut());
        }
        let key = Key::of(&call);
        let Config { order, algorithm, .. } = &self.config;
        let schedule = || Arc::new(key.schedule(order, *algorithm));
        let schedule = self.schedules.entry(key).or_insert_with(schedule);
        let schedule = Arc::clone(schedule);
        let blocks = blocks(&call, &schedule, self.config.piece, self.config.under_way);
        let number = self.first + self.calls.len() as u64;
        self.calls.push_back(Asked {
            call,
            schedule,
            buffer,
            blocks,
            assigned: 0,
            finished: 0,
            sharing: None,
        });
        let early = self.ahead.range((number, 0)..(number + 1, 0));
        let early: Vec<(usize, Call)> = early.map(|((_, peer), theirs)| (*peer, *theirs)).collect();
        for (peer, theirs) in early {
            self.ahead.remove(&(number, peer));
            if theirs != call {
                let rank = self.rank;
                self.fail(Error::Mismatch { call: number, rank, ours: call, peer, theirs });
                break;
            }
        }
        Ok(number)
    }

    /// Does what can be done: begins blocks, takes steps, sends. To be called after a call was made, after messages
    /// arrived, and again when the link has room after it had none.
    pub fn advance<L: Link<Message = M>>(&mut self, now: Instant, link: &mut L) {
        self.now = now;
        let mut moved = true;
        while moved && self.failed.is_none() {
            self.assign();
            moved = self.run_blocks(link);
            self.finish_calls();
        }
        if self.failed.is_some() {
            self.clear(link);
        }
        self.tell(link);
    }

    /// What a call came to, in the order of calls.
    pub fn poll_event(&mut self) -> Option<Event<B>> {
        self.events.pop_front()
    }

    /// Whether nothing is under way: no call, and nothing that others are to be told.
    pub fn is_idle(&self) -> bool {
        let told = self.peers.iter().all(|peer| peer.notices.is_empty() || peer.gone || peer.left);
        self.calls.is_empty() && told
    }

    /// Why the group cannot go on, if so.
    pub const fn error(&self) -> Option<&Error> {
        self.failed.as_ref()
    }

    /// Whom the first unfinished block waits for, if it does.
    pub fn waits_for(&self) -> Option<usize> {
        let blocks = self.channels.iter().flat_map(|lanes| &lanes.running);
        let first = blocks.min_by_key(|block| (block.call, block.block))?;
        match self.asked(first.call)?.schedule.steps[self.rank].get(first.at)? {
            Step::Receive { from, .. } | Step::Reduce { from, .. } => Some(*from),
            Step::Send { to, .. } => Some(*to),
            Step::Copy { .. } => None,
        }
    }

    /// What each channel carried so far.
    pub const fn share(&self) -> Share {
        self.share
    }

    /// A rank cannot be reached any more.
    pub fn peer_gone(&mut self, rank: usize, why: String) {
        self.peers[rank].gone = true;
        self.fail(Error::Gone { rank, why });
    }

    /// A rank left the group in order. That is an error when something still needs it.
    pub fn peer_left(&mut self, rank: usize) {
        self.peers[rank].left = true;
    }

    /// The owner cannot go on; the others are told.
    pub fn give_up(&mut self, why: &str) {
        self.fail(Error::Owner(why.to_owned()));
    }

    fn asked(&self, call: u64) -> Option<&Asked<B>> {
        let place = usize::try_from(call.checked_sub(self.first)?).ok()?;
        self.calls.get(place)
    }

    fn fail(&mut self, error: Error) {
        if self.failed.is_some() {
            return;
        }
        let mut why = error.to_string();
        while why.len() > LONGEST_REASON {
            why.pop();
        }
        let call = Call::barrier();
        let channel = u8::try_from(index(self.config.only.unwrap_or(Channel::Network)));
        let channel = channel.expect("two channels");
        let head =
            Head { kind: Kind::GiveUp, call, number: 0, block: 0, count: 0, channel, done: 0 };
        // Who gave up itself has told everybody.
        let told = matches!(error, Error::GivenUp { .. });
        for peer in &mut self.peers {
            peer.notices.clear();
            if !told && !peer.gone && !peer.left {
                peer.notices.push_back((head, why.clone()));
            }
        }
        self.peers[self.rank].notices.clear();
        self.failed = Some(error);
    }

    /// Gives everything back: the group failed.
    fn clear<L: Link<Message = M>>(&mut self, link: &mut L) {
        let Some(error) = &self.failed else { return };
        for asked in self.calls.drain(..) {
            let call = self.first;
            self.first += 1;
            self.events.push_back(Event { call, result: Err(error.clone()), buffer: asked.buffer });
        }
        for lanes in &mut self.channels {
            lanes.waiting.clear();
            lanes.running.clear();
        }
        let kept = core::mem::take(&mut self.inbox);
        kept.into_values().flatten().for_each(|message| link.release(message));
    }

    /// Hands over calls that are done.
    fn finish_calls(&mut self) {
        while let Some(asked) = self.calls.front()
            && asked.finished == asked.blocks
        {
            let asked = self.calls.pop_front().expect("looked just now");
            self.note_rates(&asked);
            self.past.push_back(asked.call);
            if self.past.len() > REMEMBERED {
                self.past.pop_front();
            }
            self.assigning = self.assigning.saturating_sub(1);
            self.events.push_back(Event { call: self.first, result: Ok(()), buffer: asked.buffer });
            self.first += 1;
        }
    }
}
