//! The virtual switch: tenants' frames in, messages of the transport and plain frames out, and back.
//!
//! A frame's way out is [`Switch::handle_frame`] → `outgoing.rs` → a pair's connection
//! ([`Switch::poll_burst`]) or a plain frame ([`Switch::poll_plain`]); a packet's way in is
//! [`Switch::handle_packet`] or [`Switch::handle_plain`] → `arrive.rs` → the tenant's buffer.
//! The switch never waits and holds no payload: bytes stay in the tenants' memory.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use weft_transport::{
    CloseReason, ConfigError, ConnectionId, Endpoint, EndpointConfig, Flow, Secret, Stats,
    ThreadBits,
};
use weft_units::{Instant, Seed};
use weft_wire::{MacAddr, Packet};

use crate::{Acl, Direction, Limit, LimitError, SecurityGroups, SourceGuard, Table};

mod admission;
mod arrive;
mod config;
mod counters;
mod elsewhere;
mod events;
mod gate;
mod handover;
mod hello;
mod host_connection;
mod incoming;
mod inspect;
mod outgoing;
mod pair;
mod pieces;
mod plain;
mod tenants;

#[cfg(test)]
mod tests;

pub use config::{InClear, NetworkConfig, PortConfig, SwitchConfig, Vni};
pub use counters::{DropCause, HandedOver, SwitchCounters};
pub use elsewhere::Elsewhere;
use elsewhere::OtherThreads;
use gate::Gate;
pub use handover::Handover;
use host_connection::HostConnections;
pub use host_connection::Keys;
pub use outgoing::Leaving;
use pair::{Pair, Pairs, State};
use plain::KnownPeers;
pub use tenants::{PortId, Reading, Slot, Staging, Tenants, Token, Turn};

/// Where an address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Behind a port of this host.
    Port(PortId),
    /// On another host, at this address and port.
    Peer(SocketAddr),
}

/// A frame of one network for other hosts, to be sent outside pairs' connections. Whoever polls it reads the frame, sends
/// it, and releases the token, unless the frame leaves again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plain {
    /// Which network.
    pub vni: Vni,
    /// Whose frame.
    pub port: PortId,
    /// Which frame.
    pub token: Token,
    /// Its length with its virtio-net header, bytes.
    pub len: u32,
    /// The machine that it is for, where the gateway sends it on ([`gateway::pass_on`](crate::gateway::pass_on)).
    pub next: Option<MacAddr>,
    /// Who gets it.
    pub to: Vec<SocketAddr>,
    /// The keys that it leaves under, for one host then; `None` in the clear.
    pub under: Option<Keys>,
    /// `false` if the frame leaves again for other hosts, so that its token is not to be released yet.
    pub is_last: bool,
}

#[derive(Debug)]
struct Port {
    config: PortConfig,
    gate: Gate,
    counters: SwitchCounters,
}

#[derive(Debug)]
struct Network {
    config: NetworkConfig,
    table: Table<Place>,
    /// Hosts that frames for everybody go to.
    peers: Vec<SocketAddr>,
}

/// One thread's switch. Where a host has several, each has the ports that are its own, with all that
/// belongs to them, and knows of the others' ports only where they are ([`set_elsewhere`](Self::set_elsewhere)).
#[derive(Debug)]
pub struct Switch {
    endpoint: Endpoint,
    config: SwitchConfig,
    bits: ThreadBits,
    ports: BTreeMap<PortId, Port>,
    others: OtherThreads,
    networks: BTreeMap<Vni, Network>,
    /// The peers of all networks: from others nothing is taken.
    hosts: BTreeSet<IpAddr>,
    pairs: Pairs,
    peers: KnownPeers,
    plain: VecDeque<Plain>,
    host_connections: HostConnections,
    /// Connections that this host asked for, whose accept has come with keys and is not heard of yet.
    sealed: BTreeSet<ConnectionId>,
    /// `true` if some network has other peers than when [`handle_timeout`](Self::handle_timeout) was last called.
    peers_changed: bool,
    /// What no port can be blamed for.
    counters: SwitchCounters,
    /// A frame on its way between two ports of this host.
    scratch: Vec<u8>,
}

