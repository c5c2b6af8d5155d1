use alloc::collections::BTreeSet;

use weft_units::{BitRate, Duration, Rng, Seed};

use super::*;
use crate::build::{FatTree, Hpn, LeafSpine, Rail, TopologyKind};
use crate::graph::TopologyBuilder;

const HOST: fn(u32) -> NodeId = NodeId;

fn routes(topology: &Topology, failures: &Failures) -> Routes {
    Routes::compute(topology, failures).unwrap()
}

/// Returns small networks of every shape.
fn small() -> Vec<Topology> {
    let uplink_rates = [BitRate::gbps(40).unwrap()].to_vec();
    Vec::from([
        LeafSpine { leaves: 3, spines: 3, hosts_per_leaf: 2, ..Default::default() }.build(),
        LeafSpine { leaves: 2, spines: 2, parallel_links: 2, uplink_rates, ..Default::default() }
            .build(),
        FatTree { hosts: 16, ..Default::default() }.build(),
        FatTree { hosts: 18, tiers: 2, ..Default::default() }.build(),
        Hpn { servers_per_segment: 2, rails: 2, aggregations: 3, ..Default::default() }.build(),
        Rail { servers_per_block: 2, rails: 4, spines: 3, ..Default::default() }.build(),
    ])
    .into_iter()
    .map(Result::unwrap)
    .collect()
}

/// Returns a network of randomly connected switches with detours, rings and lateral links; hosts have one or two ports.
fn random_network(rng: &mut Rng) -> Topology {
    let (hosts, rate) = (6, BitRate::gbps(100).unwrap());
    let mut network = TopologyBuilder::new(hosts).unwrap();
    let switches: Vec<_> = network.add_switches(8).unwrap().collect();
    let mut connect = |a, b| network.connect(a, b, rate, Duration::ZERO).unwrap();
    for host in 0..hosts {
        for _ in 0..=rng.index(2) {
            connect(HOST(host), switches[rng.index(switches.len())]);
        }
    }
    for pair in switches.windows(2) {
        connect(pair[0], pair[1]);
    }
    for _ in 0..rng.index(12) {
        let [a, b] = [rng.index(switches.len()), rng.index(switches.len())];
        if a != b {
            connect(switches[a], switches[b]);
        }
    }
    network.build().unwrap()
}

/// Returns the number of cables from `source` to every node over live links, not through a host: a breadth-first
/// search that shares no code with [`Routes`].
fn distances(topology: &Topology, failures: &Failures, source: NodeId) -> Vec<Option<usize>> {
    let mut distance = vec![None; topology.nodes() as usize];
    distance[source.index()] = Some(0);
    let mut reached = vec![source];
    for steps in 1.. {
        let mut next = Vec::new();
        for &node in reached.iter().filter(|&&node| node == source || !topology.is_host(node)) {
            for &port in topology.ports(node) {
                let to = topology.link(port).to;
                if failures.is_up(topology, port) && distance[to.index()].is_none() {
                    distance[to.index()] = Some(steps);
                    next.push(to);
                }
            }
        }
        if next.is_empty() {
            break;
        }
        reached = next;
    }
    distance
}

/// Checks every path between two hosts and returns the number of paths.
fn check_paths(
    topology: &Topology,
    failures: &Failures,
    routes: &Routes,
    [source, destination]: [NodeId; 2],
) -> u64 {
    let mut shortest = usize::MAX;
    let mut distinct = BTreeSet::new();
    for path in routes.paths(topology, source, destination) {
        let mut at = source;
        let mut visited = BTreeSet::from([at]);
        for &link in &path {
            assert!(failures.is_up(topology, link), "{link:?} is down");
            assert_eq!(topology.link(link).from, at, "the path is connected");
            at = topology.link(link).to;
            assert!(visited.insert(at), "the path has no loop");
        }
        assert_eq!(at, destination);
        shortest = shortest.min(path.len());
        assert!(distinct.insert(path), "no path comes twice");
    }
    if let Some(cables) = distances(topology, failures, source)[destination.index()] {
        assert_eq!(shortest, cables, "{source:?} to {destination:?}");
    } else {
        assert!(distinct.is_empty());
        assert!(!routes.reaches(source, destination));
    }
    distinct.len() as u64
}

fn random_failures(topology: &Topology, rng: &mut Rng) -> Failures {
    let mut failures = Failures::none();
    for _ in 0..rng.index(8) {
        failures.fail_link(LinkId(u32::try_from(rng.below(topology.links().into())).unwrap()));
    }
    if rng.chance(1, 3) {
        let switch = topology.switch_ids().nth(rng.index(topology.switches() as usize)).unwrap();
        failures.fail_node(switch);
    }
    failures
}

#[test]
fn after_any_failures_routes_are_all_the_shortest_live_paths() {
    let mut rng = Seed(11).child("failures", 0).rng();
    let random: Vec<_> = (0..40).map(|_| random_network(&mut rng)).collect();
    for topology in small().into_iter().chain(random) {
        for _ in 0..20 {
            let failures = random_failures(&topology, &mut rng);
            let routes = routes(&topology, &failures);
            for source in topology.host_ids().step_by(3) {
                for destination in topology.host_ids().filter(|&host| host != source) {
                    let pair = [source, destination];
                    let count = check_paths(&topology, &failures, &routes, pair);
                    assert_eq!(routes.path_count(&topology, source, destination), count);
                }
            }
        }
    }
}

