//! The newest part of a fleet in a running daemon.

use std::collections::BTreeSet;

use weft_events::ReloadRefused;
use weft_units::Duration;

use super::follower::HostIdentity;
use super::handle::{Fleet, lock};
use super::merge::merge;
use crate::config::Config;
use crate::{Daemon, OpenError};

/// Time after which a part that is not in force as a whole is applied again: an interface may exist by then.
const RETRY: Duration = Duration::from_secs(5);

impl Daemon {
    /// Follows the fleet of the configuration, if it has one.
    ///
    /// # Errors
    /// A certificate cannot be used, or the system refuses a thread.
    pub(crate) fn start_fleet(&mut self) -> Result<(), OpenError> {
        let Some(settings) = self.config.fleet.clone() else { return Ok(()) };
        let host = &self.config.host;
        // A key that is drawn with each start is none by which others could know the host.
        let has_identity = !host.encryption.is_off() && host.encryption.identity.is_some();
        let identity = has_identity
            .then(|| self.pool.run_on(0, |worker| worker.driver.seals.identity().to_string()))
            .transpose()?;
        let host = HostIdentity { address: host.address, identity };
        let cache = self.config.host.state_file().with_extension("fleet.json");
        self.fleet = Some(Fleet::start(&settings, host, cache, self.file.clone())?);
        let identities = self.read_identities()?;
        self.set_identities(identities).map(drop)
    }

    /// Returns a file with the newest part of the fleet in it.
    pub(crate) fn with_fleet(&self, file: &Config) -> Config {
        match &self.fleet {
            Some(fleet) => merge(file, &fleet.part),
            None => file.clone(),
        }
    }

    /// Remembers the file that is in force, without the fleet's part.
    pub(crate) fn remember_file(&mut self, file: &Config) {
        if let Some(fleet) = &mut self.fleet {
            fleet.file = file.clone();
        }
    }

    /// Passes the ports that are not of the fleet to its follower, if they have changed.
    fn publish_ports(&mut self) {
        let Some(fleet) = self.fleet.as_mut().filter(|fleet| fleet.has_new_ports) else { return };
        fleet.has_new_ports = false;
        let of_fleet: BTreeSet<_> = fleet.part.ports.iter().map(|port| &port.name).collect();
        let ports = self.config.ports.iter().filter(|port| !of_fleet.contains(&port.name));
        fleet.local.set(ports);
    }

    /// Applies the newest part of the fleet, as a reload of a file would be applied.
    pub(crate) fn apply_fleet(&mut self) {
        let now = self.clock.now();
        self.publish_ports();
        let Some(fleet) = &mut self.fleet else { return };
        let is_new = fleet.take_newest();
        let is_whole = fleet.refused.is_none() && lock(&fleet.left_out).is_empty();
        if !is_new && (is_whole || now < fleet.retry_at) {
            return;
        }
        lock(&fleet.left_out).clear();
        let merged = merge(&fleet.file, &fleet.part);
        let names: BTreeSet<_> = merged.ports.iter().map(|port| &port.name).collect();
        for port in fleet.part.ports.iter().filter(|port| !names.contains(&port.name)) {
            let reason = "another port of this host has one of its addresses or its interface";
            tracing::warn!(port = port.name, reason, "port of the fleet left out");
            fleet.leave_out(&port.name, reason.to_owned());
        }
        let done = self.try_reload(&merged, false);
        match &done {
            Ok(_) if !is_new => {}
            Ok(done) => self.log_reload(now, done, "fleet"),
            Err(error) => ReloadRefused { source: "fleet", error: error.to_string() }.emit(),
        }
        let Some(fleet) = &mut self.fleet else { return };
        fleet.touch();
        fleet.retry_at = self.clock.now() + RETRY;
        match done {
            Ok(_) => {
                fleet.applied.0 += u64::from(is_new);
                fleet.refused = None;
            }
            Err(error) => {
                fleet.applied.1 += 1;
                fleet.refused = Some(error.to_string());
            }
        }
    }
}
