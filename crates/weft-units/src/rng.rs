//! The random number generator: SplitMix64 (Steele, Lea and Flood 2014). It has eight bytes of state, costs two
//! multiplications per draw, and starts only from a seed.

/// A small deterministic generator of random numbers. It starts only from a [`Seed`](crate::Seed).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rng {
    state: u64,
}

/// Returns SplitMix64's finaliser of a value: each input bit affects each output bit.
pub(crate) const fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

impl Rng {
    pub(crate) const fn new(state: u64) -> Self {
        Self { state }
    }

    /// Returns the next 64 random bits.
    pub const fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.state)
    }

    /// Returns the next 32 random bits.
    pub const fn next_u32(&mut self) -> u32 {
        (self.next_u64() >> 32) as u32
    }

    /// Returns a random number in `0..bound` (Lemire 2019, without the rejection step: the bias is below
    /// `bound / 2^64`).
    ///
    /// # Panics
    /// Panics if `bound` is zero.
    pub const fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "a draw needs at least one outcome");
        ((self.next_u64() as u128 * bound as u128) >> 64) as u64
    }

    /// Returns a random index in `0..len`.
    ///
    /// # Panics
    /// Panics if `len` is zero.
    #[expect(clippy::cast_possible_truncation, reason = "the draw is below a usize")]
    pub const fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// Returns `true` with probability `numerator / denominator`.
    ///
    /// # Panics
    /// Panics if `denominator` is zero.
    pub const fn chance(&mut self, numerator: u64, denominator: u64) -> bool {
        self.below(denominator) < numerator
    }

    /// Returns a random number in `[0, 1)` with 53 random bits.
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit an f64 exactly")]
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Puts `items` in a uniformly random order (Fisher–Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.index(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::Seed;

    #[test]
    fn the_stream_is_splitmix64() {
        // The first outputs for state 0, from the reference implementation.
        let mut rng = super::Rng::new(0);
        assert_eq!(rng.next_u64(), 0xe220_a839_7b1d_cdaf);
        assert_eq!(rng.next_u64(), 0x6e78_9e6a_a1b9_65f4);
    }

    #[test]
    fn draws_cover_their_range_evenly() {
        let mut rng = Seed(7).rng();
        let mut seen = [0u32; 10];
        (0..100_000).for_each(|_| seen[rng.index(10)] += 1);
        assert!(seen.iter().all(|&n| (9_500..10_500).contains(&n)), "{seen:?}");
    }

    #[test]
    fn a_shuffle_keeps_every_item() {
        let mut items: Vec<u32> = (0..100).collect();
        Seed(3).rng().shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }
}
