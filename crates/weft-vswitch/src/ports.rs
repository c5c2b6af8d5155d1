//! The ports of a running daemon: opened, handed to a thread, and removed.

use weft_ports::Port as Interface;
use weft_udp::random;
use weft_vpc::{
    Acl, Direction, Elsewhere, Place, Policies, PortConfig, PortId, PortPolicies, SecurityGroups,
    Switch, Vni,
};
use weft_wire::MacAddr;

use crate::changes::Changes;
use crate::config::{Claim, Destination, Port as PortOptions};
use crate::evpn::Evpn;
use crate::fleet::Fleet;
use crate::{Daemon, OpenError};

/// A port with an open interface and its policies, which no thread has yet: dropping it undoes everything.
pub(crate) struct OpenPort {
    options: PortOptions,
    interface: Box<dyn Interface>,
    policies: PortRules,
}

/// The compiled policies of a port but its limits.
pub(crate) struct PortRules {
    pub(crate) acl: Option<Acl>,
    pub(crate) groups: Option<SecurityGroups>,
}

impl OpenPort {
    pub(crate) fn name(&self) -> &str {
        &self.options.name
    }
}

impl PortRules {
    /// Compiles the policies that a port names.
    ///
    /// # Errors
    /// A list or a group does not exist, or the system gives no random numbers.
    pub(crate) fn new(policies: &Policies, port: &PortPolicies) -> Result<Self, OpenError> {
        let secret = (u64::from_le_bytes(random()?), u64::from_le_bytes(random()?));
        let groups = policies.security_groups_of(port, secret)?;
        Ok(Self { acl: policies.acl_of(port)?, groups })
    }
}

impl Daemon {
    /// Adds a tenant's interface.
    ///
    /// # Errors
    /// Another port has the name, an address or the interface, or the system refuses the interface; the daemon does not change then.
    pub fn add_port(&mut self, options: PortOptions) -> Result<(), OpenError> {
        if let Some(taken) = self.taken_from(&options) {
            return Err(OpenError::Unknown(format!("there is a port with {taken} already")));
        }
        let port = self.open_port(options, &self.config.policies)?;
        self.attach_port(port)
    }

    /// Returns a claim of a new port that a present one has.
    pub(crate) fn taken_from(&self, new: &PortOptions) -> Option<Claim> {
        let claims = new.claims();
        let taken = |known: &PortOptions| known.claims().intersection(&claims).next().cloned();
        self.ports.values().find_map(|(_, known)| taken(known))
    }

    /// Opens a port as [`Self::open_port`] does, unless `changes` or the fleet add it and its interface cannot be opened, for
    /// example in a namespace that is gone: such a port is left out until the next reload or start.
    ///
    /// # Errors
    /// The errors of [`Self::open_port`] for other ports.
    pub(crate) fn open_or_leave_out(
        &self,
        options: PortOptions,
        policies: &Policies,
        changes: &Changes,
    ) -> Result<Option<OpenPort>, OpenError> {
        match self.open_port(options, policies) {
            Err(OpenError::Port { name, cause }) if changes.adds_port(&name) => {
                tracing::warn!(port = name, error = %cause, "port added by command left out");
                Ok(None)
            }
            Err(OpenError::Port { name, cause }) if self.is_of_fleet(&name) => {
                tracing::warn!(port = name, error = %cause, "port of the fleet left out");
                self.fleet.iter().for_each(|fleet| fleet.leave_out(&name, cause.to_string()));
                Ok(None)
            }
            opened => opened.map(Some),
        }
    }

    fn is_of_fleet(&self, name: &str) -> bool {
        self.fleet.as_ref().is_some_and(|fleet| fleet.adds_port(name))
    }

    /// Returns `true` if a port of this name was added by command and could not be opened since.
    pub(crate) fn is_left_out(&self, name: &str) -> bool {
        self.changes.adds_port(name) && self.port_named(name).is_err()
    }

    /// Opens the interface of a new port and compiles those of `policies` that it names. The daemon does not change.
    ///
    /// # Errors
    /// A value is invalid, or the system refuses the interface.
    pub(crate) fn open_port(
        &self,
        options: PortOptions,
        policies: &Policies,
    ) -> Result<OpenPort, OpenError> {
        options.check()?;
        self.config.host.check_mirror(&options)?;
        options.policies.check()?;
        let policies = PortRules::new(policies, &options.policies)?;
        let named = |cause| OpenError::Port { name: options.name.clone(), cause };
        let interface = options.open(self.config.host.tenant_mtu()).map_err(named)?;
        Ok(OpenPort { options, interface, policies })
    }

