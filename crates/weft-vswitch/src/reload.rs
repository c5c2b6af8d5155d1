//! The change of a running daemon to another configuration: all of it or nothing.
//!
//! Everything that may fail is done before anything changes: the configuration is checked, keys are read, policies
//! compiled and interfaces opened. Then the differences are applied; parts that stay are not disturbed. An interface
//! that cannot be open beside the one that it replaces is the exception: the old one closes first, and opens again if
//! the new one fails.

use std::collections::{BTreeMap, BTreeSet};

use weft_events::{KeysRotated, ReloadApplied, ReloadRefused};
use weft_seal::PublicKey;
use weft_units::Instant;
use weft_vpc::{PoliciesError, PortId, SecurityGroupConfig, Sets};

use crate::changes::Changes;
use crate::config::{Config, ConfigError, Network, Port};
use crate::evpn::Evpn;
use crate::flow_log::FlowExporter;
use crate::ports::PortRules;
use crate::{Daemon, OpenError, Reloaded, state};

/// New policies for a port that stays.
struct PolicyChange {
    id: PortId,
    thread: u8,
    port: Port,
    rules: PortRules,
    groups: Vec<SecurityGroupConfig>,
}

/// The ports that a reload adds and removes.
struct PortChanges {
    /// New ports that can be open beside all present ones.
    added: Vec<Port>,
    /// New ports that take something from those of `replaced`.
    replacing: Vec<Port>,
    replaced: Vec<Port>,
    removed: Vec<Port>,
}

impl Daemon {
    /// Changes to `config` with the changes made by command, or without them if `discard_changes` is set. Tenants of ports that stay keep their connections. The file of accepted identities is read
    /// again; connections to hosts that are no longer in it end.
    ///
    /// # Errors
    /// The configuration contradicts itself, the host's own part differs, which needs a restart, or a port cannot be
    /// opened: the former configuration stays in force. Or it is [`OpenError::InForceOnly`].
    pub fn reload(
        &mut self,
        config: &Config,
        discard_changes: bool,
    ) -> Result<Reloaded, OpenError> {
        let began = self.clock.now();
        if config.fleet != self.config.fleet {
            let reason = "[fleet] has changed: that takes a restart, which tenants with persistent interfaces survive";
            return Err(OpenError::Unknown(reason.into()));
        }
        let done = self.try_reload(&self.with_fleet(config), discard_changes);
        if matches!(done, Ok(_) | Err(OpenError::InForceOnly { .. })) {
            self.remember_file(config);
            self.set_evpn(config.evpn.clone())?;
        }
        let done = done.inspect_err(|error| match error {
            OpenError::InForceOnly { .. } => tracing::warn!(%error, "configuration reloaded"),
            _ => ReloadRefused { source: "file", error: error.to_string() }.emit(),
        })?;
        self.log_reload(began, &done, "file");
        Ok(done)
    }

    /// Logs what a reload from `source`, which began at `began`, has changed.
    pub(crate) fn log_reload(&self, began: Instant, done: &Reloaded, source: &'static str) {
        ReloadApplied {
            source,
            networks_set: done.networks_set as u64,
            networks_removed: done.networks_removed as u64,
            ports_added: done.ports_added as u64,
            ports_removed: done.ports_removed as u64,
            ports_changed: done.ports_changed as u64,
            routes_set: done.routes_set as u64,
            routes_removed: done.routes_removed as u64,
            overridden: done.overridden as u64,
            seconds: self.clock.now().since(began).as_secs_f64(),
        }
        .emit();
    }

    pub(crate) fn try_reload(
        &mut self,
        config: &Config,
        discard_changes: bool,
    ) -> Result<Reloaded, OpenError> {
        config.check()?;
        if config.host != self.config.host {
            let reason = "[host] has changed: that takes a restart, which tenants with persistent interfaces \
                          survive";
            return Err(OpenError::Unknown(reason.into()));
        }
        let changes = match discard_changes {
            true => Changes::default(),
            false => self.changes.without_known(config),
        };
        let (file, config) = (config, &changes.apply(config)?);
        let identities = self.read_identities()?;
        let (policies, sets) = (self.policy_changes(config)?, config.policies.sets()?);
        let networks = self.changed_networks(config);
        let overridden = changes.count_overriding(file);
        let mut done =
            Reloaded { ports_changed: policies.len(), overridden, ..Reloaded::default() };
        let flow_log = (config.flow_log != self.config.flow_log)
            .then(|| FlowExporter::open(config.flow_log.as_ref(), config.host.mtu))
            .transpose()?;
        let staged = state::stage(&config.host.state_file(), &changes)?;
        (done.ports_added, done.ports_removed) = self.replace_ports(config, &changes)?;
        // From here on only a thread that has stopped is an error, which ends the daemon.
        if self.set_identities(identities)? {
            KeysRotated { keys: "identities", source: self.identities_source() }.emit();
        }
        self.config.policies = config.policies.clone();
        for change in policies {
            self.set_policies(change, &sets)?;
        }
        done.networks_set = networks.len();
        for network in networks {
            self.set_network(network)?;
        }
        if let Some(exporter) = flow_log {
            self.set_flow_log(config.flow_log.clone(), exporter)?;
        }
        done.networks_removed = self.remove_networks(config)?;
        (done.routes_set, done.routes_removed) = self.set_routes(&config.routes)?;
        (self.file, self.changes) = (file.clone(), changes);
        staged.commit()?;
        Ok(done)
    }

