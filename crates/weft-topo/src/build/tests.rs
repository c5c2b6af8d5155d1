use alloc::string::ToString;
use alloc::vec::Vec;

use super::*;
use crate::graph::{LinkId, NodeId, Topology};
use crate::{Failures, Routes};

fn routes(topology: &Topology) -> Routes {
    Routes::compute(topology, &Failures::none()).unwrap()
}

fn switches_by_tier(topology: &Topology) -> [usize; 3] {
    [1, 2, 3].map(|tier| topology.switch_ids().filter(|&node| topology.tier(node) == tier).count())
}

/// Returns the sum of the rates of all links from tier `from` to tier `to`, in Gb/s.
fn capacity_gbps(topology: &Topology, from: u8, to: u8) -> u64 {
    let rate = |link: LinkId| {
        let link = topology.link(link);
        let tiers = (topology.tier(link.from), topology.tier(link.to));
        if tiers == (from, to) { link.rate.as_bps() / 1_000_000_000 } else { 0 }
    };
    topology.link_ids().map(rate).sum()
}

#[test]
fn hoppers_fabric_has_192_cables_and_eight_paths_between_racks() {
    let topology = LeafSpine::default().build().unwrap();
    assert_eq!((topology.hosts(), topology.links()), (128, 2 * 192));
    assert_eq!(switches_by_tier(&topology), [8, 8, 0]);
    let routes = routes(&topology);
    assert_eq!(routes.path_count(&topology, NodeId(0), NodeId(127)), 8);
    assert_eq!(routes.path_count(&topology, NodeId(0), NodeId(15)), 1);
}

#[test]
fn hoppers_testbed_has_four_fast_spines_and_two_slow_ones() {
    let uplink_rates = [10, 10, 10, 10, 1, 1].map(gbps).to_vec();
    let testbed =
        LeafSpine { leaves: 2, spines: 6, hosts_per_leaf: 4, uplink_rates, ..Default::default() };
    let topology = testbed.build().unwrap();
    assert_eq!(capacity_gbps(&topology, 1, 2), 2 * 42);
    let slowest_spine = NodeId(8 + 2 + 5);
    let down = topology.link(topology.ports(slowest_spine)[0]);
    assert_eq!(down.rate, gbps(1));
}

#[test]
fn parallel_links_are_equal_cost_links_of_their_own() {
    let topology = LeafSpine { parallel_links: 3, ..Default::default() }.build().unwrap();
    assert_eq!(routes(&topology).path_count(&topology, NodeId(0), NodeId(127)), 8 * 3 * 3);
}

#[test]
fn fat_trees_are_sized_as_htsim_sizes_them() {
    for (hosts, tiers, by_tier, paths) in
        [(128, 3, [32, 32, 16], 16), (1024, 3, [128, 128, 64], 64), (8192, 2, [128, 64, 0], 64)]
    {
        let topology = FatTree { hosts, tiers, ..Default::default() }.build().unwrap();
        assert_eq!(switches_by_tier(&topology), by_tier);
        assert_eq!(topology.hosts(), hosts);
        let last = NodeId(hosts - 1);
        assert_eq!(routes(&topology).path_count(&topology, NodeId(0), last), paths);
        let upwards = (1..u8::try_from(tiers).unwrap()).map(|t| capacity_gbps(&topology, t, t + 1));
        assert!(upwards.into_iter().all(|gbps| gbps == u64::from(hosts) * 100));
    }
}

#[test]
fn the_first_cables_of_the_highest_tier_are_slow() {
    for (tiers, switch, cables) in [(3, 128 + 32, 128), (2, 128, 128)] {
        let tree = |slow_cables| FatTree { tiers, slow_cables, ..Default::default() }.build();
        let topology = tree(2).unwrap();
        let slow = gbps(25);
        let found: Vec<_> = topology
            .link_ids()
            .map(|link| topology.link(link))
            .filter(|link| link.rate == slow && link.from < link.to)
            .map(|link| link.from)
            .collect();
        assert_eq!(found, [NodeId(switch); 2], "{tiers} tiers");
        let top = u8::try_from(tiers).unwrap();
        assert_eq!(capacity_gbps(&topology, top - 1, top), 128 * 100 - 2 * 75, "{tiers} tiers");
        let all = tree(cables).unwrap();
        assert_eq!(capacity_gbps(&all, top - 1, top), 128 * 25, "{tiers} tiers");
        assert_eq!(
            tree(cables + 1).unwrap_err().to_string(),
            "slow_cables is 129, expected at most the cables of the highest tier"
        );
    }
}

