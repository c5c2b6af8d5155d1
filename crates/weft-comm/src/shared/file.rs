//! A rank's file of shared memory. `/dev/shm` is a folder in which any user may create files, and which containers of
//! one kernel may have for themselves or share.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FallocateFlags, FileType, Mode, OFlags};

use super::area::AreaSize;
use super::mapping::{MAX_PAGE, Mapping};
use crate::error::{CommError, SharedError};
use crate::rendezvous::random;

/// The first bytes of a file; the nonce follows.
const MAGIC: [u8; 8] = *b"weftcol4";
/// Length of the file's header in bytes, which has the doorbell's flags too; areas follow.
pub(super) const HEADER_BYTES: usize = MAX_PAGE;

/// The numbers by which other ranks find a rank's file and recognise it. Both are random. Other users can list names,
/// but not read the nonce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileId {
    name: u64,
    nonce: u64,
}

impl FileId {
    /// Length of an encoded id in bytes.
    pub(crate) const BYTES: usize = 16;

    /// Returns the encoded id; zeros for a rank without a file.
    pub(crate) fn emit(id: Option<Self>) -> [u8; Self::BYTES] {
        let Self { name, nonce } = id.unwrap_or(Self { name: 0, nonce: 0 });
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&name.to_le_bytes());
        bytes[8..].copy_from_slice(&nonce.to_le_bytes());
        bytes
    }

    /// Returns the id of a rank's file, if it has one.
    pub(crate) fn read(bytes: [u8; Self::BYTES]) -> Option<Self> {
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight"));
        let id = Self { name: number(0), nonce: number(8) };
        (id.name != 0).then_some(id)
    }

    /// Returns the path of the file.
    pub(super) fn path(self) -> PathBuf {
        PathBuf::from(format!("/dev/shm/weft-coll-{:016x}", self.name))
    }

    /// Returns the path of the doorbell's FIFO.
    fn fifo_path(self) -> PathBuf {
        self.path().with_extension("bell")
    }

    /// Returns an error of this file.
    pub(crate) fn error(self, why: impl Into<SharedError>) -> CommError {
        CommError::Shared { path: self.path().display().to_string(), why: why.into() }
    }

    fn header(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..].copy_from_slice(&self.nonce.to_le_bytes());
        bytes
    }
}

/// A rank's file of areas, and the FIFO of its doorbell.
#[derive(Debug)]
pub(crate) struct RankFile {
    pub(super) file: File,
    pub(super) fifo: OwnedFd,
}

/// The names of a rank's file and FIFO. They are removed when this is dropped.
#[derive(Debug)]
struct Names(FileId);

impl Drop for Names {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.0.path());
        let _ = std::fs::remove_file(self.0.fifo_path());
    }
}

/// This rank's file. It has its names until this is dropped, which is when all ranks have opened it that can.
#[derive(Debug)]
pub(crate) struct OwnFile {
    pub(super) opened: RankFile,
    pub(crate) id: FileId,
    _names: Names,
}

impl OwnFile {
    /// Creates this rank's file and FIFO, which only this user can read.
    ///
    /// # Errors
    /// Returns `Shared` with the kernel's error.
    pub(crate) fn create() -> Result<Self, CommError> {
        // A name of zero stands for no file.
        let id = FileId { name: random().max(1), nonce: random() };
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).mode(0o600).open(id.path());
        let file = file.map_err(|error| id.error(error))?;
        let names = Names(id);
        let fifo = create_fifo(&id.fifo_path()).map_err(|error| id.error(error))?;
        let this = Self { opened: RankFile { file, fifo }, id, _names: names };
        this.reserve(HEADER_BYTES)?;
        this.opened.file.write_all_at(&id.header(), 0).map_err(|error| id.error(error))?;
        Ok(this)
    }

    /// Makes room for `areas` areas.
    ///
    /// # Errors
    /// Returns `Shared` with the kernel's error.
    pub(crate) fn allocate(&self, areas: usize, size: AreaSize) -> Result<(), CommError> {
        self.reserve(offset(areas, size))
    }

    /// Reserves memory: without it, a write to a full `/dev/shm` would end the process.
    fn reserve(&self, bytes: usize) -> Result<(), CommError> {
        let reserved =
            rustix::fs::fallocate(&self.opened.file, FallocateFlags::empty(), 0, bytes as u64);
        reserved.map_err(|error| {
            self.id.error(SharedError::NoMemory { bytes: bytes as u64, error: error.into() })
        })
    }
}

/// Returns the offset of an area, given the number of those before it.
pub(super) const fn offset(areas: usize, size: AreaSize) -> usize {
    HEADER_BYTES + areas * size.bytes()
}

/// Opens another rank's file and FIFO.
///
/// # Errors
/// Returns `NotFound` if they are not here, `Foreign` if another user's file or another kind of file has a name, or
/// `OtherContent` if the file of this name is not the rank's.
pub(crate) fn open(id: FileId) -> Result<RankFile, SharedError> {
    let file = open_own(&id.path())?;
    let header = Mapping::of(&file, 0, HEADER_BYTES).map_err(SharedError::NotFound)?;
    if header.bytes(0, 16) != id.header() {
        return Err(SharedError::OtherContent);
    }
    Ok(RankFile { file, fifo: open_fifo(&id.fifo_path())? })
}

/// Opens a regular file of this user. Another user who knows its name may have created it, as a link to a file of this
/// user, or as a file to read the messages in it or to make it shorter while it is mapped.
fn open_own(path: &Path) -> Result<File, SharedError> {
    // `NONBLOCK` because opening a file on which its owner has a lease would block.
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => {
            let file = File::from(file);
            let about = file.metadata().map_err(SharedError::NotFound)?;
            check_own(&about, FileType::RegularFile)?;
            Ok(file)
        }
        Err(error) => {
            // A link, a directory or a file without permission.
            let about = path.symlink_metadata();
            about.map_or(Ok(()), |about| check_own(&about, FileType::RegularFile))?;
            Err(SharedError::NotFound(error.into()))
        }
    }
}

/// Creates a FIFO that only this user can open.
///
/// # Errors
/// Returns the kernel's error.
fn create_fifo(path: &Path) -> io::Result<OwnedFd> {
    let mode = Mode::RUSR | Mode::WUSR;
    rustix::fs::mknodat(CWD, path, FileType::Fifo, mode, 0)?;
    Ok(open_both_ends(path)?)
}

/// Opens another rank's FIFO.
///
/// # Errors
/// Returns `NotFound` if there is none here, or `Foreign` if another user's or no FIFO has its name.
fn open_fifo(path: &Path) -> Result<OwnedFd, SharedError> {
    let fifo =
        File::from(open_both_ends(path).map_err(|error| SharedError::NotFound(error.into()))?);
    check_own(&fifo.metadata().map_err(SharedError::NotFound)?, FileType::Fifo)?;
    Ok(fifo.into())
}

/// Opens both ends at once: neither waits for the other, and a write never meets a FIFO without readers.
fn open_both_ends(path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty())
}

/// Checks that a file is of this kind and of this user.
fn check_own(about: &Metadata, kind: FileType) -> Result<(), SharedError> {
    let is_own = FileType::from_raw_mode(about.mode()) == kind
        && about.uid() == rustix::process::geteuid().as_raw();
    if is_own { Ok(()) } else { Err(SharedError::Foreign { owner: about.uid() }) }
}
