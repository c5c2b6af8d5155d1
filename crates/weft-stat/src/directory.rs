//! An open folder, whose files are found, opened and removed through its descriptor.
//!
//! Root reads the folders of all users. The owner of a folder can replace each name in it, and the folder's own name,
//! at any time. So a path is resolved once, without symbolic links at its end, and each check is made on a descriptor.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, fstat, openat, unlinkat};

/// An open folder and the user ID of its owner.
#[derive(Debug)]
pub(crate) struct Directory {
    fd: OwnedFd,
    owner: u32,
}

impl Directory {
    /// Opens a folder. A symbolic link to a folder is refused as `NotADirectory`.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = openat(CWD, path, flags, Mode::empty())?;
        let owner = fstat(&fd)?.st_uid;
        Ok(Self { fd, owner })
    }

    pub(crate) const fn owner(&self) -> u32 {
        self.owner
    }

    /// Returns the names of all files.
    pub(crate) fn names(&self) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        for entry in Dir::new(openat(&self.fd, ".", flags, Mode::empty())?)? {
            names.push(OsStr::from_bytes(entry?.file_name().to_bytes()).to_owned());
        }
        Ok(names)
    }

    /// Opens a regular file of the folder's owner to read it.
    pub(crate) fn open_file(&self, name: &OsStr) -> io::Result<File> {
        // `NONBLOCK` because opening a pipe, or a file on which its owner has a lease, would block.
        let flags =
            OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let fd = openat(&self.fd, name, flags, Mode::empty())?;
        self.check(&fd, FileType::RegularFile)?;
        Ok(fd.into())
    }

    /// Opens a socket of the folder's owner as a path, not as a socket.
    pub(crate) fn open_socket(&self, name: &OsStr) -> io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = openat(&self.fd, name, flags, Mode::empty())?;
        self.check(&fd, FileType::Socket)?;
        Ok(fd)
    }

    /// Checks the type of an open file, and that the folder's owner owns it.
    fn check(&self, fd: &OwnedFd, expected: FileType) -> io::Result<()> {
        let about = fstat(fd)?;
        let kind = FileType::from_raw_mode(about.st_mode);
        if kind != expected {
            return Err(io::Error::other(format!("it is a {kind:?}, expected a {expected:?}")));
        }
        if about.st_uid != self.owner {
            let (user, owner) = (about.st_uid, self.owner);
            let why = format!("it belongs to user {user}, and its folder to user {owner}");
            return Err(io::Error::other(why));
        }
        Ok(())
    }

    /// Removes a file, if there is one.
    pub(crate) fn remove(&self, name: impl AsRef<OsStr>) {
        let _ = unlinkat(&self.fd, name.as_ref(), AtFlags::empty());
    }
}
