//! The free address ranges of the arena.

use std::collections::BTreeMap;

/// Disjoint ranges, the length of each in bytes by its start; adjacent ones are joined.
#[derive(Debug, Default)]
pub(crate) struct FreeRanges(BTreeMap<usize, usize>);

impl FreeRanges {
    /// Takes `len` bytes, aligned, at the lowest address where they are free. Returns the start.
    pub(crate) fn allocate(&mut self, len: usize, align: usize) -> Option<usize> {
        let fits = |(&start, &room): (&usize, &usize)| {
            let aligned = start.checked_next_multiple_of(align)?;
            (aligned - start <= room.checked_sub(len)?).then_some(aligned)
        };
        let start = self.0.iter().find_map(fits)?;
        self.take(start, len).then_some(start)
    }

    /// Takes `len` bytes from the middle of the longest range, so that the block can grow: other blocks are at low
    /// addresses. Returns the start.
    pub(crate) fn allocate_with_room(&mut self, len: usize, align: usize) -> Option<usize> {
        let (&start, &room) = self.0.iter().max_by_key(|&(_, &room)| room)?;
        let middle = (start + room / 2).checked_next_multiple_of(align)?;
        self.take(middle, len).then_some(middle)
    }

    /// Takes this range; returns `false`, and changes nothing, unless all of it is free.
    pub(crate) fn take(&mut self, start: usize, len: usize) -> bool {
        let Some((&first, &room)) = self.0.range(..=start).next_back() else { return false };
        let before = start - first;
        if before > room || room - before < len {
            return false;
        }
        self.0.remove(&first);
        self.insert(first, before);
        self.insert(start + len, room - before - len);
        true
    }

    /// Adds a range, which must not be free yet.
    pub(crate) fn release(&mut self, mut start: usize, mut len: usize) {
        if let Some((&before, &room)) = self.0.range(..start).next_back()
            && before + room >= start
        {
            assert!(before + room == start, "a range is freed once");
            self.0.remove(&before);
            (start, len) = (before, room + len);
        }
        if let Some((&after, &room)) = self.0.range(start..).next()
            && after <= start + len
        {
            assert!(after == start + len, "a range is freed once");
            self.0.remove(&after);
            len += room;
        }
        self.insert(start, len);
    }

    fn insert(&mut self, start: usize, len: usize) {
        if len > 0 {
            self.0.insert(start, len);
        }
    }
}

#[cfg(test)]
mod tests {
    use weft_units::Seed;

    use super::*;

    fn ranges(free: &[(usize, usize)]) -> FreeRanges {
        let mut ranges = FreeRanges::default();
        free.iter().for_each(|&(start, len)| ranges.release(start, len));
        ranges
    }

    #[test]
    fn the_lowest_range_with_room_for_an_aligned_block_is_used() {
        let mut free = ranges(&[(0x1000, 0x4000), (0x8000, 0x2000), (0x10_0000, 0x10_0000)]);
        assert_eq!(free.allocate(0x2000, 0x8000), Some(0x8000));
        assert_eq!(free.allocate(0x2000, 0x4000), Some(0x10_0000), "0x4000 has room for 0x1000");
        assert_eq!(free.allocate(0x1000, 0x4000), Some(0x4000));
        assert_eq!(free.allocate(0x1000, 0x1000), Some(0x1000));
        assert_eq!(free.allocate(0x20_0000, 0x1000), None);
    }

    #[test]
    fn adjacent_ranges_are_joined() {
        let mut free = ranges(&[(0x1000, 0x1000), (0x3000, 0x1000), (0x2000, 0x1000)]);
        assert_eq!(free.0, BTreeMap::from([(0x1000, 0x3000)]));
        assert!(free.take(0x1000, 0x3000) && free.0.is_empty());
    }

    #[test]
    fn a_block_with_room_can_grow_whatever_else_is_allocated() {
        let mut free = ranges(&[(0x1_0000, 0x100_0000)]);
        let mut blocks = [0, 0].map(|_| (free.allocate_with_room(0x1000, 0x1000).unwrap(), 0x1000));
        for _ in 0..8 {
            assert!(free.allocate(0x2000, 0x1000).is_some());
            for (start, len) in &mut blocks {
                assert!(free.take(*start + *len, *len));
                *len *= 2;
            }
        }
        let (start, len) = blocks[0];
        assert!(!free.take(start + len - 0x1000, 0x2000), "the first page is the block's");
    }

    /// Compares with a table that has an entry for each unit.
    #[test]
    fn no_range_is_given_out_twice_in_any_order_of_operations() {
        const UNITS: usize = 300;
        for seed in 0..200 {
            let mut rng = Seed(seed).child("ranges", 0).rng();
            let mut free = ranges(&[(0, UNITS)]);
            let (mut is_free, mut held) = (vec![true; UNITS], Vec::new());
            for _ in 0..200 {
                let len = 1 + rng.next_u32() as usize % 40;
                let align = 1 << (rng.next_u32() % 5);
                let start = match rng.next_u32() % 4 {
                    0 if !held.is_empty() => {
                        let (start, len) = held.swap_remove(rng.next_u32() as usize % held.len());
                        free.release(start, len);
                        is_free[start..start + len].fill(true);
                        continue;
                    }
                    1 => free.allocate_with_room(len, align),
                    _ => free.allocate(len, align),
                };
                if let Some(start) = start {
                    let units = &mut is_free[start..start + len];
                    assert!(units.iter().all(|&free| free), "seed {seed}");
                    units.fill(false);
                    assert_eq!(start % align, 0, "seed {seed}");
                    held.push((start, len));
                }
            }
            let total: usize = free.0.values().sum();
            assert_eq!(total, is_free.iter().filter(|&&free| free).count(), "seed {seed}");
        }
    }
}
