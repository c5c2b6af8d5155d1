//! Future events, in lookahead windows and, within a window, by node.
//!
//! Nodes affect each other only through cables, so an event at one node cannot affect another node before the shortest
//! cable's latency has passed, and the events of two nodes within that span may be handled in either order. Time is
//! therefore cut into lookahead windows no longer than that. In each window every node that has events is served once,
//! its events in order of time: its memory is fetched once a window instead of once an event. (Parallel simulators use
//! the same span, the lookahead, to let nodes run ahead of each other: Chandy and Misra 1979.)
//!
//! If every cable joins a node of one *side* to one of the other (the graph is bipartite), the sides alternate: a side
//! that is a window behind the other may be served two windows at once, because any event that can still reach it comes
//! from the other side and takes at least a window to arrive.
//!
//! The calendar has a list for each window and node; scheduling appends to it. In the node's turn, keys to the events
//! are sorted and the events stay in place. Events past the calendar's last window are in a heap.
//!
//! Nodes are served in order of number, and a node's events of one instant in order of [`AtNode::precedence`]. So
//! nothing depends on the order in which different nodes scheduled them, which differs between one thread and several.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

use crate::time::{SimSpan, SimTime};

mod calendar;
mod order;
mod part;
#[cfg(test)]
mod tests;
mod turn;

pub(crate) use turn::Turn;

/// Approximate number of lists in the calendar: windows times nodes.
const LISTS: usize = 1 << 20;
/// Minimum number of windows in the calendar; a power of two.
const MIN_WINDOWS: usize = 64;
/// Maximum number of windows in the calendar; a power of two.
const MAX_WINDOWS: usize = 512;
/// Number of events in a chunk: three cache lines.
const CHUNK: u32 = 8;
/// Number of chunks for each node for which address space is reserved, so that the array is rarely copied when it grows.
const CHUNKS_PER_NODE: usize = 32;
/// The side of a node that another part of the world serves.
const ELSEWHERE: u8 = u8::MAX;
/// The index that ends a list, and the end of an empty one. The first chunk is never used.
const NONE: u32 = 0;
/// Maximum length of a window: a longer one saves nothing more, and its events would exceed the processor's cache.
const MAX_WINDOW: SimSpan = SimSpan::from_picos(4_000_000);

/// An event of one node.
///
/// Events of a list share their node and all but the lower half of their time; so while an event is in the calendar,
/// that half is stored in place of its node.
pub trait AtNode {
    /// Returns the node's number.
    fn node(self) -> u32;
    /// Returns the same event with another number in place of its node's.
    #[must_use]
    fn with_node(self, number: u32) -> Self;
    /// Returns its place among the node's events of the instant `at`, lowest first. Events of equal precedence come in
    /// the order in which they were scheduled, which must not depend on the order of nodes: one node schedules all of
    /// them, or they are equal.
    fn precedence(self, at: SimTime) -> (u64, u64);
}

#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct Chunk<E>([E; CHUNK as usize]);

/// An event past the calendar's last window, with its number in the order of scheduling.
#[derive(Debug)]
struct Waiting<E> {
    at: SimTime,
    sequence: u64,
    event: E,
}

impl<E> PartialEq for Waiting<E> {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.sequence) == (other.at, other.sequence)
    }
}
impl<E> Eq for Waiting<E> {}
impl<E> PartialOrd for Waiting<E> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<E> Ord for Waiting<E> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}

/// Nodes that no cable joins to each other, or all nodes.
#[derive(Debug)]
struct Side {
    /// One bit for each window and node: set if the node has events.
    busy: Vec<u64>,
    /// One bit for each window: set if any node has events.
    occupied: Vec<u64>,
    /// The time up to which events have been or are being served.
    until: SimTime,
}

