//! The folder of the status files, and the removal of files whose programs have died.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{FlockOperation, flock};

use crate::field::LayoutError;
use crate::snapshot::Snapshot;

/// The environment variable that names another folder, or is [`OFF`].
pub const VARIABLE: &str = "WEFT_STAT";

/// The variable's value with which programs write no status file.
pub const OFF: &str = "off";

/// An error of a folder.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FolderError {
    /// The folder cannot be created or read.
    #[error("cannot use {path}: {error}")]
    Io {
        /// The folder's path.
        path: PathBuf,
        /// The system's error.
        #[source]
        error: io::Error,
    },
    /// Other users may write to the folder.
    #[error(
        "{path} belongs to user {owner} and has mode {mode:o}: only the current user may own it and write to it"
    )]
    NotOurs {
        /// The folder's path.
        path: PathBuf,
        /// The owner's user ID.
        owner: u32,
        /// The permission bits.
        mode: u32,
    },
}

/// A folder of status files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folder(PathBuf);

/// A status file in a folder.
#[derive(Debug)]
pub struct StatusFile {
    /// The file name without its ending: `PID-NUMBER`.
    pub name: String,
    /// The path.
    pub path: PathBuf,
    /// `true` if the program no longer runs.
    pub is_dead: bool,
    /// The open file, to read it again.
    pub file: File,
}

impl StatusFile {
    /// Reads the content.
    ///
    /// # Errors
    /// Returns an error if it is not a status file.
    pub fn read(&self) -> Result<Snapshot, LayoutError> {
        Snapshot::read(&self.file)
    }

    /// Returns the path of the socket for commands to the program.
    pub fn control(&self) -> PathBuf {
        self.path.with_extension(CONTROL)
    }
}

/// The endings of status files.
pub(crate) const SUFFIXES: [&str; 2] = ["node", "device"];
/// The ending of the command socket beside a node's file.
pub(crate) const CONTROL: &str = "control";

/// The number of this process's next temporary file.
static NEXT_NUMBER: AtomicU32 = AtomicU32::new(0);

impl Folder {
    /// Returns the folder at a path.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// Returns the current user's folder: the value of `WEFT_STAT`, else `weft` in `XDG_RUNTIME_DIR`, else
    /// `/dev/shm/weft-UID`. Returns `None` if the variable is `off`.
    pub fn own() -> Option<Self> {
        match std::env::var_os(VARIABLE).filter(|value| !value.is_empty()) {
            Some(value) if value == OFF => return None,
            Some(value) => return Some(Self(value.into())),
            None => {}
        }
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let runtime = runtime.filter(|path| path.is_absolute());
        let user = rustix::process::geteuid().as_raw();
        let shared = || PathBuf::from(format!("/dev/shm/weft-{user}"));
        Some(Self(runtime.map_or_else(shared, |path| path.join("weft"))))
    }

