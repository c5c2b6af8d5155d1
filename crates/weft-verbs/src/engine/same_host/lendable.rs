//! The shared memory behind regions that are lent: a borrower maps it, instead of a system call for each request
//! (`docs/design/same-host.md`).

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use weft_ring::leases::Backing;
use weft_rnic::Lease;

use super::maps::{SharedObject, is_shared, shared_object};
use crate::engine::fork::Held;

/// The memory of a region that was lent.
#[derive(Debug)]
struct Known {
    address: u64,
    length: u64,
    writable: bool,
    backing: Backing,
    /// A descriptor of the file, if the program has none.
    opened: Option<Arc<Held>>,
}

impl Known {
    fn is_of(&self, lease: &Lease) -> bool {
        let own = (self.address, self.length, self.writable);
        own == (lease.address, lease.length, lease.writable)
    }
}

/// The regions that were lent, by their keys. Their memory is searched for once.
#[derive(Debug, Default)]
pub(super) struct Lendable(BTreeMap<u32, Known>);

impl Lendable {
    /// Returns the memory behind a region, for its borrowers.
    pub(super) fn backing(&mut self, lease: &Lease) -> Backing {
        if let Some(known) = self.0.get(&lease.key)
            && known.is_of(lease)
            && is_still_there(&known.backing)
        {
            return known.backing;
        }
        let (backing, opened) = self.search(lease).unwrap_or_default();
        let Lease { address, length, writable, .. } = *lease;
        self.0.insert(lease.key, Known { address, length, writable, backing, opened });
        backing
    }

    /// Closes what was opened for a region that is not lent any more.
    pub(super) fn forget(&mut self, key: u32) {
        self.0.remove(&key);
    }

    fn search(&self, lease: &Lease) -> Option<(Backing, Option<Arc<Held>>)> {
        // A program may register memory for each message, and to read all mappings takes longer than a message.
        if is_shared(lease.address) == Some(false) {
            return None;
        }
        let maps = std::fs::read("/proc/self/maps").ok()?;
        let range = lease.address..lease.address.checked_add(lease.length)?;
        let object = shared_object(&maps, range, lease.writable)?;
        if object.is_segment() {
            let id = u32::try_from(object.inode).ok().filter(|&id| is_segment(id))?;
            return Some((Backing::Segment { id, offset: object.offset }, None));
        }
        let device = u32::try_from(object.device).ok()?;
        let (inode, offset) = (object.inode, object.offset);
        let (descriptor, opened) = match own_descriptor(&object) {
            Some(descriptor) => (descriptor, None),
            None => {
                let file = self.opened(device, inode).or_else(|| open(&object))?;
                (file.as_fd().as_raw_fd(), Some(file))
            }
        };
        let descriptor = u32::try_from(descriptor).ok()?;
        Some((Backing::File { descriptor, device, inode, offset }, opened))
    }

    /// Returns the descriptor of a file that was opened for another region.
    fn opened(&self, device: u32, inode: u64) -> Option<Arc<Held>> {
        let is_of = |backing: &Backing| {
            matches!(backing, Backing::File { device: of, inode: number, .. }
                if (*of, *number) == (device, inode))
        };
        self.0.values().find(|known| is_of(&known.backing)).and_then(|known| known.opened.clone())
    }
}

/// Returns `false` if the program has closed the descriptor, which may be another file's now.
fn is_still_there(backing: &Backing) -> bool {
    match *backing {
        Backing::File { descriptor, device, inode, .. } => {
            RawFd::try_from(descriptor).is_ok_and(|fd| identity_of(fd) == Some((device, inode)))
        }
        Backing::Segment { .. } | Backing::Private => true,
    }
}

/// Returns the device and inode number of a descriptor's file, if it is memory: of tmpfs or hugetlbfs. Other files are
/// not mapped, because a file system in user space could keep a borrower waiting.
fn identity_of(descriptor: RawFd) -> Option<(u32, u64)> {
    // SAFETY: it is used only in this call; if it is closed, the system calls fail.
    let file = unsafe { BorrowedFd::borrow_raw(descriptor) };
    memory_file(file).map(|file| (file.device, file.inode))
}

/// The properties of a file that is memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct MemoryFile {
    pub(super) device: u32,
    pub(super) inode: u64,
    /// The size in bytes.
    pub(super) size: u64,
    /// The size of its pages, bytes.
    pub(super) page: u64,
    /// `true` if it consists of huge pages.
    pub(super) huge: bool,
}

/// Magic numbers of file systems (`linux/magic.h`).
const TMPFS: i64 = 0x0102_1994;
const HUGETLBFS: i64 = 0x9584_58f6;

/// Returns the properties of a regular file of tmpfs or hugetlbfs.
pub(super) fn memory_file(file: impl AsFd) -> Option<MemoryFile> {
    let stat = rustix::fs::fstat(&file).ok()?;
    if stat.st_mode & libc::S_IFMT != libc::S_IFREG {
        return None;
    }
    let system = rustix::fs::fstatfs(&file).ok()?;
    let huge = match system.f_type {
        TMPFS => false,
        HUGETLBFS => true,
        _ => return None,
    };
    let page = u64::try_from(system.f_bsize).ok().filter(|page| page.is_power_of_two())?;
    Some(MemoryFile {
        device: u32::try_from(stat.st_dev).ok()?,
        inode: stat.st_ino,
        size: u64::try_from(stat.st_size).ok()?,
        page,
        huge,
    })
}

/// Returns a descriptor by which the program itself has opened the file. Only descriptors with its path are examined: to
/// examine a file of a network may take long.
fn own_descriptor(object: &SharedObject<'_>) -> Option<RawFd> {
    let device = u32::try_from(object.device).ok()?;
    let entries = std::fs::read_dir("/proc/self/fd").ok()?;
    let same_path = entries
        .flatten()
        .filter(|entry| std::fs::read_link(entry.path()).is_ok_and(|path| path == object.path));
    let mut numbers = same_path.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.find(|&number: &RawFd| identity_of(number) == Some((device, object.inode)))
}

/// Opens a file of which the program has closed all descriptors: by its path, or by the mapping itself, for which the
/// kernel requires `CAP_CHECKPOINT_RESTORE`.
fn open(object: &SharedObject<'_>) -> Option<Arc<Held>> {
    let device = u32::try_from(object.device).ok()?;
    let (start, end) = object.mapping;
    let mapping = format!("/proc/self/map_files/{start:x}-{end:x}");
    [object.path, Path::new(&mapping)].into_iter().find_map(|path| {
        // Nothing else is opened for more than its properties: to open a device or a queue may have effects.
        let file = File::options().read(true).custom_flags(libc::O_PATH).open(path).ok()?;
        let is_it = memory_file(&file)
            .is_some_and(|file| (file.device, file.inode) == (device, object.inode));
        is_it.then(|| Arc::new(Held::new(OwnedFd::from(file))))
    })
}

/// Returns `true` if a System V segment has this id.
fn is_segment(id: u32) -> bool {
    size_of_segment(id).is_some()
}

/// Returns the size of a System V segment in this process's IPC namespace, bytes.
pub(super) fn size_of_segment(id: u32) -> Option<u64> {
    let id = i32::try_from(id).ok()?;
    // SAFETY: all-zero bytes are a valid structure, which the kernel overwrites.
    let (read, found) = unsafe {
        let mut found: libc::shmid_ds = core::mem::zeroed();
        (libc::shmctl(id, libc::IPC_STAT, &raw mut found), found)
    };
    (read == 0).then_some(found.shm_segsz as u64)
}
