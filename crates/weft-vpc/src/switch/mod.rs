//! The virtual switch between tenants' frames and the transport's messages and plain frames, in both
//! directions.
//!
//! A frame leaves by [`Switch::handle_frame`] → `outgoing.rs` → a pair's connection
//! ([`Switch::poll_burst`]) or a plain frame ([`Switch::poll_plain`]); a packet enters by
//! [`Switch::handle_packet`] or [`Switch::handle_plain`] → `arrive.rs` → the tenant's buffer.
//! The switch never waits and holds no payload: bytes stay in the tenants' memory.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use weft_transport::{
    CloseReason, ConfigError, ConnectionId, ConnectionStats, Endpoint, EndpointConfig, Secret,
    Stats, ThreadBits,
};
use weft_units::{Instant, Seed};
use weft_wire::{MacAddr, Packet};

use crate::flow_log::FlowLog;
use crate::{Acl, Direction, Entry, Limit, LimitError, SecurityGroups, SourceGuard, Table};

mod admission;
mod arrive;
mod config;
mod counters;
mod elsewhere;
mod events;
mod flows;
mod gate;
mod handover;
mod hello;
mod host_connection;
mod incoming;
mod inspect;
mod moves;
mod outgoing;
mod pair;
mod pieces;
mod plain;
mod tenants;
mod vtep;

#[cfg(test)]
mod tests;

pub use arrive::Inbound;
pub use config::{InClear, NetworkConfig, PortConfig, SwitchConfig, Vni};
pub use counters::{DropCause, HandoverCounters, SwitchCounters};
pub use elsewhere::Elsewhere;
use elsewhere::OtherThreads;
use flows::FlowLogs;
pub use flows::PortFlow;
use gate::Gate;
pub use handover::{Handover, Presence};
use host_connection::HostConnections;
pub use host_connection::Keys;
pub use outgoing::{Leaving, TenantFrame};
use pair::{Pair, Pairs, State};
use plain::KnownPeers;
pub use tenants::{PortId, Reading, Slot, Staging, Tenants, Token, Turn};

/// The place of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A port of this host.
    Port(PortId),
    /// Another host, at this address and port.
    Peer(SocketAddr),
}

impl Place {
    /// Returns `true` for the host at `peer`, at any of its ports.
    fn is_host(self, peer: SocketAddr) -> bool {
        matches!(self, Self::Peer(known) if known.ip() == peer.ip())
    }
}

/// A frame of one network for other hosts, to be sent outside pairs' connections. The owner polls it, reads the
/// frame, sends it, and releases the token, unless the frame leaves again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plain {
    /// The frame's network.
    pub vni: Vni,
    /// The port that sent the frame.
    pub port: PortId,
    /// The frame's token at the port.
    pub token: Token,
    /// Length of the frame with its virtio-net header, bytes.
    pub len: u32,
    /// The destination machine, if the gateway forwards the frame
    /// ([`gateway::forward`](crate::gateway::forward)).
    pub next: Option<MacAddr>,
    /// The hosts that receive it.
    pub to: Vec<SocketAddr>,
    /// The keys under which it leaves, then for one host only; `None` if it leaves unencrypted.
    pub under: Option<Keys>,
    /// `false` if the frame leaves again for other hosts: its token must not be released yet.
    pub is_last: bool,
}

#[derive(Debug)]
struct Port {
    config: PortConfig,
    gate: Gate,
    counters: SwitchCounters,
    flows: Option<FlowLog>,
}

#[derive(Debug)]
struct Network {
    config: NetworkConfig,
    table: Table<Place>,
    /// The hosts that receive broadcasts.
    peers: Vec<SocketAddr>,
    /// Other hosts, which speak plain VXLAN alone and whose machines are set: `true` for those that receive broadcasts.
    vteps: BTreeMap<SocketAddr, bool>,
}

