//! What changes a running daemon: ports, networks, routes, policies, secrets.

use std::net::IpAddr;
use std::path::Path;

use weft_lab::Loss;
use weft_units::Seed;
use weft_vpc::{
    AclConfig, Direction, Limit, Place, PoliciesError, PortConfig, PortId, PortPolicies, Vni,
};

use crate::capture::Capture;
use crate::config::{Network, Port as PortOptions, Route};
use crate::daemon::random;
use crate::{Daemon, OpenError};

impl Daemon {
    /// Sets how a network is carried and who else has it.
    ///
    /// # Errors
    /// A number of more than 24 bits.
    pub fn set_network(&mut self, network: Network) -> Result<(), OpenError> {
        let vni = network.vni()?;
        self.switch.set_network(vni, network.carriage());
        let peers = network.peers.iter().map(|&peer| self.config.host.peer(peer)).collect();
        self.switch.set_peers(vni, peers);
        self.config.networks.retain(|known| known.vni != network.vni);
        self.config.networks.push(network);
        Ok(())
    }

    /// Adds a tenant's interface.
    ///
    /// # Errors
    /// Its name is taken, or the system refuses it.
    pub fn add_port(&mut self, options: PortOptions) -> Result<(), OpenError> {
        if self.names.values().any(|known| known.name == options.name) {
            return Err(OpenError::Unknown(format!("there is a port {} already", options.name)));
        }
        let vni = options.vni()?;
        options.check()?;
        let addresses = options.prefixes()?;
        let policies = &self.config.policies;
        let acl = policies.acl_of(&options.policies)?;
        let (one, two) = (u64::from_le_bytes(random()?), u64::from_le_bytes(random()?));
        let groups = policies.security_groups_of(&options.policies, (one, two))?;
        let named = |cause| OpenError::Port { name: options.name.clone(), cause };
        let port = options.open(self.config.host.tenant_mtu()).map_err(named)?;
        let id = PortId(self.next_port);
        self.next_port += 1;
        let mac = options.mac.0;
        self.switch.set_port(id, PortConfig { vni, addresses: vec![mac] });
        let table = self.switch.table(vni);
        table.set_mac(mac, Some(Place::Port(id)));
        addresses.iter().for_each(|&(address, _)| table.set_neighbour(address, Some(mac)));
        self.switch.set_acl(id, acl);
        self.switch.set_groups(id, groups);
        self.switch.set_sources(id, options.policies.source_guard());
        self.set_limits(id, &options.policies)?;
        self.ports.insert(id, port);
        tracing::info!(port = options.name, vni = options.vni, "port added");
        self.config.ports.push(options.clone());
        self.names.insert(id, options);
        Ok(())
    }

    /// Gives a port the policies that `options` names, for those that it has.
    pub(crate) fn set_policies(&mut self, options: &PortOptions) -> Result<(), OpenError> {
        let id = self.port_named(&options.name)?;
        let known = &self.config.policies;
        let acl = known.acl_of(&options.policies)?;
        self.switch.set_acl(id, acl);
        let groups = known.groups_of(&options.policies)?;
        match self.switch.groups_mut(id) {
            // Connections that are open go on if the rules still let them.
            Some(own) if !groups.is_empty() => {
                own.set(&groups, &known.sets()?).map_err(PoliciesError::from)?;
            }
            _ => {
                let secret = (u64::from_le_bytes(random()?), u64::from_le_bytes(random()?));
                let groups = known.security_groups_of(&options.policies, secret)?;
                self.switch.set_groups(id, groups);
            }
        }
        if self.names[&id].policies != options.policies {
            self.set_limits(id, &options.policies)?;
        }
        self.change_port(id, |own| own.policies.clone_from(&options.policies));
        Ok(())
    }

    fn set_limits(&mut self, port: PortId, limits: &PortPolicies) -> Result<(), OpenError> {
        let now = self.clock.now();
        for (way, limit) in
            [(Direction::Ingress, limits.ingress), (Direction::Egress, limits.egress)]
        {
            self.switch.set_limit(now, port, way, limit)?;
        }
        Ok(())
    }

    fn port_named(&self, name: &str) -> Result<PortId, OpenError> {
        let found = self.names.iter().find(|(_, options)| options.name == name);
        found.map(|(&id, _)| id).ok_or_else(|| {
            let known: Vec<_> = self.names.values().map(|known| known.name.as_str()).collect();
            if known.is_empty() {
                return OpenError::Unknown(format!("no port {name:?}: there is none here"));
            }
            OpenError::Unknown(weft_units::unknown_name("port", name, &known))
        })
    }

    fn change_port(&mut self, id: PortId, change: impl Fn(&mut PortOptions)) {
        if let Some(options) = self.names.get_mut(&id) {
            change(options);
            let (name, options) = (&options.name, &*options);
            let known = self.config.ports.iter_mut().find(|known| known.name == *name);
            known.into_iter().for_each(|known| known.clone_from(options));
        }
    }

