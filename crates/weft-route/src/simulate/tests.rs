//! The simulated fabrics forward as weft-topo's do.

use alloc::vec::Vec;

use weft_plan::ports::switch_hashes;
use weft_topo::hash::{FiveTuple, HashAlgorithm};
use weft_topo::{Failures, NodeId, Routes};
use weft_units::Seed;

use super::*;
use crate::{Fabric, LinkId, RouterId, Start};

/// Aggregated tables and routers' own hashes against weft-topo's routes and hashes, link by link,
/// with failed cables.
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