#[test]
fn a_dead_uplink_is_avoided_at_both_ends_of_the_fabric() {
    let topology = LeafSpine::default().build().unwrap();
    let [near, far] = [NodeId(128), NodeId(135)];
    let dead = topology.ports(near)[16];
    let spine = topology.link(dead).to;
    let mut failures = Failures::none();
    failures.fail_link(dead);
    let routes = routes(&topology, &failures);
    let next = |leaf, destination| {
        let links = routes.next_links(leaf, destination).iter();
        links.map(|&link| topology.link(link).to).collect::<Vec<_>>()
    };
    assert!(!next(near, HOST(127)).contains(&spine));
    assert!(!next(far, HOST(0)).contains(&spine));
    assert_eq!(next(near, HOST(127)).len(), 7);
    assert!(next(far, HOST(16)).contains(&spine), "other leaves are still behind that spine");
}

#[test]
fn a_dual_port_host_with_a_dead_port_is_reached_by_the_other_plane_only() {
    let hpn = Hpn::default();
    let topology = hpn.build().unwrap();
    let [source, destination] = [hpn.host(0, 0, 0), hpn.host(1, 0, 0)];
    let mut failures = Failures::none();
    failures.fail_link(topology.ports(destination)[0]);
    let routes = routes(&topology, &failures);
    let first: Vec<_> = routes.first_links(source, destination).collect();
    assert_eq!(first, [topology.ports(source)[1]]);
    let tor_of_dead_plane = topology.link(topology.ports(source)[0]).to;
    assert!(routes.next_links(tor_of_dead_plane, destination).is_empty());
    assert!(!routes.next_links(tor_of_dead_plane, hpn.host(1, 1, 0)).is_empty());
}

#[test]
fn spines_of_a_rail_fabric_route_to_the_leaf_that_still_reaches_the_host() {
    let rail = Rail::default();
    let topology = rail.build().unwrap();
    let destination = rail.host(1, 5, 3);
    let [dead, alive] = [topology.ports(destination)[0], topology.ports(destination)[1]];
    let mut failures = Failures::none();
    failures.fail_link(dead);
    let routes = routes(&topology, &failures);
    let spine = topology.switch_ids().last().unwrap();
    let leaves = |host| {
        let links = routes.next_links(spine, host).iter();
        links.map(|&link| topology.link(link).to).collect::<Vec<_>>()
    };
    assert_eq!(leaves(destination), [topology.link(alive).to]);
    assert_eq!(leaves(rail.host(1, 6, 3)).len(), 2);
}

#[test]
fn a_host_that_is_cut_off_has_no_route_and_no_port() {
    let topology = LeafSpine::default().build().unwrap();
    let mut failures = Failures::none();
    failures.fail_link(topology.ports(HOST(7))[0]);
    let routes = routes(&topology, &failures);
    assert!(topology.switch_ids().all(|switch| routes.next_links(switch, HOST(7)).is_empty()));
    assert!(!routes.reaches(HOST(0), HOST(7)) && !routes.reaches(HOST(7), HOST(0)));
    assert_eq!(routes.path_count(&topology, HOST(0), HOST(7)), 0);
    assert_eq!(routes.paths(&topology, HOST(0), HOST(7)).next(), None);
}

#[test]
fn next_links_are_in_port_order_and_end_at_the_host() {
    for &kind in TopologyKind::ALL {
        let topology = kind.config().build().unwrap();
        let routes = routes(&topology, &Failures::none());
        for switch in topology.switch_ids() {
            for destination in topology.host_ids().step_by(37) {
                let links = routes.next_links(switch, destination);
                let ports = topology.ports(switch);
                let in_order: Vec<_> =
                    ports.iter().copied().filter(|port| links.contains(port)).collect();
                assert_eq!(links, in_order, "{kind:?}");
                let arrives = links.iter().any(|&link| topology.link(link).to == destination);
                let attached = ports.iter().any(|&port| topology.link(port).to == destination);
                assert_eq!(arrives, attached, "{kind:?}");
            }
        }
    }
}

#[test]
fn two_cables_from_one_host_to_one_leaf_are_both_used() {
    let mut network = TopologyBuilder::new(2).unwrap();
    let leaf = network.add_switches(1).unwrap().next().unwrap();
    let rate = BitRate::gbps(1).unwrap();
    for host in [0, 1, 0] {
        network.connect(HOST(host), leaf, rate, Duration::ZERO).unwrap();
    }
    let topology = network.build().unwrap();
    let routes = routes(&topology, &Failures::none());
    assert_eq!(routes.next_links(leaf, HOST(0)), [LinkId(1), LinkId(5)]);
    assert_eq!(routes.first_links(HOST(0), HOST(1)).count(), 2);
    assert_eq!(routes.path_count(&topology, HOST(0), HOST(1)), 2);
}

#[test]
fn a_table_past_the_limit_is_refused_before_it_is_allocated() {
    let (leaves, spines, hosts_per_leaf) = (11_600, 1, 1);
    let star = LeafSpine { leaves, spines, hosts_per_leaf, ..Default::default() };
    let error = Routes::compute(&star.build().unwrap(), &Failures::none()).unwrap_err();
    assert_eq!(error, RouteError::TableTooLarge { switches: 11_601, groups: 11_600 });
}

#[test]
fn the_pods_of_a_fat_tree_and_a_whole_leaf_spine_network_are_areas() {
    let tree = FatTree { hosts: 128, ..Default::default() }.build().unwrap();
    let mut failures = Failures::none();
    assert_eq!(routes(&tree, &failures).areas, 8);
    // A leaf that has lost an uplink is an area of its own.
    let uplink = tree.ports(tree.switch_ids().next().unwrap()).iter();
    let uplink = uplink.copied().find(|&link| !tree.is_host(tree.link(link).to)).unwrap();
    failures.fail_link(uplink);
    assert_eq!(routes(&tree, &failures).areas, 9);
    let plane = LeafSpine { leaves: 6, spines: 3, ..Default::default() }.build().unwrap();
    assert_eq!(routes(&plane, &Failures::none()).areas, 1);
}
