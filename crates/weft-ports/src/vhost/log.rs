//! The dirty log of a live migration (QEMU's docs/interop/vhost-user.rst, "Migration"): a bitmap in shared memory with a
//! bit for each page of the guest that the port writes. The front end clears bits as it copies pages to the other host.

use std::fs::File;
use std::sync::atomic::{AtomicU8, Ordering};

use vm_memory::{FileOffset, MmapRegion, VolatileMemory};

use super::fault::MemoryFault;
use super::file_kind::check_kind;
use super::withdrawn::Watched;

/// Bytes of a page of the log (`VHOST_LOG_PAGE`).
const PAGE: u64 = 4_096;

/// Largest length of a log, bytes: that of a guest of 8 TiB.
const MAX_LEN: u64 = 256 << 20;

/// The bitmap, mapped here.
#[derive(Debug)]
pub(super) struct DirtyLog {
    /// Before the mapping, so that it is not watched when it is unmapped.
    watched: Watched,
    bits: MmapRegion<()>,
}

impl DirtyLog {
    /// Maps `len` bytes of a file from `offset` on.
    pub(super) fn map(file: File, len: u64, offset: u64) -> Result<Self, MemoryFault> {
        check_kind(&file)?;
        let size = file.metadata().map_err(MemoryFault::File)?.len();
        let fits =
            (1..=MAX_LEN).contains(&len) && offset.checked_add(len).is_some_and(|end| end <= size);
        if !fits {
            return Err(MemoryFault::OutsideFile { len, offset, size });
        }
        let len = usize::try_from(len).expect("at most 256 MiB");
        let bits = MmapRegion::from_file(FileOffset::new(file, offset), len)
            .map_err(|error| MemoryFault::Log(error.to_string()))?;
        let watched = Watched::new(bits.as_ptr() as usize, bits.size());
        Ok(Self { watched, bits })
    }

    /// Marks the pages of `len` bytes at a guest-physical address, which were written before. Pages past the log's end
    /// are not the guest's memory.
    pub(super) fn mark(&self, address: u64, len: u64) {
        let last = address.saturating_add(len.saturating_sub(1)) / PAGE;
        let all = self.bits.as_volatile_slice();
        for page in address / PAGE..=last {
            let byte = usize::try_from(page / 8).unwrap_or(usize::MAX);
            let Ok(bits) = all.get_atomic_ref::<AtomicU8>(byte) else { return };
            let bit = 1 << (page % 8);
            // A write of the guest's memory must not become visible after the bit.
            bits.fetch_or(bit, Ordering::SeqCst);
        }
    }

    /// Returns `true` if the front end has truncated the file since it was mapped.
    pub(super) fn is_withdrawn(&self) -> bool {
        self.watched.is_withdrawn()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    use super::*;

    fn file(len: u64) -> File {
        let file = File::from(memfd_create("log", MemfdFlags::CLOEXEC).unwrap());
        ftruncate(&file, len).unwrap();
        file
    }

    #[test]
    fn each_page_of_a_write_is_marked_and_no_other() {
        let shared = file(4_096);
        let log = DirtyLog::map(shared.try_clone().unwrap(), 4_096, 0).unwrap();
        log.mark(4_095, 2);
        log.mark(10 * PAGE, PAGE);
        log.mark(30 * PAGE + 5, 3 * PAGE);
        log.mark(40 * PAGE, 0);
        // The log's last page, and pages past it.
        log.mark(8 * 4_096 * PAGE - 1, u64::MAX);
        let mut bits = [0; 4_096];
        shared.read_exact_at(&mut bits, 0).unwrap();
        let pages = (0..8 * 4_096).filter(|page| bits[page / 8] & 1 << (page % 8) != 0);
        let expected = [0, 1, 10, 30, 31, 32, 33, 40, 32_767];
        assert_eq!(pages.collect::<Vec<usize>>(), expected);
    }

    #[test]
    fn a_log_outside_its_file_is_refused_and_a_truncated_one_is_noticed() {
        for (len, offset) in [(0, 0), (8_192, 0), (4_096, 4_096), (u64::MAX, 4_096)] {
            assert!(DirtyLog::map(file(4_096), len, offset).is_err(), "{len} at {offset}");
        }
        let shared = file(4_096);
        let log = DirtyLog::map(shared.try_clone().unwrap(), 4_096, 0).unwrap();
        ftruncate(&shared, 0).unwrap();
        log.mark(0, 1);
        assert!(log.is_withdrawn());
    }
}
