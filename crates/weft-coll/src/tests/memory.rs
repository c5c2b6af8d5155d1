//! Ranks of a group in one process, with an adverse link between them: messages of different lanes overtake
//! each other, the link is often full, and ranks run at arbitrary times.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::cell::RefCell;

use weft_units::{Duration, Instant, Rng, Seed};

use crate::{Call, Channel, Config, Event, Group, Link, LinkError};

const LANES: u64 = 3;

type Lane = (usize, usize, u8, u64);

/// The messages in flight between ranks.
#[derive(Default)]
pub(super) struct Wire {
    lanes: BTreeMap<Lane, VecDeque<(Instant, Vec<u8>)>>,
    /// The times in which the inner channel and the network transfer a KiB; `None` if transfers take no time.
    pub(super) time_per_kib: Option<[Duration; 2]>,
    /// The propagation delay after that time.
    pub(super) latency: Duration,
    /// The time from which a channel between two ranks is idle.
    free_at: BTreeMap<(usize, usize, u8), Instant>,
    now: Instant,
    /// Messages that groups hold.
    pub(super) held: usize,
    /// Maximum number of messages that were held at a time.
    pub(super) max_held: usize,
    pub(super) dead: Vec<bool>,
    /// Maximum number of messages in a lane.
    pub(super) lane_capacity: usize,
    /// Number of bytes sent from one rank to another, and number of messages with a body.
    pub(super) bytes_sent: BTreeMap<(usize, usize), usize>,
    pub(super) messages_sent: BTreeMap<(usize, usize), usize>,
}

impl Wire {
    /// Returns the arrival time of a message of `bytes` bytes sent now.
    fn arrival(&mut self, (from, to, channel, _): Lane, bytes: usize) -> Instant {
        let Some(time_per_kib) = self.time_per_kib else { return self.now };
        let free = self.free_at.entry((from, to, channel)).or_insert(self.now);
        let nanos = time_per_kib[usize::from(channel)].as_nanos() * bytes as u64 / 1024;
        *free = (*free).max(self.now) + Duration::from_nanos(nanos);
        *free + self.latency
    }
}

pub(super) struct End<'a> {
    rank: usize,
    wire: &'a RefCell<Wire>,
}

impl Link for End<'_> {
    type Message = Vec<u8>;

    fn send(
        &mut self,
        to: usize,
        channel: Channel,
        lane: u64,
        header: &[u8],
        body: &[u8],
    ) -> Result<bool, LinkError> {
        let mut wire = self.wire.borrow_mut();
        let lane_capacity = wire.lane_capacity;
        let lane = (self.rank, to, u8::from(channel == Channel::Network), lane % LANES);
        if wire.lanes.entry(lane).or_default().len() >= lane_capacity {
            return Ok(false);
        }
        *wire.bytes_sent.entry((self.rank, to)).or_default() += header.len() + body.len();
        *wire.messages_sent.entry((self.rank, to)).or_default() += usize::from(!body.is_empty());
        let at = wire.arrival(lane, header.len() + body.len());
        wire.lanes.entry(lane).or_default().push_back((at, [header, body].concat()));
        Ok(true)
    }

    fn bytes<'a>(&'a self, message: &'a Vec<u8>) -> &'a [u8] {
        message
    }

    fn release(&mut self, _: Vec<u8>) {
        self.wire.borrow_mut().held -= 1;
    }
}

pub(super) struct Memory {
    pub(super) groups: Vec<Group<Vec<u8>, Vec<u8>>>,
    pub(super) wire: RefCell<Wire>,
    pub(super) events: Vec<VecDeque<Event<Vec<u8>>>>,
    pub(super) now: Instant,
    pub(super) rng: Rng,
}

impl Memory {
    pub(super) fn new(config: &Config, seed: u64) -> Self {
        let ranks = config.ranks();
        let mut rng = Seed(seed).child("memory", 0).rng();
        let wire = Wire {
            dead: alloc::vec![false; ranks],
            lane_capacity: 1 + rng.index(4),
            ..Wire::default()
        };
        Self {
            groups: (0..ranks).map(|rank| Group::new(rank, config.clone())).collect(),
            wire: RefCell::new(wire),
            events: (0..ranks).map(|_| VecDeque::new()).collect(),
            now: Instant::from_nanos(1_000),
            rng,
        }
    }

    pub(super) fn submit(&mut self, rank: usize, call: Call, buffer: Vec<u8>) -> u64 {
        self.groups[rank].submit(call, buffer).expect("a call that can be")
    }

    pub(super) fn advance(&mut self, rank: usize) {
        if self.wire.borrow().dead[rank] {
            return;
        }
        let mut end = End { rank, wire: &self.wire };
        self.groups[rank].advance(self.now, &mut end);
        self.events[rank].extend(core::iter::from_fn(|| self.groups[rank].poll_event()));
    }

    /// Performs a random step: a message arrives or a rank advances. Returns `true` if more steps are possible.
    pub(super) fn step(&mut self) -> bool {
        let rank = self.rng.index(self.groups.len());
        if self.rng.chance(1, 3) {
            self.advance(rank);
        }
        let ready: Vec<(Lane, Instant)> = {
            let wire = self.wire.borrow();
            let first = |(lane, waiting): (&Lane, &VecDeque<(Instant, Vec<u8>)>)| {
                waiting.front().map(|(at, _)| (*lane, *at))
            };
            wire.lanes.iter().filter_map(first).collect()
        };
        let Some(soonest) = ready.iter().map(|(_, at)| *at).min() else {
            (0..self.groups.len()).for_each(|rank| self.advance(rank));
            return self.wire.borrow().lanes.values().any(|waiting| !waiting.is_empty());
        };
        let ready: Vec<Lane> =
            ready.into_iter().filter(|(_, at)| *at == soonest).map(|(lane, _)| lane).collect();
        let lane = ready[self.rng.index(ready.len())];
        self.arrive(lane, soonest);
        true
    }

    fn arrive(&mut self, lane: Lane, at: Instant) {
        let (from, to, ..) = lane;
        self.now = self.now.max(at);
        let (_, message) = {
            let mut wire = self.wire.borrow_mut();
            wire.now = self.now;
            let message = wire.lanes.get_mut(&lane).and_then(VecDeque::pop_front);
            wire.held += 1;
            wire.max_held = wire.max_held.max(wire.held);
            message.expect("it is not empty")
        };
        if self.wire.borrow().dead[to] {
            self.wire.borrow_mut().held -= 1;
            return;
        }
        let mut end = End { rank: to, wire: &self.wire };
        self.groups[to].handle_message(from, message, &mut end);
        self.advance(to);
    }

    /// Passes a forged message to a rank.
    pub(super) fn inject(&mut self, from: usize, to: usize, message: Vec<u8>) {
        self.wire.borrow_mut().held += 1;
        let mut end = End { rank: to, wire: &self.wire };
        self.groups[to].handle_message(from, message, &mut end);
    }

    /// Performs steps until all ranks are idle.
    pub(super) fn run_until_idle(&mut self) {
        let mut quiet = 0;
        while quiet < 3 {
            quiet = if self.step() { 0 } else { quiet + 1 };
        }
    }

    /// Kills a rank and notifies some of the others.
    pub(super) fn kill(&mut self, rank: usize, notified: &[usize]) {
        self.wire.borrow_mut().dead[rank] = true;
        for &other in notified {
            self.groups[other].peer_gone(rank, "no answer".into());
        }
    }
}