#[test]
fn a_fat_tree_has_fewer_paths_the_nearer_two_hosts_are() {
    let topology = FatTree::default().build().unwrap();
    let routes = routes(&topology);
    let to = |host| routes.path_count(&topology, NodeId(0), NodeId(host));
    assert_eq!([to(1), to(4), to(15), to(16)], [1, 4, 4, 16]);
}

#[test]
fn oversubscription_divides_the_uplinks() {
    let tree = FatTree { hosts: 256, oversubscription: 2, ..Default::default() };
    let topology = tree.build().unwrap();
    assert_eq!(switches_by_tier(&topology), [32, 32, 16]);
    assert_eq!(capacity_gbps(&topology, 0, 1), 2 * capacity_gbps(&topology, 1, 2));
}

#[test]
fn a_fat_tree_need_not_be_full() {
    for hosts in [1, 2, 3, 5, 17, 100, 129] {
        for tiers in [2, 3] {
            let topology = FatTree { hosts, tiers, ..Default::default() }.build().unwrap();
            let routes = routes(&topology);
            assert!(topology.host_ids().all(|host| routes.reaches(NodeId(0), host)));
        }
    }
}

#[test]
fn a_full_pod_of_hpn_has_the_published_counts() {
    let pod = Hpn { segments: 15, rails: 8, ..Default::default() };
    let topology = pod.build().unwrap();
    assert_eq!(topology.hosts(), 15_360);
    assert_eq!(switches_by_tier(&topology), [240, 120, 0]);
    assert_eq!(topology.planes(), 2);
    let tor = topology.switch_ids().next().unwrap();
    assert_eq!(topology.ports(tor).len(), 128 + 60);
    let aggregation = topology.switch_ids().last().unwrap();
    assert_eq!(topology.ports(aggregation).len(), 120);
}

#[test]
fn hpn_has_sixty_paths_a_plane_between_segments_and_the_planes_never_meet() {
    let hpn = Hpn::default();
    let topology = hpn.build().unwrap();
    let routes = routes(&topology);
    let (source, destination) = (hpn.host(0, 3, 2), hpn.host(1, 77, 2));
    assert_eq!(routes.path_count(&topology, source, destination), 2 * 60);
    for path in routes.paths(&topology, source, destination) {
        let port = topology.ports(source).iter().position(|&port| port == path[0]).unwrap();
        let switches = path[..path.len() - 1].iter().map(|&link| topology.link(link).to);
        assert!(switches.into_iter().all(|at| usize::from(topology.plane(at)) == port));
        assert_eq!(path.len(), 4);
    }
}

#[test]
fn hpn_keeps_a_rail_inside_its_segment_on_one_tor_a_plane() {
    let hpn = Hpn::default();
    let topology = hpn.build().unwrap();
    let routes = routes(&topology);
    let count = |to| routes.path_count(&topology, hpn.host(0, 0, 1), to);
    assert_eq!(count(hpn.host(0, 127, 1)), 2);
    assert_eq!(count(hpn.host(0, 127, 2)), 2 * 60);
}

#[test]
fn an_astral_block_fills_128_port_leaves() {
    let rail = Rail::default();
    let topology = rail.build().unwrap();
    assert_eq!(switches_by_tier(&topology), [16, 64, 0]);
    let leaves = topology.switch_ids().filter(|&node| topology.tier(node) == 1);
    assert!(leaves.into_iter().all(|leaf| topology.ports(leaf).len() == 128));
    assert_eq!(topology.planes(), 1);
}

#[test]
fn an_astral_rail_needs_no_spine_inside_its_block_and_two_leaves_across() {
    let rail = Rail::default();
    let topology = rail.build().unwrap();
    let routes = routes(&topology);
    let count = |to| routes.path_count(&topology, rail.host(0, 0, 0), to);
    assert_eq!(count(rail.host(0, 31, 0)), 2);
    // Two ports, 64 spines, two leaves of the destination.
    assert_eq!(count(rail.host(1, 0, 0)), 2 * 64 * 2);
    assert_eq!(count(rail.host(0, 0, 4)), 2 * 64 * 2);
}

