//! Memory for the cache: mapped far from everything else, between guard pages, so that an access out of bounds ends
//! the program at once (X-RDMA, section VI.C).

use core::ffi::c_void;
use core::ptr::NonNull;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::io;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use crate::memory_file::{self, MemoryFile};

/// The kinds of memory pages (X-RDMA, table III: `ibqp_alloc_type`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pages {
    /// Pages of the kernel's default size that neighbours on the same host can map, in a file without a name; private
    /// ones where the system refuses the file.
    #[default]
    Anonymous,
    /// 2 MiB pages from the kernel's pool (`vm.nr_hugepages`); anonymous pages if the pool is empty.
    Huge,
    /// Memory of the program's allocator, without guard pages.
    Malloc,
}

/// The highest address, near the stack, where nothing else is mapped; each mapping goes below the last.
const MAX_ADDRESS: usize = 0x7d00_0000_0000;
/// Length of a huge page in bytes.
const HUGE: usize = 2 << 20;
/// Length of a page of the default size in bytes.
const PAGE: usize = 4096;

/// The place of a node's next mapping.
#[derive(Debug, Default)]
pub(crate) struct Space {
    /// The start of the last mapping; 0 before the first.
    below: usize,
    file: SharedFile,
}

/// The file of a node's mappings.
#[derive(Debug, Default)]
enum SharedFile {
    /// Nothing was mapped yet.
    #[default]
    Unmade,
    Made(MemoryFile),
    /// The system has refused it.
    Unavailable,
}

impl SharedFile {
    /// Returns the file of this process, which the first call makes.
    fn get(&mut self) -> Option<&mut MemoryFile> {
        let is_unmade = match self {
            Self::Unmade => true,
            Self::Made(file) => !file.is_own(),
            Self::Unavailable => false,
        };
        if is_unmade {
            *self = MemoryFile::new().map_or(Self::Unavailable, Self::Made);
        }
        if let Self::Made(file) = self { Some(file) } else { None }
    }
}

/// Memory for a region.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    len: usize,
    kind: Kind,
}

/// The origin of the memory.
#[derive(Debug)]
enum Kind {
    /// A mapping with guard pages on both sides; `guard` and `mapped` are lengths in bytes.
    Mapped { guard: usize, mapped: usize, sharing: Sharing },
    /// A block of the program's allocator.
    Allocated(Layout),
}

/// The processes that can have a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sharing {
    Private,
    /// Neighbours can map it too; a child of the process with this number has no part in it.
    Shared {
        process: u32,
    },
}

