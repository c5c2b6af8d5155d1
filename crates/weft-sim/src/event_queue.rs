//! Future events, soonest first; events of the same instant in the order they were scheduled.
//!
//! A calendar whose days are sorted at dawn. An event due on a later day is appended to that day's
//! chunks, which is one sequential write; when a day begins, one counting pass and one insertion
//! pass put it in order, and popping is a sequential read. Nothing is ever searched, and no event
//! is moved more than twice. Events due within the day that has already begun wait in a small heap
//! beside it, events past the calendar's last page in another.
//!
//! The order is exactly (time, sequence number): appending keeps the scheduling order, both sorting
//! passes are stable, and what comes from the far heap was scheduled before anything that could be
//! appended to the same day.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::time::SimTime;

/// Days in the calendar; a power of two. With a day of 4 to 100 ns it covers 33 to 800 us, which
/// is longer than any queue: only timers go past it.
const DAYS: usize = 8192;
/// Events in a chunk: half a kibibyte to a kibibyte, a few of which belong to each active day.
const CHUNK: u32 = 32;
/// Bins of the counting sort at most.
const BINS: usize = 4096;
const NONE: u32 = u32::MAX;
/// Up to this many events a day are sorted by insertion alone.
const FEW: usize = 16;

#[derive(Clone, Copy, Debug, Default)]
struct Scheduled<E> {
    at: SimTime,
    event: E,
}

/// An event that waits outside the calendar's pages, with its place in the scheduling order.
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

/// One day: a chain of chunks, the last of which may be partly filled.
#[derive(Clone, Copy, Debug)]
struct Day {
    first: u32,
    /// How many chunks there are.
    chunks: u32,
    /// Where the next event goes; at the beginning of a chunk, that chunk is not there yet.
    place: u32,
}

const EMPTY: Day = Day { first: NONE, chunks: 0, place: 0 };

impl Day {
    fn count(&self) -> usize {
        let in_last = self.place.wrapping_sub(1) % CHUNK + 1;
        if self.chunks == 0 { 0 } else { ((self.chunks - 1) * CHUNK + in_last) as usize }
    }

    fn last(&self) -> u32 {
        self.place.wrapping_sub(1) / CHUNK
    }
}

/// Future events; see the module's documentation for how.
#[derive(Debug)]
pub struct EventQueue<E> {
    /// A day lasts `1 << day_bits` picoseconds.
    day_bits: u32,
    /// The number of the day that has begun.
    today: u64,
    days: Box<[Day; DAYS]>,
    /// One bit a day: whether it has events.
    occupied: [u64; DAYS / 64],
    /// The events of the days to come, in chunks.
    pages: Vec<Scheduled<E>>,
    next_chunk: Vec<u32>,
    free_chunk: u32,
    /// Today's events in order, `next` being the first that was not popped.
    sorted: Vec<Scheduled<E>>,
    next: usize,
    /// What was noted about the first of them; `NONE` for nothing.
    notes: Vec<u32>,
    /// Scheduled today for today.
    late: BinaryHeap<Reverse<Waiting<E>>>,
    /// Past the last page.
    far: BinaryHeap<Reverse<Waiting<E>>>,
    sequence: u64,
    len: usize,
    counts: Box<[u32; BINS]>,
}

impl<E: Copy + Default> EventQueue<E> {
    /// A queue that is fastest at about `events_per_micro` events a simulated microsecond. The
    /// order of events does not depend on it.
    pub fn new(events_per_micro: u64) -> Self {
        // Few enough events to sort within the second-level cache, so many that the days to come are
        // few and their last chunks stay there too.
        let picos = (2048 * 1_000_000 / events_per_micro.max(1)).clamp(1 << 10, 1 << 18);
        Self {
            day_bits: picos.ilog2(),
            today: 0,
            days: Box::new([EMPTY; DAYS]),
            occupied: [0; DAYS / 64],
            pages: Vec::new(),
            next_chunk: Vec::new(),
            free_chunk: NONE,
            sorted: Vec::new(),
            next: 0,
            notes: Vec::new(),
            late: BinaryHeap::new(),
            far: BinaryHeap::new(),
            sequence: 0,
            len: 0,
            counts: Box::new([0; BINS]),
        }
    }

