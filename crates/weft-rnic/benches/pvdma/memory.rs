//! Memory that is locked as a hypervisor locks a guest's: faulted in, zeroed, and not swapped. A hypervisor also maps it in the
//! IOMMU, which is not part of the benchmark.

use std::ffi::c_void;
use std::io::Error;
use std::time::Duration;

use weft_rnic::{BLOCK_BYTES, Block, Pinning};

/// The page size of the memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum PageSize {
    /// 4 KiB.
    Small,
    /// 2 MiB, if the kernel provides them.
    Huge,
}

/// A guest's memory: reserved address space without pages.
pub(crate) struct GuestMemory {
    base: *mut c_void,
    bytes: usize,
}

fn checked(result: i32) -> std::io::Result<()> {
    if result == 0 { Ok(()) } else { Err(Error::last_os_error()) }
}

fn size(bytes: u64) -> usize {
    usize::try_from(bytes).expect("64-bit addresses")
}

impl GuestMemory {
    pub(crate) fn new(bytes: u64, pages: PageSize) -> std::io::Result<Self> {
        let bytes = size(bytes);
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: this creates a new mapping at an address that the kernel chooses, and changes no other.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(Error::last_os_error());
        }
        let huge = pages == PageSize::Huge;
        let advice = if huge { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE };
        // SAFETY: the mapping made above.
        checked(unsafe { libc::madvise(base, bytes, advice) })?;
        Ok(Self { base, bytes })
    }

    pub(crate) fn lock(&self, from: u64, bytes: u64) -> std::io::Result<()> {
        assert!(size(from + bytes) <= self.bytes, "inside the guest's memory");
        // SAFETY: inside the mapping, as checked above; locking does not change its contents.
        checked(unsafe { libc::mlock(self.base.byte_add(size(from)), size(bytes)) })
    }
}

impl Drop for GuestMemory {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping, and nothing points into it.
        let result = unsafe { libc::munmap(self.base, self.bytes) };
        assert_eq!(result, 0, "it was mapped");
    }
}

impl Pinning for GuestMemory {
    type Error = Error;

    fn pin(&mut self, block: Block) -> std::io::Result<()> {
        self.lock(block.address(), BLOCK_BYTES)
    }

    fn unpin(&mut self, block: Block) {
        // SAFETY: the block is inside the mapping, since `lock` checked it before; unlocking does not change its
        // contents.
        unsafe { libc::munlock(self.base.byte_add(size(block.address())), size(BLOCK_BYTES)) };
    }
}

/// A hypervisor that pins nothing.
pub(crate) struct NoPinning;

impl Pinning for NoPinning {
    type Error = std::convert::Infallible;

    fn pin(&mut self, _: Block) -> Result<(), Self::Error> {
        Ok(())
    }

    fn unpin(&mut self, _: Block) {}
}

/// Returns the available memory in bytes.
pub(crate) fn available() -> std::io::Result<u64> {
    let text = std::fs::read_to_string("/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|rest| rest.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.map(|kib| kib * 1024).ok_or_else(|| Error::other("/proc/meminfo has no MemAvailable"))
}

/// Returns the processor time of this process.
pub(crate) fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a local variable.
    checked(unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) })
        .expect("every process has this clock");
    let unsigned = |value: i64| u64::try_from(value).expect("a time since the process began");
    Duration::from_secs(unsigned(time.tv_sec)) + Duration::from_nanos(unsigned(time.tv_nsec))
}