    /// Limits what passes a port.
    ///
    /// # Errors
    /// There is no such port, or the limit cannot be kept.
    pub fn limit_port(
        &mut self,
        name: &str,
        ingress: Option<Limit>,
        egress: Option<Limit>,
    ) -> Result<(), OpenError> {
        let id = self.port_named(name)?;
        let policies = PortPolicies { ingress, egress, ..self.names[&id].policies.clone() };
        self.set_limits(id, &policies)?;
        self.change_port(id, |options| options.policies.clone_from(&policies));
        Ok(())
    }

    /// Holds a port's packets against an access list of these rules, or against none.
    ///
    /// # Errors
    /// There is no such port, or the rules contradict themselves.
    pub fn set_acl(&mut self, name: &str, acl: Option<AclConfig>) -> Result<(), OpenError> {
        let id = self.port_named(name)?;
        let list = acl.as_ref().map(|acl| acl.name.clone());
        let mut policies = self.config.policies.clone();
        if let Some(acl) = acl {
            policies.acls.retain(|known| known.name != acl.name);
            policies.acls.push(acl);
        }
        let own = PortPolicies { acl: list, ..self.names[&id].policies.clone() };
        self.switch.set_acl(id, policies.acl_of(&own)?);
        self.config.policies = policies;
        self.change_port(id, |options| options.policies.clone_from(&own));
        Ok(())
    }

    /// Loses frames between the switch and a port from now on, as its full queue would: to see that they
    /// come again.
    ///
    /// # Errors
    /// There is no such port.
    pub fn lose(&mut self, name: &str, loss: Loss) -> Result<(), OpenError> {
        let id = self.port_named(name)?;
        self.ports.lose(id, loss, Seed(u64::from_le_bytes(random()?)));
        tracing::warn!(port = name, %loss, "losing frames on purpose");
        Ok(())
    }

    /// Writes what passes a port to a file that must not exist, for Wireshark; or no longer.
    ///
    /// # Errors
    /// There is no such port, or the file cannot be written.
    pub fn capture(&mut self, name: &str, file: Option<&Path>) -> Result<(), OpenError> {
        let id = self.port_named(name)?;
        let capture = file.map(|file| Capture::create(file, name)).transpose();
        let done = capture.and_then(|capture| self.ports.capture(id, capture));
        let shown =
            || file.map_or_else(|| "its file".to_owned(), |file| file.display().to_string());
        done.map_err(|cause| OpenError::Capture { port: name.into(), file: shown(), cause })
    }

    /// Takes a tenant's interface away.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn remove_port(&mut self, name: &str) -> Result<(), OpenError> {
        let id = self.port_named(name)?;
        let options = &self.names[&id];
        let (vni, mac, addresses) = (options.vni()?, options.mac.0, options.prefixes()?);
        let table = self.switch.table(vni);
        table.set_mac(mac, None);
        addresses.iter().for_each(|&(address, _)| table.set_neighbour(address, None));
        self.config.ports.retain(|known| known.name != name);
        self.switch.remove_port(self.clock.now(), id, &mut self.ports);
        self.ports.remove(id);
        self.names.remove(&id);
        tracing::info!(port = name, "port removed");
        Ok(())
    }

    /// Adds a host to a network, or takes it away.
    ///
    /// # Errors
    /// There is no such network.
    pub fn change_peer(&mut self, vni: u32, peer: IpAddr, remove: bool) -> Result<(), OpenError> {
        let known = self.config.networks.iter().find(|network| network.vni == vni);
        let mut network = known
            .cloned()
            .ok_or_else(|| OpenError::Unknown(format!("there is no network {vni} here")))?;
        if remove {
            network.peers.remove(&peer);
        } else {
            network.peers.insert(peer);
        }
        self.set_network(network)
    }

    /// Says where an address is.
    ///
    /// # Errors
    /// A number of more than 24 bits.
    pub fn set_route(&mut self, route: Route) -> Result<(), OpenError> {
        let vni = Vni::new(route.vni)
            .ok_or_else(|| OpenError::Unknown(format!("{} is no VNI", route.vni)))?;
        let peer = self.config.host.peer(route.peer);
        self.switch.table(vni).set_mac(route.mac.0, Some(Place::Peer(peer)));
        self.config.routes.retain(|known| (known.vni, known.mac) != (route.vni, route.mac));
        self.config.routes.push(route);
        Ok(())
    }

    /// No longer says where an address is.
    pub(crate) fn forget_route(&mut self, vni: Vni, route: Route) {
        self.switch.table(vni).set_mac(route.mac.0, None);
        self.config.routes.retain(|known| *known != route);
    }

    /// Encrypts with another secret from now on.
    ///
    /// # Errors
    /// This host does not encrypt, or the file has no secret.
    pub fn rotate(&mut self, number: u8, secret: &Path) -> Result<(), OpenError> {
        let now = self.clock.now();
        let seals = self.seals.as_mut().ok_or_else(|| {
            OpenError::Unknown(
                "this host does not encrypt: its configuration has no host.seal".into(),
            )
        })?;
        Ok(seals.rotate(number, secret, now)?)
    }
}
