//! Descriptor chains (virtio 1.2, 2.7) of a guest that may be hostile: each index, address and
//! length is checked against the guest's memory before use, and a walk ends after [`MAX_DESCRIPTORS`]
//! descriptors and the one that names an indirect table.

use virtio_bindings::virtio_ring::{VRING_DESC_F_INDIRECT, VRING_DESC_F_NEXT, VRING_DESC_F_WRITE};

mod packed;
#[cfg(test)]
mod proofs;

pub use packed::{PackedChain, Position, walk_packed};

/// Maximum number of descriptors of a chain, without the one that names an indirect table. The longest useful chains have one for each page of a
/// frame of 64 KiB.
pub(super) const MAX_DESCRIPTORS: usize = 1_024;

/// Bytes of a descriptor.
const DESCRIPTOR: u64 = 16;

/// A piece of a buffer in guest memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Guest-physical address.
    pub address: u64,
    /// Bytes.
    pub len: u32,
    /// Bytes of the buffer before it.
    pub start: u32,
}

/// The direction of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The guest sends: all its descriptors are readable by the device.
    Sent,
    /// The guest receives: all are writable by the device.
    Received,
}

/// The errors of a chain. The guest's driver is faulty or hostile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChainError {
    /// The chain has more than 1,024 descriptors: probably a loop.
    #[error("a descriptor chain that loops, or of more than {MAX_DESCRIPTORS} descriptors")]
    Loop,
    /// A descriptor index is beyond the table.
    #[error("descriptor {index} of a table of {size}")]
    OutOfTable {
        /// The index.
        index: u32,
        /// Size of the table, descriptors.
        size: u32,
    },
    /// A descriptor names memory that the guest has not shared.
    #[error("{len} bytes at guest address {address:#x}, which is not memory of the guest's")]
    OutOfMemory {
        /// The address.
        address: u64,
        /// The length, bytes.
        len: u64,
    },
    /// A descriptor has no bytes.
    #[error("a descriptor of no bytes")]
    Empty,
    /// A descriptor is writable where the guest sends, or readable where it receives.
    #[error("a descriptor for writing in a frame to send, or for reading in one to receive")]
    Direction,
    /// An indirect table is nested, is followed by a descriptor, or has a partial descriptor.
    #[error("an indirect descriptor table that virtio does not allow")]
    Indirect,
    /// A descriptor of a packed ring has flags of the wrong lap of the ring (virtio 1.2, 2.8.1).
    #[error("a chain with a descriptor whose wrap counter is wrong")]
    Wrap,
    /// The chain has more than 4 GiB.
    #[error("a descriptor chain of more than 4 GiB")]
    TooLong,
}

/// Guest memory from which a chain is read.
pub trait Descriptors {
    /// Copies 16 bytes at a guest-physical address, if the guest has shared them.
    fn descriptor(&self, address: u64) -> Option<[u8; 16]>;
    /// Returns `true` if the guest has shared `len` bytes at the address.
    fn holds(&self, address: u64, len: u32) -> bool;
}

#[derive(Clone, Copy)]
struct Descriptor {
    address: u64,
    len: u32,
    flags: u32,
    next: u16,
}

impl Descriptor {
    fn read(memory: &impl Descriptors, table: u64, index: u16) -> Result<Self, ChainError> {
        let address = table.checked_add(u64::from(index) * DESCRIPTOR);
        let bytes = address.and_then(|address| memory.descriptor(address)).ok_or_else(|| {
            ChainError::OutOfMemory { address: address.unwrap_or(u64::MAX), len: DESCRIPTOR }
        })?;
        let [a, b, c, d, e, f, g, h, l0, l1, l2, l3, f0, f1, n0, n1] = bytes;
        Ok(Self {
            address: u64::from_le_bytes([a, b, c, d, e, f, g, h]),
            len: u32::from_le_bytes([l0, l1, l2, l3]),
            flags: u32::from(u16::from_le_bytes([f0, f1])),
            next: u16::from_le_bytes([n0, n1]),
        })
    }

    fn is(self, flag: u32) -> bool {
        self.flags & flag != 0
    }
}

