use alloc::string::{String, ToString};

use super::*;

fn build(text: &str) -> Result<Cluster, String> {
    let config: ClusterConfig = toml::from_str(text).map_err(|error| error.to_string())?;
    let machine = config.machine.build().map_err(|error| error.to_string())?;
    config.build(machine).map_err(|error| error.to_string())
}

/// Two servers with two NICs of two ports, on two leaves below two spines.
const NAMED: &str = r#"
    hash = { algorithm = "crc16-ccitt", seed = 5, rotate_by_tier = 4 }
    machine = { gpus = 2, nics = 2 }
    switch = [
        { name = "leaf-a", up = ["spine-1", "spine-2"], seed = 7, weights = { spine-2 = 3 } },
        { name = "leaf-b", up = ["spine-1", "spine-2"], hash = "linux", rotate = 3 },
        { name = "spine-1" },
        { name = "spine-2" },
    ]
    server = [
        { name = "n1", nics = [["leaf-a", "leaf-b"], ["leaf-b", "leaf-a"]], addresses = ["10.9.0.1", "10.9.1.1"] },
        { name = "n2", nics = [["leaf-a"], ["leaf-b"]] },
    ]"#;

#[test]
fn a_shape_gives_servers_of_its_rails_in_its_blocks() {
    let cluster =
        build("network = { kind = \"rail\", blocks = 3, servers_per_block = 4 }").unwrap();
    assert_eq!((cluster.servers().len(), cluster.rails(), cluster.blocks()), (12, 8, 3));
    assert_eq!(cluster.servers()[5].name, "node5");
    assert_eq!(cluster.servers()[5].nics[2], NodeId(42));
    assert_eq!(cluster.block(ServerId(5)), 1);
    let (here, there) = (ServerId(5), ServerId(8));
    assert!(cluster.share_leaf((here, 3), (ServerId(4), 3)));
    assert!(cluster.share_leaf((here, 3), (ServerId(4), 2)), "leaves work in pairs");
    assert!(!cluster.share_leaf((here, 3), (ServerId(4), 4)));
    assert!(!cluster.share_leaf((here, 3), (there, 3)));
    let hpn = "network = { kind = \"hpn\", segments = 2, servers_per_segment = 3 }\n\
               machine = { gpus = 8, nics = 4 }";
    assert_eq!(build(hpn).unwrap().blocks(), 2);
    let leaf_spine = "network = { kind = \"leaf-spine\" }\nmachine = { gpus = 4, nics = 4 }";
    let cluster = build(leaf_spine).unwrap();
    assert_eq!((cluster.servers().len(), cluster.blocks()), (32, 8));
}

#[test]
fn switches_and_servers_by_name_keep_their_seeds_weights_and_addresses() {
    let cluster = build(NAMED).unwrap();
    let network = cluster.network().unwrap();
    assert_eq!(network.topology.hosts(), 4);
    assert_eq!(network.name(NodeId(4)), "leaf-a");
    assert_eq!(network.hashes[0].seed, 7);
    assert_eq!((network.hashes[1].algorithm.name(), network.hashes[1].rotate), ("linux", 3));
    assert_eq!(network.hashes[2].rotate, 4, "spines turn by one tier more");
    assert_eq!(network.addresses, [0x0a09_0001, 0x0a09_0101, 0x0a00_0002, 0x0a00_0003]);
    let (&link, &weight) = network.weights.first_key_value().unwrap();
    assert_eq!((network.name(network.topology.link(link).to), weight), ("spine-2".into(), 3));
    assert_eq!(cluster.blocks(), 1);
}

#[test]
fn blocks_alone_are_enough_for_an_order() {
    let cluster = build(
        "server = [{ name = \"a\", block = \"x\" }, { name = \"b\", block = \"y\" }, \
         { name = \"c\", block = \"x\" }]",
    )
    .unwrap();
    assert!(cluster.network().is_none());
    assert_eq!(cluster.server_ids().map(|id| cluster.block(id)).collect::<Vec<_>>(), [0, 1, 0]);
    assert!(cluster.share_leaf((ServerId(0), 1), (ServerId(2), 1)));
    assert!(!cluster.share_leaf((ServerId(0), 1), (ServerId(2), 0)));
}

