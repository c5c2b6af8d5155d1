//! A mapped file that processes share. All `unsafe` of this crate is here.
#![expect(unsafe_code, reason = "memory that other processes write to")]

use core::ptr::NonNull;
use core::sync::atomic::AtomicU32;
use std::fs::File;
use std::io;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// The largest page of Linux in bytes: offsets of mappings are multiples of it.
pub(super) const MAX_PAGE: usize = 64 << 10;

/// A mapped range of a file.
#[derive(Debug)]
pub(super) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: it is memory of the process; its threads access it in the same way as other processes do.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps `len` bytes of a file from `offset` on, a multiple of [`MAX_PAGE`].
    ///
    /// # Errors
    /// Returns `UnexpectedEof` if the file is shorter: access to the rest would end the process. Or the kernel's error.
    pub(super) fn of(file: &File, offset: usize, len: usize) -> io::Result<Self> {
        if file.metadata()?.len() < (offset + len) as u64 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let (both, any) = (ProtFlags::READ | ProtFlags::WRITE, core::ptr::null_mut());
        // SAFETY: the kernel chooses a free range; the file is ours and is not made shorter.
        let start = unsafe { mmap(any, len, both, MapFlags::SHARED, file, offset as u64)? };
        let start = NonNull::new(start.cast()).expect("a mapping is not at zero");
        Ok(Self { start, len })
    }

    /// Returns the word at an offset.
    ///
    /// # Panics
    /// If the offset is no multiple of four or beyond the end.
    pub(super) fn word(&self, at: usize) -> &AtomicU32 {
        assert!(at.is_multiple_of(4) && at + 4 <= self.len, "a word inside");
        // SAFETY: it is inside and aligned, lives as long as `self`, and is only ever used as an atomic.
        unsafe { AtomicU32::from_ptr(self.start.as_ptr().add(at).cast()) }
    }

    /// Copies bytes to an area that no other rank uses now.
    ///
    /// # Panics
    /// If the area is not inside the mapping.
    pub(super) fn write(&self, at: usize, bytes: &[u8]) {
        assert!(at <= self.len && bytes.len() <= self.len - at, "inside");
        // SAFETY: it is inside; by the state of the slot no other rank reads it, and `bytes`, which is this process'
        // own, does not overlap.
        unsafe {
            core::ptr::copy_nonoverlapping(
                bytes.as_ptr(),
                self.start.as_ptr().add(at),
                bytes.len(),
            );
        }
    }

    /// Returns the bytes of an area that no rank writes now.
    ///
    /// # Panics
    /// If the area is not inside the mapping.
    pub(super) fn bytes(&self, at: usize, len: usize) -> &[u8] {
        assert!(at <= self.len && len <= self.len - at, "inside");
        // SAFETY: it is inside; by the state of the slot its writer does not use it until this rank returns it. Ranks
        // of one group belong to one user and one job: they trust each other with this file.
        unsafe { core::slice::from_raw_parts(self.start.as_ptr().add(at), len) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it is this mapping, and no reference into it is left.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}
