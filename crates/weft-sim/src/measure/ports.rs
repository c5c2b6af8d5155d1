//! How evenly the uplinks of the leaves are loaded (STELLAR, section 7.2; figure 12), and how full
//! the links of each tier are.

use std::collections::BTreeMap;

use serde::Serialize;
use weft_topo::{LinkId, NodeId};

use super::Distribution;
use super::queues::kind_of_port;
use crate::fabric::Fabric;
use crate::time::{SimSpan, SimTime};

/// Load of the leaves' ports, everything on the wire counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PortReport {
    /// Load of each uplink of a leaf that sent anything up, as a share of its rate.
    pub uplink_load: Distribution,
    /// For each such leaf: (most loaded - least loaded uplink) over the port's rate.
    pub imbalance: Distribution,
    /// Load of each link down to a host that carried anything, as a share of its rate.
    pub downlink_load: Distribution,
    /// Load of all links, by tier and direction: `host-up`, `leaf-up`, `leaf-down`, `spine-down`, …
    pub tiers: BTreeMap<String, TierLoad>,
}

/// How full the links of one tier and direction are, idle ones included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct TierLoad {
    /// How many links.
    pub links: usize,
    /// Mean share of their rate.
    pub mean: f64,
    /// That of the fullest.
    pub max: f64,
}

/// Watches the leaves' ports from a moment on.
#[derive(Debug)]
pub struct PortWatch {
    since: SimTime,
    /// The uplinks of each leaf, with the bytes each had sent before.
    leaves: Vec<Vec<(LinkId, u64)>>,
    /// The links to hosts, likewise.
    downlinks: Vec<(LinkId, u64)>,
    /// All links by kind, likewise.
    tiers: BTreeMap<String, Vec<(LinkId, u64)>>,
}

impl PortWatch {
    /// Begins now.
    pub fn new(fabric: &Fabric, now: SimTime) -> Self {
        let topology = &fabric.topology;
        let up = |leaf: NodeId, link: &&LinkId| {
            topology.tier(topology.link(**link).to) > topology.tier(leaf)
        };
        let leaves = topology.switch_ids().filter(|&switch| topology.tier(switch) == 1);
        let so_far = |&link: &LinkId| (link, fabric.link(link).bytes);
        let uplinks = |leaf| {
            let ports = topology.ports(leaf).iter().filter(move |link| up(leaf, link));
            ports.map(so_far).collect()
        };
        let at_host = |link: &LinkId| topology.is_host(topology.link(*link).to);
        let downlinks = topology.link_ids().filter(at_host).map(|link| so_far(&link)).collect();
        let mut tiers: BTreeMap<String, Vec<(LinkId, u64)>> = BTreeMap::new();
        for link in topology.link_ids() {
            tiers.entry(kind_of_port(topology, link)).or_default().push(so_far(&link));
        }
        Self { since: now, leaves: leaves.map(uplinks).collect(), downlinks, tiers }
    }

    /// What was sent since.
    pub fn report(&self, fabric: &Fabric, now: SimTime) -> PortReport {
        let elapsed = now.since(self.since);
        let load = |&(link, before): &(LinkId, u64)| {
            share(fabric, link, fabric.link(link).bytes - before, elapsed)
        };
        let (mut loads, mut imbalances) = (Vec::new(), Vec::new());
        for uplinks in &self.leaves {
            let leaf: Vec<f64> = uplinks.iter().map(load).collect();
            let most = leaf.iter().copied().fold(0.0, f64::max);
            if most > 0.0 {
                imbalances.push(most - leaf.iter().copied().fold(f64::INFINITY, f64::min));
                loads.extend(leaf);
            }
        }
        let downlinks = self.downlinks.iter().map(load).filter(|&load| load > 0.0);
        PortReport {
            uplink_load: Distribution::of(&mut loads),
            imbalance: Distribution::of(&mut imbalances),
            downlink_load: Distribution::of(&mut downlinks.collect::<Vec<_>>()),
            tiers: self
                .tiers
                .iter()
                .map(|(kind, links)| (kind.clone(), tier(links, load)))
                .collect(),
        }
    }
}

fn tier(links: &[(LinkId, u64)], load: impl Fn(&(LinkId, u64)) -> f64) -> TierLoad {
    let Distribution { count, mean, max, .. } =
        Distribution::of(&mut links.iter().map(load).collect::<Vec<_>>());
    TierLoad { links: count, mean, max }
}

#[expect(clippy::cast_precision_loss, reason = "bytes and rates of a simulation")]
fn share(fabric: &Fabric, link: LinkId, bytes: u64, elapsed: SimSpan) -> f64 {
    let capacity = fabric.class(link).rate.as_bps() as f64 * elapsed.as_secs_f64();
    if capacity > 0.0 { bytes as f64 * 8.0 / capacity } else { 0.0 }
}
