//! The commands that change a running daemon: ports, networks, routes, policies, accepted identities.

use std::net::IpAddr;
use std::path::Path;

use weft_udp::random;
use weft_units::{Probability, Seed};
use weft_vpc::{
    AclConfig, Direction, Elsewhere, Limit, Place, PoliciesError, PortConfig, PortId, PortPolicies,
    Switch, Vni,
};
use weft_wire::MacAddr;

use crate::capture::Capture;
use crate::config::{ConfigError, Network, Port as PortOptions};
use crate::control::{Answer, Request};
use crate::routes::{set_gateways, subnet};
use crate::{Daemon, OpenError};

impl Request {
    /// Carries the request out and returns the daemon's answer.
    ///
    /// # Errors
    /// The reason of a refusal.
    pub(crate) fn carry_out(self, daemon: &mut Daemon) -> Result<Answer, OpenError> {
        let done = match self {
            Self::Status => return Ok(Answer::Status(Box::new(daemon.status()?))),
            Self::AddPort { port } => daemon.add_port(port),
            Self::RemovePort { name } => daemon.remove_port(&name),
            Self::SetNetwork { network } => daemon.set_network(network),
            Self::Peer { vni, peer, remove } => daemon.change_peer(vni, peer, remove),
            Self::SetRoute { route } => daemon.set_route(route),
            Self::ForgetRoute { vni, destination } => daemon.remove_route(vni, destination),
            Self::Limit { port, ingress, egress } => daemon.limit_port(&port, ingress, egress),
            Self::Reload { config } => daemon.reload(&config),
            Self::Lose { port, loss } => daemon.inject_loss(&port, loss),
            Self::Capture { port, file } => daemon.capture(&port, file.as_deref()),
            Self::Acl { port, acl } => daemon.set_acl(&port, acl),
        };
        done.map(|()| Answer::Done)
    }
}

impl Daemon {
    /// Sets a network's configuration and its other hosts.
    ///
    /// # Errors
    /// The network's number has more than 24 bits, or a gateway is no address.
    pub fn set_network(&mut self, network: Network) -> Result<(), OpenError> {
        let (vni, carriage) = (network.vni()?, network.switch_config());
        let peers: Vec<_> = network.peers.iter().map(|&peer| self.config.host.peer(peer)).collect();
        let gateways = network.gateways()?;
        let before = self.config.networks.iter().find(|known| known.vni == network.vni);
        let before = before.map_or(Ok(vec![]), Network::gateways)?;
        let subnets: Vec<_> = before.iter().chain(&gateways).map(subnet).collect();
        let routes = self.routes_to(network.vni, &subnets);
        self.pool.run_on_all(move |worker| {
            worker.switch.set_network(vni, carriage);
            worker.switch.set_peers(vni, peers.clone());
            let table = worker.switch.table(vni);
            set_gateways(table, &before, false);
            set_gateways(table, &gateways, true);
            // A route for a gateway's prefix overrides the gateway's own.
            routes.iter().for_each(|&(to, hop)| table.set_route(to, Some(hop)));
        })?;
        self.config.networks.retain(|known| known.vni != network.vni);
        self.config.networks.push(network);
        Ok(())
    }

    /// Adds a tenant's interface.
    ///
    /// # Errors
    /// The name is taken, or the system refuses the interface.
    pub fn add_port(&mut self, options: PortOptions) -> Result<(), OpenError> {
        if self.ports.values().any(|(_, known)| known.name == options.name) {
            return Err(OpenError::Unknown(format!("there is a port {} already", options.name)));
        }
        let (vni, mac) = (options.vni()?, options.mac.0);
        options.check()?;
        options.policies.check()?;
        let addresses = options.prefixes()?;
        let policies = &self.config.policies;
        let acl = policies.acl_of(&options.policies)?;
        let (one, two) = (u64::from_le_bytes(random()?), u64::from_le_bytes(random()?));
        let groups = policies.security_groups_of(&options.policies, (one, two))?;
        let named = |cause| OpenError::Port { name: options.name.clone(), cause };
        let port = options.open(self.config.host.tenant_mtu()).map_err(named)?;
        let id = PortId(self.next_port);
        self.next_port += 1;
        let thread = self.thread_for(vni, mac);
        let sources = options.policies.source_guard();
        let watched = self.pool.run_on(thread, move |worker| {
            worker.add_port(id, port)?;
            let switch = &mut worker.switch;
            switch.set_port(id, PortConfig { vni, addresses: vec![mac] });
            switch.set_acl(id, acl);
            switch.set_groups(id, groups);
            switch.set_sources(id, sources);
            Ok(())
        })?;
        watched.map_err(|cause: std::io::Error| OpenError::Watch {
            port: options.name.clone(),
            cause,
        })?;
        self.set_limits(id, thread, &options.policies)?;
        self.pool.run_on_all(move |worker| {
            if worker.index.thread != thread {
                let elsewhere = Elsewhere { thread, vni, address: mac };
                worker.switch.set_elsewhere(id, Some(elsewhere));
            }
            worker.set_place(vni, mac, Some(Place::Port(id)));
            let table = worker.switch.table(vni);
            addresses.iter().for_each(|&(address, _)| table.set_neighbour(address, Some(mac)));
        })?;
        tracing::info!(port = options.name, vni = options.vni, thread, "port added");
        self.config.ports.push(options.clone());
        self.ports.insert(id, (thread, options));
        Ok(())
    }

