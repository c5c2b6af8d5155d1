//! The TOML description of a cluster.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::net::Ipv4Addr;

use weft_topo::build::TopologyConfig;
use weft_topo::hash::{HashAlgorithm, SwitchHash};
use weft_topo::{NodeId, Topology, TopologyBuilder};
use weft_units::{BitRate, Duration, Seed, unknown_name};

use super::{Cluster, ClusterError, Network, Server};
use crate::machine::{Machine, MachineConfig};
use crate::ports::switch_hashes;

/// The description of a cluster: a network shape whose hosts are the NICs, server by server; or switches and servers by
/// name; or servers with only their blocks.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct ClusterConfig {
    /// The network shape, in the scenarios' format.
    pub network: Option<TopologyConfig>,
    /// The switches' hash.
    pub hash: HashConfig,
    /// The machine inside every server.
    pub machine: MachineConfig,
    /// Switches by name, instead of a shape.
    #[serde(rename = "switch")]
    pub switches: Vec<SwitchConfig>,
    /// Servers by name.
    #[serde(rename = "server")]
    pub servers: Vec<ServerConfig>,
}

/// The default hash by which switches choose among equal-cost links. Seeds are drawn as in the simulator.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct HashConfig {
    /// The hash function.
    pub algorithm: HashAlgorithm,
    /// The seed from which each switch's hash seed is drawn.
    pub seed: u64,
    /// Additional bits of hash rotation for each tier above the first.
    pub rotate_by_tier: u32,
}

impl Default for HashConfig {
    fn default() -> Self {
        Self { algorithm: HashAlgorithm::Crc32, seed: 1, rotate_by_tier: 8 }
    }
}

/// A switch.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SwitchConfig {
    /// The switch's name.
    pub name: String,
    /// Switches of the next tier that this switch has a cable to, in the order of its equal-cost group; a name
    /// that occurs twice means two cables.
    #[serde(default)]
    pub up: Vec<String>,
    /// Rate of each uplink cable.
    #[serde(default = "default_rate")]
    pub rate: BitRate,
    /// The hash seed; the default is drawn from [`HashConfig::seed`].
    pub seed: Option<u32>,
    /// The hash function; the default is [`HashConfig::algorithm`].
    pub hash: Option<HashAlgorithm>,
    /// The hash rotation in bits; the default follows from [`HashConfig::rotate_by_tier`].
    pub rotate: Option<u32>,
    /// Weights of uplinks by upper switch, where they are not 1.
    #[serde(default)]
    pub weights: BTreeMap<String, u32>,
}

/// A server.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ServerConfig {
    /// The server's host name.
    pub name: String,
    /// The server's block, if the file has no switches.
    pub block: Option<String>,
    /// The switches of each NIC's ports.
    #[serde(default)]
    pub nics: Vec<Vec<String>>,
    /// Address of each NIC; the default is 10.0.0.0 plus its host number.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(with = "Vec<String>"))]
    pub addresses: Vec<Ipv4Addr>,
}

const fn default_rate() -> BitRate {
    BitRate::gbps(400).expect("above zero")
}

/// The first default address: a host's is 10.0.0.0 plus its number, as in the simulator.
const FIRST_ADDRESS: u32 = 0x0a00_0000;

impl ClusterConfig {
    /// Builds the cluster, given the machine that [`Self::machine`] describes.
    ///
    /// # Errors
    /// Returns a [`ClusterError`] for a part that is invalid, with the names involved.
    pub fn build(&self, machine: Machine) -> Result<Cluster, ClusterError> {
        match (&self.network, self.switches.is_empty()) {
            (Some(_), false) => Err(ClusterError::Mismatch {
                what: "network".into(),
                problem: "is there beside [[switch]] entries; give one of them".into(),
            }),
            (Some(shape), true) => self.by_shape(shape, machine),
            (None, false) => self.by_name(machine),
            (None, true) => self.by_block(machine),
        }
    }