/// A queue of future events; the module's documentation describes it.
#[derive(Debug)]
pub struct EventQueue<E> {
    /// The length of a window, picoseconds.
    window_length: u64,
    /// Number of windows in 2^64 picoseconds, rounded up: dividing by a window's length is a multiplication.
    windows_per_range: u64,
    /// The windows being served on one side, or served last.
    current: Range<u64>,
    /// The time up to which events have been or are being served, on the side that is ahead.
    until: SimTime,
    /// Number of windows in the calendar, less one.
    window_mask: u64,
    /// The index in `sides` of each node's side; [`ELSEWHERE`] if another part of the world serves it (see [`part`]).
    side_of: Vec<u8>,
    /// `true` if another part serves any node.
    is_part: bool,
    /// The sides: one, or two that alternate.
    sides: Vec<Side>,
    /// The side being served, or served last.
    serving: usize,
    /// The end in `chunks` of each list, by window and node.
    ends: Vec<u32>,
    /// The events.
    chunks: Vec<Chunk<E>>,
    /// By chunk: the previous chunk of the same list, or the next free chunk.
    before: Vec<u32>,
    /// The first free chunk.
    free: u32,
    /// Events past the last window.
    far: BinaryHeap<Reverse<Waiting<E>>>,
    /// The events of nodes that other parts serve, in the order of scheduling.
    elsewhere: Vec<(SimTime, E)>,
    /// Number of events that were put into `far` so far.
    sequence: u64,
    /// `true` if the current nodes have events after `until`.
    cut_short: bool,
    /// Number of words with one bit for each node.
    words: usize,
    /// Nodes still to be served, the next one last.
    waiting: Vec<u32>,
    turn: Turn<E>,
    /// Turns without events, for [`Self::suspend`].
    spare: Vec<Turn<E>>,
    /// The chunks of a list whose events are taken out; empty otherwise.
    detached: Vec<u32>,
}

impl<E: Copy + Default + AtNode> EventQueue<E> {
    /// Returns a queue for nodes that do not affect each other within less than `lookahead`. `side_of` is the side of
    /// each: all on side 0, or on 0 and 1 so that nodes of one side affect each other within less than twice that only
    /// through the other side.
    pub fn new(lookahead: SimSpan, side_of: Vec<u8>) -> Self {
        let window = lookahead.min(MAX_WINDOW).as_picos().max(2);
        let sides = 1 + usize::from(side_of.contains(&1));
        Self::with_sides(window, sides, side_of)
    }

    /// Returns a queue whose windows have this length, in picoseconds.
    fn with_sides(window: u64, sides: usize, side_of: Vec<u8>) -> Self {
        let windows = LISTS / side_of.len().max(1);
        let windows = (windows.next_power_of_two() / 2).clamp(MIN_WINDOWS, MAX_WINDOWS);
        let mut chunks = Vec::with_capacity(CHUNKS_PER_NODE * side_of.len());
        chunks.push(Chunk::default());
        let words = side_of.len().div_ceil(64);
        let side = |_| Side {
            busy: vec![0; windows * words],
            occupied: vec![0; windows / 64],
            until: SimTime::EPOCH,
        };
        Self {
            window_length: window,
            windows_per_range: u64::MAX / window + 1,
            current: 0..1,
            until: SimTime::EPOCH,
            window_mask: windows as u64 - 1,
            ends: vec![NONE; windows * side_of.len()],
            sides: (0..sides).map(side).collect(),
            serving: 0,
            is_part: side_of.contains(&ELSEWHERE),
            side_of,
            chunks,
            before: vec![NONE],
            free: NONE,
            far: BinaryHeap::new(),
            elsewhere: Vec::new(),
            sequence: 0,
            cut_short: false,
            words,
            waiting: Vec::new(),
            turn: Turn::new(SimSpan::from_picos(window * sides as u64)),
            spare: Vec::new(),
            detached: Vec::new(),
        }
    }

    /// Returns the number of the window that a time is in.
    #[inline]
    fn window(&self, at: SimTime) -> u64 {
        ((u128::from(at.as_picos()) * u128::from(self.windows_per_range)) >> 64) as u64
    }

