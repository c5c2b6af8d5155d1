//! The looks of the daemon at its threads, once a second; `observer.rs` logs what has changed, `flow_log` sends their
//! records of flows.

use crate::{Daemon, OpenError};

impl Daemon {
    /// Logs what has changed since the last look, if another one is due.
    ///
    /// # Errors
    /// A thread has stopped.
    pub(crate) fn observe(&mut self) -> Result<(), OpenError> {
        let now = self.clock.now();
        if !self.observer.begins_look(now) {
            return Ok(());
        }
        self.export_flows()?;
        let counts = self.observer.counts(now);
        let looks = self.pool.run_on_all(move |worker| worker.look(now))?;
        self.observer.on_looks(&looks);
        if self.observer.wants_paths(&looks, counts) {
            self.observer.on_paths(self.pool.run_on_all(|worker| worker.down_paths())?);
        }
        if counts {
            let counts = self.pool.run_on_all(|worker| worker.counts())?;
            let names = &self.ports;
            let name = |port| names.get(&port).map_or_else(String::new, |(_, it)| it.name.clone());
            self.observer.on_counts(counts, now, name);
        }
        Ok(())
    }
}
