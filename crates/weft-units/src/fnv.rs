//! FNV-1a (Fowler, Noll, Vo; draft-eastlake-fnv, section 2): a hash of short inputs where no attacker gains by a
//! collision.
//!
//! Its values are stored and sent: seeds of recorded runs, a controller's state file, service numbers in requests for
//! connections. They are the same on every machine and must never change.

/// A running FNV-1a hash of 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fnv1a(u64);

impl Fnv1a {
    const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;

    /// Returns the hash of no bytes.
    pub const fn new() -> Self {
        Self(Self::BASIS)
    }

    /// Returns a hash whose initial state is the offset basis XOR `seed`; a seed of zero gives [`new`](Self::new).
    pub const fn seeded(seed: u64) -> Self {
        Self(Self::BASIS ^ seed)
    }

    /// Returns the hash after these items, usually bytes. A wider item is hashed in one step, so its hash differs from
    /// that of its bytes.
    #[must_use]
    pub fn with<T: Into<u64>>(self, items: impl IntoIterator<Item = T>) -> Self {
        let step = |hash: u64, item: T| (hash ^ item.into()).wrapping_mul(Self::PRIME);
        Self(items.into_iter().fold(self.0, step))
    }

    /// Returns the hash of all items so far, 64 bits.
    pub const fn finish(self) -> u64 {
        self.0
    }
}

impl Default for Fnv1a {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the 32-bit FNV-1a hash of `bytes`.
pub fn fnv1a_32(bytes: impl IntoIterator<Item = u8>) -> u32 {
    const BASIS: u32 = 0x811c_9dc5;
    const PRIME: u32 = 0x0100_0193;
    bytes.into_iter().fold(BASIS, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_the_authors_test_vectors() {
        // test_fnv.c of the reference implementation; draft-eastlake-fnv, appendix C.
        for (text, short, long) in [
            ("", 0x811c_9dc5, 0xcbf2_9ce4_8422_2325),
            ("a", 0xe40c_292c, 0xaf63_dc4c_8601_ec8c),
            ("foobar", 0xbf9c_f968, 0x8594_4171_f739_67e8),
        ] {
            assert_eq!(fnv1a_32(text.bytes()), short, "{text}");
            assert_eq!(Fnv1a::new().with(text.bytes()).finish(), long, "{text}");
        }
    }

    #[test]
    fn a_hash_continues_where_it_was_and_a_seed_changes_it() {
        let whole = Fnv1a::new().with(*b"foobar");
        assert_eq!(Fnv1a::new().with(*b"foo").with(*b"bar"), whole);
        assert_eq!(Fnv1a::seeded(0).with(*b"foobar"), whole);
        assert_ne!(Fnv1a::seeded(1).with(*b"foobar"), whole);
        assert_ne!(Fnv1a::new().with([0x6261_u32]), Fnv1a::new().with(*b"ab"));
    }
}
