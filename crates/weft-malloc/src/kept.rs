//! Freed blocks whose pages are kept, because the next block often has the same length: touching a kept page takes a
//! twentieth of the time that the kernel takes to provide a new one.

use std::collections::VecDeque;

/// Maximum length of all kept blocks, bytes.
const MAX_KEPT: usize = 64 << 20;
/// Maximum length of a kept block, bytes.
const MAX_BLOCK: usize = MAX_KEPT / 4;

/// Kept blocks, oldest first: start and length in bytes.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    blocks: VecDeque<(usize, usize)>,
    bytes: usize,
}

impl Kept {
    /// Returns the length of all kept blocks, bytes.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Keeps a block; returns `false` if it is too long.
    pub(crate) fn keep(&mut self, start: usize, len: usize) -> bool {
        let is_short = len <= MAX_BLOCK;
        if is_short {
            self.blocks.push_back((start, len));
            self.bytes += len;
        }
        is_short
    }

    /// Removes the latest aligned block of `len` bytes, or up to a quarter more.
    pub(crate) fn take(&mut self, len: usize, align: usize) -> Option<(usize, usize)> {
        let fits = |&(start, kept): &(usize, usize)| {
            start.is_multiple_of(align) && kept >= len && kept - len <= len / 4
        };
        let index = self.blocks.iter().rposition(fits)?;
        self.remove(index)
    }

    /// Removes the oldest block while there are too many bytes.
    pub(crate) fn excess(&mut self) -> Option<(usize, usize)> {
        if self.bytes > MAX_KEPT { self.remove(0) } else { None }
    }

    /// Removes the oldest block.
    pub(crate) fn pop(&mut self) -> Option<(usize, usize)> {
        self.remove(0)
    }

    fn remove(&mut self, index: usize) -> Option<(usize, usize)> {
        let block = self.blocks.remove(index)?;
        self.bytes -= block.1;
        Some(block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_block_of_about_that_length_is_used_again() {
        let mut kept = Kept::default();
        for (start, len) in [(0x10_0000, 0x1_0000), (0x20_0000, 0x1_1000), (0x30_1000, 0x8_0000)] {
            assert!(kept.keep(start, len));
        }
        assert_eq!(kept.take(0x7_0000, 0x2000), None, "it is not aligned");
        assert_eq!(kept.take(0x1_0000, 0x1000), Some((0x20_0000, 0x1_1000)));
        assert_eq!(kept.take(0x1_0000, 0x1000), Some((0x10_0000, 0x1_0000)));
        assert_eq!(kept.take(0x1_0000, 0x1000), None, "0x80000 is too long for it");
        assert_eq!(kept.bytes(), 0x8_0000);
    }

    #[test]
    fn the_oldest_blocks_leave_first() {
        let mut kept = Kept::default();
        assert!(!kept.keep(0, MAX_BLOCK + 1));
        (1..=5).for_each(|start| assert!(kept.keep(start, MAX_BLOCK)));
        assert_eq!(kept.excess(), Some((1, MAX_BLOCK)));
        assert_eq!(kept.excess(), None);
    }
}
