use alloc::collections::BTreeSet;
use alloc::string::ToString;

use weft_topo::build::{FatTree, Hpn, LeafSpine, Rail};
use weft_topo::hash::FiveTuple;
use weft_topo::{Failures, Routes};
use weft_units::Rng;

use super::*;
use crate::cluster::Network;
use crate::testing::network;

/// Returns `rounds` random permutations with `qps` flows each, round-robin over the ports of a host.
fn permutations(topology: &Topology, rounds: usize, qps: usize, rng: &mut Rng) -> Vec<Flow> {
    let mut flows = Vec::new();
    for _ in 0..rounds {
        let mut to: Vec<NodeId> = topology.host_ids().collect();
        rng.shuffle(&mut to);
        for (from, &destination) in topology.host_ids().zip(&to) {
            let ports = topology.ports(from);
            let all = (0..qps).map(|qp| Flow { first: ports[qp % ports.len()], destination });
            flows.extend(all.filter(|_| from != destination));
        }
    }
    flows
}

struct Outcome {
    plan: Plan,
    planned: Loads,
    random: Loads,
}

fn outcome(network: &Network, failures: &Failures, flows: &[Flow]) -> Outcome {
    let fabric = Fabric::new(network, failures, Entropy::default()).unwrap();
    let plan = plan(&fabric, flows, SearchLimits::default(), Seed(2)).unwrap();
    let planned = loads(&fabric, flows, &plan.ports);
    let random = loads(&fabric, flows, &random_ports(&fabric, flows.len(), Seed(3)));
    assert!(planned.max() >= plan.bound.flows, "{:?} is no bound", plan.bound);
    assert!(random.max() >= plan.bound.flows, "{:?} is no bound", plan.bound);
    Outcome { plan, planned, random }
}

#[test]
fn affine_hashes_reach_the_bound_in_two_tiers() {
    let shapes = [
        Rail { blocks: 4, servers_per_block: 8, spines: 16, ..Rail::default() }.build().unwrap(),
        LeafSpine { hosts_per_leaf: 8, ..LeafSpine::default() }.build().unwrap(),
        LeafSpine { parallel_links: 2, ..LeafSpine::default() }.build().unwrap(),
        FatTree { hosts: 128, tiers: 2, ..FatTree::default() }.build().unwrap(),
    ];
    let mut rng = Seed(1).rng();
    for topology in shapes {
        let flows = permutations(&topology, 2, 4, &mut rng);
        for &algorithm in HashAlgorithm::ALL.iter().filter(|algorithm| algorithm.is_affine()) {
            let network = network(topology.clone(), algorithm);
            let Outcome { plan, planned, random } = outcome(&network, &Failures::none(), &flows);
            assert_eq!(planned.max(), plan.bound.flows, "{algorithm:?} {:?}", plan.how);
            assert!(random.max() > planned.max(), "{algorithm:?}");
            assert_eq!(plan.how.solved + plan.how.without_choice, flows.len(), "{algorithm:?}");
        }
    }
}

#[test]
fn a_fat_tree_of_three_tiers_reaches_the_bound_where_tiers_take_other_bits() {
    let topology = FatTree { hosts: 128, tiers: 3, ..FatTree::default() }.build().unwrap();
    let flows = permutations(&topology, 2, 4, &mut Seed(5).rng());
    let network = network(topology, HashAlgorithm::Crc32);
    let Outcome { plan, planned, .. } = outcome(&network, &Failures::none(), &flows);
    assert_eq!((planned.max(), plan.bound.flows), (8, 8));
    assert_eq!(plan.how.solved + plan.how.without_choice, flows.len());
}

