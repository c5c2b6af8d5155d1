//! Tests of paths, predicted from tables.

use alloc::collections::BTreeMap;
use alloc::string::ToString;
use alloc::vec::Vec;

use weft_topo::hash::linux::{Fields, Policy, multipath_hash, multipath_hash6, select_weighted};
use weft_topo::hash::{FiveTuple, FiveTuple6};
use weft_units::{Rng, Seed};

use super::*;
use crate::installed::*;
use crate::{Flow, Outcome, Start};

const TWO_BY_TWO: &str = include_str!("../../tests/golden/installed/two-by-two.toml");

fn installed() -> Installed {
    toml::from_str(TWO_BY_TWO).unwrap()
}

fn tuple(port: u16) -> FiveTuple {
    FiveTuple { src: 0x0a01_0002, dst: 0x0a02_0002, src_port: port, dst_port: 4791, protocol: 17 }
}

fn names(fabric: &Fabric, path: &crate::Path) -> Vec<String> {
    path.links().iter().map(|&link| fabric.name(link).to_string()).collect()
}

#[test]
fn a_flow_goes_where_the_leafs_hash_sends_it() {
    let fabric = Fabric::new(installed()).unwrap();
    for port in 49_152..49_652 {
        let path = fabric.path(&tuple(port));
        let hash = multipath_hash(Policy::Fields(Fields::FIVE_TUPLE), 1000, &tuple(port));
        let spine = select_weighted(hash, &[1, 1]).unwrap();
        let want = [
            "host 10.1.0.2 → leaf-0".to_string(),
            alloc::format!("leaf-0 s{spine} → spine-{spine}"),
            alloc::format!("spine-{spine} l1 → leaf-1"),
            "leaf-1 h1 → host 10.2.0.2".to_string(),
        ];
        assert_eq!(names(&fabric, &path), want);
        assert!(path.arrives());
    }
}

#[test]
fn weights_failures_and_overrides_count_as_in_linux() {
    let mut it = installed();
    let leaf = &mut it.routers[0];
    leaf.groups[1].members[0].weight = 3;
    let fabric = Fabric::new(it.clone()).unwrap();
    let first = |fabric: &Fabric, port| fabric.path(&tuple(port)).links()[1];
    let s0 = fabric.link_of_port(RouterId(0), "s0").unwrap();
    let s1 = fabric.link_of_port(RouterId(0), "s1").unwrap();
    for port in 49_152..49_652 {
        let hash = multipath_hash(Policy::Fields(Fields::FIVE_TUPLE), 1000, &tuple(port));
        let want = [s0, s1][select_weighted(hash, &[3, 1]).unwrap()];
        assert_eq!(first(&fabric, port), want);
    }
    // A member without carrier is left out, unless the router ignores link state.
    it.routers[0].ports[1].state = PortState::NoCarrier;
    let fabric = Fabric::new(it.clone()).unwrap();
    assert!((49_152..49_652).all(|port| first(&fabric, port) == s1));
    it.routers[0].ignore_linkdown = false;
    let blind = Fabric::new(it.clone()).unwrap();
    let lost = (49_152..49_652).filter(|&port| first(&blind, port) == s0).count();
    assert!(lost > 300 && blind.path(&tuple(49_152)).links().len() > 1);
    let down = (49_152..).find(|&port| first(&blind, port) == s0).unwrap();
    assert_eq!(blind.path(&tuple(down)).outcome, Outcome::Down(s0));
    // A controller's route for one address. When its next hop is down, the wider route applies again.
    let leaf = &mut it.routers[0];
    leaf.ignore_linkdown = true;
    leaf.ports[1].state = PortState::Up;
    let member = leaf.groups[1].members[0].clone();
    leaf.groups.push(Group {
        name: "steered".into(),
        kind: GroupKind::Single,
        members: [member].into(),
    });
    let to = "10.2.0.2".parse().unwrap();
    leaf.routes.push(Route { to, via: Target::Group("steered".into()), steered: true });
    let mut fabric = Fabric::new(it.clone()).unwrap();
    assert!((49_152..49_652).all(|port| first(&fabric, port) == s0));
    it.routers[0].ports[1].state = PortState::Down;
    fabric.replace(it.routers[0].clone()).unwrap();
    assert!((49_152..49_652).all(|port| first(&fabric, port) == s1));
}