/// The switch of one thread. On a host with several threads each has its own ports with all their state, and
/// knows only the place of the others' ports ([`set_elsewhere`](Self::set_elsewhere)).
#[derive(Debug)]
pub struct Switch {
    endpoint: Endpoint,
    config: SwitchConfig,
    bits: ThreadBits,
    ports: BTreeMap<PortId, Port>,
    others: OtherThreads,
    networks: BTreeMap<Vni, Network>,
    /// The peers of all networks; packets from other hosts are dropped.
    hosts: BTreeSet<IpAddr>,
    pairs: Pairs,
    peers: KnownPeers,
    plain: VecDeque<Plain>,
    host_connections: HostConnections,
    /// Connections that this host requested, whose accept came with keys and whose `Connected` event has not
    /// come yet.
    sealed: BTreeSet<ConnectionId>,
    /// `true` if the peers of some network changed since the last [`handle_timeout`](Self::handle_timeout).
    peers_changed: bool,
    /// Machines that sent frames from ports of this thread although their place is set elsewhere.
    returned: BTreeSet<(Vni, MacAddr)>,
    /// Counters that belong to no port.
    counters: SwitchCounters,
    flow_logs: FlowLogs,
    /// A buffer for a frame between two ports of this host.
    scratch: Vec<u8>,
}

