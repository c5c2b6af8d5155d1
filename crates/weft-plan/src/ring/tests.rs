use alloc::string::{String, ToString};
use std::collections::BTreeSet;

use weft_topo::build::{FatTree, Rail};
use weft_units::Seed;

use super::*;
use crate::machine::{DeviceKind, LinkKind, Machine, MachineBuilder, PathType, read_nccl};
use crate::testing::{astral_machine, on_shape};

fn blocks_of(names: &[(&str, &str)]) -> Cluster {
    let servers = names.iter().map(|&(name, block)| (name.to_string(), block.to_string()));
    Cluster::in_blocks(astral_machine(8), servers.collect()).unwrap()
}

fn all(cluster: &Cluster) -> Vec<ServerId> {
    cluster.server_ids().collect()
}

fn names(machine: &Machine, ring: &Ring) -> Vec<String> {
    ring.gpus.iter().map(|&gpu| machine.name(gpu).to_string()).collect()
}

#[test]
fn the_papers_four_servers_cross_blocks_half_as_often_and_rails_never() {
    // Section 3.2: Server1 (Block1), Server3 (Block2), Server2 (Block1), Server4 (Block2): 100 %.
    let cluster = blocks_of(&[("s1", "1"), ("s3", "2"), ("s2", "1"), ("s4", "2")]);
    let job = all(&cluster);
    let listed = shares(&cluster, &ring_hops(&job, &rings_as_listed(cluster.machine())));
    assert_eq!((listed.transfers, listed.cross_rail, listed.cross_block), (32, 32, 32));
    let order = server_order(&cluster, &job);
    let ordered: Vec<&str> =
        order.iter().map(|id| cluster.servers()[id.index()].name.as_str()).collect();
    assert_eq!(ordered, ["s1", "s2", "s3", "s4"]);
    let planned = shares(&cluster, &ring_hops(&order, &rings_on_rails(cluster.machine())));
    assert_eq!((planned.transfers, planned.cross_rail, planned.cross_block), (32, 0, 16));
}

#[test]
fn an_order_crosses_as_many_block_borders_as_there_are_blocks() {
    let shape = Rail { blocks: 5, servers_per_block: 7, ..Rail::default() };
    let cluster = on_shape(astral_machine(8), 8, &shape.build().unwrap());
    assert_eq!(cluster.blocks(), 5);
    for seed in 0..50 {
        let mut job = all(&cluster);
        Seed(seed).rng().shuffle(&mut job);
        job.truncate(20);
        let blocks: BTreeSet<u32> = job.iter().map(|&server| cluster.block(server)).collect();
        let order = server_order(&cluster, &job);
        let sorted = |servers: &[ServerId]| servers.iter().copied().collect::<BTreeSet<_>>();
        assert_eq!(sorted(&order), sorted(&job));
        let got = shares(&cluster, &ring_hops(&order, &rings_on_rails(cluster.machine())));
        let crossing = if blocks.len() == 1 { 0 } else { 8 * blocks.len() as u64 };
        assert_eq!((got.cross_block, got.cross_spine, got.cross_rail), (crossing, crossing, 0));
        assert_eq!(server_order(&cluster, &order), order, "what is in order stays");
    }
}

#[test]
fn blocks_of_a_pod_follow_each_other() {
    // A tree of 8 pods with 4 edge switches of 4 hosts each; a server has two NICs.
    let tree = FatTree { hosts: 128, tiers: 3, ..FatTree::default() };
    let cluster = on_shape(astral_machine(2), 2, &tree.build().unwrap());
    let mut job = all(&cluster);
    Seed(3).rng().shuffle(&mut job);
    let order = server_order(&cluster, &job);
    let pods: Vec<u32> = order.iter().map(|&server| cluster.place(server)[0]).collect();
    let mut distinct = pods.clone();
    distinct.dedup();
    assert_eq!((cluster.blocks(), distinct.len()), (32, 8));
}

#[test]
fn rings_enter_and_leave_a_server_beside_their_nic() {
    let machine = astral_machine(8);
    for (rail, ring) in rings_on_rails(&machine).iter().enumerate() {
        assert_eq!((ring.rail_in, ring.rail_out), (rail, rail));
        assert_eq!(ring.gpus[0], machine.gpus()[rail], "the GPU on the NIC's PCIe switch");
        assert_eq!(ring.gpus.iter().collect::<BTreeSet<_>>().len(), 8);
        assert_eq!(ring.closeness, PathType::Nvlink);
        assert_eq!(ring.head, NicPath::Direct(PathType::OneSwitch));
        assert_eq!(ring.tail, NicPath::Through(machine.gpus()[rail]));
        assert_eq!(ring.rate.as_bps(), 400_000_000_000, "the NIC is the slowest part");
    }
}

#[test]
fn where_two_gpus_share_a_switch_with_the_nic_they_are_head_and_tail() {
    let machine = read_nccl(include_str!("../../tests/golden/nccl/cloud.xml")).unwrap();
    let rings = rings_on_rails(&machine);
    let mut ends = [names(&machine, &rings[0])[0].clone(), names(&machine, &rings[0])[3].clone()];
    ends.sort();
    assert_eq!(ends, ["0000:10:1c.0", "0000:10:1d.0"]);
    assert_eq!(rings[1].tail, NicPath::Direct(PathType::OneSwitch));
}

