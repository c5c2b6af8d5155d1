//! Source ports chosen by the path of their packets: each path is used once before any is used twice.

use std::collections::BTreeSet;

use weft_topo::NodeId;
use weft_transport::ConnectionId;
use weft_transport::path::PathId;

use super::Network;
use crate::nic;
use crate::scenario::SourcePorts;

/// Number of ports tried for a path before a used one is accepted. Of eight equally likely paths, as many draws miss
/// the last one with a probability of 4 in 100 million.
const MAX_TRIES: usize = 128;

impl Network {
    /// Assigns ports to a new connection if the configuration requires distinct paths.
    pub(super) fn assign_distinct_ports(
        &mut self,
        from: NodeId,
        to: NodeId,
        connection: ConnectionId,
    ) {
        if self.config.source_ports == SourcePorts::Distinct {
            let ports = self.distinct_ports(from, to, connection);
            self.hosts[from.index()].entropy.plan(connection, ports);
        }
    }

    /// Draws random ports and skips those whose path is used. (The ports of successive paths have a fixed stride, and
    /// an affine hash may lead many of those to one path.)
    fn distinct_ports(&self, from: NodeId, to: NodeId, connection: ConnectionId) -> Box<[u16]> {
        let host = &self.hosts[from.index()];
        let first_of =
            |path| host.ports[self.config.port_of(Some(connection), path) % host.ports.len()].link;
        let path_count: usize =
            host.ports.iter().map(|port| self.fabric.path_count(port.link, to)).sum();
        let seed = self.fabric.seed().child("distinct ports", u64::from(from.0));
        let mut rng = seed.child("connection", u64::from(connection.0)).rng();
        let mut draw = || {
            let number = u16::try_from(rng.below(nic::PORTS.into())).expect("below 2^14");
            host.entropy.source_port(Some(connection), PathId(number))
        };
        let (mut ports, mut used) = (Vec::new(), BTreeSet::new());
        for path in 0..usize::from(self.config.transport.paths) {
            if used.len() == path_count {
                used.clear();
            }
            let path_of =
                |port| self.fabric.path_of(first_of(path), &nic::five_tuple(from, to, port), to);
            let mut port = draw();
            for _ in 1..MAX_TRIES {
                if used.insert(path_of(port)) {
                    break;
                }
                port = draw();
            }
            ports.push(port);
        }
        ports.into()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use weft_units::Seed;

    use crate::scenario::Scenario;

    /// Returns the imbalance of a leaf's eight uplinks when two hosts send to each other by eight paths in turn.
    fn imbalance(source_ports: &str) -> f64 {
        let text = format!(
            r#"
            topology = {{ kind = "leaf-spine", leaves = 2, spines = 8, hosts_per_leaf = 1 }}
            transport = {{ policy = "round-robin", paths = 8 }}
            host = {{ source_ports = "{source_ports}" }}
            [[workload]]
            kind = "permutation"
            size = "8MB"
            "#
        );
        let report = crate::run(&Scenario::parse(&text, Path::new("")).unwrap(), Seed(1)).unwrap();
        assert!(report.finished);
        report.ports.imbalance.max
    }

    #[test]
    fn eight_distinct_ports_load_eight_spines_alike_and_random_ones_do_not() {
        assert!(imbalance("distinct") < 0.01, "{}", imbalance("distinct"));
        assert!(imbalance("random") > 0.2, "{}", imbalance("random"));
    }
}
