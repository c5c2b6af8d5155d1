//! One side of a ring that a socket shares with the kernel (`Documentation/networking/af_xdp.rst`): a power of two of
//! entries, and two counters that only grow, modulo 2^32. This process produces into the fill and TX rings and consumes
//! from the RX and completion rings.

use std::io;
use std::mem::size_of;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::sys::Mapping;

/// A mapped ring, whose entries are `T`.
#[derive(Debug)]
struct Ring<T> {
    /// Keeps the memory that the other fields point into.
    _mapping: Mapping,
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    entries: NonNull<T>,
    /// Number of entries less one.
    mask: u32,
}

// SAFETY: the pointers lead into the ring's own mapping, whose counters are atomic; the entries between them belong to
// this side alone.
unsafe impl<T: Send> Send for Ring<T> {}

/// An entry of a ring: a plain value of the kernel's format.
pub(crate) trait Entry: Copy {}
impl Entry for u64 {}
impl Entry for libc::xdp_desc {}

impl<T: Entry> Ring<T> {
    fn map(
        socket: BorrowedFd<'_>,
        entries: u32,
        page_offset: i64,
        offsets: &libc::xdp_ring_offset,
    ) -> io::Result<Self> {
        assert!(entries.is_power_of_two(), "the kernel's rings have a power of two of entries");
        let offset = |offset: u64| usize::try_from(offset).map_err(|_| io::ErrorKind::InvalidData);
        let (desc, flags) = (offset(offsets.desc)?, offset(offsets.flags)?);
        let bytes = entries as usize * size_of::<T>();
        let mapping = Mapping::ring(socket, (desc + bytes).max(flags + 4), page_offset)?;
        Ok(Self {
            producer: mapping.at(offset(offsets.producer)?, 4).cast(),
            consumer: mapping.at(offset(offsets.consumer)?, 4).cast(),
            flags: mapping.at(flags, 4).cast(),
            entries: mapping.at(desc, bytes).cast(),
            mask: entries - 1,
            _mapping: mapping,
        })
    }

    fn counter(counter: &NonNull<AtomicU32>) -> &AtomicU32 {
        // SAFETY: the pointer leads to an aligned counter in the mapping, which lives as long as this value, and the
        // kernel accesses it atomically, too.
        unsafe { counter.as_ref() }
    }

    fn entry(&self, position: u32) -> NonNull<T> {
        // SAFETY: the mask keeps the index inside the ring's entries.
        unsafe { self.entries.add((position & self.mask) as usize) }
    }

