//! The arena's file: memory without a name that no process can shrink.

use core::ffi::{c_int, c_void};
use core::ops::Range;
use std::os::fd::RawFd;

/// A sealed file. Its descriptor stays open, so that this process's neighbours can find it.
#[derive(Debug)]
pub(crate) struct File {
    descriptor: RawFd,
    /// The numbers of its device and inode.
    identity: (u64, u64),
}

impl File {
    /// Makes a file of `len` zero bytes, which takes no memory until it is written. Returns `None` where the system
    /// refuses.
    pub(crate) fn new(len: usize) -> Option<Self> {
        let len = libc::off_t::try_from(len).ok()?;
        if !may_have(len) {
            return None;
        }
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: the name is a C string.
        let descriptor = unsafe { libc::memfd_create(c"weft-malloc".as_ptr(), flags) };
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        let is_made = descriptor >= 0
            // SAFETY: the descriptor was made above.
            && unsafe { libc::ftruncate(descriptor, len) } == 0
            // SAFETY: likewise.
            && unsafe { libc::fcntl(descriptor, libc::F_ADD_SEALS, seals) } == 0;
        let identity = status(descriptor).map(|status| (status.st_dev, status.st_ino));
        match identity.filter(|_| is_made) {
            Some(identity) => Some(Self { descriptor, identity }),
            None => {
                // SAFETY: likewise; closing -1 does nothing.
                unsafe { libc::close(descriptor) };
                None
            }
        }
    }

    /// Returns `true` unless the program has closed the descriptor, whose number may then be another file's.
    pub(crate) fn is_open(&self) -> bool {
        self.status().is_some()
    }

    fn status(&self) -> Option<libc::stat> {
        status(self.descriptor).filter(|status| (status.st_dev, status.st_ino) == self.identity)
    }

    /// Returns the memory of the file in bytes; `None` if the descriptor is closed.
    pub(crate) fn bytes(&self) -> Option<usize> {
        self.status().and_then(|status| usize::try_from(status.st_blocks * 512).ok())
    }

    /// Returns the first bytes of a range that may differ from zero; all of it if the descriptor is closed.
    pub(crate) fn next_data(&self, range: Range<usize>) -> Option<Range<usize>> {
        if range.is_empty() {
            return None;
        }
        if !self.is_open() {
            return Some(range);
        }
        let seek = |from: usize, whence| {
            let from = libc::off_t::try_from(from).ok()?;
            // SAFETY: the descriptor is open, and nothing uses its position.
            usize::try_from(unsafe { libc::lseek(self.descriptor, from, whence) }).ok()
        };
        // Beyond the last data the call fails.
        let start = seek(range.start, libc::SEEK_DATA).filter(|&start| start < range.end)?;
        let end = seek(start, libc::SEEK_HOLE).unwrap_or(range.end).min(range.end);
        Some(start..end)
    }

    /// Writes memory of this process to a range. Returns `false` if not all of it could be written.
    ///
    /// # Safety
    /// The memory is mapped.
    pub(crate) unsafe fn write(&self, memory: *const u8, range: Range<usize>) -> bool {
        let mut done = 0;
        while done < range.len() {
            // SAFETY: guaranteed by the caller.
            let from = unsafe { memory.add(done) };
            let Ok(at) = libc::off_t::try_from(range.start + done) else { return false };
            // SAFETY: likewise.
            let wrote =
                unsafe { libc::pwrite(self.descriptor, from.cast(), range.len() - done, at) };
            match usize::try_from(wrote) {
                Ok(wrote) if wrote > 0 => done += wrote,
                _ => return false,
            }
        }
        true
    }

    /// Maps the whole file, without rights, at the address or, if that is null, where the kernel chooses.
    ///
    /// # Safety
    /// With `MAP_FIXED`, the mapping there is the caller's to replace.
    pub(crate) unsafe fn map(
        &self,
        at: *mut c_void,
        len: usize,
        flags: c_int,
    ) -> Option<*mut c_void> {
        let flags = flags | libc::MAP_NORESERVE;
        // SAFETY: guaranteed by the caller.
        let start = unsafe { libc::mmap(at, len, libc::PROT_NONE, flags, self.descriptor, 0) };
        if start == libc::MAP_FAILED {
            return None;
        }
        // Dumping the core would fill all of the file with pages.
        // SAFETY: this is the mapping made above.
        unsafe { libc::madvise(start, len, libc::MADV_DONTDUMP) };
        Some(start)
    }

    /// Gives this file the descriptor of another one, which is closed, if the program has not closed it.
    pub(crate) fn replace(mut self, other: &Self) -> Self {
        if other.is_open() {
            // SAFETY: both descriptors are open, and the other one is no one's but this library's.
            unsafe {
                libc::dup3(self.descriptor, other.descriptor, libc::O_CLOEXEC);
                libc::close(self.descriptor);
            }
            self.descriptor = other.descriptor;
        }
        self
    }

    /// Closes the descriptor, unless the program has.
    pub(crate) fn close(&self) {
        if self.is_open() {
            // SAFETY: the descriptor is this file's.
            unsafe { libc::close(self.descriptor) };
        }
    }
}

fn status(descriptor: RawFd) -> Option<libc::stat> {
    // SAFETY: all zeros is a valid structure.
    let mut status = unsafe { core::mem::zeroed::<libc::stat>() };
    // SAFETY: the structure has room for the status; a bad descriptor is refused.
    (unsafe { libc::fstat(descriptor, &raw mut status) } == 0).then_some(status)
}

/// Returns `true` if this process may make files of this length: a longer one would end it by a signal.
fn may_have(len: libc::off_t) -> bool {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure has room for the limit.
    let is_known = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) } == 0;
    is_known && limit.rlim_cur >= len.cast_unsigned()
}
