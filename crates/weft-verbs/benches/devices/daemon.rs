//! A daemon in a process of its own, so that its memory can be measured.

use std::error::Error;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use weft_verbs::{Admin, Daemon, DaemonSettings};

/// The first argument of the daemon's process.
pub(crate) const SERVE: &str = "--serve-devices";

/// Serves at a socket, as `weft device serve` does.
pub(crate) fn serve(socket: &Path) -> Result<(), Box<dyn Error>> {
    let state = Some(socket.with_extension("state"));
    let settings = DaemonSettings { state, ..DaemonSettings::default() };
    let daemon = Daemon::open(socket, settings)?;
    println!("serving");
    Ok(daemon.run(|| ())?)
}

/// A daemon's process, which ends with the value.
pub(crate) struct Process {
    child: Child,
    pub(crate) socket: PathBuf,
}

/// A process's memory, bytes.
#[derive(Clone, Copy)]
pub(crate) struct Memory {
    /// Its own: the heap, above all.
    pub(crate) own: u64,
    /// Shared with clients: the rings.
    pub(crate) shared: u64,
}

impl Process {
    /// Starts a daemon with the devices that a former one kept. Returns the time that it took, too.
    pub(crate) fn start() -> Result<(Self, Duration), Box<dyn Error>> {
        let socket = std::env::temp_dir().join(format!("weft-devices-{}.sock", std::process::id()));
        let begun = Instant::now();
        let mut command = Command::new(std::env::current_exe()?);
        let mut child = command.arg(SERVE).arg(&socket).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().ok_or("no output")?).read_line(&mut line)?;
        if line != "serving\n" {
            return Err(format!("the daemon does not serve: {line}").into());
        }
        Ok((Self { child, socket }, begun.elapsed()))
    }

    pub(crate) fn admin(&self) -> Result<Admin, Box<dyn Error>> {
        Ok(Admin::connect(Some(&self.socket))?)
    }

    pub(crate) fn memory(&self) -> Result<Memory, Box<dyn Error>> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let row = |name: &str| -> Option<u64> {
            let row = status.lines().find_map(|line| line.strip_prefix(name))?;
            Some(row.split_whitespace().nth(1)?.parse::<u64>().ok()? << 10)
        };
        let found = row("RssAnon").zip(row("RssShmem"));
        let (own, shared) = found.ok_or("the kernel does not show memory")?;
        Ok(Memory { own, shared })
    }

    /// Returns the length of the file that keeps the devices, bytes.
    pub(crate) fn state_bytes(&self) -> u64 {
        fs::metadata(self.socket.with_extension("state")).map_or(0, |about| about.len())
    }

    /// Kills the daemon; its devices stay in the file.
    pub(crate) fn kill(mut self) -> Result<(), Box<dyn Error>> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Ends the daemon and its devices.
    pub(crate) fn end(self) -> Result<(), Box<dyn Error>> {
        let state = self.socket.with_extension("state");
        let socket = self.socket.clone();
        self.kill()?;
        fs::remove_file(state.with_extension("state.lock"))?;
        fs::remove_file(state)?;
        Ok(fs::remove_file(socket)?)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
