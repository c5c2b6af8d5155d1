//! Execution of code and programs inside a network namespace.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::{panic, thread};

use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::LabError;

/// The folder in which `ip netns` keeps namespaces.
const NAMESPACES: &str = "/run/netns";

/// Runs `action` on a new thread inside the network namespace `name` and returns its result.
///
/// Sockets opened there stay there: a socket that `action` returns keeps sending and receiving in the namespace,
/// whichever thread uses it, and a process started there stays inside. `/sys` still shows the caller's devices;
/// `/proc/thread-self/net` shows the namespace's.
///
/// # Errors
/// Returns `Io` if there is no such namespace or it cannot be entered.
///
/// # Panics
/// Panics if `action` panics.
pub fn enter<T: Send>(name: &str, action: impl FnOnce() -> T + Send) -> Result<T, LabError> {
    let file = File::open(path(name)).map_err(LabError::io(format!("open namespace {name}")))?;
    let inside = move || {
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
            .map_err(|errno| LabError::io(format!("enter namespace {name}"))(errno.into()))?;
        Ok(action())
    };
    thread::scope(|scope| scope.spawn(inside).join())
        .unwrap_or_else(|cause| panic::resume_unwind(cause))
}

/// Starts `command` inside the namespace.
///
/// # Errors
/// Returns `Io` if the namespace cannot be entered or the program cannot be started.
pub(crate) fn spawn(name: &str, command: &mut Command) -> Result<Child, LabError> {
    let program = command.get_program().to_string_lossy().into_owned();
    enter(name, || command.spawn())?.map_err(LabError::io(format!("run {program} in {name}")))
}

/// Returns the names of all namespaces that start with `prefix`, in order.
pub(crate) fn list(prefix: &str) -> Vec<String> {
    let Ok(folder) = fs::read_dir(NAMESPACES) else { return vec![] };
    let mut names: Vec<String> = folder
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.starts_with(prefix))
        .collect();
    names.sort();
    names
}

/// Kills every process in one of the namespaces. A namespace whose name is deleted exists as long as a process is
/// inside, with its devices and its half of every veth pair.
pub(crate) fn kill_processes(names: &[String]) {
    let inodes: BTreeSet<u64> =
        names.iter().filter_map(|name| Some(fs::metadata(path(name)).ok()?.ino())).collect();
    let Ok(processes) = fs::read_dir("/proc") else { return };
    for process in processes.flatten() {
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let inside = fs::metadata(process.path().join("ns/net"))
            .is_ok_and(|namespace| inodes.contains(&namespace.ino()));
        if let Some(pid) = Pid::from_raw(pid).filter(|_| inside) {
            // The process may have ended since.
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// Writes `/proc/sys/net/...` of this thread's namespace.
///
/// # Errors
/// Returns `Io` if the kernel has no such setting or refuses the value.
pub(crate) fn write_sysctl(name: &str, value: &str) -> Result<(), LabError> {
    let path = Path::new("/proc/sys/net").join(name);
    fs::write(&path, value).map_err(LabError::io(format!("set {} to {value}", path.display())))
}

fn path(name: &str) -> PathBuf {
    Path::new(NAMESPACES).join(name)
}