#[test]
fn in_every_shape_every_host_reaches_every_host() {
    for &kind in TopologyKind::ALL {
        assert_eq!(kind.name().parse(), Ok(kind));
        assert_eq!(kind.config().kind(), kind);
        let topology = kind.config().build().unwrap();
        let routes = routes(&topology);
        for source in topology.host_ids().step_by(13) {
            for destination in topology.host_ids() {
                assert!(routes.reaches(source, destination), "{kind:?} {source:?} {destination:?}");
            }
        }
    }
}

#[test]
fn invalid_parameters_are_refused_by_name() {
    let error = |built: Result<Topology, BuildError>| built.unwrap_err().to_string();
    assert_eq!(
        error(LeafSpine { spines: 0, ..Default::default() }.build()),
        "spines must be at least 1"
    );
    let uplink_rates = [10, 1, 1].map(gbps).to_vec();
    assert_eq!(
        error(LeafSpine { uplink_rates, ..Default::default() }.build()),
        "uplink_rates has 3 rates, expected 1 or 8"
    );
    assert_eq!(
        error(FatTree { tiers: 4, ..Default::default() }.build()),
        "tiers is 4, expected 2 or 3"
    );
    assert_eq!(
        error(Rail { rails: 7, ..Default::default() }.build()),
        "rails is 7, expected an even number"
    );
    assert_eq!(
        "fattree".parse::<TopologyKind>().unwrap_err().to_string(),
        "no topology \"fattree\", did you mean \"fat-tree\"? (known: leaf-spine, fat-tree, hpn, rail)"
    );
}

/// Fuzzed scenarios found that such cables made sums of rates and delays overflow.
#[test]
fn cables_above_the_maximum_rate_or_delay_are_refused() {
    let fast = LeafSpine { host_rate: gbps(100_001), ..LeafSpine::default() }.build();
    let text = fast.unwrap_err().to_string();
    assert_eq!(text, "a cable carries 100001Gbps, more than the 100000Gbps it may");
    let long = FatTree { propagation: Duration::from_millis(1_001), ..FatTree::default() }.build();
    assert_eq!(long.unwrap_err().to_string(), "a cable takes 1001ms, more than the 1s it may");
}

#[test]
fn huge_counts_are_refused_before_they_are_allocated() {
    let huge = u32::MAX;
    let refused = [
        LeafSpine { leaves: huge, hosts_per_leaf: huge, ..Default::default() }.build(),
        LeafSpine { spines: huge, ..Default::default() }.build(),
        LeafSpine { parallel_links: huge, ..Default::default() }.build(),
        FatTree { hosts: huge, ..Default::default() }.build(),
        Hpn { segments: huge, ..Default::default() }.build(),
        Hpn { planes: huge, ..Default::default() }.build(),
        Rail { blocks: huge, ..Default::default() }.build(),
        Rail { spines: huge, ..Default::default() }.build(),
    ];
    for built in refused {
        assert!(matches!(built, Err(BuildError::Topology(_))), "{built:?}");
    }
}

#[cfg(feature = "serde")]
#[test]
fn a_file_names_the_shape_and_an_unknown_key_is_refused() {
    let config: TopologyConfig =
        toml::from_str("kind = \"leaf-spine\"\nspines = 6\nuplink_rates = [\"10Gbps\"]").unwrap();
    let uplink_rates = [gbps(10)].to_vec();
    let want = LeafSpine { spines: 6, uplink_rates, ..Default::default() };
    assert_eq!(config, TopologyConfig::LeafSpine(want));
    let error = toml::from_str::<TopologyConfig>("kind = \"hpn\"\nplane = 2").unwrap_err();
    assert!(error.to_string().contains("unknown field `plane`"), "{error}");
    for &kind in TopologyKind::ALL {
        let text = toml::to_string(&kind.config()).unwrap();
        assert_eq!(toml::from_str(&text), Ok(kind.config()));
    }
}
