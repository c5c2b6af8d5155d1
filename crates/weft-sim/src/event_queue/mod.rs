//! Future events, a day at a time and within the day a node at a time.
//!
//! Nodes reach each other only through cables. So what one does now means nothing to another before
//! the shortest cable's latency has passed, and the events of two nodes within such a span may be
//! handled in either order. Time is therefore cut into *days* no longer than that. Each day every
//! node that has events is served once, its events in order of time: what it needs is brought from
//! memory once a day instead of once an event. (Parallel simulators use the same span, which they
//! call lookahead, to let nodes run ahead of each other: Chandy and Misra 1979.)
//!
//! The calendar has a list for each day and node; scheduling appends to it. When the node's turn comes,
//! keys to the events are sorted and the events stay where they are. Events past the calendar's last
//! day wait in a heap.
//!
//! Of one node, events of the same instant come in the order in which they were scheduled.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use weft_units::{prefetch, prefetch_all};

use crate::time::{SimSpan, SimTime};

mod order;
mod turn;

use turn::Turn;

/// Lists in the calendar, about: days times nodes.
const LISTS: usize = 1 << 22;
/// Days in the calendar; powers of two.
const FEWEST_DAYS: usize = 64;
const MOST_DAYS: usize = 2048;
/// Events in a chunk: three cache lines.
const CHUNK: u32 = 8;
/// Chunks of a list that are fetched early, so that a switch with more does not fill the cache.
const MOST_CHUNKS: usize = 16;
/// The end of a list, and where an empty one ends. The first chunk is never used.
const NONE: u32 = 0;
/// A longer day would bring nothing more, and its events would leave the processor's cache.
const LONGEST_DAY: SimSpan = SimSpan::from_picos(4_000_000);

/// Something that happens at a node.
///
/// Events of a list share their node and all but the lower half of their time; so while an event is in
/// the calendar, that half stands where its node was.
pub trait AtNode {
    /// The node's number.
    fn node(self) -> u32;
    /// The same event with another number in the place of its node's.
    #[must_use]
    fn with_node(self, number: u32) -> Self;
}

#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct Chunk<E>([E; CHUNK as usize]);

/// An event past the last day, with its place in the scheduling order.
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

/// Future events; see the module's documentation for how.
#[derive(Debug)]
pub struct EventQueue<E> {
    /// Days in 2^64 picoseconds, rounded up: dividing by a day's length is a multiplication.
    days_per_eon: u64,
    /// The number of the latest day that has begun.
    today: u64,
    /// Everything before that is being served or has been.
    until: SimTime,
    /// Days in the calendar, less one.
    day_mask: u64,
    nodes: u32,
    /// By day and node, one past its latest event in `chunks`.
    ends: Vec<u32>,
    /// By day, the nodes that have events.
    busy: Vec<Vec<u32>>,
    /// One bit a day: whether any node has.
    occupied: Vec<u64>,
    /// The events.
    chunks: Vec<Chunk<E>>,
    /// By chunk, the same list's chunk before it, or the next free one.
    before: Vec<u32>,
    free: u32,
    /// Past the last day.
    far: BinaryHeap<Reverse<Waiting<E>>>,
    sequence: u64,
    /// Whether today has events after `until`.
    cut_short: bool,
    /// Nodes whose turn has not come, next last.
    waiting: Vec<u32>,
    turn: Turn<E>,
}