    /// Hands an open port to its thread, and tells the others of it.
    ///
    /// # Errors
    /// The system refuses to watch one more descriptor; the daemon does not change then.
    pub(crate) fn attach_port(&mut self, port: OpenPort) -> Result<(), OpenError> {
        let OpenPort { options, interface, policies: PortRules { acl, groups } } = port;
        let (vni, mac, addresses) = (options.vni()?, options.mac.0, options.prefixes()?);
        let id = PortId(self.next_port);
        self.next_port += 1;
        let thread = self.thread_for(vni, mac);
        let sources = options.policies.source_guard();
        let (may_move, mirror) = (options.may_move(), options.mirror.clone());
        let watched = self.pool.run_on(thread, move |worker| {
            worker.add_port(id, interface, may_move)?;
            worker.ports.mirrors.set(id, mirror.as_ref());
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
            if !may_move {
                worker.set_place(vni, mac, Some(Place::Port(id)));
            }
            let table = worker.switch.table(vni);
            addresses.iter().for_each(|&(address, _)| table.set_neighbour(address, Some(mac)));
        })?;
        tracing::info!(port = options.name, vni = options.vni, thread, "port added");
        let key = (options.vni, Destination::Machine(options.mac));
        self.config.ports.push(options.clone());
        self.ports.insert(id, (thread, options));
        self.fleet.iter_mut().for_each(Fleet::touch);
        self.evpn.iter_mut().for_each(Evpn::touch);
        self.restore_row(key)
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

    /// Sets the limits of a port's policies.
    pub(crate) fn set_limits(
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
    pub(crate) fn port_named(&self, name: &str) -> Result<(PortId, u8), OpenError> {
        let found = self.ports.iter().find(|(_, (_, options))| options.name == name);
        found.map(|(&id, &(thread, _))| (id, thread)).ok_or_else(|| {
            let known: Vec<_> = self.ports.values().map(|(_, known)| known.name.as_str()).collect();
            if known.is_empty() {
                return OpenError::Unknown(format!("no port {name:?}: there is none here"));
            }
            OpenError::Unknown(weft_units::unknown_name("port", name, &known))
        })
    }

    /// Changes a port's configuration as the daemon remembers it.
    pub(crate) fn change_port(&mut self, id: PortId, change: impl Fn(&mut PortOptions)) {
        if let Some((_, options)) = self.ports.get_mut(&id) {
            change(options);
            let (name, options) = (&options.name, &*options);
            let known = self.config.ports.iter_mut().find(|known| known.name == *name);
            known.into_iter().for_each(|known| known.clone_from(options));
        }
    }

    /// Removes a tenant's interface.
    ///
    /// # Errors
    /// There is no port of that name.
    pub fn remove_port(&mut self, name: &str) -> Result<(), OpenError> {
        let (id, thread) = self.port_named(name)?;
        let options = &self.ports[&id].1;
        let (vni, mac, addresses) = (options.vni()?, options.mac.0, options.prefixes()?);
        let key = (options.vni, Destination::Machine(options.mac));
        // Its own thread first, whose last word on a guest that may move the others have after that.
        self.pool.run_on(thread, move |worker| worker.remove_port(id))?;
        let of_routes =
            |address| self.evpn.as_ref().and_then(|evpn| evpn.neighbour(&(vni, address)));
        let addresses: Vec<_> =
            addresses.into_iter().map(|(address, _)| (address, of_routes(address))).collect();
        self.pool.run_on_all(move |worker| {
            // A row of the configuration, or a machine that has moved, may have the entries by now.
            worker.switch.set_elsewhere(id, None);
            let table = worker.switch.table(vni);
            for &(address, other) in &addresses {
                if table.neighbour_if_set(address) == Some(mac) {
                    table.set_neighbour(address, other);
                }
            }
        })?;
        self.config.ports.retain(|known| known.name != name);
        self.ports.remove(&id);
        self.fleet.iter_mut().for_each(Fleet::touch);
        self.evpn.iter_mut().for_each(Evpn::touch);
        self.restore_row(key)?;
        tracing::info!(port = name, "port removed");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    /// Returns a port with a vhost-user socket in a folder.
    fn port(folder: &str, name: &str, mac: u8, address: u8, may_move: bool) -> PortOptions {
        let text = format!(
            "name = '{name}'\nvni = 7\nmac = '02:00:00:00:00:{mac:02x}'\naddresses = ['10.0.0.{address}/24']\n\
             vhost-user = {{ socket = '{folder}/{name}.sock', may-move = {may_move} }}"
        );
        toml::from_str(&text).unwrap()
    }

    #[test]
    fn two_ports_of_a_host_share_no_address_and_a_removed_one_leaves_nothing() {
        let folder = std::env::temp_dir().join(format!("weft-ports-of-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let path = folder.to_str().unwrap().to_owned();
        let text = format!(
            "[host]\naddress = '127.0.0.1'\nport = 0\nthreads = 2\npaths = 1\ncontrol = '{path}/control.sock'\n\
             [[network]]\nvni = 7\n"
        );
        let mut daemon = Daemon::open(toml::from_str::<Config>(&text).unwrap()).unwrap();
        let port = |name, mac, address, may_move| port(&path, name, mac, address, may_move);
        daemon.add_port(port("a", 1, 1, false)).unwrap();
        for (other, taken) in [
            (port("a", 2, 2, false), "with a already"),
            (port("b", 1, 2, false), "02:00:00:00:00:01 in network 7"),
            (port("b", 1, 2, true), "02:00:00:00:00:01 in network 7"),
            (port("b", 2, 1, false), "10.0.0.1 in network 7"),
        ] {
            let error = daemon.add_port(other).unwrap_err().to_string();
            assert!(error.contains(taken), "{error}");
        }
        daemon.add_port(port("b", 2, 2, false)).unwrap();
        daemon.add_port(port("c", 3, 3, true)).unwrap();
        daemon.remove_port("b").unwrap();
        daemon.remove_port("c").unwrap();
        for thread in 0..2 {
            let entries = daemon.pool.run_on(thread, |worker| {
                let table = worker.switch.table(Vni::new(7).unwrap());
                [1, 2, 3].map(|number| {
                    let mac = MacAddr([2, 0, 0, 0, 0, number]);
                    let address = std::net::IpAddr::from([10, 0, 0, number]);
                    (table.place_if_set(mac).is_some(), table.neighbour_if_set(address).is_some())
                })
            });
            assert_eq!(entries.unwrap(), [(true, true), (false, false), (false, false)]);
        }
        daemon.add_port(port("b", 2, 2, false)).unwrap();
        drop(daemon);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
