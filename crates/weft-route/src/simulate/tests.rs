//! Tests that the simulated fabrics forward as weft-topo's do, and of whole runs.

use alloc::vec::Vec;

use weft_plan::ports::switch_hashes;
use weft_topo::hash::{FiveTuple, HashAlgorithm};
use weft_topo::{Failures, NodeId, Routes};
use weft_units::Seed;

use super::*;
use crate::fabric::End;
use crate::{Fabric, Flow, LinkId, RouterId, Start};

/// Compares paths by aggregated tables and routers' own hashes with weft-topo's routes and hashes, link by link, with
/// failed cables.
#[test]
fn paths_are_those_of_the_topologys_routes_and_hashes() {
    for (gpus, hash) in [
        (512, HashAlgorithm::Crc32),
        (1024, HashAlgorithm::LinuxFields),
        (5120, HashAlgorithm::Crc16Bisync),
    ] {
        let setup = Setup { gpus, hash, ..Setup::new(gpus, Collective::AllReduce) };
        let topology = setup.shape().build().unwrap();
        let mut failures = Failures::none();
        let mut rng = Seed(7).child("paths", 0).rng();
        let hashes = switch_hashes(&topology, hash, 8, Seed(3));
        for link in topology.link_ids() {
            let ends = topology.link(link);
            if !topology.is_host(ends.from) && !topology.is_host(ends.to) && rng.chance(1, 50) {
                failures.fail_link(link);
            }
        }
        let addresses =
            tables::addresses(&topology, &Routes::compute(&topology, &Failures::none()).unwrap());
        let routes = Routes::compute(&topology, &failures).unwrap();
        let fabric =
            Fabric::new(tables::installed(&topology, &failures, &routes, &hashes, &addresses))
                .unwrap();
        for _ in 0..3000 {
            let host = NodeId(u32::try_from(rng.below(gpus.into())).unwrap());
            let to = NodeId(u32::try_from(rng.below(gpus.into())).unwrap());
            if host == to {
                continue;
            }
            let ports = topology.ports(host);
            let first = ports[rng.index(ports.len())];
            let tuple = FiveTuple {
                src: addresses[host.index()],
                dst: addresses[to.index()],
                src_port: 0xc000 | u16::try_from(rng.below(1 << 14)).unwrap(),
                dst_port: 4791,
                protocol: 17,
            };
            let mut want = Vec::new();
            let mut at = topology.link(first).to;
            while at != to {
                let links = routes.next_links(at, to);
                let hash = hashes[at.index() - topology.hosts() as usize];
                let link = links[hash.select(&tuple, links.len())];
                let place = topology.ports(at).iter().position(|port| *port == link).unwrap();
                let number = RouterId(at.0 - topology.hosts());
                want.push(fabric.links_of(number).nth(place).unwrap());
                at = topology.link(link).to;
            }
            let leaf = RouterId(topology.link(first).to.0 - topology.hosts());
            let place = topology
                .ports(topology.link(first).to)
                .iter()
                .position(|port| *port == first.reverse());
            let down = fabric.links_of(leaf).nth(place.unwrap()).unwrap();
            let start = fabric.reverse(down).unwrap();
            let path = fabric.path_from(Start::Link(start), &tuple);
            assert!(path.arrives(), "{gpus}: {} {:?}", fabric.outcome(path.outcome), path);
            let got: Vec<LinkId> = path.links()[1..].into();
            assert_eq!(got, want, "{gpus} {hash:?}");
        }
    }
}

fn small(seed: u64) -> Setup {
    let setup = Setup::new(512, Collective::AllReduce);
    Setup { job_servers: 16, side_by_side: 4, windows: 30, change_every: 15, seed, ..setup }
}

fn run(setup: Setup) -> (Outcome, Vec<crate::installed::Router>) {
    let windows = setup.windows;
    let mut simulation = Simulation::new(setup).unwrap();
    for _ in 0..windows {
        simulation.step().unwrap();
    }
    let mut routers = simulation.switches().fabric.installed().routers.clone();
    for router in &mut routers {
        // A route that was applied twice is at another position.
        router.routes.sort_by_key(|route| route.to);
        router.groups.sort_by(|a, b| a.name.cmp(&b.name));
    }
    (simulation.outcome(), routers)
}

/// With refusals and failures, there are never more marks at the end with the controller than without, and the
/// steered routes of routers are those of the controller's moves.
#[test]
fn random_clusters_are_never_worse_with_a_controller() {
    for seed in 0..6 {
        let refused_percent = [0, 30][usize::try_from(seed % 2).unwrap()];
        let on =
            Setup { refused_percent, unplanned_percent: 50, failed_per_mille: 20, ..small(seed) };
        let (off, _) = run(Setup { controller: None, ..on.clone() });
        let mut simulation = Simulation::new(on.clone()).unwrap();
        for _ in 0..on.windows {
            simulation.step().unwrap();
        }
        let outcome = simulation.outcome();
        let last = |outcome: &Outcome| outcome.windows.last().unwrap().marks;
        assert!(last(&outcome) <= last(&off), "seed {seed}: {} > {}", last(&outcome), last(&off));
        assert!(outcome.congested_seconds <= off.congested_seconds, "seed {seed}");
        let routers = &simulation.switches().fabric.installed().routers;
        let installed: usize = routers
            .iter()
            .map(|router| router.routes.iter().filter(|route| route.steered).count())
            .sum();
        assert_eq!(installed, simulation.controller().unwrap().moves().count(), "seed {seed}");
    }
}

