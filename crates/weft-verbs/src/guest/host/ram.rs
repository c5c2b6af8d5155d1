//! A guest's memory on the host: a file that QEMU maps too. The relay maps the pages of a registered region one after
//! the other, so that the daemon finds the region at one range of addresses, through the relay's `/proc/self/mem`. A
//! page that does not exist cannot be mapped, and so cannot be reached.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

use crate::attach::Run;
use crate::guest::PAGE;

/// The physical address below which memory lies from address zero on. The rest begins at 4 GiB: so QEMU's machines do
/// it with `max-ram-below-4g=2G`.
const BELOW: u64 = 2 << 30;
const ABOVE: u64 = 4 << 30;

/// Maximum number of mappings of one relay for its guest. Linux allows a process 65,530 by default (`vm.max_map_count`).
const MAX_MAPPINGS: usize = 48 << 10;

/// Maximum number of times that all of the memory is mapped: page tables take a 512th of what they map, and belong to no
/// quota of the guest's.
const MAX_TIMES: u64 = 4;

/// The length of what one system call unmaps, bytes. It keeps the daemon from this process's memory meanwhile, and the
/// daemon ends clients whose memory it waits for.
const UNMAPPED_AT_ONCE: usize = 64 << 20;

/// The memory of a guest.
#[derive(Debug)]
pub(super) struct Ram {
    file: OwnedFd,
    /// Its size, bytes.
    len: u64,
    /// Number of runs of pages that are mapped.
    runs: AtomicUsize,
    /// Number of pages that are mapped, each as often as it is.
    pages: AtomicU64,
}

/// The reason that pages are not mapped.
#[derive(Debug, thiserror::Error)]
pub(super) enum MapError {
    #[error("a page is outside the guest's memory")]
    Outside,
    #[error(
        "the guest's registered memory lies in more than {MAX_MAPPINGS} pieces: use huge pages"
    )]
    TooMany,
    #[error("the guest has registered more than {MAX_TIMES} times its memory: deregister regions")]
    TooMuch,
    #[error("the relay cannot map the pages")]
    Kernel(#[from] rustix::io::Errno),
}

impl Ram {
    /// Creates memory of this size, bytes: a file that cannot change its size.
    ///
    /// # Errors
    /// There are no more descriptors, or the size is larger than a file's.
    pub(super) fn create(len: u64) -> io::Result<Self> {
        let file = sealed("weft-guest-ram", len)?;
        Ok(Self { file, len, runs: AtomicUsize::new(0), pages: AtomicU64::new(0) })
    }

    /// Returns the size, bytes.
    pub(super) const fn len(&self) -> u64 {
        self.len
    }

    /// Returns the offset of pages in the file; `None` if they are not all the guest's memory.
    fn offset(&self, run: Run) -> Option<u64> {
        let start = run.first.checked_mul(PAGE)?;
        let len = u64::from(run.pages) * PAGE;
        let low = self.len.min(BELOW);
        if len == 0 {
            return None;
        }
        if start.checked_add(len)? <= low {
            return Some(start);
        }
        let offset = start.checked_sub(ABOVE)?.checked_add(low)?;
        (offset.checked_add(len)? <= self.len).then_some(offset)
    }

    /// Checks that pages are the guest's memory.
    pub(super) fn check(&self, run: Run) -> Result<(), MapError> {
        self.offset(run).map(drop).ok_or(MapError::Outside)
    }

    /// Returns eight bytes at an address whose page is the only one of `pages`.
    pub(super) fn word(&self, pages: &[Run], address: u64) -> Option<u64> {
        let [run @ Run { pages: 1, .. }] = *pages else { return None };
        let mut bytes = [0; 8];
        if address % PAGE > PAGE - 8 {
            return None;
        }
        let read = rustix::io::pread(&self.file, &mut bytes, self.offset(run)? + address % PAGE);
        (read == Ok(8)).then_some(u64::from_ne_bytes(bytes))
    }

