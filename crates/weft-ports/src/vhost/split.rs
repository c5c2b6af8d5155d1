//! A split virtqueue (virtio 1.2, 2.7).
//!
//! `virtio_queue` handles the ring's addresses, the available index and the suppression of kicks. This module writes
//! used buffers, because the guest must see them together, and no interrupt is sent before they are published.

use std::sync::atomic::{Ordering, fence};

use virtio_bindings::virtio_ring::VRING_AVAIL_F_NO_INTERRUPT;
use virtio_queue::{Queue, QueueT};
use vm_memory::GuestAddress;

use super::chain::{ChainError, Purpose, Segment, walk};
use super::memory::Memory;
use super::virtqueue::{MAX_SIZE, RingError, Virtqueue};

/// A split virtqueue.
#[derive(Debug)]
pub(super) struct Split {
    queue: Queue,
    /// The used index that the guest sees.
    published: u16,
    /// The used index at the last check of the guest's interrupt setting.
    checked_used: u16,
    /// A bit for each first descriptor of a chain that was taken and not returned.
    lent: Vec<u64>,
    /// `true` if kicks are suppressed.
    kicks_suppressed: bool,
    purpose: Purpose,
}

impl Split {
    pub(super) fn new(purpose: Purpose) -> Self {
        Self {
            queue: Queue::new(MAX_SIZE).expect("a power of two"),
            published: 0,
            checked_used: 0,
            lent: vec![],
            kicks_suppressed: false,
            purpose,
        }
    }

    /// Records that the request for kicks was written: at the beginning of the used ring, or at its end.
    fn log_kicks(&self, memory: &Memory) {
        let used = self.queue.used_ring();
        memory.log_write(used, 2);
        memory.log_write(used + 4 + 8 * u64::from(self.queue.size()), 2);
    }
}

impl Virtqueue for Split {
    fn size(&self) -> usize {
        usize::from(self.queue.size())
    }

    fn set_size(&mut self, size: u32) -> Option<()> {
        let size = u16::try_from(size).ok()?;
        self.queue.try_set_size(size).ok()
    }

    /// Sets the next available index.
    fn set_base(&mut self, base: u32) -> Option<()> {
        let base = u16::try_from(base).ok()?;
        self.queue.set_next_avail(base);
        self.queue.set_next_used(base);
        Some(())
    }

    fn base(&self) -> u32 {
        self.queue.next_avail().into()
    }

    fn locate(&mut self, memory: &Memory, [table, offered, used]: [u64; 3]) -> Option<()> {
        self.queue.try_set_desc_table_address(GuestAddress(table)).ok()?;
        self.queue.try_set_avail_ring_address(GuestAddress(offered)).ok()?;
        self.queue.try_set_used_ring_address(GuestAddress(used)).ok()?;
        self.queue.set_ready(true);
        self.queue.is_valid(memory.guest()).then_some(())
    }

    fn start(&mut self, memory: &Memory, event_idx: bool) {
        self.queue.set_event_idx(event_idx);
        self.lent = vec![0; usize::from(self.queue.size()).div_ceil(64)];
        // A ring that was used before continues at its used index, which may differ from its available
        // index.
        let used =
            self.queue.used_idx(memory.guest(), Ordering::Acquire).map_or(0, |index| index.0);
        self.queue.set_next_used(used);
        (self.published, self.checked_used, self.kicks_suppressed) = (used, used, false);
    }

    fn next_head(&mut self, memory: &Memory) -> Result<Option<u16>, RingError> {
        let (size, next) = (self.queue.size(), self.queue.next_avail());
        let end = memory.load(self.queue.avail_ring() + 2, Ordering::Acquire)?;
        match end.wrapping_sub(next) {
            0 => return Ok(None),
            ahead if ahead > size => return Err(RingError::Overrun),
            _ => {}
        }
        let entry = self.queue.avail_ring() + 4 + 2 * u64::from(next % size);
        let head = memory.load(entry, Ordering::Relaxed)?;
        if head >= size {
            return Err(RingError::Head { head, size });
        }
        let (word, bit) = (usize::from(head / 64), 1 << (head % 64));
        if self.lent[word] & bit != 0 {
            return Err(RingError::Twice { head });
        }
        self.lent[word] |= bit;
        self.queue.set_next_avail(next.wrapping_add(1));
        Ok(Some(head))
    }

    fn walk(
        &self,
        memory: &Memory,
        head: u16,
        segments: &mut Vec<Segment>,
    ) -> Result<u32, ChainError> {
        walk(memory, self.queue.desc_table(), self.queue.size(), head, self.purpose, segments)
    }

    fn push_used(&mut self, memory: &Memory, head: u16, len: u32) {
        let next = self.queue.next_used();
        let entry = self.queue.used_ring() + 4 + 8 * u64::from(next % self.queue.size());
        let mut element = [0; 8];
        element[..4].copy_from_slice(&u32::from(head).to_le_bytes());
        element[4..].copy_from_slice(&len.to_le_bytes());
        // The ring was checked to be within the guest's memory; if that has changed since, nothing is written.
        if memory.write(entry, &element).is_ok() {
            self.queue.set_next_used(next.wrapping_add(1));
        }
        if let Some(word) = self.lent.get_mut(usize::from(head / 64)) {
            *word &= !(1 << (head % 64));
        }
    }

    fn publish(&mut self, memory: &Memory) -> bool {
        let next = self.queue.next_used();
        if next == self.published {
            return false;
        }
        let index = self.queue.used_ring() + 2;
        if memory.store(index, next, Ordering::Release).is_err() {
            return false;
        }
        self.published = next;
        // The guest must see the index before its interrupt setting is read (2.7.7.2, 2.7.10).
        fence(Ordering::SeqCst);
        let last = std::mem::replace(&mut self.checked_used, next);
        if self.queue.event_idx_enabled() {
            let event = self.queue.avail_ring() + 4 + 2 * u64::from(self.queue.size());
            let event = memory.load(event, Ordering::Relaxed).unwrap_or(last);
            return next.wrapping_sub(event).wrapping_sub(1) < next.wrapping_sub(last);
        }
        let flags = memory.load(self.queue.avail_ring(), Ordering::Relaxed).unwrap_or(0);
        u32::from(flags) & VRING_AVAIL_F_NO_INTERRUPT == 0
    }

    fn enable_kicks(&mut self, memory: &Memory) -> bool {
        self.kicks_suppressed = false;
        let is_available = self.queue.enable_notification(memory.guest()).unwrap_or(false);
        self.log_kicks(memory);
        is_available
    }

    fn suppress_kicks(&mut self, memory: &Memory) {
        if !self.kicks_suppressed {
            self.kicks_suppressed = self.queue.disable_notification(memory.guest()).is_ok();
            self.log_kicks(memory);
        }
    }

    /// The used index is in the guest's memory.
    fn leave(&mut self, _memory: &Memory) {}
}
