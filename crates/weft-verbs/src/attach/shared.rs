//! The memory that a process and the daemon share: indices and flags in the first page, each on its own cache line,
//! then the rings. The daemon makes it and seals its size: access to memory that shrank would kill the process.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{
    MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, fstatfs, ftruncate,
    memfd_create,
};
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

    /// The size of all of it, bytes.
    pub(crate) const LEN: usize = PAGE + 2 * Self::RING as usize;

    /// The maximum size of another party's file, bytes: that of a guest with all its ports. Whoever closes the last
    /// descriptor of a file frees its memory, at about a gigabyte a second.
    const MAX_FILE: u64 = 64 << 20;

    /// Creates new memory, all zeroes.
    ///
    /// # Errors
    /// There is no more memory, or no more descriptors.
    pub(crate) fn create() -> rustix::io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create("weft-device", flags)?;
        ftruncate(&file, Self::LEN as u64)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Self::map(file, 0)
    }

    /// Maps memory that the daemon made.
    ///
    /// # Errors
    /// It has another length, or cannot be mapped.
    pub(crate) fn open(file: OwnedFd) -> rustix::io::Result<Self> {
        let expected = i64::try_from(Self::LEN).expect("a short length");
        if fstat(&file)?.st_size == expected { Self::map(file, 0) } else { Err(Errno::PROTO) }
    }

    /// Maps memory in a part of a file, from `offset` on.
    ///
    /// # Errors
    /// The offset is no multiple of a page, the file is too short, or it cannot be mapped.
    pub(crate) fn open_in(file: OwnedFd, offset: u64) -> rustix::io::Result<Self> {
        let size = u64::try_from(fstat(&file)?.st_size).map_err(|_| Errno::INVAL)?;
        let fits = offset.checked_add(Self::LEN as u64).is_some_and(|end| end <= size);
        let is_aligned = offset.is_multiple_of(PAGE as u64);
        if fits && is_aligned { Self::map(file, offset) } else { Err(Errno::INVAL) }
    }

    /// Returns `true` if the bytes of another party's file stay there, and are few: it is memory, without huge pages,
    /// which may run out, and keeps its size. The kernel itself answers these calls for such files, and the first for
    /// all.
    pub(crate) fn is_lasting(file: BorrowedFd<'_>) -> bool {
        const TMPFS: rustix::fs::FsWord = 0x0102_1994;
        let size = SealFlags::SHRINK | SealFlags::GROW;
        let is_sealed = fcntl_get_seals(file).is_ok_and(|seals| seals.contains(size));
        let is_small = || {
            let size = fstat(file).ok().and_then(|about| u64::try_from(about.st_size).ok());
            size.is_some_and(|size| size <= Self::MAX_FILE)
        };
        is_sealed && fstatfs(file).is_ok_and(|about| about.f_type == TMPFS) && is_small()
    }

    fn map(file: OwnedFd, offset: u64) -> rustix::io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: this is a new mapping, at an address that the kernel chooses.
        let base = unsafe {
            mmap(core::ptr::null_mut(), Self::LEN, protection, MapFlags::SHARED, &file, offset)?
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

    /// Waits until the other end is closed.
    pub(crate) fn wait_for_end(&self) {
        // Without events to wait for, poll(2) returns for the end alone; it may be interrupted.
        let is_open = |watched: &mut [PollFd<'_>]| poll(watched, None) != Ok(1);
        while is_open(&mut [PollFd::new(&self.0, PollFlags::empty())]) {}
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
    fn memory_in_a_part_of_a_file_is_within_it_and_on_a_page() {
        let file = memfd_create("bar", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&file, 2 << 20).unwrap();
        let open = |offset| Page::open_in(file.try_clone().unwrap(), offset).map(drop);
        assert_eq!((open(0), open(1 << 20)), (Ok(()), Ok(())));
        for offset in [100, (2 << 20) - Page::LEN as u64 + 4096, 2 << 20, u64::MAX - 4095] {
            assert_eq!(open(offset), Err(Errno::INVAL), "{offset}");
        }
        assert!(!Page::is_lasting(file.as_fd()), "it may shrink");
        fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
        assert!(!Page::is_lasting(file.as_fd()), "it may grow");
        fcntl_add_seals(&file, SealFlags::GROW).unwrap();
        assert!(Page::is_lasting(file.as_fd()));
        let other = std::fs::File::open("/dev/null").unwrap();
        assert!(!Page::is_lasting(other.as_fd()));
    }

    #[test]
    fn a_file_for_rings_is_as_large_as_that_of_all_a_guest_s_ports() {
        let is_lasting = |size| {
            let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
            let file = memfd_create("bar", flags).unwrap();
            ftruncate(&file, size).unwrap();
            fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW).unwrap();
            Page::is_lasting(file.as_fd())
        };
        assert_eq!([64 << 20, (64 << 20) + 1].map(is_lasting), [true, false]);
    }

    #[test]
    fn memory_of_another_length_is_refused() {
        let file = memfd_create("short", MemfdFlags::CLOEXEC).unwrap();
        assert!(Page::open(file).is_err());
    }
}
