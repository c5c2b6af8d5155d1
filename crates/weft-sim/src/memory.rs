//! Huge pages for programs that simulate.
//!
//! What a large world's hosts know is megabytes in small pieces, all of it visited once a day of simulated
//! time. On pages of 4 KiB, fetching a piece begins with finding its page, and each page's first use is a
//! fault. Linux gives a program huge pages where it asks for them (`transparent_hugepage` is `madvise`
//! on most systems), which the GNU allocator does not.

/// The heap grows at once by so much address space; memory is what is touched of it.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const RESERVED: usize = 1 << 30;
/// What is longer has a mapping of its own, which is the most that the allocator lets one choose.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const LONGEST: usize = 32 << 20;

/// Has the main thread's heap from here on lie on huge pages, where the system has them and the allocator is
/// glibc's; does nothing elsewhere. For a program to call once, before it builds a world: it concerns the
/// whole process. Nothing but time and memory depends on it (at most a huge page more for each use).
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

    use super::{LONGEST, RESERVED};

    #[expect(unsafe_code, reason = "the allocator's settings and the program break are C's")]
    pub(super) fn prefer_huge_pages() {
        let setting = |bytes: usize| libc::c_int::try_from(bytes).expect("below 2 GiB");
        // SAFETY: both change how the allocator asks the kernel for memory, not what it gave out.
        unsafe {
            libc::mallopt(libc::M_TOP_PAD, setting(RESERVED));
            libc::mallopt(libc::M_MMAP_THRESHOLD, setting(LONGEST));
        }
        // SAFETY: an increment of zero only asks where the heap ends.
        let before = unsafe { libc::sbrk(0) };
        // Too long for what the heap has left, too short for a mapping of its own.
        drop(black_box(Vec::<u8>::with_capacity(LONGEST / 2)));
        // SAFETY: as above.
        let after = unsafe { libc::sbrk(0) };
        let grown = after.addr().saturating_sub(before.addr());
        if grown > 0 {
            // SAFETY: an advice about how the kernel backs the heap, which is this process's own; what is
            // in it stays as it is. Refused, it changes nothing.
            unsafe { libc::madvise(before, grown, libc::MADV_HUGEPAGE) };
        }
    }

    #[expect(unsafe_code, reason = "the allocator's counters are C's")]
    pub(super) fn allocated_bytes() -> usize {
        // SAFETY: it only reads the allocator's counters.
        let counters = unsafe { libc::mallinfo2() };
        // On its heaps, and in mappings of their own.
        counters.uordblks + counters.hblkhd
    }
}
