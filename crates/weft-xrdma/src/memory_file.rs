//! The file of a node's memory, which has no name. Neighbours on the same host can map a region of it, so that their
//! READs need no system call.

use core::ffi::c_void;
use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap};
use rustix::process::{Resource, getrlimit};

/// The length of the file, bytes. Memory is in mapped parts only, and each region has a new part.
const BYTES: u64 = 1 << 50;

/// A sealed file: no process can shrink it under a neighbour.
#[derive(Debug)]
pub(crate) struct MemoryFile {
    file: OwnedFd,
    /// The offset of the next region.
    next: u64,
    /// The number of the process that has made it.
    process: u32,
}

impl MemoryFile {
    pub(crate) fn new() -> io::Result<Self> {
        // A longer file than the limit allows ends the process by a signal.
        if getrlimit(Resource::Fsize).current.is_some_and(|limit| limit < BYTES) {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let file = memfd_create(c"weft-xrdma", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, BYTES)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok(Self { file, next: 0, process: std::process::id() })
    }

    /// Returns `false` in a child of fork, whose next region would be its parent's too.
    pub(crate) fn is_own(&self) -> bool {
        self.process == std::process::id()
    }

    /// Maps zero bytes at an address. A child of fork has no part in them.
    ///
    /// # Safety
    /// The mapping there is the caller's to replace.
    pub(crate) unsafe fn map(&mut self, at: *mut c_void, len: usize) -> io::Result<()> {
        let end = self.next + len as u64;
        if end > BYTES {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let both = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::FIXED | MapFlags::NORESERVE;
        // SAFETY: guaranteed by the caller.
        let start = unsafe { mmap(at, len, both, flags, &self.file, self.next)? };
        self.next = end;
        // SAFETY: this is the mapping made above.
        unsafe { madvise(start, len, Advice::LinuxDontFork)? };
        Ok(())
    }

    /// Returns the memory of the file, bytes.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> u64 {
        let blocks = rustix::fs::fstat(&self.file).expect("an open file").st_blocks;
        u64::try_from(blocks).expect("it has a number of blocks") * 512
    }
}

/// Returns the memory of a mapped part to the system.
///
/// # Safety
/// Nothing uses the part, which this process has mapped.
pub(crate) unsafe fn empty(start: *mut c_void, len: usize) {
    // SAFETY: guaranteed by the caller.
    let _ = unsafe { madvise(start, len, Advice::LinuxRemove) };
}
