//! Places for packets, in pages, and the lists of the free ones.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard};

use weft_units::prefetch;

/// A place that can store one packet. A free one can store the numbers of other free places instead.
///
/// Several threads see a place, one after another: a packet, and with it the right to write its place, moves from part
/// to part of the world with an event, between two windows.
pub(super) trait Place: Default {
    /// Makes a place that was freed one without a packet.
    fn clear(&self);
    /// Returns the numbers that a free place stores.
    fn numbers(&self) -> [u32; NUMBERS];
    /// Stores numbers in a free place.
    fn set_numbers(&self, numbers: [u32; NUMBERS]);
}

/// Number of numbers that a free place stores, as many as fit beside the first field of a data packet's place.
pub(super) const NUMBERS: usize = 7;

/// Number of places in a page.
const PAGE: usize = 1 << 10;
/// Maximum number of free places at hand: more than a node's turn frees or takes.
const AT_HAND: usize = 32;
/// Maximum number of places with numbers in a list.
const LONGEST: u32 = 128;
/// The end of a list of free places.
const NONE: u32 = u32::MAX;

/// Words of a place, as plain loads and stores read and write them.
#[derive(Debug)]
pub(super) struct Words<const N: usize>([AtomicU64; N]);

impl<const N: usize> Default for Words<N> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl<const N: usize> Words<N> {
    #[inline(always)]
    pub(super) fn get(&self, index: usize) -> u64 {
        self.0[index].load(Relaxed)
    }

    #[inline(always)]
    pub(super) fn set(&self, index: usize, word: u64) {
        self.0[index].store(word, Relaxed);
    }

    #[inline(always)]
    pub(super) fn load(&self) -> [u64; N] {
        std::array::from_fn(|index| self.get(index))
    }

    #[inline(always)]
    pub(super) fn store(&self, words: [u64; N]) {
        (0..N).for_each(|index| self.set(index, words[index]));
    }
}

/// A list of free places: the first one that stores the numbers of others, and last that of the next such place.
#[derive(Clone, Copy, Debug)]
struct List {
    first: u32,
    /// Number of places that store numbers.
    length: u32,
}

impl List {
    const EMPTY: Self = Self { first: NONE, length: 0 };
}

/// The pages and the free places that the parts of a world share.
#[derive(Debug)]
struct Shared<T> {
    pages: Vec<Arc<[T; PAGE]>>,
    /// Free places of which a part had more than it needed.
    lists: Vec<List>,
}

/// Places for values, in pages, as one part of the world sees them.
///
/// They grow by a page and nothing moves. One array that doubles would be copied each time, and the system would clear
/// twice as much memory.
///
/// The numbers of the places freed last, which are the most likely to be in the cache, are at hand. All others are stored
/// in free places, several in one, which are a list. With one number in each, a burst of packets from another part of the
/// world waited for memory once a packet; now the next places are known in time to prefetch them.
///
/// The part that frees a place may take it again, whichever part took it before. A part keeps up to two lists and shares the
/// others, so that traffic in one direction does not need a new place for each packet.
#[derive(Debug)]
pub(super) struct Pages<T> {
    shared: Arc<Mutex<Shared<T>>>,
    /// The pages that this part knows: all that have places of its packets.
    pages: Vec<Arc<[T; PAGE]>>,
    /// Free places, the one freed last at the end of the first `count`.
    at_hand: [u32; AT_HAND],
    count: usize,
    list: List,
    /// Another list, full or empty.
    full: List,
    /// Number of places taken less number of those freed, by this part: modulo 2^64, as others may have taken them.
    used: u64,
}

impl<T> Default for Pages<T> {
    fn default() -> Self {
        Self::of(Arc::new(Mutex::new(Shared { pages: Vec::new(), lists: Vec::new() })))
    }
}

impl<T> Pages<T> {
    const fn of(shared: Arc<Mutex<Shared<T>>>) -> Self {
        Self {
            shared,
            pages: Vec::new(),
            at_hand: [NONE; AT_HAND],
            count: 0,
            list: List::EMPTY,
            full: List::EMPTY,
            used: 0,
        }
    }

