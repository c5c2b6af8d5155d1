//! Sorts the keys of a turn, nearly without comparisons.
//!
//! The order of two packets is unpredictable for a processor, and a mispredicted branch costs as much as about fifty
//! instructions; a comparison sort mispredicted once for each packet. But times within a window are spread evenly. So
//! the keys are counted into several times as many bins as there are keys; few bins have several keys, and only those are
//! compared.

/// Minimum number of keys that are sorted with bins. Fewer keys are those of a host: they came by one cable, in order,
/// so that comparisons sort them fast.
const MIN_KEYS: usize = 12;

/// Number of keys whose positions fit a byte, so that eight bytes are added at once.
const FEW_KEYS: usize = u8::MAX as usize;

/// Maximum number of keys that are sorted with bins, which stay in the second-level cache.
const MAX_KEYS: usize = 1 << 13;

/// Maximum number of keys in one bin of many; with more, moves would take longer than comparisons.
const MAX_IN_BIN: u32 = 64;

/// A one in each of eight bytes.
const ONES: u64 = u64::MAX / 0xff;

/// The sort of keys below a bound.
#[derive(Debug)]
pub(super) struct Order {
    /// Bits of the longest key.
    bits: u32,
    unsorted: Vec<u64>,
    /// The end of each bin of many keys.
    ends: Vec<u32>,
}

impl Order {
    /// Returns the sort for keys below `bound`.
    pub(super) fn new(bound: u64) -> Self {
        let bits = u64::BITS - bound.saturating_sub(1).leading_zeros();
        Self::with_bits(bits.max(u8::BITS))
    }

    /// Returns another sort for the same keys.
    pub(super) fn of_same_bits(&self) -> Self {
        Self::with_bits(self.bits)
    }

    const fn with_bits(bits: u32) -> Self {
        Self { bits, unsorted: Vec::new(), ends: Vec::new() }
    }

    /// Sorts `keys` in ascending order.
    #[inline]
    pub(super) fn sort(&mut self, keys: &mut Vec<u64>) {
        if !(MIN_KEYS..=MAX_KEYS).contains(&keys.len()) {
            return keys.sort_unstable();
        }
        std::mem::swap(keys, &mut self.unsorted);
        keys.clear();
        keys.resize(self.unsorted.len(), 0);
        if keys.len() > FEW_KEYS {
            return self.sort_many(keys);
        }
        let bins = (4 * keys.len()).next_power_of_two().min(1 << u8::BITS);
        let shift = self.bits - bins.ilog2();
        let mut ends = starts(&self.unsorted, shift, bins);
        for &key in &self.unsorted {
            let end = &mut ends[bin(key, shift)];
            keys[usize::from(*end)] = key;
            *end += 1;
        }
        insert_each(keys);
    }

    /// Moves more than [`FEW_KEYS`] unsorted keys to `keys`, sorted.
    #[inline(never)]
    fn sort_many(&mut self, keys: &mut [u64]) {
        let Self { bits, unsorted, ends } = self;
        let bin_bits = (2 * keys.len()).next_power_of_two().ilog2().min(*bits);
        let shift = *bits - bin_bits;
        ends.clear();
        ends.resize(1 << bin_bits, 0);
        for &key in &*unsorted {
            ends[bin_of_many(key, shift)] += 1;
        }
        let (mut before, mut most) = (0, 0);
        for end in &mut *ends {
            most = most.max(*end);
            before += std::mem::replace(end, before);
        }
        if most > MAX_IN_BIN {
            keys.copy_from_slice(unsorted);
            return keys.sort_unstable();
        }
        for &key in &*unsorted {
            let end = &mut ends[bin_of_many(key, shift)];
            keys[*end as usize] = key;
            *end += 1;
        }
        insert_each(keys);
    }
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the bits above the bin's number are zero")]
fn bin(key: u64, shift: u32) -> usize {
    usize::from((key >> shift) as u8)
}

/// Like [`bin`], of up to 2^16 bins.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the bits above the bin's number are zero")]
fn bin_of_many(key: u64, shift: u32) -> usize {
    usize::from((key >> shift) as u16)
}

/// Counts the keys of each bin and returns the position of each bin's first key.
#[inline]
fn starts(keys: &[u64], shift: u32, bins: usize) -> [u8; 1 << u8::BITS] {
    let mut starts = [0; 1 << u8::BITS];
    for &key in keys {
        starts[bin(key, shift)] += 1;
    }
    let mut before = 0;
    for eight in starts[..bins].as_chunks_mut().0 {
        // Each byte of the product is the sum of the counts up to its own.
        let sums = u64::from_le_bytes(*eight).wrapping_mul(ONES);
        *eight = ((sums << u8::BITS) + before * ONES).to_le_bytes();
        before += sums >> (u64::BITS - u8::BITS);
    }
    starts
}

/// Insertion sort: fast if almost all keys are in order.
#[inline]
fn insert_each(keys: &mut [u64]) {
    for end in 2..=keys.len() {
        if let [.., before, last] = keys[..end]
            && before > last
        {
            let place = keys[..end - 1].partition_point(|&key| key < last);
            keys[place..end].rotate_right(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use weft_units::Seed;

    use super::*;

    #[test]
    fn any_number_of_keys_below_any_bound_come_out_in_order() {
        let mut rng = Seed(1).rng();
        let mut bounds = vec![1, 2, 255, 256, 257, 1_000_000 << 32, u64::MAX];
        bounds.extend((0..64).map(|bit| 1 << bit));
        for bound in bounds {
            let mut order = Order::new(bound);
            for count in [
                0,
                1,
                2,
                MIN_KEYS - 1,
                MIN_KEYS,
                40,
                100,
                FEW_KEYS,
                FEW_KEYS + 1,
                MAX_KEYS,
                MAX_KEYS + 1,
            ] {
                let mut keys: Vec<_> = (0..count).map(|_| rng.below(bound)).collect();
                let mut expected = keys.clone();
                expected.sort_unstable();
                order.sort(&mut keys);
                assert_eq!(keys, expected, "{count} keys below {bound}");
            }
        }
    }

    #[test]
    fn keys_that_share_one_bin_come_out_in_order() {
        let mut order = Order::new(1 << 52);
        for count in [FEW_KEYS, MAX_KEYS] {
            let mut keys: Vec<_> = (0..count as u64).rev().collect();
            order.sort(&mut keys);
            assert!(keys.is_sorted());
        }
    }
}
