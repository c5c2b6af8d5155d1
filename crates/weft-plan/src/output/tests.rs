use alloc::string::String;
use alloc::vec::Vec;

use weft_topo::Failures;
use weft_topo::build::Rail;
use weft_units::Seed;

use super::*;
use crate::Cluster;
use crate::cluster::ServerId;
use crate::machine::read_nccl;
use crate::ports::{Entropy, Fabric, SearchLimits, plan};
use crate::ring::{ring_hops, rings_as_listed, rings_on_rails, server_order};
use crate::testing::{astral_machine, on_shape};
use crate::traffic::queue_pairs;

fn cluster() -> Cluster {
    let shape = Rail { blocks: 2, servers_per_block: 2, ..Rail::default() };
    on_shape(astral_machine(8), 8, &shape.build().unwrap())
}

#[test]
fn a_graph_has_a_channel_a_rail_as_nccl_reads_them() {
    let machine = read_nccl(include_str!("../../tests/golden/nccl/nvswitch.xml")).unwrap();
    let text = graph_xml(&machine, &rings_on_rails(&machine));
    let document = roxmltree::Document::parse(&text).unwrap();
    let graphs: Vec<_> =
        document.root_element().children().filter(|node| node.is_element()).collect();
    assert_eq!(document.root_element().attribute("version"), Some("1"));
    for (graph, (id, pattern)) in graphs.iter().zip([("0", "4"), ("1", "3")]) {
        // These attributes are read by ncclTopoGetGraphFromXmlSub.
        for (name, value) in [
            ("id", id),
            ("pattern", pattern),
            ("crossnic", "0"),
            ("nchannels", "4"),
            ("speedintra", "50"),
            ("speedinter", "50"),
            ("typeintra", "NVL"),
            ("typeinter", "PXN"),
            ("samechannels", "0"),
        ] {
            assert_eq!(graph.attribute(name), Some(value), "{name}");
        }
        let channels: Vec<_> = graph.children().filter(|node| node.is_element()).collect();
        assert_eq!(channels.len(), 4);
        for (rail, channel) in channels.iter().enumerate() {
            let parts: Vec<(&str, u32)> = channel
                .children()
                .filter(|node| node.is_element())
                .map(|node| {
                    (node.tag_name().name(), node.attribute("dev").unwrap().parse().unwrap())
                })
                .collect();
            let rail = u32::try_from(rail).unwrap();
            assert_eq!((parts[0], parts[5]), (("net", rail), ("net", rail)));
            let mut gpus: Vec<u32> = parts[1..5].iter().map(|part| part.1).collect();
            assert_eq!(gpus[0], rail);
            gpus.sort_unstable();
            assert_eq!(gpus, [0, 1, 2, 3]);
        }
    }
    let crossing = graph_xml(&machine, &rings_as_listed(&machine));
    assert!(crossing.contains("crossnic=\"1\""));
}

#[test]
fn ranks_follow_the_order_of_servers() {
    let cluster = cluster();
    let order = server_order(&cluster, &[3, 0, 2, 1].map(ServerId));
    assert_eq!(
        host_file(&cluster, &order),
        "node3 slots=8\nnode2 slots=8\nnode0 slots=8\nnode1 slots=8\n"
    );
    let ranks = rank_file(&cluster, &order);
    assert_eq!(ranks.lines().count(), 32);
    assert_eq!(ranks.lines().nth(9), Some("rank 9=node2 slot=1"));
}

#[test]
fn the_table_names_every_queue_pair_and_its_port() {
    let cluster = cluster();
    let order: Vec<ServerId> = cluster.server_ids().collect();
    let hops = ring_hops(&order, &rings_on_rails(cluster.machine()));
    let (pairs, flows) = queue_pairs(&cluster, &hops, 4);
    assert_eq!(pairs.len(), 4 * 8 * 4);
    let fabric =
        Fabric::new(cluster.network().unwrap(), &Failures::none(), Entropy::default()).unwrap();
    let plan = plan(&fabric, &flows, SearchLimits::default(), Seed(1)).unwrap();
    let rows = port_rows(&cluster, &fabric, &pairs, &flows, &plan.ports);
    // node1 to node2 crosses blocks: leaf, spine, leaf.
    let across: Vec<_> = rows.iter().filter(|row| row.from == "node1" && row.rail == 5).collect();
    assert_eq!(across.len(), 4);
    for (number, row) in across.iter().enumerate() {
        assert_eq!((row.queue_pair, row.nic_port), (number, number % 2));
        assert_eq!((row.to.as_str(), row.path.len()), ("node2", 3));
        assert!(row.path[1].starts_with("spine "));
    }
    for row in &rows {
        // Kernel drivers convert the label in this way.
        let sport = (row.flow_label & 0x3fff) ^ (row.flow_label >> 14) | 0xc000;
        assert_eq!(sport, u32::from(row.source_port));
        assert!(row.flow_label > 0 && row.flow_label < 1 << 20);
    }
    let csv = port_csv(&rows);
    assert_eq!(csv.lines().count(), 1 + rows.len());
    let first: Vec<&str> = csv.lines().nth(1).unwrap().split(',').collect();
    assert_eq!(first[..8], ["node0", "node1", "0", "0", "0", "0", "10.0.0.0", "10.0.0.8"]);
    assert_eq!(first[10], "leaf 32");
}

#[test]
fn names_with_commas_stay_one_field() {
    let row = PortRow {
        from: "a,b".into(),
        to: "c\"d".into(),
        rail: 0,
        to_rail: 0,
        queue_pair: 0,
        nic_port: 0,
        source: [10, 0, 0, 1].into(),
        destination: [10, 0, 0, 2].into(),
        source_port: 49_152,
        flow_label: 0x4001,
        path: [String::from("leaf 1")].into(),
    };
    let csv = port_csv(&[row]);
    assert!(csv.ends_with("\"a,b\",\"c\"\"d\",0,0,0,0,10.0.0.1,10.0.0.2,49152,16385,leaf 1\n"));
}