#[test]
fn an_unreachable_neighbour_is_passed_over_without_moving_the_others() {
    let mut it = installed();
    let leaf = &mut it.routers[0];
    let port = |name: &str, ifindex| Port {
        name: name.into(),
        ifindex,
        to: None,
        ..leaf.ports[1].clone()
    };
    let more = [port("s2", 7), port("s3", 8)];
    leaf.ports.extend(more);
    let member = leaf.groups[1].members[0].clone();
    leaf.groups[1].members =
        ["s0", "s1", "s2", "s3"].map(|port| Member { port: port.into(), ..member.clone() }).into();
    let whole = Fabric::new(it.clone()).unwrap();
    it.routers[0].groups[1].members[3].unreachable = true;
    it.routers[0].groups[1].members[1].unreachable = true;
    let fabric = Fabric::new(it).unwrap();
    let first = |fabric: &Fabric, port| fabric.path(&tuple(port)).links()[1].0;
    for port in 49_152..49_652 {
        // The links of ports s0 to s3 are 1 to 4: flows of s1 go to the next port, those of s3 to the first.
        let want = match first(&whole, port) {
            2 => 3,
            4 => 1,
            other => other,
        };
        assert_eq!(first(&fabric, port), want);
    }
}

#[test]
fn buckets_decide_in_a_resilient_group_and_dead_ones_are_filled() {
    let mut it = installed();
    let buckets: Vec<u16> = (0..8).map(|bucket| bucket % 2).collect();
    it.routers[0].groups[1].kind = GroupKind::Resilient { buckets };
    let fabric = Fabric::new(it.clone()).unwrap();
    for port in 49_152..49_352 {
        let hash = multipath_hash(Policy::Fields(Fields::FIVE_TUPLE), 1000, &tuple(port));
        assert_eq!(fabric.path(&tuple(port)).links()[1].0, 1 + hash % 8 % 2);
    }
    it.routers[0].ports[2].state = PortState::Down;
    let fabric = Fabric::new(it).unwrap();
    assert!((49_152..49_352).all(|port| fabric.path(&tuple(port)).links()[1].0 == 1));
}

#[test]
fn loops_and_black_holes_and_unknown_sources_have_names() {
    let mut it = installed();
    let unknown_source = FiveTuple { src: 1, ..tuple(49_152) };
    let nowhere = FiveTuple { dst: 0x0a09_0001, ..tuple(49_152) };
    let beside = FiveTuple { dst: 0x0a02_0003, ..tuple(49_152) };
    let fabric = Fabric::new(it.clone()).unwrap();
    assert_eq!(fabric.path(&unknown_source).outcome, Outcome::UnknownSource);
    assert!(matches!(fabric.path(&nowhere).outcome, Outcome::NoRoute(RouterId(2 | 3))));
    // leaf-1 sends packets for other addresses of its network up again.
    assert!(matches!(fabric.path(&beside).outcome, Outcome::Loop(_)));
    it.routers[1].routes[0].to = "10.2.0.0/16".parse().unwrap();
    for spine in &mut it.routers[2..] {
        spine.routes[0].via = Target::Blackhole;
        spine.routes.push(Route { to: nowhere_prefix(), via: Target::Unreachable, steered: false });
    }
    let fabric = Fabric::new(it).unwrap();
    assert_eq!(fabric.path(&beside).outcome, Outcome::Astray(HostId(1)));
    assert!(matches!(fabric.path(&nowhere).outcome, Outcome::Unreachable(_)));
    let back = FiveTuple { src: 0x0a02_0002, dst: 0x0a01_0002, ..tuple(1) };
    assert!(matches!(fabric.path(&back).outcome, Outcome::Blackhole(_)));
    let words = fabric.outcome(fabric.path(&back).outcome).to_string();
    assert!(
        words.starts_with("spine-") && words.ends_with("drops it by a blackhole route"),
        "{words}"
    );
}

