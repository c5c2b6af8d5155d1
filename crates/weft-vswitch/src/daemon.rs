//! The loop between tenants' ports, the switch and the host's sockets.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::path::Path;

use weft_agent::Clock;
use weft_agent::udp::{SocketConfig, SocketError, Sockets};
use weft_ports::{Port, PortError};
use weft_transport::{Arrival, Secret};
use weft_units::{Duration, Instant, Seed};
use weft_vpc::{
    AclConfig, Direction, Frame, Limit, LimitError, Place, PoliciesError, PortConfig, PortId,
    PortPolicies, Reading, Switch, SwitchConfig, Tenants, Vni,
};
use weft_wire::{Packet, VirtioNetHeader};

use crate::config::{Config, ConfigError, Network, Port as PortOptions, Route};
use crate::control::Control;
use crate::seals::Seals;
use crate::status::{self, NetworkStatus, PairStatus, PortStatus, Status};
use crate::tenants::Ports;
use crate::underlay::{self, Link, PlainSender};
use crate::wait::wait;

/// Frames taken from one port before others have their turn.
const FRAMES_A_TURN: usize = 64;

/// Packets taken from the switch before the sockets are looked at again.
const PACKETS_A_TURN: usize = 176;

/// How often ports are looked after without being asked.
const ATTEND_EVERY: Duration = Duration::from_secs(1);

/// How often it is looked for buffers held too long.
const GIVE_BACK_EVERY: Duration = Duration::from_millis(4);

/// Three retransmission timeouts (BIFROST, section 7.4): what a guest's buffer is held for at most.
const OVERDUE: Duration = Duration::from_millis(28);

