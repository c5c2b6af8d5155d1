//! One split virtqueue (virtio 1.2, 2.7): which buffers the guest offers, and which it has back.
//!
//! Where the ring lies, how far it was read and when the guest kicks is `virtio_queue`'s. Used
//! buffers are written here, because they are shown to the guest together: a frame that fills several buffers
//! must not be seen in parts (5.1.6.4), and no interrupt comes before [`Ring::show`].

use std::os::fd::OwnedFd;
use std::sync::atomic::{Ordering, fence};

use virtio_bindings::virtio_ring::VRING_AVAIL_F_NO_INTERRUPT;
use virtio_queue::{Queue, QueueT};

use super::chain::{ChainError, Purpose, Segment, walk};
use super::memory::{Memory, Missing};

/// Descriptors of a ring, at most (QEMU's `VIRTQUEUE_MAX_SIZE` is 1,024, the paper's rings have 4,096).
pub(super) const LARGEST: u16 = 32_768;

/// The errors that stop a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RingError {
    /// A chain that virtio forbids.
    #[error(transparent)]
    Chain(#[from] ChainError),
    /// The guest's index of offered buffers runs further ahead than the ring is long.
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
    /// A buffer is offered that the guest has not got back.
    #[error("descriptor {head} is offered twice")]
    Twice {
        /// The chain's first.
        head: u16,
    },
    /// A buffer to receive into that has no room for a virtio header.
    #[error("a buffer of {len} bytes to receive into")]
    Short {
        /// Its bytes.
        len: u32,
    },
    /// The ring lies in memory that is not there.
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
    /// The front end lets it run.
    pub(super) enabled: bool,
    /// It was kicked into life and not stopped since.
    pub(super) started: bool,
    /// All is where it should be, so that buffers may be taken and given back.
    running: bool,
    /// Used index as the guest knows it.
    shown: u16,
    /// Used index after which the guest was last asked about interrupts.
    asked: u16,
    /// The chains that the guest has made available, by their first descriptor.
    lent: Vec<u64>,
    /// Kicks are not wanted.
    quiet: bool,
    purpose: Purpose,
}

impl Ring {
    pub(super) fn new(purpose: Purpose) -> Self {
        Self {
            queue: Queue::new(LARGEST).expect("a power of two"),
            places: None,
            kick: None,
            call: None,
            error: None,
            enabled: false,
            started: false,
            running: false,
            shown: 0,
            asked: 0,
            lent: vec![],
            quiet: false,
            purpose,
        }
    }

    pub(super) fn is_running(&self) -> bool {
        self.running
    }

    /// Descriptors that it has.
    pub(super) fn size(&self) -> usize {
        usize::from(self.queue.size())
    }

    pub(super) fn set_size(&mut self, size: u32) -> Result<(), String> {
        let fits = u16::try_from(size).ok().filter(|&size| self.queue.try_set_size(size).is_ok());
        fits.map(|_| ()).ok_or_else(|| format!("a ring of {size} descriptors"))
    }

    pub(super) fn set_places(&mut self, table: u64, offered: u64, used: u64) {
        self.places = Some([table, offered, used]);
    }

    /// Buffers offered before the ring's `base`th have been taken already.
    pub(super) fn set_base(&mut self, base: u16) {
        self.queue.set_next_avail(base);
        self.queue.set_next_used(base);
    }

    pub(super) fn base(&self) -> u16 {
        self.queue.next_avail()
    }

    /// Finds out whether the ring can run, after anything has changed.
    pub(super) fn update(&mut self, memory: &Memory, event_idx: bool) {
        let was = self.running;
        self.running = self.started && self.enabled && self.locate(memory).is_some();
        if !self.running || was {
            return;
        }
        self.queue.set_event_idx(event_idx);
        self.lent = vec![0; usize::from(self.queue.size()).div_ceil(64)];
        // A ring that was used before goes on where its used ring ends, which need not be where its
        // offered one does.
        let used =
            self.queue.used_idx(memory.guest(), Ordering::Acquire).map_or(0, |index| index.0);
        self.queue.set_next_used(used);
        (self.shown, self.asked, self.quiet) = (used, used, false);
    }

    /// Translates where the ring lies, and checks that it is there.
    fn locate(&mut self, memory: &Memory) -> Option<()> {
        let [table, offered, used] = self.places?.map(|place| memory.guest_address(place));
        self.queue.try_set_desc_table_address(vm_memory::GuestAddress(table?)).ok()?;
        self.queue.try_set_avail_ring_address(vm_memory::GuestAddress(offered?)).ok()?;
        self.queue.try_set_used_ring_address(vm_memory::GuestAddress(used?)).ok()?;
        self.queue.set_ready(true);
        self.queue.is_valid(memory.guest()).then_some(())
    }

    /// Takes no more buffers, for a reason or because it was told to.
    pub(super) fn stop(&mut self) {
        self.running = false;
        self.started = false;
    }

    /// The next buffer that the guest offers: its chain's first descriptor.
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

    /// The pieces of a chain, appended to `segments`, and their bytes.
    pub(super) fn walk(
        &self,
        memory: &Memory,
        head: u16,
        segments: &mut Vec<Segment>,
    ) -> Result<u32, ChainError> {
        walk(memory, self.queue.desc_table(), self.queue.size(), head, self.purpose, segments)
    }

    /// Gives a buffer back, of which `len` bytes were written. The guest does not see it before
    /// [`show`](Self::show).
    pub(super) fn give_back(&mut self, memory: &Memory, head: u16, len: u32) {
        let next = self.queue.next_used();
        let entry = self.queue.used_ring() + 4 + 8 * u64::from(next % self.queue.size());
        let mut element = [0; 8];
        element[..4].copy_from_slice(&u32::from(head).to_le_bytes());
        element[4..].copy_from_slice(&len.to_le_bytes());
        // The ring was found within the guest's memory; if that has changed since, the guest gets nothing.
        if memory.write(entry, &element).is_ok() {
            self.queue.set_next_used(next.wrapping_add(1));
        }
        if let Some(word) = self.lent.get_mut(usize::from(head / 64)) {
            *word &= !(1 << (head % 64));
        }
    }

    /// Shows the guest all that was given back, at once. Whether it wants an interrupt.
    pub(super) fn show(&mut self, memory: &Memory) -> bool {
        let next = self.queue.next_used();
        if next == self.shown {
            return false;
        }
        let index = self.queue.used_ring() + 2;
        if memory.store(index, next, Ordering::Release).is_err() {
            return false;
        }
        self.shown = next;
        // The guest must see the index before it is asked (2.7.7.2, 2.7.10).
        fence(Ordering::SeqCst);
        let last = std::mem::replace(&mut self.asked, next);
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

    /// Tells the front end that the ring is broken.
    pub(super) fn complain(&self) {
        if let Some(error) = &self.error {
            let _ = rustix::io::write(error, &1_u64.to_ne_bytes());
        }
    }

    /// Asks for a kick when the guest offers a buffer. Whether it has offered some meanwhile, for which none
    /// will come.
    pub(super) fn wants_kicks(&mut self, memory: &Memory) -> bool {
        self.quiet = false;
        self.queue.enable_notification(memory.guest()).unwrap_or(false)
    }

    /// Asks for no kicks, as long as the ring is looked at anyway.
    pub(super) fn wants_quiet(&mut self, memory: &Memory) {
        if !self.quiet {
            self.quiet = self.queue.disable_notification(memory.guest()).is_ok();
        }
    }
}