fn nowhere_prefix() -> Prefix {
    "10.9.0.0/16".parse().unwrap()
}

#[test]
fn an_explanation_is_the_path_with_its_reasons() {
    let fabric = Fabric::new(installed()).unwrap();
    let host = fabric.links_of_host(HostId(0))[0];
    let (path, why) = fabric.explain(Start::Link(host), &tuple(49_152));
    assert_eq!(path, fabric.path(&tuple(49_152)));
    assert_eq!(why.hops.len(), 3);
    let leaf = &why.hops[0];
    assert_eq!(
        (leaf.router.as_str(), leaf.group.as_str(), leaf.kind),
        ("leaf-0", "up", "hash-threshold")
    );
    assert_eq!(leaf.prefix, Some(Prefix::ALL));
    assert_eq!(leaf.members.iter().map(|it| it.per_million).sum::<u32>(), 1_000_000);
    let taken = leaf.members.iter().find(|member| member.taken).unwrap();
    assert!(leaf.takes.contains(&taken.port));
    assert_eq!(why.hops[1].hash, None);
    assert_eq!(why.outcome, "arrives at 10.2.0.2");
}

#[test]
fn ipv6_uses_its_own_routes_and_its_own_hash() {
    let text = include_str!("../../tests/golden/installed/dual-stack.toml");
    let it: Installed = toml::from_str(text).unwrap();
    let fabric = Fabric::new(it.clone()).unwrap();
    assert_eq!(fabric.hosts(), 2);
    assert_eq!(fabric.host([10, 1, 0, 2]), Some(HostId(0)));
    let ends: [IpAddr; 2] = ["fd00:1::2", "fd00:2::2"].map(|it| it.parse().unwrap());
    assert_eq!(fabric.host(ends[1]), Some(HostId(1)));
    // Policy 0 at the leaf: the hash reads the label and ignores ports.
    for label in 0..200 {
        let flow = |port| -> Flow {
            let ends = "[fd00:1::2]:{port}>[fd00:2::2]:4791";
            ends.replace("{port}", port).parse::<Flow>().map(|it| labelled(it, label)).unwrap()
        };
        let Flow::V6(tuple) = flow("5") else { panic!("it is of IPv6") };
        let hash = multipath_hash6(Policy::Layer3, 1000, &tuple);
        let spine = u32::try_from(select_weighted(hash, &[1, 1]).unwrap()).unwrap();
        let path = fabric.path(&flow("5"));
        assert_eq!(fabric.to(path.links()[1]), End::Router(RouterId(2 + spine)));
        assert_eq!(path.outcome, Outcome::Delivered(HostId(1)));
        assert_eq!(path, fabric.path(&flow("6")));
    }
    // A packet without an IPv6 route is not sent by an IPv4 route.
    let mut less = it.clone();
    less.routers[0].routes.retain(|route| route.to.first().is_ipv4());
    let fabric = Fabric::new(less).unwrap();
    let flow: Flow = "fd00:1::2>fd00:2::2".parse().unwrap();
    assert_eq!(fabric.path(&flow).outcome, Outcome::NoRoute(RouterId(0)));
    assert!(fabric.path(&tuple(1)).arrives());
    // Two hosts share an address.
    let mut twice = it;
    twice.routers[1].ports[0].to = Some(Cable::Host(ends[0].into()));
    let error = Fabric::new(twice).unwrap_err().to_string();
    assert!(
        error.contains("fd00:1::2 belongs to two hosts, 10.1.0.2, fd00:1::2 and fd00:1::2"),
        "{error}"
    );
}

