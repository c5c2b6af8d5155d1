use weft_units::{Rng, Seed};
use weft_wire::EtherType;

use super::*;
use crate::example::{ethernet, icmp, packet, parsed, tcp, udp};
use crate::{Ports, TcpFlags, Transport, protocol};

fn acl(rules: &[&str]) -> Acl {
    with_sets(rules, &Sets::new()).unwrap()
}

fn with_sets(rules: &[&str], sets: &Sets) -> Result<Acl, AclError> {
    let rules = rules.iter().map(|rule| rule.parse().unwrap()).collect();
    Acl::new(&AclConfig { name: "edge".into(), default: Action::Deny, rules }, sets)
}

fn tcp_to(source: &str, destination: &str, port: u16) -> Frame {
    parsed(&packet(
        source,
        destination,
        protocol::TCP,
        &tcp((40_000, port), TcpFlags::SYN, &[], &[]),
    ))
}

#[test]
fn the_first_rule_by_priority_decides() {
    let mut acl = acl(&[
        "300 deny ingress tcp name rest",
        "100 allow ingress tcp from 10.0.0.0/8 to any port 80-90 name web",
        "200 deny ingress any from 10.0.0.1 name alice",
        "200 allow ingress any from 10.0.0.0/24 name late",
    ]);
    let mut evaluate = |frame: &Frame| {
        let decision = acl.evaluate(Direction::Ingress, frame);
        assert_eq!(acl.explain(Direction::Ingress, frame).action, decision.action);
        let rule = acl.explain(Direction::Ingress, frame).rule;
        (decision.action, rule.map_or_else(String::new, |rule| rule.name.clone()))
    };
    let (allow, deny) = (Action::Allow, Action::Deny);
    assert_eq!(evaluate(&tcp_to("10.0.0.1", "10.0.0.2", 80)), (allow, "web".into()));
    assert_eq!(evaluate(&tcp_to("10.0.0.1", "10.0.0.2", 91)), (deny, "alice".into()));
    assert_eq!(evaluate(&tcp_to("10.0.0.3", "10.0.0.2", 91)), (allow, "late".into()));
    assert_eq!(evaluate(&tcp_to("10.1.0.3", "10.0.0.2", 79)), (deny, "rest".into()));
    assert_eq!(evaluate(&tcp_to("2001:db8::1", "2001:db8::2", 80)), (deny, "rest".into()));
    let datagram = parsed(&packet("10.1.0.1", "10.0.0.2", protocol::UDP, &udp(1, 80, &[])));
    assert_eq!(evaluate(&datagram), (deny, String::new()));
    let explained =
        acl.explain(Direction::Ingress, &tcp_to("10.0.0.1", "10.0.0.2", 91)).to_string();
    assert_eq!(explained, "deny by edge: 200 deny ingress any from 10.0.0.1 name alice");
    let explained = acl.explain(Direction::Egress, &datagram).to_string();
    assert_eq!(explained, "deny by edge: no rule matches");
    let hits: Vec<_> = acl.rules().map(|(rule, hits)| (rule.name.as_str(), hits)).collect();
    assert_eq!(hits, [("web", 1), ("alice", 1), ("late", 1), ("rest", 2)]);
}

#[test]
fn neighbour_discovery_passes_and_other_protocols_get_the_default() {
    let acl = acl(&["allow ingress any"]);
    let mut arp = vec![0, 1, 8, 0, 6, 4, 0, 1];
    arp.resize(28, 0);
    let arp = parsed(&ethernet(EtherType::ARP, &arp));
    let other = parsed(&ethernet(EtherType(0x88cc), &[0; 50]));
    assert_eq!(acl.explain(Direction::Ingress, &arp).action, Action::Allow);
    assert_eq!(acl.explain(Direction::Ingress, &other).action, Action::Deny);
    let acl = self::acl(&["deny ingress any"]);
    let mut discovery = packet("fe80::1", "ff02::1:ff00:2", 58, &icmp(135, 0, 0, &[0; 16]));
    assert_eq!(acl.explain(Direction::Ingress, &parsed(&discovery)).action, Action::Allow);
    discovery[21] = 64;
    assert_eq!(acl.explain(Direction::Ingress, &parsed(&discovery)).action, Action::Deny);
}

