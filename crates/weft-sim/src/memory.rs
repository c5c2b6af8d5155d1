//! Huge pages for programs that simulate.
//!
//! The state of a large world's hosts is megabytes in small pieces, all visited once per lookahead window. On pages of
//! 4 KiB, each access to a piece begins with a TLB miss, and each page's first use is a fault. Linux gives a program
//! huge pages on request (`transparent_hugepage` is `madvise` on most systems), and the GNU allocator does not request
//! them.

/// The increment of the heap, bytes of address space; only touched pages use memory.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const RESERVED: usize = 1 << 30;
/// The size from which an allocation gets a mapping of its own, bytes: the allocator's largest.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const MAX_HEAP_ALLOCATION: usize = 32 << 20;

/// Requests huge pages for the main thread's heap from here on, where the system has them and the allocator is
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

#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod glibc {
    use std::hint::black_box;

    use super::{MAX_HEAP_ALLOCATION, RESERVED};

    #[expect(unsafe_code, reason = "the allocator's settings and the program break are C's")]
    pub(super) fn prefer_huge_pages() {
        let setting = |bytes: usize| libc::c_int::try_from(bytes).expect("below 2 GiB");
        // SAFETY: both change how the allocator requests memory from the kernel, not memory already allocated.
        unsafe {
            libc::mallopt(libc::M_TOP_PAD, setting(RESERVED));
            libc::mallopt(libc::M_MMAP_THRESHOLD, setting(MAX_HEAP_ALLOCATION));
        }
        // SAFETY: an increment of zero only reads the end of the heap.
        let before = unsafe { libc::sbrk(0) };
        // Too large for the free part of the heap, too small for a mapping of its own.
        drop(black_box(Vec::<u8>::with_capacity(MAX_HEAP_ALLOCATION / 2)));
        // SAFETY: as above.
        let after = unsafe { libc::sbrk(0) };
        let grown = after.addr().saturating_sub(before.addr());
        if grown > 0 {
            // SAFETY: this only advises the kernel on how to back the heap, which is this process's own; its content
            // does not change. If refused, it has no effect.
            unsafe { libc::madvise(before, grown, libc::MADV_HUGEPAGE) };
        }
    }

    #[expect(unsafe_code, reason = "the allocator's counters are C's")]
    pub(super) fn allocated_bytes() -> usize {
        // SAFETY: this only reads the allocator's counters.
        let counters = unsafe { libc::mallinfo2() };
        // Bytes on the heaps, and in separate mappings.
        counters.uordblks + counters.hblkhd
    }
}