    /// Reads the files of the encryption. Returns the accepted identities, if there is a file of them or the fleet has them.
    pub(crate) fn read_identities(&self) -> Result<Option<BTreeSet<PublicKey>>, OpenError> {
        let settings = self.config.host.encryption.settings()?;
        let of_file = settings.config().map_err(ConfigError::from)?.peers;
        Ok(match &self.fleet {
            Some(fleet) => fleet.identities(of_file),
            None => of_file,
        })
    }

    /// Replaces the accepted identities. Returns `true` if they are others than before.
    pub(crate) fn set_identities(
        &mut self,
        peers: Option<BTreeSet<PublicKey>>,
    ) -> Result<bool, OpenError> {
        let now = self.clock.now();
        let changed = self.pool.run_on_all(move |worker| {
            let seals = &mut worker.driver.seals;
            let changed = seals.config().peers != peers;
            for connection in seals.set_peers(peers.clone()) {
                worker.switch.close(now, connection, &mut worker.ports);
            }
            changed
        })?;
        Ok(changed.contains(&true))
    }

    /// Returns the file of the accepted identities, or `fleet` if they come from there.
    fn identities_source(&self) -> String {
        match (&self.fleet, &self.config.host.encryption.peers) {
            (None, Some(file)) => file.display().to_string(),
            _ => "fleet".to_owned(),
        }
    }

    /// Compiles the policies of the ports that stay and have others in `config`.
    fn policy_changes(&self, config: &Config) -> Result<Vec<PolicyChange>, OpenError> {
        let new: BTreeMap<&str, &Port> =
            config.ports.iter().map(|port| (port.name.as_str(), port)).collect();
        let same_rules = self.config.policies == config.policies;
        let mut changes = vec![];
        for (&id, (thread, known)) in &self.ports {
            let Some(port) = new.get(known.name.as_str()) else { continue };
            // Rules name sets and the members of any group.
            let uses_rules =
                port.policies.acl.is_some() || !port.policies.security_groups.is_empty();
            let same = known.policies == port.policies
                && known.labels == port.labels
                && known.mirror == port.mirror
                && (same_rules || !uses_rules);
            if same || !port.is_same_interface(known) {
                continue;
            }
            let rules = PortRules::new(&config.policies, &port.policies)?;
            let groups = config.policies.groups_of(&port.policies)?;
            let port = (*port).clone();
            changes.push(PolicyChange { id, thread: *thread, port, rules, groups });
        }
        Ok(changes)
    }

    /// Applies new policies to a port that stays.
    fn set_policies(&mut self, change: PolicyChange, sets: &Sets) -> Result<(), OpenError> {
        let PolicyChange { id, thread, port, rules, groups } = change;
        let (sets, sources) = (sets.clone(), port.policies.source_guard());
        let mirror = (port.mirror != self.ports[&id].1.mirror).then(|| port.mirror.clone());
        let connections = self.config.policies.connections;
        self.pool
            .run_on(thread, move |worker| {
                worker.switch.set_acl(id, rules.acl);
                worker.switch.set_sources(id, sources);
                if let Some(mirror) = mirror {
                    worker.ports.mirrors.set(id, mirror.as_ref());
                }
                match worker.switch.groups_mut(id) {
                    // Open connections continue if the rules still allow them.
                    Some(own) if !groups.is_empty() => own.set(&groups, &sets, connections),
                    _ => {
                        worker.switch.set_groups(id, rules.groups);
                        Ok(())
                    }
                }
            })?
            .map_err(PoliciesError::from)?;
        let limits = |port: &Port| (port.policies.ingress, port.policies.egress);
        if limits(&self.ports[&id].1) != limits(&port) {
            self.set_limits(id, thread, &port.policies)?;
        }
        self.change_port(id, |own| {
            own.policies.clone_from(&port.policies);
            own.labels.clone_from(&port.labels);
            own.mirror.clone_from(&port.mirror);
        });
        Ok(())
    }

    fn changed_networks(&self, config: &Config) -> Vec<Network> {
        let known = |network: &&Network| !self.config.networks.contains(network);
        config.networks.iter().filter(known).cloned().collect()
    }

