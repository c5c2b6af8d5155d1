//! A FUSE file system that answers requests until a process reads the file's bytes (`fuse(4)`).

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

/// Size of the file, bytes.
const SIZE: u64 = 4096;

/// Request numbers of `linux/fuse.h`.
const GETATTR: u32 = 3;
const OPEN: u32 = 14;
const READ: u32 = 15;
const STATFS: u32 = 17;
const FLUSH: u32 = 25;
const INIT: u32 = 26;

/// A mounted file. A process that reads it, or queries its file system, waits until the mount ends.
pub(super) struct SilentFile {
    path: PathBuf,
    served: Option<JoinHandle<()>>,
    is_asked: Arc<AtomicBool>,
}

impl SilentFile {
    /// Mounts it; closing it waits too unless `may_be_closed`. Returns `None` if this user may not mount.
    pub(super) fn mount(may_be_closed: bool) -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("weft-silent-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let device = File::options().read(true).write(true).open("/dev/fuse").ok()?;
        File::create(&path).unwrap();
        let (fd, root) = (device.as_raw_fd(), 0o100_666);
        let options = format!("fd={fd},rootmode={root:o},user_id=0,group_id=0,allow_other");
        let options = std::ffi::CString::new(options).unwrap();
        let mounted = mount("weft-test", &path, "fuse", MountFlags::empty(), Some(&*options));
        if mounted.is_err() {
            std::fs::remove_file(&path).unwrap();
            return None;
        }
        let is_asked = Arc::new(AtomicBool::new(false));
        let asked = is_asked.clone();
        let served = Some(std::thread::spawn(move || serve(&device.into(), may_be_closed, &asked)));
        Some(Self { path, served, is_asked })
    }

    pub(super) fn open(&self) -> File {
        let file = File::options().read(true).write(true).open(&self.path).unwrap();
        // Until the kernel has requested the attributes, it assumes that a file is empty.
        assert_eq!(file.metadata().unwrap().len(), SIZE);
        file
    }

    /// Returns `true` once a process waits for it.
    pub(super) fn is_asked(&self) -> bool {
        self.is_asked.load(Ordering::Acquire)
    }

    /// Ends every process's wait with an error.
    pub(super) fn release(&self) {
        abort(&self.path);
    }

    /// Returns a function that does the same as [`Self::release`], for another thread.
    pub(super) fn releaser(&self) -> impl FnOnce() + Send + use<> {
        let path = self.path.clone();
        move || abort(&path)
    }
}

/// Ends the connection; an error means that it has ended already.
fn abort(path: &Path) {
    let _ = unmount(path, UnmountFlags::FORCE | UnmountFlags::DETACH);
}

impl Drop for SilentFile {
    fn drop(&mut self) {
        self.release();
        self.served.take().unwrap().join().unwrap();
        std::fs::remove_file(&self.path).unwrap();
    }
}

/// Answers requests until the mount ends.
fn serve(device: &OwnedFd, may_be_closed: bool, is_asked: &AtomicBool) {
    let mut request = [0; 16 << 10];
    while let Ok(len) = rustix::io::read(device, &mut request) {
        let word = |at: usize| u32::from_ne_bytes(request[at..at + 4].try_into().unwrap());
        assert!(len >= 40, "a request has a header");
        let answer = match word(4) {
            INIT => Ok(init_reply()),
            GETATTR => Ok(attributes()),
            OPEN => Ok(vec![0; 16]),
            FLUSH if may_be_closed => Ok(Vec::new()),
            READ | STATFS | FLUSH => {
                is_asked.store(true, Ordering::Release);
                continue;
            }
            _ => Err(-libc::ENOSYS),
        };
        let (body, error) = answer.map_or_else(|error| (Vec::new(), error), |body| (body, 0));
        let len = u32::try_from(16 + body.len()).unwrap();
        let header = [&len.to_ne_bytes()[..], &error.to_ne_bytes(), &request[8..16]].concat();
        // Interrupted requests, and those that need no answer, get none.
        let _ = rustix::io::write(device, &[header, body].concat());
    }
}

/// Returns a `struct fuse_init_out`: version 7.31, writes of a page, nothing else.
fn init_reply() -> Vec<u8> {
    let words = [7_u32, 31, 0, 0, 0, 4096, 1, 0];
    let mut body: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    body.resize(64, 0);
    body
}

/// Returns a `struct fuse_attr_out` of a file that may be cached for an hour.
fn attributes() -> Vec<u8> {
    let longs = [3600, 0, 1, SIZE, 8, 0, 0, 0_u64];
    let words = [0, 0, 0, 0o100_666, 1, 0, 0, 0, 4096, 0_u32];
    let longs = longs.iter().flat_map(|long| long.to_ne_bytes());
    longs.chain(words.iter().flat_map(|word| word.to_ne_bytes())).collect()
}
