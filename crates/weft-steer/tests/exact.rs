//! Real TCP and UDP flows over Linux routers, every hop predicted from the tables as they are installed:
//! plain, weighted, resilient, steered, after failures, with routes of the lab's and of FRR's. Without root
//! or a tool the tests say that they were skipped, and why.
#![allow(clippy::disallowed_methods, reason = "these tests watch a kernel in real time")]

mod common;

use std::fmt::Write as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{TCP, Taps, UDP, any_seed, flows, is_missing, lab, mispredicted, read};
use weft_lab::{Lab, Routing};
use weft_steer::{Change, Inventory, Lease};
use weft_units::{Rng, Seed};

const PATIENCE: Duration = Duration::from_secs(10);

/// Sends so many flows of each pair of hosts and compares; gives how many there were.
fn round(what: &str, lab: &Lab, taps: &Taps, each: usize, protocol: u8, rng: &mut Rng) -> usize {
    let inventory = Inventory::of_lab(lab);
    let fabric = read(&inventory);
    let flows = flows(lab, each, protocol, rng);
    let wrong = mispredicted(lab, taps, &fabric, &flows);
    assert!(
        wrong.is_empty(),
        "{what}: {} of {} flows took another way, the first {:?}\n{}",
        wrong.len(),
        flows.len(),
        wrong[0],
        toml::to_string(fabric.installed()).unwrap(),
    );
    println!("{what}: {} flows of protocol {protocol}, 0 wrong", flows.len());
    flows.len()
}

fn ip(lab: &Lab, node: &str, batch: &str) {
    let run = || {
        let mut child =
            Command::new("ip").args(["-batch", "-"]).stdin(Stdio::piped()).spawn().unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), batch.as_bytes()).unwrap();
        child.wait().unwrap().success()
    };
    assert!(lab.enter(node, run).unwrap(), "{node}: {batch}");
}

/// Routes of each leaf to the others, by a next hop to each spine.
fn install(lab: &Lab, route: impl Fn(&mut String, usize, &str)) {
    let fabric = lab.fabric();
    for leaf in 0..fabric.leaves() {
        let mut batch = String::new();
        for other in (0..fabric.leaves()).filter(|&other| other != leaf) {
            route(&mut batch, leaf, &format!("10.{}.0.0/16", other + 1));
        }
        ip(lab, &format!("l{leaf}"), &batch);
    }
}

fn weight(rng: &mut Rng) -> u64 {
    1 + rng.below(5)
}

/// Steers random destinations at random leaves to random spines.
fn steer(lab: &Lab, moves: usize, rng: &mut Rng) -> Vec<(String, Change)> {
    let (inventory, fabric) = (Inventory::of_lab(lab), lab.fabric());
    let lease = Lease::new(format!("exact/{}", std::process::id()), Duration::from_secs(60));
    let mut made = vec![];
    for _ in 0..moves {
        let destination = rng.index(fabric.hosts());
        let leaves: Vec<usize> =
            (0..fabric.leaves()).filter(|&leaf| leaf != fabric.leaf_of(destination)).collect();
        let router = inventory.router(&format!("l{}", leaves[rng.index(leaves.len())])).unwrap();
        let mut ports: Vec<String> =
            (0..fabric.spines()).filter(|_| rng.chance(1, 2)).map(|s| format!("s{s}")).collect();
        if ports.is_empty() {
            ports.push(format!("s{}", rng.index(fabric.spines())));
        }
        let change = Change::by(fabric.address(destination), ports.iter().map(String::as_str));
        let plan = router.plan(&change).unwrap();
        router.carry_out(&plan, &lease).unwrap();
        router.await_change(&change, PATIENCE).unwrap();
        made.push((router.name.clone(), change));
    }
    made
}