    /// Returns the start of a window.
    fn start_of(&self, window: u64) -> SimTime {
        let picos = (u128::from(window) << 64).div_ceil(u128::from(self.windows_per_range));
        SimTime::from_picos(u64::try_from(picos).unwrap_or(u64::MAX))
    }

    /// Returns the time after which nothing has been or is being served.
    pub fn until(&self) -> SimTime {
        self.until
    }

    /// Schedules `event`. If it is due before [`Self::until`], it is at the node being served, or is the arrival of a
    /// packet by a cable.
    #[inline(always)] // An event passed through memory is written in pieces and read at once.
    pub fn schedule(&mut self, at: SimTime, event: E) {
        let node = event.node();
        if at < self.until && node == self.turn.node {
            return self.turn.insert(at, event);
        }
        self.schedule_elsewhere(at, event);
    }

    /// Schedules an event of another node or a later turn.
    #[inline(always)]
    pub fn schedule_elsewhere(&mut self, at: SimTime, event: E) {
        let side = || self.sides.get(usize::from(self.side_of[event.node() as usize]));
        debug_assert!(side().is_none_or(|side| at >= side.until), "an event is in a node's past");
        if self.is_part && self.side_of[event.node() as usize] == ELSEWHERE {
            return self.elsewhere.push((at, event));
        }
        self.put(at, event);
    }

    /// Puts an event into the calendar or the heap.
    #[inline(always)]
    fn put(&mut self, at: SimTime, event: E) {
        let window = self.window(at);
        if window - self.current.start <= self.window_mask {
            self.append(window, at, event);
        } else {
            self.set_aside(at, event);
        }
    }

    /// Puts an event past the last window into the heap.
    #[cold]
    fn set_aside(&mut self, at: SimTime, event: E) {
        self.sequence += 1;
        self.far.push(Reverse(Waiting { at, sequence: self.sequence, event }));
    }

    /// Returns `true` if no event is left. It must not be called while a node is being served.
    pub fn is_empty(&self) -> bool {
        self.next_window().is_none()
    }

    /// Advances to the next events due before `limit`: those of the side that is behind, up to a window after the
    /// other; [`Self::next_node`] then returns its nodes. Returns `false` if there are none.
    pub fn begin(&mut self, limit: SimTime) -> bool {
        let is_due = self.advance(self.next_window(), limit);
        if is_due {
            self.gather();
        }
        is_due
    }

    /// Advances like [`Self::begin`], where `next` is the first window that has events.
    fn advance(&mut self, next: Option<u64>, limit: SimTime) -> bool {
        debug_assert!(self.waiting.is_empty() && self.turn.is_over(), "all were served");
        let next = next.map_or(limit, |window| self.start_of(window).min(limit));
        self.sides.iter_mut().for_each(|side| side.until = side.until.max(next));
        let until = |side: &usize| self.sides[*side].until;
        let behind = (0..self.sides.len()).min_by_key(until).expect("there is a side");
        let (from, other) = (until(&behind), until(&((behind + 1) % self.sides.len())));
        if from >= limit {
            self.until = from;
            return false;
        }
        self.enter(self.window(from)..self.window(other) + 1);
        let end = self.start_of(self.current.end);
        self.until = limit.min(end);
        self.cut_short = self.until < end;
        self.turn.start = self.start_of(self.current.start);
        self.sides[behind].until = self.until;
        self.serving = behind;
        true
    }

    /// Collects the nodes of the side being served that have events in the current windows.
    fn gather(&mut self) {
        let side = self.serving;
        for window in self.current.clone() {
            let slot = self.slot(window);
            self.sides[side].occupied[slot / 64] &= !(1 << (slot % 64));
        }
        for word in (0..self.words).rev() {
            let mut nodes = 0;
            for window in self.current.clone() {
                let place = self.slot(window) * self.words + word;
                nodes |= std::mem::take(&mut self.sides[side].busy[place]);
            }
            let first = u32::try_from(word * 64).expect("fewer than 2^32 nodes");
            while nodes != 0 {
                let last = nodes.ilog2();
                self.waiting.push(first + last);
                nodes ^= 1 << last;
            }
        }
    }