#[test]
fn icmp_is_distinguished_by_type_and_code() {
    let acl = acl(&["allow ingress icmp type 8", "allow ingress icmpv6 type 1 code 4"]);
    let ping = |kind, code| parsed(&packet("10.0.0.1", "10.0.0.2", 1, &icmp(kind, code, 0, &[])));
    let v6 =
        |kind, code| parsed(&packet("2001:db8::1", "2001:db8::2", 58, &icmp(kind, code, 0, &[])));
    let action = |frame| acl.explain(Direction::Ingress, &frame).action;
    assert_eq!(action(ping(8, 0)), Action::Allow);
    assert_eq!(action(ping(0, 0)), Action::Deny);
    assert_eq!(action(v6(1, 4)), Action::Allow);
    assert_eq!(action(v6(1, 3)), Action::Deny);
}

#[test]
fn later_fragments_pass_where_a_first_fragment_could() {
    let fragment = |units: u8| {
        let mut bytes = packet("10.0.0.1", "10.0.0.2", protocol::UDP, &udp(1, 53, &[0; 16]));
        bytes[20] = 0x20;
        bytes[21] = units;
        parsed(&bytes)
    };
    assert_eq!(fragment(3).ip().unwrap().transport, Transport::LaterFragment);
    let action =
        |rules: &[&str], units| acl(rules).explain(Direction::Ingress, &fragment(units)).action;
    let some = ["allow ingress udp to any port 53"];
    assert_eq!((action(&some, 0), action(&some, 3)), (Action::Allow, Action::Allow));
    let other = ["allow ingress udp to any port 54"];
    assert_eq!((action(&other, 0), action(&other, 3)), (Action::Deny, Action::Allow));
    let except = ["1 deny ingress udp to any port 53", "2 allow ingress udp"];
    assert_eq!((action(&except, 0), action(&except, 3)), (Action::Deny, Action::Allow));
    let nobody = ["1 deny ingress udp from 10.0.0.1", "2 allow ingress udp to any port 53"];
    assert_eq!((action(&nobody, 0), action(&nobody, 3)), (Action::Deny, Action::Deny));
}

#[test]
fn sets_stand_for_their_prefixes() {
    let mut sets = Sets::new();
    sets.insert(
        "office".into(),
        vec!["10.0.0.0/24".parse().unwrap(), "2001:db8::1".parse().unwrap()],
    );
    sets.insert("nobody".into(), vec![]);
    let rules = ["allow ingress tcp from @office to any port 22", "allow ingress tcp from @nobody"];
    let acl = with_sets(&rules, &sets).unwrap();
    let action = |source, destination| {
        acl.explain(Direction::Ingress, &tcp_to(source, destination, 22)).action
    };
    assert_eq!(action("10.0.0.7", "10.9.0.1"), Action::Allow);
    assert_eq!(action("10.0.1.7", "10.9.0.1"), Action::Deny);
    assert_eq!(action("2001:db8::1", "2001:db8::2"), Action::Allow);
    assert_eq!(action("2001:db8::2", "2001:db8::1"), Action::Deny);
    let error = with_sets(&["allow ingress any from @offce"], &sets).unwrap_err().to_string();
    assert!(error.contains("did you mean \"office\"?"), "{error}");
    let large = (0..2000_u32).map(|host| Prefix::of(core::net::IpAddr::V4(host.into()))).collect();
    sets.insert("large".into(), large);
    let error = with_sets(&["allow ingress any from @large to @large"], &sets).unwrap_err();
    assert_eq!(error, AclError::TooMany { list: "edge".into() });
}

/// Returns `true` if a rule matches by its definition, without any index.
fn matches(rule: &Rule, headers: &Headers) -> bool {
    let net = |net: &Net, address| match net {
        Net::Any => true,
        Net::Prefix(prefix) => prefix.contains(address),
        Net::Set(_) => unreachable!("none is drawn"),
    };
    let (source, destination, types) = match headers.upper {
        Upper::Ports { source, destination } => (Some(source), Some(destination), None),
        Upper::Icmp { kind, code } => (None, None, Some((kind, code))),
        _ => (None, None, None),
    };
    let ports = |ports: Option<Ports>, port: Option<u16>| {
        ports.is_none_or(|ports| {
            ports == Ports::ALL || port.is_some_and(|port| ports.contains(port))
        })
    };
    let upper = match headers.upper {
        Upper::Elsewhere => {
            let plain = ports(rule.from.ports, None) && ports(rule.to.ports, None);
            rule.action == Action::Allow || (plain && rule.icmp.is_none())
        }
        _ => {
            let icmp = rule.icmp.is_none_or(|(kind, code)| {
                types
                    .is_some_and(|types| types.0 == kind && code.is_none_or(|code| types.1 == code))
            });
            ports(rule.from.ports, source) && ports(rule.to.ports, destination) && icmp
        }
    };
    rule.protocol.is_none_or(|protocol| protocol == headers.protocol)
        && net(&rule.from.net, headers.source)
        && net(&rule.to.net, headers.destination)
        && upper
}

