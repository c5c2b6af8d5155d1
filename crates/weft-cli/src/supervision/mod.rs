//! A daemon as its supervisors see it: the service manager that started it, and clients of `/healthz` and `/readyz`.
//!
//! | task | file |
//! | --- | --- |
//! | messages to the service manager | `manager.rs` |
//! | sockets that the service manager listens with | `sockets.rs` |
//! | answers over HTTP | `health.rs` |
//!
//! A daemon's main loop calls [`Supervision::on_turn`], and no other thread does: a loop that hangs is noticed although
//! other threads still run.

mod health;
mod manager;
mod sockets;

use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};

pub(crate) use health::Health;
use manager::Manager;
use sockets::PassedSockets;

/// Reports the state of a daemon to its supervisors, and has the sockets that they listen with for it.
#[derive(Debug)]
pub(crate) struct Supervision {
    manager: Option<Manager>,
    sockets: PassedSockets,
    health: Arc<Health>,
}

impl Supervision {
    /// Connects to the service manager, if the daemon was started by one, and takes over the sockets that it passes. It is
    /// called before the daemon has threads, because it changes the environment.
    ///
    /// # Errors
    /// Returns an error that names `NOTIFY_SOCKET` if no service manager can be reached there, or `LISTEN_FDS` if a descriptor
    /// that it passes is not one to listen with.
    pub(crate) fn start() -> Result<Self> {
        let sockets = PassedSockets::from_environment()?;
        Ok(Self { manager: Manager::from_environment()?, sockets, health: Arc::default() })
    }

    /// Listens at an address, with the service manager's socket if there is one. Calls of the listener do not wait.
    ///
    /// # Errors
    /// Returns an error that names the service `what` if it cannot listen there.
    pub(crate) fn listen(&self, at: SocketAddr, what: &str) -> Result<TcpListener> {
        let passed = self.sockets.take_tcp(at);
        passed
            .map_or_else(|| TcpListener::bind(at), Ok)
            .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
            .with_context(|| format!("cannot serve {what} at {at}"))
    }

    /// Takes the service manager's socket for control of the overlay, if there is one at this path.
    pub(crate) fn take_control(&self, path: &Path) -> Option<UnixListener> {
        self.sockets.take_unix(path)
    }

    /// Takes the service manager's socket of a device, if there is one at this path.
    pub(crate) fn take_device(&self, path: &Path) -> Option<OwnedFd> {
        self.sockets.take_sequential(path)
    }

    /// Checks that the daemon uses all sockets of the service manager.
    ///
    /// # Errors
    /// Names those that it does not use.
    pub(crate) fn check_sockets(&self) -> Result<()> {
        self.sockets.check_all_taken()
    }

    /// Returns the state that HTTP handlers show.
    pub(crate) fn health(&self) -> Arc<Health> {
        Arc::clone(&self.health)
    }

    /// Reports that the main loop has taken a turn; the first call reports that the daemon is ready. `status` returns a
    /// line about its state; it is called only if the service manager is to have it.
    pub(crate) fn on_turn(&self, status: impl FnOnce() -> String) {
        let is_first = self.health.on_turn();
        if let Some(manager) = &self.manager {
            if is_first {
                manager.ready(&status());
            } else {
                manager.keep_alive(status);
            }
        }
    }

    /// Reports that the daemon begins to apply a changed configuration.
    pub(crate) fn on_reload(&self) {
        self.manager.iter().for_each(Manager::reloading);
    }

    /// Reports the end of a reload, with a line about the daemon's state.
    pub(crate) fn on_reloaded(&self, status: &str) {
        self.manager.iter().for_each(|manager| manager.ready(status));
    }

    /// Reports that the daemon ends.
    pub(crate) fn on_stop(&self) {
        self.health.on_stop();
        self.manager.iter().for_each(Manager::stopping);
    }
}
