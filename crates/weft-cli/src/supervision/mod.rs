//! A daemon as its supervisors see it: the service manager that started it, and clients of `/healthz` and `/readyz`.
//!
//! | task | file |
//! | --- | --- |
//! | messages to the service manager | `manager.rs` |
//! | answers over HTTP | `health.rs` |
//!
//! A daemon's main loop calls [`Supervision::on_turn`], and no other thread does: a loop that hangs is noticed although
//! other threads still run.

mod health;
mod manager;

use std::sync::Arc;

use anyhow::Result;

pub(crate) use health::Health;
use manager::Manager;

/// Reports the state of a daemon to its supervisors.
#[derive(Debug)]
pub(crate) struct Supervision {
    manager: Option<Manager>,
    health: Arc<Health>,
}

impl Supervision {
    /// Connects to the service manager, if the daemon was started by one.
    ///
    /// # Errors
    /// Returns an error that names `NOTIFY_SOCKET` if no service manager can be reached there.
    pub(crate) fn start() -> Result<Self> {
        Ok(Self { manager: Manager::from_environment()?, health: Arc::default() })
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