/// Why a daemon cannot start, or a port cannot be added.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// A value that cannot be.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The sockets.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// Policies that contradict themselves.
    #[error(transparent)]
    Policies(#[from] PoliciesError),
    /// A limit that cannot be kept.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// A port.
    #[error("port {name}: {cause}")]
    Port {
        /// Which.
        name: String,
        /// Why.
        cause: PortError,
    },
    /// The control socket.
    #[error("cannot listen on {socket}: {cause}; is another daemon running there?")]
    Control {
        /// Where.
        socket: String,
        /// What the system said.
        cause: io::Error,
    },
    /// The operating system gave no random numbers.
    #[error("no random numbers from the operating system: {0}")]
    Entropy(#[from] rustix::io::Errno),
    /// What was named is not there, or there already.
    #[error("{0}")]
    Unknown(String),
}

/// One host's overlay.
#[derive(Debug)]
pub struct Daemon {
    pub(crate) config: Config,
    switch: Switch,
    sockets: Sockets,
    ports: Ports,
    names: BTreeMap<PortId, PortOptions>,
    next_port: u32,
    control: Control,
    plain: PlainSender,
    seals: Option<Seals>,
    counters: underlay::Counters,
    attended: Instant,
    gave_back: Instant,
    clock: Clock,
}

impl Daemon {
    /// Opens everything a configuration names.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(config: Config) -> Result<Self, OpenError> {
        config.check()?;
        let transport = config.host.transport()?;
        let sockets = Sockets::open(&SocketConfig::new(config.host.socket(), transport.paths))?;
        let switch =
            SwitchConfig { receive_port: config.host.port, ..SwitchConfig::new(transport) };
        let (seed, secret) = (Seed(u64::from_le_bytes(random()?)), Secret::new(random()?));
        let switch = Switch::new(switch, seed, secret).expect("checked with the configuration");
        let (address, options) = (config.host.address, config.host.seal.as_ref());
        let seals = options.map(|options| Seals::open(options, address)).transpose()?;
        let mut daemon = Self {
            control: Control::open(&config.host.control)?,
            switch,
            sockets,
            ports: Ports::default(),
            names: BTreeMap::new(),
            next_port: 1,
            plain: PlainSender::default(),
            seals,
            counters: underlay::Counters::default(),
            attended: Instant::EPOCH,
            gave_back: Instant::EPOCH,
            clock: Clock,
            config: Config { networks: vec![], ports: vec![], routes: vec![], ..config.clone() },
        };
        for network in config.networks {
            daemon.set_network(network)?;
        }
        for port in config.ports {
            daemon.add_port(port)?;
        }
        for route in config.routes {
            daemon.set_route(route)?;
        }
        Ok(daemon)
    }

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

    /// Takes turns until `stop` says so.
    ///
    /// # Errors
    /// The kernel refuses to wait.
    pub fn run(&mut self, stop: impl Fn() -> bool) -> io::Result<()> {
        while !stop() {
            if !self.turn() {
                self.sleep()?;
            }
        }
        Ok(())
    }

    /// Takes one turn without blocking; whether anything happened.
    pub fn turn(&mut self) -> bool {
        let received = self.take_datagrams();
        let now = self.clock.now();
        let taken = self.take_frames(now);
        self.switch.handle_timeout(now, &mut self.ports);
        let sent = self.send(now);
        if now.since(self.attended) >= ATTEND_EVERY {
            self.attended = now;
            self.attend(now);
        }
        self.give_back(now);
        self.ports.flush();
        let asked = self.serve_control();
        received + taken + sent + asked > 0
    }

    fn take_datagrams(&mut self) -> usize {
        let Ok(messages) = self.sockets.inbox.receive() else { return 0 };
        let now = self.clock.now();
        for index in 0..messages {
            let received = self.sockets.inbox.message(index);
            let arrival = Arrival {
                from: received.from,
                received_at: now,
                congestion_experienced: received.congestion_experienced,
                hops: received.hops,
            };
            for datagram in received.datagrams() {
                let (switch, tenants) = (&mut self.switch, &mut self.ports);
                let (seals, counters) = (&mut self.seals, &mut self.counters);
                underlay::take_datagram(switch, now, &arrival, datagram, tenants, seals, counters);
            }
        }
        messages
    }

    /// Takes what tenants sent.
    fn take_frames(&mut self, now: Instant) -> usize {
        let mut head = [0; VirtioNetHeader::LEN + Frame::LOOK_AHEAD];
        let mut taken = 0;
        for &id in self.names.keys() {
            for _ in 0..FRAMES_A_TURN {
                let Some(sent) = self.ports.with(id, |port| port.take(now)) else { break };
                taken += 1;
                let known = head.len().min(sent.len as usize);
                let head = &mut head[..known];
                self.ports.read(id, sent.token, 0, head, Reading::First);
                let (switch, tenants) = (&mut self.switch, &mut self.ports);
                switch.handle_frame(now, id, sent.token, sent.len, head, tenants);
            }
        }
        taken
    }

    fn send(&mut self, now: Instant) -> usize {
        let mut link = Link { outbox: &mut self.sockets.outbox, seals: &mut self.seals };
        let tenants = &mut self.ports;
        // What the kernel has no room for waits; asking the switch for more would only let it pile up.
        let room = PACKETS_A_TURN.saturating_sub(link.outbox.waiting());
        let mut packet = Packet::default();
        let mut sent = self.switch.poll_burst(now, room, &mut packet, |leaving| {
            underlay::push_packet(&mut link, leaving, tenants);
        });
        let paths = self.config.host.paths;
        while link.outbox.waiting() < PACKETS_A_TURN {
            let Some(plain) = self.switch.poll_plain() else { break };
            self.plain.send(&plain, paths, &mut link, tenants, &mut self.counters);
            sent += 1;
        }
        link.outbox.flush();
        sent
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

    fn attend(&mut self, now: Instant) {
        if let Some(seals) = &mut self.seals {
            seals.handle_timeout(now);
        }
        for id in self.ports.ids() {
            self.ports.with(id, |port| port.attend(now));
        }
    }

    /// Gives tenants the buffers back that they have waited too long for.
    fn give_back(&mut self, now: Instant) {
        if now.since(self.gave_back) >= GIVE_BACK_EVERY {
            self.gave_back = now;
            self.ports.iter_mut().for_each(|(_, port)| {
                port.release_overdue(now, OVERDUE);
            });
        }
    }

    fn serve_control(&mut self) -> usize {
        let requests = self.control.take();
        let count = requests.len();
        for (client, request) in requests {
            let answer = request.and_then(|request| request.carry_out(self));
            self.control.answer(client, answer);
        }
        count
    }

    fn sleep(&mut self) -> io::Result<()> {
        let now = self.clock.now();
        let until = self.switch.poll_timeout();
        let ports = self.ports.iter().map(|(_, port)| port.fd());
        let own = std::iter::once(self.sockets.readable()).chain(self.control.fds());
        let ready = wait(now, until, ports.chain(own), self.sockets.outbox.blocked())?;
        let now = self.clock.now();
        for (id, _) in self.ports.ids().into_iter().zip(ready).filter(|(_, ready)| *ready) {
            self.ports.with(id, |port| port.attend(now));
        }
        Ok(())
    }

    /// What it is at this moment.
    pub fn status(&self) -> Status {
        let stats = self.switch.transport();
        let transport = [
            ("data_sent", stats.data_sent),
            ("data_received", stats.data_received),
            ("acks_sent", stats.acks_sent),
            ("acks_received", stats.acks_received),
            ("fast_retransmits", stats.fast_retransmits),
            ("timeout_retransmits", stats.timeout_retransmits),
            ("tail_loss_probes", stats.tail_loss_probes),
            ("spurious_retransmits", stats.spurious_retransmits),
            ("out_of_order", stats.out_of_order),
            ("declined", stats.declined),
            ("shed", stats.shed),
            ("paths_down", stats.paths_down),
            ("paths_up", stats.paths_up),
        ];
        let mut dropped = status::dropped(self.switch.counters());
        let own = [
            ("malformed", self.counters.malformed),
            ("seal_refused", self.counters.seals.refused),
            ("in_the_clear", self.counters.seals.in_the_clear),
            ("unsendable", self.counters.unsendable),
        ];
        for (name, count) in own.into_iter().filter(|row| row.1 > 0) {
            *dropped.entry(name.to_owned()).or_default() += count;
        }
        Status {
            address: self.config.host.address,
            tenant_mtu: self.config.host.tenant_mtu(),
            networks: self
                .config
                .networks
                .iter()
                .map(|network| self.network_status(network))
                .collect(),
            ports: self.ports.iter().map(|(id, port)| self.port_status(id, port)).collect(),
            pairs: self
                .switch
                .pairs()
                .map(|pair| PairStatus::of(&pair, self.name(pair.port)))
                .collect(),
            transport: transport.map(|(name, count)| (name.to_owned(), count)).into(),
            dropped,
        }
    }

    fn name(&self, port: PortId) -> &str {
        self.names.get(&port).map_or("", |options| &options.name)
    }

    fn network_status(&self, network: &Network) -> NetworkStatus {
        let vni = network.vni().expect("checked when it was set");
        let place = |place| match place {
            Place::Port(port) => self.name(port).to_owned(),
            Place::Peer(peer) => IpAddr::to_string(&peer.ip()),
        };
        let addresses = self.switch.addresses(vni);
        NetworkStatus {
            network: network.clone(),
            addresses: addresses.map(|(mac, at, _)| (crate::config::Mac(mac), place(at))).collect(),
        }
    }

    fn port_status(&self, id: PortId, port: &dyn Port) -> PortStatus {
        let options = &self.names[&id];
        let counted = port.counters();
        let switched = self.switch.port_counters(id).cloned().unwrap_or_default();
        let mut dropped = status::dropped(&switched);
        dropped.extend(status::dropped_by_port(&counted));
        let held = port.holdings();
        PortStatus {
            name: options.name.clone(),
            vni: options.vni,
            mac: options.mac,
            up: port.is_up(),
            sent: (counted.sent_frames, counted.sent_bytes),
            received: (counted.received_frames, counted.received_bytes),
            carried: (switched.reliable_sent, switched.plain_sent, switched.local_sent),
            declined: switched.declined,
            dropped,
            held: (held.taken, held.claimed),
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        for (_, port) in self.ports.iter_mut() {
            port.settle();
        }
    }
}

fn random<const N: usize>() -> Result<[u8; N], rustix::io::Errno> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        filled +=
            rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty())?;
    }
    Ok(bytes)
}