#[test]
fn few_flows_share_no_link_at_all() {
    let topology = Rail { blocks: 2, ..Rail::default() }.build().unwrap();
    // Every server's NICs send to those of one server in the other block; each NIC has two queue pairs, one by
    // each port.
    let host = |block, server, rail| Rail::default().host(block, server, rail);
    let mut flows = Vec::new();
    for (server, rail) in (0..32).flat_map(|server| (0..8).map(move |rail| (server, rail))) {
        for &first in topology.ports(host(0, server, rail)) {
            flows.push(Flow { first, destination: host(1, (server + 5) % 32, rail) });
        }
    }
    let network = network(topology, HashAlgorithm::Crc16Ccitt);
    let Outcome { plan, planned, random } = outcome(&network, &Failures::none(), &flows);
    assert_eq!((plan.bound.flows, planned.max(), planned.alone), (1, 1, flows.len()));
    assert!(random.max() >= 4 && random.alone < flows.len() / 2, "{}", random.max());
}

#[test]
fn polarised_tiers_are_planned_as_well_as_they_can_be() {
    let topology = FatTree { hosts: 128, tiers: 3, ..FatTree::default() }.build().unwrap();
    let flows = permutations(&topology, 1, 4, &mut Seed(5).rng());
    let hashes = switch_hashes(&topology, HashAlgorithm::Crc32, 0, Seed(1));
    let network = Network { hashes, ..network(topology, HashAlgorithm::Crc32) };
    let Outcome { plan, planned, random } = outcome(&network, &Failures::none(), &flows);
    assert!(
        plan.how.fitted > 0,
        "equal bits at both tiers cannot be solved for all: {:?}",
        plan.how
    );
    assert!(planned.max() < random.max());
}

#[test]
fn hashes_that_cannot_be_solved_are_searched_to_the_bound_or_one_above() {
    for algorithm in [HashAlgorithm::LinuxFields, HashAlgorithm::Linux] {
        let topology = LeafSpine::default().build().unwrap();
        let flows = permutations(&topology, 2, 4, &mut Seed(8).rng());
        let network = network(topology, algorithm);
        let Outcome { plan, planned, random } = outcome(&network, &Failures::none(), &flows);
        assert!(planned.max() <= plan.bound.flows + 1, "{} of {:?}", planned.max(), plan.bound);
        assert!(random.max() > planned.max() + 2);
    }
}

#[test]
fn groups_of_sixty_and_groups_with_failed_links_are_searched() {
    let hpn = Hpn { servers_per_segment: 16, ..Hpn::default() }.build().unwrap();
    let flows = permutations(&hpn, 2, 4, &mut Seed(9).rng());
    let network_of = network(hpn, HashAlgorithm::Crc32);
    let Outcome { plan, planned, .. } = outcome(&network_of, &Failures::none(), &flows);
    assert_eq!(planned.max(), plan.bound.flows, "{:?}", plan.how);

    let topology = LeafSpine::default().build().unwrap();
    let flows = permutations(&topology, 2, 4, &mut Seed(9).rng());
    let network = network(topology, HashAlgorithm::Crc32);
    let mut failures = Failures::none();
    let leaf = NodeId(128);
    failures.fail_link(network.topology.ports(leaf)[20]);
    let Outcome { plan, planned, .. } = outcome(&network, &failures, &flows);
    assert!(plan.how.found > 0 && plan.how.solved > 0, "{:?}", plan.how);
    assert!(planned.max() <= plan.bound.flows + 1, "{} of {:?}", planned.max(), plan.bound);
    let fabric = Fabric::new(&network, &failures, Entropy::default()).unwrap();
    assert!(
        planned.of_link.iter().enumerate().all(|(link, &load)| {
            load == 0 || fabric.is_up(LinkId(u32::try_from(link).unwrap()))
        })
    );
}

/// Returns the path computed with each switch's hash directly, without [`Fabric`].
fn direct_path(network: &Network, failures: &Failures, flow: Flow, port: u16) -> Vec<LinkId> {
    let topology = &network.topology;
    let routes = Routes::compute(topology, failures).unwrap();
    let tuple = FiveTuple {
        src: network.addresses[topology.link(flow.first).from.index()],
        dst: network.addresses[flow.destination.index()],
        src_port: port,
        dst_port: 4791,
        protocol: 17,
    };
    let mut path = alloc::vec![flow.first];
    let mut at = topology.link(flow.first).to;
    while at != flow.destination {
        let links = routes.next_links(at, flow.destination);
        let weights: Vec<u32> =
            links.iter().map(|link| network.weights.get(link).copied().unwrap_or(1)).collect();
        let hash = network.hashes[at.index() - topology.hosts() as usize];
        let link = links[hash.select_weighted(&tuple, &weights).unwrap()];
        path.push(link);
        at = topology.link(link).to;
    }
    path
}