impl Switch {
    /// A switch without ports. `seed` decides which paths packets take; `secret` is
    /// [`Endpoint::new`]'s.
    ///
    /// # Errors
    /// A field of the transport's configuration is out of its range.
    pub fn new(config: SwitchConfig, seed: Seed, secret: Secret) -> Result<Self, ConfigError> {
        let endpoint = EndpointConfig {
            transport: config.transport.clone(),
            receive_port: config.receive_port,
            thread_id: config.thread_id,
            accept: true,
            max_connections: config.max_connections,
        };
        let bits = ThreadBits::of(config.threads);
        let endpoint = Endpoint::new(endpoint, seed, secret)?
            .naming_its_thread(bits)?
            .sharing_ports(config.threads);
        let endpoint =
            if config.in_clear != InClear::Any { endpoint.keeping_forgotten() } else { endpoint };
        let endpoint = if config.threads > 1 { endpoint.keeping_path_news() } else { endpoint };
        Ok(Self {
            endpoint,
            config,
            bits,
            ports: BTreeMap::new(),
            others: OtherThreads::default(),
            networks: BTreeMap::new(),
            hosts: BTreeSet::new(),
            pairs: Pairs::default(),
            peers: KnownPeers::default(),
            plain: VecDeque::new(),
            host_connections: HostConnections::default(),
            sealed: BTreeSet::new(),
            peers_changed: false,
            counters: SwitchCounters::default(),
            scratch: Vec::new(),
        })
    }

    /// What requests for connections say of the vNIC that they are for. Ports of one network whose addresses have
    /// it in common are to be one thread's: a request cannot tell them apart.
    pub fn service_of(address: MacAddr) -> u32 {
        hello::service_of(address)
    }

    // Commands from the owner.

    /// Sets how a network is carried, and makes it if there is none.
    pub fn set_network(&mut self, vni: Vni, config: NetworkConfig) {
        self.network(vni).config = config;
    }

    /// Hosts that have ports of a network: they get the frames that are for everybody, and only
    /// from them frames are taken.
    pub fn set_peers(&mut self, vni: Vni, peers: Vec<SocketAddr>) {
        self.network(vni).peers = peers;
        let peers = self.networks.values().flat_map(|network| &network.peers);
        self.hosts = peers.map(SocketAddr::ip).collect();
        self.peers_changed = true;
    }

    /// The table of a network: where its addresses are, and who has which.
    pub fn table(&mut self, vni: Vni) -> &mut Table<Place> {
        &mut self.network(vni).table
    }

    /// Says for good where a machine is; `None` takes that back. Connections that lead to it at another place are
    /// closed: who has them could go on to receive and send in its name.
    pub fn set_place(
        &mut self,
        now: Instant,
        vni: Vni,
        mac: MacAddr,
        place: Option<Place>,
        tenants: &mut impl Tenants,
    ) {
        self.table(vni).set_mac(mac, place);
        let Some(place) = place.filter(|_| self.pairs.len() > 0) else { return };
        for port in self.others(vni, None).collect::<Vec<_>>() {
            for connection in self.pairs.joining((port, mac)) {
                if self.pairs.get(connection).is_some_and(|pair| !pair.leads_to(place)) {
                    self.close_pair(now, connection, tenants);
                }
            }
        }
    }

    /// Adds a port, or changes one.
    pub fn set_port(&mut self, port: PortId, config: PortConfig) {
        self.network(config.vni);
        match self.ports.get_mut(&port) {
            Some(known) => known.config = config,
            None => {
                let (gate, counters) = (Gate::default(), SwitchCounters::default());
                self.ports.insert(port, Port { config, gate, counters });
            }
        }
    }

    /// Holds a port's packets against an access list, or no longer. Whether there is such a port.
    pub fn set_acl(&mut self, port: PortId, acl: Option<Acl>) -> bool {
        self.ports.get_mut(&port).map(|port| port.gate.set_acl(acl)).is_some()
    }

