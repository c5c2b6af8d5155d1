//! Planned source ports: `weft plan ports` for the connections of a run.

use std::collections::BTreeMap;

use weft_plan::cluster;
use weft_plan::ports::{self, Entropy, Flow, PlanError, SearchLimits, switch_hashes};
use weft_topo::{Failures, NodeId, Topology};
use weft_transport::ConnectionId;

use super::Network;
use crate::nic;
use crate::traffic::Side;

impl Network {
    /// Assigns a port to every path of every connection, as the planner chooses them for this network's switches. Only
    /// the openers' packets are planned: the other direction carries ACKs.
    ///
    /// # Errors
    /// A connection has no route, or the network is too large to plan.
    pub(super) fn plan_source_ports(&mut self) -> Result<(), PlanError> {
        let (fabric, forwarding) = (&self.fabric, &self.config.fabric.forwarding);
        let topology = Topology::clone(&fabric.topology);
        let entropy = Entropy { destination_port: nic::RECEIVE_PORT, ..Entropy::default() };
        let network = cluster::Network {
            hashes: switch_hashes(
                &topology,
                forwarding.hash,
                forwarding.rotate_by_tier,
                fabric.seed(),
            ),
            addresses: topology.host_ids().map(|host| nic::five_tuple(host, host, 0).src).collect(),
            weights: BTreeMap::new(),
            names: Vec::new(),
            topology,
        };
        let connections = self.connections();
        let paths = usize::from(self.config.transport.paths);
        let flows: Vec<Flow> = connections
            .iter()
            .flat_map(|&(from, to, connection)| {
                (0..paths).map(move |path| (from, to, connection, path))
            })
            .map(|(from, destination, connection, path)| {
                let ports = &self.hosts[from.index()].ports;
                let port = self.config.port_of(Some(connection), path) % ports.len();
                Flow { first: ports[port].link, destination }
            })
            .collect();
        let fabric = ports::Fabric::new(&network, &Failures::none(), entropy)?;
        let seed = self.fabric.seed().child("planned ports", 0);
        let plan = ports::plan(&fabric, &flows, SearchLimits::default(), seed)?;
        for ((from, _, connection), ports) in connections.into_iter().zip(plan.ports.chunks(paths))
        {
            self.hosts[from.index()].entropy.plan(connection, ports.into());
        }
        Ok(())
    }

    /// Returns every connection: its opener, its peer, and the opener's id of it.
    fn connections(&self) -> Vec<(NodeId, NodeId, ConnectionId)> {
        let channels = self.traffic.channels();
        let known = channels.filter_map(|(_, channel)| {
            let [from, to] = channel.hosts;
            Some((from, to, channel.connections[Side::Opener.index()]?))
        });
        known.collect()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use weft_units::Seed;

    use crate::scenario::Scenario;

    /// Sixteen hosts of 100 Gb/s below two leaves, eight spines, and a ring that crosses them at every
    /// hop: a flow for each uplink.
    fn run(source_ports: &str) -> crate::Report {
        let text = format!(
            r#"
            topology = {{ kind = "leaf-spine", leaves = 2, spines = 8, hosts_per_leaf = 8 }}
            transport = {{ policy = "single", paths = 1 }}
            host = {{ source_ports = "{source_ports}" }}
            [[workload]]
            kind = "ring-all-reduce"
            order = "alternating"
            size = "8MB"
            slices = 4
            "#
        );
        crate::run(&Scenario::parse(&text, Path::new("")).unwrap(), Seed(1)).unwrap()
    }

    #[test]
    fn with_planned_ports_each_flow_has_an_uplink_of_its_own() {
        let (planned, random) = (run("planned"), run("random"));
        assert!(planned.finished && random.finished);
        let load = planned.ports.uplink_load;
        assert!(load.min > 0.0 && load.max / load.min < 1.05, "{load:?}");
        // With random ports two flows of 16 share a link, so the run takes at least twice as long.
        assert!(random.simulated_us > 1.8 * planned.simulated_us, "{}", random.simulated_us);
        assert_eq!(planned.network.marked, 0);
    }

    #[test]
    fn scenarios_that_cannot_be_planned_are_refused() {
        for (rest, want) in [
            ("forwarding = { kind = \"drill\" }", "forwarding.kind = \"ecmp\""),
            ("messages = {}", "without handshake"),
        ] {
            let text = format!(
                "topology = {{ kind = \"leaf-spine\" }}\nhost = {{ source_ports = \"planned\" }}\n{rest}\n"
            );
            let error = Scenario::parse(&text, Path::new("")).unwrap_err().to_string();
            assert!(error.contains(want), "{error}");
        }
    }
}
