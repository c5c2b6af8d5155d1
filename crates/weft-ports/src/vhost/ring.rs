//! One virtqueue of either format, and the descriptors by which guest and device wake each other.

use std::os::fd::OwnedFd;

use super::chain::{ChainError, Purpose, Segment};
use super::fault::FrontEndFault;
use super::memory::Memory;
use super::packed::Packed;
use super::split::Split;
use super::virtqueue::{RingError, Virtqueue};

/// A virtqueue, and the descriptors by which guest and device wake each other.
#[derive(Debug)]
pub(super) struct Ring {
    queue: Queue,
    /// The front end's addresses of the descriptors, of the driver's part and of the device's part.
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
    purpose: Purpose,
}

/// A virtqueue of one of the formats. The compiler inlines the operations of both, behind one branch.
#[derive(Debug)]
enum Queue {
    Split(Split),
    Packed(Packed),
}

/// Evaluates an operation for the queue of a ring.
macro_rules! on {
    ($queue:expr, $name:ident => $operation:expr) => {
        match $queue {
            Queue::Split($name) => $operation,
            Queue::Packed($name) => $operation,
        }
    };
}

impl Ring {
    pub(super) fn new(purpose: Purpose) -> Self {
        Self {
            queue: Queue::Split(Split::new(purpose)),
            places: None,
            kick: None,
            call: None,
            error: None,
            enabled: false,
            started: false,
            running: false,
            purpose,
        }
    }

    pub(super) fn is_running(&self) -> bool {
        self.running
    }

    /// Sets the format of a ring that does not run.
    ///
    /// # Errors
    /// The ring runs in the other format.
    pub(super) fn set_packed(&mut self, packed: bool) -> Result<(), FrontEndFault> {
        if packed == matches!(self.queue, Queue::Packed(_)) {
            return Ok(());
        }
        if self.running {
            return Err(FrontEndFault::Running);
        }
        self.queue = match packed {
            true => Queue::Packed(Packed::new(self.purpose)),
            false => Queue::Split(Split::new(self.purpose)),
        };
        Ok(())
    }

    /// Returns the number of descriptors.
    pub(super) fn size(&self) -> usize {
        on!(&self.queue, queue => queue.size())
    }

    pub(super) fn set_size(&mut self, size: u32) -> Result<(), FrontEndFault> {
        on!(&mut self.queue, queue => queue.set_size(size)).ok_or(FrontEndFault::RingSize(size))
    }

    pub(super) fn set_places(&mut self, table: u64, offered: u64, used: u64) {
        self.places = Some([table, offered, used]);
    }

    /// Sets the position of the next available buffer: earlier ones were taken already.
    pub(super) fn set_base(&mut self, base: u32) -> Result<(), FrontEndFault> {
        on!(&mut self.queue, queue => queue.set_base(base)).ok_or(FrontEndFault::Base(base))
    }

    pub(super) fn base(&self) -> u32 {
        on!(&self.queue, queue => queue.base())
    }

    /// Updates whether the ring can run, after any change.
    pub(super) fn update(&mut self, memory: &Memory, event_idx: bool) {
        let was = self.running;
        self.running = self.started && self.enabled && self.locate(memory).is_some();
        if self.running && !was {
            on!(&mut self.queue, queue => queue.start(memory, event_idx));
        }
    }

    /// Translates the ring's addresses, and checks that they are in the guest's memory.
    fn locate(&mut self, memory: &Memory) -> Option<()> {
        let [table, offered, used] = self.places?.map(|place| memory.guest_address(place));
        let places = [table?, offered?, used?];
        on!(&mut self.queue, queue => queue.locate(memory, places))
    }

    /// Stops the ring: no more buffers are taken.
    pub(super) fn stop(&mut self) {
        self.running = false;
        self.started = false;
    }

    /// Takes the next available buffer, and returns its name.
    #[inline]
    pub(super) fn next_head(&mut self, memory: &Memory) -> Result<Option<u16>, RingError> {
        on!(&mut self.queue, queue => queue.next_head(memory))
    }

    /// Appends the pieces of a buffer to `segments` and returns their total bytes.
    #[inline]
    pub(super) fn walk(
        &self,
        memory: &Memory,
        head: u16,
        segments: &mut Vec<Segment>,
    ) -> Result<u32, ChainError> {
        on!(&self.queue, queue => queue.walk(memory, head, segments))
    }

    /// Returns a buffer, of which `len` bytes were written. The guest does not see it before
    /// [`publish`](Self::publish).
    #[inline]
    pub(super) fn push_used(&mut self, memory: &Memory, head: u16, len: u32) {
        on!(&mut self.queue, queue => queue.push_used(memory, head, len));
    }

    /// Publishes all returned buffers to the guest at once. Returns `true` if it requests an interrupt.
    #[inline]
    pub(super) fn publish(&mut self, memory: &Memory) -> bool {
        on!(&mut self.queue, queue => queue.publish(memory))
    }

    /// Leaves the ring, all buffers returned and published, so that another process can continue.
    pub(super) fn leave(&mut self, memory: &Memory) {
        on!(&mut self.queue, queue => queue.leave(memory));
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
        on!(&mut self.queue, queue => queue.enable_kicks(memory))
    }

    /// Suppresses kicks, for a ring that is polled.
    #[inline]
    pub(super) fn suppress_kicks(&mut self, memory: &Memory) {
        on!(&mut self.queue, queue => queue.suppress_kicks(memory));
    }
}
