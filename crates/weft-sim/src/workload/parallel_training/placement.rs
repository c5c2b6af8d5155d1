//! The placement of ranks on the GPUs of servers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_plan::Cluster;
use weft_plan::cluster::{Network, Server};
use weft_plan::machine::MachineConfig;
use weft_plan::ring::server_order;
use weft_topo::{NodeId, Topology};
use weft_units::{BitRate, Duration, Seed};

use super::super::{WorkloadError, at_least_one};

/// The order in which servers get their ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// The planner's order: servers of a block are consecutive, and blocks of a pod.
    #[default]
    Reranked,
    /// A random order, as on a cluster fragmented by many small jobs.
    Random,
    /// The order of the list.
    Listed,
}

/// A server's devices, and the links between its GPUs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ServerConfig {
    /// Number of consecutive hosts, each one NIC, of a server.
    pub hosts: u32,
    /// Number of GPUs that share each NIC.
    pub gpus_per_host: u32,
    /// The rate from a GPU to others of its server, one direction.
    pub rate: BitRate,
    /// The latency of these links. Between GPUs of different NICs it is at least the shortest latency of a cable, the
    /// smallest lookahead between hosts.
    pub latency: Duration,
}

impl Default for ServerConfig {
    /// Returns STELLAR's servers (section 7.2): 8 GPUs and 4 NICs. The rate is an H800's NVLink, 200 GB/s each way;
    /// the latency is Astral's (section 3.3).
    fn default() -> Self {
        Self {
            hosts: 4,
            gpus_per_host: 2,
            rate: BitRate::gbps(1_600).expect("above zero"),
            latency: Duration::from_nanos(200),
        }
    }
}

impl ServerConfig {
    /// Returns the number of GPUs of a server.
    pub(in super::super) const fn gpus(&self) -> u32 {
        self.hosts * self.gpus_per_host
    }

    pub(in super::super) fn check(&self) -> Result<(), WorkloadError> {
        for (key, value) in [("hosts", self.hosts), ("gpus_per_host", self.gpus_per_host)] {
            at_least_one(key, value)?;
            if value > 64 {
                let (got, expected) = (value.to_string(), "1 to 64");
                return Err(WorkloadError::OutOfRange { key, got, expected });
            }
        }
        Ok(())
    }
}

impl Placement {
    /// Returns the hosts in the order of ranks: GPU `r % gpus_per_host` of host `r / gpus_per_host` is rank `r`. Hosts
    /// that do not fill a server are left out.
    ///
    /// # Errors
    /// The planner cannot build a cluster of the servers.
    pub(super) fn order(
        self,
        hosts: &[NodeId],
        server: &ServerConfig,
        topology: &Topology,
        seed: Seed,
    ) -> Result<Vec<NodeId>, WorkloadError> {
        let mut servers: Vec<&[NodeId]> = hosts.chunks_exact(server.hosts as usize).collect();
        match self {
            Self::Listed => {}
            Self::Random => seed.child("placement", 0).rng().shuffle(&mut servers),
            Self::Reranked => servers = reranked(&servers, server, topology)?,
        }
        Ok(servers.concat())
    }
}

/// Returns the servers in the planner's order.
fn reranked<'a>(
    servers: &[&'a [NodeId]],
    server: &ServerConfig,
    topology: &Topology,
) -> Result<Vec<&'a [NodeId]>, WorkloadError> {
    if servers.is_empty() {
        return Ok(Vec::new());
    }
    let machine =
        MachineConfig { gpus: server.gpus(), nics: server.hosts, ..MachineConfig::default() };
    let refused = |error: &dyn std::fmt::Display| WorkloadError::OutOfRange {
        key: "placement",
        got: format!("reranked, and the planner says: {error}"),
        expected: "servers it can order",
    };
    let machine = machine.build().map_err(|error| refused(&error))?;
    let named = |(number, nics): (usize, &&[NodeId])| Server {
        name: number.to_string(),
        nics: nics.to_vec(),
    };
    let named = servers.iter().enumerate().map(named).collect();
    // Only proximity matters here: hashes and addresses are for planning ports.
    let network = Network {
        topology: topology.clone(),
        hashes: Vec::new(),
        addresses: (0..topology.hosts()).collect(),
        weights: std::collections::BTreeMap::new(),
        names: Vec::new(),
    };
    let cluster = Cluster::on_network(machine, named, network).map_err(|error| refused(&error))?;
    let job: Vec<_> = cluster.server_ids().collect();
    Ok(server_order(&cluster, &job).into_iter().map(|id| servers[id.index()]).collect())
}

#[cfg(test)]
mod tests {
    use weft_topo::build::Hpn;

    use super::*;

    fn order(placement: Placement, hosts: &[u32]) -> Vec<u32> {
        let topology =
            Hpn { segments: 2, servers_per_segment: 2, rails: 2, ..Hpn::default() }.build();
        let server = ServerConfig { hosts: 2, ..ServerConfig::default() };
        let hosts: Vec<_> = hosts.iter().copied().map(NodeId).collect();
        let order = placement.order(&hosts, &server, &topology.unwrap(), Seed(2)).unwrap();
        order.into_iter().map(|host| host.0).collect()
    }

    #[test]
    fn the_planner_puts_the_servers_of_a_segment_together() {
        let mixed = [4, 5, 0, 1, 6, 7, 2, 3];
        assert_eq!(order(Placement::Reranked, &mixed), [4, 5, 6, 7, 0, 1, 2, 3]);
        assert_eq!(order(Placement::Listed, &mixed), mixed);
    }

    #[test]
    fn a_random_order_keeps_servers_whole() {
        let random = order(Placement::Random, &[0, 1, 2, 3, 4, 5, 6, 7]);
        assert_ne!(random, [0, 1, 2, 3, 4, 5, 6, 7]);
        assert!(random.chunks(2).all(|server| server[0] % 2 == 0 && server[1] == server[0] + 1));
        assert_eq!(order(Placement::Random, &[0, 1, 2]), [0, 1], "half a server has no ranks");
    }
}
