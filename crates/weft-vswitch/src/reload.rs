//! The change of a running daemon to another configuration; unchanged parts are not disturbed.

use crate::config::{Config, Network, Port};
use crate::{Daemon, OpenError};

impl Daemon {
    /// Applies `config`: ports and networks are added and removed, policies change, and the file of accepted
    /// identities is read again. Tenants of ports that stay keep their connections.
    ///
    /// # Errors
    /// The configuration contradicts itself, and nothing changes; the host's own part differs, which needs
    /// a restart; or a port cannot be added, and the rest is done.
    pub fn reload(&mut self, config: &Config) -> Result<(), OpenError> {
        config.check()?;
        if config.host != self.config.host {
            let reason = "[host] has changed: that takes a restart, which tenants with persistent interfaces \
                        survive";
            return Err(OpenError::Unknown(reason.into()));
        }
        self.reload_peers()?;
        self.config.policies = config.policies.clone();
        for network in &config.networks {
            self.set_network(network.clone())?;
        }
        let removed =
            |network: &&Network| config.networks.iter().all(|kept| kept.vni != network.vni);
        for network in self.config.networks.clone().iter().filter(removed) {
            let without =
                Network { peers: Default::default(), gateways: vec![], ..network.clone() };
            self.set_network(without)?;
            self.config.networks.retain(|known| known.vni != network.vni);
        }
        self.set_routes(&config.routes)?;
        self.reload_ports(&config.ports)
    }

    fn reload_ports(&mut self, ports: &[Port]) -> Result<(), OpenError> {
        let named = |port: &&Port, name: &str| port.name == name;
        for known in self.config.ports.clone() {
            let kept = ports.iter().find(|port| named(port, &known.name));
            match kept {
                Some(port) if port.is_same_interface(&known) => self.set_policies(port)?,
                _ => self.remove_port(&known.name)?,
            }
        }
        let new = ports
            .iter()
            .filter(|port| self.config.ports.iter().all(|known| known.name != port.name));
        for port in new.cloned().collect::<Vec<_>>() {
            self.add_port(port)?;
        }
        Ok(())
    }
}

impl Port {
    /// Returns `true` if only policies differ.
    fn is_same_interface(&self, other: &Self) -> bool {
        Self { policies: other.policies.clone(), ..self.clone() } == *other
    }
}