    /// Returns the thread of a new port: the one with the fewest ports. Ports that a connection request cannot
    /// distinguish stay on one thread.
    fn thread_for(&self, vni: Vni, mac: MacAddr) -> u8 {
        let service = Switch::service_of(mac);
        let alike = |(_, known): &&(u8, PortOptions)| {
            known.vni == vni.get() && Switch::service_of(known.mac.0) == service
        };
        if let Some((thread, _)) = self.ports.values().find(alike) {
            return *thread;
        }
        let ports = |thread: &u8| self.ports.values().filter(|known| known.0 == *thread).count();
        self.pool.threads().min_by_key(ports).expect("there is always one")
    }

    /// Applies the policies that `options` names to the port of that name.
    pub(crate) fn set_policies(&mut self, options: &PortOptions) -> Result<(), OpenError> {
        let (id, thread) = self.port_named(&options.name)?;
        let known = &self.config.policies;
        let acl = known.acl_of(&options.policies)?;
        let (groups, sets) = (known.groups_of(&options.policies)?, known.sets()?);
        let secret = (u64::from_le_bytes(random()?), u64::from_le_bytes(random()?));
        let new = known.security_groups_of(&options.policies, secret)?;
        self.pool
            .run_on(thread, move |worker| {
                worker.switch.set_acl(id, acl);
                match worker.switch.groups_mut(id) {
                    // Open connections continue if the rules still allow them.
                    Some(own) if !groups.is_empty() => own.set(&groups, &sets),
                    _ => {
                        worker.switch.set_groups(id, new);
                        Ok(())
                    }
                }
            })?
            .map_err(PoliciesError::from)?;
        if self.ports[&id].1.policies != options.policies {
            self.set_limits(id, thread, &options.policies)?;
        }
        self.change_port(id, |own| own.policies.clone_from(&options.policies));
        Ok(())
    }

    fn set_limits(
        &mut self,
        port: PortId,
        thread: u8,
        limits: &PortPolicies,
    ) -> Result<(), OpenError> {
        let (now, PortPolicies { ingress, egress, .. }) = (self.clock.now(), limits.clone());
        self.pool.run_on(thread, move |worker| {
            worker.switch.set_limit(now, port, Direction::Ingress, ingress)?;
            worker.switch.set_limit(now, port, Direction::Egress, egress)
        })??;
        Ok(())
    }

    /// Returns a port and its thread.
    fn port_named(&self, name: &str) -> Result<(PortId, u8), OpenError> {
        let found = self.ports.iter().find(|(_, (_, options))| options.name == name);
        found.map(|(&id, &(thread, _))| (id, thread)).ok_or_else(|| {
            let known: Vec<_> = self.ports.values().map(|(_, known)| known.name.as_str()).collect();
            if known.is_empty() {
                return OpenError::Unknown(format!("no port {name:?}: there is none here"));
            }
            OpenError::Unknown(weft_units::unknown_name("port", name, &known))
        })
    }

    fn change_port(&mut self, id: PortId, change: impl Fn(&mut PortOptions)) {
        if let Some((_, options)) = self.ports.get_mut(&id) {
            change(options);
            let (name, options) = (&options.name, &*options);
            let known = self.config.ports.iter_mut().find(|known| known.name == *name);
            known.into_iter().for_each(|known| known.clone_from(options));
        }
    }