    fn by_shape(&self, shape: &TopologyConfig, machine: Machine) -> Result<Cluster, ClusterError> {
        let rails = match shape {
            TopologyConfig::Rail(rail) => rail.rails,
            TopologyConfig::Hpn(hpn) => hpn.rails,
            _ => u32::try_from(machine.nics().len()).unwrap_or(u32::MAX),
        };
        let topology = shape.build()?;
        let count = topology.hosts() / rails;
        if count * rails != topology.hosts() {
            let problem =
                format!("has {} hosts, which are no servers of {rails} NICs", topology.hosts());
            return Err(ClusterError::Mismatch { what: "network".into(), problem });
        }
        if !self.servers.is_empty() && self.servers.len() != count as usize {
            let problem = format!("are {}, the network has room for {count}", self.servers.len());
            return Err(ClusterError::Mismatch { what: "[[server]] entries".into(), problem });
        }
        let named = |server: u32| {
            let given = self.servers.get(server as usize);
            given.map_or_else(|| format!("node{server}"), |given| given.name.clone())
        };
        let servers: Vec<Server> = (0..count)
            .map(|server| Server {
                name: named(server),
                nics: (server * rails..(server + 1) * rails).map(NodeId).collect(),
            })
            .collect();
        let addresses = self.addresses(topology.hosts(), &servers)?;
        let hashes = self.hashes(&topology);
        let (weights, names) = (BTreeMap::new(), Vec::new());
        let network = Network { topology, hashes, addresses, weights, names };
        Cluster::on_network(machine, servers, network)
    }

    fn by_block(&self, machine: Machine) -> Result<Cluster, ClusterError> {
        let block = |server: &ServerConfig| {
            let what = || format!("server {:?}", server.name);
            match &server.block {
                Some(block) => Ok((server.name.clone(), block.clone())),
                None => Err(ClusterError::Mismatch {
                    what: what(),
                    problem: "has no block, and no [network] or [[switch]] says where it is".into(),
                }),
            }
        };
        let servers = self.servers.iter().map(block).collect::<Result<_, _>>()?;
        Cluster::in_blocks(machine, servers)
    }

    fn by_name(&self, machine: Machine) -> Result<Cluster, ClusterError> {
        let hosts = self.servers.iter().map(|server| server.nics.len()).sum::<usize>();
        let mut builder = TopologyBuilder::new(u32::try_from(hosts).unwrap_or(u32::MAX))?;
        let switches =
            builder.add_switches(u32::try_from(self.switches.len()).unwrap_or(u32::MAX))?;
        let mut ids: BTreeMap<&str, NodeId> = BTreeMap::new();
        for (switch, id) in self.switches.iter().zip(switches) {
            if ids.insert(&switch.name, id).is_some() {
                let name = switch.name.clone();
                return Err(ClusterError::Twice { what: "switch", name });
            }
        }
        let known: Vec<&str> = ids.keys().copied().collect();
        let find = |name: &String| {
            let id = ids.get(name.as_str()).copied();
            id.ok_or_else(|| ClusterError::Unknown(unknown_name("switch", name, &known)))
        };
        let nic_rate = machine.devices()[machine.nics()[0].0].rate;
        let mut servers = Vec::new();
        let mut next = 0..;
        for server in &self.servers {
            let mut nics = Vec::new();
            for ports in &server.nics {
                let nic = NodeId(next.next().expect("the range has no end"));
                for port in ports {
                    let share =
                        nic_rate.and_then(|rate| BitRate::bps(rate.as_bps() / ports.len() as u64));
                    builder.connect(
                        nic,
                        find(port)?,
                        share.unwrap_or_else(default_rate),
                        CABLE_LATENCY,
                    )?;
                }
                nics.push(nic);
            }
            servers.push(Server { name: server.name.clone(), nics });
        }
        self.check_acyclic()?;
        let mut weights = BTreeMap::new();
        for switch in &self.switches {
            for above in &switch.up {
                let link = builder.connect(
                    find(&switch.name)?,
                    find(above)?,
                    switch.rate,
                    CABLE_LATENCY,
                )?;
                if let Some(&weight) = switch.weights.get(above) {
                    weights.insert(link, weight);
                }
            }
            if let Some(name) = switch.weights.keys().find(|name| !switch.up.contains(name)) {
                let up: Vec<&str> = switch.up.iter().map(String::as_str).collect();
                let message = unknown_name("switch above", name, &up);
                return Err(ClusterError::Unknown(format!(
                    "weights of {:?}: {message}",
                    switch.name
                )));
            }
        }
        let topology = builder.build()?;
        let addresses = self.addresses(topology.hosts(), &servers)?;
        let mut hashes = self.hashes(&topology);
        for (hash, switch) in hashes.iter_mut().zip(&self.switches) {
            hash.algorithm = switch.hash.unwrap_or(hash.algorithm);
            hash.seed = switch.seed.unwrap_or(hash.seed);
            hash.rotate = switch.rotate.unwrap_or(hash.rotate);
        }
        let names = self.switches.iter().map(|switch| switch.name.clone()).collect();
        let network = Network { topology, hashes, addresses, weights, names };
        Cluster::on_network(machine, servers, network)
    }