    /// Returns the same places for another part, which has none of them.
    pub(super) fn part(&self) -> Self {
        Self::of(Arc::clone(&self.shared))
    }

    /// Returns the number of places that are not free, if no other part has any.
    pub(super) const fn used(&self) -> u64 {
        self.used
    }

    /// Learns of the pages that other parts have added.
    pub(super) fn follow(&mut self) {
        let shared = lock(&self.shared);
        let known = self.pages.len();
        self.pages.extend(shared.pages[known..].iter().cloned());
    }
}

impl<T: Place> Pages<T> {
    /// Returns a free place.
    #[inline]
    pub(super) fn reserve(&mut self) -> u32 {
        if self.count == 0 {
            self.refill();
        }
        self.count -= 1;
        self.used = self.used.wrapping_add(1);
        self.at_hand[self.count]
    }

    /// Takes free places from the list.
    #[inline(never)]
    fn refill(&mut self) {
        if self.list.length == 0 {
            self.list = std::mem::replace(&mut self.full, List::EMPTY);
        }
        if self.list.length == 0 && !self.take_shared() {
            return self.add_page();
        }
        let place = self.list.first;
        let [others @ .., next] = self.get(place).numbers();
        self.at_hand[..others.len()].copy_from_slice(&others);
        self.at_hand[others.len()] = place;
        self.count = NUMBERS;
        self.list = List { first: next, length: self.list.length - 1 };
        if self.list.length == 0 {
            return;
        }
        // The next place of the list was fetched at the last refill; what it stores is needed at the next one.
        let [next_others @ .., after] = self.get(next).numbers();
        next_others.iter().for_each(|&other| prefetch(self.get(other)));
        if after != NONE {
            prefetch(self.get(after));
        }
    }

    /// Takes a list that a part has shared; returns `false` if there is none.
    #[cold]
    fn take_shared(&mut self) -> bool {
        let list = lock(&self.shared).lists.pop();
        self.follow();
        self.list = list.unwrap_or(List::EMPTY);
        list.is_some()
    }

    /// Adds a page of free places.
    #[cold]
    fn add_page(&mut self) {
        let page: Arc<[T]> = std::iter::repeat_with(T::default).take(PAGE).collect();
        let page: Arc<[T; PAGE]> = page.try_into().ok().expect("a page has this length");
        let mut shared = lock(&self.shared);
        let first = shared.pages.len() * PAGE;
        shared.pages.push(page);
        drop(shared);
        self.follow();
        let place = |place| u32::try_from(place).expect("fewer than 2^32 packets in flight");
        self.used = self.used.wrapping_add(PAGE as u64);
        (first..first + PAGE).rev().for_each(|index| self.free(place(index)));
    }

    #[inline]
    pub(super) fn free(&mut self, place: u32) {
        self.used = self.used.wrapping_sub(1);
        self.get(place).clear();
        if self.count == AT_HAND {
            self.spill();
        }
        self.at_hand[self.count] = place;
        self.count += 1;
    }

    /// Stores the numbers of the places that have been at hand longest in one of them.
    #[inline(never)]
    fn spill(&mut self) {
        if self.list.length == LONGEST {
            let list = std::mem::replace(&mut self.list, List::EMPTY);
            let more = std::mem::replace(&mut self.full, list);
            self.share(more);
        }
        let mut numbers = [self.list.first; NUMBERS];
        let first = self.at_hand[0];
        numbers[..NUMBERS - 1].copy_from_slice(&self.at_hand[1..NUMBERS]);
        self.get(first).set_numbers(numbers);
        self.list = List { first, length: self.list.length + 1 };
        self.at_hand.copy_within(NUMBERS.., 0);
        self.count -= NUMBERS;
    }

    /// Lets any part have a list.
    #[cold]
    fn share(&self, list: List) {
        if list.length > 0 {
            lock(&self.shared).lists.push(list);
        }
    }