#[test]
fn every_flow_over_linux_routers_takes_the_way_that_its_tables_say() {
    if is_missing(false) {
        return;
    }
    let seed = any_seed();
    println!("{seed:?}");
    let mut rng = seed.child("static", 0).rng();
    let mut lab = lab("x", |spec| {
        (spec.leaves, spec.spines, spec.hosts_per_leaf) = (3, 4, 2);
        spec.seed = rng.next_u64();
    });
    let taps = Taps::open(&lab);
    let mut checked = round("plain", &lab, &taps, 90, UDP, &mut rng);

    let weights: Vec<u64> = (0..4).map(|_| weight(&mut rng)).collect();
    install(&lab, |batch, leaf, to| {
        write!(batch, "route replace {to}").unwrap();
        for (spine, weight) in weights.iter().enumerate() {
            let via = format!("10.{}.{spine}.2", 100 + leaf);
            write!(batch, " nexthop via {via} dev s{spine} weight {weight}").unwrap();
        }
        batch.push('\n');
    });
    checked += round("weighted", &lab, &taps, 90, TCP, &mut rng);

    nexthop_objects(&lab, "", &mut rng);
    checked += round("nexthop groups", &lab, &taps, 90, UDP, &mut rng);
    nexthop_objects(&lab, " type resilient buckets 64", &mut rng);
    checked += round("resilient", &lab, &taps, 90, TCP, &mut rng);

    let moved = steer(&lab, 6, &mut rng);
    checked += round("steered", &lab, &taps, 90, UDP, &mut rng);
    let link = format!("l{}-s{}", rng.index(3), rng.index(4));
    lab.set_down(&link).unwrap();
    checked += round(&format!("{link} down"), &lab, &taps, 30, UDP, &mut rng);
    println!("{checked} flows of {seed:?}, 0 wrong; moved {}", words(&moved));
    assert!(checked >= 10_000, "{checked} flows");
}

/// Gives every leaf a group of objects of random weights, and its routes.
fn nexthop_objects(lab: &Lab, kind: &str, rng: &mut Rng) {
    for leaf in 0..lab.fabric().leaves() {
        let mut batch = String::new();
        let group = if kind.is_empty() { 10 } else { 11 };
        for spine in 0..lab.fabric().spines() {
            let id = spine + 1;
            writeln!(batch, "nexthop replace id {id} via 10.{}.{spine}.2 dev s{spine}", 100 + leaf)
                .unwrap();
        }
        let members: Vec<String> =
            (1..=lab.fabric().spines()).map(|id| format!("{id},{}", weight(rng))).collect();
        writeln!(batch, "nexthop add id {group} group {}{kind}", members.join("/")).unwrap();
        for other in (0..lab.fabric().leaves()).filter(|&other| other != leaf) {
            writeln!(batch, "route replace 10.{}.0.0/16 nhid {group}", other + 1).unwrap();
        }
        ip(lab, &format!("l{leaf}"), &batch);
    }
}

#[test]
fn every_flow_over_frr_routers_takes_the_way_that_its_kernel_says() {
    if is_missing(true) {
        return;
    }
    let seed: Seed = any_seed();
    println!("{seed:?}");
    let mut rng = seed.child("frr", 0).rng();
    let mut lab = lab("y", |spec| {
        (spec.spines, spec.hosts_per_leaf) = (3, 2);
        (spec.routing, spec.seed) = (Routing::Frr, rng.next_u64());
    });
    let taps = Taps::open(&lab);
    let mut checked = round("BGP", &lab, &taps, 100, TCP, &mut rng);
    let moved = steer(&lab, 3, &mut rng);
    checked += round("steered by FRR", &lab, &taps, 100, UDP, &mut rng);
    undo(&lab, &moved);
    lab.set_down(&format!("l0-s{}", rng.index(3))).unwrap();
    lab.converge().unwrap();
    checked += round("a link down", &lab, &taps, 100, TCP, &mut rng);
    println!("{checked} flows of {seed:?}, 0 wrong; moved {}", words(&moved));
}

fn words(moved: &[(String, Change)]) -> String {
    let words: Vec<String> =
        moved.iter().map(|(name, change)| format!("{name}: {change}")).collect();
    words.join("; ")
}

/// Takes moves back; tables are then as they were without.
fn undo(lab: &Lab, moved: &[(String, Change)]) {
    let inventory = Inventory::of_lab(lab);
    let lease = Lease::new(format!("exact/{}", std::process::id()), Duration::from_secs(60));
    for (name, change) in moved {
        let router = inventory.router(name).unwrap();
        let back = Change::back(change.destination);
        let plan = router.plan(&back).unwrap();
        router.carry_out(&plan, &lease).unwrap();
        router.await_change(&back, PATIENCE).unwrap();
        assert!(router.plan(&back).unwrap().commands.is_empty(), "{name} has something left");
    }
}