#[test]
fn invalid_descriptions_are_named() {
    let refused = |from: &str, to: &str| {
        assert!(NAMED.contains(from), "{from}");
        build(&NAMED.replacen(from, to, 1)).unwrap_err()
    };
    assert_eq!(
        refused("[\"leaf-a\"]", "[\"leaf-c\"]"),
        "no switch \"leaf-c\", did you mean \"leaf-a\"? (known: leaf-a, leaf-b, spine-1, spine-2)"
    );
    assert_eq!(
        refused("{ name = \"spine-1\" }", "{ name = \"spine-1\", up = [\"leaf-b\"] }"),
        "the switches spine-1 -> leaf-b -> spine-1 are above each other in a cycle; up leads to \
         the next tier"
    );
    assert_eq!(refused("\"spine-2\" }", "\"spine-1\" }"), "switch \"spine-1\" is there twice");
    assert_eq!(refused("\"n2\"", "\"n1\""), "server \"n1\" is there twice");
    assert_eq!(refused("10.9.1.1", "10.9.0.1"), "address \"10.9.0.1\" is there twice");
    assert_eq!(refused(", \"10.9.1.1\"", ""), "server \"n1\": has 1 addresses for 2 NICs");
    assert_eq!(
        refused("weights = { spine-2", "weights = { spine-3"),
        "weights of \"leaf-a\": no switch above \"spine-3\", did you mean \"spine-1\"? (known: \
         spine-1, spine-2)"
    );
    assert_eq!(
        refused("nics = [[\"leaf-a\"], [\"leaf-b\"]]", "nics = [[\"leaf-a\"]]"),
        "server \"n2\": has 1 NICs on the network, its machine 2"
    );
    assert!(refused("seed = 7", "sed = 7").contains("unknown field `sed`"));
    assert_eq!(build("").unwrap_err(), ClusterError::NoServers.to_string());
    assert_eq!(
        build("server = [{ name = \"a\" }]").unwrap_err(),
        "server \"a\": has no block, and no [network] or [[switch]] says where it is"
    );
    let seven = "network = { kind = \"rail\" }\nmachine = { nics = 4 }";
    assert!(build(seven).unwrap_err().contains("has 8 NICs on the network, its machine 4"));
}

#[test]
fn a_machine_by_devices_names_unknown_ones_and_cycles() {
    let machine = |links: &str| {
        build(&alloc::format!(
            "[[server]]\nname = \"a\"\nblock = \"x\"\n[machine]\n\
             devices = {{ gpu0 = \"gpu\", gpu1 = \"gpu\", nic0 = \"nic\", p0 = \"pci-switch\", \
             p1 = \"pci-switch\" }}\nlinks = [{links}]"
        ))
    };
    let link = |a: &str, b: &str| {
        alloc::format!("{{ ends = [\"{a}\", \"{b}\"], kind = \"pcie\", rate = \"256Gbps\" }},")
    };
    let tree = [link("p0", "gpu0"), link("p0", "nic0"), link("p0", "p1"), link("p1", "gpu1")];
    assert_eq!(machine(&tree.concat()).unwrap().rails(), 1);
    assert_eq!(
        machine(&(tree.concat() + &link("gpu1", "p0"))).unwrap_err(),
        "the PCIe links gpu1 - p1 - p0 - gpu1 form a cycle; PCIe is a tree"
    );
    assert_eq!(
        machine(&link("p0", "gpu7")).unwrap_err(),
        "no device \"gpu7\", did you mean \"gpu0\"? (known: gpu0, gpu1, nic0, p0, p1)"
    );
    assert_eq!(
        machine(&tree[..2].concat()).unwrap_err(),
        "no links lead from \"gpu0\" to \"gpu1\" but through other GPUs or NICs"
    );
}
