//! The memory that two neighbours share: a ring and a table of leases for each direction, in a file without a name.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;

use rustix::fs::{MemfdFlags, SealFlags};
use weft_ring::Mapped;
use weft_ring::leases::LEASES_BYTES;
use weft_ring::records::RING_BYTES;

const BYTES: usize = 2 * (RING_BYTES + LEASES_BYTES);

/// A mapping of the segment.
#[derive(Debug)]
pub(super) struct Segment(NonNull<u8>);

// SAFETY: the mapping belongs to the process, not to a thread.
unsafe impl Send for Segment {}

impl Segment {
    /// Makes a segment, and the file to pass on. No process can shrink the file: mapped memory stays.
    pub(super) fn make() -> io::Result<(Self, OwnedFd)> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create(c"weft-channel", flags)?;
        rustix::fs::ftruncate(&file, BYTES as u64)?;
        rustix::fs::fcntl_add_seals(&file, SEALS)?;
        Ok((Self::map(&file)?, file))
    }

    /// Maps a segment that another process made.
    ///
    /// # Errors
    /// It does not have the size and seals of [`Self::make`].
    pub(super) fn take(file: &OwnedFd) -> io::Result<Self> {
        let sealed = rustix::fs::fcntl_get_seals(file)?.contains(SEALS);
        let size = rustix::fs::fstat(file)?.st_size;
        if !sealed || usize::try_from(size) != Ok(BYTES) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Self::map(file)
    }

    fn map(file: impl AsFd) -> io::Result<Self> {
        use std::os::fd::AsRawFd;
        let (rights, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        let (fd, null) = (file.as_fd().as_raw_fd(), core::ptr::null_mut());
        // SAFETY: this is a new mapping, at an address that the kernel chooses.
        let start = unsafe { libc::mmap(null, BYTES, rights, flags, fd, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: this is the mapping made above. A child of fork has no part in the channel.
        unsafe { libc::madvise(start, BYTES, libc::MADV_DONTFORK) };
        NonNull::new(start.cast()).map(Self).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }

    /// Returns both tables of leases, with the same lifetime.
    pub(super) fn leases(&self) -> [Mapped; 2] {
        [0, 1].map(|index| self.part(2 * RING_BYTES + index * LEASES_BYTES, LEASES_BYTES))
    }

    /// Returns both rings. They are valid only as long as this lives.
    pub(super) fn rings(&self) -> [Mapped; 2] {
        [0, 1].map(|index| self.part(index * RING_BYTES, RING_BYTES))
    }

    fn part(&self, at: usize, len: usize) -> Mapped {
        assert!(at.is_multiple_of(8) && at + len <= BYTES, "a part of the mapping");
        // SAFETY: it lies in the mapping and is aligned; the caller keeps the mapping as long, and a ring or a table
        // uses offsets within its own size.
        unsafe { Mapped::new(self.0.add(at), len) }
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: `map` made the mapping, and nothing uses it any more.
        unsafe { libc::munmap(self.0.as_ptr().cast(), BYTES) };
    }
}

const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_sealed_segment_of_this_size_is_accepted() {
        let (_, file) = Segment::make().unwrap();
        assert!(Segment::take(&file).is_ok());
        assert!(rustix::fs::ftruncate(&file, 0).is_err());
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let other = rustix::fs::memfd_create(c"other", flags).unwrap();
        rustix::fs::ftruncate(&other, BYTES as u64).unwrap();
        assert!(Segment::take(&other).is_err(), "it is not sealed");
        let short = rustix::fs::memfd_create(c"short", flags).unwrap();
        rustix::fs::fcntl_add_seals(&short, SEALS).unwrap();
        assert!(Segment::take(&short).is_err());
    }
}
