//! Objects by number. A number consists of a slot and a generation of the slot, so that the number of a removed object
//! is not soon reused. Only programs of the host learn these numbers, and the device's owner checks which program an
//! object belongs to; numbers that peers learn are unpredictable ([`drawn`](crate::drawn)).

use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// The objects of one kind.
#[derive(Debug)]
pub(crate) struct Table<T> {
    slots: Vec<Slot<T>>,
    /// Empty slots, in the order in which they became empty.
    free: VecDeque<u32>,
    slot_bits: u32,
    number_bits: u32,
    limit: u32,
    len: u32,
}

#[derive(Debug)]
struct Slot<T> {
    /// The number of the object, or of the next one.
    number: u32,
    object: Option<T>,
}

impl<T> Table<T> {
    /// Returns an empty table for at most `limit` objects with numbers of `number_bits` bits, none of them below
    /// 2^`slot_bits`.
    ///
    /// # Panics
    /// If `slot_bits` is too small for `limit` slots, or not below `number_bits`, which is at most 32.
    pub(crate) const fn new(limit: u32, slot_bits: u32, number_bits: u32) -> Self {
        assert!(limit <= 1 << slot_bits && slot_bits < number_bits && number_bits <= 32);
        Self { slots: Vec::new(), free: VecDeque::new(), slot_bits, number_bits, limit, len: 0 }
    }

    /// Returns the slot of the object with this number: a small number, unique among the objects in the table.
    #[inline]
    pub(crate) const fn slot_of(&self, number: u32) -> usize {
        (number & ((1 << self.slot_bits) - 1)) as usize
    }

    /// Returns the number of the next object; `None` at the limit.
    pub(crate) fn next_number(&mut self) -> Option<u32> {
        if self.len == self.limit {
            return None;
        }
        if self.free.is_empty() {
            let slot = u32::try_from(self.slots.len()).expect("at most the limit");
            let number = slot | 1 << self.slot_bits;
            self.slots.push(Slot { number, object: None });
            self.free.push_back(slot);
        }
        self.free.front().map(|&slot| self.slots[slot as usize].number)
    }

    /// Adds an object; returns its number, or `None` at the limit.
    pub(crate) fn insert(&mut self, object: T) -> Option<u32> {
        let number = self.next_number()?;
        let slot = self.free.pop_front().expect("there is room");
        self.slots[slot as usize].object = Some(object);
        self.len += 1;
        Some(number)
    }

    /// Removes and returns the object with this number, if there is one.
    pub(crate) fn remove(&mut self, number: u32) -> Option<T> {
        let index = self.slot_of(number);
        let slot = self.slots.get_mut(index).filter(|slot| slot.number == number)?;
        let object = slot.object.take()?;
        slot.number = next(number, self.slot_bits, self.number_bits);
        self.free.push_back(u32::try_from(index).expect("a slot's number"));
        self.len -= 1;
        Some(object)
    }

    #[inline]
    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        let slot = self.slots.get(self.slot_of(number)).filter(|slot| slot.number == number)?;
        slot.object.as_ref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        let index = self.slot_of(number);
        let slot = self.slots.get_mut(index).filter(|slot| slot.number == number)?;
        slot.object.as_mut()
    }

    /// Returns the objects and their numbers, by slot.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.slots.iter().filter_map(|slot| Some((slot.number, slot.object.as_ref()?)))
    }
}

/// Returns the number of the next object in the same slot.
const fn next(number: u32, slot_bits: u32, number_bits: u32) -> u32 {
    let mask = u32::MAX >> (32 - number_bits);
    let next = number.wrapping_add(1 << slot_bits) & mask;
    if next >> slot_bits == 0 { next | 1 << slot_bits } else { next }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_number_does_not_find_a_new_object() {
        let mut table = Table::new(2, 16, 24);
        let first = table.insert('a').unwrap();
        assert_eq!(table.remove(first), Some('a'));
        let second = table.insert('b').unwrap();
        assert_ne!(first, second);
        assert_eq!((table.get(first), table.get(second)), (None, Some(&'b')));
        assert_eq!(table.remove(first), None);
    }

    #[test]
    fn the_limit_holds_and_numbers_stay_in_their_range() {
        let mut table = Table::new(1, 4, 8);
        let mut number = 0;
        for _ in 0..100 {
            number = table.insert(()).unwrap();
            assert!((16..256).contains(&number));
            assert_eq!(table.insert(()), None);
            table.remove(number).unwrap();
        }
        assert_eq!(table.remove(number), None);
    }
}