    /// Removes the networks that `config` does not have. Returns their number.
    fn remove_networks(&mut self, config: &Config) -> Result<usize, OpenError> {
        let kept: BTreeSet<u32> = config.networks.iter().map(|network| network.vni).collect();
        let (kept, removed): (Vec<_>, Vec<_>) =
            self.config.networks.clone().into_iter().partition(|it| kept.contains(&it.vni));
        for network in &removed {
            let empty = Network { peers: BTreeSet::new(), gateways: vec![], ..network.clone() };
            self.set_network(empty)?;
        }
        self.config.networks = kept;
        self.evpn.iter_mut().for_each(Evpn::touch);
        Ok(removed.len())
    }

    /// Replaces the ports whose interfaces differ. Returns the numbers of ports added and removed. Ports that `changes`
    /// add may be left out.
    ///
    /// # Errors
    /// A port cannot be opened. The former ports are there again.
    fn replace_ports(
        &mut self,
        config: &Config,
        changes: &Changes,
    ) -> Result<(usize, usize), OpenError> {
        let PortChanges { added, replacing, replaced, removed } =
            PortChanges::new(&self.config.ports, &config.ports);
        let open = |own: &Self, port| own.open_or_leave_out(port, &config.policies, changes);
        let opened =
            added.into_iter().map(|port| open(self, port)).collect::<Result<Vec<_>, _>>()?;
        let mut attached = vec![];
        for port in opened.into_iter().flatten() {
            let name = port.name().to_owned();
            match self.attach_port(port) {
                Ok(()) => attached.push(name),
                Err(error) => return Err(self.restore_ports(&attached, &[], error)),
            }
        }
        for port in &replaced {
            self.remove_port(&port.name)?;
        }
        for port in replacing {
            let name = port.name.clone();
            let opened = open(self, port);
            match opened.and_then(|port| port.map(|port| self.attach_port(port)).transpose()) {
                Ok(Some(())) => attached.push(name),
                // A port of the fleet whose new interface cannot be opened keeps its old one.
                Ok(None) => self.reopen(&replaced, &name, &mut attached)?,
                Err(error) => return Err(self.restore_ports(&attached, &replaced, error)),
            }
        }
        for port in &removed {
            self.remove_port(&port.name)?;
        }
        Ok((attached.len(), replaced.len() + removed.len()))
    }

    /// Opens the port of a name among those that were replaced again.
    fn reopen(
        &mut self,
        replaced: &[Port],
        name: &str,
        attached: &mut Vec<String>,
    ) -> Result<(), OpenError> {
        let Some(old) = replaced.iter().find(|port| port.name == name) else { return Ok(()) };
        if let Some(taken) = self.taken_from(old) {
            tracing::warn!(port = name, %taken, "port left out: another one has this by now");
            return Ok(());
        }
        self.add_port(old.clone())?;
        attached.push(name.to_owned());
        Ok(())
    }

    /// Removes the ports `attached` and opens those of `replaced` again. Returns the error of the reload.
    fn restore_ports(
        &mut self,
        attached: &[String],
        replaced: &[Port],
        error: OpenError,
    ) -> OpenError {
        let removed = attached.iter().try_for_each(|name| self.remove_port(name));
        let opened = replaced.iter().map(|port| self.add_port(port.clone()));
        let failed = std::iter::once(removed).chain(opened.collect::<Vec<_>>());
        match failed.filter_map(Result::err).next() {
            None => error,
            Some(second) => {
                OpenError::NotRestored { error: error.to_string(), second: second.to_string() }
            }
        }
    }
}

impl PortChanges {
    fn new(known: &[Port], new: &[Port]) -> Self {
        let by_name = |ports: &'_ [Port]| -> BTreeMap<String, Port> {
            ports.iter().map(|port| (port.name.clone(), port.clone())).collect()
        };
        let (old, target) = (by_name(known), by_name(new));
        let without = |ports: &[Port], others: &BTreeMap<String, Port>| -> Vec<Port> {
            let stays = |port: &Port| {
                others.get(&port.name).is_some_and(|other| port.is_same_interface(other))
            };
            ports.iter().filter(|port| !stays(port)).cloned().collect()
        };
        let (gone, fresh) = (without(known, &target), without(new, &old));
        let takes = |port: &Port| gone.iter().any(|old| port.clashes_with(old));
        let is_taken = |port: &Port| fresh.iter().any(|new| new.clashes_with(port));
        let (replacing, added) = fresh.iter().cloned().partition(takes);
        let (replaced, removed) = gone.iter().cloned().partition(is_taken);
        Self { added, replacing, replaced, removed }
    }
}

impl Port {
    /// Returns `true` if only policies, labels and the mirror differ.
    fn is_same_interface(&self, other: &Self) -> bool {
        let (policies, labels) = (other.policies.clone(), other.labels.clone());
        Self { policies, labels, mirror: other.mirror.clone(), ..self.clone() } == *other
    }
}
