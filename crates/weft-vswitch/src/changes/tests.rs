use weft_vpc::{AclConfig, Action, Limit};

use super::*;
use crate::config::Network;
use crate::fleet::PortPoliciesObject;

const FILE: &str = r#"
[host]
address = "10.1.0.2"

[[network]]
vni = 100
peers = ["10.2.0.2"]

[[port]]
name = "web"
vni = 100
mac = "02:00:00:00:07:01"
vhost-user = { socket = "/run/web" }

[[route]]
vni = 100
to = "10.9.0.0/16"
via = "10.8.0.1"

[[route]]
vni = 100
to = "10.10.0.0/16"
via = "10.8.0.1"
"#;

fn config() -> Config {
    toml::from_str(FILE).unwrap()
}

fn changes(requests: &[Request]) -> Changes {
    Changes::from(requests.to_vec())
}

fn route(to: &str, via: &str) -> Request {
    let text = format!("vni = 100\nto = '{to}'\nvia = '{via}'\n");
    Request::SetRoute { route: toml::from_str(&text).unwrap() }
}

fn port(name: &str, mac: u8) -> Port {
    let text = format!(
        "name = '{name}'\nvni = 100\nmac = '02:00:00:00:07:{mac:02x}'\nvhost-user = {{ socket = '/run/{name}' }}"
    );
    toml::from_str(&text).unwrap()
}

fn limit(name: &str, mbps: u64) -> Request {
    let rate = weft_units::BitRate::bps(mbps * 1_000_000);
    let ingress = Some(Limit { rate, ..Limit::default() });
    Request::Limit { port: name.into(), ingress, egress: None }
}

fn acl(name: &str) -> Request {
    let acl = AclConfig { name: format!("{name}-list"), default: Action::Deny, rules: vec![] };
    Request::Acl { port: name.into(), acl: Some(acl) }
}

fn peer(address: &str, remove: bool) -> Request {
    Request::Peer { vni: 100, peer: address.parse().unwrap(), remove }
}

fn forget(to: &str) -> Request {
    Request::ForgetRoute { vni: 100, destination: to.parse().unwrap() }
}

#[test]
fn the_newest_change_of_an_item_counts_and_the_rest_is_the_files() {
    let changes = changes(&[
        route("10.9.0.0/16", "10.8.0.7"),
        route("10.9.0.0/16", "10.8.0.9"),
        route("10.11.0.0/16", "10.8.0.9"),
        forget("10.10.0.0/16"),
        peer("10.3.0.2", false),
        peer("10.2.0.2", true),
        Request::AddPort { port: port("db", 2).into() },
        limit("db", 5),
        limit("web", 7),
        acl("web"),
    ]);
    let changed = changes.apply(&config()).unwrap();
    let routes: Vec<_> = changed.routes.iter().map(|it| toml::to_string(it).unwrap()).collect();
    assert_eq!(routes.len(), 2);
    assert!(routes.iter().all(|route| route.contains("10.8.0.9")), "{routes:?}");
    assert_eq!(changed.networks[0].peers, ["10.3.0.2".parse().unwrap()].into());
    let rate = |name: &str| {
        let port = changed.ports.iter().find(|port| port.name == name).unwrap();
        port.policies.ingress.unwrap().rate.unwrap().as_bps()
    };
    assert_eq!((rate("db"), rate("web")), (5_000_000, 7_000_000));
    assert_eq!(changed.ports[0].policies.acl.as_deref(), Some("web-list"));
}

#[test]
fn a_removed_port_takes_its_policies_with_it() {
    let remove = Request::RemovePort { name: "web".into() };
    let changes = changes(&[limit("web", 7), acl("web"), remove.clone()]);
    assert_eq!(Vec::from(changes.clone()), [remove]);
    assert!(changes.apply(&config()).unwrap().ports.is_empty());
}

