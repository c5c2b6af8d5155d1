//! The driver's side of a packed ring, for [`FrontEnd`]: it has chains as in a split ring's table and copies them to the
//! ring.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use vm_memory::{Bytes, GuestAddress};
use weft_ports::Position;

use super::front_end::{FrontEnd, INDIRECT, NEXT, Queue, WRITE};

/// The positions of a driver in its ring.
pub(crate) struct PackedDriver {
    /// The next descriptor to make available.
    pub(crate) next: Position,
    /// The next one that the device will use.
    used: Position,
    /// Number of descriptors of each chain in flight, by its identifier.
    descriptors: BTreeMap<u16, u16>,
    /// The position of each chain that was offered.
    offers: Vec<Position>,
}

impl Default for PackedDriver {
    fn default() -> Self {
        let start = Position::START;
        Self { next: start, used: start, descriptors: BTreeMap::new(), offers: vec![] }
    }
}

impl PackedDriver {
    /// Returns the addresses of descriptors, device events and driver events.
    pub(crate) fn places(&self, queue: &Queue) -> [u64; 3] {
        [queue.offered, queue.used + 64, queue.used]
    }

    /// Returns the position of a port that took everything so far, for `SET_VRING_BASE`.
    pub(crate) fn base(&self) -> u32 {
        u32::from(self.next.bits()) * 0x10001
    }

    pub(crate) fn untaken(&self, base: u32) -> usize {
        let next = Position::from_bits(u16::try_from(base & 0xffff).unwrap());
        let recent = self.offers.iter().rev().take_while(|&&at| at != next).count();
        if next == self.next { 0 } else { recent + 1 }
    }
}

impl FrontEnd {
    /// Writes a descriptor of a packed ring but its flags.
    pub(crate) fn describe_packed(&self, address: u64, (buffer, len, id): (u64, u32, u16)) {
        self.write(address, &buffer.to_le_bytes());
        self.write(address + 8, &len.to_le_bytes());
        self.write(address + 12, &id.to_le_bytes());
    }

    pub(crate) fn set_flags(&self, queue: usize, at: Position, flags: u16) {
        let address = self.queues[queue].offered + 16 * u64::from(at.index) + 14;
        self.memory.store(flags, GuestAddress(address), Ordering::Release).unwrap();
    }

    /// Returns the flags of an available descriptor.
    pub(crate) fn available(at: Position, flags: u16) -> u16 {
        flags | if at.wrap { 1 << 7 } else { 1 << 15 }
    }

    pub(super) fn offer_packed(&mut self, queue: usize, head: u16) {
        let Queue { size, table, offered, .. } = self.queues[queue];
        let first = self.queues[queue].packed.next;
        let (mut at, mut index, mut chain) = (first, head, vec![]);
        loop {
            let from = table + 16 * u64::from(index);
            let field = |offset: u64, len: usize| self.read(from + offset, len);
            let buffer = u64::from_le_bytes(field(0, 8).try_into().unwrap());
            let len = u32::from_le_bytes(field(8, 4).try_into().unwrap());
            let flags = u16::from_le_bytes(field(12, 2).try_into().unwrap());
            if flags & INDIRECT != 0 {
                self.convert_table(buffer, len);
            }
            self.describe_packed(offered + 16 * u64::from(at.index), (buffer, len, head));
            chain.push((at, Self::available(at, flags)));
            at = at.after(1, size);
            if flags & NEXT == 0 {
                break;
            }
            index = u16::from_le_bytes(field(14, 2).try_into().unwrap());
        }
        // The first descriptor becomes available last.
        chain.iter().rev().for_each(|&(at, flags)| self.set_flags(queue, at, flags));
        let driver = &mut self.queues[queue].packed;
        let count = u16::try_from(chain.len()).unwrap();
        assert!(driver.descriptors.insert(head, count).is_none(), "{head} is in flight");
        driver.offers.push(first);
        driver.next = at;
        let in_flight: u16 = driver.descriptors.values().sum();
        assert!(in_flight <= size, "the test offers more than the ring has");
    }

    /// Converts an indirect table from the format of split rings.
    fn convert_table(&self, table: u64, len: u32) {
        for entry in (table..table + u64::from(len)).step_by(16) {
            let flags = u16::from_le_bytes(self.read(entry + 12, 2).try_into().unwrap()) & WRITE;
            self.write(entry + 12, &[[0, 0], flags.to_le_bytes()].concat());
        }
    }

    pub(super) fn returned_packed(&mut self, queue: usize) -> Vec<(u16, u32)> {
        let mut returned = vec![];
        loop {
            let Queue { size, offered, ref packed, .. } = self.queues[queue];
            let at = packed.used;
            let address = offered + 16 * u64::from(at.index);
            let flags: u16 =
                self.memory.load(GuestAddress(address + 14), Ordering::Acquire).unwrap();
            let is_used = flags & Position { index: 0, wrap: true }.used_flags() == at.used_flags();
            if !is_used || packed.descriptors.is_empty() {
                return returned;
            }
            let len = u32::from_le_bytes(self.read(address + 8, 4).try_into().unwrap());
            let id = u16::from_le_bytes(self.read(address + 12, 2).try_into().unwrap());
            let driver = &mut self.queues[queue].packed;
            let count = driver.descriptors.remove(&id).expect("it was in flight");
            driver.used = at.after(count, size);
            returned.push((id, len));
        }
    }
}