    fn hashes(&self, topology: &Topology) -> Vec<SwitchHash> {
        let HashConfig { algorithm, seed, rotate_by_tier } = self.hash;
        switch_hashes(topology, algorithm, rotate_by_tier, Seed(seed))
    }

    fn addresses(&self, hosts: u32, servers: &[Server]) -> Result<Vec<u32>, ClusterError> {
        let mut addresses: Vec<u32> = (0..hosts).map(|host| FIRST_ADDRESS + host).collect();
        for (given, server) in self.servers.iter().zip(servers) {
            if given.addresses.is_empty() {
                continue;
            }
            if given.addresses.len() != server.nics.len() {
                let (got, want) = (given.addresses.len(), server.nics.len());
                let problem = format!("has {got} addresses for {want} NICs");
                let what = format!("server {:?}", server.name);
                return Err(ClusterError::Mismatch { what, problem });
            }
            for (nic, &address) in server.nics.iter().zip(&given.addresses) {
                addresses[nic.index()] = address.into();
            }
        }
        Ok(addresses)
    }

    /// Refuses `up` links that form a cycle.
    fn check_acyclic(&self) -> Result<(), ClusterError> {
        let places: BTreeMap<&str, usize> =
            self.switches.iter().enumerate().map(|(place, s)| (s.name.as_str(), place)).collect();
        // 0: not visited; 1: on the current path; 2: done.
        let mut state = vec![0u8; self.switches.len()];
        for start in 0..self.switches.len() {
            let mut path = vec![(start, 0)];
            while let Some((at, tried)) = path.last_mut() {
                let (switch, above) = (*at, self.switches[*at].up.get(*tried));
                *tried += 1;
                state[switch] = 1;
                let Some(above) = above else {
                    state[switch] = 2;
                    path.pop();
                    continue;
                };
                match places.get(above.as_str()).map(|&place| (place, state[place])) {
                    Some((place, 0)) => path.push((place, 0)),
                    Some((place, 1)) => {
                        let from = path.iter().position(|&(on, _)| on == place).unwrap_or(0);
                        let name = |&(on, _): &(usize, usize)| self.switches[on].name.clone();
                        let mut cycle: Vec<String> = path[from..].iter().map(name).collect();
                        cycle.push(self.switches[place].name.to_string());
                        return Err(ClusterError::Cycle { cycle });
                    }
                    // Unknown names are refused when links are added.
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

/// Latency of a cable, which plans ignore.
const CABLE_LATENCY: Duration = Duration::from_micros(1);
