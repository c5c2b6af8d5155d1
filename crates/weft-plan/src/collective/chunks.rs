//! The chunks of a message.

/// Chunks of a buffer in equal distances, which one message carries in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunks {
    first: usize,
    count: usize,
    stride: usize,
}

impl Chunks {
    /// Returns one chunk.
    pub const fn one(chunk: usize) -> Self {
        Self { first: chunk, count: 1, stride: 1 }
    }

    /// Returns these chunks, if there is one and if they are in ascending order in equal distances.
    pub fn of(chunks: &[usize]) -> Option<Self> {
        let first = *chunks.first()?;
        let stride = chunks.get(1).map_or(Some(1), |second| second.checked_sub(first))?;
        let this = Self { first, count: chunks.len(), stride };
        this.iter().eq(chunks.iter().copied()).then_some(this)
    }

    /// Returns the chunks.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..self.count).map(move |number| self.first + number * self.stride)
    }

    /// Returns the number of chunks.
    pub const fn count(self) -> usize {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn chunks_in_equal_distances_are_one_message() {
        for chunks in [&[7][..], &[2, 3, 4], &[1, 5, 9, 13]] {
            let of = Chunks::of(chunks).expect("equal distances");
            assert_eq!(
                (of.iter().collect::<Vec<_>>(), of.count()),
                (chunks.to_vec(), chunks.len())
            );
        }
        for chunks in [&[][..], &[2, 3, 5], &[5, 3, 1], &[4, 5, 4]] {
            assert_eq!(Chunks::of(chunks), None, "{chunks:?}");
        }
        assert_eq!(Chunks::of(&[3]), Some(Chunks::one(3)));
    }
}
