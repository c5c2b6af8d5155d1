//! CONGA's decisions, checked by hand. A leaf's uplinks are its ports 16 to 23.

use weft_topo::NodeId;

use super::*;
use crate::switch::Kind;
use crate::switch::bench::{Bench, micros};

/// Loads an uplink with a number of full-size packets.
fn load(bench: &mut Bench, port: u16, packets: u32) {
    for _ in 0..packets {
        bench.send(micros(0), 0, 16, port);
    }
}

#[test]
fn a_new_flow_takes_an_uplink_less_busy_than_the_others() {
    let mut bench = Bench::new(Kind::Conga);
    // 400 packets of 1048 bytes are above the first eighth of 3,125,000 bytes. The flows avoid each
    // other, until all eight uplinks are alike.
    let mut used: Vec<_> = (0..8)
        .map(|port| {
            load(&mut bench, port, 400);
            bench.uplink(micros(0), 0, 16, port)
        })
        .collect();
    used.sort_unstable();
    assert_eq!(used, [0, 1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn a_flowlet_keeps_its_uplink_and_moves_after_a_gap_only_to_a_better_one() {
    let mut bench = Bench::new(Kind::Conga);
    let first = bench.send(micros(0), 0, 16, 1);
    load(&mut bench, 1, 1000);
    assert_eq!(bench.send(micros(100), 0, 16, 1), first, "busy, but within the flowlet");
    // 1000 packets are 2.7 eighths; four periods later 1.1 are left.
    let moved = bench.send(micros(201), 0, 16, 1);
    assert_ne!(moved, first);
    assert_eq!(bench.send(micros(302), 0, 16, 1), moved, "no other is better");
}

#[test]
fn a_packet_carries_its_paths_maximum_and_the_other_leaf_returns_it() {
    let mut bench = Bench::new(Kind::Conga);
    // Other leaves load the first spine's link towards the leaf of host 16.
    let spine = NodeId(136);
    let down = bench.topology.ports(spine)[1];
    assert_eq!(bench.topology.link(down).to, NodeId(129));
    let mut port = 0;
    let mut busy = 0;
    while busy < 1000 {
        port += 1;
        let hop = bench.packet(32 + u32::from(port % 16), 16, port);
        let path = bench.carry(micros(0), hop);
        busy += u32::from(path[1] == down);
    }
    // A flow of host 0 through that spine meets the load, of which its own leaf has no feedback.
    let through = (0..).find(|&port| bench.uplink(micros(0), 0, 16, 5_000 + port) == 0).unwrap();
    let hop = bench.packet(0, 16, 5_000 + through);
    bench.carry(micros(0), hop);
    let Label::Conga(tag) = bench.labels.get(hop.packet()) else { panic!("no label") };
    assert_eq!(tag.met.map(|met| met.uplink), Some(16));
    assert!(tag.met.is_some_and(|met| met.congestion >= 2), "{tag:?}");
    // A packet in the other direction brings the feedback to the leaf of host 0; so do control packets.
    let back = bench.packet(16, 0, 9).as_control();
    bench.carry(micros(1), back);
    let chosen: Vec<_> =
        (0..100).map(|port| bench.uplink(micros(2), 1, 17, 6_000 + port)).collect();
    assert!(!chosen.contains(&0), "{chosen:?}");
    // The feedback expires after 500 us.
    let later: Vec<_> =
        (0..100).map(|port| bench.uplink(micros(502), 1, 17, 7_000 + port)).collect();
    assert!(later.contains(&0), "{later:?}");
}
