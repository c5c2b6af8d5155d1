//! The Internet checksum (RFC 1071), its pseudo headers and its incremental update (RFC 1624).

use core::net::{Ipv4Addr, Ipv6Addr};

/// A partial checksum over 16-bit words. The parts may have any length: a word may span parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checksum {
    sum: u64,
    /// `true` if the bytes so far end within a word.
    odd: bool,
}

/// The addresses of the pseudo header that a transport checksum covers together with protocol and
/// length (RFC 768; RFC 8200, section 8.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PseudoHeader {
    /// The addresses of an IPv4 packet.
    V4 {
        /// Source address of the packet.
        source: Ipv4Addr,
        /// Destination address of the packet.
        destination: Ipv4Addr,
    },
    /// The addresses of an IPv6 packet.
    V6 {
        /// Source address of the packet.
        source: Ipv6Addr,
        /// Destination address of the packet.
        destination: Ipv6Addr,
    },
}

impl Checksum {
    /// Returns the sum over no bytes.
    pub const fn new() -> Self {
        Self { sum: 0, odd: false }
    }

    /// Returns the sum extended by `bytes`.
    #[must_use]
    pub fn with(self, bytes: &[u8]) -> Self {
        let part = sum_of_words(bytes);
        // After an odd number of bytes the words of this part are byte-swapped; the sum does not depend
        // on byte order as long as the order is the same throughout (RFC 1071, section 2 (B)).
        let part = if self.odd { part.swap_bytes() } else { part };
        Self { sum: self.sum + u64::from(part), odd: self.odd ^ (bytes.len() % 2 == 1) }
    }

    /// Returns the sum extended by a pseudo header for `len` bytes of `protocol`. The number of bytes before it
    /// must be even.
    #[must_use]
    pub fn with_pseudo_header(self, pseudo: PseudoHeader, protocol: u8, len: u32) -> Self {
        let with_addresses = match pseudo {
            PseudoHeader::V4 { source, destination } => {
                self.with(&source.octets()).with(&destination.octets())
            }
            PseudoHeader::V6 { source, destination } => {
                self.with(&source.octets()).with(&destination.octets())
            }
        };
        with_addresses.with(&len.to_be_bytes()).with(&[0, protocol])
    }

    /// Returns the checksum, the complement of the sum; zero over bytes that contain their valid checksum.
    pub const fn finish(self) -> u16 {
        !fold(self.sum)
    }
}

/// Returns the checksum after one covered word has changed from `old` to `new`, without reading the
/// other words (RFC 1624, equation 3).
pub const fn update(checksum: u16, old: u16, new: u16) -> u16 {
    !fold(!checksum as u64 + !old as u64 + new as u64)
}

/// Returns the ones' complement sum of the big-endian words of `bytes`, the last one padded with zero.
fn sum_of_words(bytes: &[u8]) -> u16 {
    // Words are added in native order, two at a time, and the folded sum is converted from network
    // order once: the loop then vectorises without shuffles.
    let (pairs, tail) = bytes.as_chunks::<4>();
    let mut sum: u64 = pairs.iter().map(|pair| u64::from(u32::from_ne_bytes(*pair))).sum();
    let mut last = [0; 4];
    last[..tail.len()].copy_from_slice(tail);
    sum += u64::from(u32::from_ne_bytes(last));
    u16::from_be(fold(sum))
}

#[expect(clippy::cast_possible_truncation, reason = "folded to 16 bits")]
const fn fold(mut sum: u64) -> u16 {
    while sum >> 16 != 0 {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use weft_units::Seed;

    use super::*;

    /// Computes the checksum word by word, as RFC 1071, section 1 defines it.
    fn reference(bytes: &[u8]) -> u16 {
        let mut sum = 0u32;
        for word in bytes.chunks(2) {
            let low = word.get(1).copied().unwrap_or(0);
            sum += u32::from(u16::from_be_bytes([word[0], low]));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        u16::try_from(!sum & 0xffff).unwrap()
    }

    #[test]
    fn the_example_of_rfc_1071_adds_up() {
        // RFC 1071, section 3: the sum of these bytes is ddf2.
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(Checksum::new().with(&bytes).finish(), !0xddf2);
    }

    #[test]
    fn any_split_of_the_bytes_gives_the_same_sum() {
        let mut rng = Seed(1).child("checksum", 0).rng();
        for len in 0..200 {
            let bytes: Vec<u8> = (0..len).map(|_| rng.next_u64().to_le_bytes()[0]).collect();
            let (a, b) = (rng.index(len + 1), rng.index(len + 1));
            let (first, second) = (a.min(b), a.max(b));
            let parts = [&bytes[..first], &bytes[first..second], &bytes[second..]];
            let split = parts.iter().fold(Checksum::new(), |sum, part| sum.with(part));
            assert_eq!(split.finish(), reference(&bytes));
        }
    }

    #[test]
    fn bytes_that_hold_their_checksum_sum_to_zero() {
        let mut bytes = [0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc, 0, 0];
        let checksum = Checksum::new().with(&bytes).finish();
        bytes[6..].copy_from_slice(&checksum.to_be_bytes());
        assert_eq!(Checksum::new().with(&bytes).finish(), 0);
    }

    #[test]
    fn the_example_of_rfc_1624_is_updated_correctly() {
        // RFC 1624, section 4: the equation of RFC 1141 gives ffff here.
        assert_eq!(update(0xdd2f, 0x5555, 0x3285), 0x0000);
    }

    #[test]
    fn an_update_equals_summing_again() {
        let mut rng = Seed(1).child("checksum", 1).rng();
        for _ in 0..10_000 {
            let mut bytes = [0; 20];
            bytes.fill_with(|| rng.next_u64().to_le_bytes()[0]);
            let before = Checksum::new().with(&bytes).finish();
            let old = u16::from_be_bytes([bytes[8], bytes[9]]);
            let new = u16::try_from(rng.below(1 << 16)).unwrap();
            bytes[8..10].copy_from_slice(&new.to_be_bytes());
            assert_eq!(update(before, old, new), Checksum::new().with(&bytes).finish());
        }
    }
}
