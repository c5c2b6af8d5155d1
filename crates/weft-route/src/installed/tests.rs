//! Tests that every fault is named.

use super::*;
use crate::Fabric;

/// Two leaves with a host each, two spines.
pub(crate) const FABRIC: &str = include_str!("../../tests/golden/installed/two-by-two.toml");

fn refusal(change: impl FnOnce(&mut Installed)) -> String {
    let mut installed: Installed = toml::from_str(FABRIC).unwrap();
    change(&mut installed);
    Fabric::new(installed).unwrap_err().to_string()
}

#[test]
fn an_installed_state_reads_back_as_toml_and_as_json() {
    let installed: Installed = toml::from_str(FABRIC).unwrap();
    let text = toml::to_string(&installed).unwrap();
    assert_eq!(toml::from_str::<Installed>(&text).unwrap(), installed);
    let text = serde_json::to_string(&installed).unwrap();
    assert_eq!(serde_json::from_str::<Installed>(&text).unwrap(), installed);
    assert!(Fabric::new(installed).is_ok());
}

#[test]
fn an_unknown_key_is_refused() {
    let error = toml::from_str::<Installed>("[[router]]\nname = \"a\"\nspeed = 1").unwrap_err();
    assert!(error.to_string().contains("unknown field `speed`"), "{error}");
}

#[test]
fn an_unknown_port_is_named_with_the_nearest() {
    let message = refusal(|it| it.routers[0].groups[1].members[0].port = "s9".into());
    let want = "router \"leaf-0\": group \"up\" names no port \"s9\", did you mean \"s0\"? (known: h0, s0, s1)";
    assert_eq!(message, want);
}

#[test]
fn invalid_cables_are_named() {
    let peer =
        |router: &str, port: &str| Some(Cable::Peer { router: router.into(), port: port.into() });
    let message = refusal(|it| it.routers[0].ports[1].to = peer("leaf-0", "s1"));
    assert!(
        message.starts_with("router \"leaf-0\": the cable of port \"s0\" comes back"),
        "{message}"
    );
    let message = refusal(|it| it.routers[0].ports[1].to = peer("spine-1", "l0"));
    assert_eq!(
        message,
        "router \"spine-1\": port \"l0\" has two cables, to \"s0\" of \"leaf-0\" and to \"s1\" of \
         \"leaf-0\"; correct one of the three `to`"
    );
    let message = refusal(|it| it.routers[0].ports[1].to = peer("spine-9", "l0"));
    assert!(message.contains("the cable of port \"s0\" names no router \"spine-9\""), "{message}");
}

#[test]
fn groups_that_cannot_forward_are_named() {
    let message = refusal(|it| it.routers[0].groups[1].members.clear());
    assert!(message.starts_with("router \"leaf-0\": group \"up\" has no members"), "{message}");
    let message = refusal(|it| it.routers[0].groups[1].kind = GroupKind::Single);
    assert!(message.contains("is single but has 2 members"), "{message}");
    let message =
        refusal(|it| it.routers[0].groups[1].kind = GroupKind::Resilient { buckets: vec![0, 2] });
    assert!(message.contains("has a bucket for member 2"), "{message}");
}

#[test]
fn a_secret_seed_and_a_double_route_are_named() {
    let hash = RouterHash::Linux { policy: 3, fields: 0x37, seed: 0 };
    let message = refusal(|it| it.routers[0].hash = hash);
    assert!(message.contains("hash seed 0 stands for a secret"), "{message}");
    let message = refusal(|it| {
        let route = it.routers[0].routes[0].clone();
        it.routers[0].routes.push(route);
    });
    assert!(message.contains("has two routes to 10.1.0.2/32"), "{message}");
}