    fn needs_wakeup(&self) -> bool {
        Self::counter(&self.flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

/// The side that writes entries.
#[derive(Debug)]
pub(crate) struct Producer<T> {
    ring: Ring<T>,
    /// Position of the next entry.
    next: u32,
    /// Position up to which the kernel has read, as last seen.
    consumed: u32,
}

impl<T: Entry> Producer<T> {
    /// Maps a ring of a socket.
    ///
    /// # Errors
    /// The kernel's error.
    pub(crate) fn map(
        socket: BorrowedFd<'_>,
        entries: u32,
        page_offset: i64,
        offsets: &libc::xdp_ring_offset,
    ) -> io::Result<Self> {
        let ring = Ring::map(socket, entries, page_offset, offsets)?;
        Ok(Self { ring, next: 0, consumed: 0 })
    }

    /// Returns `true` if there is room for `count` entries.
    #[inline]
    pub(crate) fn has_room(&mut self, count: u32) -> bool {
        let fits = |it: &Self| it.next.wrapping_sub(it.consumed) + count <= it.ring.mask + 1;
        if !fits(self) {
            self.consumed = Ring::<T>::counter(&self.ring.consumer).load(Ordering::Acquire);
        }
        fits(self)
    }

    /// Writes an entry, which the kernel sees after [`publish`](Self::publish).
    ///
    /// # Panics
    /// If there is no room.
    #[inline]
    pub(crate) fn push(&mut self, entry: T) {
        assert!(self.has_room(1), "`has_room` returned true");
        // SAFETY: the kernel does not read this entry before it is published, and has read what was there.
        unsafe { self.ring.entry(self.next).write(entry) };
        self.next = self.next.wrapping_add(1);
    }

    /// Writes as many entries as there is room for, from the end of `entries`, and leaves the others.
    #[inline]
    pub(crate) fn push_most(&mut self, entries: &mut Vec<T>) {
        while self.has_room(1) {
            let Some(entry) = entries.pop() else { return };
            self.push(entry);
        }
    }

    /// Passes the written entries to the kernel.
    #[inline]
    pub(crate) fn publish(&self) {
        Ring::<T>::counter(&self.ring.producer).store(self.next, Ordering::Release);
    }

    /// Returns the number of entries that the kernel has not read.
    #[inline]
    pub(crate) fn unread(&mut self) -> u32 {
        self.consumed = Ring::<T>::counter(&self.ring.consumer).load(Ordering::Acquire);
        self.next.wrapping_sub(self.consumed)
    }

    /// Returns `true` if the kernel reads the ring only after a system call.
    #[inline]
    pub(crate) fn needs_wakeup(&self) -> bool {
        self.ring.needs_wakeup()
    }
}

/// The side that reads entries.
#[derive(Debug)]
pub(crate) struct Consumer<T> {
    ring: Ring<T>,
    /// Position of the next entry.
    next: u32,
    /// Position up to which the kernel has written, as last seen.
    produced: u32,
}

impl<T: Entry> Consumer<T> {
    /// Maps a ring of a socket.
    ///
    /// # Errors
    /// The kernel's error.
    pub(crate) fn map(
        socket: BorrowedFd<'_>,
        entries: u32,
        page_offset: i64,
        offsets: &libc::xdp_ring_offset,
    ) -> io::Result<Self> {
        let ring = Ring::map(socket, entries, page_offset, offsets)?;
        Ok(Self { ring, next: 0, produced: 0 })
    }

    /// Returns the entry `ahead` of the next one, if the kernel has written it.
    #[inline]
    pub(crate) fn peek(&mut self, ahead: u32) -> Option<T> {
        if self.produced.wrapping_sub(self.next) <= ahead {
            self.produced = Ring::<T>::counter(&self.ring.producer).load(Ordering::Acquire);
            if self.produced.wrapping_sub(self.next) <= ahead {
                return None;
            }
        }
        // SAFETY: the kernel has written this entry, and leaves it alone until it is released.
        Some(unsafe { self.ring.entry(self.next.wrapping_add(ahead)).read() })
    }

    /// Returns `count` entries to the kernel.
    #[inline]
    pub(crate) fn release(&mut self, count: u32) {
        self.next = self.next.wrapping_add(count);
        Ring::<T>::counter(&self.ring.consumer).store(self.next, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the writing side of a ring of four entries in memory of this process.
    fn producer() -> Producer<u64> {
        let mapping = Mapping::anonymous(4096).unwrap();
        let ring = Ring {
            producer: mapping.at(0, 4).cast(),
            consumer: mapping.at(64, 4).cast(),
            flags: mapping.at(128, 4).cast(),
            entries: mapping.at(192, 32).cast(),
            mask: 3,
            _mapping: mapping,
        };
        Producer { ring, next: 0, consumed: 0 }
    }

    #[test]
    fn entries_that_a_full_ring_does_not_take_are_left_until_the_kernel_has_read() {
        let mut producer = producer();
        let mut entries: Vec<u64> = (0..6).collect();
        producer.push_most(&mut entries);
        assert_eq!((entries.as_slice(), producer.unread()), (&[0, 1][..], 4));
        Ring::<u64>::counter(&producer.ring.consumer).store(1, Ordering::Release);
        producer.push_most(&mut entries);
        assert_eq!((entries.as_slice(), producer.unread()), (&[0][..], 4));
        Ring::<u64>::counter(&producer.ring.consumer).store(5, Ordering::Release);
        producer.push_most(&mut entries);
        assert!(entries.is_empty() && !producer.has_room(4) && producer.has_room(3));
    }
}