// SAFETY: it is memory of the process, and no other reference to it exists.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Allocates `len` zero bytes at the next place.
    pub(crate) fn new(len: usize, pages: Pages, space: &mut Space) -> io::Result<Self> {
        match pages {
            Pages::Malloc => Self::allocate(len),
            Pages::Huge => Self::map(len, HUGE, space).or_else(|_| Self::map(len, PAGE, space)),
            Pages::Anonymous => Self::map(len, PAGE, space),
        }
    }

    fn allocate(len: usize) -> io::Result<Self> {
        let layout = Layout::from_size_align(len.max(1), PAGE).map_err(io::Error::other)?;
        // SAFETY: the layout has at least one byte.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) });
        let start = start.ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, len, kind: Kind::Allocated(layout) })
    }

    fn map(len: usize, page: usize, space: &mut Space) -> io::Result<Self> {
        if space.below == 0 {
            space.below = MAX_ADDRESS;
        }
        let (usable, guard) = (len.next_multiple_of(page), page);
        let mapped = usable + 2 * guard;
        let hint = (space.below - mapped) / HUGE * HUGE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let none = ProtFlags::empty();
        // SAFETY: the kernel chooses a free range.
        let base = unsafe { mmap_anonymous(hint as *mut c_void, mapped, none, flags)? };
        space.below = hint;
        // SAFETY: within the mapping.
        let start = unsafe { base.byte_add(guard) };
        // SAFETY: it is a part of the mapping made above, to which no reference exists.
        match unsafe { Self::provide(start, usable, page, space) } {
            Ok(sharing) => {
                let start = NonNull::new(start.cast()).expect("a mapping is not at zero");
                Ok(Self { start, len, kind: Kind::Mapped { guard, mapped, sharing } })
            }
            Err(error) => {
                // SAFETY: likewise.
                let _ = unsafe { munmap(base, mapped) };
                Err(error)
            }
        }
    }

    /// Replaces a part of a mapping by memory in pages of this size.
    ///
    /// # Safety
    /// No reference to the part exists.
    unsafe fn provide(
        start: *mut c_void,
        usable: usize,
        page: usize,
        space: &mut Space,
    ) -> io::Result<Sharing> {
        if page == PAGE
            && let Some(file) = space.file.get()
            // SAFETY: guaranteed by the caller.
            && unsafe { file.map(start, usable) }.is_ok()
        {
            return Ok(Sharing::Shared { process: std::process::id() });
        }
        // Huge pages are reserved now: without one left, the first access would end the program.
        let flags = MapFlags::PRIVATE | MapFlags::FIXED;
        let kind = if page == HUGE { MapFlags::HUGETLB } else { MapFlags::NORESERVE };
        let both = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: guaranteed by the caller.
        unsafe { mmap_anonymous(start, usable, both, flags | kind)? };
        Ok(Sharing::Private)
    }

    pub(crate) const fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    #[inline]
    pub(crate) const fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping is readable and lives as long as `self`.
        unsafe { core::slice::from_raw_parts(self.start(), self.len) }
    }

    #[inline]
    pub(crate) const fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is writable, lives as long as `self`, and `self` is borrowed alone.
        unsafe { core::slice::from_raw_parts_mut(self.start(), self.len) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping, guards included, is owned here, and no reference to it is left.
        unsafe {
            match self.kind {
                // In a child, something else may have been mapped here since the fork.
                Kind::Mapped { sharing: Sharing::Shared { process }, .. }
                    if process != std::process::id() => {}
                Kind::Mapped { guard, mapped, sharing } => {
                    if sharing != Sharing::Private {
                        memory_file::empty(self.start().cast(), mapped - 2 * guard);
                    }
                    let _ = munmap(self.start().byte_sub(guard).cast(), mapped);
                }
                Kind::Allocated(layout) => dealloc(self.start(), layout),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_are_zeroed_at_high_addresses_and_apart() {
        let mut space = Space::default();
        let mut mappings: Vec<_> =
            (0..4).map(|_| Mapping::new(5000, Pages::Anonymous, &mut space).unwrap()).collect();
        for mapping in &mut mappings {
            assert!(mapping.bytes().iter().all(|&byte| byte == 0));
            mapping.bytes_mut().fill(1);
            assert!(mapping.start().addr() > MAX_ADDRESS / 2, "far from the heap");
        }
        for pair in mappings.windows(2) {
            let [one, other] = pair else { unreachable!() };
            // Other tests map at the same time, so the next need not be below.
            let apart = one.start().addr().abs_diff(other.start().addr());
            assert!(apart >= 5000 + 2 * PAGE, "guards between: {apart}");
        }
    }

    /// Returns the page size of the mapping that begins at `address`, as the kernel prints it; `None` if no mapping
    /// begins there.
    fn page_size_at(address: usize) -> Option<String> {
        let maps = std::fs::read_to_string("/proc/self/smaps").ok()?;
        let start = format!("{address:x}-");
        let mut lines = maps.lines().skip_while(|line| !line.starts_with(&start));
        let line = lines.find(|line| line.starts_with("KernelPageSize:"))?;
        Some(line.trim_start_matches("KernelPageSize:").trim().to_owned())
    }

    #[test]
    fn huge_pages_are_used_while_the_pool_has_some_and_default_pages_otherwise() {
        const POOL: &str = "/proc/sys/vm/nr_hugepages";
        let before = std::fs::read_to_string(POOL).unwrap_or_default();
        // Without the permission, or without contiguous free memory for a page, the pool stays empty.
        let _ = std::fs::write(POOL, "2");
        let free =
            std::fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages");
        let free = free.ok().and_then(|text| text.trim().parse::<usize>().ok()).unwrap_or(0);
        let mut space = Space::default();
        let mut mappings: Vec<_> =
            (0..4).map(|_| Mapping::new(HUGE, Pages::Huge, &mut space).unwrap()).collect();
        for mapping in &mut mappings {
            // The write succeeds, or the program ends.
            mapping.bytes_mut().fill(7);
        }
        let size = |mapping: &Mapping| page_size_at(mapping.start().addr()).expect("it is mapped");
        let sizes: Vec<_> = mappings.iter().map(size).collect();
        let count = |of: &str| sizes.iter().filter(|size| *size == of).count();
        let (huge, default_size) = (count("2048 kB"), count("4 kB"));
        drop(mappings);
        let _ = std::fs::write(POOL, before);
        assert_eq!((huge, default_size), (free.min(4), 4 - free.min(4)), "{sizes:?}");
        if free == 0 {
            let reason = format!("{POOL} cannot be raised, or memory is in pieces");
            weft_testkit::skip_on_this_machine("memory in huge pages", &reason);
        }
    }

    /// Returns the line of the mapping that begins at `address`.
    fn line_of(address: usize) -> String {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let start = format!("{address:x}-");
        maps.lines().find(|line| line.starts_with(&start)).unwrap_or_default().to_owned()
    }

    #[test]
    fn mappings_of_a_node_are_parts_of_one_file_and_return_their_memory() {
        let mut space = Space::default();
        let mut mappings: Vec<_> =
            (0..3).map(|_| Mapping::new(9000, Pages::Anonymous, &mut space).unwrap()).collect();
        let inodes: Vec<String> = mappings
            .iter_mut()
            .map(|mapping| {
                mapping.bytes_mut().fill(7);
                let line = line_of(mapping.start().addr());
                assert!(line.contains(" rw-s ") && line.contains("memfd:weft-xrdma"), "{line}");
                line.split_whitespace().nth(4).unwrap().to_owned()
            })
            .collect();
        assert!(inodes.windows(2).all(|pair| pair[0] == pair[1]), "{inodes:?}");
        let SharedFile::Made(file) = &space.file else { panic!("no file") };
        assert_eq!(file.bytes(), 9 * PAGE as u64);
        mappings.remove(1);
        assert_eq!(file.bytes(), 6 * PAGE as u64);
        drop(mappings);
        assert_eq!(file.bytes(), 0);
    }

    /// Runs `act` in a child, and fails unless it returns there.
    fn in_child(act: impl FnOnce()) {
        // SAFETY: the child uses no lock that another thread may have.
        let child = unsafe { libc::fork() };
        if child == 0 {
            act();
            // SAFETY: no handler of this process is the child's.
            unsafe { libc::_exit(0) };
        }
        let mut status = 0;
        // SAFETY: `status` has room for the child's exit status.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!(status, 0, "the child failed");
    }

    #[test]
    fn a_child_of_fork_neither_has_nor_frees_the_mappings() {
        let mut space = Space::default();
        let mut mapping = Mapping::new(PAGE, Pages::Anonymous, &mut space).unwrap();
        mapping.bytes_mut().fill(7);
        let address = mapping.start().addr();
        in_child(|| {
            assert_eq!(line_of(address), "");
            let rights = ProtFlags::READ | ProtFlags::WRITE;
            let flags = MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE;
            let at = core::ptr::with_exposed_provenance_mut::<c_void>(address);
            // SAFETY: nothing is mapped there.
            let own = unsafe { mmap_anonymous(at, PAGE, rights, flags) }.unwrap().cast::<u8>();
            // SAFETY: it was mapped just now.
            unsafe { own.write_volatile(5) };
            // SAFETY: the child uses it no more: it exits.
            drop(unsafe { core::ptr::read(&raw const mapping) });
            // SAFETY: likewise.
            assert_eq!(unsafe { own.read_volatile() }, 5);
        });
        assert!(mapping.bytes().iter().all(|&byte| byte == 7));
    }

    /// The next region of the parent's file is the parent's.
    #[test]
    fn a_child_of_fork_has_a_file_of_its_own() {
        let mut space = Space::default();
        let _first = Mapping::new(PAGE, Pages::Anonymous, &mut space).unwrap();
        in_child(|| {
            let mut own = Mapping::new(PAGE, Pages::Anonymous, &mut space).unwrap();
            own.bytes_mut().fill(5);
            assert!(line_of(own.start().addr()).contains("memfd:weft-xrdma"));
            core::mem::forget(own);
        });
        let next = Mapping::new(PAGE, Pages::Anonymous, &mut space).unwrap();
        assert!(next.bytes().iter().all(|&byte| byte == 0));
    }

    #[test]
    fn memory_is_private_where_the_file_is_refused() {
        in_child(|| {
            let limit = libc::rlimit { rlim_cur: 1 << 30, rlim_max: 1 << 30 };
            // SAFETY: the limit is this child's.
            assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) }, 0);
            let mut space = Space::default();
            let mut mapping = Mapping::new(9000, Pages::Anonymous, &mut space).unwrap();
            mapping.bytes_mut().fill(7);
            assert!(line_of(mapping.start().addr()).contains(" rw-p "));
        });
    }

    #[test]
    fn memory_of_the_allocator_is_zeroed_and_aligned() {
        let mut space = Space::default();
        let mut mapping = Mapping::new(100_000, Pages::Malloc, &mut space).unwrap();
        assert!(mapping.start().addr().is_multiple_of(PAGE));
        assert!(mapping.bytes().iter().all(|&byte| byte == 0));
        mapping.bytes_mut().fill(1);
        assert_eq!(space.below, 0, "it is no mapping");
    }

    #[test]
    fn an_access_out_of_bounds_ends_the_program() {
        let mut space = Space::default();
        let mapping = Mapping::new(4096, Pages::Anonymous, &mut space).unwrap();
        for offset in [-1, 4096] {
            // SAFETY: the child does nothing but fault, or exit.
            let child = unsafe { libc::fork() };
            if child == 0 {
                // SAFETY: the fault is intended, and no signal handler of the test reports it.
                unsafe {
                    libc::signal(libc::SIGSEGV, libc::SIG_DFL);
                    mapping.start().offset(offset).write_volatile(1);
                    libc::_exit(0);
                }
            }
            let mut status = 0;
            // SAFETY: `status` has room for the child's exit status.
            unsafe { libc::waitpid(child, &raw mut status, 0) };
            assert!(libc::WIFSIGNALED(status), "offset {offset}");
            assert_eq!(libc::WTERMSIG(status), libc::SIGSEGV, "offset {offset}");
        }
    }
}