impl Switch {
    /// Creates a switch without ports. `seed` determines the paths of packets; `secret` is as for
    /// [`Endpoint::new`].
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
            .with_thread_in_ids(bits)?
            .with_shared_ports(config.threads);
        let endpoint =
            if config.in_clear != InClear::Any { endpoint.with_ended() } else { endpoint };
        let endpoint = if config.threads > 1 { endpoint.with_path_news() } else { endpoint };
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
            returned: BTreeSet::new(),
            counters: SwitchCounters::default(),
            flow_logs: FlowLogs::default(),
            scratch: Vec::new(),
        })
    }

    /// Returns the number that requests for connections carry to identify the destination vNIC. Ports of one
    /// network with the same number must belong to one thread: a request cannot distinguish them.
    pub fn service_of(address: MacAddr) -> u64 {
        hello::service_of(address)
    }

    // Commands from the owner.

    /// Sets a network's configuration, and creates the network if there is none.
    pub fn set_network(&mut self, vni: Vni, config: NetworkConfig) {
        self.network(vni).config = config;
    }

    /// Sets the hosts that have ports of a network: they receive its broadcasts, and only their
    /// packets are accepted.
    pub fn set_peers(&mut self, vni: Vni, peers: Vec<SocketAddr>) {
        self.network(vni).peers = peers;
        let peers = self.networks.values().flat_map(|network| &network.peers);
        self.hosts = peers.map(SocketAddr::ip).collect();
        self.peers_changed = true;
    }

    /// Sets the hosts of a network that speak plain VXLAN alone, such as routers: `true` for those that receive its
    /// broadcasts. Nothing but frames is accepted from them, always unencrypted. Places are not learned from
    /// their frames: the owner knows and sets those of their machines.
    pub fn set_vteps(&mut self, vni: Vni, vteps: BTreeMap<SocketAddr, bool>) {
        self.network(vni).vteps = vteps;
    }

    /// Returns the machines that have sent frames from ports of this thread although their place is set elsewhere.
    pub fn take_returned(&mut self) -> BTreeSet<(Vni, MacAddr)> {
        core::mem::take(&mut self.returned)
    }

    /// Returns the table of a network with its addresses' places and neighbours.
    pub fn table(&mut self, vni: Vni) -> &mut Table<Place> {
        &mut self.network(vni).table
    }

    /// Sets the permanent place of a machine; `None` removes it. Connections that join it at another place are
    /// closed: that host could go on to receive and send in the machine's name.
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

    /// Adds a port, or changes its configuration.
    pub fn set_port(&mut self, port: PortId, config: PortConfig) {
        self.network(config.vni);
        match self.ports.get_mut(&port) {
            Some(known) => known.config = config,
            None => {
                let (gate, counters) = (Gate::default(), SwitchCounters::default());
                let flows = self.flow_logs.open();
                self.ports.insert(port, Port { config, gate, counters, flows });
            }
        }
    }

    /// Sets or removes a port's access list. Returns `false` if there is no such port.
    pub fn set_acl(&mut self, port: PortId, acl: Option<Acl>) -> bool {
        self.ports.get_mut(&port).map(|port| port.gate.set_acl(acl)).is_some()
    }

    /// Sets or removes a port's security groups. Returns `false` if there is no such port.
    pub fn set_groups(&mut self, port: PortId, groups: Option<SecurityGroups>) -> bool {
        self.ports.get_mut(&port).map(|port| port.gate.set_groups(groups)).is_some()
    }

    /// Sets or removes the guard on the IP addresses that a port's tenant sends from. Returns `false` if there is
    /// no such port.
    pub fn set_sources(&mut self, port: PortId, sources: Option<SourceGuard>) -> bool {
        self.ports.get_mut(&port).map(|port| port.gate.set_sources(sources)).is_some()
    }

    /// Returns the security groups of a port.
    pub fn groups_mut(&mut self, port: PortId) -> Option<&mut SecurityGroups> {
        self.ports.get_mut(&port)?.gate.groups_mut()
    }

    /// Returns the access list of a port.
    pub fn acl(&self, port: PortId) -> Option<&Acl> {
        self.ports.get(&port)?.gate.acl()
    }

    /// Sets or removes a port's rate limit in one direction. Returns `false` if there is no such port.
    ///
    /// # Errors
    /// A limit that [`Limit::check`] refuses.
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

    /// Sets the other thread of this host that has a port; `None` if no thread has it any more. The network's
    /// [`table`](Self::table) gives the port's address like any other.
    pub fn set_elsewhere(&mut self, port: PortId, elsewhere: Option<Elsewhere>) {
        if let Some(before) = self.others.set(port, elsewhere)
            && elsewhere.is_none()
        {
            self.table(before.vni).remove_place(Place::Port(port));
        }
    }

    /// Removes a port: its connections close, and the tokens of its frames are released.
    pub fn remove_port(&mut self, now: Instant, port: PortId, tenants: &mut impl Tenants) {
        let Some(removed) = self.ports.remove(&port) else { return };
        for connection in self.pairs.of_port(port) {
            self.close_pair(now, connection, tenants);
        }
        self.drop_plain_of(port, tenants);
        self.table(removed.config.vni).remove_place(Place::Port(port));
        self.flow_logs.keep(port, removed);
    }

    // Outputs.

    /// Returns the next handover and the thread that it is for. The owner passes it to that thread's
    /// [`handle_handover`](Self::handle_handover), in this order, or drops it if there is no room.
    pub fn poll_handover(&mut self) -> Option<(u8, Handover)> {
        self.others.waiting.pop_front()
    }

    /// Returns the number of connections that may have something to send ([`Endpoint::ready_connections`]): while it
    /// is high, frames taken from tenants wait here for that many turns.
    pub fn ready_connections(&self) -> usize {
        self.endpoint.ready_connections()
    }

    /// Passes the packets that may be sent now to `send`, at most `limit`, and returns their number.
    /// `packet` is the buffer for each one's headers.
    pub fn poll_burst(
        &mut self,
        now: Instant,
        limit: usize,
        packet: &mut Packet,
        mut send: impl FnMut(&Leaving<'_>),
    ) -> usize {
        let pairs = &self.pairs;
        let (mut last, mut pair) = (None, None);
        self.endpoint.poll_burst(now, limit, packet, |departure, packet| {
            if last != departure.connection {
                last = departure.connection;
                pair = last.and_then(|connection| pairs.get(connection));
            }
            let vni = pair.map_or(Vni(0), |pair| pair.vni);
            send(&Leaving { vni, departure, packet, pair });
        })
    }

    /// Returns the time at which [`handle_timeout`](Self::handle_timeout) must be called next.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.endpoint.poll_timeout()
    }

    /// Handles due timers and the transport's events. The owner calls it once a turn, after
    /// everything that arrived.
    pub fn handle_timeout(&mut self, now: Instant, tenants: &mut impl Tenants) {
        if core::mem::take(&mut self.peers_changed) {
            self.close_host_connections(now);
            self.forget_former_peers(now, tenants);
        }
        if self.endpoint.poll_timeout().is_some_and(|due| due <= now) {
            self.endpoint.handle_timeout(now);
        }
        while let Some(event) = self.endpoint.poll_event() {
            self.handle_event(now, event, tenants);
        }
        while let Some(news) = self.endpoint.poll_path_news() {
            self.broadcast_path_news(news);
        }
    }

    // Getters.

    /// Returns the transport's counters.
    pub fn transport(&self) -> &Stats {
        self.endpoint.stats()
    }

    /// Returns the counters of a port's frames.
    pub fn port_counters(&self, port: PortId) -> Option<&SwitchCounters> {
        self.ports.get(&port).map(|port| &port.counters)
    }

    /// Returns the counters that belong to no port.
    pub fn counters(&self) -> &SwitchCounters {
        &self.counters
    }

    /// Returns the counters of work handed over to other threads of this host.
    pub fn handover_counters(&self) -> HandoverCounters {
        self.others.counters
    }

    /// Returns each pair of vNICs: its network, port, remote address and host, and its connection's
    /// statistics.
    pub fn pairs(&self) -> impl Iterator<Item = PairView<'_>> {
        self.pairs.iter().map(|(connection, pair)| PairView {
            connection,
            vni: pair.vni,
            port: pair.port,
            remote: pair.remote,
            peer: pair.peer,
            up: pair.state == State::Up,
            waiting: pair.waiting.len() + pair.sent.len(),
            stats: self.endpoint.connection_stats(connection),
        })
    }

    /// Returns the number of pairs of vNICs.
    pub fn pair_count(&self) -> usize {
        self.pairs.len()
    }

    /// Returns the hosts to which connections were requested, with `true` if the last request was accepted, and `false` if
    /// it failed within the last minute: what is sent there meanwhile is lost, or leaves as plain VXLAN.
    pub fn peers_reached(&self, now: Instant) -> impl Iterator<Item = (IpAddr, bool)> {
        let reached = self.peers.reached(now).map(|(peer, is_reached)| (peer.ip(), is_reached));
        reached.filter(|(peer, _)| self.hosts.contains(peer))
    }

    /// Returns the addresses of a network with their places.
    pub fn addresses(&self, vni: Vni) -> impl Iterator<Item = Entry<MacAddr, Place>> {
        self.networks.get(&vni).into_iter().flat_map(|network| network.table.iter())
    }

    // Inside.

    fn network(&mut self, vni: Vni) -> &mut Network {
        let table = self.config.table;
        self.networks.entry(vni).or_insert_with(|| Network {
            config: NetworkConfig::default(),
            table: Table::new(table),
            peers: Vec::new(),
            vteps: BTreeMap::new(),
        })
    }

    /// Returns the host that a connection requested here, or a pair's connection, leads to.
    fn peer_of(&self, connection: ConnectionId) -> Option<SocketAddr> {
        let pair = self.pairs.get(connection).map(|pair| pair.peer);
        pair.or_else(|| self.host_connections.peer_of(connection))
    }

    fn count(&mut self, port: PortId) -> &mut SwitchCounters {
        self.ports.get_mut(&port).map_or(&mut self.counters, |port| &mut port.counters)
    }

    /// Drops a frame that a tenant sent.
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

/// A view of a pair of vNICs, for status output.
#[derive(Debug)]
pub struct PairView<'a> {
    /// Its connection.
    pub connection: ConnectionId,
    /// Its network.
    pub vni: Vni,
    /// The port of this host.
    pub port: PortId,
    /// The vNIC of the other host.
    pub remote: MacAddr,
    /// The other host.
    pub peer: SocketAddr,
    /// `true` if the connection is set up.
    pub up: bool,
    /// Number of frames not acknowledged.
    pub waiting: usize,
    /// The statistics of the connection.
    pub stats: Option<ConnectionStats<'a>>,
}

/// Returns `true` if the reason for which a connection closed shows that its peer does not speak Weft, or cannot be
/// reached by it.
fn speaks_plain(reason: CloseReason) -> bool {
    matches!(
        reason,
        CloseReason::ConnectTimeout
            | CloseReason::NoCommonVersion
            | CloseReason::Refused
            | CloseReason::PeerGone
    )
}
