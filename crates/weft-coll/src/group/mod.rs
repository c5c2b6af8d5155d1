//! One rank of a group: calls in order, their blocks in progress, and messages in both directions.
//!
//! **The lead of a rank is bounded.** A message for a block is sent only while its receiver is at most a window
//! of blocks behind on that channel; message headers carry the progress. So the messages waiting at a receiver
//! are bounded, including those for calls that it has not made yet. This cannot deadlock: of the blocks that
//! some rank has not finished, the first is in every rank's window.

use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use weft_plan::collective::{Schedule, Windows};
use weft_units::Instant;

use crate::algorithm::{Algorithm, Key, blocks};
use crate::header::{Header, Kind};
use crate::{Call, CallError, Error, Link};

mod arrive;
mod assign;
mod block;
mod config;
mod control;
mod stall;

pub use weft_plan::collective::Channel;

pub use config::Config;

use block::Running;
use config::{alone, check_blocks, check_servers};

/// The completion of a call.
#[derive(Debug)]
pub struct Event<B> {
    /// The call's number, which [`Group::submit`] returned.
    pub call: u64,
    /// `Ok` if the buffer holds the result.
    pub result: Result<(), Error>,
    /// The buffer.
    pub buffer: B,
}

/// Number of blocks that each channel carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Number of blocks on the inner channel.
    pub inner: u64,
    /// Number of blocks on the network.
    pub network: u64,
}

/// One rank of a group, with buffers of type `B` and messages of type `M`.
#[derive(Debug)]
pub struct Group<B, M> {
    rank: usize,
    config: Config,
    schedules: BTreeMap<Key, Arc<[Schedule]>>,
    calls: VecDeque<ActiveCall<B>>,
    /// The number of the first of `calls`, which is also the number of completed calls.
    first: u64,
    /// The last completed calls, for comparison with late messages.
    past: VecDeque<Call>,
    /// The index in `calls` of the call whose blocks are being assigned.
    assigning: usize,
    /// The leader's assignments, in its order.
    announced: VecDeque<Header>,
    channels: [ChannelState; 2],
    /// Messages that wait for their step, by call, block and sender.
    inbox: BTreeMap<(u64, u32, usize), VecDeque<M>>,
    /// Other ranks' calls that this rank has not made yet.
    early_calls: BTreeMap<(u64, usize), Call>,
    peers: Vec<Peer>,
    events: VecDeque<Event<B>>,
    failed: Option<Error>,
    share: Share,
    /// The measured rates of the channels in recent long calls.
    rates: assign::Rates,
    /// The call for which this rank has reported that it waits.
    stalled: Option<u64>,
    now: Instant,
}

/// A call in progress.
#[derive(Debug)]
struct ActiveCall<B> {
    call: Call,
    /// The schedules that blocks use in turn, with the steps of this rank.
    schedules: Arc<[Schedule]>,
    buffer: B,
    blocks: u32,
    assigned: u32,
    finished: u32,
    /// The leader's assignment of blocks to two channels.
    sharing: Option<assign::Sharing>,
}

impl<B> ActiveCall<B> {
    /// Returns the schedule of a block.
    fn schedule(&self, block: u32) -> &Schedule {
        &self.schedules[block as usize % self.schedules.len()]
    }
}

/// The blocks of a channel, numbered continuously through all calls.
#[derive(Debug, Default)]
struct ChannelState {
    /// Assigned blocks that have not started: call and block.
    waiting: VecDeque<(u64, u32)>,
    /// Blocks in progress.
    running: Vec<Running>,
    /// Number of blocks that were started.
    begun: u64,
    /// All blocks before this one are finished.
    done: u64,
    /// The finished blocks after it.
    finished_ahead: BTreeSet<u64>,
    /// By rank, the progress of both sides.
    peers: Vec<Progress>,
}

/// Another rank's progress on a channel, and this rank's progress that it was notified of.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    /// Number of blocks that the other rank has finished.
    done: u64,
    /// Number of finished blocks that this rank last reported to it.
    reported: u64,
}

/// Another rank.
#[derive(Debug, Default)]
struct Peer {
    /// `true` if it left in order.
    left: bool,
    /// `true` if it is unreachable.
    gone: bool,
    /// Number of its messages that wait for their step.
    waiting: usize,
    /// The call for which it has reported that it waits.
    stalled: Option<u64>,
    /// Control messages to send to it, in order.
    notices: VecDeque<(Header, String)>,
}

/// Returns the schedule with the steps of this rank only: those of all take as much memory as the number of ranks squared.
fn only_of(rank: usize, mut schedule: Schedule) -> Schedule {
    let others = schedule.steps.iter_mut().enumerate().filter(|(other, _)| *other != rank);
    others.for_each(|(_, steps)| *steps = Vec::new());
    schedule
}

const fn index(channel: Channel) -> usize {
    match channel {
        Channel::Inner => 0,
        Channel::Network => 1,
    }
}

const CHANNELS: [Channel; 2] = [Channel::Inner, Channel::Network];

