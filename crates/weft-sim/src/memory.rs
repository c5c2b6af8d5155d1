//! Huge pages for programs that simulate.
//!
//! The state of a large world's hosts is megabytes in small pieces, all visited once per lookahead window. On pages of
//! 4 KiB, each access to a piece begins with a TLB miss, and each page's first use is a fault. Linux gives a program
//! huge pages on request (`transparent_hugepage` is `madvise` on most systems), and the GNU allocator does not request
//! them.

/// The increment of the heap once its first region is used up, bytes of address space; only touched pages use memory.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const RESERVED: usize = 1 << 30;
/// The size from which an allocation gets a mapping of its own, bytes: the allocator's largest.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const MAX_HEAP_ALLOCATION: usize = 32 << 20;

/// Requests huge pages for the heap from here on, and one heap for all threads, where the system has them and the allocator is
/// glibc's; does nothing elsewhere. A program calls it once, before it builds a world: it affects the whole process.
/// It changes only time and memory (at most one huge page more per use).
pub fn prefer_huge_pages() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    glibc::prefer_huge_pages();
}

/// Returns the bytes that the program has allocated and not freed; `None` where the allocator is not glibc's.
pub fn allocated_bytes() -> Option<usize> {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    return Some(glibc::allocated_bytes());
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    None
}

/// Returns the bytes of memory that programs can still use without swapping; `None` where the kernel does not say it as
/// Linux does.
pub fn available_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod glibc {
    use std::hint::black_box;

    use super::{MAX_HEAP_ALLOCATION, RESERVED};

    /// The allocator's default limit on the number of separate mappings.
    const MAX_MAPPINGS: libc::c_int = 65_536;

    #[expect(unsafe_code, reason = "the allocator's settings and the program break are C's")]
    pub(super) fn prefer_huge_pages() {
        let setting = |bytes: usize| libc::c_int::try_from(bytes).expect("below 2 GiB");
        // SAFETY: these change how the allocator requests memory from the kernel, not memory already allocated. It keeps
        // free memory at the end of the heap, and the next allocation comes from the heap whatever its size.
        unsafe {
            // The heaps of other threads would have small pages.
            libc::mallopt(libc::M_ARENA_MAX, 1);
            libc::mallopt(libc::M_TOP_PAD, setting(RESERVED));
            libc::mallopt(libc::M_MMAP_THRESHOLD, setting(MAX_HEAP_ALLOCATION));
            libc::mallopt(libc::M_TRIM_THRESHOLD, -1);
            libc::mallopt(libc::M_MMAP_MAX, 0);
        }
        // SAFETY: an increment of zero only reads the end of the heap.
        let before = unsafe { libc::sbrk(0) };
        grow_heap();
        // SAFETY: as above.
        let after = unsafe { libc::sbrk(0) };
        // SAFETY: as above; large allocations may have mappings of their own again.
        unsafe { libc::mallopt(libc::M_MMAP_MAX, MAX_MAPPINGS) };
        let grown = after.addr().saturating_sub(before.addr());
        if grown > 0 {
            // SAFETY: this only advises the kernel on how to back the heap, which is this process's own; its content
            // does not change. If refused, it has no effect.
            unsafe { libc::madvise(before, grown, libc::MADV_HUGEPAGE) };
        }
    }

    /// Grows the heap by address space for three quarters of the machine's memory, or for as much as the system permits.
    /// The kernel would not extend the region with huge pages when the heap grows later.
    fn grow_heap() {
        let mut bytes = physical_memory() / 4 * 3;
        while bytes >= MAX_HEAP_ALLOCATION {
            let mut region = Vec::<u8>::new();
            if region.try_reserve_exact(bytes).is_ok() {
                drop(black_box(region));
                return;
            }
            bytes /= 2;
        }
    }

    /// Returns the bytes of the machine's memory; zero if the system does not report them.
    #[expect(unsafe_code, reason = "the system's settings are C's")]
    fn physical_memory() -> usize {
        // SAFETY: these only read the system's settings.
        let (pages, page) =
            unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
        let both = usize::try_from(pages).ok().zip(usize::try_from(page).ok());
        both.map_or(0, |(pages, page)| pages.saturating_mul(page))
    }

    #[expect(unsafe_code, reason = "the allocator's counters are C's")]
    pub(super) fn allocated_bytes() -> usize {
        // SAFETY: this only reads the allocator's counters.
        let counters = unsafe { libc::mallinfo2() };
        // Bytes on the heaps, and in separate mappings.
        counters.uordblks + counters.hblkhd
    }
}
