//! Memory of every kind that programs share.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use weft_rnic::Lease;
use weft_transport::ConnectionId;

pub(super) const PAGE: usize = 4096;
pub(super) const HUGE_PAGE: usize = 2 << 20;

/// Shared memory of a program, and what it holds.
pub(super) struct Memory {
    pub(super) start: NonNull<u8>,
    pub(super) len: usize,
    /// The program's descriptor, unless it has closed it.
    pub(super) file: Option<OwnedFd>,
    pub(super) path: Option<PathBuf>,
    pub(super) segment: Option<i32>,
}

impl Memory {
    pub(super) fn map(file: &OwnedFd, len: usize, offset: usize) -> Self {
        let (rights, null) = (libc::PROT_READ | libc::PROT_WRITE, core::ptr::null_mut());
        let (fd, offset) = (file.as_raw_fd(), libc::off_t::try_from(offset).unwrap());
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let start = unsafe { libc::mmap(null, len, rights, libc::MAP_SHARED, fd, offset) };
        assert_ne!(start, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        let start = NonNull::new(start.cast()).unwrap();
        Self { start, len, file: None, path: None, segment: None }
    }

    /// Memory of a file without a name.
    pub(super) fn memfd(flags: MemfdFlags, len: usize) -> Self {
        let file = memfd_create(c"weft sharing", flags | MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, len as u64).unwrap();
        let mut memory = Self::map(&file, len, 0);
        memory.file = Some(file);
        memory
    }

    pub(super) fn sealed() -> Self {
        let memory = Self::memfd(MemfdFlags::ALLOW_SEALING, 4 * PAGE);
        fcntl_add_seals(memory.file.as_ref().unwrap(), SealFlags::SHRINK).unwrap();
        memory
    }

    /// A file of `/dev/shm`, of which the program maps the second half.
    pub(super) fn named(name: &str) -> Self {
        let name = format!("weft-sharing-{name}-{}", std::process::id());
        let path = std::path::Path::new("/dev/shm").join(name);
        let mut options = std::fs::File::options();
        let file = options.read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        let file = OwnedFd::from(file);
        ftruncate(&file, 8 * PAGE as u64).unwrap();
        let mut memory = Self::map(&file, 4 * PAGE, 4 * PAGE);
        (memory.file, memory.path) = (Some(file), Some(path));
        memory
    }

    pub(super) fn without_descriptor(mut self) -> Self {
        self.file = None;
        self
    }

    pub(super) fn unlinked(mut self) -> Self {
        std::fs::remove_file(self.path.take().unwrap()).unwrap();
        self
    }

    pub(super) fn anonymous(flags: libc::c_int) -> Self {
        let (rights, null) = (libc::PROT_READ | libc::PROT_WRITE, core::ptr::null_mut());
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let start =
            unsafe { libc::mmap(null, 4 * PAGE, rights, flags | libc::MAP_ANONYMOUS, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED);
        let start = NonNull::new(start.cast()).unwrap();
        Self { start, len: 4 * PAGE, file: None, path: None, segment: None }
    }

    pub(super) fn segment(flags: libc::c_int, len: usize) -> Self {
        // SAFETY: a new segment and a new mapping, at an address that the kernel chooses.
        let (id, start) = unsafe {
            let id = libc::shmget(libc::IPC_PRIVATE, len, libc::IPC_CREAT | 0o600 | flags);
            assert!(id >= 0, "{}", std::io::Error::last_os_error());
            (id, libc::shmat(id, core::ptr::null(), 0))
        };
        assert_ne!(start.addr(), usize::MAX);
        let start = NonNull::new(start.cast()).unwrap();
        Self { start, len, file: None, path: None, segment: Some(id) }
    }

    /// A segment that ends with its last mapping, as most programs leave theirs.
    pub(super) fn removed(self) -> Self {
        // SAFETY: the segment of this test.
        unsafe { libc::shmctl(self.segment.unwrap(), libc::IPC_RMID, core::ptr::null_mut()) };
        self
    }

    pub(super) fn address(&self) -> u64 {
        self.start.as_ptr().expose_provenance() as u64
    }

    pub(super) fn bytes(&self, from: usize, len: usize) -> Vec<u8> {
        assert!(from + len <= self.len);
        // SAFETY: the bytes are mapped, and nothing changes them now.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(from), len).to_vec() }
    }

    pub(super) fn fill(&self, from: usize, bytes: &[u8]) {
        assert!(from + bytes.len() <= self.len);
        // SAFETY: the bytes are mapped, and nothing else uses them now.
        unsafe {
            let to = self.start.as_ptr().add(from);
            core::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
    }

    /// Returns a lease of all of it but the first and the last bytes.
    pub(super) fn lease(&self, key: u32) -> Lease {
        Lease {
            connection: ConnectionId(9),
            key,
            start: 1 << 40,
            length: self.len as u64 - 1000,
            address: self.address() + 100,
            writable: true,
            readable: true,
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping is this test's, and nothing uses it any more.
        unsafe {
            match self.segment {
                Some(id) => {
                    libc::shmdt(self.start.as_ptr().cast());
                    libc::shmctl(id, libc::IPC_RMID, core::ptr::null_mut());
                }
                None => {
                    libc::munmap(self.start.as_ptr().cast(), self.len);
                }
            }
        }
        self.path.iter().for_each(|path| std::fs::remove_file(path).unwrap());
    }
}

/// Huge pages for a test, which the kernel makes when they are used. One test has them at a time.
pub(super) struct HugePages {
    before: String,
    _alone: MutexGuard<'static, ()>,
}

pub(super) const OVERCOMMIT: &str = "/proc/sys/vm/nr_overcommit_hugepages";

impl HugePages {
    pub(super) fn allow() -> Option<Self> {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::fs::read_to_string(OVERCOMMIT).ok()?;
        let number: u64 = before.trim().parse().ok()?;
        std::fs::write(OVERCOMMIT, (number + 16).to_string()).ok()?;
        Some(Self { before, _alone: alone })
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        std::fs::write(OVERCOMMIT, &self.before).unwrap();
    }
}

/// Returns every kind of shared memory, with its name.
pub(super) fn every_kind() -> Vec<(&'static str, Memory)> {
    let anyone = MemfdFlags::ALLOW_SEALING;
    let mut kinds = vec![
        ("a file of /dev/shm", Memory::named("file")),
        ("a file of which the program closed its descriptor", {
            Memory::named("closed").without_descriptor()
        }),
        ("an unlinked file", Memory::named("unlinked").unlinked()),
        ("a memfd", Memory::memfd(anyone, 4 * PAGE)),
        ("a sealed memfd", Memory::sealed()),
        ("a segment", Memory::segment(0, 4 * PAGE)),
        ("a removed segment", Memory::segment(0, 4 * PAGE + 5).removed()),
    ];
    if rustix::process::geteuid().is_root() {
        kinds.extend([
            ("an unlinked file without a descriptor", {
                Memory::named("gone").unlinked().without_descriptor()
            }),
            ("a memfd without a descriptor", Memory::memfd(anyone, PAGE).without_descriptor()),
            ("shared memory without a file", Memory::anonymous(libc::MAP_SHARED)),
        ]);
    } else {
        weft_testkit::skip("shared memory without a descriptor", "only root may open it");
    }
    kinds
}
