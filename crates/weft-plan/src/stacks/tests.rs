use alloc::vec::Vec;

use weft_topo::build::{LeafSpine, Rail};
use weft_topo::hash::HashAlgorithm;
use weft_topo::{Failures, NodeId, Topology};
use weft_units::Seed;

use super::*;
use crate::cluster::ServerId;
use crate::ports::{Entropy, Fabric, Flow, SearchLimits, loads, plan_shared, random_ports};
use crate::testing::network;

/// Returns the queue pairs and flows from each host to `peers` others, one rail a host.
fn queue_pairs(topology: &Topology, peers: u32, count: usize) -> (Vec<QueuePair>, Vec<Flow>) {
    let hosts = topology.hosts();
    let (mut pairs, mut flows) = (Vec::new(), Vec::new());
    for from in 0..hosts {
        for peer in 1..=peers {
            let to = (from + peer * hosts / (peers + 1)) % hosts;
            let ports = topology.ports(NodeId(from));
            for number in 0..count {
                let server = |host| (ServerId(host), 0);
                let nic_port = number % ports.len();
                pairs.push(QueuePair { from: server(from), to: server(to), number, nic_port });
                flows.push(Flow { first: ports[nic_port], destination: NodeId(to) });
            }
        }
    }
    (pairs, flows)
}

#[test]
fn every_stack_gets_ports_by_its_own_rule_that_load_links_less_than_random_ones() {
    for algorithm in [HashAlgorithm::Crc32, HashAlgorithm::LinuxFields] {
        let rail = Rail { blocks: 4, servers_per_block: 8, spines: 8, ..Rail::default() };
        for topology in [rail.build().unwrap(), LeafSpine::default().build().unwrap()] {
            let network = network(topology, algorithm);
            let fabric = Fabric::new(&network, &Failures::none(), Entropy::default()).unwrap();
            for &stack in Stack::ALL {
                let row = stack.row();
                let Some(settings) = row.settings() else { continue };
                let count = row.queue_pairs;
                let (pairs, flows) = queue_pairs(&network.topology, 3, count);
                let sources = settings.sources(&pairs, count);
                let span = (settings.span)(count);
                let limits = SearchLimits::default();
                let planned =
                    plan_shared(&fabric, &flows, &sources, span, limits, Seed(1)).unwrap();
                let per_server = (settings.count)(count);
                for (pair, port) in pairs.iter().zip(&planned.ports) {
                    let own = &planned.settings[pair.from.0.index() * per_server..][..per_server];
                    assert_eq!(*port, expected(stack, own, pair.number), "{stack}");
                }
                assert!(planned.settings.iter().all(|&port| port >= 0xc000));
                assert!(planned.settings.iter().all(|&port| port.checked_add(span - 1).is_some()));
                let busiest = loads(&fabric, &flows, &planned.ports).max();
                let random = random_ports(&fabric, flows.len(), Seed(3));
                let random = loads(&fabric, &flows, &random).max();
                assert!(planned.bound.flows <= busiest, "{:?} is no bound", planned.bound);
                assert!(busiest < random, "{stack}, {algorithm:?}: {busiest} for {random}");
            }
        }
    }
}

/// Returns the port that the program's own code takes.
fn expected(stack: Stack, settings: &[u16], queue_pair: usize) -> u16 {
    match stack {
        Stack::Mooncake => settings[queue_pair % settings.len()],
        Stack::Mori => settings[queue_pair % 4],
        Stack::Uccl => settings[0] + 1 + u16::try_from(queue_pair).unwrap(),
        Stack::Nccl | Stack::Weft => unreachable!("it has no settings"),
    }
}

#[test]
fn queue_pairs_of_a_peer_have_different_ports_and_plans_repeat() {
    let network = network(LeafSpine::default().build().unwrap(), HashAlgorithm::Crc32);
    let fabric = Fabric::new(&network, &Failures::none(), Entropy::default()).unwrap();
    let settings = Stack::Mooncake.row().settings().unwrap();
    let (pairs, flows) = queue_pairs(&network.topology, 2, 4);
    let sources = settings.sources(&pairs, 4);
    let plan = || plan_shared(&fabric, &flows, &sources, 1, SearchLimits::default(), Seed(7));
    let first = plan().unwrap();
    assert_eq!(first.ports, plan().unwrap().ports);
    for ports in first.settings.chunks(4) {
        let mut ports = ports.to_vec();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 4, "{ports:?}");
    }
}

#[test]
fn variables_are_those_that_each_program_reads() {
    let of = |stack: Stack, ports: &[u16], queue_pairs| {
        let variables = (stack.row().variables)(ports, queue_pairs);
        let text = variables.iter().map(|it| alloc::format!("{}={}", it.name, it.value));
        text.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(
        of(Stack::Mooncake, &[49_153, 65_535], 2),
        "MC_NUM_QP_PER_EP=2 MC_MLX5_QP_UDP_SPORTS=49153,65535"
    );
    assert_eq!(
        of(Stack::Mori, &[49_152, 2, 3, 4], 1),
        "MORI_NUM_QP_PER_PE=1 MORI_MLX5_ENABLE_UDP_SPORT=1 MORI_BNXT_ENABLE_UDP_SPORT=1 \
         MORI_GOR_PORT=49152,2,3,4"
    );
    assert_eq!(of(Stack::Uccl, &[50_000], 8), "UCCL_UDP_SPORT_BASE=50000");
    assert_eq!(
        of(Stack::Nccl, &[], 4),
        "NCCL_IB_QPS_PER_CONNECTION=4 NCCL_IBVERBS_LIB=libweft_nic_ports.so.1"
    );
}

#[test]
fn settings_that_take_more_ports_than_there_are_are_refused() {
    let network = network(LeafSpine::default().build().unwrap(), HashAlgorithm::Crc32);
    let fabric = Fabric::new(&network, &Failures::none(), Entropy::default()).unwrap();
    let settings = Stack::Uccl.row().settings().unwrap();
    for (count, fits) in [(16_381, true), (16_382, false), (70_000, false)] {
        let flow = Flow { first: network.topology.ports(NodeId(0))[0], destination: NodeId(127) };
        let pairs: Vec<QueuePair> = (0..count)
            .map(|number| {
                let [from, to] = [0, 127].map(|server| (ServerId(server), 0));
                QueuePair { from, to, number, nic_port: 0 }
            })
            .collect();
        let sources = settings.sources(&pairs, count);
        let (flows, span) = (alloc::vec![flow; count], (settings.span)(count));
        let limits = SearchLimits { total: 1, ..SearchLimits::default() };
        let planned = plan_shared(&fabric, &flows, &sources, span, limits, Seed(1));
        assert_eq!(planned.is_ok(), fits, "{count}: {planned:?}");
        if let Err(error) = planned {
            let expected = "consecutive ports of a setting are more than the 16384 of the range";
            assert!(error.to_string().contains(expected), "{error}");
        }
    }
}
