//! A rank's file of shared memory. `/dev/shm` is a folder in which any user may create files, and which containers of
//! one kernel may have for themselves or share.

use std::fs::{File, Metadata, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, Mode, OFlags};

use super::area::AreaSize;
use super::mapping::{MAX_PAGE, Mapping};
use crate::error::{CommError, SharedError};
use crate::rendezvous::random;

/// The first bytes of a file; the nonce follows.
const MAGIC: [u8; 8] = *b"weftcol3";
/// Length of the file's header in bytes; areas follow.
const HEADER_BYTES: usize = MAX_PAGE;

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

/// This rank's file. It has its name until this is dropped, which is when all ranks have opened it that can.
#[derive(Debug)]
pub(crate) struct OwnFile {
    pub(super) file: File,
    pub(crate) id: FileId,
}

impl Drop for OwnFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.id.path());
    }
}

impl OwnFile {
    /// Creates this rank's file, which only this user can read.
    ///
    /// # Errors
    /// Returns `Shared` with the kernel's error.
    pub(crate) fn create() -> Result<Self, CommError> {
        // A name of zero stands for no file.
        let id = FileId { name: random().max(1), nonce: random() };
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).mode(0o600).open(id.path());
        let this = Self { file: file.map_err(|error| id.error(error))?, id };
        this.reserve(HEADER_BYTES)?;
        this.file.write_all_at(&id.header(), 0).map_err(|error| id.error(error))?;
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
        let reserved = rustix::fs::fallocate(&self.file, FallocateFlags::empty(), 0, bytes as u64);
        reserved.map_err(|error| {
            self.id.error(SharedError::NoMemory { bytes: bytes as u64, error: error.into() })
        })
    }
}

/// Returns the offset of an area, given the number of those before it.
pub(super) const fn offset(areas: usize, size: AreaSize) -> usize {
    HEADER_BYTES + areas * size.bytes()
}

/// Opens another rank's file.
///
/// # Errors
/// Returns `NotFound` if there is none here, `Foreign` if another user's file or another kind of file has its name, or
/// `OtherContent` if the file of this name is not the rank's.
pub(crate) fn open(id: FileId) -> Result<File, SharedError> {
    let file = open_own(&id.path())?;
    let header = Mapping::of(&file, 0, HEADER_BYTES).map_err(SharedError::NotFound)?;
    if header.bytes(0, 16) == id.header() { Ok(file) } else { Err(SharedError::OtherContent) }
}

/// Opens a regular file of this user. Another user who knows its name may have created it, as a link to a file of this
/// user, or as a file to read the messages in it or to make it shorter while it is mapped.
fn open_own(path: &Path) -> Result<File, SharedError> {
    // `NONBLOCK` because opening a file on which its owner has a lease would block.
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => {
            let file = File::from(file);
            check_own(&file.metadata().map_err(SharedError::NotFound)?)?;
            Ok(file)
        }
        Err(error) => {
            // A link, a directory or a file without permission.
            path.symlink_metadata().map_or(Ok(()), |about| check_own(&about))?;
            Err(SharedError::NotFound(error.into()))
        }
    }
}

/// Checks that a file is a regular one of this user.
fn check_own(about: &Metadata) -> Result<(), SharedError> {
    let is_own = about.is_file() && about.uid() == rustix::process::geteuid().as_raw();
    if is_own { Ok(()) } else { Err(SharedError::Foreign { owner: about.uid() }) }
}
