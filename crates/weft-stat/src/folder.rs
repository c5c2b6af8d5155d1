//! The folder of the status files, and the removal of files whose programs have died.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{FlockOperation, flock};
use rustix::process::geteuid;

use crate::directory::Directory;
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
pub struct Folder {
    path: PathBuf,
    /// The user to whom a folder with a default name must belong: any user may create `/dev/shm/weft-UID` first.
    /// `None` if the path was chosen.
    owner: Option<u32>,
}

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
    /// The folder in which it was found; at its path there may be another one by now.
    directory: Arc<Directory>,
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
        Self { path: path.into(), owner: None }
    }

    /// Returns the current user's folder: the value of `WEFT_STAT`, else [`Self::private`]. Returns `None` if the
    /// variable is `off`.
    pub fn own() -> Option<Self> {
        match std::env::var_os(VARIABLE).filter(|value| !value.is_empty()) {
            Some(value) if value == OFF => None,
            Some(value) => Some(Self::at(value)),
            None => Some(Self::private()),
        }
    }

    /// Returns the current user's folder for files of running programs: `weft` in `XDG_RUNTIME_DIR`, else
    /// `/dev/shm/weft-UID`.
    pub fn private() -> Self {
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let runtime = runtime.filter(|path| path.is_absolute());
        let user = geteuid().as_raw();
        let shared = || PathBuf::from(format!("/dev/shm/weft-{user}"));
        let path = runtime.map_or_else(shared, |path| path.join("weft"));
        Self { path, owner: Some(user) }
    }

    /// Returns the folders that the current user may read: its own, and for root those of all users. If `WEFT_STAT` is
    /// set, returns only the folder that it names, or none if it is `off`.
    pub fn visible() -> Vec<Self> {
        let mut all: Vec<Self> = Self::own().into_iter().collect();
        let chosen = std::env::var_os(VARIABLE).is_some_and(|value| !value.is_empty());
        if !chosen && geteuid().is_root() {
            all.extend(of_all_users(Path::new("/dev/shm"), Path::new("/run/user")));
            all.sort_by(|one, other| one.path.cmp(&other.path));
            all.dedup();
        }
        all
    }

    /// Returns the path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Creates the folder if it is missing, and checks that no other user may write to it.
    ///
    /// # Errors
    /// Returns an error if it cannot be created or another user may write to it.
    pub fn prepare(&self) -> Result<(), FolderError> {
        use std::os::unix::fs::DirBuilderExt;
        let failed = |error| FolderError::Io { path: self.path.clone(), error };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.path).map_err(failed)?;
        let about = fs::symlink_metadata(&self.path).map_err(failed)?;
        let (owner, mode) = (about.uid(), about.mode() & 0o7777);
        let is_private = owner == geteuid().as_raw() && mode & 0o022 == 0;
        if !about.is_dir() || !is_private {
            return Err(FolderError::NotOurs { path: self.path.clone(), owner, mode });
        }
        Ok(())
    }

    /// Creates a file without its final name, locked as long as it is open.
    pub(crate) fn unnamed(&self) -> io::Result<File> {
        let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = self.path.join(format!(".new-{}-{number}", std::process::id()));
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
            let path = self.path.join(format!("{process}-{number}.{suffix}"));
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

    /// Returns all status files, ordered by name. A folder that does not exist has none, and neither does one with the
    /// name of another user's folder.
    ///
    /// # Errors
    /// Returns an error if the folder cannot be read.
    pub fn scan(&self) -> Result<Vec<StatusFile>, FolderError> {
        let failed = |error| FolderError::Io { path: self.path.clone(), error };
        let Some(directory) = self.open().map_err(failed)?.map(Arc::new) else {
            return Ok(Vec::new());
        };
        let names = directory.names().map_err(failed)?;
        let mut found: Vec<StatusFile> =
            names.iter().filter_map(|name| self.find(&directory, name)).collect();
        found.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(found)
    }

    /// Opens the folder. Returns `None` if there is none, or something else is at its default path: another user may
    /// have created that, and must not end a scan of all users' folders.
    fn open(&self) -> io::Result<Option<Directory>> {
        use io::ErrorKind::{NotADirectory, NotFound, PermissionDenied};
        match Directory::open(&self.path) {
            Ok(directory) => {
                let is_its = self.owner.is_none_or(|owner| owner == directory.owner());
                Ok(is_its.then_some(directory))
            }
            Err(error) if error.kind() == NotFound => Ok(None),
            Err(error)
                if self.owner.is_some()
                    && matches!(error.kind(), NotADirectory | PermissionDenied) =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the status file of a name.
    fn find(&self, directory: &Arc<Directory>, name: &OsStr) -> Option<StatusFile> {
        let path = self.path.join(name);
        let ending = path.extension()?.to_str()?;
        let stem = path.file_stem()?.to_str()?.to_owned();
        // Readers print the name, and the folder's owner chooses it.
        if !SUFFIXES.contains(&ending) || stem.contains(char::is_control) {
            return None;
        }
        let file = directory.open_file(name).ok()?;
        // The program holds the lock as long as it lives; the kernel releases it in every case.
        let is_dead = flock(&file, FlockOperation::NonBlockingLockShared).is_ok();
        Some(StatusFile { name: stem, path, is_dead, file, directory: Arc::clone(directory) })
    }

    /// Removes the files of programs that no longer run.
    pub fn sweep(&self) {
        for found in self.scan().into_iter().flatten().filter(|found| found.is_dead) {
            found.clear();
        }
        let Ok(Some(directory)) = self.open() else { return };
        let names = directory.names().unwrap_or_default();
        names.iter().filter(|name| is_abandoned(name)).for_each(|name| directory.remove(name));
    }
}

/// Returns the default folders of all users: `weft-UID` in one folder, and `UID/weft` in another one.
fn of_all_users(shared: &Path, runtime: &Path) -> Vec<Folder> {
    let within = |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten();
    let user = |name: &str| name.parse::<u32>().ok();
    let mut all = Vec::new();
    for entry in within(shared) {
        let owner = entry.file_name().to_str().and_then(|name| user(name.strip_prefix("weft-")?));
        all.extend(owner.map(|_| Folder { path: entry.path(), owner }));
    }
    for entry in within(runtime) {
        let owner = entry.file_name().to_str().and_then(user);
        all.extend(owner.map(|_| Folder { path: entry.path().join("weft"), owner }));
    }
    all
}

/// Returns `true` for a temporary file, `.new-PID-NUMBER`, of a process that no longer runs.
fn is_abandoned(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    let numbers = name.strip_prefix(".new-");
    let process = numbers.and_then(|numbers| numbers.split('-').next()?.parse::<u32>().ok());
    process.is_some_and(|process| !Path::new(&format!("/proc/{process}")).exists())
}

impl StatusFile {
    /// Removes the file and the socket beside it.
    pub fn clear(&self) {
        let Some(name) = self.path.file_name() else { return };
        self.directory.remove(name);
        if self.path.extension().is_some_and(|ending| ending == "node") {
            self.directory.remove(format!("{}.{CONTROL}", self.name));
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The attacker creates folders under the names of other users' folders, and other files.
    #[test]
    fn a_default_folder_belongs_to_the_user_in_its_name() {
        let base = std::env::temp_dir().join(format!("weft-stat-{}-users", std::process::id()));
        let (shared, runtime) = (base.join("shm"), base.join("run"));
        let own = geteuid().as_raw();
        let status = |folder: PathBuf| {
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("1-0.node"), "").unwrap();
            folder
        };
        let good = status(shared.join(format!("weft-{own}")));
        status(shared.join(format!("weft-{}", own + 1)));
        status(shared.join("weft-coll"));
        fs::write(shared.join("weft-7"), "").unwrap();
        fs::create_dir_all(&runtime).unwrap();
        fs::create_dir(runtime.join(own.to_string())).unwrap();
        std::os::unix::fs::symlink(&good, runtime.join(format!("{own}/weft"))).unwrap();
        let folders = of_all_users(&shared, &runtime);
        let found: Vec<_> = folders.iter().flat_map(|it| it.scan().unwrap()).collect();
        assert_eq!(folders.len(), 4);
        assert_eq!(found.iter().map(|it| &it.path).collect::<Vec<_>>(), [&good.join("1-0.node")]);
        fs::remove_dir_all(base).unwrap();
    }
}
