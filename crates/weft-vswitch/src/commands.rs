//! The commands that change a running daemon: networks, policies, captures, and those of other files.

use std::net::IpAddr;
use std::path::Path;

use weft_udp::random;
use weft_units::{Probability, Seed};
use weft_vpc::{AclConfig, Limit, PortPolicies};

use crate::capture::Capture;
use crate::config::{Destination, Network, Port};
use crate::control::{Answer, Request};
use crate::evpn::Evpn;
use crate::routes::{set_gateways, subnet};
use crate::{Daemon, OpenError, state};

impl Request {
    /// Carries the request out and returns the daemon's answer.
    ///
    /// # Errors
    /// The reason of a refusal.
    pub(crate) fn carry_out(self, daemon: &mut Daemon) -> Result<Answer, OpenError> {
        let done = match self {
            Self::Status => return Ok(Answer::Status(Box::new(daemon.status()?))),
            Self::Changes => return Ok(Answer::Changes(daemon.changes.clone().into())),
            Self::Reload { config, discard_changes } => {
                return daemon.reload(&config, discard_changes).map(Answer::Reloaded);
            }
            Self::Lose { port, loss } => daemon.inject_loss(&port, loss),
            Self::Capture { port, file } => daemon.capture(&port, file.as_deref()),
            change => daemon.change(change),
        };
        done.map(|()| Answer::Done)
    }
}

impl Daemon {
    /// Carries out a change that survives reloads and restarts. It is on the disk before it is made.
    ///
    /// # Errors
    /// The reason of a refusal, such as a change with which the daemon could not start again.
    fn change(&mut self, request: Request) -> Result<(), OpenError> {
        let changes = self.changes.with(&request, &self.file);
        let mut changed = changes.checked(&self.file.without_routes())?;
        if let Request::AddPort { port } = &request {
            self.check_place(port)?;
        }
        let staged = state::stage(&self.config.host.state_file(), &changes)?;
        match request {
            Request::AddPort { port } => {
                // With the group of ports that wait for their policies.
                self.config.policies = changed.policies;
                changed.ports.retain(|it| it.name == port.name);
                changed.ports.into_iter().try_for_each(|port| self.add_port(port))
            }
            Request::RemovePort { name } if self.is_left_out(&name) => Ok(()),
            Request::RemovePort { name } => self.remove_port(&name),
            Request::SetNetwork { network } => self.set_network(network),
            Request::Peer { vni, peer, remove } => self.change_peer(vni, peer, remove),
            Request::SetRoute { route } => self.set_route(route),
            Request::ForgetRoute { vni, destination } => self.remove_route(vni, destination),
            Request::Limit { port, ingress, egress } => self.limit_port(&port, ingress, egress),
            Request::Acl { port, acl } => self.set_acl(&port, acl),
            other => unreachable!("{other:?} is not kept"),
        }?;
        self.changes = changes;
        staged.commit()
    }

    /// Refuses a port of a machine that a route places on another host: after the next start the route would count.
    fn check_place(&self, port: &Port) -> Result<(), OpenError> {
        let Port { vni, mac, .. } = port;
        if !self.routes.contains_key(&(*vni, Destination::Machine(*mac))) {
            return Ok(());
        }
        let why = format!(
            "{mac} is on another host by a route; remove that first (`weft vpc route del {vni} {mac}`)"
        );
        Err(OpenError::Unknown(why))
    }

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
        let number = network.vni;
        self.config.networks.push(network);
        self.evpn.iter_mut().for_each(Evpn::touch);
        self.apply_vteps(number)
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
}

#[cfg(test)]
mod tests;