impl<E: Copy + Default + AtNode> EventQueue<E> {
    /// A queue for so many nodes, none of which affects another within less than `lookahead`.
    pub fn new(lookahead: SimSpan, nodes: u32) -> Self {
        let day = lookahead.min(LONGEST_DAY).as_picos().max(2);
        let days = LISTS / nodes.max(1) as usize;
        let days = (days.next_power_of_two() / 2).clamp(FEWEST_DAYS, MOST_DAYS);
        Self {
            days_per_eon: u64::MAX / day + 1,
            today: 0,
            until: SimTime::EPOCH,
            day_mask: days as u64 - 1,
            nodes,
            ends: vec![NONE; days * nodes as usize],
            busy: vec![Vec::new(); days],
            occupied: vec![0; days / 64],
            chunks: vec![Chunk::default()],
            before: vec![NONE],
            free: NONE,
            far: BinaryHeap::new(),
            sequence: 0,
            cut_short: false,
            waiting: Vec::new(),
            turn: Turn::new(SimSpan::from_picos(day)),
        }
    }

    #[inline]
    fn day(&self, at: SimTime) -> u64 {
        ((u128::from(at.as_picos()) * u128::from(self.days_per_eon)) >> 64) as u64
    }

    fn dawn(&self, day: u64) -> SimTime {
        let picos = (u128::from(day) << 64).div_ceil(u128::from(self.days_per_eon));
        SimTime::from_picos(u64::try_from(picos).unwrap_or(u64::MAX))
    }

    /// Everything before this has been served, or is being served.
    pub fn until(&self) -> SimTime {
        self.until
    }

    /// Schedules `event`. During a node's turn, what is due before [`Self::until`] must be that
    /// node's own.
    #[inline(always)] // An event passed through memory is written in pieces and read at once.
    pub fn schedule(&mut self, at: SimTime, event: E) {
        if at < self.until {
            return self.turn.insert(at, event);
        }
        let day = self.day(at);
        if day - self.today <= self.day_mask {
            self.append(day, at, event);
        } else {
            self.set_aside(at, event);
        }
    }

    #[cold]
    fn set_aside(&mut self, at: SimTime, event: E) {
        self.sequence += 1;
        self.far.push(Reverse(Waiting { at, sequence: self.sequence, event }));
    }

    #[inline(always)]
    fn append(&mut self, day: u64, at: SimTime, event: E) {
        let node = event.node();
        let list = self.list(day, node);
        let end = &mut self.ends[list];
        let mut place = *end;
        if place.is_multiple_of(CHUNK) {
            place = self.lengthen(list, day, node);
        } else {
            *end += 1;
        }
        let Chunk(events) = &mut self.chunks[(place / CHUNK) as usize];
        events[(place % CHUNK) as usize] = event.with_node(turn::low(at));
    }

