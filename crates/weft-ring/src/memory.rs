//! Shared memory for the protocols: atomic words, and bytes that belong to one side at a time. All
//! `unsafe` code of this crate is here.
#![expect(unsafe_code, reason = "memory that other processes write to")]

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// An atomic word of type `T`.
pub trait Word<T> {
    /// Returns the word.
    fn load(&self, order: Ordering) -> T;
    /// Replaces the word.
    fn store(&self, value: T, order: Ordering);
    /// Replaces the word and returns its previous value.
    fn swap(&self, value: T, order: Ordering) -> T;
}

/// Memory that a protocol runs on. Places are byte offsets from its beginning.
pub trait Memory {
    /// An atomic word of 32 bits.
    type Word: Word<u32>;
    /// An atomic word of 64 bits.
    type Long: Word<u64>;

    /// Returns the word at offset `at`, a multiple of four.
    fn word(&self, at: usize) -> &Self::Word;
    /// Returns the long word at offset `at`, a multiple of eight.
    fn long(&self, at: usize) -> &Self::Long;
    /// Copies bytes to a place that belongs to this side.
    fn write(&self, at: usize, bytes: &[u8]);
    /// Copies bytes from a place that belongs to this side. A peer that violates the protocol may
    /// change them meanwhile: callers use only the copy.
    fn read(&self, at: usize, bytes: &mut [u8]);
    /// Orders accesses before it and after it, as [`core::sync::atomic::fence`] does.
    fn fence(order: Ordering);
}

/// Memory at an address of this process. It does not unmap the memory: its owner keeps the mapping.
#[derive(Clone, Copy, Debug)]
pub struct Mapped {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: it is meant to be shared; every access is atomic, or to bytes that belong to this side.
unsafe impl Send for Mapped {}
// SAFETY: likewise.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// Returns memory of `len` bytes from `start` on.
    ///
    /// # Safety
    /// `start` is divisible by eight, and `len` bytes from there stay mapped until the last use of
    /// the value or a copy of it. Its users pass only offsets within those bytes; debug assertions
    /// check this.
    pub const unsafe fn new(start: NonNull<u8>, len: usize) -> Self {
        Self { start, len }
    }

    /// Returns its length, bytes.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns `true` if it has no bytes.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the address of `len` bytes at offset `at`, for callers that copy there themselves.
    #[inline]
    pub fn pointer(&self, at: usize, len: usize) -> *mut u8 {
        debug_assert!(at <= self.len && len <= self.len - at, "within the memory");
        // SAFETY: within the memory, as `new` was promised.
        unsafe { self.start.add(at) }.as_ptr()
    }
}

impl Memory for Mapped {
    type Word = AtomicU32;
    type Long = AtomicU64;

    #[inline]
    fn word(&self, at: usize) -> &AtomicU32 {
        debug_assert!(at.is_multiple_of(4), "aligned");
        // SAFETY: mapped and aligned, as `new` was promised.
        unsafe { AtomicU32::from_ptr(self.pointer(at, 4).cast()) }
    }

    #[inline]
    fn long(&self, at: usize) -> &AtomicU64 {
        debug_assert!(at.is_multiple_of(8), "aligned");
        // SAFETY: mapped and aligned, as `new` was promised.
        unsafe { AtomicU64::from_ptr(self.pointer(at, 8).cast()) }
    }

    #[inline]
    fn write(&self, at: usize, bytes: &[u8]) {
        let to = self.pointer(at, bytes.len());
        // SAFETY: `len` bytes are mapped there, and by the protocol the other side does not access
        // them now. A peer that violates it may change them; no Rust reference points to them.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }

    #[inline]
    fn read(&self, at: usize, bytes: &mut [u8]) {
        let from = self.pointer(at, bytes.len());
        // SAFETY: `len` bytes are mapped there; a concurrent change by a peer that violates the
        // protocol affects only the copy.
        unsafe { core::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len()) };
    }

    #[inline]
    fn fence(order: Ordering) {
        fence(order);
    }
}

macro_rules! word {
    ($atomic:ty, $word:ty) => {
        impl Word<$word> for $atomic {
            #[inline]
            fn load(&self, order: Ordering) -> $word {
                self.load(order)
            }
            #[inline]
            fn store(&self, value: $word, order: Ordering) {
                self.store(value, order);
            }
            #[inline]
            fn swap(&self, value: $word, order: Ordering) -> $word {
                self.swap(value, order)
            }
        }
    };
}

word!(AtomicU32, u32);
word!(AtomicU64, u64);
#[cfg(test)]
word!(loom::sync::atomic::AtomicU32, u32);
#[cfg(test)]
word!(loom::sync::atomic::AtomicU64, u64);

/// Memory on the heap, for tests within one process.
#[cfg(test)]
pub(crate) struct Heap {
    pub(crate) memory: Mapped,
    bytes: NonNull<[u64]>,
}

#[cfg(test)]
impl Heap {
    /// Returns zeroed memory.
    pub(crate) fn new(len: usize) -> Self {
        let bytes = Box::leak(vec![0_u64; len.div_ceil(8)].into_boxed_slice());
        let bytes = NonNull::from(bytes);
        // SAFETY: they are there until this is dropped, and only the memory refers to them.
        let memory = unsafe { Mapped::new(bytes.cast(), len) };
        Self { memory, bytes }
    }
}

#[cfg(test)]
impl Drop for Heap {
    fn drop(&mut self) {
        // SAFETY: leaked by `new`.
        drop(unsafe { Box::from_raw(self.bytes.as_ptr()) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_bytes_are_where_they_were_written() {
        let heap = Heap::new(64);
        let memory = heap.memory;
        memory.word(4).store(7, Ordering::Relaxed);
        memory.long(8).store(9, Ordering::Relaxed);
        memory.write(16, b"bytes");
        let mut bytes = [0; 5];
        memory.read(16, &mut bytes);
        assert_eq!(&bytes, b"bytes");
        assert_eq!(
            (memory.word(4).swap(0, Ordering::Relaxed), memory.word(0).load(Ordering::Relaxed)),
            (7, 0)
        );
        assert_eq!(memory.long(8).swap(0, Ordering::Relaxed), 9);
        // SAFETY: as many bytes are there, and nobody else uses them.
        unsafe { memory.pointer(63, 1).write(1) };
        memory.read(63, &mut bytes[..1]);
        assert_eq!(bytes[0], 1);
        assert!(!memory.is_empty() && memory.len() == 64);
    }
}