    /// Returns the folders that the current user may read: its own, and for root those of all users. If `WEFT_STAT` is
    /// set, returns only the folder that it names, or none if it is `off`.
    pub fn visible() -> Vec<Self> {
        let mut all: Vec<Self> = Self::own().into_iter().collect();
        let chosen = std::env::var_os(VARIABLE).is_some_and(|value| !value.is_empty());
        if !chosen && rustix::process::geteuid().is_root() {
            let within = |folder: &str| {
                fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path())
            };
            let named = |path: &PathBuf| {
                path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("weft-"))
            };
            all.extend(within("/dev/shm").filter(named).map(Self));
            all.extend(within("/run/user").map(|user| Self(user.join("weft"))));
            all.sort_by(|one, other| one.0.cmp(&other.0));
            all.dedup();
        }
        all
    }

    /// Returns the path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Creates the folder if it is missing, and checks that no other user may write to it.
    ///
    /// # Errors
    /// Returns an error if it cannot be created or another user may write to it.
    pub fn prepare(&self) -> Result<(), FolderError> {
        use std::os::unix::fs::DirBuilderExt;
        let failed = |error| FolderError::Io { path: self.0.clone(), error };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.0).map_err(failed)?;
        let about = fs::symlink_metadata(&self.0).map_err(failed)?;
        let (owner, mode) = (about.uid(), about.mode() & 0o7777);
        let is_private = owner == rustix::process::geteuid().as_raw() && mode & 0o022 == 0;
        if !about.is_dir() || !is_private {
            return Err(FolderError::NotOurs { path: self.0.clone(), owner, mode });
        }
        Ok(())
    }

    /// Creates a file without its final name, locked as long as it is open.
    pub(crate) fn unnamed(&self) -> io::Result<File> {
        let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = self.0.join(format!(".new-{}-{number}", std::process::id()));
        // A killed process with the same number may have left such a file.
        let _ = fs::remove_file(&path);
        let mut options = File::options();
        let file = options.read(true).write(true).create_new(true).mode(0o600).open(&path)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(file)
    }

    /// Renames the file to a free name, under which readers find it.
    pub(crate) fn name(&self, file: File, suffix: &str) -> io::Result<LockedFile> {
        use std::os::fd::AsRawFd;
        let temporary = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
        let process = std::process::id();
        for number in 0..u32::MAX {
            let path = self.0.join(format!("{process}-{number}.{suffix}"));
            let (from, to) = (temporary.as_path(), path.as_path());
            let flags = rustix::fs::RenameFlags::NOREPLACE;
            match rustix::fs::renameat_with(rustix::fs::CWD, from, rustix::fs::CWD, to, flags) {
                Ok(()) => return Ok(LockedFile { file, path }),
                Err(rustix::io::Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Returns all status files, ordered by name. A folder that does not exist has none.
    ///
    /// # Errors
    /// Returns an error if the folder cannot be read.
    pub fn scan(&self) -> Result<Vec<StatusFile>, FolderError> {
        let entries = match fs::read_dir(&self.0) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(FolderError::Io { path: self.0.clone(), error }),
        };
        let mut found: Vec<StatusFile> =
            entries.flatten().filter_map(|entry| find(&entry.path())).collect();
        found.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(found)
    }

    /// Removes the files of programs that no longer run.
    pub fn sweep(&self) {
        for found in self.scan().into_iter().flatten().filter(|found| found.is_dead) {
            found.clear();
        }
        let entries = fs::read_dir(&self.0).into_iter().flatten().flatten();
        for entry in entries.filter(|entry| is_abandoned(&entry.file_name())) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Returns `true` for a temporary file, `.new-PID-NUMBER` or `.ask-PID-NUMBER`, of a process that no longer runs.
fn is_abandoned(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    let numbers = name.strip_prefix(".new-").or_else(|| name.strip_prefix(".ask-"));
    let process = numbers.and_then(|numbers| numbers.split('-').next()?.parse::<u32>().ok());
    process.is_some_and(|process| !Path::new(&format!("/proc/{process}")).exists())
}

fn find(path: &Path) -> Option<StatusFile> {
    let ending = path.extension()?.to_str()?;
    if !SUFFIXES.contains(&ending) {
        return None;
    }
    // Only regular files are opened: opening a pipe would block.
    if !fs::symlink_metadata(path).ok()?.is_file() {
        return None;
    }
    let file = File::open(path).ok()?;
    // The program holds the lock as long as it lives; the kernel releases it in every case.
    let is_dead = flock(&file, FlockOperation::NonBlockingLockShared).is_ok();
    let name = path.file_stem()?.to_str()?.to_owned();
    Some(StatusFile { name, path: path.to_owned(), is_dead, file })
}

impl StatusFile {
    /// Removes the file and the socket beside it.
    pub fn clear(&self) {
        let _ = fs::remove_file(&self.path);
        if self.path.extension().is_some_and(|ending| ending == "node") {
            let _ = fs::remove_file(self.control());
        }
    }
}

/// A locked status file of this process.
#[derive(Debug)]
pub(crate) struct LockedFile {
    file: File,
    path: PathBuf,
}

impl LockedFile {
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn remove(&self) {
        let _ = fs::remove_file(&self.path);
    }
}
