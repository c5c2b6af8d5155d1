//! Numbers that nobody can compute from those that were seen before: SipHash-2-4 of a counter under a secret key. The
//! state of a generator for reproducible runs follows from a few of its outputs.

use core::fmt;
use core::hash::Hasher;

use siphasher::sip::SipHasher24;

/// The numbers of one key, in order.
pub(super) struct UnpredictableNumbers {
    key: [u8; 16],
    drawn: u64,
}

impl UnpredictableNumbers {
    /// Begins the numbers of a key, which must be random and known to nobody else.
    pub(super) const fn new(key: [u8; 16]) -> Self {
        Self { key, drawn: 0 }
    }

    /// Draws the next number.
    pub(super) fn next_u32(&mut self) -> u32 {
        let mut hasher = SipHasher24::new_with_key(&self.key);
        hasher.write(&self.drawn.to_le_bytes());
        self.drawn += 1;
        (hasher.finish() >> 32) as u32
    }
}

impl fmt::Debug for UnpredictableNumbers {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("UnpredictableNumbers(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The test vector of SipHash-2-4 for eight bytes is line 8 of the reference implementation's table.
    #[test]
    fn a_number_is_siphash_of_its_counter() {
        let key = core::array::from_fn(|index| u8::try_from(index).unwrap());
        let mut numbers = UnpredictableNumbers { key, drawn: 0x0706_0504_0302_0100 };
        assert_eq!(numbers.next_u32(), 0x93f5_f579);
        assert_eq!(numbers.drawn, 0x0706_0504_0302_0101);
    }

    #[test]
    fn a_key_is_not_printed() {
        let printed = format!("{:?}", UnpredictableNumbers::new([0xab; 16]));
        assert_eq!(printed, "UnpredictableNumbers(..)");
    }
}