    #[inline]
    fn list(&self, day: u64, node: u32) -> usize {
        self.slot(day) * self.nodes as usize + node as usize
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "there are few days")]
    fn slot(&self, day: u64) -> usize {
        (day & self.day_mask) as usize
    }

    /// Gives a list one more chunk and takes the chunk's first place, which it returns.
    #[inline(never)]
    fn lengthen(&mut self, list: usize, day: u64, node: u32) -> u32 {
        let end = self.ends[list];
        if end == NONE {
            let slot = self.slot(day);
            self.busy[slot].push(node);
            self.occupied[slot / 64] |= 1 << (slot % 64);
        }
        let chunk = self.unused_chunk();
        self.before[chunk as usize] = end.saturating_sub(1) / CHUNK;
        self.ends[list] = chunk * CHUNK + 1;
        chunk * CHUNK
    }

    #[inline]
    fn unused_chunk(&mut self) -> u32 {
        let chunk = self.free;
        if chunk == NONE {
            let places = u32::try_from(self.chunks.len() * CHUNK as usize);
            self.chunks.push(Chunk::default());
            self.before.push(NONE);
            return places.expect("fewer than 2^32 events to come") / CHUNK;
        }
        self.free = self.before[chunk as usize];
        chunk
    }

    /// Whether nothing is left to happen, while nobody is being served.
    pub fn is_empty(&self) -> bool {
        self.next_day().is_none()
    }

    /// Goes on to the next events due before `limit`: those of one day, whose nodes
    /// [`Self::next_node`] then gives. False where there are none.
    pub fn begin(&mut self, limit: SimTime) -> bool {
        debug_assert!(self.waiting.is_empty() && self.turn.is_over(), "all were served");
        if self.until >= limit {
            return false;
        }
        let Some(day) = self.next_day().filter(|&day| self.dawn(day) < limit) else {
            self.until = limit;
            return false;
        };
        self.enter(day);
        let evening = self.dawn(day + 1);
        self.until = limit.min(evening);
        self.cut_short = self.until < evening;
        self.turn.dawn = self.dawn(day);
        let slot = self.slot(day);
        self.occupied[slot / 64] &= !(1 << (slot % 64));
        std::mem::swap(&mut self.waiting, &mut self.busy[slot]);
        true
    }

    /// The first day from today on that has events.
    fn next_day(&self) -> Option<u64> {
        let far = || self.far.peek().map(|Reverse(first)| self.day(first.at));
        self.next_occupied().or_else(far)
    }

    fn enter(&mut self, day: u64) {
        if day == self.today {
            return;
        }
        self.today = day;
        // Days have become free behind this one; fill them before anybody appends to them.
        while let Some(Reverse(first)) = self.far.peek()
            && self.day(first.at) - day <= self.day_mask
        {
            let Reverse(Waiting { at, event, .. }) = self.far.pop().expect("it was peeked at");
            self.append(self.day(at), at, event);
        }
    }

    /// The first day from today on that has events in the calendar.
    fn next_occupied(&self) -> Option<u64> {
        let start = self.slot(self.today);
        let (word, bit) = (start / 64, start % 64);
        let words = self.occupied.len();
        let ahead = |step: usize, mask: u64| {
            let index = (word + step) % words;
            let bits = self.occupied[index] & mask;
            (bits != 0).then(|| index * 64 + bits.trailing_zeros() as usize)
        };
        let found = ahead(0, u64::MAX << bit)
            .or_else(|| (1..words).find_map(|step| ahead(step, u64::MAX)))
            .or_else(|| ahead(0, !(u64::MAX << bit)))?;
        Some(self.today + ((found as u64).wrapping_sub(start as u64) & self.day_mask))
    }

    /// The next node to be served: [`Self::pop`] gives its events.
    #[inline(never)]
    pub fn next_node(&mut self) -> Option<u32> {
        debug_assert!(self.turn.is_over(), "the last one was served");
        self.release();
        let node = self.waiting.pop()?;
        self.turn.node = node;
        let list = self.list(self.today, node);
        let end = std::mem::replace(&mut self.ends[list], NONE);
        let mut chunk = end.saturating_sub(1) / CHUNK;
        while chunk != NONE {
            self.turn.chunks.push(chunk);
            chunk = self.before[chunk as usize];
        }
        self.turn.chunks.reverse();
        self.turn.collect(&self.chunks, end);
        if self.cut_short {
            self.postpone();
        }
        self.turn.sort();
        Some(node)
    }

    /// Frees the chunks of the turn that is over.
    #[inline]
    fn release(&mut self) {
        if let (Some(&first), Some(&latest)) = (self.turn.chunks.first(), self.turn.chunks.last()) {
            self.before[first as usize] = std::mem::replace(&mut self.free, latest);
        }
        self.turn.chunks.clear();
        self.turn.late.clear();
    }

    /// Where the list before `chunk` ends.
    #[inline]
    fn end_before(&self, chunk: u32) -> u32 {
        match self.before[chunk as usize] {
            NONE => NONE,
            before => before * CHUNK + CHUNK,
        }
    }

    /// Puts back what is due later today.
    #[cold]
    fn postpone(&mut self) {
        let later = self.turn.cut_short(self.until, &self.chunks);
        later.into_iter().for_each(|(at, event)| self.append(self.today, at, event));
    }

    /// The node whose turn comes after so many others.
    #[inline]
    pub fn upcoming(&self, others: usize) -> Option<u32> {
        self.waiting.iter().rev().nth(others).copied()
    }

    /// Begins to fetch where a node's events of today are, for [`Self::prefetch`].
    #[inline]
    pub fn prefetch_list(&self, node: u32) {
        prefetch(&self.ends[self.list(self.today, node)]);
    }

    /// Begins to fetch a node's events of today.
    #[inline]
    pub fn prefetch(&self, node: u32) {
        let end = self.ends[self.list(self.today, node)];
        let mut chunk = end.saturating_sub(1) / CHUNK;
        for _ in 0..MOST_CHUNKS {
            if chunk == NONE {
                break;
            }
            prefetch_all(&self.chunks[chunk as usize]);
            chunk = self.before[chunk as usize];
        }
    }

    /// A node's events of today, latest scheduled first.
    #[inline]
    pub fn of(&self, node: u32) -> impl Iterator<Item = E> + '_ {
        let mut end = self.ends[self.list(self.today, node)];
        std::iter::from_fn(move || {
            let place = end.checked_sub(1)?;
            let Chunk(events) = &self.chunks[(place / CHUNK) as usize];
            let event = events[(place % CHUNK) as usize].with_node(node);
            end = if place % CHUNK > 0 { place } else { self.end_before(place / CHUNK) };
            Some(event)
        })
    }

    /// The soonest event of the node whose turn it is.
    #[inline]
    pub fn pop(&mut self) -> Option<(SimTime, E)> {
        self.turn.pop(&self.chunks)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use weft_units::{Rng, Seed};

    use super::*;

    /// An event with a number of its own.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
    struct Numbered {
        node: u32,
        number: u64,
    }

    impl AtNode for Numbered {
        fn node(self) -> u32 {
            self.node
        }
        fn with_node(self, node: u32) -> Self {
            Self { node, ..self }
        }
    }

    const NODES: u32 = 7;

    /// What an event leads to, by its number alone: up to two events at its own node, soon or late,
    /// and one at another, never sooner than the lookahead. No two are of the same instant.
    fn consequences(at: SimTime, event: Numbered, lookahead: u64) -> Vec<(SimTime, Numbered)> {
        let mut rng = Seed(event.number).rng();
        let mut follow = |node: u32, least: u64, child: u64| {
            let bits = [0, 3, 10, 14, 20, 26, 32, 40][rng.index(8)];
            let number = event.number * 4 + child;
            let picos = at.as_picos() + least + rng.below(1 << bits);
            let at = SimTime::from_picos(picos / 4096 * 4096 + 4096 + number % 4096);
            (at, Numbered { node, number })
        };
        let mut all = vec![follow(event.node, 0, 1)];
        if event.number.is_multiple_of(3) {
            all.push(follow(event.node, 0, 2));
        }
        if event.number.is_multiple_of(2) {
            all.push(follow((event.node + 1) % NODES, lookahead, 3));
        }
        all.retain(|(_, event)| event.number < 40_000);
        all
    }

    /// What each node sees, if the soonest event of all is always next.
    fn in_order_of_time(lookahead: u64) -> BTreeMap<u32, Vec<(SimTime, Numbered)>> {
        let start = (0..NODES).map(|node| Numbered { node, number: u64::from(node) + 1 });
        let mut future: BTreeSet<_> = start.map(|event| (SimTime::EPOCH, event)).collect();
        let mut seen: BTreeMap<u32, Vec<_>> = BTreeMap::new();
        while let Some((at, event)) = future.pop_first() {
            seen.entry(event.node).or_default().push((at, event));
            future.extend(consequences(at, event, lookahead));
        }
        seen
    }

    #[test]
    fn each_node_sees_what_it_would_see_if_all_were_handled_in_order_of_time() {
        let mut rng = Seed(1).rng();
        for lookahead in [2, 5_000, 600_000, 1_003_000, 50_000_000] {
            let mut queue = EventQueue::new(SimSpan::from_picos(lookahead), NODES);
            for node in 0..NODES {
                let first = Numbered { node, number: u64::from(node) + 1 };
                queue.schedule(SimTime::EPOCH, first);
            }
            let mut seen: BTreeMap<u32, Vec<_>> = BTreeMap::new();
            while !queue.is_empty() {
                // Somebody stops the clock now and then.
                let bits = rng.below(40);
                let limit = queue.until().as_picos() + rng.below(1 << bits);
                while queue.begin(SimTime::from_picos(limit)) {
                    while let Some(node) = queue.next_node() {
                        while let Some((at, event)) = queue.pop() {
                            assert!(at < queue.until() && event.node == node);
                            seen.entry(node).or_default().push((at, event));
                            let next = consequences(at, event, lookahead);
                            next.into_iter().for_each(|(at, event)| queue.schedule(at, event));
                        }
                    }
                }
                assert_eq!(queue.until().as_picos(), limit.max(queue.until().as_picos()));
            }
            assert_eq!(seen, in_order_of_time(lookahead), "lookahead of {lookahead} ps");
        }
    }

    /// The numbers of what is due before `limit`, in the order they come.
    fn drain(queue: &mut EventQueue<Numbered>, limit: u64) -> Vec<u64> {
        let mut numbers = Vec::new();
        while queue.begin(SimTime::from_picos(limit)) {
            while queue.next_node().is_some() {
                numbers.extend(std::iter::from_fn(|| queue.pop()).map(|(_, event)| event.number));
            }
        }
        numbers
    }

    #[test]
    fn events_of_one_instant_come_in_the_order_they_were_scheduled_in() {
        let (mut queue, far) = (EventQueue::new(SimSpan::from_picos(1_000), 1), 1 << 45);
        let event = |number| Numbered { node: 0, number };
        (0..50).for_each(|number| queue.schedule(SimTime::from_picos(far), event(number)));
        assert!(drain(&mut queue, far).is_empty());
        (50..100).for_each(|number| queue.schedule(SimTime::from_picos(far), event(number)));
        queue.schedule(SimTime::from_picos(far + 1), event(100));
        assert_eq!(drain(&mut queue, u64::MAX), (0..=100).collect::<Vec<_>>());
    }

    #[test]
    fn a_day_that_is_cut_short_keeps_the_order_of_what_is_left() {
        let mut queue = EventQueue::new(SimSpan::from_picos(1_000_000), 1);
        let event = |number| Numbered { node: 0, number };
        [700, 200, 900, 700].iter().zip(0..).for_each(|(&at, number)| {
            queue.schedule(SimTime::from_picos(at), event(number));
        });
        assert_eq!(drain(&mut queue, 700), [1]);
        assert!(drain(&mut queue, 700).is_empty());
        queue.schedule(SimTime::from_picos(700), event(4));
        assert_eq!(drain(&mut queue, u64::MAX), [0, 3, 4, 2]);
    }

    #[test]
    fn the_end_of_time_is_a_time() {
        let mut queue = EventQueue::new(SimSpan::MAX, 2);
        queue.schedule(SimTime::from_picos(u64::MAX - 1), Numbered { node: 1, number: 7 });
        assert_eq!(drain(&mut queue, u64::MAX), [7]);
    }

    #[test]
    fn memory_is_used_again() {
        let mut queue = EventQueue::new(SimSpan::from_picos(1_000), 2);
        let mut rng: Rng = Seed(1).rng();
        for round in 0..1_000 {
            for _ in 0..20 {
                let at = queue.until() + SimSpan::from_picos(rng.below(50_000));
                queue.schedule(at, Numbered { node: round % 2, number: 0 });
            }
            let limit = queue.until().as_picos() + 50_000;
            assert_eq!(drain(&mut queue, limit).len(), 20);
        }
        assert!(queue.chunks.len() < 50, "{}", queue.chunks.len());
    }
}
