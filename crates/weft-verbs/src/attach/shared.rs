//! The memory that a process and the daemon share: indices and flags in the first page, each on a cache line of
//! its own, then the rings. The daemon makes it, and seals its size: memory that shrank would kill who touches
//! it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fstat, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair,
};

/// Where one ring is: its indices, and its bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lane {
    pub(super) head: usize,
    pub(super) tail: usize,
    start: usize,
}

/// Shared memory, mapped.
#[derive(Debug)]
pub(crate) struct Page {
    base: NonNull<u8>,
    file: OwnedFd,
}

// SAFETY: it is memory that others write at any time anyway: it is reached through atomics and copies only.
unsafe impl Send for Page {}
// SAFETY: likewise.
unsafe impl Sync for Page {}

/// Bytes of a page of memory.
const PAGE: usize = 4096;

impl Page {
    /// Bytes of a ring; a power of two, as indices wrap.
    pub(crate) const RING: u32 = 1 << 18;
    /// Work requests, from the process to the daemon.
    pub(crate) const WORK: Lane = Lane { head: 0, tail: 64, start: PAGE };
    /// Completions and events, from the daemon to the process.
    pub(crate) const TOLD: Lane = Lane { head: 128, tail: 192, start: PAGE + Self::RING as usize };
    /// Set while the daemon sleeps, and wants to be woken for work.
    pub(crate) const DAEMON_SLEEPS: usize = 256;
    /// Set while the process wants to be woken for completions.
    pub(crate) const PROCESS_WAITS: usize = 320;
    /// Set while the daemon could not tell all there is: it wants to be woken when there is room.
    pub(crate) const DAEMON_STALLS: usize = 384;

    const LEN: usize = PAGE + 2 * Self::RING as usize;

    /// New memory, of zeroes.
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

    /// Memory that the daemon made.
    ///
    /// # Errors
    /// It is of another length, or cannot be mapped.
    pub(crate) fn open(file: OwnedFd) -> rustix::io::Result<Self> {
        let expected = i64::try_from(Self::LEN).expect("a short length");
        if fstat(&file)?.st_size == expected { Self::map(file) } else { Err(Errno::PROTO) }
    }

    fn map(file: OwnedFd) -> rustix::io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, at a place that the kernel chooses.
        let base = unsafe {
            mmap(core::ptr::null_mut(), Self::LEN, protection, MapFlags::SHARED, &file, 0)?
        };
        let base = NonNull::new(base.cast()).ok_or(Errno::NOMEM)?;
        Ok(Self { base, file })
    }

    /// The memory, for the other side.
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// A word of the first page.
    pub(crate) fn index(&self, offset: usize) -> &AtomicU32 {
        debug_assert!(offset < PAGE && offset.is_multiple_of(4));
        // SAFETY: it lies in the mapping and is aligned; whoever writes there does it atomically, or harms
        // himself.
        unsafe { AtomicU32::from_ptr(self.base.as_ptr().add(offset).cast()) }
    }

    /// Copies bytes into a ring, from this index on.
    pub(super) fn write(&self, lane: Lane, index: u32, bytes: &[u8]) {
        let (at, first) = cut(index, bytes.len());
        // SAFETY: both parts lie in the ring, and the bytes are ours.
        unsafe {
            let ring = self.base.as_ptr().add(lane.start);
            core::ptr::copy_nonoverlapping(bytes.as_ptr(), ring.add(at), first);
            core::ptr::copy_nonoverlapping(bytes.as_ptr().add(first), ring, bytes.len() - first);
        }
    }

    /// Copies bytes out of a ring, from this index on. The other side may change them meanwhile: what was
    /// copied is what counts.
    pub(super) fn read(&self, lane: Lane, index: u32, bytes: &mut [u8]) {
        let (at, first) = cut(index, bytes.len());
        // SAFETY: both parts lie in the ring, and the bytes are ours.
        unsafe {
            let ring = self.base.as_ptr().add(lane.start);
            core::ptr::copy_nonoverlapping(ring.add(at), bytes.as_mut_ptr(), first);
            let rest = bytes.len() - first;
            core::ptr::copy_nonoverlapping(ring, bytes.as_mut_ptr().add(first), rest);
        }
    }

    /// Says that this side is going to sleep, or waits: from here on whatever the other side appends comes
    /// with a signal. What it appended before must be looked for now.
    pub(crate) fn ask_for_signal(&self, flag: usize) {
        self.index(flag).store(1, Ordering::Relaxed);
        // The flag is seen before what is looked for now is.
        fence(Ordering::SeqCst);
    }

    /// Whether the other side wants a signal for what was appended just now.
    pub(crate) fn wants_signal(&self, flag: usize) -> bool {
        // What was appended is seen before the flag is looked at.
        fence(Ordering::SeqCst);
        let flag = self.index(flag);
        flag.load(Ordering::Relaxed) != 0 && flag.swap(0, Ordering::Relaxed) != 0
    }

    /// This side does not sleep any more.
    pub(crate) fn needs_no_signal(&self, flag: usize) {
        self.index(flag).store(0, Ordering::Relaxed);
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: the mapping is this one's, and nothing refers to it any more. That it can fail is of no use.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), Self::LEN) };
    }
}