    /// Maps pages one after the other.
    ///
    /// # Errors
    /// See [`MapError`].
    pub(super) fn map(self: &Arc<Self>, runs: &[Run]) -> Result<Mapping, MapError> {
        let pages: u64 = runs.iter().map(|run| u64::from(run.pages)).sum();
        let len = usize::try_from(pages * PAGE).map_err(|_| MapError::Outside)?;
        let mut mapping = Mapping { start: 0, len: 0, runs: runs.len(), pages, ram: self.clone() };
        let [runs_before, pages_before] = [
            self.runs.fetch_add(runs.len(), Ordering::Relaxed) as u64,
            self.pages.fetch_add(pages, Ordering::Relaxed),
        ];
        if runs_before + runs.len() as u64 > MAX_MAPPINGS as u64 {
            return Err(MapError::TooMany);
        }
        if pages_before + pages > MAX_TIMES * (self.len / PAGE) {
            return Err(MapError::TooMuch);
        }
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), len, ProtFlags::empty(), flags)? };
        (mapping.start, mapping.len) = (start.expose_provenance(), len);
        let mut at = mapping.start;
        for &run in runs {
            let offset = self.offset(run).ok_or(MapError::Outside)?;
            let len = usize::try_from(u64::from(run.pages) * PAGE).expect("a part of the sum");
            let (place, flags) =
                (ptr::with_exposed_provenance_mut(at), MapFlags::SHARED | MapFlags::FIXED);
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            // SAFETY: it replaces a part of the mapping above, to which no value refers.
            unsafe { mmap(place, len, protection, flags, &self.file, offset)? };
            at += len;
        }
        Ok(mapping)
    }
}

impl AsFd for Ram {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Creates a file in memory that keeps its size, bytes.
pub(super) fn sealed(name: &str, len: u64) -> io::Result<OwnedFd> {
    let file = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&file, len)?;
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(file)
}

/// Pages of a guest, mapped one after the other for as long as this exists.
#[derive(Debug)]
pub(super) struct Mapping {
    start: usize,
    len: usize,
    runs: usize,
    pages: u64,
    ram: Arc<Ram>,
}

