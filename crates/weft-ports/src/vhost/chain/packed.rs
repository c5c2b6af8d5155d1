//! Chains of a packed ring (virtio 1.2, 2.8): consecutive descriptors of the ring, or one that names a table.

use virtio_bindings::virtio_ring::{
    VRING_DESC_F_INDIRECT, VRING_DESC_F_NEXT, VRING_PACKED_DESC_F_AVAIL, VRING_PACKED_DESC_F_USED,
};

use super::{
    ChainError, DESCRIPTOR, Descriptor, Descriptors, MAX_DESCRIPTORS, Purpose, Segment, entries,
    segment,
};

/// A position in a packed ring: the index of a descriptor, and the wrap counter, which changes with each lap (2.8.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The index.
    pub index: u16,
    /// The wrap counter, 1 in the first lap.
    pub wrap: bool,
}

impl Position {
    /// The position of a new ring.
    pub const START: Self = Self { index: 0, wrap: true };

    const WRAP: u16 = 1 << 15;

    /// Returns the position `count` descriptors later in a ring of `size` descriptors, `count` at most `size`.
    #[must_use]
    pub fn after(self, count: u16, size: u16) -> Self {
        let index = u32::from(self.index) + u32::from(count);
        let size = u32::from(size);
        let (index, wrap) =
            if index >= size { (index - size, !self.wrap) } else { (index, self.wrap) };
        Self { index: u16::try_from(index).expect("below the ring's size"), wrap }
    }

    /// Returns the position as the event suppression structure and vhost-user encode it: 15 bits of index, then the
    /// wrap counter.
    pub fn bits(self) -> u16 {
        self.index | u16::from(self.wrap) << 15
    }

    /// Returns the position of [`bits`](Self::bits).
    pub fn from_bits(bits: u16) -> Self {
        Self { index: bits & !Self::WRAP, wrap: bits & Self::WRAP != 0 }
    }

    /// Returns `true` if a descriptor here with these flags is available.
    pub fn is_available(self, flags: u16) -> bool {
        let has = |bit: u32| flags & 1 << bit != 0;
        has(VRING_PACKED_DESC_F_AVAIL) == self.wrap && has(VRING_PACKED_DESC_F_USED) != self.wrap
    }

    /// Returns the flags that mark a descriptor here as used.
    pub fn used_flags(self) -> u16 {
        let both = 1 << VRING_PACKED_DESC_F_AVAIL | 1 << VRING_PACKED_DESC_F_USED;
        if self.wrap { both } else { 0 }
    }
}

/// A chain of a packed ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackedChain {
    /// The identifier that the driver gave it.
    pub id: u16,
    /// Number of descriptors of the ring.
    pub descriptors: u16,
    /// Bytes of its pieces.
    pub len: u32,
}

/// Follows the chain that begins at position `at` in the ring of `size` descriptors at guest-physical address `ring`.
/// Appends its pieces to `segments`.
///
/// # Errors
/// Every violation of virtio; `segments` then may have further pieces, all in the guest's memory.
pub fn walk_packed(
    memory: &impl Descriptors,
    ring: u64,
    size: u16,
    at: Position,
    purpose: Purpose,
    segments: &mut Vec<Segment>,
) -> Result<PackedChain, ChainError> {
    let (mut len, mut here) = (0, at);
    let longest = usize::from(size).min(MAX_DESCRIPTORS);
    for descriptors in 1..=u16::try_from(longest).expect("at most 1,024") {
        if here.index >= size {
            return Err(ChainError::OutOfTable { index: here.index.into(), size: size.into() });
        }
        let descriptor = Descriptor::read(memory, ring, here.index)?.packed();
        // All descriptors of a chain are available before its first one is (2.8.6).
        if !here.is_available(descriptor.flags_and_marks()) {
            return Err(ChainError::Wrap);
        }
        let id = descriptor.next;
        if descriptor.is(VRING_DESC_F_INDIRECT) {
            if descriptors > 1 || descriptor.is(VRING_DESC_F_NEXT) {
                return Err(ChainError::Indirect);
            }
            let len = walk_table(memory, descriptor, purpose, segments)?;
            return Ok(PackedChain { id, descriptors, len });
        }
        segments.push(segment(memory, descriptor, purpose, len)?);
        len = len.checked_add(descriptor.len).ok_or(ChainError::TooLong)?;
        if !descriptor.is(VRING_DESC_F_NEXT) {
            return Ok(PackedChain { id, descriptors, len });
        }
        here = here.after(1, size);
    }
    Err(ChainError::Loop)
}

/// Appends the pieces of an indirect table, all of whose descriptors belong to the chain (2.8.7), and returns their
/// bytes.
fn walk_table(
    memory: &impl Descriptors,
    table: Descriptor,
    purpose: Purpose,
    segments: &mut Vec<Segment>,
) -> Result<u32, ChainError> {
    let count = entries(table.len)?;
    if count as usize > MAX_DESCRIPTORS {
        return Err(ChainError::Loop);
    }
    let mut len = 0_u32;
    for index in 0..u16::try_from(count).expect("at most 1,024") {
        let descriptor = Descriptor::read(memory, table.address, index)?.packed();
        if descriptor.is(VRING_DESC_F_INDIRECT) {
            return Err(ChainError::Indirect);
        }
        segments.push(segment(memory, descriptor, purpose, len)?);
        len = len.checked_add(descriptor.len).ok_or(ChainError::TooLong)?;
    }
    Ok(len)
}

const _: () = assert!(DESCRIPTOR == 16);

impl Descriptor {
    /// Returns a descriptor whose last two fields were read in the order of a split ring, with those of a packed one:
    /// `next` is its identifier.
    fn packed(self) -> Self {
        let flags = self.next;
        Self { next: u16::try_from(self.flags).expect("16 bits"), flags: flags.into(), ..self }
    }

    fn flags_and_marks(self) -> u16 {
        u16::try_from(self.flags).expect("16 bits")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_wrap_with_each_lap_and_parse_back() {
        let mut at = Position::START;
        let mut seen = vec![];
        for _ in 0..6 {
            seen.push((at.index, at.wrap));
            assert_eq!(Position::from_bits(at.bits()), at);
            at = at.after(2, 3);
        }
        let laps = [(0, true), (2, true), (1, false), (0, true), (2, true), (1, false)];
        assert_eq!(seen, laps);
        assert_eq!(Position::START.after(3, 3), Position { index: 0, wrap: false });
    }

    #[test]
    fn a_descriptor_is_available_in_its_own_lap_only() {
        let marks = |available: bool, used: bool| u16::from(available) << 7 | u16::from(used) << 15;
        for wrap in [false, true] {
            let at = Position { index: 0, wrap };
            assert!(at.is_available(marks(wrap, !wrap)));
            assert!(!at.is_available(marks(wrap, wrap)));
            assert!(!at.is_available(marks(!wrap, wrap)));
            assert!(!at.is_available(at.used_flags()));
            // A used descriptor of this lap is not available in the next one either.
            assert!(!Position { index: 0, wrap: !wrap }.is_available(at.used_flags()));
        }
    }
}
