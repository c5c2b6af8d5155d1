//! The mapping of a buffer's pages to pages of a guest's memory.

use std::collections::BTreeMap;

use weft_units::{ByteCount, Rng, Seed};

use super::Piece;

weft_units::registry! {
    /// The placement of a buffer's pages in the guest's memory.
    #[non_exhaustive]
    pub enum Layout: "layout" {
        Scattered => "scattered", "in no order, as pages that were handed out one at a time";
        InOrder => "in-order", "one behind the other";
    }
}

/// A guest's memory as allocated to buffers: one after another, each without gaps.
#[derive(Debug)]
pub(super) struct Pages {
    page: u64,
    layout: Layout,
    next_frame: u64,
    buffers: BTreeMap<u32, Vec<u64>>,
    rng: Rng,
}

impl Pages {
    pub(super) fn new(page: ByteCount, layout: Layout, seed: Seed) -> Self {
        let (next_frame, buffers) = (0, BTreeMap::new());
        Self { page: page.0, layout, next_frame, buffers, rng: seed.rng() }
    }

    /// Returns the frames of a piece. The first use of a page allocates it.
    pub(super) fn frames(&mut self, piece: Piece) -> impl Iterator<Item = u64> + '_ {
        let Piece { connection, length, offset, len } = piece;
        let page_of = |byte: u64| usize::try_from(byte / self.page).expect("a page of a message");
        let (first, end) = (u64::from(offset), u64::from(offset) + u64::from(len));
        let pages = page_of(first)..page_of(end.saturating_sub(1)) + 1;
        let needed = pages.end.max(page_of(u64::from(length.saturating_sub(1))) + 1);
        let buffer = self.buffers.entry(connection).or_default();
        if buffer.len() < needed {
            let had = buffer.len();
            buffer.extend((self.next_frame..).take(needed - had));
            self.next_frame += (needed - had) as u64;
            if self.layout == Layout::Scattered {
                self.rng.shuffle(&mut buffer[had..]);
            }
        }
        buffer[pages].iter().copied()
    }

    pub(super) fn remove_connection(&mut self, connection: u32) {
        self.buffers.remove(&connection);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(layout: Layout) -> Pages {
        Pages::new(ByteCount::kib(4), layout, Seed(1))
    }

    fn piece(connection: u32, offset: u32, len: u16) -> Piece {
        Piece { connection, length: 1 << 20, offset, len }
    }

    #[test]
    fn a_piece_is_in_every_page_it_touches_and_always_in_the_same() {
        let mut pages = pages(Layout::InOrder);
        let mut of = |piece| pages.frames(piece).collect::<Vec<_>>();
        assert_eq!(of(piece(7, 0, 4096)), [0]);
        assert_eq!(of(piece(7, 4095, 4096)), [0, 1]);
        assert_eq!(of(piece(7, 4095, 4098)), [0, 1, 2]);
        assert_eq!(of(piece(8, 0, 1)), [256], "another connection's buffer lies behind it");
        assert_eq!(of(piece(7, 0, 4096)), [0]);
    }

    #[test]
    fn scattered_pages_are_the_same_pages_in_no_order() {
        let mut pages = pages(Layout::Scattered);
        let of = |page: u32| piece(3, page * 4096, 4096);
        let frames: Vec<u64> =
            (0..256).flat_map(|page| pages.frames(of(page)).collect::<Vec<_>>()).collect();
        assert!(!frames.is_sorted());
        let mut sorted = frames.clone();
        sorted.sort_unstable();
        assert!(sorted.into_iter().eq(0..256));
        assert_eq!(pages.frames(of(9)).next(), Some(frames[9]));
    }
}
