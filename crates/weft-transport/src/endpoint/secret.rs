//! Unpredictable draws from a secret key.
//!
//! A peer sees many draws: its own connections' ids and first sequence numbers, and its tokens. From draws of a
//! pseudo-random function under a key (SipHash-2-4) it learns nothing of other draws. A generator for reproducible runs
//! does not promise that: its state can be computed from its output.

use core::fmt;
use core::hash::Hasher;

use siphasher::sip::SipHasher24;
use weft_units::Seed;

/// The key of an endpoint's connection ids, first sequence numbers and address tokens. An owner on a real network takes
/// it from the operating system, a new one for each endpoint.
#[derive(Clone, Copy)]
pub struct Secret([u8; 16]);

/// The purpose of a draw; no two purposes share a draw.
#[derive(Clone, Copy, Debug)]
pub(super) enum Purpose {
    Shuffle = 1,
    SlotMask = 2,
    FirstPsn = 3,
    TokenKey = 4,
    Child = 5,
}

impl Secret {
    /// Creates a secret from these bytes, which must be random and known to nobody else.
    pub const fn new(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Returns the secret of a reproducible run. It is not secret: it follows from the seed.
    pub fn from_seed(seed: Seed) -> Self {
        let mut rng = seed.child("secret", 0).rng();
        let mut bytes = [0; 16];
        for half in bytes.chunks_exact_mut(8) {
            half.copy_from_slice(&rng.next_u64().to_le_bytes());
        }
        Self(bytes)
    }

    /// Returns a secret for other draws, derived from this one: it reveals nothing of this one or of its other
    /// children.
    #[must_use]
    pub fn child(&self, name: &str) -> Self {
        let mut bytes = [0; 16];
        for (index, half) in (0_u8..).zip(bytes.chunks_exact_mut(8)) {
            let mut hasher = SipHasher24::new_with_key(&self.0);
            hasher.write(&(Purpose::Child as u64).to_le_bytes());
            hasher.write(&[index]);
            hasher.write(name.as_bytes());
            half.copy_from_slice(&hasher.finish().to_le_bytes());
        }
        Self(bytes)
    }

    /// Returns draw number `counter` for `purpose`.
    pub(super) fn draw(&self, purpose: Purpose, counter: u64) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.0);
        hasher.write(&(purpose as u64).to_le_bytes());
        hasher.write(&counter.to_le_bytes());
        hasher.finish()
    }

    /// Returns the low 32 bits of a draw.
    #[allow(clippy::cast_possible_truncation, reason = "each half of a draw is one")]
    pub(super) fn draw_u32(&self, purpose: Purpose, counter: u64) -> u32 {
        self.draw(purpose, counter) as u32
    }

    /// Returns the position of `number` in a permutation of all numbers of `bits` bits (2 to 32). Each value of `index`
    /// has its own permutation: a Feistel network with as many rounds as NIST's FF1 (SP 800-38G).
    pub fn shuffle(&self, bits: u32, index: u32, number: u32) -> u32 {
        let low_bits = bits / 2;
        let (low_mask, high_mask) = (ones(low_bits), ones(bits - low_bits));
        let (mut high, mut low) = (number >> low_bits & high_mask, number & low_mask);
        let round_function = |round: u32, half: u32| {
            let counter = u64::from(index) << 32 | u64::from(round) << 16 | u64::from(half);
            self.draw_u32(Purpose::Shuffle, counter)
        };
        for round in 0..5 {
            high ^= round_function(2 * round, low) & high_mask;
            low ^= round_function(2 * round + 1, high) & low_mask;
        }
        high << low_bits | low
    }
}

/// Returns a mask of the lowest `bits` bits, at most 31.
const fn ones(bits: u32) -> u32 {
    (1 << bits) - 1
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Secret(..)")
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;
    use alloc::format;
    use alloc::vec::Vec;

    use super::*;

    const PURPOSES: [Purpose; 4] =
        [Purpose::Shuffle, Purpose::SlotMask, Purpose::FirstPsn, Purpose::TokenKey];

    #[test]
    fn draws_do_not_repeat() {
        let secret = Secret::new([7; 16]);
        let draws = |purpose| (0..10_000).map(move |counter| secret.draw(purpose, counter));
        let all: BTreeSet<_> = PURPOSES.into_iter().flat_map(draws).collect();
        assert_eq!(all.len(), 40_000);
    }

    /// The test vector of SipHash-2-4 (Aumasson and Bernstein 2012, appendix A) has 15 bytes; that of 16 bytes is line
    /// 16 of the reference implementation's table.
    #[test]
    fn a_draw_is_siphash_of_purpose_and_counter() {
        let key = core::array::from_fn(|index| u8::try_from(index).unwrap());
        let mut hasher = SipHasher24::new_with_key(&key);
        hasher.write(&key);
        assert_eq!(hasher.finish().to_le_bytes(), *b"\xdb\x9b\xc2\x57\x7f\xcc\x2a\x3f");
        let mut hasher = SipHasher24::new_with_key(&key);
        hasher.write(&[3, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(Secret::new(key).draw(Purpose::FirstPsn, 5), hasher.finish());
    }

    #[test]
    fn a_shuffle_has_every_number_once_and_each_index_its_own() {
        for bits in [2, 3, 8, 15] {
            let shuffled = |index| {
                (0..1 << bits)
                    .map(|n| Secret::new([7; 16]).shuffle(bits, index, n))
                    .collect::<Vec<_>>()
            };
            let mut sorted = shuffled(1);
            sorted.sort_unstable();
            assert!(sorted.into_iter().eq(0..1 << bits));
            assert!(bits < 8 || shuffled(1) != shuffled(2));
        }
    }

    #[test]
    fn children_are_secrets_of_their_own() {
        let secret = Secret::new([7; 16]);
        let draw = |secret: Secret| secret.draw(Purpose::Shuffle, 1);
        let all = [secret, secret.child("a"), secret.child("b"), Secret::new([8; 16]).child("a")];
        assert_eq!(all.map(draw).into_iter().collect::<BTreeSet<_>>().len(), 4);
        assert_eq!(draw(secret.child("a")), draw(secret.child("a")));
    }

    #[test]
    fn a_secret_is_not_printed() {
        assert_eq!(format!("{:?}", Secret::new([0xab; 16])), "Secret(..)");
    }

    #[test]
    fn a_run_is_repeated_with_its_seed() {
        let draws = |seed| {
            let secret = Secret::from_seed(Seed(seed));
            PURPOSES.map(|purpose| secret.draw(purpose, 1)).into_iter().collect::<Vec<_>>()
        };
        assert_eq!(draws(1), draws(1));
        assert_ne!(draws(1), draws(2));
    }
}