#[test]
fn a_change_that_the_file_has_or_whose_item_is_no_more_is_forgotten() {
    for known in [
        route("10.9.0.0/16", "10.8.0.1"),
        forget("10.11.0.0/16"),
        peer("10.2.0.2", false),
        peer("10.3.0.2", true),
        Request::AddPort { port: port_of_the_file().into() },
        Request::RemovePort { name: "db".into() },
        Request::Limit { port: "web".into(), ingress: None, egress: None },
        Request::Acl { port: "web".into(), acl: None },
        limit("db", 5),
        acl("db"),
        Request::Peer { vni: 101, peer: "10.3.0.2".parse().unwrap(), remove: false },
        Request::SetNetwork { network: config().networks[0].clone() },
    ] {
        let left = changes(std::slice::from_ref(&known)).without_known(&config());
        assert_eq!(left, Changes::default(), "{known:?}");
    }
    for kept in [
        vec![route("10.9.0.0/16", "10.8.0.2")],
        vec![forget("10.9.0.0/16")],
        vec![peer("10.2.0.2", true)],
        vec![limit("web", 5)],
        vec![acl("web")],
        vec![Request::AddPort { port: port("db", 2).into() }, limit("db", 5), acl("db")],
        vec![Request::SetNetwork {
            network: Network { reliable: false, ..config().networks[0].clone() },
        }],
    ] {
        let changes = changes(&kept);
        assert_eq!(changes.without_known(&config()), changes, "{kept:?}");
    }
}

fn port_of_the_file() -> Port {
    config().ports[0].clone()
}

#[test]
fn changes_are_written_as_requests_and_read_the_same() {
    let changes = changes(&[peer("10.3.0.2", false), route("10.9.0.0/16", "10.8.0.2"), acl("web")]);
    let text = serde_json::to_string(&changes).unwrap();
    assert!(text.starts_with(r#"[{"do":"peer""#), "{text}");
    assert_eq!(serde_json::from_str::<Changes>(&text).unwrap(), changes);
}

#[test]
fn changes_that_contradict_the_file_are_refused_with_the_fix() {
    let twice = Port { name: "other".into(), ..port("db", 2) };
    let changes = changes(&[Request::AddPort { port: twice.into() }]);
    let mut config = config();
    config.host.address = "10.2.0.2".parse().unwrap();
    let error = changes.apply(&config).unwrap_err().to_string();
    assert!(error.contains("network.peers") && error.contains("--discard-changes"), "{error}");
}

#[test]
fn a_port_has_the_groups_of_the_fleet_and_lets_nothing_pass_until_it_has_some() {
    let mut config = config();
    let mut pod = port("pod", 9);
    pod.labels = [("uid".to_owned(), "7".to_owned()), ("pod".into(), "a".into())].into();
    let groups_of = |config: &Config, pod: &Port| {
        let added = changes(&[Request::AddPort { port: pod.clone().into() }]);
        let changed = added.checked(config).unwrap();
        let groups = changed.ports.last().unwrap().policies.security_groups.clone();
        let rules = changed.policies.groups_of(&changed.ports.last().unwrap().policies).unwrap();
        (groups, rules.iter().map(|group| group.rules.len()).sum::<usize>())
    };
    assert_eq!(groups_of(&config, &pod), (vec![], 0));
    pod.await_policies = true;
    assert_eq!(groups_of(&config, &pod), (vec!["weft.awaited".to_owned()], 0));
    let own = |uid: &str, vni: u32, groups: &str| -> PortPoliciesObject {
        let text =
            format!(r#"{{"vni":{vni},"labels":{{"uid":"{uid}"}},"security-groups":[{groups}]}}"#);
        serde_json::from_str(&text).unwrap()
    };
    config.port_policies = vec![own("8", 100, ""), own("7", 101, "")];
    assert_eq!(groups_of(&config, &pod).0, ["weft.awaited"]);
    config.policies.security_groups = toml::from_str::<weft_vpc::Policies>(
        "[[security-group]]\nname = 'web'\nrules = ['allow ingress tcp to any port 80']",
    )
    .unwrap()
    .security_groups;
    config.port_policies.push(own("7", 100, r#""web""#));
    assert_eq!(groups_of(&config, &pod), (vec!["web".to_owned()], 1));
    // A pod that no policy selects.
    config.port_policies.last_mut().unwrap().security_groups.clear();
    assert_eq!(groups_of(&config, &pod), (vec![], 0));
}
