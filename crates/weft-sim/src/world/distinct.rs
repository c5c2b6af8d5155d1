//! Source ports chosen by the way that packets take from them: each way once before any a second time.

use std::collections::BTreeSet;

use weft_topo::NodeId;
use weft_transport::ConnectionId;
use weft_transport::path::PathId;

use super::Network;
use crate::nic;
use crate::scenario::SourcePorts;

/// Ports tried for a path before one is taken whose way another path has already. Of eight even ways, the last
/// is missed by as many with a probability of 2 in 10,000.
const MAX_TRIES: usize = 64;

impl Network {
    /// Gives a new connection its ports, where the configuration wants each path to take another way.
    pub(super) fn give_ports(&mut self, from: NodeId, to: NodeId, connection: ConnectionId) {
        if self.config.source_ports == SourcePorts::Distinct {
            let ports = self.distinct_ports(from, to, connection);
            self.hosts[from.index()].entropy.plan(connection, ports);
        }
    }

    /// Draws ports as the connection would, and passes over those whose way is taken.
    fn distinct_ports(&self, from: NodeId, to: NodeId, connection: ConnectionId) -> Box<[u16]> {
        let host = &self.hosts[from.index()];
        let first_of =
            |path| host.ports[self.config.port_of(Some(connection), path) % host.ports.len()].link;
        let ways: usize = host.ports.iter().map(|port| self.fabric.ways(port.link, to)).sum();
        let draw = |number| host.entropy.source_port(Some(connection), PathId(number));
        let mut drawn = (0..nic::PORTS).map(draw);
        let (mut ports, mut taken) = (Vec::new(), BTreeSet::new());
        for path in 0..usize::from(self.config.transport.paths) {
            if taken.len() == ways {
                taken.clear();
            }
            let way_of =
                |port| self.fabric.way(first_of(path), &nic::five_tuple(from, to, port), to);
            let mut tried = None;
            for port in drawn.by_ref().take(MAX_TRIES) {
                tried = Some(port);
                if taken.insert(way_of(port)) {
                    break;
                }
            }
            // Out of ports: the paths that are left have those that they draw.
            let Some(port) = tried else { break };
            ports.push(port);
        }
        ports.into()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use weft_topo::NodeId;
    use weft_transport::ConnectionId;
    use weft_transport::path::PathId;
    use weft_units::Seed;

    use crate::nic;
    use crate::scenario::Scenario;

    /// How many ways the paths of host 0's connections to host 16, below another leaf, take, connection by
    /// connection.
    fn ways(source_ports: &str, paths: u16) -> Vec<usize> {
        let text = format!(
            r#"
            topology = {{ kind = "leaf-spine", leaves = 8, spines = 8, hosts_per_leaf = 16 }}
            transport = {{ profile = "hopper", paths = {paths} }}
            host = {{ source_ports = "{source_ports}" }}
            [[workload]]
            kind = "rounds"
            pairs = [[0, 16], [0, 16], [0, 16], [0, 16]]
            sizes = ["1KB"]
            rounds = 1
            "#
        );
        let scenario = Scenario::parse(&text, Path::new("")).unwrap();
        let mut world = crate::run::build(&scenario, Seed(1)).unwrap();
        world.start();
        let (from, to) = (NodeId(0), NodeId(16));
        let host = &world.network.hosts[0];
        let way = |connection, path| {
            let port = host.entropy.source_port(Some(ConnectionId(connection)), PathId(path));
            world.network.fabric.way(host.ports[0].link, &nic::five_tuple(from, to, port), to)
        };
        let count = |id| (0..paths).map(|path| way(id, path)).collect::<BTreeSet<_>>().len();
        (0..4).map(count).collect()
    }

    #[test]
    fn eight_distinct_ports_reach_eight_spines_and_eight_random_ones_five() {
        assert_eq!(ways("distinct", 8), [8; 4]);
        // 8 × (1 − (7/8)^8) is 5.25.
        let random = ways("random", 8);
        assert!((16..=26).contains(&random.iter().sum::<usize>()), "{random:?}");
    }
}
