//! Real TCP and UDP flows over Linux routers, whose every hop is predicted from the installed tables: plain, weighted,
//! resilient, steered and after failures, with routes of the lab and of FRR. Without root or a required tool the tests
//! report that they were skipped, and the reason.
#![allow(clippy::disallowed_methods, reason = "these tests watch a kernel in real time")]

mod common;

use std::fmt::Write as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{
    Send, TCP, Taps, UDP, any_seed, by_hand, by_sockets, flows, is_missing, lab, labelled,
    mispredicted, no_flow_labels, read, set,
};
use weft_lab::{Lab, Routing};
use weft_route::Flow;
use weft_steer::{Change, Lease};
use weft_trial::routers_of;
use weft_units::{Rng, Seed};

const CHANGE_TIMEOUT: Duration = Duration::from_secs(10);

/// Sends `each` flows per pair of hosts and compares their paths, first with IPv4 and then with IPv6. Returns the
/// number of flows.
fn round(what: &str, lab: &Lab, taps: &Taps, each: usize, protocol: u8, rng: &mut Rng) -> usize {
    let mut checked = 0;
    for v6 in [false, true] {
        let flows = flows(lab, each, (v6, protocol), rng);
        checked += check(what, lab, taps, &flows, by_sockets);
    }
    checked
}

fn check(what: &str, lab: &Lab, taps: &Taps, flows: &[Flow], send: Send) -> usize {
    let fabric = read(&routers_of(lab));
    let wrong = mispredicted(lab, taps, &fabric, flows, send);
    assert!(
        wrong.is_empty(),
        "{what}: {} of {} flows took another way, the first {:?}\n{}",
        wrong.len(),
        flows.len(),
        wrong[0],
        toml::to_string(fabric.installed()).unwrap(),
    );
    println!("{what}: {} flows such as {}, 0 wrong", flows.len(), flows[0]);
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

/// Returns the network of a leaf's hosts.
fn network(leaf: usize, v6: bool) -> String {
    if v6 { format!("fd00:{}::/32", leaf + 1) } else { format!("10.{}.0.0/16", leaf + 1) }
}

/// Returns the spine's address on a link.
fn via(leaf: usize, spine: usize, v6: bool) -> String {
    let leaf = 100 + leaf;
    if v6 { format!("fd00:{leaf}:{spine}::2") } else { format!("10.{leaf}.{spine}.2") }
}

/// Installs the routes of each leaf to the others, with a next hop per spine.
fn install(lab: &Lab, v6: bool, weights: &[u64]) {
    let fabric = lab.fabric();
    for leaf in 0..fabric.leaves() {
        let mut batch = String::new();
        for other in (0..fabric.leaves()).filter(|&other| other != leaf) {
            write!(batch, "route replace {}", network(other, v6)).unwrap();
            for (spine, weight) in weights.iter().enumerate() {
                let via = via(leaf, spine, v6);
                write!(batch, " nexthop via {via} dev s{spine} weight {weight}").unwrap();
            }
            batch.push('\n');
        }
        ip(lab, &format!("l{leaf}"), &batch);
    }
}

fn weight(rng: &mut Rng) -> u64 {
    1 + rng.below(5)
}

/// Steers random destinations at random leaves to random spines.
fn steer(lab: &Lab, moves: usize, rng: &mut Rng) -> Vec<(String, Change)> {
    let (inventory, fabric) = (routers_of(lab), lab.fabric());
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
        let address = common::address(lab, destination, rng.chance(1, 2));
        let change = Change::by(address, ports.iter().map(String::as_str));
        let plan = router.plan(&change).unwrap();
        router.carry_out(&plan, &lease).unwrap();
        router.await_change(&change, CHANGE_TIMEOUT).unwrap();
        made.push((router.name.clone(), change));
    }
    made
}

#[test]
fn every_flow_over_linux_routers_takes_the_path_predicted_from_its_tables() {
    if is_missing("flows over Linux routers", false) {
        return;
    }
    let seed = any_seed();
    println!("{seed:?}");
    let mut rng = seed.child("static", 0).rng();
    let mut lab = lab("x", |spec| {
        (spec.leaves, spec.spines, spec.hosts_per_leaf) = (3, 4, 2);
        (spec.seed, spec.ipv6) = (rng.next_u64(), true);
    });
    no_flow_labels(&lab);
    let taps = Taps::open(&lab);
    let mut checked = round("plain", &lab, &taps, 90, UDP, &mut rng);

    for v6 in [false, true] {
        let weights: Vec<u64> = (0..4).map(|_| weight(&mut rng)).collect();
        install(&lab, v6, &weights);
    }
    checked += round("weighted", &lab, &taps, 90, TCP, &mut rng);

    nexthop_objects(&lab, "", &mut rng);
    checked += round("nexthop groups", &lab, &taps, 90, UDP, &mut rng);
    nexthop_objects(&lab, " type resilient buckets 64", &mut rng);
    checked += round("resilient", &lab, &taps, 90, TCP, &mut rng);

    let moved = steer(&lab, 12, &mut rng);
    checked += round("steered", &lab, &taps, 90, UDP, &mut rng);
    let link = format!("l{}-s{}", rng.index(3), rng.index(4));
    lab.set_down(&link).unwrap();
    checked += round(&format!("{link} down"), &lab, &taps, 30, UDP, &mut rng);
    println!("{checked} flows of {seed:?}, 0 wrong; moved {}", words(&moved));
    assert!(checked >= 20_000, "{checked} flows");
}