#[test]
fn a_controller_that_is_killed_repeatedly_reaches_the_state_of_one_that_is_not() {
    for seed in 0..3 {
        let setup = Setup { unplanned_percent: 50, ..small(seed) };
        let (whole, tables) = run(setup.clone());
        let (killed, other) = run(Setup { killed_percent: 40, ..setup });
        assert!(whole.stats.moves > 0, "seed {seed}: nothing was moved");
        assert_eq!((killed.windows, killed.stats), (whole.windows, whole.stats), "seed {seed}");
        assert!(other == tables, "seed {seed}: tables differ");
    }
}

/// Hosts have two cables here, and each can lead to the alarmed port. A flow may count as crossing a router only if it
/// uses the cable that leads through it.
#[test]
fn moves_are_of_flows_that_come_through_their_router() {
    let setup = Setup { collective: Collective::AllToAll, unplanned_percent: 100, ..small(1) };
    let mut simulation = Simulation::new(setup).unwrap();
    let (mut moved, mut foreign) = (0, Vec::new());
    for _ in 0..8 {
        simulation.step().unwrap();
        let fabric = &simulation.switches.fabric;
        for it in simulation.controller().unwrap().moves() {
            let router = End::Router(fabric.find(&it.router).unwrap());
            let comes = |&(flow, _): &(Flow, u64)| {
                let mut same = simulation.flows.iter().enumerate();
                same.any(|(number, other)| {
                    let mut links = simulation.routed.of(number).iter();
                    Flow::V4(other.tuple) == flow && links.any(|&it| fabric.from(it) == router)
                })
            };
            moved += it.flows.len();
            foreign.extend(it.flows.iter().filter(|flow| !comes(flow)).map(|flow| flow.0));
        }
    }
    assert!(moved > 500 && foreign.len() * 20 < moved, "{} of {moved}", foreign.len());
}

/// Random ports put up to half as many flows again on one of a NIC's two cables as on the other, and a leaf sends
/// several flows to each NIC. Only several moves for one destination, some of them behind the leaf, separate them.
#[test]
fn last_cables_are_shared_evenly_within_three_rounds() {
    for seed in 0..2 {
        let setup = Setup {
            collective: Collective::AllToAll,
            unplanned_percent: 100,
            change_every: 0,
            ..small(seed)
        };
        let even = Setup { controller: None, unplanned_percent: 0, ..setup.clone() };
        let even = Setup { failed_per_mille: 0, ..even };
        let (off, _) = run(Setup { controller: None, ..setup.clone() });
        let ((on, _), (even, _)) = (run(setup), run(even));
        let pace = |outcome: &Outcome| outcome.windows.last().unwrap().pace;
        let [off, on_pace, even] = [&off, &on, &even].map(pace);
        assert!(off < 0.8 * even && on_pace > 0.97 * even, "seed {seed}: {off} {on_pace} {even}");
        let [none, one, two, more] = on.stats.cleared_after;
        assert!(more * 10 < none + one + two, "seed {seed}: {:?}", on.stats);
    }
}

#[test]
fn settings_out_of_range_are_named() {
    for (setup, want) in [
        (Setup::new(100, Collective::AllReduce), "100 GPUs: a cluster has 512"),
        (Setup { job_servers: 1, ..small(1) }, "servers of a job is 1, expected 2"),
        (Setup { windows: 0, ..small(1) }, "windows is 0, expected 1 to 100000"),
    ] {
        let error = Simulation::new(setup).unwrap_err().to_string();
        assert!(error.starts_with(want), "{error}");
    }
}

/// The case in which a plan for the whole network is worse than random ports once cables are down: all-to-all in groups
/// of 8 and 16 servers.
#[test]
fn ports_planned_again_are_better_than_random_ones_with_cables_down() {
    for job_servers in [8, 16] {
        let setup = Setup {
            job_servers,
            side_by_side: 4,
            busy_percent: 50,
            windows: 1,
            change_every: 0,
            controller: None,
            ..Setup::new(1024, Collective::AllToAll)
        };
        let bandwidth = |unplanned_percent, replans| {
            let setup = Setup { unplanned_percent, replans, ..setup.clone() };
            Simulation::new(setup).unwrap().run().unwrap().bandwidth[0].1
        };
        let (random, once, again) =
            (bandwidth(100, false), bandwidth(0, false), bandwidth(0, true));
        assert!(once < random && again > 1.2 * random, "{job_servers}: {random} {once} {again}");
    }
}
