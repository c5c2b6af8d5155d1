//! Memory for the cache: mapped far from everything else, with pages before and after it that nobody may touch,
//! so that an access out of bounds ends the program where it happens (X-RDMA, section VI.C).

use core::ffi::c_void;
use core::ptr::NonNull;
use std::io;

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

/// What kind of pages memory is made of (X-RDMA, table III: `ibqp_alloc_type`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pages {
    /// As the kernel gives them.
    #[default]
    Anonymous,
    /// 2 MiB pages from the kernel's pool (`vm.nr_hugepages`); anonymous ones where it has none left.
    Huge,
}

/// Near the stack, where nothing else is mapped; each mapping goes below the last.
const HIGHEST: usize = 0x7d00_0000_0000;
const HUGE: usize = 2 << 20;
const PAGE: usize = 4096;

/// A mapping with guards on both sides.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    len: usize,
    guard: usize,
    mapped: usize,
}

// SAFETY: it is memory of the process, and nobody else has a reference to it.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps `len` bytes of zeros. `below` is where the last mapping began, and is moved.
    pub(crate) fn new(len: usize, pages: Pages, below: &mut usize) -> io::Result<Self> {
        let mapping = match pages {
            Pages::Huge => {
                Self::map(len.next_multiple_of(HUGE), HUGE, MapFlags::HUGETLB, below).ok()
            }
            Pages::Anonymous => None,
        };
        let mut mapping = match mapping {
            Some(mapping) => mapping,
            None => Self::map(len.next_multiple_of(PAGE), PAGE, MapFlags::empty(), below)?,
        };
        mapping.len = len;
        Ok(mapping)
    }

    fn map(len: usize, guard: usize, flags: MapFlags, below: &mut usize) -> io::Result<Self> {
        if *below == 0 {
            *below = HIGHEST;
        }
        let mapped = len + 2 * guard;
        let hint = (*below - mapped) / HUGE * HUGE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | flags;
        // SAFETY: the kernel chooses a free range, near the hint if that one is free.
        let base =
            unsafe { mmap_anonymous(hint as *mut c_void, mapped, ProtFlags::empty(), flags)? };
        *below = hint;
        let usable = MprotectFlags::READ | MprotectFlags::WRITE;
        // SAFETY: the range was mapped just now, and nobody knows of it.
        let opened = unsafe { mprotect(base.byte_add(guard), len, usable) };
        if let Err(error) = opened {
            // SAFETY: likewise.
            let _ = unsafe { munmap(base, mapped) };
            return Err(error.into());
        }
        // SAFETY: still within the mapping.
        let start = unsafe { base.byte_add(guard) }.cast();
        let start = NonNull::new(start).expect("a mapping is not at zero");
        Ok(Self { start, len, guard, mapped })
    }

    pub(crate) const fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping is readable and lives as long as `self`.
        unsafe { core::slice::from_raw_parts(self.start(), self.len) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is writable, lives as long as `self`, and `self` is borrowed alone.
        unsafe { core::slice::from_raw_parts_mut(self.start(), self.len) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it is this mapping, guards included, and nobody has it any more.
        let _ = unsafe { munmap(self.start().byte_sub(self.guard).cast(), self.mapped) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_are_zeros_high_up_and_apart() {
        let mut below = 0;
        let mut mappings: Vec<_> =
            (0..4).map(|_| Mapping::new(5000, Pages::Anonymous, &mut below).unwrap()).collect();
        for mapping in &mut mappings {
            assert!(mapping.bytes().iter().all(|&byte| byte == 0));
            mapping.bytes_mut().fill(1);
            assert!(mapping.start().addr() > HIGHEST / 2, "far from the heap");
        }
        for pair in mappings.windows(2) {
            let [above, below] = pair else { unreachable!() };
            let apart = above.start().addr() - below.start().addr();
            assert!(apart >= 5000 + 2 * PAGE, "guards between: {apart}");
        }
    }

    #[test]
    fn an_access_out_of_bounds_ends_the_program() {
        let mut below = 0;
        let mapping = Mapping::new(4096, Pages::Anonymous, &mut below).unwrap();
        for offset in [-1, 4096] {
            // SAFETY: the child does nothing but fault, or exit.
            let child = unsafe { libc::fork() };
            if child == 0 {
                // SAFETY: the fault is what is wanted; no handler of the test is to say so.
                unsafe {
                    libc::signal(libc::SIGSEGV, libc::SIG_DFL);
                    mapping.start().offset(offset).write_volatile(1);
                    libc::_exit(0);
                }
            }
            let mut status = 0;
            // SAFETY: `status` has room for what became of the child.
            unsafe { libc::waitpid(child, &raw mut status, 0) };
            assert!(libc::WIFSIGNALED(status), "offset {offset}");
            assert_eq!(libc::WTERMSIG(status), libc::SIGSEGV, "offset {offset}");
        }
    }
}