    /// Events that were scheduled and not popped.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing is scheduled.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Schedules `event`. A time before that of the last popped event is served next, as that time
    /// cannot come back.
    #[inline]
    pub fn schedule(&mut self, at: SimTime, event: E) {
        self.len += 1;
        let day = at.as_picos() >> self.day_bits;
        if day.wrapping_sub(self.today + 1) < DAYS as u64 - 1 {
            self.append(day, Scheduled { at, event });
        } else {
            self.set_aside(day, at, event);
        }
    }

    fn set_aside(&mut self, day: u64, at: SimTime, event: E) {
        let waiting = Reverse(Waiting { at, sequence: self.sequence, event });
        self.sequence += 1;
        if day <= self.today { self.late.push(waiting) } else { self.far.push(waiting) }
    }

    #[inline]
    fn append(&mut self, number: u64, scheduled: Scheduled<E>) {
        let slot = slot(number);
        let mut place = self.days[slot].place;
        if place.is_multiple_of(CHUNK) {
            place = self.lengthen(slot);
        }
        self.pages[place as usize] = scheduled;
        self.days[slot].place = place + 1;
    }

    /// Gives the day one more chunk; returns where it begins.
    #[cold]
    fn lengthen(&mut self, slot: usize) -> u32 {
        let chunk = if self.free_chunk == NONE {
            let begin = u32::try_from(self.pages.len()).expect("fewer than 2^32 events to come");
            self.pages.extend([Scheduled::default(); CHUNK as usize]);
            self.next_chunk.push(NONE);
            begin / CHUNK
        } else {
            let chunk = self.free_chunk;
            self.free_chunk = self.next_chunk[chunk as usize];
            self.next_chunk[chunk as usize] = NONE;
            chunk
        };
        let day = &mut self.days[slot];
        if day.chunks == 0 {
            self.occupied[slot / 64] |= 1 << (slot % 64);
            day.first = chunk;
        } else {
            self.next_chunk[day.last() as usize] = chunk;
        }
        day.chunks += 1;
        chunk * CHUNK
    }

    /// Takes the soonest event.
    #[inline]
    pub fn pop(&mut self) -> Option<(SimTime, E)> {
        if !self.begin_day() {
            return None;
        }
        self.pop_today().map(|(at, event, _)| (at, event))
    }

    /// Makes sure that the day which has begun has an event left, or begins the next day that has
    /// one; false when there is none. [`Self::pop`] does it too.
    #[inline]
    pub fn begin_day(&mut self) -> bool {
        self.next < self.sorted.len() || !self.late.is_empty() || self.dawn()
    }

    /// The next event, unless it is of a day that has not begun, with what [`Self::note`] noted.
    #[inline]
    pub fn pop_today(&mut self) -> Option<(SimTime, E, Option<u32>)> {
        // What was in the calendar this morning was scheduled before what came late.
        let on_time = self.sorted.get(self.next);
        if let Some(Reverse(late)) = self.late.peek()
            && on_time.is_none_or(|first| late.at < first.at)
        {
            let Reverse(late) = self.late.pop()?;
            self.len -= 1;
            return Some((late.at, late.event, None));
        }
        let Scheduled { at, event } = *on_time?;
        self.len -= 1;
        let note = self.notes.get(self.next).copied().filter(|&note| note != NONE);
        self.next += 1;
        Some((at, event, note))
    }

    /// Notes something about each of the next `most` events that were due today when the day began;
    /// [`Self::pop_today`] gives the notes back.
    #[inline]
    pub fn note(&mut self, most: usize, mut note: impl FnMut(&E) -> Option<u32>) {
        let end = self.sorted.len().min(self.next + most);
        self.notes.resize(self.next, NONE);
        let today = &self.sorted[self.next..end];
        self.notes.extend(today.iter().map(|scheduled| note(&scheduled.event).unwrap_or(NONE)));
    }

    /// Forgets every note.
    pub fn forget_notes(&mut self) {
        self.notes.clear();
    }