    /// Holds a port's connections against security groups, or no longer. Whether there is such a port.
    pub fn set_groups(&mut self, port: PortId, groups: Option<SecurityGroups>) -> bool {
        self.ports.get_mut(&port).map(|port| port.gate.set_groups(groups)).is_some()
    }

    /// Holds what a port's tenant sends against its IP addresses, or no longer. Whether there is such a
    /// port.
    pub fn set_sources(&mut self, port: PortId, sources: Option<SourceGuard>) -> bool {
        self.ports.get_mut(&port).map(|port| port.gate.set_sources(sources)).is_some()
    }

    /// The security groups of a port.
    pub fn groups_mut(&mut self, port: PortId) -> Option<&mut SecurityGroups> {
        self.ports.get_mut(&port)?.gate.groups_mut()
    }

    /// The access list of a port.
    pub fn acl(&self, port: PortId) -> Option<&Acl> {
        self.ports.get(&port)?.gate.acl()
    }

    /// Limits what passes a port one way, or no longer. Whether there is such a port.
    ///
    /// # Errors
    /// A limit that cannot be kept.
    pub fn set_limit(
        &mut self,
        now: Instant,
        port: PortId,
        direction: Direction,
        limit: Option<Limit>,
    ) -> Result<bool, LimitError> {
        let Some(port) = self.ports.get_mut(&port) else { return Ok(false) };
        port.gate.set_limit(direction, limit, now).map(|()| true)
    }

    /// Says which other thread of this host has a port, or that none has it any more. Its address in the
    /// network's [`table`](Self::table) is that of a port like any other.
    pub fn set_elsewhere(&mut self, port: PortId, elsewhere: Option<Elsewhere>) {
        if let Some(before) = self.others.set(port, elsewhere)
            && elsewhere.is_none()
        {
            self.table(before.vni).forget(Place::Port(port));
        }
    }

    /// Takes a port away: its connections close, what it sent is released.
    pub fn remove_port(&mut self, now: Instant, port: PortId, tenants: &mut impl Tenants) {
        let Some(removed) = self.ports.remove(&port) else { return };
        for connection in self.pairs.of_port(port) {
            self.close_pair(now, connection, tenants);
        }
        self.drop_plain_of(port, tenants);
        self.table(removed.config.vni).forget(Place::Port(port));
    }

    // Outputs.

    /// The next thing that another thread has to deal with, and which thread that is. Whoever polls it brings
    /// it to that thread's [`handle_handover`](Self::handle_handover), in this order, or drops it where there
    /// is no room.
    pub fn poll_handover(&mut self) -> Option<(u8, Handover)> {
        self.others.waiting.pop_front()
    }

    /// Connections that may have something to send ([`Endpoint::wanting_to_send`]): frames that are taken from
    /// tenants while that is many wait here for as many turns.
    pub fn wanting_to_send(&self) -> usize {
        self.endpoint.wanting_to_send()
    }

    /// Hands the packets that may be sent now to `send`, at most `most`; says how many there were.
    /// Each one's headers are put into `packet`.
    pub fn poll_burst(
        &mut self,
        now: Instant,
        most: usize,
        packet: &mut Packet,
        mut send: impl FnMut(&Leaving<'_>),
    ) -> usize {
        let pairs = &self.pairs;
        let (mut last, mut pair) = (None, None);
        self.endpoint.poll_burst(now, most, packet, |departure, packet| {
            if last != departure.connection {
                last = departure.connection;
                pair = last.and_then(|connection| pairs.get(connection));
            }
            let vni = pair.map_or(Vni(0), |pair| pair.vni);
            send(&Leaving { vni, departure, packet, pair });
        })
    }

    /// When [`handle_timeout`](Self::handle_timeout) must be called next.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.endpoint.poll_timeout()
    }