/// Follows the chain that begins at `head` in the table of `size` descriptors at guest-physical
/// address `table`. Appends its pieces to `segments` and returns their bytes.
///
/// # Errors
/// Every violation of virtio; `segments` then may have further pieces, all in the guest's memory.
pub fn walk(
    memory: &impl Descriptors,
    table: u64,
    size: u16,
    head: u16,
    purpose: Purpose,
    segments: &mut Vec<Segment>,
) -> Result<u32, ChainError> {
    let (mut table, mut size, mut index) = (table, u32::from(size), head);
    let (mut total, mut indirect, mut pieces) = (0_u32, false, 0);
    while pieces < MAX_DESCRIPTORS {
        if u32::from(index) >= size {
            return Err(ChainError::OutOfTable { index: u32::from(index), size });
        }
        let descriptor = Descriptor::read(memory, table, index)?;
        if descriptor.is(VRING_DESC_F_INDIRECT) {
            if indirect || descriptor.is(VRING_DESC_F_NEXT) {
                return Err(ChainError::Indirect);
            }
            size = entries(descriptor.len)?;
            (table, index, indirect) = (descriptor.address, 0, true);
            continue;
        }
        segments.push(segment(memory, descriptor, purpose, total)?);
        pieces += 1;
        total = total.checked_add(descriptor.len).ok_or(ChainError::TooLong)?;
        if !descriptor.is(VRING_DESC_F_NEXT) {
            return Ok(total);
        }
        index = descriptor.next;
    }
    Err(ChainError::Loop)
}

/// Returns the number of descriptors of an indirect table of `len` bytes.
fn entries(len: u32) -> Result<u32, ChainError> {
    let descriptor = u32::try_from(DESCRIPTOR).expect("sixteen");
    match len / descriptor {
        count @ 1..=65_536 if len.is_multiple_of(descriptor) => Ok(count),
        _ => Err(ChainError::Indirect),
    }
}

fn segment(
    memory: &impl Descriptors,
    descriptor: Descriptor,
    purpose: Purpose,
    start: u32,
) -> Result<Segment, ChainError> {
    let Descriptor { address, len, .. } = descriptor;
    if len == 0 {
        return Err(ChainError::Empty);
    }
    if descriptor.is(VRING_DESC_F_WRITE) != (purpose == Purpose::Received) {
        return Err(ChainError::Direction);
    }
    if !memory.holds(address, len) {
        return Err(ChainError::OutOfMemory { address, len: u64::from(len) });
    }
    Ok(Segment { address, len, start })
}

