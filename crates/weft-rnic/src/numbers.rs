//! Unpredictable numbers for objects that peers name: queue pair numbers, and the indices of keys. The sequence of
//! numbers is a keyed permutation, the one that connection ids come from, so a peer that learns some numbers cannot
//! derive others. With sequential numbers, a peer could guess those of other queue pairs (Rothenberger et al.,
//! "ReDMArk", USENIX Security 2021). A number is reused only after all others have been assigned.
//!
//! The numbers are random, so their low bits serve as the hash of an open-addressing table; a lookup takes one or two probes.

use alloc::vec::Vec;
use core::ops::RangeInclusive;

use weft_transport::Secret;

/// An entry of the table: a number, and the slot of its object.
#[derive(Clone, Copy, Debug)]
struct Entry {
    number: u32,
    slot: u32,
}

/// The slot of a free entry.
const FREE: u32 = u32::MAX;

const EMPTY: Entry = Entry { number: 0, slot: FREE };

/// Entries of an empty table.
const MIN_ENTRIES: usize = 8;

/// Maps the numbers of one kind of object to their slots.
#[derive(Debug)]
pub(crate) struct Numbers {
    secret: Secret,
    bits: u32,
    /// The value of the bits above the lowest `bits`.
    prefix: u32,
    usable: RangeInclusive<u32>,
    /// Steps of the permutation so far.
    drawn: u32,
    /// The table: a power of two of entries, at most half of them used. Linear probing resolves collisions.
    entries: Vec<Entry>,
    len: usize,
}

impl Numbers {
    /// Creates an empty set of numbers of `bits` bits (2 to 32); only numbers in `usable` are assigned.
    pub(crate) fn new(secret: Secret, bits: u32, usable: RangeInclusive<u32>) -> Self {
        let entries = alloc::vec![EMPTY; MIN_ENTRIES];
        Self { secret, bits, prefix: 0, usable, drawn: 0, entries, len: 0 }
    }

    /// Sets the bits of every number above its lowest `bits` bits to `prefix`.
    ///
    /// # Panics
    /// If a number is assigned, or `bits` is not below the numbers' length.
    pub(crate) fn prefix(&mut self, prefix: u32, bits: u32) {
        assert!(
            self.len == 0 && bits < self.bits,
            "all numbers have the prefix, and bits are left"
        );
        (self.prefix, self.bits) = (prefix << bits, bits);
    }

    /// Returns the number of assigned numbers.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Assigns a number to a slot and returns it. The caller's limit ensures that a number is free.
    pub(crate) fn assign(&mut self, slot: u32) -> u32 {
        if (self.len + 1) * 2 > self.entries.len() {
            let grown = alloc::vec![EMPTY; self.entries.len() * 2];
            let old = core::mem::replace(&mut self.entries, grown);
            old.into_iter().filter(|entry| entry.slot != FREE).for_each(|entry| self.enter(entry));
        }
        let number = loop {
            let number = self.prefix | self.secret.shuffle(self.bits, 0, self.drawn);
            self.drawn = self.drawn.wrapping_add(1);
            if self.usable.contains(&number) && self.find(number).is_none() {
                break number;
            }
        };
        self.enter(Entry { number, slot });
        self.len += 1;
        number
    }

    /// Releases a number; does nothing if it is not assigned.
    pub(crate) fn remove(&mut self, number: u32) {
        let Some(mut hole) = self.place_of(number) else { return };
        let mut next = self.after(hole);
        // Moves later entries of the probe sequence up, but none before its home position.
        while self.entries[next].slot != FREE {
            let home = self.home_place(self.entries[next].number);
            let distance = |place: usize| next.wrapping_sub(place) & (self.entries.len() - 1);
            if distance(home) >= distance(hole) {
                self.entries[hole] = self.entries[next];
                hole = next;
            }
            next = self.after(next);
        }
        self.entries[hole] = EMPTY;
        self.len -= 1;
    }

    /// Returns the slot of a number.
    #[inline]
    pub(crate) fn find(&self, number: u32) -> Option<u32> {
        self.place_of(number).map(|place| self.entries[place].slot)
    }

    #[inline]
    fn place_of(&self, number: u32) -> Option<usize> {
        let mut place = self.home_place(number);
        loop {
            let entry = self.entries[place];
            if entry.slot == FREE {
                return None;
            }
            if entry.number == number {
                return Some(place);
            }
            place = self.after(place);
        }
    }

    #[inline]
    fn home_place(&self, number: u32) -> usize {
        number as usize & (self.entries.len() - 1)
    }

    #[inline]
    fn after(&self, place: usize) -> usize {
        (place + 1) & (self.entries.len() - 1)
    }

    fn enter(&mut self, entry: Entry) {
        let mut place = self.home_place(entry.number);
        while self.entries[place].slot != FREE {
            place = self.after(place);
        }
        self.entries[place] = entry;
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;

    use weft_units::Seed;

    use super::*;

    fn numbers(bits: u32, usable: RangeInclusive<u32>) -> Numbers {
        Numbers::new(Secret::new([7; 16]), bits, usable)
    }

    #[test]
    fn a_number_is_reused_after_all_others() {
        let mut numbers = numbers(8, 2..=0xfe);
        let mut drawn: Vec<u32> = (0..253)
            .map(|slot| {
                let number = numbers.assign(slot);
                numbers.remove(number);
                number
            })
            .collect();
        drawn.sort_unstable();
        assert!(drawn.into_iter().eq(2..=0xfe));
    }

    #[test]
    fn a_number_is_found_while_it_is_assigned() {
        let (mut numbers, mut rng) = (numbers(10, 0..=1023), Seed(3).rng());
        let mut model = BTreeMap::new();
        for step in 0..20_000 {
            if model.len() < 900 && rng.chance(11, 20) {
                assert_eq!(model.insert(numbers.assign(step), step), None);
            } else if let Some(&number) = model.keys().nth(rng.index(model.len().max(1))) {
                numbers.remove(number);
                model.remove(&number);
            }
            assert_eq!(numbers.len(), model.len());
            if step.is_multiple_of(500) {
                assert!((0..1024).all(|n| numbers.find(n) == model.get(&n).copied()), "{step}");
            }
        }
        assert!(model.len() > 500, "many at a time: {}", model.len());
    }

    #[test]
    fn every_number_has_the_prefix() {
        let mut numbers = numbers(24, 2..=0xff_fffe);
        numbers.prefix(0xab, 16);
        assert!((0..1000).all(|slot| numbers.assign(slot) >> 16 == 0xab));
    }

    #[test]
    fn numbers_are_the_same_with_the_same_secret_only() {
        let draw = |secret| {
            let mut numbers = Numbers::new(Secret::new([secret; 16]), 24, 2..=0xff_fffe);
            (0..10).map(|slot| numbers.assign(slot)).collect::<Vec<_>>()
        };
        assert_eq!(draw(1), draw(1));
        assert!(draw(1).iter().all(|number| !draw(2).contains(number)));
    }
}