    /// Takes over the packets and the free places of a part.
    pub(super) fn take(&mut self, part: &mut Self) {
        self.follow();
        self.used = self.used.wrapping_add(std::mem::take(&mut part.used));
        for &place in &part.at_hand[..std::mem::take(&mut part.count)] {
            self.used = self.used.wrapping_add(1);
            self.free(place);
        }
        for list in [&mut part.list, &mut part.full] {
            self.share(std::mem::replace(list, List::EMPTY));
        }
    }
}

impl<T> Pages<T> {
    #[inline]
    pub(super) fn get(&self, place: u32) -> &T {
        &self.pages[place as usize / PAGE][place as usize % PAGE]
    }
}

/// Locks the pages and places that parts share. A part that panics ends the run.
fn lock<T>(shared: &Mutex<Shared<T>>) -> MutexGuard<'_, Shared<T>> {
    shared.lock().expect("no part panicked")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use weft_units::Seed;

    use super::*;
    use crate::packet::short_ack::AckPlace;

    #[test]
    fn no_place_is_given_twice_and_none_is_lost() {
        let mut rng = Seed(1).rng();
        let mut pages = Pages::<AckPlace>::default();
        let (mut used, mut most) = (Vec::new(), 0);
        for step in 0..40_000 {
            // The number of places grows and shrinks, by several pages.
            if rng.chance(if step / 10_000 % 2 == 0 { 3 } else { 1 }, 4) {
                used.push(pages.reserve());
                most = most.max(used.len());
            } else if !used.is_empty() {
                pages.free(used.swap_remove(rng.index(used.len())));
            }
        }
        assert_eq!(used.iter().collect::<BTreeSet<_>>().len(), used.len());
        assert_eq!(pages.used(), used.len() as u64);
        assert_eq!(pages.pages.len(), most.div_ceil(PAGE), "free places are used first");
        take_all(&mut pages, used, most.div_ceil(PAGE));
    }

    /// Takes all free places, which must be those that are not in `used`, without another page.
    fn take_all(pages: &mut Pages<AckPlace>, mut used: Vec<u32>, count: usize) {
        used.extend((0..count * PAGE - used.len()).map(|_| pages.reserve()));
        assert_eq!(used.iter().collect::<BTreeSet<_>>().len(), count * PAGE);
        assert_eq!(pages.pages.len(), count);
    }

    #[test]
    fn places_that_one_part_takes_and_another_frees_return() {
        let mut whole = Pages::<AckPlace>::default();
        let before: Vec<u32> = (0..10).map(|_| whole.reserve()).collect();
        let (mut sender, mut receiver) = (whole.part(), whole.part());
        for _ in 0..100 {
            let sent: Vec<u32> = (0..900).map(|_| sender.reserve()).collect();
            receiver.follow();
            sent.into_iter().for_each(|place| receiver.free(place));
        }
        // Besides 900 places in flight there are the receiver's two lists and its hand, and what the whole has.
        let kept = 2 * LONGEST as usize * NUMBERS + AT_HAND;
        assert!(sender.pages.len() <= (900 + kept).div_ceil(PAGE) + 2, "{}", sender.pages.len());
        whole.take(&mut sender);
        whole.take(&mut receiver);
        assert_eq!(whole.used(), 10);
        let count = whole.pages.len();
        take_all(&mut whole, before, count);
    }

    /// Each place is written by the part that has it, whichever thread serves it.
    #[test]
    fn parts_take_and_free_places_side_by_side() {
        let mut whole = Pages::<AckPlace>::default();
        let mut parts = [whole.part(), whole.part()];
        std::thread::scope(|scope| {
            for (part, number) in parts.iter_mut().zip(1..) {
                scope.spawn(move || {
                    for round in 0..50 {
                        let taken: Vec<u32> = (0..3_000).map(|_| part.reserve()).collect();
                        let numbers = |place| [place, number, round, 0, 0, 0, 0];
                        for &place in &taken {
                            part.get(place).set_numbers(numbers(place));
                        }
                        for place in taken {
                            assert_eq!(part.get(place).numbers(), numbers(place));
                            part.free(place);
                        }
                    }
                });
            }
        });
        parts.iter_mut().for_each(|part| whole.take(part));
        assert_eq!(whole.used(), 0);
        let count = whole.pages.len();
        take_all(&mut whole, Vec::new(), count);
    }
}