/// Number of completed calls that late messages are compared with.
const MAX_PAST_CALLS: usize = 64;
/// Maximum length, in bytes, of the reason that a failed rank sends.
const MAX_REASON_BYTES: usize = 512;

impl<B: AsMut<[u8]>, M> Group<B, M> {
    /// Returns one rank of a group.
    ///
    /// # Panics
    /// If the servers do not name every rank once, including this one, some ranks have no block and others have, the
    /// algorithm does not fit the number of ranks, `max_body` or `max_in_flight` is zero, or `window` is below `max_in_flight`.
    pub fn new(rank: usize, config: Config) -> Self {
        let ranks = config.ranks();
        check_servers(&config.servers, ranks);
        check_blocks(&config.blocks, ranks);
        assert!(rank < ranks, "rank {rank} of {ranks}");
        assert!(config.algorithm.fits(ranks), "{} for {ranks} ranks", config.algorithm);
        assert!(
            config.max_body > 0
                && config.window >= config.max_in_flight
                && config.max_in_flight > 0
        );
        let state = || ChannelState {
            peers: alloc::vec![Progress::default(); ranks],
            ..ChannelState::default()
        };
        Self {
            rank,
            config,
            schedules: BTreeMap::new(),
            calls: VecDeque::new(),
            first: 0,
            past: VecDeque::new(),
            assigning: 0,
            announced: VecDeque::new(),
            channels: [state(), state()],
            inbox: BTreeMap::new(),
            early_calls: BTreeMap::new(),
            peers: (0..ranks).map(|_| Peer::default()).collect(),
            events: VecDeque::new(),
            failed: None,
            share: Share::default(),
            rates: assign::Rates::default(),
            stalled: None,
            now: Instant::default(),
        }
    }

    /// Returns this rank's number.
    pub const fn rank(&self) -> usize {
        self.rank
    }

    /// Returns the number of ranks.
    pub const fn ranks(&self) -> usize {
        self.peers.len()
    }

    /// Changes the order of ranks from the next call on; each rank is a server then. All ranks change it after the same call.
    ///
    /// # Panics
    /// If a call is in progress, or the order does not name every rank once.
    pub fn set_order(&mut self, order: Vec<usize>) {
        self.set_servers(alone(order));
    }

    /// Changes the servers, and the order of ranks with them, from the next call on. All ranks change them after the same
    /// call.
    ///
    /// # Panics
    /// If a call is in progress, or the servers do not name every rank once.
    pub fn set_servers(&mut self, servers: Vec<Vec<usize>>) {
        assert!(self.calls.is_empty(), "the schedules of calls in progress have the old order");
        check_servers(&servers, self.ranks());
        self.schedules.clear();
        self.config.servers = servers;
    }

    /// Changes the block of the fabric of each rank from the next call on ([`Config::blocks`]). All ranks change it after
    /// the same call.
    ///
    /// # Panics
    /// If a call is in progress, or the blocks are neither those of all ranks nor none.
    pub fn set_blocks(&mut self, blocks: Vec<u32>) {
        assert!(self.calls.is_empty(), "the schedules of calls in progress have the old blocks");
        check_blocks(&blocks, self.ranks());
        self.schedules.clear();
        self.config.blocks = blocks;
    }

    /// Changes the algorithm from the next call on. All ranks change it after the same call.
    ///
    /// # Panics
    /// If a call is in progress, or the algorithm does not fit the number of ranks.
    pub fn set_algorithm(&mut self, algorithm: Algorithm) {
        assert!(
            self.calls.is_empty(),
            "the schedules of calls in progress are of the old algorithm"
        );
        assert!(algorithm.fits(self.ranks()), "{algorithm} for {} ranks", self.ranks());
        self.schedules.clear();
        self.config.algorithm = algorithm;
    }

    /// Starts a collective on a buffer, which its [`Event`] returns. Calls are numbered from 0 and complete in
    /// order; several may be in progress. [`advance`](Self::advance) performs it.
    ///
    /// # Errors
    /// Returns `Failed` if the group failed earlier, or else the first parameter of the call that does not fit.
    pub fn submit(&mut self, call: Call, mut buffer: B) -> Result<u64, CallError> {
        if let Some(error) = &self.failed {
            return Err(error.clone().into());
        }
        call.check(self.ranks(), buffer.as_mut().len())?;
        if call.op == crate::Op::Average && call.collective.reduces() && call.data_type.is_float() {
            let ranks = u32::try_from(self.ranks()).unwrap_or(u32::MAX);
            call.data_type.divide(ranks, buffer.as_mut());
        }
        let key = Key::of(&call, self.ranks(), self.config.max_body);
        let (rank, config) = (self.rank, &self.config);
        let schedules = || {
            let schedules =
                key.schedules(&config.servers, &config.servers_by_block(), config.algorithm);
            schedules.into_iter().map(|schedule| only_of(rank, schedule)).collect()
        };
        let schedules = Arc::clone(self.schedules.entry(key).or_insert_with(schedules));
        let blocks = blocks(&call, &schedules[0], self.config.max_body, self.config.max_in_flight);
        let number = self.first + self.calls.len() as u64;
        self.calls.push_back(ActiveCall {
            call,
            schedules,
            buffer,
            blocks,
            assigned: 0,
            finished: 0,
            sharing: None,
        });
        let early = self.early_calls.range((number, 0)..(number + 1, 0));
        let early: Vec<(usize, Call)> = early.map(|((_, peer), theirs)| (*peer, *theirs)).collect();
        for (peer, theirs) in early {
            self.early_calls.remove(&(number, peer));
            if theirs != call {
                let rank = self.rank;
                self.fail(Error::Mismatch { call: number, rank, ours: call, peer, theirs });
                break;
            }
        }
        Ok(number)
    }

