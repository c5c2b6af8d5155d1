//! The mapping of a region that is registered by its file: a memory file, a udmabuf, or another one that can be mapped.
//! Neighbours on the same host can map the same file.

use core::ffi::{c_int, c_void};
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::fcntl_dupfd_cloexec;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use crate::engine::fork::Held;
use crate::errno::{EINVAL, Errno, Outcome};

/// The size of a page, bytes.
pub(super) const PAGE: u64 = 4096;

/// A range of a file, mapped until this is dropped.
#[derive(Debug)]
pub(super) struct FileMapping {
    start: *mut c_void,
    len: usize,
    /// Bytes between the start and the offset.
    before: usize,
    /// The file stays open for neighbours, whatever the program does with its descriptor.
    _file: Held,
}

// SAFETY: it is memory of the process, which nothing here accesses.
unsafe impl Send for FileMapping {}
// SAFETY: likewise.
unsafe impl Sync for FileMapping {}

impl FileMapping {
    /// Maps the pages of `length` bytes from `offset` on.
    ///
    /// # Errors
    /// `EBADF`: no open descriptor; `EINVAL`: the file does not have the range; `EACCES`, `EPERM`: it must not be
    /// written; `ENODEV`: it cannot be mapped.
    pub(super) fn new(fd: c_int, offset: u64, length: usize, is_written: bool) -> Outcome<Self> {
        // SAFETY: the call fails unless the number is an open descriptor's.
        if fd < 0 || unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
            return Err(Errno(libc::EBADF));
        }
        // SAFETY: it is open, and the program keeps it open during the call.
        let file = unsafe { BorrowedFd::borrow_raw(fd) };
        let size = u64::try_from(rustix::fs::fstat(file)?.st_size).unwrap_or(0);
        let end = offset.checked_add(length as u64).filter(|&end| end <= size);
        let (Some(_), true) = (end, length > 0) else { return Err(EINVAL) };
        let [page, before] = [offset - offset % PAGE, offset % PAGE];
        let before = usize::try_from(before).map_err(|_| EINVAL)?;
        let len = before + length;
        let rights = if is_written { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        let file: OwnedFd = fcntl_dupfd_cloexec(file, 0)?;
        // SAFETY: a new mapping replaces nothing.
        let start =
            unsafe { mmap(core::ptr::null_mut(), len, rights, MapFlags::SHARED, &file, page)? };
        // A child of fork has no part in the region.
        // SAFETY: this is the mapping made above.
        let _ = unsafe { madvise(start, len, Advice::LinuxDontFork) };
        Ok(Self { start, len, before, _file: Held::new(file) })
    }

    /// Returns the address of the byte at the offset.
    pub(super) fn address(&self) -> *mut c_void {
        self.start.wrapping_byte_add(self.before)
    }
}

impl Drop for FileMapping {
    fn drop(&mut self) {
        // SAFETY: it was made by `new`, and the region that used it is deregistered.
        let _ = unsafe { munmap(self.start, self.len) };
    }
}
