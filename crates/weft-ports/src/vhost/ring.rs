//! One split virtqueue (virtio 1.2, 2.7): the buffers that the guest makes available, and those returned as used.
//!
//! `virtio_queue` handles the ring's addresses, the available index and the suppression of kicks. This module writes
//! used buffers, because the guest must see them together: a frame that fills several buffers must not appear in
//! parts (5.1.6.4), and no interrupt is sent before [`Ring::publish`].

use std::os::fd::OwnedFd;
use std::sync::atomic::{Ordering, fence};

use virtio_bindings::virtio_ring::VRING_AVAIL_F_NO_INTERRUPT;
use virtio_queue::{Queue, QueueT};

use super::chain::{ChainError, Purpose, Segment, walk};
use super::fault::FrontEndFault;
use super::memory::{Memory, Missing};

/// Maximum number of descriptors of a ring (QEMU's `VIRTQUEUE_MAX_SIZE` is 1,024, the paper's rings have 4,096).
pub(super) const MAX_SIZE: u16 = 32_768;

/// The errors that stop a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RingError {
    /// A chain that virtio forbids.
    #[error(transparent)]
    Chain(#[from] ChainError),
    /// The guest's available index is further ahead than the ring is long.
    #[error("the ring offers more buffers than it has")]
    Overrun,
    /// A chain that begins outside the table.
    #[error("a chain that begins at descriptor {head} of a table of {size}")]
    Head {
        /// The index.
        head: u16,
        /// The size.
        size: u16,
    },
    /// A buffer is made available that was not returned yet.
    #[error("descriptor {head} is offered twice")]
    Twice {
        /// The chain's first descriptor.
        head: u16,
    },
    /// A receive buffer has no room for a virtio header.
    #[error("a buffer of {len} bytes to receive into")]
    Short {
        /// The buffer's bytes.
        len: u32,
    },
    /// The ring is outside the guest's memory.
    #[error("the ring is not in the guest's memory")]
    Missing,
}

impl From<Missing> for RingError {
    fn from(_: Missing) -> Self {
        Self::Missing
    }
}

/// A virtqueue, and the descriptors by which guest and device wake each other.
#[derive(Debug)]
pub(super) struct Ring {
    queue: Queue,
    /// The front end's addresses of the table, the available ring and the used ring.
    places: Option<[u64; 3]>,
    pub(super) kick: Option<OwnedFd>,
    pub(super) call: Option<OwnedFd>,
    pub(super) error: Option<OwnedFd>,
    /// `true` if the front end has enabled the ring.
    pub(super) enabled: bool,
    /// `true` if a kick has started the ring and nothing has stopped it since.
    pub(super) started: bool,
    /// `true` if the ring is valid, so that buffers may be taken and returned.
    running: bool,
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

impl Ring {
    pub(super) fn new(purpose: Purpose) -> Self {
        Self {
            queue: Queue::new(MAX_SIZE).expect("a power of two"),
            places: None,
            kick: None,
            call: None,
            error: None,
            enabled: false,
            started: false,
            running: false,
            published: 0,
            checked_used: 0,
            lent: vec![],
            kicks_suppressed: false,
            purpose,
        }
    }

    pub(super) fn is_running(&self) -> bool {
        self.running
    }

    /// Returns the number of descriptors.
    pub(super) fn size(&self) -> usize {
        usize::from(self.queue.size())
    }

    pub(super) fn set_size(&mut self, size: u32) -> Result<(), FrontEndFault> {
        let fits = u16::try_from(size).ok().filter(|&size| self.queue.try_set_size(size).is_ok());
        fits.map(|_| ()).ok_or(FrontEndFault::RingSize(size))
    }

    pub(super) fn set_places(&mut self, table: u64, offered: u64, used: u64) {
        self.places = Some([table, offered, used]);
    }

    /// Sets the next available index: earlier buffers were taken already.
    pub(super) fn set_base(&mut self, base: u16) {
        self.queue.set_next_avail(base);
        self.queue.set_next_used(base);
    }

    pub(super) fn base(&self) -> u16 {
        self.queue.next_avail()
    }

    /// Updates whether the ring can run, after any change.
    pub(super) fn update(&mut self, memory: &Memory, event_idx: bool) {
        let was = self.running;
        self.running = self.started && self.enabled && self.locate(memory).is_some();
        if !self.running || was {
            return;
        }
        self.queue.set_event_idx(event_idx);
        self.lent = vec![0; usize::from(self.queue.size()).div_ceil(64)];
        // A ring that was used before continues at its used index, which may differ from its available
        // index.
        let used =
            self.queue.used_idx(memory.guest(), Ordering::Acquire).map_or(0, |index| index.0);
        self.queue.set_next_used(used);
        (self.published, self.checked_used, self.kicks_suppressed) = (used, used, false);
    }

    /// Translates the ring's addresses, and checks that they are in the guest's memory.
    fn locate(&mut self, memory: &Memory) -> Option<()> {
        let [table, offered, used] = self.places?.map(|place| memory.guest_address(place));
        self.queue.try_set_desc_table_address(vm_memory::GuestAddress(table?)).ok()?;
        self.queue.try_set_avail_ring_address(vm_memory::GuestAddress(offered?)).ok()?;
        self.queue.try_set_used_ring_address(vm_memory::GuestAddress(used?)).ok()?;
        self.queue.set_ready(true);
        self.queue.is_valid(memory.guest()).then_some(())
    }

    /// Stops the ring: no more buffers are taken.
    pub(super) fn stop(&mut self) {
        self.running = false;
        self.started = false;
    }

    /// Returns the first descriptor of the next available chain.
    pub(super) fn next_head(&mut self, memory: &Memory) -> Result<Option<u16>, RingError> {
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

    /// Appends the pieces of a chain to `segments` and returns their total bytes.
    pub(super) fn walk(
        &self,
        memory: &Memory,
        head: u16,
        segments: &mut Vec<Segment>,
    ) -> Result<u32, ChainError> {
        walk(memory, self.queue.desc_table(), self.queue.size(), head, self.purpose, segments)
    }

    /// Returns a buffer, of which `len` bytes were written. The guest does not see it before
    /// [`publish`](Self::publish).
    pub(super) fn push_used(&mut self, memory: &Memory, head: u16, len: u32) {
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

    /// Publishes all returned buffers to the guest at once. Returns `true` if it requests an interrupt.
    pub(super) fn publish(&mut self, memory: &Memory) -> bool {
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

    /// Interrupts the guest.
    pub(super) fn interrupt(&self) -> bool {
        self.call.as_ref().is_some_and(|call| rustix::io::write(call, &1_u64.to_ne_bytes()).is_ok())
    }

    /// Notifies the front end that the ring is broken.
    pub(super) fn notify_error(&self) {
        if let Some(error) = &self.error {
            let _ = rustix::io::write(error, &1_u64.to_ne_bytes());
        }
    }

    /// Requests a kick for the next available buffer. Returns `true` if buffers became available meanwhile, for which
    /// no kick follows.
    pub(super) fn enable_kicks(&mut self, memory: &Memory) -> bool {
        self.kicks_suppressed = false;
        self.queue.enable_notification(memory.guest()).unwrap_or(false)
    }

    /// Suppresses kicks, for a ring that is polled.
    pub(super) fn suppress_kicks(&mut self, memory: &Memory) {
        if !self.kicks_suppressed {
            self.kicks_suppressed = self.queue.disable_notification(memory.guest()).is_ok();
        }
    }
}
