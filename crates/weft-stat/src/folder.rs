//! Where the files are, and which of them belong to programs that are no more.

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

/// The variable's value for programs that shall not show themselves.
pub const OFF: &str = "off";

/// Why a folder is not used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FolderError {
    /// It cannot be made or read.
    #[error("cannot use {path}: {error}")]
    Io {
        /// Which.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        error: io::Error,
    },
    /// Somebody else may put files into it.
    #[error(
        "{path} belongs to user {owner} with mode {mode:o}: only this user may be able to write there"
    )]
    NotOurs {
        /// Which.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
        /// Its rights.
        mode: u32,
    },
}

/// A folder of files that programs show themselves in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folder(PathBuf);

/// A file of a program, as it is found.
#[derive(Debug)]
pub struct Found {
    /// Its name, without folder and ending: `PID-NUMBER`.
    pub name: String,
    /// Where it is.
    pub path: PathBuf,
    /// Its program is no more.
    pub is_dead: bool,
    /// The file, to look again.
    pub file: File,
}

impl Found {
    /// What it says.
    ///
    /// # Errors
    /// It is not as such files are.
    pub fn read(&self) -> Result<Snapshot, LayoutError> {
        Snapshot::read(&self.file)
    }

    /// Where its program takes orders.
    pub fn control(&self) -> PathBuf {
        self.path.with_extension(CONTROL)
    }
}

/// Endings of the files.
pub(crate) const SUFFIXES: [&str; 2] = ["node", "device"];
/// Ending of the socket beside a node's.
pub(crate) const CONTROL: &str = "control";

/// Numbers of this process's files.
static NUMBER: AtomicU32 = AtomicU32::new(0);

impl Folder {
    /// A folder at this place.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// This user's: what `WEFT_STAT` says, else `weft` in `XDG_RUNTIME_DIR`, else `/dev/shm/weft-UID`. `None` where
    /// the variable is `off`.
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

    /// Those that this user may see: its own, and for root everybody's.
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

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Makes it where it is missing, and sees to it that nobody else may put files there.
    ///
    /// # Errors
    /// It cannot be made, or somebody else may.
    pub fn prepare(&self) -> Result<(), FolderError> {
        use std::os::unix::fs::DirBuilderExt;
        let failed = |error| FolderError::Io { path: self.0.clone(), error };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.0).map_err(failed)?;
        let about = fs::symlink_metadata(&self.0).map_err(failed)?;
        let (owner, mode) = (about.uid(), about.mode() & 0o7777);
        let ours = owner == rustix::process::geteuid().as_raw() && mode & 0o022 == 0;
        if !about.is_dir() || !ours {
            return Err(FolderError::NotOurs { path: self.0.clone(), owner, mode });
        }
        Ok(())
    }

    /// A file that nobody finds yet, locked for as long as it is open.
    pub(crate) fn unnamed(&self) -> io::Result<File> {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = self.0.join(format!(".new-{}-{number}", std::process::id()));
        // One of a process that had the number before and was killed just here.
        let _ = fs::remove_file(&path);
        let mut options = File::options();
        let file = options.read(true).write(true).create_new(true).mode(0o600).open(&path)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(file)
    }

    /// Gives it a name that is free, by which it is found from now on.
    pub(crate) fn name(&self, file: File, suffix: &str) -> io::Result<Held> {
        use std::os::fd::AsRawFd;
        let temporary = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
        let process = std::process::id();
        for number in 0..u32::MAX {
            let path = self.0.join(format!("{process}-{number}.{suffix}"));
            let (from, to) = (temporary.as_path(), path.as_path());
            let flags = rustix::fs::RenameFlags::NOREPLACE;
            match rustix::fs::renameat_with(rustix::fs::CWD, from, rustix::fs::CWD, to, flags) {
                Ok(()) => return Ok(Held { file, path }),
                Err(rustix::io::Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Every file there is, by name. A folder that is not there has none.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn scan(&self) -> Result<Vec<Found>, FolderError> {
        let entries = match fs::read_dir(&self.0) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(FolderError::Io { path: self.0.clone(), error }),
        };
        let mut found: Vec<Found> =
            entries.flatten().filter_map(|entry| find(&entry.path())).collect();
        found.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(found)
    }

    /// Clears away what programs left that are no more.
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

/// Files that live for a moment only, `.new-PID-NUMBER` and `.ask-PID-NUMBER`, of processes that are no more.
fn is_abandoned(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    let numbers = name.strip_prefix(".new-").or_else(|| name.strip_prefix(".ask-"));
    let process = numbers.and_then(|numbers| numbers.split('-').next()?.parse::<u32>().ok());
    process.is_some_and(|process| !Path::new(&format!("/proc/{process}")).exists())
}

fn find(path: &Path) -> Option<Found> {
    let ending = path.extension()?.to_str()?;
    if !SUFFIXES.contains(&ending) {
        return None;
    }
    // Nothing but a file is opened: a pipe, say, would be waited for.
    if !fs::symlink_metadata(path).ok()?.is_file() {
        return None;
    }
    let file = File::open(path).ok()?;
    // Its program has it locked as long as it lives, whatever ends it.
    let is_dead = flock(&file, FlockOperation::NonBlockingLockShared).is_ok();
    let name = path.file_stem()?.to_str()?.to_owned();
    Some(Found { name, path: path.to_owned(), is_dead, file })
}

impl Found {
    /// Clears it away, and the socket beside it.
    pub fn clear(&self) {
        let _ = fs::remove_file(&self.path);
        if self.path.extension().is_some_and(|ending| ending == "node") {
            let _ = fs::remove_file(self.control());
        }
    }
}

/// A file of this process, with its name.
#[derive(Debug)]
pub(crate) struct Held {
    file: File,
    path: PathBuf,
}

impl Held {
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