/// Gives every leaf a group of nexthop objects with random weights for each family, and routes to it.
fn nexthop_objects(lab: &Lab, kind: &str, rng: &mut Rng) {
    let leaves = 0..lab.fabric().leaves();
    for (leaf, v6) in leaves.flat_map(|leaf| [(leaf, false), (leaf, true)]) {
        let mut batch = String::new();
        let first = if v6 { 100 } else { 0 };
        let group = first + if kind.is_empty() { 10 } else { 11 };
        for spine in 0..lab.fabric().spines() {
            let (id, via) = (first + spine + 1, via(leaf, spine, v6));
            writeln!(batch, "nexthop replace id {id} via {via} dev s{spine}").unwrap();
        }
        let ids = first + 1..=first + lab.fabric().spines();
        let members: Vec<String> = ids.map(|id| format!("{id},{}", weight(rng))).collect();
        writeln!(batch, "nexthop add id {group} group {}{kind}", members.join("/")).unwrap();
        for other in (0..lab.fabric().leaves()).filter(|&other| other != leaf) {
            writeln!(batch, "route replace {} nhid {group}", network(other, v6)).unwrap();
        }
        ip(lab, &format!("l{leaf}"), &batch);
    }
}

#[test]
fn every_hash_policy_of_both_families_is_predicted() {
    if is_missing("every hash policy", false) {
        return;
    }
    let seed = any_seed();
    println!("{seed:?}");
    let mut rng = seed.child("policies", 0).rng();
    let lab = lab("p", |spec| (spec.seed, spec.ipv6) = (rng.next_u64(), true));
    let taps = Taps::open(&lab);
    let mut checked = 0;
    for (policy, fields) in [(0, 0x37), (1, 0x37), (2, 0x37), (3, 0x0f), (3, 0x3f), (3, 0x37)] {
        for (v6, family) in [(false, "ipv4"), (true, "ipv6")] {
            for router in ["l0", "l1"] {
                let name = format!("{family}/fib_multipath_hash_");
                set(&lab, router, &format!("{name}policy"), &policy.to_string());
                // IPv4 does not accept the flow label bit.
                let fields = if v6 { fields } else { fields & !8 };
                set(&lab, router, &format!("{name}fields"), &fields.to_string());
            }
            let flows: Vec<Flow> = flows(&lab, 150, (v6, UDP), &mut rng)
                .into_iter()
                .map(|flow| labelled(flow, u32::try_from(rng.below(1 << 20)).unwrap()))
                .collect();
            let what = format!("{family}, policy {policy}, fields {fields:#x}");
            checked += check(&what, &lab, &taps, &flows, by_hand);
        }
    }
    println!("{checked} flows of {seed:?}, 0 wrong");
}

#[test]
fn every_flow_over_frr_routers_takes_the_path_predicted_from_its_kernel() {
    if is_missing("flows over FRR routers", true) {
        return;
    }
    let seed: Seed = any_seed();
    println!("{seed:?}");
    let mut rng = seed.child("frr", 0).rng();
    let mut lab = lab("y", |spec| {
        (spec.spines, spec.hosts_per_leaf) = (3, 2);
        (spec.routing, spec.seed, spec.ipv6) = (Routing::Frr, rng.next_u64(), true);
    });
    no_flow_labels(&lab);
    let taps = Taps::open(&lab);
    let mut checked = round("BGP", &lab, &taps, 100, TCP, &mut rng);
    let moved = steer(&lab, 4, &mut rng);
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

/// Undoes moves and checks that nothing remains of them.
fn undo(lab: &Lab, moved: &[(String, Change)]) {
    let inventory = routers_of(lab);
    let lease = Lease::new(format!("exact/{}", std::process::id()), Duration::from_secs(60));
    for (name, change) in moved {
        let router = inventory.router(name).unwrap();
        let back = Change::back(change.destination);
        let plan = router.plan(&back).unwrap();
        router.carry_out(&plan, &lease).unwrap();
        router.await_change(&back, CHANGE_TIMEOUT).unwrap();
        assert!(router.plan(&back).unwrap().commands.is_empty(), "{name} has something left");
    }
}