#[test]
fn paths_are_those_of_the_switches_own_hashes_with_weights_and_failures() {
    for seed in 0..24u64 {
        let mut rng = Seed(seed).child("paths", 0).rng();
        let topology = match seed % 3 {
            0 => Rail { servers_per_block: 2, rails: 4, spines: 6, ..Rail::default() }.build(),
            1 => FatTree { hosts: 54, tiers: 3, ..FatTree::default() }.build(),
            _ => LeafSpine { spines: 5, parallel_links: 2, ..LeafSpine::default() }.build(),
        }
        .unwrap();
        let algorithm = HashAlgorithm::ALL[rng.index(HashAlgorithm::ALL.len())];
        let mut network = network(topology, algorithm);
        for link in network.topology.link_ids().filter(|_| rng.chance(1, 8)).collect::<Vec<_>>() {
            network.weights.insert(link, 1 + u32::try_from(rng.below(4)).unwrap());
        }
        let mut failures = Failures::none();
        let switch = network.topology.switch_ids().last().unwrap();
        failures.fail_link(network.topology.ports(switch)[0]);
        let flows = permutations(&network.topology, 1, 2, &mut rng);
        let fabric = Fabric::new(&network, &failures, Entropy::default()).unwrap();
        for &flow in &flows {
            let port = fabric.entropy().port(rng.next_u32());
            let path = fabric.path(flow, port);
            assert_eq!(path, direct_path(&network, &failures, flow, port), "seed {seed}");
        }
    }
}

/// Returns the lowest possible load of the busiest link, by exhaustive search over the paths that ports reach.
fn best_of_all(fabric: &Fabric<'_>, flows: &[Flow]) -> u32 {
    let paths_of = |&flow: &Flow| {
        let inner = |port| {
            let path = fabric.path(flow, port);
            path[1..path.len() - 1].to_vec()
        };
        fabric.entropy().ports().map(inner).collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>()
    };
    let choices: Vec<Vec<Vec<LinkId>>> = flows.iter().map(paths_of).collect();
    let mut loads = alloc::vec![0u32; fabric.topology().links() as usize];
    fn search(choices: &[Vec<Vec<LinkId>>], loads: &mut [u32], worst: u32, best: &mut u32) {
        if worst >= *best {
            return;
        }
        let Some((first, rest)) = choices.split_first() else {
            *best = worst;
            return;
        };
        for path in first {
            path.iter().for_each(|link| loads[link.index()] += 1);
            let busiest = path.iter().map(|link| loads[link.index()]).max().unwrap_or(0);
            search(rest, loads, worst.max(busiest), best);
            path.iter().for_each(|link| loads[link.index()] -= 1);
        }
    }
    let mut best = u32::MAX;
    search(&choices, &mut loads, 0, &mut best);
    best
}

#[test]
fn in_small_fabrics_plans_are_optimal() {
    let entropy = Entropy { bits: 6, ..Entropy::default() };
    for seed in 0..40u64 {
        let mut rng = Seed(seed).child("small", 0).rng();
        let spines = 2 + u32::try_from(rng.below(3)).unwrap();
        let small = LeafSpine { leaves: 3, spines, hosts_per_leaf: 3, ..LeafSpine::default() };
        let algorithm = [HashAlgorithm::Crc32, HashAlgorithm::LinuxFields][rng.index(2)];
        let network = network(small.build().unwrap(), algorithm);
        let mut flows = permutations(&network.topology, 1, 1, &mut rng);
        flows.truncate(8);
        let fabric = Fabric::new(&network, &Failures::none(), entropy).unwrap();
        let plan = plan(&fabric, &flows, SearchLimits::default(), Seed(seed)).unwrap();
        let best = best_of_all(&fabric, &flows);
        assert!(plan.bound.flows <= best, "seed {seed}");
        assert_eq!(loads(&fabric, &flows, &plan.ports).max(), best, "seed {seed}");
    }
}

