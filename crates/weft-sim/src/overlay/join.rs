//! The set-up of a host's switch and tenants, and the choice of a channel's vNICs.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use weft_topo::NodeId;
use weft_transport::{ConfigError, Secret, TransportConfig};
use weft_units::Seed;
use weft_vpc::{NetworkConfig, Place, PortConfig, PortId, Switch, SwitchConfig, Vni};

use super::Vtep;
use super::counters::TenantCounters;
use super::flow::Flow;
use super::frame::Vnic;
use super::nics::Nics;
use super::plain::PlainQueue;
use crate::nic;
use crate::scenario::OverlaySection;
use crate::traffic::{ChannelId, Side};

/// The first tenant's network.
const FIRST_VNI: u32 = 100;

impl Vtep {
    /// Returns a host's switch and tenants, with all hosts as peers, and without flows.
    ///
    /// # Errors
    /// A field of the transport's configuration is out of its range.
    pub fn new(
        host: NodeId,
        hosts: u32,
        transport: &TransportConfig,
        config: &OverlaySection,
        seed: Seed,
    ) -> Result<Self, ConfigError> {
        let switch = SwitchConfig {
            receive_port: nic::RECEIVE_PORT,
            waiting_frames: config.waiting_frames as usize,
            plain_period: config.plain_for,
            ..SwitchConfig::new(transport.clone())
        };
        let mut vtep = Self {
            host,
            config: config.clone(),
            limits: config.limits(transport),
            paths: transport.paths,
            switch: Switch::new(switch, seed, Secret::from_seed(seed))?,
            nics: Nics::new(config.tenants * config.ports, config.buffers),
            plain: PlainQueue::default(),
            flows: BTreeMap::new(),
            ready: VecDeque::new(),
            timers: BTreeSet::new(),
            events: VecDeque::new(),
            ends: [0; 2],
            counters: TenantCounters::default(),
        };
        vtep.set_up((0..hosts).map(NodeId).filter(|&peer| peer != host).collect());
        Ok(vtep)
    }

    fn set_up(&mut self, peers: Vec<NodeId>) {
        let OverlaySection { tenants, ports, reliable, in_order, .. } = self.config;
        let peers: Vec<_> = peers.into_iter().map(nic::address).collect();
        for tenant in 0..tenants {
            let vni = vni(tenant);
            self.switch.set_network(vni, NetworkConfig { reliable, in_order, flood: true });
            self.switch.set_peers(vni, peers.clone());
        }
        for port in 0..tenants * ports {
            let (vnic, vni) = (self.vnic(self.host, port), vni(port / ports));
            let addresses = vec![vnic.mac()];
            self.switch.set_port(PortId(port), PortConfig { vni, addresses });
            self.switch.table(vni).set_mac(vnic.mac(), Some(Place::Port(PortId(port))));
        }
    }

    /// Returns the vNIC of a host's port.
    fn vnic(&self, host: NodeId, port: u32) -> Vnic {
        Vnic(host.0 * self.config.tenants * self.config.ports + port)
    }

    /// Returns the tenant's port for the next channel of which this host is `side`.
    fn next_port(&mut self, side: Side, tenant: u32) -> u32 {
        let number = self.ends[side.index()];
        self.ends[side.index()] += 1;
        tenant * self.config.ports + number / self.config.tenants % self.config.ports
    }

    /// Makes two hosts' tenants the ends of a channel, and enters the other vNIC's place into both switches' tables, as
    /// a controller does. A host's channels are distributed over its tenants in turn, and over the vNICs of each.
    pub fn join(channel: ChannelId, opener: &mut Self, peer: &mut Self) {
        let tenant = opener.ends[Side::Opener.index()] % opener.config.tenants;
        let ports = [opener.next_port(Side::Opener, tenant), peer.next_port(Side::Peer, tenant)];
        let vnics = [opener.vnic(opener.host, ports[0]), peer.vnic(peer.host, ports[1])];
        let places = [nic::address(opener.host), nic::address(peer.host)];
        for (vtep, side) in [(opener, Side::Opener), (peer, Side::Peer)] {
            let (own, other) = (side.index(), side.other().index());
            let place = Some(Place::Peer(places[other]));
            vtep.switch.table(vni(tenant)).set_mac(vnics[other].mac(), place);
            let ends = (vnics[own], vnics[other]);
            let flow = Flow::new((channel, side), PortId(ports[own]), ends, &vtep.limits);
            vtep.flows.insert(channel, Box::new(flow));
        }
    }
}

fn vni(tenant: u32) -> Vni {
    Vni::new(FIRST_VNI + tenant).expect("scenarios check how many tenants there are")
}