#[test]
fn a_ring_avoids_the_thin_link_of_a_mesh() {
    let machine = read_nccl(include_str!("../../tests/golden/nccl/mesh.xml")).unwrap();
    // GPUs 0 and 2 have half as many links; the middle of the path is GPU 1.
    assert_eq!(names(&machine, &rings_on_rails(&machine)[0])[1], "0002:00:00.0");
}

/// Returns the best rate over all orders of the GPUs, by exhaustive search.
fn best_rate(machine: &Machine) -> u64 {
    let (gpus, nic) = (machine.gpus(), machine.nics()[0]);
    let reach = crate::machine::BestPaths::new(machine);
    let rate = |a, b| reach.between(a, b).unwrap().rate.as_bps();
    let mut orders = alloc::vec![Vec::new()];
    for _ in 0..gpus.len() {
        orders = orders
            .iter()
            .flat_map(|order: &Vec<_>| {
                let remaining = gpus.iter().filter(|gpu| !order.contains(*gpu));
                remaining.map(|&gpu| [order.as_slice(), &[gpu]].concat()).collect::<Vec<_>>()
            })
            .collect();
    }
    let slowest = |order: &Vec<_>| {
        let inner = order.windows(2).map(|pair| rate(pair[0], pair[1]));
        inner.chain([rate(nic, order[0]), rate(nic, order[order.len() - 1])]).min().unwrap()
    };
    orders.iter().map(slowest).max().unwrap()
}

#[test]
fn no_order_of_the_gpus_is_faster_in_random_machines() {
    for seed in 0..60 {
        let mut rng = Seed(seed).child("machine", 0).rng();
        let mut builder = MachineBuilder::new();
        builder.add("cpu", DeviceKind::Cpu, None, None).unwrap();
        builder.add("nic", DeviceKind::Nic, None, None).unwrap();
        let rate =
            |rng: &mut weft_units::Rng| weft_units::BitRate::gbps(1 + rng.below(50)).unwrap();
        builder.link(["cpu", "nic"], LinkKind::Pcie, rate(&mut rng)).unwrap();
        let gpus: Vec<String> = (0..2 + rng.below(5)).map(|n| alloc::format!("gpu{n}")).collect();
        for gpu in &gpus {
            builder.add(gpu, DeviceKind::Gpu, None, None).unwrap();
            builder.link(["cpu", gpu], LinkKind::Pcie, rate(&mut rng)).unwrap();
        }
        for a in 0..gpus.len() {
            for b in (0..a).filter(|_| rng.chance(1, 2)).collect::<Vec<_>>() {
                builder.link([&gpus[a], &gpus[b]], LinkKind::Nvlink, rate(&mut rng)).unwrap();
            }
        }
        let machine = builder.build().unwrap();
        let ring = &rings_on_rails(&machine)[0];
        // A path through the GPU next to the NIC may be faster than every direct one.
        assert!(ring.rate.as_bps() >= best_rate(&machine), "seed {seed}");
    }
}

#[test]
fn both_trees_span_all_servers_with_the_fewest_edges_between_blocks() {
    let shape = Rail { blocks: 4, servers_per_block: 9, ..Rail::default() };
    let cluster = on_shape(astral_machine(8), 8, &shape.build().unwrap());
    for count in 1..=36 {
        let mut job = all(&cluster);
        Seed(count).rng().shuffle(&mut job);
        job.truncate(usize::try_from(count).unwrap());
        let order = server_order(&cluster, &job);
        let blocks: BTreeSet<u32> = job.iter().map(|&server| cluster.block(server)).collect();
        let trees = double_tree(&cluster, &order);
        for tree in &trees {
            let mut seen = BTreeSet::from([tree.root]);
            for &(child, parent) in &tree.edges {
                assert!(seen.contains(&parent), "a parent comes before its children");
                assert!(seen.insert(child), "one parent each");
            }
            assert_eq!(seen.len(), order.len());
            let between =
                tree.edges.iter().filter(|(a, b)| cluster.block(*a) != cluster.block(*b)).count();
            assert_eq!(between, blocks.len() - 1);
            // A block of nine is at most four deep, and a tree of four blocks three.
            assert!(tree.depth() <= 7, "{}", tree.depth());
        }
    }
}

#[test]
fn the_leaves_of_one_tree_are_inner_nodes_of_the_other() {
    let cluster = blocks_of(&["a", "b", "c", "d", "e", "f", "g", "h"].map(|name| (name, "1")));
    let trees = double_tree(&cluster, &all(&cluster));
    let inner = |tree: &Tree| tree.edges.iter().map(|edge| edge.1).collect::<BTreeSet<_>>();
    let both: Vec<_> = inner(&trees[0]).intersection(&inner(&trees[1])).copied().collect();
    assert!(both.len() <= 1, "{both:?} have children in both");
}
