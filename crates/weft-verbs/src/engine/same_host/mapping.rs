//! Memory of a neighbour that this process has mapped: of a file that the neighbour has open, or of a System V segment.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::LazyLock;

use weft_ring::leases::{Backing, Terms};

use super::faults::Guard;
use super::lendable::{MemoryFile, memory_file, size_of_segment};
use super::maps::shared_object;

/// A mapping of a region.
#[derive(Debug)]
pub(super) struct Mapping {
    /// The first byte that is mapped, and the length in bytes.
    start: NonNull<u8>,
    len: usize,
    /// The region's first byte.
    region: NonNull<u8>,
    /// `true` for a System V segment.
    attached: bool,
    /// The guard against faults; `None` if no access can fault.
    guard: Option<Guard>,
}

// SAFETY: the mapping belongs to the process, not to a thread.
unsafe impl Send for Mapping {}
// SAFETY: its bytes are accessed by pointers only, like memory that another process changes.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the region of a lease of the process with this ID, which lives. Returns `None` if the memory is private, or
    /// is not what the lease states: the region is then accessed by system calls.
    pub(super) fn new(pid: i32, terms: &Terms) -> Option<Self> {
        let length = usize::try_from(terms.length).ok().filter(|&length| length > 0)?;
        match terms.backing {
            Backing::Private => None,
            Backing::Segment { id, offset } => {
                let end = offset.checked_add(terms.length)?;
                let is_inside = || size_of_segment(id).is_some_and(|size| end <= size);
                let is_same = shares_segments(pid) && is_inside();
                is_same.then(|| Self::attach(id, usize::try_from(offset).ok()?, terms.writable))?
            }
            Backing::File { descriptor, device, inode, offset } => {
                let end = offset.checked_add(terms.length)?;
                let path = format!("/proc/{pid}/fd/{descriptor}");
                let found = open(&path, libc::O_PATH, terms.writable)?;
                let is_it = |file: &MemoryFile| {
                    (file.device, file.inode) == (device, inode) && end <= file.size
                };
                let properties = memory_file(&found).filter(is_it)?;
                // Opened again, and by this process's own descriptor, so that it is the file that was examined.
                let path = format!("/proc/self/fd/{}", found.as_raw_fd());
                let file = open(&path, libc::O_NONBLOCK | libc::O_NOCTTY, terms.writable)?;
                Self::map(&file, &properties, offset, length, terms.writable)
            }
        }
    }

    fn map(
        file: &File,
        properties: &MemoryFile,
        offset: u64,
        length: usize,
        writable: bool,
    ) -> Option<Self> {
        let first = offset & !(properties.page - 1);
        let before = usize::try_from(offset - first).ok()?;
        let page = usize::try_from(properties.page).ok()?;
        let len = before.checked_add(length)?.checked_next_multiple_of(page)?;
        let (rights, at) = (rights(writable), libc::off_t::try_from(first).ok()?);
        let (null, fd, flags) = (core::ptr::null_mut(), file.as_raw_fd(), libc::MAP_SHARED);
        // SAFETY: this is a new mapping, at an address that the kernel chooses.
        let start = unsafe { libc::mmap(null, len, rights, flags, fd, at) };
        if start == libc::MAP_FAILED {
            return None;
        }
        let mapped = Self::mapped(start.cast(), len, before, false)?;
        // The pages of a file that cannot shrink exist, or can be made: the file system that has files without a name
        // has no limit of its own. Huge pages may be used up.
        let may_fault = properties.huge || !cannot_shrink(file);
        if may_fault { mapped.guarded() } else { Some(mapped) }
    }

    fn attach(id: u32, offset: usize, writable: bool) -> Option<Self> {
        let flags = if writable { 0 } else { libc::SHM_RDONLY };
        let id = i32::try_from(id).ok()?;
        // SAFETY: this is a new mapping, at an address that the kernel chooses.
        let start = unsafe { libc::shmat(id, core::ptr::null(), flags) };
        if start.addr() == usize::MAX {
            return None;
        }
        // A segment of huge pages is longer than its size, and only the mapping shows whether it has them.
        let first = start.addr() as u64;
        let maps = std::fs::read("/proc/self/maps").unwrap_or_default();
        let object = shared_object(&maps, first..first + 1, writable);
        let end = object.map_or(first, |object| object.mapping.1);
        let device = object.map(|object| object.device);
        let len = usize::try_from(end - first).ok()?;
        let mapped = Self::mapped(start.cast(), len, offset, true)?;
        // Huge pages may be used up.
        if device == *SHARED_MEMORY { Some(mapped) } else { mapped.guarded() }
    }

    fn mapped(start: *mut u8, len: usize, before: usize, attached: bool) -> Option<Self> {
        let start = NonNull::new(start)?;
        // SAFETY: the region begins inside the mapping, as the caller has checked.
        let region = unsafe { start.add(before) };
        let mapping = Self { start, len, region, attached, guard: None };
        // SAFETY: the mapping made by the caller. A child of fork has no part in the channel.
        let advised = unsafe { libc::madvise(start.as_ptr().cast(), len, libc::MADV_DONTFORK) };
        (advised == 0).then_some(mapping)
    }

    /// Returns the mapping with a guard against faults, or `None` if there can be none.
    fn guarded(mut self) -> Option<Self> {
        self.guard = Some(Guard::new(self.start.addr().get(), self.len)?);
        Some(self)
    }

    /// Returns the first byte of the region.
    pub(super) const fn region(&self) -> NonNull<u8> {
        self.region
    }

    /// Returns `true` if the calling thread may access the memory now.
    #[inline]
    pub(super) fn is_usable(&self) -> bool {
        self.guard.as_ref().is_none_or(Guard::is_effective_here)
    }

    /// Returns `true` if a page did not exist when it was accessed: since then other memory is in its place.
    #[inline]
    pub(super) fn is_broken(&self) -> bool {
        self.guard.as_ref().is_some_and(Guard::is_broken)
    }

    /// Returns `true` if an access may fault.
    pub(super) const fn is_guarded(&self) -> bool {
        self.guard.is_some()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let broken = self.is_broken();
        self.guard = None;
        let start = self.start.as_ptr().cast();
        // SAFETY: the mapping was made by `map` or `attach`, and nothing uses it any more. One that broke was replaced by
        // other memory, of which `shmdt` knows nothing.
        unsafe {
            if self.attached && !broken {
                libc::shmdt(start);
            } else {
                libc::munmap(start, self.len);
            }
        }
    }
}

