use std::net::Ipv4Addr;

use weft_route::installed::{Cable, GroupKind, Ipv6, PortState, RouterHash, Target};

use super::super::iproute::parse;
use super::*;
use crate::{Inventory, Method, PortEntry};

/// The answer of a namespace with two links (iproute2 6.1): a weighted multipath route, a weighted group, a resilient
/// one, a controller's route, one over an IPv6 neighbour, a black hole.
const SHOWN: &str = include_str!("../../../tests/golden/tables/shown.txt");

fn entry() -> RouterEntry {
    let to = Some(Cable::Host(Ipv4Addr::new(10, 1, 0, 2).into()));
    let port = PortEntry { name: "s0".into(), speed: "1Gbps".parse().ok(), to };
    RouterEntry {
        name: "l0".into(),
        reach: vec![],
        agent: [10, 0, 0, 1].into(),
        sources: vec![],
        apply: Method::Kernel,
        ports: vec![port],
    }
}

fn converted(text: &str) -> Result<Router, SteerError> {
    let (shown, _) = parse(text).map_err(|part| SteerError::Answer {
        router: "l0".into(),
        what: part.what,
        reason: part.fault,
    })?;
    router(&entry(), &shown)
}

#[test]
fn tables_of_linux_are_read_in_the_kernels_order() {
    let router = converted(SHOWN).unwrap();
    assert_eq!(router.hash, RouterHash::Linux { policy: 0, fields: 7, seed: 0 });
    assert!(router.ignore_linkdown);
    let [s0, s1] = &router.ports[..] else { panic!("{:?}", router.ports) };
    assert_eq!((s0.name.as_str(), s0.ifindex, s0.state), ("s0", 2, PortState::Up));
    assert_eq!((s0.speed, s1.speed), (BitRate::gbps(1).unwrap(), BitRate::gbps(10).unwrap()));
    assert_eq!((s0.to.is_some(), s1.to.is_some()), (true, false));

    let route = |to: &str| router.routes.iter().find(|it| it.to == to.parse().unwrap()).unwrap();
    let group = |to: &str| {
        let Target::Group(name) = &route(to).via else { panic!("{to}: {:?}", route(to)) };
        router.groups.iter().find(|group| group.name == *name).unwrap()
    };
    let members = |to: &str| -> Vec<(&str, u32)> {
        group(to).members.iter().map(|it| (it.port.as_str(), it.weight)).collect()
    };
    assert_eq!(members("10.2.0.0/16"), [("s0", 3), ("s1", 1)]);
    assert_eq!(group("10.2.0.0/16").kind, GroupKind::HashThreshold);
    assert_eq!(members("10.3.0.0/16"), [("s0", 3), ("s1", 1)]);
    assert_eq!(group("10.3.0.0/16").name, "10");
    assert_eq!(group("10.4.0.0/16").kind, GroupKind::Resilient { buckets: vec![1, 1, 0, 0] });
    assert_eq!(
        (route("10.5.0.0/16").via.clone(), route("10.6.0.0/16").via.clone()),
        (Target::Blackhole, Target::Unreachable)
    );
    assert!(route("10.2.0.2/32").steered && !route("10.7.0.0/16").steered);
    assert_eq!(members("10.2.0.2/32"), [("s0", 1)]);

    assert_eq!(router.ipv6, Some(Ipv6 { policy: 3, fields: 63, ignore_linkdown: true }));
    assert_eq!(members("fd00:2::/32"), [("s1", 2), ("s0", 1)]);
    assert!(route("fd00:2::2").steered && !route("fd00:2::/32").steered);
    assert_eq!(route("fd00:3::/32").via, Target::Unreachable);
    let default = &group("::/0").members[0];
    assert_eq!((default.port.as_str(), default.via), ("s1", "fe80::1".parse().ok()));
    // A link-local prefix is no route of the fabric.
    assert!(router.routes.iter().all(|route| route.to != "fe80::/64".parse().unwrap()));
}

#[test]
fn next_hops_on_dead_links_are_left_out() {
    // The kernel's output after `ip link set s1 down`.
    let dead = SHOWN
        .replace(
            r#""dev":"s1","weight":1,"flags":[]"#,
            r#""dev":"s1","weight":1,"flags":["dead","linkdown"]"#,
        )
        .replacen(
            r#""ifname":"s1","flags":["BROADCAST","MULTICAST","UP","LOWER_UP"]"#,
            r#""ifname":"s1","flags":["BROADCAST","MULTICAST"]"#,
            1,
        );
    let router = converted(&dead).unwrap();
    assert_eq!(router.ports[1].state, PortState::Down);
    let group = router.groups.iter().find(|group| group.name == "10.2.0.0/16").unwrap();
    assert_eq!((group.kind.clone(), group.members.len()), (GroupKind::Single, 1));
}

#[test]
fn a_neighbour_that_does_not_answer_is_passed_over_in_objects_only() {
    let neighbours = r#"[{"dst":"10.100.1.2","dev":"s1","state":["FAILED"]}]"#;
    let mut parts: Vec<&str> = SHOWN.split("--- weft ---\n").collect();
    parts[4] = neighbours;
    let router = converted(&parts.join("--- weft ---\n")).unwrap();
    let unreachable = |name: &str| -> Vec<bool> {
        let group = router.groups.iter().find(|group| group.name == name).unwrap();
        group.members.iter().map(|member| member.unreachable).collect()
    };
    assert_eq!(unreachable("10"), [false, true]);
    assert_eq!(unreachable("10.2.0.0/16"), [false, false]);
}

#[test]
fn invalid_answers_are_named() {
    for (damage, words) in [
        (("\"dst\":\"10.3.0.0/16\"", "\"dst\":\"10.3/16\""), "cannot parse a route"),
        (("\"nhid\":10", "\"nhid\":77"), "nexthop object 77 is gone"),
        (("\"index\":3", "\"index\":9"), "bucket 9 of nexthop group 11"),
        (("[{\"ifindex\"", "[{\"ifindx\""), "cannot parse its links"),
        (("\n7\n", "\nseven\n"), "\"seven\" is no number"),
    ] {
        let text = SHOWN.replacen(damage.0, damage.1, 1);
        assert_ne!(text, SHOWN, "{damage:?} is not in the answer");
        let error = converted(&text).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
    // An answer cut at any byte gives an error or a smaller table, never a panic.
    (0..SHOWN.len()).for_each(|length| drop(converted(&SHOWN[..length])));
}

#[test]
fn the_read_tables_form_a_fabric() {
    let mut router = converted(SHOWN).unwrap();
    router.hash = RouterHash::Linux { policy: 3, fields: 0x37, seed: 1 };
    let installed = weft_route::Installed { routers: vec![router] };
    let fabric = weft_route::Fabric::new(installed).unwrap();
    assert_eq!(fabric.links(), 3);
    assert!(Inventory { routers: vec![entry()] }.check().is_ok());
}
