//! The file of shared memory. `/dev/shm` is a folder in which any user may create files.

use core::sync::atomic::Ordering;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use weft_units::Instant;

use super::mapping::Mapping;
use super::{HEADER_BYTES, MAGIC, RETRY_INTERVAL};
use crate::error::SharedError;
use crate::options::TOKEN_VARIABLE;
use crate::rendezvous::now;
use crate::wait::wait;

/// Creates rank 0's file, which only this user can read.
///
/// # Errors
/// Returns `Foreign` if another file has its name, or `Io`.
pub(super) fn create(path: &Path, len: usize) -> Result<File, SharedError> {
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create_new(true).mode(0o600).open(path);
    let file = file.map_err(|error| match path.symlink_metadata() {
        Ok(other) if error.kind() == io::ErrorKind::AlreadyExists => foreign(&other),
        _ => error.into(),
    })?;
    file.set_len(len as u64)?;
    Ok(file)
}

/// Waits for rank 0's file and returns it.
///
/// # Errors
/// Returns `Foreign` if another user's file has its name, or the reason if there is none at `until`.
pub(super) fn find(path: &Path, len: usize, until: Instant) -> Result<File, SharedError> {
    loop {
        let why = match open_complete(path, len) {
            Err(why) if !matches!(why, SharedError::Foreign { .. }) => why,
            result => return result,
        };
        if now() >= until {
            return Err(why);
        }
        wait(&mut [], RETRY_INTERVAL);
    }
}

/// Opens rank 0's file, if rank 0 has written its header.
fn open_complete(path: &Path, len: usize) -> Result<File, SharedError> {
    let file = open_own(path)?;
    if file.metadata().map_err(SharedError::NotFound)?.len() != len as u64 {
        return Err(SharedError::NotFound(io::ErrorKind::UnexpectedEof.into()));
    }
    let head = Mapping::of(&file, HEADER_BYTES).map_err(SharedError::NotFound)?;
    if head.word(0).load(Ordering::Acquire) == MAGIC { Ok(file) } else { Err(SharedError::Empty) }
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
    if is_own { Ok(()) } else { Err(foreign(about)) }
}

fn foreign(about: &Metadata) -> SharedError {
    SharedError::Foreign { owner: about.uid(), variable: TOKEN_VARIABLE }
}