    /// Returns the first window from the current one on that has events.
    fn next_window(&self) -> Option<u64> {
        let far = || self.far.peek().map(|Reverse(first)| self.window(first.at));
        self.sides.iter().filter_map(|side| self.next_occupied(side)).min().or_else(far)
    }

    /// Makes `windows` the current windows.
    fn enter(&mut self, windows: Range<u64>) {
        let window = windows.start;
        let was = std::mem::replace(&mut self.current, windows);
        if window == was.start {
            return;
        }
        // The slots of earlier windows are free; the heap's events fill them before new ones are appended.
        while let Some(Reverse(first)) = self.far.peek()
            && self.window(first.at) - window <= self.window_mask
        {
            let Reverse(Waiting { at, event, .. }) = self.far.pop().expect("it was peeked at");
            self.append(self.window(at), at, event);
        }
    }

    /// Returns the first window from the current one on that has events of a side in the calendar.
    fn next_occupied(&self, side: &Side) -> Option<u64> {
        let start = self.slot(self.current.start);
        let (word, bit) = (start / 64, start % 64);
        let words = side.occupied.len();
        let ahead = |step: usize, mask: u64| {
            let index = (word + step) % words;
            let bits = side.occupied[index] & mask;
            (bits != 0).then(|| index * 64 + bits.trailing_zeros() as usize)
        };
        let found = ahead(0, u64::MAX << bit)
            .or_else(|| (1..words).find_map(|step| ahead(step, u64::MAX)))
            .or_else(|| ahead(0, !(u64::MAX << bit)))?;
        Some(self.current.start + ((found as u64).wrapping_sub(start as u64) & self.window_mask))
    }

    /// Returns the next node to serve, whose events [`Self::pop`] returns.
    #[inline(never)]
    pub fn next_node(&mut self) -> Option<u32> {
        debug_assert!(self.turn.is_over(), "the last one was served");
        self.release();
        let node = self.waiting.pop()?;
        self.turn.start(node);
        for window in self.current.clone() {
            self.take_list(window, node);
        }
        if self.cut_short {
            self.postpone();
        }
        self.turn.sort(&self.chunks);
        Some(node)
    }

    /// Puts back the events that are due later in the current windows.
    #[cold]
    fn postpone(&mut self) {
        let later = self.turn.cut_short(self.until, &self.chunks);
        later.into_iter().for_each(|(at, event)| self.append(self.window(at), at, event));
    }

    /// Returns the node to be served after this number of others, and its place among those that wait, which stays the
    /// same until its turn.
    #[inline]
    pub fn upcoming(&self, others: usize) -> Option<(usize, u32)> {
        let place = self.waiting.len().checked_sub(others + 1)?;
        Some((place, self.waiting[place]))
    }

    /// Returns the earliest event of the node being served.
    #[inline]
    pub fn pop(&mut self) -> Option<(SimTime, E)> {
        self.turn.pop(&self.chunks)
    }

    /// Returns the keys of all events of the node being served, earliest first. No event may be added to the turn
    /// before [`Self::end_turn`].
    #[inline]
    pub fn take_turn(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.turn.keys)
    }

    /// Returns the event of a key that [`Self::take_turn`] returned, with its time.
    #[inline(always)]
    pub fn named(&self, key: u64) -> (SimTime, E) {
        self.turn.named_before(key, &self.chunks)
    }

    /// Ends the turn that was taken; `keys` are those of [`Self::take_turn`], whose memory is reused.
    #[inline]
    pub fn end_turn(&mut self, mut keys: Vec<u64>) {
        keys.clear();
        self.turn.keys = keys;
        self.turn.taken = 0;
    }
}
