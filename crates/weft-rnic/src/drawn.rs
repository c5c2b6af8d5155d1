//! Objects by number, for numbers that peers learn: they are unpredictable ([`Numbers`]).

use alloc::vec::Vec;

use crate::numbers::Numbers;

/// The objects of one kind, with unpredictable numbers.
#[derive(Debug)]
pub(crate) struct Drawn<T> {
    numbers: Numbers,
    /// Objects with their numbers.
    slots: Vec<Option<(u32, T)>>,
    free: Vec<u32>,
    limit: u32,
}

impl<T> Drawn<T> {
    /// Creates an empty set for at most `limit` objects; `numbers` has more numbers than that. The fewer more, the longer
    /// it takes to draw one that is free.
    pub(crate) const fn new(limit: u32, numbers: Numbers) -> Self {
        Self { numbers, slots: Vec::new(), free: Vec::new(), limit }
    }

    /// Sets the bits of every number above its lowest `bits` bits to `prefix`, and the limit to `limit`. The set is empty.
    pub(crate) fn prefix(&mut self, prefix: u32, bits: u32, limit: u32) {
        self.numbers.prefix(prefix, bits);
        self.limit = limit;
    }

    /// Adds an object; returns its number, or `None` at the limit.
    pub(crate) fn insert(&mut self, object: T) -> Option<u32> {
        if self.numbers.len() >= self.limit as usize {
            return None;
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            u32::try_from(self.slots.len() - 1).expect("at most the limit")
        });
        let number = self.numbers.assign(slot);
        self.slots[slot as usize] = Some((number, object));
        Some(number)
    }

    /// Removes and returns the object with this number, if there is one.
    pub(crate) fn remove(&mut self, number: u32) -> Option<T> {
        let slot = self.numbers.find(number)?;
        self.numbers.remove(number);
        self.free.push(slot);
        self.slots[slot as usize].take().map(|(_, object)| object)
    }

    #[inline]
    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        let slot = self.numbers.find(number)?;
        self.slots[slot as usize].as_ref().map(|(_, object)| object)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        let slot = self.numbers.find(number)?;
        self.slots[slot as usize].as_mut().map(|(_, object)| object)
    }

    /// Returns the objects and their numbers, by slot.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.slots.iter().flatten().map(|(number, object)| (*number, object))
    }
}

#[cfg(test)]
mod tests {
    use weft_transport::Secret;

    use super::*;

    fn drawn(limit: u32) -> Drawn<char> {
        Drawn::new(limit, Numbers::new(Secret::new([9; 16]), 24, 2..=0xff_fffe))
    }

    #[test]
    fn an_old_number_does_not_find_a_new_object() {
        let mut objects = drawn(2);
        let first = objects.insert('a').unwrap();
        assert_eq!((objects.remove(first), objects.remove(first)), (Some('a'), None));
        let second = objects.insert('b').unwrap();
        assert_ne!(first, second);
        assert_eq!((objects.get(first), objects.get(second)), (None, Some(&'b')));
        assert!(objects.iter().eq([(second, &'b')]));
    }

    #[test]
    fn the_limit_holds() {
        let mut objects = drawn(1);
        for _ in 0..100 {
            let number = objects.insert('a').unwrap();
            assert_eq!(objects.insert('b'), None);
            objects.remove(number).unwrap();
        }
    }
}
