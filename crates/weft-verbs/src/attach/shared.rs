//! The memory that a process and the daemon share: indices and flags in the first page, each on its own cache line,
//! then the rings. The daemon makes it and seals its size: access to memory that shrank would kill the process.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fstat, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair,
};
use weft_ring::messages::Lane;
use weft_ring::{Mapped, Memory, signal};

/// Mapped shared memory.
#[derive(Debug)]
pub(crate) struct Page {
    memory: Mapped,
    file: OwnedFd,
}

/// Size of a page of memory, bytes.
const PAGE: usize = 4096;

impl Page {
    /// Size of a ring, bytes; a power of two, as indices wrap.
    pub(crate) const RING: u32 = 1 << 18;
    /// The ring of work requests, from the process to the daemon.
    pub(crate) const WORK: Lane = Lane { head: 0, tail: 64, start: PAGE, len: Self::RING };
    /// The ring of completions and events, from the daemon to the process.
    pub(crate) const NOTICES: Lane =
        Lane { head: 128, tail: 192, start: PAGE + Self::RING as usize, len: Self::RING };
    /// The offset of a flag that is set while the daemon sleeps and wants a signal for new work.
    pub(crate) const DAEMON_SLEEPS: usize = 256;
    /// The offset of a flag that is set while the process wants a signal for completions.
    pub(crate) const PROCESS_WAITS: usize = 320;
    /// The offset of a flag that is set while the daemon has records without room: it wants a signal when there is
    /// room.
    pub(crate) const DAEMON_STALLS: usize = 384;

    const LEN: usize = PAGE + 2 * Self::RING as usize;

    /// Creates new memory, all zeroes.
    ///
    /// # Errors
    /// There is no more memory, or no more descriptors.
    pub(crate) fn create() -> rustix::io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create("weft-device", flags)?;
        ftruncate(&file, Self::LEN as u64)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Self::map(file)
    }

    /// Maps memory that the daemon made.
    ///
    /// # Errors
    /// It has another length, or cannot be mapped.
    pub(crate) fn open(file: OwnedFd) -> rustix::io::Result<Self> {
        let expected = i64::try_from(Self::LEN).expect("a short length");
        if fstat(&file)?.st_size == expected { Self::map(file) } else { Err(Errno::PROTO) }
    }

    fn map(file: OwnedFd) -> rustix::io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: this is a new mapping, at an address that the kernel chooses.
        let base = unsafe {
            mmap(core::ptr::null_mut(), Self::LEN, protection, MapFlags::SHARED, &file, 0)?
        };
        let base = NonNull::new(base.cast()).ok_or(Errno::NOMEM)?;
        // SAFETY: the mapping has this length and exists until this is dropped; lanes and flags lie in it.
        let memory = unsafe { Mapped::new(base, Self::LEN) };
        Ok(Self { memory, file })
    }

    /// Returns the memory's descriptor, for the other side.
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Announces that this side goes to sleep or waits: the other side sends a signal with each later record. The
    /// caller must check now for records appended before.
    pub(crate) fn ask_for_signal(&self, flag: usize) {
        signal::arm::<Self>(self.word(flag));
    }

    /// Returns `true` if the other side wants a signal for the record just appended.
    pub(crate) fn wants_signal(&self, flag: usize) -> bool {
        signal::is_armed::<Self>(self.word(flag))
    }

    /// Announces that this side does not sleep any more and needs no signal.
    pub(crate) fn needs_no_signal(&self, flag: usize) {
        self.word(flag).store(0, Ordering::Relaxed);
    }
}

impl Memory for Page {
    type Word = AtomicU32;
    type Long = AtomicU64;

    #[inline]
    fn word(&self, at: usize) -> &AtomicU32 {
        self.memory.word(at)
    }

    #[inline]
    fn long(&self, at: usize) -> &AtomicU64 {
        self.memory.long(at)
    }

    #[inline]
    fn write(&self, at: usize, bytes: &[u8]) {
        self.memory.write(at, bytes);
    }

    #[inline]
    fn read(&self, at: usize, bytes: &mut [u8]) {
        self.memory.read(at, bytes);
    }

    #[inline]
    fn fence(order: Ordering) {
        Mapped::fence(order);
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping, and nothing refers to it any more. An error has no remedy.
        let _ = unsafe { munmap(self.memory.pointer(0, Self::LEN).cast(), Self::LEN) };
    }
}

/// One end of a pair through which either side wakes the other. It is a stream of bytes and not an `eventfd`: the
/// holder of an eventfd's other end can make a call on it block (`O_NONBLOCK` belongs to the file, not the descriptor),
/// and the daemon must never block on a client.
#[derive(Debug)]
pub(crate) struct Signal(OwnedFd);

impl Signal {
    /// Creates both ends.
    ///
    /// # Errors
    /// There are no more descriptors.
    pub(crate) fn pair() -> rustix::io::Result<[Self; 2]> {
        let (family, flags) = (AddressFamily::UNIX, SocketFlags::CLOEXEC);
        let (ours, theirs) = socketpair(family, SocketType::STREAM, flags, None)?;
        Ok([Self(ours), Self(theirs)])
    }

    /// Wraps an end that came from the daemon.
    pub(crate) const fn open(end: OwnedFd) -> Self {
        Self(end)
    }

    /// Wakes the other side.
    pub(crate) fn give(&self) {
        // A full socket already holds enough signals; a closed one has no sleeper.
        let _ = send(&self.0, &[0], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }

    /// Reads the signals that arrived.
    pub(crate) fn take(&self) {
        // Signals beyond the buffer are read next time; there may be none at all.
        let _ = recv(&self.0, &mut [0; 64], RecvFlags::DONTWAIT);
    }
}

impl AsFd for Signal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_the_memory_is_sealed() {
        let page = Page::create().unwrap();
        assert_eq!(ftruncate(page.file(), 0), Err(Errno::PERM));
        assert_eq!(ftruncate(page.file(), 1 << 30), Err(Errno::PERM));
    }

    #[test]
    fn both_mappings_have_the_same_bytes_and_flags() {
        let page = Page::create().unwrap();
        let other = Page::open(page.file().try_clone_to_owned().unwrap()).unwrap();
        Page::NOTICES.write(&page, Page::RING - 2, b"wraps");
        let mut bytes = [0; 5];
        Page::NOTICES.read(&other, Page::RING - 2, &mut bytes);
        assert_eq!(&bytes, b"wraps");
        assert!(!other.wants_signal(Page::DAEMON_SLEEPS));
        page.ask_for_signal(Page::DAEMON_SLEEPS);
        assert!(other.wants_signal(Page::DAEMON_SLEEPS));
        assert!(!other.wants_signal(Page::DAEMON_SLEEPS), "once");
    }

    #[test]
    fn memory_of_another_length_is_refused() {
        let file = memfd_create("short", MemfdFlags::CLOEXEC).unwrap();
        assert!(Page::open(file).is_err());
    }
}