/// Returns one of few addresses, so that rules overlap and packets hit them.
fn address(v4: bool, rng: &mut Rng) -> core::net::IpAddr {
    let bits = rng.next_u32() & 0x0101_0301;
    if v4 {
        core::net::IpAddr::V4(bits.into())
    } else {
        core::net::IpAddr::V6((u128::from(bits) << 96).into())
    }
}

fn random_ends(v4: bool, with_ports: bool, rng: &mut Rng) -> crate::Ends {
    let len = u8::try_from([0, 8, 16, 24, 32, 31][rng.index(6)]).unwrap();
    let prefix = Prefix::new(address(v4, rng), len).unwrap();
    let net = if rng.chance(1, 3) { Net::Any } else { Net::Prefix(prefix) };
    let first = u16::try_from(rng.below(20)).unwrap();
    let last = first + u16::try_from(rng.below(10)).unwrap();
    let ports = [
        None,
        Ports::new(first, last),
        Ports::new(first, first),
        Some(Ports::ALL),
        Ports::new(first, u16::MAX),
    ];
    crate::Ends { net, ports: if with_ports { ports[rng.index(5)] } else { None } }
}

fn random_rule(rng: &mut Rng) -> Rule {
    let v4 = rng.chance(2, 3);
    let protocol = [None, Some(6), Some(17), Some(if v4 { 1 } else { 58 }), Some(47)][rng.index(5)];
    let with_ports = matches!(protocol, Some(6 | 17));
    let code = rng.chance(1, 2).then_some(0);
    let icmp = matches!(protocol, Some(1 | 58)) && rng.chance(1, 2);
    Rule {
        priority: u32::try_from(rng.below(10)).unwrap(),
        protocol,
        from: random_ends(v4, with_ports && rng.chance(1, 2), rng),
        to: random_ends(v4, with_ports, rng),
        icmp: icmp.then_some((8, code)),
        ..Rule::new([Action::Allow, Action::Deny][rng.index(2)], Direction::Ingress)
    }
}

/// Checks that the index finds the same rule as a search over every rule in order.
#[test]
fn the_index_finds_the_first_rule_that_matches() {
    let mut found = 0;
    for seed in 0..300 {
        let mut rng = Seed(seed).child("acl", 0).rng();
        let count = [1, 10, 100, 400][rng.index(4)];
        let rules: Vec<_> = (0..count).map(|_| random_rule(&mut rng)).collect();
        let config = AclConfig { name: String::new(), default: Action::Deny, rules };
        let acl = Acl::new(&config, &Sets::new()).unwrap();
        for _ in 0..200 {
            let v4 = rng.chance(2, 3);
            let port = |rng: &mut Rng| u16::try_from(rng.below(30)).unwrap();
            let (protocol, upper) = match rng.below(5) {
                0 => (47, Upper::Nothing),
                1 => (
                    if v4 { 1 } else { 58 },
                    Upper::Icmp { kind: 8, code: rng.next_u64().to_le_bytes()[0] & 1 },
                ),
                2 => (17, Upper::Elsewhere),
                _ => {
                    let upper =
                        Upper::Ports { source: port(&mut rng), destination: port(&mut rng) };
                    ([6, 17][rng.index(2)], upper)
                }
            };
            let headers = Headers {
                source: address(v4, &mut rng),
                destination: address(v4, &mut rng),
                protocol,
                upper,
            };
            let expected = acl.rules.iter().position(|rule| matches(rule, &headers));
            let decision = acl.decide_headers(Direction::Ingress, &headers);
            let rule = decision.rule.map(|rule| rule as usize);
            assert_eq!(rule, expected, "seed {seed}: {headers:?}");
            found += u64::from(rule.is_some());
        }
    }
    assert!((10_000..55_000).contains(&found), "{found} of 60,000 matched a rule");
}
