use alloc::format;
use alloc::string::ToString;

use weft_units::Seed;

use super::*;
use crate::build::{LeafSpine, TopologyKind};
use crate::hash::crc::CRC32;
use crate::{Failures, Routes};

/// Two hosts (0 and 3) under one leaf (1) and a spine (2) above it.
const SMALL: &str =
    "4 2 3\n2 1\n0 1 100Gbps 1000ns 0\n3 1 25Gbps 0.0015ms 0.01\n1 2 400Gbps 1us 0\n";

fn error_of(text: &str) -> String {
    read_ns3(text).unwrap_err().to_string()
}

#[test]
fn hosts_come_first_and_every_node_keeps_the_number_of_the_file() {
    let topology = read_ns3(SMALL).unwrap();
    let labels: Vec<_> = (0..4).map(|node| topology.label(NodeId(node))).collect();
    assert_eq!(labels, [0, 3, 2, 1]);
    assert_eq!(topology.name(NodeId(1)).to_string(), "host 3");
    assert_eq!(topology.name(NodeId(2)).to_string(), "spine 2");
    let lossy = topology.ports(NodeId(1))[0];
    let link = topology.link(lossy);
    assert_eq!((link.from, link.to), (NodeId(1), NodeId(3)));
    assert_eq!(link.rate, BitRate::gbps(25).unwrap());
    assert_eq!(link.propagation, Duration::from_nanos(1500));
    assert_eq!(topology.error_rate(lossy), 0.01);
    assert_eq!(topology.error_rate(lossy.reverse()), 0.01);
    assert_eq!(topology.error_rate(topology.ports(NodeId(0))[0]), 0.0);
}

#[test]
fn the_default_leaf_spine_is_the_public_reference_file_byte_for_byte() {
    let text = write_ns3(&LeafSpine::default().build().unwrap()).unwrap();
    // ConWeave's `leaf_spine_128_100G_OS2.txt` without the comment that follows its links.
    assert_eq!((text.len(), CRC32.checksum(0, text.as_bytes())), (4765, 0xb009_9ac3));
}

#[test]
fn a_written_topology_reads_back_unchanged() {
    for &kind in TopologyKind::ALL {
        let topology = kind.config().build().unwrap();
        let text = write_ns3(&topology).unwrap();
        let back = read_ns3(&text).unwrap();
        assert_eq!(write_ns3(&back).unwrap(), text, "{kind:?}");
        for link in topology.link_ids() {
            assert_eq!(back.link(link), topology.link(link), "{kind:?}");
        }
    }
    let text = write_ns3(&read_ns3(SMALL).unwrap()).unwrap();
    assert_eq!(text, SMALL.replace("0.0015ms", "1500ns").replace("1us", "1000ns"));
}

#[test]
fn a_comment_after_the_links_is_ignored_and_a_further_link_is_an_error() {
    assert!(read_ns3(&format!("{SMALL}topology from Hermes - originally 10Gbps\n\n")).is_ok());
    assert_eq!(
        error_of(&format!("{SMALL}\n0 2 100Gbps 1us 0\n")),
        "line 7: found more links than the 3 of the header"
    );
}

#[test]
fn parallel_cables_cannot_be_written() {
    let topology = LeafSpine { parallel_links: 2, ..Default::default() }.build().unwrap();
    assert_eq!(write_ns3(&topology), Err(UnwritableError { a: 128, b: 136 }));
}

#[test]
fn an_error_names_its_line_the_text_found_and_the_text_expected() {
    for (text, want) in [
        ("", "line 1: found 0 fields, expected <nodes> <switches> <links>"),
        ("4 2\n", "line 1: found 2 fields, expected <nodes> <switches> <links>"),
        ("4 two 3\n", "line 1: found \"two\", expected a number of switches"),
        ("-4 2 3\n", "line 1: found \"-4\", expected a number of nodes"),
        ("4294967295 2 3\n", "line 1: found \"4294967295\", expected at most 2097152 nodes"),
        ("4 2 4294967295\n", "line 1: found \"4294967295\", expected at most 4194304 links"),
        ("4 0 3\n", "line 1: found \"0\", expected at least 1 switch"),
        ("4 4 3\n", "line 1: found \"4\", expected fewer switches than nodes"),
        ("4 2 3\n\n1\n", "line 3: the file ends with 1 switches, expected 2"),
        ("4 2 3\n1 2 3\n", "line 2: found more switches than the 2 of the header"),
        ("4 2 3\n1 4\n", "line 2: found node 4, expected a number below 4"),
        ("4 2 3\n1 1\n", "line 2: found switch 1 again, expected each switch once"),
        ("4 2 3\n1 x\n", "line 2: found \"x\", expected the number of a switch"),
    ] {
        assert_eq!(error_of(text), want, "{text:?}");
    }
}

