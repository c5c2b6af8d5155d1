//! Which packets were received, so that none is taken twice (RFC 6479: the bitmap is a ring of words,
//! and moves by clearing words).

/// Words of the ring. One of them is being filled or cleared, so that the window is one word less.
const WORDS: usize = 65;

/// Packets behind the newest that can be told from those received before: 4,096. Paths differ, and so
/// many packets may overtake another one.
#[cfg(test)]
pub(super) const WIDTH: u64 = 64 * (WORDS as u64 - 1);

/// The packets received under one key.
#[derive(Clone, Debug)]
pub(super) struct Window {
    words: [u64; WORDS],
    /// One more than the newest; zero before the first.
    end: u64,
}

impl Default for Window {
    fn default() -> Self {
        Self { words: [0; WORDS], end: 0 }
    }
}

const fn place(iv: u64) -> (usize, u64) {
    let word = (iv / 64 % WORDS as u64) as usize;
    (word, 1 << (iv % 64))
}

impl Window {
    /// Whether a packet was received, or is so old that this is not known.
    pub(super) const fn has(&self, iv: u64) -> bool {
        if iv >= self.end {
            return false;
        }
        let newest_word = (self.end - 1) / 64;
        if newest_word - iv / 64 >= WORDS as u64 - 1 {
            return true;
        }
        let (word, bit) = place(iv);
        self.words[word] & bit != 0
    }

    /// A packet was received that was not known.
    pub(super) fn add(&mut self, iv: u64) {
        debug_assert!(!self.has(iv), "taken once");
        if iv >= self.end {
            let first = if self.end == 0 { 0 } else { (self.end - 1) / 64 + 1 };
            let last = iv / 64;
            if self.end == 0 || last - first.min(last) >= WORDS as u64 {
                self.words.fill(0);
            } else {
                (first..=last).for_each(|word| self.words[place(64 * word).0] = 0);
            }
            self.end = iv.saturating_add(1);
        }
        let (word, bit) = place(iv);
        self.words[word] |= bit;
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
        window.add(10_000);
        assert!(window.has(10_000));
        // 4,096 packets at least, and whole words.
        assert!(!window.has(10_001 - WIDTH + 63) && window.has(10_000 - WIDTH - 64));
        window.add(10_000 - 4000);
        assert!(window.has(10_000 - 4000) && !window.has(10_000 - 3999));
        window.add(20_000);
        assert!(window.has(10_000) && window.has(15_000) && !window.has(16_000));
    }

    /// Against a set of all that was received.
    #[test]
    fn nothing_is_taken_twice_whatever_the_order() {
        let mut rng = Seed(1).child("window", 0).rng();
        for base in [0, 1 << 40, u64::MAX - 3_000_000] {
            let mut window = Window::default();
            let mut received = BTreeSet::new();
            let mut newest = base;
            for _ in 0..100_000 {
                let iv = match rng.below(10) {
                    0 => newest + rng.below(300),
                    1 if rng.chance(1, 200) => newest + rng.below(10_000),
                    2 => newest.saturating_sub(rng.below(10_000)),
                    _ => newest.saturating_sub(rng.below(64)),
                };
                let known = window.has(iv);
                if received.contains(&iv) {
                    assert!(known, "{iv} of {newest} would be taken twice");
                } else if newest.saturating_sub(iv) < WIDTH - 64 || iv > newest {
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