    /// Begins the next day that has an event; false when there is none.
    fn dawn(&mut self) -> bool {
        let in_calendar = self.next_occupied();
        let Some(day) = in_calendar
            .or_else(|| self.far.peek().map(|Reverse(first)| first.at.as_picos() >> self.day_bits))
        else {
            return false;
        };
        self.today = day;
        // Pages have become free behind today; fill them before anybody appends to them.
        let horizon = day.saturating_add(DAYS as u64);
        while let Some(Reverse(first)) = self.far.peek()
            && (first.at.as_picos() >> self.day_bits) < horizon
        {
            let Reverse(Waiting { at, event, .. }) = self.far.pop().expect("it was peeked at");
            self.append(at.as_picos() >> self.day_bits, Scheduled { at, event });
        }
        self.sort_today();
        true
    }

    /// The next day after today that has events, if the calendar has one.
    fn next_occupied(&self) -> Option<u64> {
        let start = slot(self.today + 1);
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
        Some(self.today + 1 + ((found + DAYS - start) % DAYS) as u64)
    }

    /// Moves today's chunks into `sorted`, in order, and frees them.
    fn sort_today(&mut self) {
        let slot = slot(self.today);
        let day = std::mem::replace(&mut self.days[slot], EMPTY);
        self.occupied[slot / 64] &= !(1 << (slot % 64));
        self.next = 0;
        self.notes.clear();
        let count = day.count();
        self.sorted.resize(count, Scheduled::default());
        if count <= FEW {
            let mut chain = Chain::new(day, &self.next_chunk);
            let events = chain.next().map_or(0..0, |first| first);
            self.sorted.copy_from_slice(&self.pages[events]);
        } else {
            self.scatter(day, count);
        }
        if count > 0 {
            self.next_chunk[day.last() as usize] = self.free_chunk;
            self.free_chunk = day.first;
        }
        insertion_sort(&mut self.sorted);
    }

    /// Counting sort by the upper bits of the time within the day, one bin an event or so.
    fn scatter(&mut self, day: Day, count: usize) {
        let bins = count.next_power_of_two().min(1 << self.day_bits).min(BINS);
        let shift = self.day_bits - bins.ilog2();
        #[expect(clippy::cast_possible_truncation, reason = "masked to a few bits")]
        let bin = |at: SimTime| (at.as_picos() >> shift) as usize & (bins - 1) & (BINS - 1);
        self.counts[..bins].fill(0);
        for events in Chain::new(day, &self.next_chunk) {
            for scheduled in &self.pages[events] {
                self.counts[bin(scheduled.at)] += 1;
            }
        }
        let mut start = 0;
        for count in &mut self.counts[..bins] {
            start += std::mem::replace(count, start);
        }
        for events in Chain::new(day, &self.next_chunk) {
            for scheduled in &self.pages[events] {
                let place = &mut self.counts[bin(scheduled.at)];
                self.sorted[*place as usize] = *scheduled;
                *place += 1;
            }
        }
    }
}

/// The chunks of one day, each as the range of its events.
struct Chain<'a> {
    next: &'a [u32],
    chunk: u32,
    left: usize,
}

impl<'a> Chain<'a> {
    fn new(day: Day, next: &'a [u32]) -> Self {
        Self { next, chunk: day.first, left: day.count() }
    }
}

impl Iterator for Chain<'_> {
    type Item = std::ops::Range<usize>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return None;
        }
        let (begin, len) = ((self.chunk * CHUNK) as usize, self.left.min(CHUNK as usize));
        self.chunk = self.next[self.chunk as usize];
        self.left -= len;
        Some(begin..begin + len)
    }
}

#[expect(clippy::cast_possible_truncation, reason = "taken modulo the number of days")]
const fn slot(day: u64) -> usize {
    day as usize % DAYS
}

/// Stable, and linear where the input is nearly sorted, which is what the counting pass leaves.
fn insertion_sort<E: Copy>(events: &mut [Scheduled<E>]) {
    let mut latest = SimTime::EPOCH;
    for end in 0..events.len() {
        if events[end].at >= latest {
            latest = events[end].at;
        } else {
            insert(&mut events[..=end]);
        }
    }
}

/// Moves the last event to its place among those before it.
fn insert<E: Copy>(events: &mut [Scheduled<E>]) {
    let mut place = events.len() - 1;
    let moving = events[place];
    while place > 0 && events[place - 1].at > moving.at {
        events[place] = events[place - 1];
        place -= 1;
    }
    events[place] = moving;
}

#[cfg(test)]
mod tests {
    use weft_units::{Rng, Seed};

    use super::*;