/// Calls `action` with each piece of `segments` that has bytes of `offset..offset + len`: its
/// guest-physical address, and the range of those bytes.
pub(super) fn for_each_piece<E>(
    segments: &[Segment],
    offset: u32,
    len: usize,
    mut action: impl FnMut(u64, std::ops::Range<usize>) -> Result<(), E>,
) -> Result<(), E> {
    let first = segments.partition_point(|segment| {
        u64::from(segment.start) + u64::from(segment.len) <= u64::from(offset)
    });
    let mut done = 0;
    for segment in &segments[first..] {
        if done == len {
            break;
        }
        let skip = (offset as usize + done) - segment.start as usize;
        let count = (segment.len as usize - skip).min(len - done);
        action(segment.address + skip as u64, done..done + count)?;
        done += count;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 64 KiB of guest memory at address 0x1000.
    struct Guest(Vec<u8>);

    const BASE: u64 = 0x1000;
    const NEXT: u16 = 1;
    const WRITE: u16 = 2;
    const INDIRECT: u16 = 4;

    impl Descriptors for Guest {
        fn descriptor(&self, address: u64) -> Option<[u8; 16]> {
            let at = usize::try_from(address.checked_sub(BASE)?).ok()?;
            self.0.get(at..at.checked_add(16)?)?.try_into().ok()
        }
        fn holds(&self, address: u64, len: u32) -> bool {
            let end = address.checked_add(u64::from(len));
            address >= BASE && end.is_some_and(|end| end <= BASE + self.0.len() as u64)
        }
    }

    impl Guest {
        fn new() -> Self {
            Self(vec![0; 1 << 16])
        }
        fn put(&mut self, table: u64, index: u16, fields: (u64, u32, u16, u16)) {
            let at = usize::try_from(table - BASE).unwrap() + usize::from(index) * 16;
            let (address, len, flags, next) = fields;
            let bytes = &mut self.0[at..at + 16];
            bytes[..8].copy_from_slice(&address.to_le_bytes());
            bytes[8..12].copy_from_slice(&len.to_le_bytes());
            bytes[12..14].copy_from_slice(&flags.to_le_bytes());
            bytes[14..].copy_from_slice(&next.to_le_bytes());
        }
        fn walk(&self, head: u16, purpose: Purpose) -> Result<(u32, Vec<Segment>), ChainError> {
            let mut segments = vec![];
            let total = walk(self, BASE, 8, head, purpose, &mut segments)?;
            Ok((total, segments))
        }
    }

    #[test]
    fn a_chain_is_its_pieces_in_order_direct_or_not() {
        let mut guest = Guest::new();
        guest.put(BASE, 3, (0x2000, 100, NEXT, 5));
        guest.put(BASE, 5, (0x3000, 50, 0, 0));
        let pieces = vec![
            Segment { address: 0x2000, len: 100, start: 0 },
            Segment { address: 0x3000, len: 50, start: 100 },
        ];
        assert_eq!(guest.walk(3, Purpose::Sent), Ok((150, pieces.clone())));
        guest.put(BASE, 0, (0x5000, 32, INDIRECT, 0));
        guest.put(0x5000, 0, (0x2000, 100, NEXT, 1));
        guest.put(0x5000, 1, (0x3000, 50, 0, 0));
        assert_eq!(guest.walk(0, Purpose::Sent), Ok((150, pieces)));
    }

    #[test]
    fn each_violation_of_virtio_has_its_own_error() {
        let refused = |fields: &[(u64, u32, u16, u16)], purpose| {
            let mut guest = Guest::new();
            for (index, &fields) in fields.iter().enumerate() {
                guest.put(BASE, u16::try_from(index).unwrap(), fields);
            }
            guest.walk(0, purpose).unwrap_err()
        };
        let sent = Purpose::Sent;
        assert_eq!(refused(&[(0x2000, 1, NEXT, 0)], sent), ChainError::Loop);
        assert_eq!(refused(&[(0x2000, 1, NEXT, 1), (0x2000, 1, NEXT, 0)], sent), ChainError::Loop);
        let outside = ChainError::OutOfTable { index: 8, size: 8 };
        assert_eq!(refused(&[(0x2000, 1, NEXT, 8)], sent), outside);
        assert_eq!(refused(&[(0x2000, 0, 0, 0)], sent), ChainError::Empty);
        assert_eq!(refused(&[(0x2000, 9, WRITE, 0)], sent), ChainError::Direction);
        assert_eq!(refused(&[(0x2000, 9, 0, 0)], Purpose::Received), ChainError::Direction);
        for (address, len) in [(0, 1), (u64::MAX, 2), (0x10_fff, 2), (0x1000, u32::MAX)] {
            let error = ChainError::OutOfMemory { address, len: u64::from(len) };
            assert_eq!(refused(&[(address, len, 0, 0)], sent), error);
        }
        for table in [
            (0x2000, 0, INDIRECT, 0),
            (0x2000, 17, INDIRECT, 0),
            (0x2000, 32, INDIRECT | NEXT, 1),
            (0x2000, 16 * 65_537, INDIRECT, 0),
            // A table that is its own descriptor.
            (BASE, 16, INDIRECT, 0),
        ] {
            assert_eq!(refused(&[table], sent), ChainError::Indirect);
        }
        // A descriptor outside the guest's memory.
        assert!(matches!(
            refused(&[(0x20_0000, 16, INDIRECT, 0)], sent),
            ChainError::OutOfMemory { .. }
        ));
    }

    #[test]
    fn a_chain_has_1024_descriptors_at_most_direct_or_not() {
        let mut guest = Guest::new();
        for (table, head) in [(BASE, 0), (0x8000, 1_100)] {
            for count in [MAX_DESCRIPTORS, MAX_DESCRIPTORS + 1] {
                for index in 0..u16::try_from(count).unwrap() {
                    let flags = if usize::from(index) + 1 < count { NEXT } else { 0 };
                    guest.put(table, index, (0x2000, 1, flags, index + 1));
                }
                let bytes = u32::try_from(16 * count).unwrap();
                guest.put(BASE, 1_100, (0x8000, bytes, INDIRECT, 0));
                let mut segments = vec![];
                let walked = walk(&guest, BASE, 2_048, head, Purpose::Sent, &mut segments);
                let expected = if count == 1_024 { Ok(1_024) } else { Err(ChainError::Loop) };
                assert_eq!(walked, expected, "{count} descriptors from {head}");
            }
        }
    }

    #[test]
    fn a_piece_of_any_place_and_length_finds_its_segments() {
        let segments = [(0x2000, 10, 0), (0x3000, 5, 10), (0x4000, 20, 15)]
            .map(|(address, len, start)| Segment { address, len, start });
        for offset in 0..35 {
            for len in 0..=35 - offset {
                let mut seen = vec![];
                for_each_piece(&segments, offset, len as usize, |address, range| {
                    assert_eq!(range.start, seen.len());
                    seen.extend((0..range.len() as u64).map(|at| address + at));
                    Ok::<(), ()>(())
                })
                .unwrap();
                let expected: Vec<u64> = (offset..offset + len)
                    .map(|at| {
                        let segment = segments.iter().rfind(|one| one.start <= at).unwrap();
                        segment.address + u64::from(at - segment.start)
                    })
                    .collect();
                assert_eq!(seen, expected);
            }
        }
    }
}
