//! Places for packets, in pages, and the list of the free ones.

use weft_units::prefetch;

/// A place that can store one packet. A free one can store the numbers of other free places instead.
pub(super) trait Place: Copy + Default {
    /// Makes a place that was freed one without a packet.
    fn clear(&mut self);
    /// Returns the numbers that a free place stores.
    fn numbers(&self) -> [u32; NUMBERS];
    /// Stores numbers in a free place.
    fn set_numbers(&mut self, numbers: [u32; NUMBERS]);
}

/// Number of numbers that a free place stores, as many as fit beside the first field of a data packet's place.
pub(super) const NUMBERS: usize = 7;

/// Number of places in a page.
const PAGE: usize = 1 << 10;
/// Maximum number of free places at hand: more than a node's turn frees or takes.
const AT_HAND: usize = 32;
/// The end of the list of free places.
const NONE: u32 = u32::MAX;

/// Places for values, in pages.
///
/// It grows by a page and nothing moves. One array that doubles would be copied each time, and the system would clear
/// twice as much memory.
///
/// The numbers of the places freed last, which are the most likely to be in the cache, are at hand. All others are stored
/// in free places, several in one, which are a list. With one number in each, a burst of packets from another part of the
/// world waited for memory once a packet; now the next places are known in time to prefetch them.
#[derive(Debug)]
pub(super) struct Pages<T> {
    pages: Vec<Box<[T; PAGE]>>,
    /// Free places, the one freed last at the end of the first `count`.
    at_hand: [u32; AT_HAND],
    count: usize,
    /// The first free place that stores the numbers of others, and last that of the next such place.
    list: u32,
    /// Number of places that are not free.
    pub(super) used: u64,
}

impl<T: Place> Pages<T> {
    /// Returns no places.
    pub(super) const fn new() -> Self {
        Self { pages: Vec::new(), at_hand: [NONE; AT_HAND], count: 0, list: NONE, used: 0 }
    }

    /// Returns a free place.
    #[inline]
    pub(super) fn reserve(&mut self) -> u32 {
        if self.count == 0 {
            self.refill();
        }
        self.count -= 1;
        self.used += 1;
        self.at_hand[self.count]
    }

    /// Takes free places from the list.
    #[inline(never)]
    fn refill(&mut self) {
        if self.list == NONE {
            return self.add_page();
        }
        let place = self.list;
        let [others @ .., next] = self.get(place).numbers();
        self.at_hand[..others.len()].copy_from_slice(&others);
        self.at_hand[others.len()] = place;
        (self.count, self.list) = (NUMBERS, next);
        if next == NONE {
            return;
        }
        // The next place of the list was fetched at the last refill; what it stores is needed at the next one.
        let [next_others @ .., after] = self.get(next).numbers();
        next_others.iter().for_each(|&other| prefetch(self.get(other)));
        if after != NONE {
            prefetch(self.get(after));
        }
    }

    /// Adds a page of free places.
    #[cold]
    fn add_page(&mut self) {
        let first = self.pages.len() * PAGE;
        let place = |place| u32::try_from(place).expect("fewer than 2^32 packets in flight");
        self.pages.push(Box::new([T::default(); PAGE]));
        self.used += PAGE as u64;
        (first..first + PAGE).rev().for_each(|index| self.free(place(index)));
    }

    #[inline]
    pub(super) fn free(&mut self, place: u32) {
        self.used -= 1;
        self.get_mut(place).clear();
        if self.count == AT_HAND {
            self.spill();
        }
        self.at_hand[self.count] = place;
        self.count += 1;
    }

    /// Stores the numbers of the places that have been at hand longest in one of them.
    #[inline(never)]
    fn spill(&mut self) {
        let mut numbers = [self.list; NUMBERS];
        self.list = self.at_hand[0];
        numbers[..NUMBERS - 1].copy_from_slice(&self.at_hand[1..NUMBERS]);
        self.get_mut(self.list).set_numbers(numbers);
        self.at_hand.copy_within(NUMBERS.., 0);
        self.count -= NUMBERS;
    }

    #[inline]
    pub(super) fn get(&self, place: u32) -> &T {
        &self.pages[place as usize / PAGE][place as usize % PAGE]
    }

    #[inline]
    pub(super) fn get_mut(&mut self, place: u32) -> &mut T {
        &mut self.pages[place as usize / PAGE][place as usize % PAGE]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use weft_units::Seed;

    use super::*;
    use crate::packet::short_ack::ShortAck;

    #[test]
    fn no_place_is_given_twice_and_none_is_lost() {
        let mut rng = Seed(1).rng();
        let mut pages = Pages::<ShortAck>::new();
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
        assert_eq!(pages.used, used.len() as u64);
        assert_eq!(pages.pages.len(), most.div_ceil(PAGE), "free places are used first");
        let free = pages.pages.len() * PAGE - used.len();
        used.extend((0..free).map(|_| pages.reserve()));
        assert_eq!(used.iter().collect::<BTreeSet<_>>().len(), pages.pages.len() * PAGE);
        assert_eq!(pages.pages.len(), most.div_ceil(PAGE));
    }
}
