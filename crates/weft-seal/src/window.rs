//! The window of received packets, which rejects repeats (RFC 6479: the bitmap is a ring of words,
//! and moves by clearing words). It grows with the connection's packets, up to its width.

use alloc::vec::Vec;

/// Maximum number of words in the ring. The newest word is being filled, so the window has one word less.
const WORDS: u64 = WIDTH / 64 + 1;

/// Number of packets behind the newest for which the window distinguishes new packets from repeats. At 100 Gb/s and
/// 1,400 bytes a packet they take 7 ms: one path may be that much slower than another.
pub(crate) const WIDTH: u64 = 1 << 16;

/// The numbers of the packets received in one direction.
#[derive(Clone, Debug, Default)]
pub(crate) struct Window {
    words: Vec<u64>,
    /// One more than the newest; zero before the first.
    end: u64,
}

const fn place(iv: u64) -> (usize, u64) {
    let word = (iv / 64 % WORDS) as usize;
    (word, 1 << (iv % 64))
}

impl Window {
    /// Returns the number whose low half is `low` that is nearest to the newest (RFC 4304, appendix A2).
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the low half is compared")]
    pub(crate) const fn complete(&self, low: u32) -> u64 {
        let ahead = low.wrapping_sub(self.end as u32);
        if ahead < 1 << 31 {
            return self.end.saturating_add(ahead as u64);
        }
        let behind = ahead.wrapping_neg() as u64;
        // Within the first 2^31 packets, a number that would lie below zero is ahead.
        match self.end.checked_sub(behind) {
            Some(iv) => iv,
            None => self.end.saturating_add(ahead as u64),
        }
    }

    /// Returns `true` for a packet that was received, or is so old that this is unknown; also for [`u64::MAX`], which
    /// no sender uses.
    #[inline]
    pub(crate) fn has(&self, iv: u64) -> bool {
        if iv >= self.end {
            return iv == u64::MAX;
        }
        let newest_word = (self.end - 1) / 64;
        if newest_word - iv / 64 >= WORDS {
            return true;
        }
        let (word, bit) = place(iv);
        self.words[word] & bit != 0
    }

    /// Records a packet for which [`has`](Self::has) is `false`.
    #[inline]
    pub(crate) fn add(&mut self, iv: u64) {
        if iv >= self.end {
            self.move_to(iv);
        }
        let (word, bit) = place(iv);
        self.words[word] |= bit;
    }

    fn move_to(&mut self, iv: u64) {
        let first = if self.end == 0 { 0 } else { (self.end - 1) / 64 + 1 };
        let last = iv / 64;
        let wanted = usize::try_from((last + 1).next_power_of_two().min(WORDS));
        let wanted = wanted.expect("a ring of WORDS words at most");
        if self.words.len() < wanted {
            // Until the ring has its full size no word is reused, so each word keeps its index.
            self.words.resize(wanted, 0);
        }
        if last - first.min(last) >= WORDS {
            self.words.fill(0);
        } else {
            (first..=last).for_each(|word| self.words[place(64 * word).0] = 0);
        }
        self.end = iv.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use weft_units::Seed;

    use super::*;

    #[test]
    fn a_packet_is_new_once_within_the_window() {
        let mut window = Window::default();
        assert!(!window.has(0) && !window.has(u64::MAX - 1));
        window.add(100_000);
        assert!(window.has(100_000));
        // 65,536 packets at least, and whole words.
        assert!(!window.has(100_001 - WIDTH) && window.has(100_000 - WIDTH - 64));
        window.add(100_000 - 4000);
        assert!(window.has(100_000 - 4000) && !window.has(100_000 - 3999));
        window.add(200_000);
        assert!(window.has(100_000) && window.has(120_000) && !window.has(160_000));
    }

    #[test]
    fn it_grows_with_the_connection() {
        let mut window = Window::default();
        let mut words = Vec::new();
        for iv in 0..200_000 {
            window.add(iv);
            words.push(window.words.len());
        }
        assert_eq!((words[0], words[63], words[64], words[199_999]), (1, 1, 2, 1025));
        assert!((0..200_000).all(|iv| window.has(iv)));
    }

    #[test]
    fn numbers_are_completed_around_the_newest() {
        let mut window = Window::default();
        assert_eq!((window.complete(0), window.complete(7)), (0, 7));
        assert_eq!(window.complete(u32::MAX), u64::from(u32::MAX));
        for newest in [1_000_u64, (1 << 32) - 10, 1 << 32, (1 << 40) + 5, (7 << 32) - 1] {
            window.end = newest + 1;
            for iv in [newest.saturating_sub(900), newest, newest + 1, newest + 100_000] {
                assert_eq!(
                    window.complete(u32::try_from(iv & 0xffff_ffff).unwrap()),
                    iv,
                    "{newest}"
                );
            }
        }
    }

    /// Compares the window with a set of all received numbers.
    #[test]
    fn nothing_is_taken_twice_whatever_the_order() {
        let mut rng = Seed(1).child("window", 0).rng();
        for base in [0, 1 << 40, u64::MAX - 30_000_000] {
            let mut window = Window::default();
            let mut received = BTreeSet::new();
            let mut newest = base;
            for _ in 0..100_000 {
                let iv = match rng.below(10) {
                    0 => newest + rng.below(300),
                    1 if rng.chance(1, 200) => newest + rng.below(100_000),
                    2 => newest.saturating_sub(rng.below(100_000)),
                    _ => newest.saturating_sub(rng.below(64)),
                };
                let known = window.has(iv);
                if received.contains(&iv) {
                    assert!(known, "{iv} of {newest} would be taken twice");
                } else if newest.saturating_sub(iv) < WIDTH || iv > newest {
                    assert!(!known, "{iv} of {newest} is refused");
                }
                if !known {
                    window.add(iv);
                    received.insert(iv);
                    newest = newest.max(iv);
                }
            }
            assert!(received.len() > 10_000);
        }
    }
}
