//! The names, addresses and files of a stage, and the command `weft` on it, for all threads.

use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

/// The time limit of a command, seconds, on a machine without other load.
const COMMAND_LIMIT: u32 = 60;

/// The stage as all threads know it.
#[derive(Debug)]
pub(crate) struct Shared {
    /// The command `weft`.
    pub(crate) weft: PathBuf,
    /// The folder of the run.
    pub(crate) folder: PathBuf,
    /// The lab's name.
    pub(crate) lab: String,
    /// The hosts' namespaces.
    pub(crate) hosts: Vec<String>,
    /// The hosts' addresses in the fabric.
    pub(crate) addresses: Vec<Ipv4Addr>,
    /// The settings of a client of etcd, as a table of TOML.
    pub(crate) etcd: String,
    /// The number by which time limits are multiplied, on a machine with other load.
    pub(crate) slack: u32,
    /// The folder of the daemons' memory cgroups.
    pub(crate) cgroups: PathBuf,
}

impl Shared {
    /// Returns a path in the folder of the run.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Returns the same as text, for command lines.
    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// Writes a file in the folder of the run. Returns its path.
    ///
    /// # Errors
    /// Returns an error if it cannot be written.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<String> {
        let path = self.path(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path.display().to_string())
    }

    /// Writes a file that other users cannot read.
    ///
    /// # Errors
    /// Returns an error if it cannot be written.
    pub(crate) fn write_secret(&self, name: &str, text: &str) -> Result<()> {
        let path = self.write(name, text)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
        Ok(())
    }

    /// Returns the folder of a daemon's memory cgroup.
    pub(crate) fn cgroup(&self, daemon: &str) -> PathBuf {
        crate::memory::of(&self.cgroups, daemon)
    }

    /// Returns the namespace of the management host.
    pub(crate) fn manager(&self) -> String {
        manager_of(&self.lab)
    }

    /// Returns the namespace of a tenant on a host.
    pub(crate) fn tenant(&self, tenant: &str, host: usize) -> String {
        tenant_of(&self.lab, tenant, host)
    }

    /// Runs `weft` in a namespace, for a limited time. Returns what it printed.
    ///
    /// # Errors
    /// Returns the last line that it printed as its error, or the reason that it could not run.
    pub(crate) fn weft(&self, namespace: &str, words: &[&str]) -> Result<String, String> {
        let mut command = Command::new("timeout");
        command
            .args(["--kill-after=5", &(COMMAND_LIMIT * self.slack).to_string()])
            .arg(&self.weft)
            .args(words);
        run(namespace, &mut command).map_err(|why| format!("weft {}: {why}", words[..2].join(" ")))
    }

    /// Runs `weft` with `--json`, and returns what it printed.
    ///
    /// # Errors
    /// Returns the errors of [`Self::weft`].
    pub(crate) fn ask(&self, namespace: &str, words: &[&str]) -> Result<Value, String> {
        let printed = self.weft(namespace, &[words, &["--json"]].concat())?;
        serde_json::from_str(&printed)
            .map_err(|error| format!("{words:?} printed no JSON: {error}"))
    }
}

/// Returns the namespace of a lab's management host. Namespaces of this form are removed with the lab.
pub(crate) fn manager_of(lab: &str) -> String {
    format!("weft-{lab}.manager")
}

/// Returns the namespace of a tenant on a host of a lab.
pub(crate) fn tenant_of(lab: &str, tenant: &str, host: usize) -> String {
    format!("weft-{lab}.{tenant}{host}")
}

/// Runs a program in a namespace, and returns what it printed.
///
/// # Errors
/// Returns the last lines of what it printed as its error, with its status.
fn run(namespace: &str, command: &mut Command) -> Result<String, String> {
    let output =
        weft_lab::enter(namespace, || command.output()).map_err(|error| error.to_string())?;
    let output = output.map_err(|error| format!("cannot run {command:?}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let printed = String::from_utf8_lossy(&output.stderr);
    let reason = printed.trim().lines().last().unwrap_or("it printed no reason");
    Err(format!("{reason} ({})", output.status))
}

/// Returns the path of a program's file in the folder of this program.
pub(crate) fn beside(name: &str) -> Result<PathBuf> {
    let own = std::env::current_exe().context("cannot find this program's folder")?;
    Ok(own.parent().unwrap_or_else(|| Path::new("/")).join(name))
}