    /// Performs all possible work: starts blocks, performs steps, sends messages. The owner calls it after a
    /// call, after messages arrived, and when the link has room again.
    pub fn advance<L: Link<Message = M>>(&mut self, now: Instant, link: &mut L) {
        self.now = now;
        let mut progressed = true;
        while progressed && self.failed.is_none() {
            self.assign();
            progressed = self.run_blocks(link);
            self.finish_calls();
        }
        if self.failed.is_some() {
            self.clear(link);
        }
        self.notify_peers(link);
    }

    /// Returns the next completed call, in the order of calls.
    pub fn poll_event(&mut self) -> Option<Event<B>> {
        self.events.pop_front()
    }

    /// Returns `true` if no call is in progress and no control message waits to be sent.
    pub fn is_idle(&self) -> bool {
        let notified =
            self.peers.iter().all(|peer| peer.notices.is_empty() || peer.gone || peer.left);
        self.calls.is_empty() && notified
    }

    /// Returns the reason for the group's failure, if it failed.
    pub const fn error(&self) -> Option<&Error> {
        self.failed.as_ref()
    }

    /// Returns the number of blocks that each channel carried.
    pub const fn share(&self) -> Share {
        self.share
    }

    /// Fails the group because a rank is unreachable.
    ///
    /// # Panics
    /// If there is no such rank.
    pub fn peer_gone(&mut self, rank: usize, why: String) {
        self.peers[rank].gone = true;
        self.fail(Error::Gone { rank, why });
    }

    /// Marks a rank that left in order. The group fails only if a call still needs it.
    ///
    /// # Panics
    /// If there is no such rank.
    pub fn peer_left(&mut self, rank: usize) {
        self.peers[rank].left = true;
    }

    /// Fails the group on behalf of its owner and notifies the others.
    pub fn abort(&mut self, why: &str) {
        self.fail(Error::Owner(why.to_owned()));
    }

    fn active_call(&self, call: u64) -> Option<&ActiveCall<B>> {
        let place = usize::try_from(call.checked_sub(self.first)?).ok()?;
        self.calls.get(place)
    }

    fn fail(&mut self, error: Error) {
        if self.failed.is_some() {
            return;
        }
        let mut why = error.to_string();
        while why.len() > MAX_REASON_BYTES {
            why.pop();
        }
        let call = Call::barrier();
        let channel = u8::try_from(index(self.config.channel.unwrap_or(Channel::Network)));
        let channel = channel.expect("two channels");
        let header =
            Header { kind: Kind::Abort, call, number: 0, block: 0, count: 0, channel, done: 0 };
        // A rank that gave up has notified all others itself.
        let notified = matches!(error, Error::GivenUp { .. });
        for peer in &mut self.peers {
            peer.notices.clear();
            if !notified && !peer.gone && !peer.left {
                peer.notices.push_back((header, why.clone()));
            }
        }
        self.peers[self.rank].notices.clear();
        self.failed = Some(error);
    }

    /// Returns all buffers and frees all messages of a failed group.
    fn clear<L: Link<Message = M>>(&mut self, link: &mut L) {
        let Some(error) = &self.failed else { return };
        for active in self.calls.drain(..) {
            let call = self.first;
            self.first += 1;
            self.events.push_back(Event {
                call,
                result: Err(error.clone()),
                buffer: active.buffer,
            });
        }
        for state in &mut self.channels {
            state.waiting.clear();
            state.running.clear();
        }
        self.peers.iter_mut().for_each(|peer| peer.waiting = 0);
        let kept = core::mem::take(&mut self.inbox);
        kept.into_values().flatten().for_each(|message| link.release(message));
    }

    /// Completes finished calls.
    fn finish_calls(&mut self) {
        while let Some(active) = self.calls.front()
            && active.finished == active.blocks
        {
            let active = self.calls.pop_front().expect("the front was checked");
            self.update_rates(&active);
            self.end_stall();
            self.past.push_back(active.call);
            if self.past.len() > MAX_PAST_CALLS {
                self.past.pop_front();
            }
            self.assigning = self.assigning.saturating_sub(1);
            self.events.push_back(Event {
                call: self.first,
                result: Ok(()),
                buffer: active.buffer,
            });
            self.first += 1;
        }
    }
}
