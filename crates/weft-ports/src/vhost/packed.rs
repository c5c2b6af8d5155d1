//! A packed virtqueue (virtio 1.2, 2.8): one ring of descriptors that driver and device both write.
//!
//! Used buffers overwrite descriptors of the ring, also those of buffers that were taken and are still in use, so the
//! pieces of each taken buffer are kept here. `virtio_queue` has no packed ring.

use std::sync::atomic::{Ordering, fence};

use virtio_bindings::virtio_ring::{
    VRING_DESC_F_WRITE, VRING_PACKED_EVENT_FLAG_DESC, VRING_PACKED_EVENT_FLAG_DISABLE,
    VRING_PACKED_EVENT_FLAG_ENABLE,
};

use super::chain::{ChainError, Descriptors, Position, Purpose, Segment, walk_packed};
use super::memory::Memory;
use super::virtqueue::{MAX_SIZE, RingError, Virtqueue};

/// Bytes of a descriptor, and the offsets of its fields.
const DESCRIPTOR: u64 = 16;
const LEN: u64 = 8;
const FLAGS: u64 = 14;

/// Bytes of an event suppression structure (2.8.10): a position, then flags at this offset.
const EVENT: u32 = 4;
const EVENT_FLAGS: u64 = 2;

/// The bits of the flags of an event suppression structure; others are reserved.
const EVENT_MASK: u16 = 3;

/// Maximum capacity of a list of pieces that is kept for reuse, and maximum number of such lists: a guest can offer a
/// chain of 1,024 pieces for each identifier of its ring.
const MAX_KEPT_PIECES: usize = 64;
const MAX_KEPT_LISTS: usize = 512;

/// The reserved bits of a ring that a process of Weft has left.
const LEFT: u16 = 0x5700;

/// A packed virtqueue.
#[derive(Debug)]
pub(super) struct Packed {
    size: u16,
    /// The guest-physical addresses of the descriptors, of the driver's and of the device's event suppression.
    ring: u64,
    driver: u64,
    device: u64,
    event_idx: bool,
    purpose: Purpose,
    /// The position of the next available descriptor.
    next: Position,
    /// The position of the next used descriptor.
    used: Position,
    /// The index of `used` at the last check of the guest's interrupt setting.
    checked: u16,
    /// The taken buffers by their identifiers.
    taken: Vec<Taken>,
    /// Number of descriptors of all taken buffers.
    lent: u16,
    /// The buffers returned and not yet published.
    returned: Vec<Returned>,
    kicks_suppressed: bool,
    /// A list for the pieces of the next buffer.
    spare: Vec<Segment>,
    /// Lists for reuse.
    lists: Vec<Vec<Segment>>,
}

/// A buffer that was taken.
#[derive(Clone, Debug, Default)]
struct Taken {
    pieces: Vec<Segment>,
    len: u32,
    /// Number of its descriptors; zero if it was returned.
    descriptors: u16,
}

/// A buffer that was returned.
#[derive(Clone, Copy, Debug)]
struct Returned {
    at: Position,
    id: u16,
    len: u32,
}

impl Packed {
    pub(super) fn new(purpose: Purpose) -> Self {
        Self {
            size: 0,
            ring: 0,
            driver: 0,
            device: 0,
            event_idx: false,
            purpose,
            next: Position::START,
            used: Position::START,
            checked: 0,
            taken: vec![],
            lent: 0,
            returned: vec![],
            kicks_suppressed: false,
            spare: vec![],
            lists: vec![],
        }
    }

    /// Returns the address of a descriptor.
    fn descriptor(&self, at: Position) -> u64 {
        self.ring + DESCRIPTOR * u64::from(at.index)
    }

    fn is_available(&self, memory: &Memory) -> bool {
        let flags = memory.load(self.descriptor(self.next) + FLAGS, Ordering::Acquire);
        flags.is_ok_and(|flags| self.next.is_available(flags))
    }

    /// Goes on at a position, with no buffer taken or returned before it.
    fn move_to(&mut self, position: Position) {
        (self.next, self.used) = (position, position);
        self.returned.clear();
    }