/// The device number of the kernel's own tmpfs, in which segments and files without a name are.
static SHARED_MEMORY: LazyLock<Option<u64>> = LazyLock::new(|| {
    let file = rustix::fs::memfd_create(c"weft", rustix::fs::MemfdFlags::CLOEXEC).ok()?;
    Some(rustix::fs::fstat(&file).ok()?.st_dev)
});

const fn rights(writable: bool) -> libc::c_int {
    if writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ }
}

fn open(path: &str, flags: libc::c_int, writable: bool) -> Option<File> {
    File::options().read(true).write(writable).custom_flags(flags).open(path).ok()
}

fn cannot_shrink(file: &File) -> bool {
    let seals = rustix::fs::fcntl_get_seals(file);
    seals.is_ok_and(|seals| seals.contains(rustix::fs::SealFlags::SHRINK))
}

/// Returns `true` if a process has this process's ids of System V segments.
fn shares_segments(pid: i32) -> bool {
    let namespace = |of: &str| -> io::Result<_> {
        let stat = rustix::fs::stat(Path::new(&format!("/proc/{of}/ns/ipc")))?;
        Ok((stat.st_dev, stat.st_ino))
    };
    let both = (namespace("self"), namespace(&pid.to_string()));
    matches!(both, (Ok(own), Ok(other)) if own == other)
}
