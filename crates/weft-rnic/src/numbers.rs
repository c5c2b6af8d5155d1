//! Numbers that peers are told and nobody can foretell: those of queue pairs, and the indices of keys. Each is the next of a
//! keyed shuffle of all of them, the one that connection ids come from, so a peer that was told some learns nothing of the
//! others: with numbers that are counted up, it tries its neighbours' (Rothenberger et al., "ReDMArk", USENIX Security 2021).
//! A number comes again when all others have been given.
//!
//! As the numbers are random, their low bits are their place in a table, and what one names is found in a step or two.

use alloc::vec::Vec;
use core::ops::RangeInclusive;

use weft_transport::Secret;

/// A place in the table: a number, and the slot of its object.
#[derive(Clone, Copy, Debug)]
struct Entry {
    number: u32,
    slot: u32,
}

/// The slot in a place that is free.
const FREE: u32 = u32::MAX;

const NOTHING: Entry = Entry { number: 0, slot: FREE };

/// Places of a table without numbers.
const FEWEST: usize = 8;

/// The numbers of objects of one kind, and their slots.
#[derive(Debug)]
pub(crate) struct Numbers {
    secret: Secret,
    bits: u32,
    /// The bits that every number has above those.
    prefix: u32,
    usable: RangeInclusive<u32>,
    /// Numbers of the shuffle that were looked at.
    drawn: u32,
    /// A power of two of places; at most half of them are taken. Who is not in its own place is in one of the next.
    entries: Vec<Entry>,
    len: usize,
}

impl Numbers {
    /// Returns numbers of so many bits (2 to 32), of which only those in `usable` are given.
    pub(crate) fn new(secret: Secret, bits: u32, usable: RangeInclusive<u32>) -> Self {
        let entries = alloc::vec![NOTHING; FEWEST];
        Self { secret, bits, prefix: 0, usable, drawn: 0, entries, len: 0 }
    }

    /// Has every number begin with `prefix`, above its lowest `bits` bits. No number is given yet.
    pub(crate) fn prefix(&mut self, prefix: u32, bits: u32) {
        assert!(
            self.len == 0 && bits < self.bits,
            "all numbers have the prefix, and bits are left"
        );
        (self.prefix, self.bits) = (prefix << bits, bits);
    }

    /// Returns the number of numbers that are given.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Gives a slot a number. There is one left: the owner keeps to fewer.
    pub(crate) fn name(&mut self, slot: u32) -> u32 {
        if (self.len + 1) * 2 > self.entries.len() {
            let grown = alloc::vec![NOTHING; self.entries.len() * 2];
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

    /// Takes a number back.
    pub(crate) fn remove(&mut self, number: u32) {
        let Some(mut hole) = self.place_of(number) else { return };
        let mut next = self.after(hole);
        // Those behind move up, unless they would come before their own place.
        while self.entries[next].slot != FREE {
            let own = self.own_place(self.entries[next].number);
            let behind = |place: usize| next.wrapping_sub(place) & (self.entries.len() - 1);
            if behind(own) >= behind(hole) {
                self.entries[hole] = self.entries[next];
                hole = next;
            }
            next = self.after(next);
        }
        self.entries[hole] = NOTHING;
        self.len -= 1;
    }

    /// Returns the slot that has this number.
    #[inline]
    pub(crate) fn find(&self, number: u32) -> Option<u32> {
        self.place_of(number).map(|place| self.entries[place].slot)
    }

    #[inline]
    fn place_of(&self, number: u32) -> Option<usize> {
        let mut place = self.own_place(number);
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
    fn own_place(&self, number: u32) -> usize {
        number as usize & (self.entries.len() - 1)
    }

    #[inline]
    fn after(&self, place: usize) -> usize {
        (place + 1) & (self.entries.len() - 1)
    }

    fn enter(&mut self, entry: Entry) {
        let mut place = self.own_place(entry.number);
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
    fn a_number_comes_again_when_all_others_have_been_given() {
        let mut numbers = numbers(8, 2..=0xfe);
        let mut drawn: Vec<u32> = (0..253)
            .map(|slot| {
                let number = numbers.name(slot);
                numbers.remove(number);
                number
            })
            .collect();
        drawn.sort_unstable();
        assert!(drawn.into_iter().eq(2..=0xfe));
    }

    #[test]
    fn a_number_is_found_as_long_as_it_is_given_whatever_comes_and_goes() {
        let (mut numbers, mut rng) = (numbers(10, 0..=1023), Seed(3).rng());
        let mut model = BTreeMap::new();
        for step in 0..20_000 {
            if model.len() < 900 && rng.chance(11, 20) {
                assert_eq!(model.insert(numbers.name(step), step), None);
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
        assert!((0..1000).all(|slot| numbers.name(slot) >> 16 == 0xab));
    }

    #[test]
    fn numbers_are_the_same_with_the_same_secret_only() {
        let draw = |secret| {
            let mut numbers = Numbers::new(Secret::new([secret; 16]), 24, 2..=0xff_fffe);
            (0..10).map(|slot| numbers.name(slot)).collect::<Vec<_>>()
        };
        assert_eq!(draw(1), draw(1));
        assert!(draw(1).iter().all(|number| !draw(2).contains(number)));
    }
}