    /// Returns the position at which an earlier process [left](Virtqueue::leave) the ring.
    fn left_at(&self, memory: &Memory) -> Option<Position> {
        let flags = memory.load(self.device + EVENT_FLAGS, Ordering::Acquire).ok()?;
        let bits = memory.load(self.device, Ordering::Acquire).ok()?;
        let position = Position::from_bits(bits);
        (flags & !EVENT_MASK == LEFT && position.index < self.size).then_some(position)
    }

    /// Writes the device's event suppression.
    fn set_events(&self, memory: &Memory, flags: u32) -> bool {
        let flags = u16::try_from(flags).expect("16 bits");
        memory.store(self.device + EVENT_FLAGS, flags, Ordering::Release).is_ok()
    }
}

impl Virtqueue for Packed {
    fn size(&self) -> usize {
        self.size.into()
    }

    fn set_size(&mut self, size: u32) -> Option<()> {
        self.size = u16::try_from(size).ok().filter(|size| (1..=MAX_SIZE).contains(size))?;
        Some(())
    }

    /// The lower half is the position of the next available descriptor, the upper half that of the next used one, which
    /// is the same: a ring is left with all buffers returned. DPDK's driver sets the lower half only.
    fn set_base(&mut self, base: u32) -> Option<()> {
        let next = Position::from_bits(u16::try_from(base & 0xffff).expect("16 bits"));
        self.move_to(next);
        Some(())
    }

    fn base(&self) -> u32 {
        u32::from(self.next.bits()) | u32::from(self.used.bits()) << 16
    }

    fn locate(&mut self, memory: &Memory, [ring, driver, device]: [u64; 3]) -> Option<()> {
        (self.ring, self.driver, self.device) = (ring, driver, device);
        let aligned = ring % DESCRIPTOR == 0 && [driver, device].iter().all(|at| at % 4 == 0);
        let bytes = u32::from(self.size) * 16;
        let is_valid = bytes > 0
            && aligned
            && memory.holds(ring, bytes)
            && memory.holds(driver, EVENT)
            && memory.holds(device, EVENT)
            && self.next.index < self.size
            && self.used.index < self.size;
        is_valid.then_some(())
    }

    fn start(&mut self, memory: &Memory, event_idx: bool) {
        self.event_idx = event_idx;
        if let Some(position) = self.left_at(memory) {
            self.move_to(position);
        }
        // Buffers that were returned while the ring's memory was gone are published with the next ones: the driver waits
        // for the first of them.
        self.returned.retain(|one| one.at.index < self.size);
        self.checked = self.returned.first().map_or(self.used, |first| first.at).index;
        self.taken = vec![Taken::default(); self.size.into()];
        self.lent = 0;
        self.kicks_suppressed = false;
    }

    #[inline]
    fn next_head(&mut self, memory: &Memory) -> Result<Option<u16>, RingError> {
        if !self.is_available(memory) {
            return Ok(None);
        }
        self.spare.clear();
        let chain =
            walk_packed(memory, self.ring, self.size, self.next, self.purpose, &mut self.spare)?;
        let (id, size) = (chain.id, self.size);
        let taken =
            self.taken.get_mut(usize::from(id)).ok_or(RingError::Head { head: id, size })?;
        if taken.descriptors > 0 {
            return Err(RingError::Twice { head: id });
        }
        if chain.descriptors > size - self.lent {
            return Err(RingError::Overrun);
        }
        let list = self.lists.pop().unwrap_or_default();
        taken.pieces = std::mem::replace(&mut self.spare, list);
        (taken.len, taken.descriptors) = (chain.len, chain.descriptors);
        self.lent += chain.descriptors;
        self.next = self.next.after(chain.descriptors, size);
        Ok(Some(id))
    }

    #[inline]
    fn walk(
        &self,
        _memory: &Memory,
        head: u16,
        segments: &mut Vec<Segment>,
    ) -> Result<u32, ChainError> {
        let taken = &self.taken[usize::from(head)];
        segments.extend_from_slice(&taken.pieces);
        Ok(taken.len)
    }

