//! Messages to the service manager, in the protocol of `sd_notify(3)`: a datagram of lines `KEY=VALUE` for each.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::time::{ClockId, clock_gettime};

/// The interval between messages to a manager that watches the daemon's status only.
const STATUS_INTERVAL: Duration = Duration::from_secs(10);

/// The connection to a service manager.
#[derive(Debug)]
pub(super) struct Manager {
    socket: UnixDatagram,
    /// The interval between messages: half the time after which the manager restarts a silent daemon.
    interval: Duration,
    next: Mutex<Instant>,
}

impl Manager {
    /// Connects to the manager that `NOTIFY_SOCKET` names; returns `None` if there is none.
    ///
    /// # Errors
    /// Returns an error if nobody listens there, or if `WATCHDOG_USEC` is no number of microseconds.
    pub(super) fn from_environment() -> Result<Option<Self>> {
        let Some(name) = env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else {
            return Ok(None);
        };
        let socket = connect(&name)
            .with_context(|| format!("no service manager at NOTIFY_SOCKET={}", name.display()))?;
        let interval = watchdog()?.map_or(STATUS_INTERVAL, |timeout| timeout / 2);
        Ok(Some(Self { socket, interval, next: Mutex::new(Instant::now()) }))
    }

    /// Reports that the daemon serves: after its start or a reload.
    pub(super) fn ready(&self, status: &str) {
        *self.next() = Instant::now() + self.interval;
        self.send(&format!("READY=1\nSTATUS={status}\n"));
    }

    /// Reports that the daemon is alive, if a message is due; and that it serves, because the first report may be lost.
    pub(super) fn keep_alive(&self, status: impl FnOnce() -> String) {
        let now = Instant::now();
        if now >= *self.next() {
            *self.next() = now + self.interval;
            self.send(&format!("WATCHDOG=1\nREADY=1\nSTATUS={}\n", status()));
        }
    }

    pub(super) fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let micros = now.tv_sec * 1_000_000 + now.tv_nsec / 1_000;
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={micros}\n"));
    }

    pub(super) fn stopping(&self) {
        self.send("STOPPING=1\n");
    }

    /// Returns the time of the next message that says that the daemon is alive.
    fn next(&self) -> MutexGuard<'_, Instant> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a message without waiting: a manager that does not read must not stop a loop that carries packets. The next
    /// message repeats what it misses.
    fn send(&self, message: &str) {
        if let Err(error) = self.socket.send(message.as_bytes()) {
            tracing::warn!(%error, "the service manager did not take a message");
        }
    }
}

/// Connects to a socket in the file system, or in the abstract namespace if its name begins with `@`.
fn connect(name: &OsStr) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    match name.as_bytes() {
        [b'@', name @ ..] => socket.connect_addr(&SocketAddr::from_abstract_name(name)?)?,
        _ => socket.connect(name)?,
    }
    Ok(socket)
}

/// Returns the time after which the manager restarts a silent daemon, if it watches this process.
///
/// # Errors
/// Returns an error if `WATCHDOG_USEC` is not a number.
fn watchdog() -> Result<Option<Duration>> {
    let number = |name: &str| {
        let value = env::var(name).ok().filter(|value| !value.is_empty());
        let parsed = value.map(|value| value.parse::<u64>());
        parsed.transpose().with_context(|| format!("{name} is no number"))
    };
    let watches = number("WATCHDOG_PID")?.is_none_or(|pid| pid == u64::from(std::process::id()));
    Ok(number("WATCHDOG_USEC")?.filter(|_| watches).map(Duration::from_micros))
}