fn labelled(flow: Flow, flow_label: u32) -> Flow {
    match flow {
        Flow::V6(tuple) => Flow::V6(FiveTuple6 { flow_label, ..tuple }),
        Flow::V4(_) => flow,
    }
}

/// For any routes of both families, the flattened tables return the longest live prefix for every address.
#[test]
fn random_tables_give_the_longest_prefix() {
    for seed in 0..300 {
        let mut rng = Seed(seed).child("tables", 0).rng();
        let mut it = installed();
        let leaf = &mut it.routers[0];
        leaf.routes.clear();
        let mut routes = BTreeMap::new();
        for _ in 0..rng.below(30) {
            let to = address(&mut rng);
            let bits = if to.is_ipv4() { 33 } else { 129 };
            let to = Prefix::new(to, u8::try_from(rng.below(bits)).unwrap()).unwrap();
            let group = ["host", "up", "dead"][rng.index(3)];
            routes.insert(to, group);
        }
        let dead = Port {
            name: "d".into(),
            ifindex: 9,
            to: None,
            state: PortState::Down,
            ..leaf.ports[0].clone()
        };
        leaf.ports.push(dead);
        let member = Member { port: "d".into(), ..leaf.groups[0].members[0].clone() };
        leaf.groups.push(Group {
            name: "dead".into(),
            kind: GroupKind::Single,
            members: [member].into(),
        });
        leaf.routes = routes
            .iter()
            .map(|(&to, &group)| Route { to, via: Target::Group(group.into()), steered: false })
            .collect();
        let fabric = Fabric::new(it).unwrap();
        for _ in 0..200 {
            let dst = address(&mut rng);
            let alive = routes.iter().filter(|(to, group)| to.contains(dst) && **group != "dead");
            let want = alive.max_by_key(|(to, _)| to.len()).map(|(_, group)| *group);
            let flow = Flow::new((dst, 1).into(), (dst, 2).into(), 17).unwrap();
            let path = fabric.path_from(Start::Router(RouterId(0)), &flow);
            let got = path.links().first().map(|link| if link.0 == 0 { "host" } else { "up" });
            assert_eq!(got, want, "seed {seed}, address {dst}");
            let (_, why) = fabric.explain(Start::Router(RouterId(0)), &flow);
            let alive = routes.iter().filter(|(to, group)| to.contains(dst) && **group != "dead");
            assert_eq!(why.hops[0].prefix, alive.map(|(&to, _)| to).max_by_key(|to| to.len()));
        }
    }
}

fn address(rng: &mut Rng) -> IpAddr {
    // Addresses are drawn from a small set, so that prefixes nest and overlap.
    if rng.chance(1, 2) {
        let ends = [0, 1, 0xfd00 << 112, (0xfd00 << 112) + 2, u128::MAX - 1, u128::MAX];
        let address =
            ends[rng.index(ends.len())] ^ (u128::from(rng.chance(1, 3)) << rng.below(128));
        return core::net::Ipv6Addr::from_bits(address).into();
    }
    let ends = [0, 1, 0x0a00_0000, 0x0a02_0002, 0x0a02_0003, 0xffff_fffe, u32::MAX];
    let address = ends[rng.index(ends.len())] ^ (u32::from(rng.chance(1, 3)) << rng.below(32));
    core::net::Ipv4Addr::from_bits(address).into()
}

#[test]
fn hosts_behind_one_router_are_neighbours_in_a_ring() {
    let text = include_str!("../../tests/golden/installed/two-by-two.toml");
    let fabric = Fabric::new(toml::from_str(text).unwrap()).unwrap();
    let hosts = ["10.2.0.2", "10.1.0.2", "192.0.2.1", "10.2.0.2", "10.1.0.2"];
    let hosts = hosts.map(|host| host.parse().unwrap());
    // Leaf 0 comes first, ranks of one host stay in order, and an unknown host is last.
    let RingOrder { order, blocks } = fabric.ring_order(&hosts);
    assert_eq!((order, blocks), (vec![1, 4, 0, 3, 2], vec![0, 1, 2, 0, 1]));
}
