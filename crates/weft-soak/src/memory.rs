//! Memory cgroups of the daemons, as systemd's units have them: by version 1 of the interface, or 2.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// A folder with a memory cgroup for each daemon. Dropping it removes them.
#[derive(Debug)]
pub(crate) struct Cgroups {
    pub(crate) folder: PathBuf,
    daemons: Vec<PathBuf>,
}

/// The folder of memory cgroups of version 1.
const VERSION_1: &str = "/sys/fs/cgroup/memory";
/// The folder of cgroups of version 2.
const VERSION_2: &str = "/sys/fs/cgroup";
/// The memory that a daemon may use beyond what it has when its memory becomes scarce, bytes.
const SPARE: u64 = 2 << 20;

impl Cgroups {
    /// Makes the cgroups of these daemons.
    ///
    /// # Errors
    /// Returns an error if this machine has no memory cgroups, or this user may not make any.
    pub(crate) fn make(daemons: &[String]) -> Result<Self> {
        let is_first = Path::new(VERSION_1).is_dir();
        let root = if is_first { VERSION_1 } else { VERSION_2 };
        let folder = Path::new(root).join(format!("weft-soak-{}", std::process::id()));
        let mut cgroups = Self { folder, daemons: Vec::new() };
        make(&cgroups.folder)?;
        if !is_first {
            write(&cgroups.folder.join("cgroup.subtree_control"), "+memory")?;
        }
        for daemon in daemons {
            let folder = of(&cgroups.folder, daemon);
            make(&folder)?;
            cgroups.daemons.push(folder);
        }
        Ok(cgroups)
    }

    /// Limits a daemon to little more than the memory that it uses and that is no file's. Returns the limit in bytes.
    ///
    /// # Errors
    /// Returns an error if the limit cannot be set.
    pub(crate) fn squeeze(&self, daemon: &str) -> Result<u64> {
        let folder = of(&self.folder, daemon);
        let (file, field) = if folder.join("memory.max").exists() {
            ("memory.max", "anon ")
        } else {
            ("memory.limit_in_bytes", "total_rss ")
        };
        let stat = fs::read_to_string(folder.join("memory.stat"))?;
        let used = stat
            .lines()
            .find_map(|line| line.strip_prefix(field))
            .context("no memory in memory.stat")?;
        let limit = used.trim().parse::<u64>()? + SPARE;
        write(&folder.join(file), &limit.to_string())?;
        Ok(limit)
    }

    /// Removes a daemon's limit.
    ///
    /// # Errors
    /// Returns an error if it cannot be removed.
    pub(crate) fn release(&self, daemon: &str) -> Result<()> {
        let folder = of(&self.folder, daemon);
        match folder.join("memory.max").exists() {
            true => write(&folder.join("memory.max"), "max"),
            false => write(&folder.join("memory.limit_in_bytes"), "-1"),
        }
    }
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        for folder in self.daemons.iter().chain([&self.folder]) {
            // One with a process that still ends cannot be removed; an empty cgroup costs nothing.
            let _ = fs::remove_dir(folder);
        }
    }
}

/// Returns the folder of a daemon's cgroup.
pub(crate) fn of(folder: &Path, daemon: &str) -> PathBuf {
    folder.join(daemon.replace(' ', "-"))
}

fn make(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| {
        format!("cannot make the memory cgroup {} (run it as root)", folder.display())
    })
}

fn write(file: &Path, text: &str) -> Result<()> {
    fs::write(file, text).with_context(|| format!("cannot write {text} to {}", file.display()))
}