/// Where an index points, and how many of `len` bytes are there before the ring's end.
///
/// # Panics
/// If the ring is not as long.
fn cut(index: u32, len: usize) -> (usize, usize) {
    assert!(len <= Page::RING as usize, "a record fits into its ring");
    let at = (index % Page::RING) as usize;
    (at, len.min(Page::RING as usize - at))
}

/// One end of a pair through which either side wakes the other. A stream of bytes, and not an `eventfd`: that
/// who holds the other end may make a call on it wait (`O_NONBLOCK` is the file's, not the descriptor's), and
/// the daemon waits for nobody.
#[derive(Debug)]
pub(crate) struct Signal(OwnedFd);

impl Signal {
    /// Both ends.
    ///
    /// # Errors
    /// There are no more descriptors.
    pub(crate) fn pair() -> rustix::io::Result<[Self; 2]> {
        let (family, flags) = (AddressFamily::UNIX, SocketFlags::CLOEXEC);
        let (ours, theirs) = socketpair(family, SocketType::STREAM, flags, None)?;
        Ok([Self(ours), Self(theirs)])
    }

    /// An end that came from the daemon.
    pub(crate) const fn open(end: OwnedFd) -> Self {
        Self(end)
    }

    /// Wakes the other side.
    pub(crate) fn give(&self) {
        // Where there is no room, signals enough are waiting; where there is nobody, nobody sleeps.
        let _ = send(&self.0, &[0], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }

    /// Takes the signals that came.
    pub(crate) fn take(&self) {
        // What does not fit here is seen at the next look; there may be none at all.
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
    fn its_size_stays() {
        let page = Page::create().unwrap();
        assert_eq!(ftruncate(page.file(), 0), Err(Errno::PERM));
        assert_eq!(ftruncate(page.file(), 1 << 30), Err(Errno::PERM));
    }

    #[test]
    fn both_see_what_one_writes() {
        let page = Page::create().unwrap();
        let other = Page::open(page.file().try_clone_to_owned().unwrap()).unwrap();
        page.write(Page::TOLD, Page::RING - 2, b"wraps");
        let mut bytes = [0; 5];
        other.read(Page::TOLD, Page::RING - 2, &mut bytes);
        assert_eq!(&bytes, b"wraps");
        assert!(!other.wants_signal(Page::DAEMON_SLEEPS));
        page.ask_for_signal(Page::DAEMON_SLEEPS);
        assert!(other.wants_signal(Page::DAEMON_SLEEPS));
        assert!(!other.wants_signal(Page::DAEMON_SLEEPS), "once");
    }

    #[test]
    fn memory_of_another_length_is_not_it() {
        let file = memfd_create("short", MemfdFlags::CLOEXEC).unwrap();
        assert!(Page::open(file).is_err());
    }
}
