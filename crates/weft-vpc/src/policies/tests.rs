use alloc::collections::BTreeMap;

use weft_units::{ByteCount, Instant};

use super::*;
use crate::example::{packet, parsed, tcp};
use crate::{Action, Direction, Pass, Refusal, TcpFlags, protocol};

/// The page of documentation whose files are tested here.
const PAGE: &str = include_str!("../../../../docs/policies.md");

/// Returns the TOML blocks of the page.
fn blocks() -> Vec<&'static str> {
    let parts: Vec<_> = PAGE.split("```toml\n").skip(1).collect();
    parts.into_iter().map(|part| part.split("```").next().unwrap()).collect()
}

fn policies() -> Policies {
    toml::from_str(blocks()[0]).unwrap()
}

#[derive(serde::Deserialize)]
struct Ports {
    port: BTreeMap<String, PortPolicies>,
}

fn port(name: &str) -> PortPolicies {
    toml::from_str::<Ports>(blocks()[1]).unwrap().port[name].clone()
}

fn segment(source: &str, destination: &str, ports: (u16, u16)) -> Vec<u8> {
    packet(source, destination, protocol::TCP, &tcp(ports, TcpFlags::SYN, &[], &[]))
}

#[test]
fn the_page_describes_the_effect_of_its_file() {
    let policies = policies();
    policies.check().unwrap();
    let web = port("web-1");
    let mut acl = policies.acl_of(&web).unwrap().unwrap();
    let mut groups = policies.security_groups_of(&web, (1, 2)).unwrap().unwrap();
    // Each row of the page's table: source, destination, port, decisions of list and group.
    let rows: Vec<Vec<_>> = PAGE
        .lines()
        .skip_while(|line| !line.starts_with("| from"))
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    assert!(rows.len() >= 6);
    for row in rows {
        let [from, to, to_port, list, group] = row[..] else { panic!("{row:?}") };
        let bytes = segment(from, to, (40_000, to_port.parse().unwrap()));
        let frame = parsed(&bytes);
        let direction = if to == "10.1.0.10" { Direction::Ingress } else { Direction::Egress };
        let action = acl.evaluate(direction, &frame).action;
        let explained = acl.explain(direction, &frame);
        let rule = explained.rule.map_or("no rule", |rule| &rule.name);
        assert_eq!(format!("{action}: {rule}"), list, "{row:?}");
        let own = web.source_guard().unwrap().allows(&frame, &bytes);
        assert_eq!(own, direction == Direction::Egress, "{row:?}");
        let verdict = groups.evaluate(direction, &frame, &bytes, Instant::EPOCH);
        let name = groups.explain(direction, &frame).rule.map(|rule| rule.name.clone());
        let says = match verdict {
            Ok(Pass::Rule(_)) => format!("allow: {}", name.unwrap()),
            Err(Refusal::Denied(None)) => "deny: no rule".into(),
            other => panic!("{other:?}"),
        };
        assert_eq!(says, group, "{row:?}");
    }
    let limit = web.egress.unwrap();
    limit.check().unwrap();
    assert_eq!(limit.burst, Some(ByteCount::mib(1)));
}

#[test]
fn the_page_reads_back_as_it_was_written() {
    let policies = policies();
    let text = toml::to_string(&policies).unwrap();
    assert_eq!(toml::from_str::<Policies>(&text).unwrap(), policies);
}

#[test]
fn mistakes_are_named() {
    let mistake = |change: fn(&mut Policies)| {
        let mut policies = policies();
        change(&mut policies);
        policies.check().unwrap_err().to_string()
    };
    let error = mistake(|policies| policies.acls.push(policies.acls[0].clone()));
    assert_eq!(error, "two access lists are called \"edge\"");
    let error = mistake(|policies| drop(policies.sets.insert("web".into(), Vec::new())));
    assert_eq!(error, "two sets or security groups are called \"web\"");
    let error = mistake(|policies| policies.sets.clear());
    assert!(error.contains("no set \"office\""), "{error}");
    let policies = policies();
    let wrong = PortPolicies { acl: Some("egde".into()), ..PortPolicies::default() };
    let error = policies.acl_of(&wrong).unwrap_err().to_string();
    assert!(error.starts_with("no access list \"egde\""), "{error}");
    let wrong = PortPolicies { security_groups: vec!["wep".into()], ..PortPolicies::default() };
    let error = policies.security_groups_of(&wrong, (1, 2)).unwrap_err().to_string();
    assert!(error.starts_with("no security group \"wep\", did you mean \"web\"?"), "{error}");
    let open = PortPolicies::default();
    assert!(policies.security_groups_of(&open, (1, 2)).unwrap().is_none());
    assert!(policies.acl_of(&open).unwrap().is_none());
    let error = toml::from_str::<Policies>("[[acl]]\nname = \"x\"\nrule = []").unwrap_err();
    assert!(error.to_string().contains("unknown field `rule`"), "{error}");
    let acl: Policies = toml::from_str("[[acl]]\nname = \"x\"").unwrap();
    assert_eq!(acl.acls[0].default, Action::Deny);
}