#[test]
fn queue_pairs_of_a_pair_of_hosts_have_different_ports_and_plans_repeat() {
    for algorithm in [HashAlgorithm::Crc32, HashAlgorithm::LinuxFields] {
        let network = network(LeafSpine::default().build().unwrap(), algorithm);
        let fabric = Fabric::new(&network, &Failures::none(), Entropy::default()).unwrap();
        let first = network.topology.ports(NodeId(0))[0];
        // Twice the number of paths, and the same number within the leaf.
        let flows: Vec<Flow> = [127, 1]
            .into_iter()
            .flat_map(|to| [Flow { first, destination: NodeId(to) }; 16])
            .collect();
        let ports = plan(&fabric, &flows, SearchLimits::default(), Seed(1)).unwrap().ports;
        assert_eq!(ports[..16].iter().collect::<BTreeSet<_>>().len(), 16);
        assert_eq!(ports[16..].iter().collect::<BTreeSet<_>>().len(), 16);
        assert!(ports.iter().all(|&port| port >= 0xc000));
        assert_eq!(loads(&fabric, &flows, &ports).max(), 2);
        assert_eq!(plan(&fabric, &flows, SearchLimits::default(), Seed(1)).unwrap().ports, ports);
    }
}

#[test]
fn flows_that_cannot_be_sent_are_named() {
    let network = network(LeafSpine::default().build().unwrap(), HashAlgorithm::Crc32);
    let topology = &network.topology;
    let first = topology.ports(NodeId(0))[0];
    let planned = |failures: &Failures, flow| {
        let fabric = Fabric::new(&network, failures, Entropy::default()).unwrap();
        plan(&fabric, &[flow], SearchLimits::default(), Seed(1))
            .map(|_| ())
            .unwrap_err()
            .to_string()
    };
    let good = Flow { first, destination: NodeId(127) };
    let none = Failures::none();
    assert_eq!(
        planned(&none, Flow { destination: NodeId(500), ..good }),
        "flow 0 names host 500, which the network does not have"
    );
    assert_eq!(
        planned(&none, Flow { first: LinkId(9999), ..good }),
        "flow 0 names host link 9999, which the network does not have"
    );
    let mut dark = Failures::none();
    dark.fail_link(topology.ports(NodeId(127))[0]);
    assert_eq!(
        planned(&dark, good),
        "flow 0: no route leads from host 0 by its link 0 to host 127"
    );
    // Leaves and spines in a chain, each linked to the next only.
    let chain = |count| {
        let mut chain = weft_topo::TopologyBuilder::new(2).unwrap();
        let switches: Vec<NodeId> = chain.add_switches(count).unwrap().collect();
        let rate = weft_units::BitRate::gbps(1).unwrap();
        let way = [&[NodeId(0)], switches.as_slice(), &[NodeId(1)]].concat();
        for pair in way.windows(2) {
            chain.connect(pair[0], pair[1], rate, weft_units::Duration::ZERO).unwrap();
        }
        let long = self::network(chain.build().unwrap(), HashAlgorithm::Crc32);
        let fabric = Fabric::new(&long, &none, Entropy::default()).unwrap();
        let flow = Flow { first: long.topology.ports(NodeId(0))[0], destination: NodeId(1) };
        let planned = plan(&fabric, &[flow], SearchLimits::default(), Seed(1));
        planned.map(|plan| fabric.path(flow, plan.ports[0]).len())
    };
    assert_eq!(chain(16), Ok(17));
    assert_eq!(
        chain(17).unwrap_err().to_string(),
        "flow 0: the way from host 0 to host 1 has 17 links after the first; a plan follows 16"
    );
    let entropy = Entropy { bits: 16, ..Entropy::default() };
    assert_eq!(
        Fabric::new(&network, &none, entropy).map(|_| ()).unwrap_err().to_string(),
        "16 free bits from port 49152 on are no range: 1 to 15 bits that are zero in it"
    );
}
