//! Times of path lookups, of one move, and of planning a job, at the size of whole clusters.
//!
//! `cargo bench -p weft-route --bench path -- [GPUs …]`; the default is 131072 GPUs.

use std::collections::BTreeSet;
use std::hint::black_box;
use std::net::Ipv4Addr;
use std::time::{Duration as Wall, Instant as Clock};

use weft_plan::ports::{Entropy, switch_hashes};
use weft_route::simulate::{Collective, Setup, tables};
use weft_route::{
    Controller, ControllerConfig, Fabric, Flow, LinkId, MoveQuery, MoveRules, Pair, PortSearch,
    Start, Suspect, decide,
};
use weft_topo::hash::{FiveTuple, HashAlgorithm};
use weft_topo::{Failures, Routes};
use weft_units::{BitRate, Instant, Rng, Seed};

#[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
fn clock() -> Clock {
    Clock::now()
}

fn main() {
    let requested: Vec<u32> =
        std::env::args().filter_map(|argument| argument.parse().ok()).collect();
    let gpus = if requested.is_empty() { vec![131_072] } else { requested };
    for gpus in gpus {
        for hash in [HashAlgorithm::Crc32, HashAlgorithm::LinuxFields] {
            run(gpus, hash);
        }
    }
}

fn run(gpus: u32, hash: HashAlgorithm) {
    let setup = Setup { gpus, hash, ..Setup::new(gpus, Collective::AllReduce) };
    let topology = setup.shape().build().expect("a published shape");
    let began = clock();
    let routes = Routes::compute(&topology, &Failures::none()).expect("it fits");
    let hashes = switch_hashes(&topology, hash, 8, Seed(1));
    let addresses = tables::addresses(&topology, &routes);
    let installed = tables::installed(&topology, &Failures::none(), &routes, &hashes, &addresses);
    let tables = began.elapsed();
    let began = clock();
    let fabric = Fabric::new(installed).expect("it was just made");
    println!(
        "{gpus} GPUs, {}: {} routers, {} links; tables made in {:.2} s, checked in {:.2} s",
        hash.name(),
        fabric.router_ids().count(),
        fabric.links(),
        tables.as_secs_f64(),
        began.elapsed().as_secs_f64()
    );
    let mut rng = Seed(1).child("flows", 0).rng();
    let starts: Vec<(LinkId, FiveTuple)> =
        (0..8 * gpus).map(|_| flow(&fabric, &addresses, gpus, &mut rng)).collect();
    // The best of five passes, because other processes use the machine too.
    let one_by_one = || {
        let path = |(first, tuple): &(LinkId, FiveTuple)| {
            black_box(fabric.path_from(Start::Link(*first), tuple)).links().len()
        };
        let began = clock();
        let hops: usize = starts.iter().map(path).sum();
        (began.elapsed(), hops)
    };
    let in_step = || {
        let flows = starts.iter().map(|(first, tuple)| (Start::Link(*first), tuple));
        let mut hops = 0;
        let began = clock();
        fabric.paths(flows, |path| hops += black_box(path).links().len());
        (began.elapsed(), hops)
    };
    let (alone, hops) = (0..5).map(|_| one_by_one()).min().expect("five passes");
    let (together, same) = (0..5).map(|_| in_step()).min().expect("five passes");
    assert_eq!(hops, same, "paths are the same");
    println!(
        "  path: {:.0} ns a flow, one by one {:.0}, {:.1} links each, {} flows",
        per(together, starts.len()),
        per(alone, starts.len()),
        hops as f64 / starts.len() as f64,
        starts.len()
    );
    one_move(&fabric, &addresses, gpus, &mut rng);
    plan(fabric, &starts);
}

fn flow(fabric: &Fabric, addresses: &[u32], gpus: u32, rng: &mut Rng) -> (LinkId, FiveTuple) {
    let (from, to) = (rng.index(gpus as usize), rng.index(gpus as usize));
    let to = if from == to { (to + 1) % gpus as usize } else { to };
    let (src, dst) = (addresses[from], addresses[to]);
    let links = fabric.links_of_host(fabric.host(Ipv4Addr::from_bits(src)).expect("it has one"));
    let src_port = Entropy::default().port(rng.next_u32());
    let tuple = FiveTuple { src, dst, src_port, dst_port: 4791, protocol: 17 };
    (links[rng.index(links.len())], tuple)
}

/// Times the move of a thousand flows to one host, at a leaf with all its uplinks as candidates.
fn one_move(fabric: &Fabric, addresses: &[u32], gpus: u32, rng: &mut Rng) {
    let (first, one) = loop {
        let (first, tuple) = flow(fabric, addresses, gpus, rng);
        if fabric.path_from(Start::Link(first), &tuple).links().len() > 3 {
            break (first, tuple);
        }
    };
    let weft_route::End::Router(leaf) = fabric.to(first) else { panic!("a host's link") };
    let from = fabric.path_from(Start::Link(first), &one).links()[1];
    let flows: Vec<Suspect> = (0..1000)
        .map(|number| Suspect {
            flow: Flow::V4(FiveTuple { src_port: 0xc000 + number, ..one }),
            start: Start::Link(first),
            rate: 100_000_000,
            peak: 100_000_000,
            error_percent: 6,
            windows: 6,
        })
        .collect();
    // The link that the flows leave is full.
    let mut loads = vec![0u64; fabric.links()];
    loads[from.index()] = fabric.rate(from).as_bps();
    let next_hops = fabric.router(leaf).groups.iter().map(|group| group.members.len()).max();
    let rules = MoveRules { max_percent: 100, margin_percent: 0, ..MoveRules::default() };
    let began = clock();
    let none = BTreeSet::new();
    let query = MoveQuery { router: leaf, from, flows: &flows, in_change: &none };
    let decision = decide(fabric, &loads[..], &query, |_, _, _| false, &rules);
    println!(
        "  move: {:.1} ms, 1000 flows, {} next hops: {}",
        began.elapsed().as_secs_f64() * 1e3,
        next_hops.unwrap_or(0),
        decision
            .map_or_else(|none| none.to_string(), |it| format!("by {} ports", it.members.len()))
    );
}

/// Times the announcement of all flows as one job.
fn plan(fabric: Fabric, starts: &[(LinkId, FiveTuple)]) {
    let rate = BitRate::gbps(50).expect("it is not zero");
    let pair = |&(first, tuple): &(LinkId, FiveTuple)| Pair {
        src: Ipv4Addr::from_bits(tuple.src).into(),
        first: Some(first),
        dst: Ipv4Addr::from_bits(tuple.dst).into(),
        rate,
        port: None,
    };
    let pairs: Vec<Pair> = starts.iter().map(pair).collect();
    let mut controller = Controller::new(ControllerConfig::default(), fabric);
    let search = PortSearch { entropy: Entropy::default(), tries: 8 };
    let began = clock();
    let announced = controller
        .announce("all", &pairs, search, Seed(1), Instant::EPOCH)
        .expect("every flow arrives");
    let took = began.elapsed();
    let event = controller.poll_event().expect("it says what it planned");
    println!(
        "  plan: {:.2} s, {} ports, 8 tried each; {}",
        took.as_secs_f64(),
        announced.ports.len(),
        event.text
    );
}

fn per(took: Wall, count: usize) -> f64 {
    took.as_secs_f64() * 1e9 / count as f64
}