    /// Sets the rate limits of a port.
    ///
    /// # Errors
    /// There is no such port, or a limit is refused.
    pub fn limit_port(
        &mut self,
        name: &str,
        ingress: Option<Limit>,
        egress: Option<Limit>,
    ) -> Result<(), OpenError> {
        let (id, thread) = self.port_named(name)?;
        let policies = PortPolicies { ingress, egress, ..self.ports[&id].1.policies.clone() };
        self.set_limits(id, thread, &policies)?;
        self.change_port(id, |options| options.policies.clone_from(&policies));
        Ok(())
    }

    /// Sets the access list of a port, or removes it.
    ///
    /// # Errors
    /// There is no such port, or the rules contradict themselves.
    pub fn set_acl(&mut self, name: &str, acl: Option<AclConfig>) -> Result<(), OpenError> {
        let (id, thread) = self.port_named(name)?;
        let list = acl.as_ref().map(|acl| acl.name.clone());
        let mut policies = self.config.policies.clone();
        if let Some(acl) = acl {
            policies.acls.retain(|known| known.name != acl.name);
            policies.acls.push(acl);
        }
        let own = PortPolicies { acl: list, ..self.ports[&id].1.policies.clone() };
        let acl = policies.acl_of(&own)?;
        self.pool.run_on(thread, move |worker| worker.switch.set_acl(id, acl))?;
        self.config.policies = policies;
        self.change_port(id, |options| options.policies.clone_from(&own));
        Ok(())
    }

    /// Drops frames between the switch and a port from now on, as its full queue would, to test their
    /// retransmission.
    ///
    /// # Errors
    /// There is no such port.
    pub fn inject_loss(&mut self, name: &str, loss: Probability) -> Result<(), OpenError> {
        let (id, thread) = self.port_named(name)?;
        let seed = Seed(u64::from_le_bytes(random()?));
        self.pool.run_on(thread, move |worker| worker.ports.lose(id, loss, seed))?;
        tracing::warn!(port = name, %loss, "losing frames on purpose");
        Ok(())
    }

    /// Starts a capture of a port to a file for Wireshark, which must not exist, or stops it.
    ///
    /// # Errors
    /// There is no such port, or the file cannot be written.
    pub fn capture(&mut self, name: &str, file: Option<&Path>) -> Result<(), OpenError> {
        let (id, thread) = self.port_named(name)?;
        let shown =
            || file.map_or_else(|| "its file".to_owned(), |file| file.display().to_string());
        let done = match file.map(|file| Capture::create(file, name)).transpose() {
            Ok(capture) => {
                self.pool.run_on(thread, move |worker| worker.ports.capture(id, capture))?
            }
            Err(cause) => Err(cause),
        };
        done.map_err(|cause| OpenError::Capture { port: name.into(), file: shown(), cause })
    }

    /// Removes a tenant's interface.
    ///
    /// # Errors
    /// There is no port of that name.
    pub fn remove_port(&mut self, name: &str) -> Result<(), OpenError> {
        let (id, thread) = self.port_named(name)?;
        let options = &self.ports[&id].1;
        let (vni, mac, addresses) = (options.vni()?, options.mac.0, options.prefixes()?);
        self.pool.run_on_all(move |worker| {
            let table = worker.switch.table(vni);
            table.set_mac(mac, None);
            addresses.iter().for_each(|&(address, _)| table.set_neighbour(address, None));
            worker.switch.set_elsewhere(id, None);
        })?;
        self.pool.run_on(thread, move |worker| worker.remove_port(id))?;
        self.config.ports.retain(|known| known.name != name);
        self.ports.remove(&id);
        tracing::info!(port = name, "port removed");
        Ok(())
    }

    /// Adds a host to a network, or removes it.
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

    /// Reads the file of accepted identities again. Connections to hosts that are no longer in it end.
    ///
    /// # Errors
    /// A file of the encryption cannot be read, or holds no key.
    pub(crate) fn reload_peers(&mut self) -> Result<(), OpenError> {
        let settings = self.config.host.encryption.settings()?;
        let peers = settings.config().map_err(ConfigError::from)?.peers;
        let now = self.clock.now();
        self.pool.run_on_all(move |worker| {
            for connection in worker.driver.seals.set_peers(peers.clone()) {
                worker.switch.close(now, connection, &mut worker.ports);
            }
        })?;
        Ok(())
    }
}