    /// Delays of every size that matters: now, today, next days, past the last page, seconds.
    fn delay(rng: &mut Rng) -> u64 {
        let bits = [0, 3, 10, 14, 20, 26, 32, 40][rng.index(8)];
        rng.below(1 << bits)
    }

    #[test]
    fn random_operations_pop_in_the_order_of_a_heap_of_time_and_sequence() {
        for seed in 0..60 {
            let mut rng = Seed(seed).child("ops", 0).rng();
            let mut queue = EventQueue::new([1, 1_000, 1_000_000][rng.index(3)]);
            let mut model = BinaryHeap::new();
            let (mut now, mut sequence) = (0, 0u64);
            for _ in 0..20_000 {
                if rng.chance(11, 20) {
                    // A few delays are drawn from a coarse grid, so that many events tie.
                    let at = now + delay(&mut rng) / [1, 1 << 9][rng.index(2)];
                    queue.schedule(SimTime::from_picos(at), sequence);
                    model.push(Reverse((at, sequence)));
                    sequence += 1;
                } else {
                    let want = model.pop().map(|Reverse(first)| first);
                    let got = queue.pop().map(|(at, event)| (at.as_picos(), event));
                    assert_eq!(got, want, "seed {seed}");
                    now = want.map_or(now, |(at, _)| at);
                }
                assert_eq!(queue.len(), model.len());
            }
            while let Some(Reverse(want)) = model.pop() {
                let got = queue.pop().map(|(at, event)| (at.as_picos(), event));
                assert_eq!(got, Some(want), "seed {seed}");
            }
            assert!(queue.pop().is_none() && queue.is_empty());
        }
    }

    #[test]
    fn events_of_one_instant_keep_the_order_they_were_scheduled_in() {
        let mut queue = EventQueue::new(1_000);
        let far = SimTime::from_picos(1 << 45);
        (0..50).for_each(|event| queue.schedule(far, event));
        queue.schedule(SimTime::from_picos(5), 99);
        assert_eq!(queue.pop(), Some((SimTime::from_picos(5), 99)));
        (50..100).for_each(|event| queue.schedule(far, event));
        let order: Vec<_> = std::iter::from_fn(|| queue.pop()).map(|(_, event)| event).collect();
        assert_eq!(order, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn notes_come_back_with_their_events_and_only_with_them() {
        let mut queue = EventQueue::new(1);
        let at = |picos: u64| SimTime::from_picos((1 << 20) + picos);
        [30, 10, 20, 40].iter().for_each(|&event| queue.schedule(at(event), event));
        assert!(queue.begin_day());
        queue.note(3, |event| (*event != 20).then_some(u32::try_from(*event).unwrap() + 1));
        assert_eq!(queue.pop_today(), Some((at(10), 10, Some(11))));
        queue.schedule(at(15), 15);
        assert_eq!(queue.pop_today(), Some((at(15), 15, None)));
        assert_eq!(queue.pop_today(), Some((at(20), 20, None)));
        queue.forget_notes();
        assert_eq!(queue.pop_today(), Some((at(30), 30, None)));
        queue.note(9, |_| Some(7));
        assert_eq!(queue.pop_today(), Some((at(40), 40, Some(7))));
        assert_eq!(queue.pop_today(), None);
        queue.schedule(at(1 << 40), 50);
        assert!(queue.begin_day());
        assert_eq!(queue.pop_today(), Some((at(1 << 40), 50, None)));
    }

    #[test]
    fn what_is_scheduled_for_the_past_comes_next() {
        let mut queue = EventQueue::new(1_000);
        queue.schedule(SimTime::from_picos(1 << 30), 0);
        queue.schedule(SimTime::from_picos(1 << 31), 1);
        queue.pop();
        queue.schedule(SimTime::EPOCH, 2);
        assert_eq!(queue.pop(), Some((SimTime::EPOCH, 2)));
    }

    #[test]
    fn the_end_of_time_is_a_time() {
        let mut queue = EventQueue::new(1);
        queue.schedule(SimTime::FAR_FUTURE, 7);
        queue.schedule(SimTime::from_picos(u64::MAX - 1), 6);
        assert_eq!(queue.pop().map(|(_, event)| event), Some(6));
        assert_eq!(queue.pop().map(|(_, event)| event), Some(7));
    }
}