impl Mapping {
    /// Returns the address of the first page.
    pub(super) const fn address(&self) -> u64 {
        self.start as u64
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        for offset in (0..self.len).step_by(UNMAPPED_AT_ONCE) {
            let start = ptr::with_exposed_provenance_mut(self.start + offset);
            // SAFETY: this value owns the mapping, and no value of Rust refers to it. An error has no remedy.
            let _ = unsafe { munmap(start, UNMAPPED_AT_ONCE.min(self.len - offset)) };
        }
        self.ram.runs.fetch_sub(self.runs, Ordering::Relaxed);
        self.ram.pages.fetch_sub(self.pages, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn run(first: u64, pages: u32) -> Run {
        Run { first, pages }
    }

    #[test]
    fn pages_are_below_two_gibibytes_or_above_four_and_within_the_memory() {
        let ram = Ram::create(3 << 30).unwrap();
        let page = |address: u64| address / PAGE;
        assert_eq!(ram.offset(run(0, 1)), Some(0));
        assert_eq!(ram.offset(run(page(BELOW) - 1, 1)), Some(BELOW - PAGE));
        assert_eq!(ram.offset(run(page(ABOVE), 2)), Some(BELOW));
        assert_eq!(ram.offset(run(page(5 << 30) - 1, 1)), Some((3 << 30) - PAGE));
        let outside = [
            run(0, 0),
            run(page(BELOW) - 1, 2),
            run(page(BELOW), 1),
            run(page(ABOVE) - 1, 2),
            run(page(5 << 30), 1),
            run(page(5 << 30) - 1, 2),
            run(u64::MAX, 1),
            run(u64::MAX / PAGE, u32::MAX),
        ];
        for run in outside {
            assert_eq!(ram.offset(run), None, "{run:?}");
        }
        let small = Ram::create(1 << 20).unwrap();
        assert_eq!(
            (small.offset(run(255, 1)), small.offset(run(255, 2))),
            (Some(255 * PAGE), None)
        );
        assert_eq!(small.offset(run(page(ABOVE), 1)), None);
    }

    #[test]
    fn a_word_is_read_from_the_one_page_that_is_named() {
        let ram = Ram::create(1 << 20).unwrap();
        rustix::io::pwrite(&ram, &7_u64.to_ne_bytes(), 5 * PAGE + 16).unwrap();
        assert_eq!(ram.word(&[run(5, 1)], 0x7000_0010), Some(7));
        assert_eq!(ram.word(&[run(6, 1)], 0x7000_0010), Some(0));
        for pages in [&[][..], &[run(5, 2)], &[run(5, 1), run(6, 1)], &[run(256, 1)]] {
            assert_eq!(ram.word(pages, 0x7000_0010), None, "{pages:?}");
        }
        assert_eq!(ram.word(&[run(5, 1)], PAGE - 7), None, "it would pass the page's end");
    }

    #[test]
    fn scattered_pages_are_one_range_and_are_unmapped_with_it() {
        let ram = Arc::new(Ram::create(1 << 20).unwrap());
        for page in 0..256_u64 {
            rustix::io::pwrite(&ram, &page.to_ne_bytes(), page * PAGE).unwrap();
        }
        let memory = std::fs::File::open("/proc/self/mem").unwrap();
        let read = |address: u64| {
            let mut bytes = [0; 8];
            rustix::io::pread(&memory, &mut bytes, address).map(|_| u64::from_ne_bytes(bytes))
        };
        let mapping = ram.map(&[run(7, 2), run(3, 1), run(7, 1)]).unwrap();
        let found = [0, 1, 2, 3].map(|page| read(mapping.address() + page * PAGE).unwrap());
        assert_eq!(found, [7, 8, 3, 7]);
        let mapped = || (ram.runs.load(Ordering::Relaxed), ram.pages.load(Ordering::Relaxed));
        assert_eq!(mapped(), (3, 4));
        drop(mapping);
        assert_eq!(mapped(), (0, 0));
        assert!(matches!(ram.map(&[run(0, 1), run(256, 1)]), Err(MapError::Outside)));
        let many = vec![run(0, 1); MAX_MAPPINGS + 1];
        assert!(matches!(ram.map(&many), Err(MapError::TooMany)));
        assert_eq!(mapped(), (0, 0));
    }

    #[test]
    fn all_regions_together_are_four_times_the_memory_at_most() {
        let ram = Arc::new(Ram::create(1 << 20).unwrap());
        let all = run(0, 256);
        let mappings = [ram.map(&[all; 3]).unwrap(), ram.map(&[run(0, 255)]).unwrap()];
        assert!(matches!(ram.map(&[run(0, 2)]), Err(MapError::TooMuch)));
        let last = ram.map(&[run(0, 1)]).unwrap();
        drop((mappings, last));
        ram.map(&[all; 4]).unwrap();
    }

    #[test]
    fn a_long_range_is_unmapped_to_its_end() {
        let ram = Arc::new(Ram::create(256 << 20).unwrap());
        let pages = u32::try_from(UNMAPPED_AT_ONCE as u64 / PAGE).unwrap();
        let mapping = ram.map(&[run(0, pages), run(7, pages), run(3, 5)]).unwrap();
        let addresses = (mapping.start..mapping.start + mapping.len).step_by(4096);
        let is_mapped = |start: &usize| {
            // SAFETY: it changes nothing.
            unsafe { libc::msync(ptr::with_exposed_provenance_mut(*start), 1, libc::MS_ASYNC) == 0 }
        };
        let all = addresses.len();
        assert_eq!(addresses.clone().filter(is_mapped).count(), all);
        drop(mapping);
        // Other threads may have used some of the addresses again.
        assert!(addresses.filter(is_mapped).count() < all / 4);
    }
}