#[test]
fn an_error_in_a_link_names_its_line_too() {
    for (link, want) in [
        ("", "line 2: the file ends with 0 links, expected 3"),
        ("0 1 1Gbps", "line 3: found 3 fields, expected <node> <node> <rate> <delay> <error rate>"),
        ("0 9 1Gbps 1us 0", "line 3: found node 9, expected a number below 4"),
        ("0 1 0Gbps 1us 0", "line 3: found \"0Gbps\", expected a rate above zero such as 100Gbps"),
        ("0 1 fast 1us 0", "line 3: found \"fast\", expected a rate above zero such as 100Gbps"),
        ("0 1 1Gbps -1us 0", "line 3: found \"-1us\", expected a delay such as 1000ns"),
        (
            "0 1 100001Gbps 1us 0",
            "line 3: found \"100001Gbps\", expected a rate of at most 100000Gbps",
        ),
        ("0 1 1Gbps 1.1s 0", "line 3: found \"1.1s\", expected a delay of at most 1s"),
        ("0 1 1Gbps 1us NaN", "line 3: found \"NaN\", expected an error rate between 0 and 1"),
        ("0 1 1Gbps 1us 1.5", "line 3: found \"1.5\", expected an error rate between 0 and 1"),
        (
            "1 1 1Gbps 1us 0",
            "line 3: found a link of 1 and 1, expected two nodes, at least one a switch",
        ),
        (
            "0 3 1Gbps 1us 0",
            "line 3: found a link of 0 and 3, expected two nodes, at least one a switch",
        ),
    ] {
        assert_eq!(error_of(&format!("4 2 3\n1 2\n{link}")), want, "{link:?}");
    }
    let twice = SMALL.replace("1 2 400Gbps", "1 0 400Gbps");
    assert_eq!(
        error_of(&twice),
        "line 5: found a second link of 1 and 0, expected one (first on line 3)"
    );
    let lonely = "4 2 2\n1 2\n0 1 1Gbps 1us 0\n1 2 1Gbps 1us 0\n";
    assert_eq!(error_of(lonely), "node 3 is not connected, expected every host and switch to be");
}

#[test]
fn a_long_field_is_quoted_in_part() {
    let text = format!("{} 2 3", "9".repeat(1_000_000));
    assert!(error_of(&text).len() < 100);
}

#[test]
fn truncated_and_garbled_files_are_errors_and_never_a_panic() {
    let whole = write_ns3(&LeafSpine::default().build().unwrap()).unwrap();
    for end in 0..whole.len() - 2 {
        assert!(read_ns3(&whole[..end]).is_err(), "cut at {end}");
    }
    let mut rng = Seed(1).child("garble", 0).rng();
    let alphabet = b"0123456789 \n-.GKMbpsnue\t\xc3\xa9x";
    for _ in 0..5_000 {
        let mut bytes = SMALL.as_bytes().to_vec();
        for _ in 0..=rng.index(4) {
            let (at, with) = (rng.index(bytes.len()), alphabet[rng.index(alphabet.len())]);
            match rng.index(3) {
                0 => bytes[at] = with,
                1 => bytes.insert(at, with),
                _ => drop(bytes.remove(at)),
            }
        }
        if let Ok(topology) = read_ns3(&String::from_utf8_lossy(&bytes)) {
            let text = write_ns3(&topology).unwrap();
            assert_eq!(write_ns3(&read_ns3(&text).unwrap()).unwrap(), text);
        }
    }
}

#[test]
fn the_variant_of_simai_has_nvswitches_among_its_switches() {
    // Two servers of two GPUs; each GPU has its NVSwitch (4, 5) and a port of a leaf (6).
    let text = "7 2 2 1 8 A100\n4 5 6\n\
                0 4 2400Gbps 0.000025ms 0\n1 4 2400Gbps 0.000025ms 0\n\
                2 5 2400Gbps 0.000025ms 0\n3 5 2400Gbps 0.000025ms 0\n\
                0 6 100Gbps 0.0005ms 0\n1 6 100Gbps 0.0005ms 0\n\
                2 6 100Gbps 0.0005ms 0\n3 6 100Gbps 0.0005ms 0\n";
    let topology = read_ns3(text).unwrap();
    assert_eq!((topology.hosts(), topology.switches(), topology.ports(NodeId(0)).len()), (4, 3, 2));
    let link = topology.link(topology.ports(NodeId(0))[0]);
    assert_eq!((topology.label(link.to), link.propagation), (4, Duration::from_nanos(25)));
    let routes = Routes::compute(&topology, &Failures::none()).unwrap();
    let paths = |to: u32| routes.path_count(&topology, NodeId(0), NodeId(to));
    assert_eq!((paths(1), paths(2)), (2, 1), "two switches lead to the neighbour, one elsewhere");
    assert_eq!(
        error_of("4 1 4294967295 4294967295 3 A100\n"),
        "line 1: found \"4294967295\", expected fewer switches than nodes"
    );
}