    #[inline]
    fn push_used(&mut self, _memory: &Memory, head: u16, len: u32) {
        let Some(taken) = self.taken.get_mut(usize::from(head)) else { return };
        let descriptors = std::mem::take(&mut taken.descriptors);
        if descriptors == 0 {
            return;
        }
        let pieces = std::mem::take(&mut taken.pieces);
        if pieces.capacity() <= MAX_KEPT_PIECES && self.lists.len() < MAX_KEPT_LISTS {
            self.lists.push(pieces);
        }
        self.returned.push(Returned { at: self.used, id: head, len });
        // The buffer's descriptors after the first are skipped.
        self.used = self.used.after(descriptors, self.size);
        self.lent -= descriptors;
    }

    #[inline]
    fn publish(&mut self, memory: &Memory) -> bool {
        let Some(&first) = self.returned.first() else { return false };
        let flags = |one: &Returned| {
            let write = if one.len > 0 { VRING_DESC_F_WRITE } else { 0 };
            one.at.used_flags() | u16::try_from(write).expect("a flag")
        };
        for one in &self.returned {
            let [a, b, c, d] = one.len.to_le_bytes();
            let [e, f] = one.id.to_le_bytes();
            let address = self.descriptor(one.at);
            // The ring was checked to be within the guest's memory; if that has changed since, nothing is written.
            let _ = memory.write(address + LEN, &[a, b, c, d, e, f]);
            if one.at != first.at {
                let _ = memory.store(address + FLAGS, flags(one), Ordering::Release);
            }
        }
        // The guest reads used buffers in order, so it sees none before it sees the first.
        let _ = memory.store(self.descriptor(first.at) + FLAGS, flags(&first), Ordering::Release);
        self.returned.clear();
        // The guest must see the buffers before its interrupt setting is read (2.8.21.3.1).
        fence(Ordering::SeqCst);
        let last = std::mem::replace(&mut self.checked, self.used.index);
        let setting = memory.load(self.driver + EVENT_FLAGS, Ordering::Acquire).unwrap_or(0);
        match u32::from(setting & EVENT_MASK) {
            VRING_PACKED_EVENT_FLAG_DISABLE => false,
            VRING_PACKED_EVENT_FLAG_DESC if self.event_idx => {
                let event = memory.load(self.driver, Ordering::Relaxed).unwrap_or(0);
                is_passed(Position::from_bits(event), self.used, last, self.size)
            }
            _ => true,
        }
    }

    fn enable_kicks(&mut self, memory: &Memory) -> bool {
        self.kicks_suppressed = false;
        let _ = memory.store(self.device, self.next.bits(), Ordering::Relaxed);
        self.set_events(
            memory,
            match self.event_idx {
                true => VRING_PACKED_EVENT_FLAG_DESC,
                false => VRING_PACKED_EVENT_FLAG_ENABLE,
            },
        );
        // The guest must see the request before the ring is read once more.
        fence(Ordering::SeqCst);
        self.is_available(memory)
    }

    #[inline]
    fn suppress_kicks(&mut self, memory: &Memory) {
        if !self.kicks_suppressed {
            self.kicks_suppressed = self.set_events(memory, VRING_PACKED_EVENT_FLAG_DISABLE);
        }
    }

    /// Writes the position for the next process: nothing else in the guest's memory has it, and a front end that lost
    /// this process does not know it. Drivers take flags with reserved bits as a request for kicks.
    fn leave(&mut self, memory: &Memory) {
        self.kicks_suppressed = false;
        if self.lent == 0 {
            let _ = memory.store(self.device, self.next.bits(), Ordering::Relaxed);
            self.set_events(memory, u32::from(LEFT));
        }
    }
}

