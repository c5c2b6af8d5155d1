//! Memory that its owner withdraws while it is mapped here.
//!
//! A front end may truncate the file whose pages it shares. An access to a page that is gone then
//! raises SIGBUS, which kills the process with all its tenants. So SIGBUS in a watched region
//! replaces the region with empty memory and sets a flag; the port that owns the region reads the
//! flag and stops.
#![expect(unsafe_code, reason = "a signal handler, and mmap(2) over a mapping of our own")]

use std::iter;
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use libc::{c_int, c_void, siginfo_t};

/// Entries allocated at a time.
const BLOCK: usize = 64;

/// The data that the handler may read: no lock, no allocation (signal-safety(7)).
#[derive(Debug)]
struct Entry {
    start: AtomicUsize,
    /// Zero: free.
    len: AtomicUsize,
    withdrawn: AtomicBool,
}

/// Entries, and the next block. Blocks are never freed, so that the handler may follow `next` at
/// any time; their number is the maximum ever needed at once, which the ports' quotas bound.
struct Block {
    entries: [Entry; BLOCK],
    next: AtomicPtr<Self>,
}

static FIRST: Block = Block::new();

impl Block {
    const fn new() -> Self {
        Self {
            entries: [const {
                Entry {
                    start: AtomicUsize::new(0),
                    len: AtomicUsize::new(0),
                    withdrawn: AtomicBool::new(false),
                }
            }; BLOCK],
            next: AtomicPtr::new(ptr::null_mut()),
        }
    }

    fn next(&self) -> Option<&'static Self> {
        // SAFETY: it is null, or a block that `next_or_new` leaked.
        unsafe { self.next.load(Ordering::Acquire).as_ref() }
    }

    /// Returns the next block, which is allocated if there is none.
    fn next_or_new(&self) -> &'static Self {
        if let Some(next) = self.next() {
            return next;
        }
        let made = Box::into_raw(Box::new(Self::new()));
        let none = ptr::null_mut();
        let set = self.next.compare_exchange(none, made, Ordering::AcqRel, Ordering::Acquire);
        // SAFETY: `made` comes from a box, and if another thread was first, no other thread has a pointer to it.
        // Whichever block is there now is never freed.
        unsafe {
            if set.is_err() {
                drop(Box::from_raw(made));
            }
            &*set.map_or_else(|other| other, |_| made)
        }
    }
}

/// Returns all blocks.
fn blocks() -> impl Iterator<Item = &'static Block> {
    iter::successors(Some(&FIRST), |block| block.next())
}

/// A mapped region that is watched for the lifetime of this value, which must not exceed the
/// mapping's.
#[derive(Debug)]
pub(super) struct Watched {
    entry: &'static Entry,
}

impl Watched {
    /// Watches `len` bytes at `start`.
    pub(super) fn new(start: usize, len: usize) -> Self {
        static HANDLER: Once = Once::new();
        HANDLER.call_once(install);
        let free = |entry: &&Entry| {
            // A length that contains no address reserves the entry until its start is set.
            entry.len.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let mut block = &FIRST;
        let entry = loop {
            match block.entries.iter().find(free) {
                Some(entry) => break entry,
                None => block = block.next_or_new(),
            }
        };
        entry.withdrawn.store(false, Ordering::Relaxed);
        entry.start.store(start, Ordering::Relaxed);
        entry.len.store(len, Ordering::Release);
        Self { entry }
    }

    pub(super) fn is_withdrawn(&self) -> bool {
        self.entry.withdrawn.load(Ordering::Acquire)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.entry.start.store(0, Ordering::Relaxed);
        self.entry.len.store(0, Ordering::Release);
    }
}

/// The previous handler of SIGBUS.
static mut PREVIOUS: std::mem::MaybeUninit<libc::sigaction> = std::mem::MaybeUninit::uninit();

fn install() {
    // SAFETY: `sigaction` is made of integers and a set, for which zero is a value; the handler is of the type that
    // SA_SIGINFO asks for, and it and the previous one live forever. `PREVIOUS` is written here, once, before the
    // handler is there to read it.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_bus_error as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigaction(libc::SIGBUS, ptr::null(), (&raw mut PREVIOUS).cast());
        libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut());
    }
}

/// Runs on the thread that accessed the page, which continues with the empty one.
extern "C" fn on_bus_error(_signal: c_int, info: *mut siginfo_t, _context: *mut c_void) {
    // SAFETY: the kernel passes the description of the signal, and SIGBUS has an address.
    let address = unsafe { (*info).si_addr() } as usize;
    for entry in blocks().flat_map(|block| &block.entries) {
        let len = entry.len.load(Ordering::Acquire);
        let start = entry.start.load(Ordering::Relaxed);
        if start == 0 || address < start || address - start >= len {
            continue;
        }
        // SAFETY: the whole range is a mapping that this process made and that contains only guest memory, which is
        // read and written as if it changed at any time; it is replaced by another of the same size and rights. mmap(2)
        // is a bare system call.
        let replaced = unsafe {
            let (rights, how) = (
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            );
            libc::mmap(start as *mut c_void, len, rights, how, -1, 0)
        };
        if replaced != libc::MAP_FAILED {
            entry.withdrawn.store(true, Ordering::Release);
            return;
        }
    }
    // The address is in no watched region. The previous handler is restored, and receives the signal when the
    // instruction is retried.
    // SAFETY: `install` has filled `PREVIOUS` before this handler could run.
    unsafe {
        libc::sigaction(libc::SIGBUS, (&raw const PREVIOUS).cast(), ptr::null_mut());
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use vhost::vhost_user::message::VhostUserMemoryRegion;

    use super::super::memory::Memory;
    use super::{BLOCK, Watched};

    /// Checks that the regions of one front end take no place from those of another.
    #[test]
    fn the_number_of_watched_regions_is_unlimited() {
        // At addresses that are never accessed: those of the first page are never mapped.
        let watched: Vec<_> = (1..70 * BLOCK).map(|at| Watched::new(at, 1)).collect();
        assert!(watched.iter().all(|region| !region.is_withdrawn()));
        drop(watched);
        let blocks = super::blocks().count();
        let again: Vec<_> = (1..69 * BLOCK).map(|at| Watched::new(at, 1)).collect();
        assert_eq!((again.len(), super::blocks().count()), (69 * BLOCK - 1, blocks));
    }

    #[test]
    fn withdrawn_memory_reads_as_zero_and_is_flagged() {
        let shared = |name: &str| {
            let file = File::from(memfd_create(name, MemfdFlags::CLOEXEC).unwrap());
            ftruncate(&file, 1 << 16).unwrap();
            file
        };
        let region = |at| VhostUserMemoryRegion::new(at, 1 << 16, 0x7000_0000 + at, 0);
        let (taken, kept) = (shared("taken"), shared("kept"));
        let table = vec![
            (region(0), taken.try_clone().unwrap()),
            (region(1 << 20), kept.try_clone().unwrap()),
        ];
        let memory = Memory::map(table, 2).unwrap();
        memory.write(100, b"here").unwrap();
        memory.write((1 << 20) + 100, b"here").unwrap();
        ftruncate(&taken, 0).unwrap();
        assert!(!memory.is_withdrawn());
        let mut bytes = *b"....";
        memory.read(100, &mut bytes).unwrap();
        assert_eq!((&bytes, memory.is_withdrawn()), (&[0; 4], true));
        memory.write(60_000, b"nowhere").unwrap();
        // The other region is unchanged.
        memory.read((1 << 20) + 100, &mut bytes).unwrap();
        assert_eq!(&bytes, b"here");
    }
}