    /// Does what is due, and hears what the transport has to say. Call it once a turn, after
    /// everything that arrived.
    pub fn handle_timeout(&mut self, now: Instant, tenants: &mut impl Tenants) {
        if core::mem::take(&mut self.peers_changed) {
            self.close_host_connections(now);
        }
        if self.endpoint.poll_timeout().is_some_and(|due| due <= now) {
            self.endpoint.handle_timeout(now);
        }
        while let Some(event) = self.endpoint.poll_event() {
            self.handle_event(now, event, tenants);
        }
        while let Some(news) = self.endpoint.poll_path_news() {
            self.spread_path_news(news);
        }
    }

    // Getters.

    /// What the transport counted.
    pub fn transport(&self) -> &Stats {
        self.endpoint.stats()
    }

    /// What a port's frames went through.
    pub fn port_counters(&self, port: PortId) -> Option<&SwitchCounters> {
        self.ports.get(&port).map(|port| &port.counters)
    }

    /// What no port can be blamed for.
    pub fn counters(&self) -> &SwitchCounters {
        &self.counters
    }

    /// What went to other threads of this host.
    pub fn handed_over(&self) -> HandedOver {
        self.others.counters
    }

    /// Each pair of vNICs: its network, port, remote address and host, and what its connection went
    /// through.
    pub fn pairs(&self) -> impl Iterator<Item = PairView<'_>> {
        self.pairs.iter().map(|(connection, pair)| PairView {
            connection,
            vni: pair.vni,
            port: pair.port,
            remote: pair.remote,
            peer: pair.peer,
            up: pair.state == State::Up,
            waiting: pair.waiting.len() + pair.sent.len(),
            flow: self.endpoint.flow(connection),
        })
    }

    /// How many pairs of vNICs there are.
    pub fn pair_count(&self) -> usize {
        self.pairs.len()
    }

    /// Where the addresses of a network are, and whether that was set.
    pub fn addresses(&self, vni: Vni) -> impl Iterator<Item = (MacAddr, Place, bool)> {
        self.networks.get(&vni).into_iter().flat_map(|network| network.table.iter())
    }

    // Inside.

    fn network(&mut self, vni: Vni) -> &mut Network {
        let table = self.config.table;
        self.networks.entry(vni).or_insert_with(|| Network {
            config: NetworkConfig::default(),
            table: Table::new(table),
            peers: Vec::new(),
        })
    }

    /// The host that this one has asked for a connection, or that a pair's connection leads to.
    fn peer_of(&self, connection: ConnectionId) -> Option<SocketAddr> {
        let pair = self.pairs.get(connection).map(|pair| pair.peer);
        pair.or_else(|| self.host_connections.peer_of(connection))
    }

    fn count(&mut self, port: PortId) -> &mut SwitchCounters {
        self.ports.get_mut(&port).map_or(&mut self.counters, |port| &mut port.counters)
    }

    /// Drops a frame a tenant sent.
    fn drop_frame(
        &mut self,
        port: PortId,
        token: Token,
        cause: DropCause,
        tenants: &mut impl Tenants,
    ) {
        self.count(port).drop_frame(cause);
        tenants.release(port, token);
    }
}

/// A pair of vNICs, for whoever looks.
#[derive(Debug)]
pub struct PairView<'a> {
    /// Its connection.
    pub connection: ConnectionId,
    /// Its network.
    pub vni: Vni,
    /// The port of this host.
    pub port: PortId,
    /// The vNIC of the other.
    pub remote: MacAddr,
    /// The other host.
    pub peer: SocketAddr,
    /// Whether it is set up.
    pub up: bool,
    /// Frames not acknowledged.
    pub waiting: usize,
    /// What the connection's payload went through.
    pub flow: Option<Flow<'a>>,
}

/// Whether a connection that ended so says that its peer speaks no Weft, or cannot be reached by it.
fn speaks_plain(reason: CloseReason) -> bool {
    matches!(
        reason,
        CloseReason::ConnectTimeout
            | CloseReason::NoCommonVersion
            | CloseReason::Refused
            | CloseReason::PeerGone
    )
}