/// Returns `true` if a used position has passed `event` since it was at the index `last`; it is at `used` now, at most
/// one lap later.
fn is_passed(event: Position, used: Position, last: u16, size: u16) -> bool {
    let size = i32::from(size);
    let (now, mut last, mut event_at) =
        (i32::from(used.index), i32::from(last), i32::from(event.index));
    if now <= last {
        last -= size;
    }
    if event.wrap != used.wrap {
        event_at -= size;
    }
    (last..now).contains(&event_at)
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use vhost::vhost_user::message::VhostUserMemoryRegion;
    use virtio_bindings::virtio_ring::{VRING_DESC_F_INDIRECT, VRING_PACKED_DESC_F_AVAIL};

    use super::*;

    /// A ring of 64 descriptors at the start of its memory.
    fn ring() -> (Packed, Memory) {
        let file = File::from(memfd_create("ring", MemfdFlags::CLOEXEC).unwrap());
        ftruncate(&file, 1 << 20).unwrap();
        let region = VhostUserMemoryRegion::new(0, 1 << 20, 0x7000_0000, 0);
        let memory = Memory::map(vec![(region, file)], 1).unwrap();
        let mut ring = Packed::new(Purpose::Sent);
        ring.set_size(64).unwrap();
        ring.locate(&memory, [0, 2_048, 2_052]).unwrap();
        ring.start(&memory, false);
        (ring, memory)
    }

    /// Makes a buffer available in the first lap: one descriptor at the index of its identifier.
    fn offer(memory: &Memory, id: u16, (address, len, flags): (u64, u32, u32)) {
        let at = DESCRIPTOR * u64::from(id);
        memory.write(at, &address.to_le_bytes()).unwrap();
        memory.write(at + LEN, &len.to_le_bytes()).unwrap();
        memory.write(at + LEN + 4, &id.to_le_bytes()).unwrap();
        let flags = u16::try_from(flags | 1 << VRING_PACKED_DESC_F_AVAIL).unwrap();
        memory.store(at + FLAGS, flags, Ordering::Release).unwrap();
    }

    #[test]
    fn long_chains_leave_no_long_lists() {
        const PIECES: u32 = 1_024;
        let (mut ring, memory) = ring();
        for piece in 0..u64::from(PIECES) {
            memory.write(65_536 + DESCRIPTOR * piece, &4_096_u64.to_le_bytes()).unwrap();
            memory.write(65_536 + DESCRIPTOR * piece + LEN, &1_u32.to_le_bytes()).unwrap();
        }
        for id in 0..64 {
            offer(&memory, id, (65_536, 16 * PIECES, VRING_DESC_F_INDIRECT));
            assert_eq!(ring.next_head(&memory), Ok(Some(id)));
            let mut pieces = vec![];
            assert_eq!(ring.walk(&memory, id, &mut pieces), Ok(PIECES));
        }
        (0..64).for_each(|id| ring.push_used(&memory, id, 0));
        let lists = ring.taken.iter().map(|taken| &taken.pieces).chain(&ring.lists);
        let kept: usize = lists.map(Vec::capacity).sum();
        assert!(kept <= 64 * MAX_KEPT_PIECES, "{kept} pieces");
    }

    /// Compares with a count of all descriptors ever used.
    #[test]
    fn an_interrupt_is_due_when_the_event_is_among_the_descriptors_used_since() {
        const SIZE: u16 = 5;
        let at = |count: u32| {
            let index = u16::try_from(count % u32::from(SIZE)).unwrap();
            Position { index, wrap: (count / u32::from(SIZE)).is_multiple_of(2) }
        };
        for last in 0..20_u32 {
            for used in last + 1..=last + u32::from(SIZE) {
                // Events that a driver requests lie in the lap before the used position, or in the one after.
                for event in used.saturating_sub(u32::from(SIZE))..used + u32::from(SIZE) {
                    // Positions repeat after two laps; the device assumes the nearest before `used`.
                    let same_lap = event / u32::from(SIZE) <= used / u32::from(SIZE);
                    if !same_lap {
                        continue;
                    }
                    let passed = is_passed(at(event), at(used), at(last).index, SIZE);
                    assert_eq!(passed, (last..used).contains(&event), "{last} {used} {event}");
                }
            }
        }
    }
}
