//! The balance of load among the uplinks of the leaves (STELLAR, section 7.2; figure 12), and the load of the links of
//! each tier.

use std::collections::BTreeMap;

use serde::Serialize;
use weft_topo::{LinkId, Topology};

use super::Distribution;
use super::queues::kind_of_port;
use crate::fabric::Fabric;
use crate::time::{SimSpan, SimTime};

/// Load of the leaves' ports, counting all bytes on the wire.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PortReport {
    /// Load of each uplink of a leaf that sent anything up, as a share of its rate.
    pub uplink_load: Distribution,
    /// The difference between the most and the least loaded uplink of each such leaf, over the port's rate.
    pub imbalance: Distribution,
    /// The load of the most loaded uplink of each such leaf over the mean of its uplinks.
    pub max_over_mean: Distribution,
    /// Load of each link down to a host that carried anything, as a share of its rate.
    pub downlink_load: Distribution,
    /// Load of all links, by tier and direction: `host-up`, `leaf-up`, `leaf-down`, `spine-down`, ….
    pub tiers: BTreeMap<String, TierLoad>,
    /// The slower uplinks, if the rates differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slow_uplinks: Option<SlowUplinks>,
}

/// Load of the links of one tier and direction, including idle ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct TierLoad {
    /// Number of links.
    pub links: usize,
    /// The mean load, as a share of their rate.
    pub mean: f64,
    /// The load of the most loaded link.
    pub max: f64,
}

/// Uplinks of leaves that are slower than the fastest ones, together: the links a good balancer avoids (Hopper,
/// section 4.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct SlowUplinks {
    /// Number of links.
    pub links: usize,
    /// The mean load, as a share of their rate.
    pub load: f64,
    /// The mean load of the fastest uplinks.
    pub fast_load: f64,
    /// The share of these links in the bytes that all uplinks carried.
    pub share: f64,
}

/// A measurement of the ports from one moment on.
#[derive(Debug)]
pub struct PortWatch {
    since: SimTime,
    /// The bytes each link had carried before, by number.
    before: Vec<u64>,
}

impl PortWatch {
    /// Starts the measurement.
    pub fn new(fabric: &Fabric, now: SimTime) -> Self {
        let before = fabric.topology.link_ids().map(|link| fabric.link(link).bytes).collect();
        Self { since: now, before }
    }

    /// Returns the load of the ports since the start.
    pub fn report(&self, fabric: &Fabric, now: SimTime) -> PortReport {
        let carried = |link: LinkId| fabric.link(link).bytes - self.before[link.index()];
        PortReport::new(&fabric.topology, carried, now.since(self.since))
    }
}

impl PortReport {
    /// Returns the load of ports that `carried` these bytes in `elapsed`.
    pub fn new(topology: &Topology, carried: impl Fn(LinkId) -> u64, elapsed: SimSpan) -> Self {
        let load = |link: LinkId| share(topology, link, carried(link), elapsed);
        let (mut loads, mut imbalances, mut peaks) = (Vec::new(), Vec::new(), Vec::new());
        for uplinks in uplinks_of_leaves(topology) {
            let mut leaf: Vec<f64> = uplinks.into_iter().map(load).collect();
            let Distribution { min, mean, max, .. } = Distribution::of(&mut leaf);
            if max > 0.0 {
                imbalances.push(max - min);
                peaks.push(max / mean);
                loads.extend(leaf);
            }
        }
        let at_host = |link: &LinkId| topology.is_host(topology.link(*link).to);
        let downlinks = topology.link_ids().filter(at_host).map(load).filter(|&load| load > 0.0);
        let tiers = tiers(topology);
        let tier = |links: Vec<LinkId>| tier(&mut links.into_iter().map(load).collect::<Vec<_>>());
        Self {
            uplink_load: Distribution::of(&mut loads),
            imbalance: Distribution::of(&mut imbalances),
            max_over_mean: Distribution::of(&mut peaks),
            downlink_load: Distribution::of(&mut downlinks.collect::<Vec<_>>()),
            slow_uplinks: slow_uplinks(topology, &carried, elapsed),
            tiers: tiers.into_iter().map(|(kind, links)| (kind, tier(links))).collect(),
        }
    }
}

/// Returns all links by tier and direction.
fn tiers(topology: &Topology) -> BTreeMap<String, Vec<LinkId>> {
    let mut tiers: BTreeMap<String, Vec<LinkId>> = BTreeMap::new();
    for link in topology.link_ids() {
        tiers.entry(kind_of_port(topology, link)).or_default().push(link);
    }
    tiers
}

/// Returns the uplinks of each leaf.
fn uplinks_of_leaves(topology: &Topology) -> impl Iterator<Item = Vec<LinkId>> {
    let leaves = topology.switch_ids().filter(|&switch| topology.tier(switch) == 1);
    leaves.map(|leaf| {
        let up = |link: &LinkId| topology.tier(topology.link(*link).to) > topology.tier(leaf);
        topology.ports(leaf).iter().copied().filter(up).collect()
    })
}

/// Returns the slower uplinks, or `None` if all have the same rate.
#[expect(clippy::cast_precision_loss, reason = "bytes of a run")]
fn slow_uplinks(
    topology: &Topology,
    carried: &impl Fn(LinkId) -> u64,
    elapsed: SimSpan,
) -> Option<SlowUplinks> {
    let uplinks: Vec<LinkId> = uplinks_of_leaves(topology).flatten().collect();
    let rate = |link: LinkId| topology.link(link).rate;
    let fastest = uplinks.iter().map(|&link| rate(link)).max()?;
    let (fast, slow): (Vec<LinkId>, Vec<LinkId>) =
        uplinks.into_iter().partition(|&link| rate(link) == fastest);
    let bytes = |links: &[LinkId]| links.iter().map(|&link| carried(link)).sum::<u64>() as f64;
    let load = |links: &[LinkId]| {
        let loads = links.iter().map(|&link| share(topology, link, carried(link), elapsed));
        Distribution::of(&mut loads.collect::<Vec<_>>()).mean
    };
    let all = bytes(&fast) + bytes(&slow);
    (!slow.is_empty()).then(|| SlowUplinks {
        links: slow.len(),
        load: load(&slow),
        fast_load: load(&fast),
        share: if all > 0.0 { bytes(&slow) / all } else { 0.0 },
    })
}

fn tier(loads: &mut [f64]) -> TierLoad {
    let Distribution { count, mean, max, .. } = Distribution::of(loads);
    TierLoad { links: count, mean, max }
}

/// Returns the load of a link, as a share of its rate; zero if no time has elapsed.
#[expect(clippy::cast_precision_loss, reason = "bytes and rates of a run")]
fn share(topology: &Topology, link: LinkId, bytes: u64, elapsed: SimSpan) -> f64 {
    let capacity = topology.link(link).rate.as_bps() as f64 * elapsed.as_secs_f64();
    if capacity > 0.0 { bytes as f64 * 8.0 / capacity } else { 0.0 }
}
