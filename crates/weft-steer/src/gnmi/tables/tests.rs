use super::*;
use crate::gnmi::tree::tests::tree;

const INSTANCE: &str = "/network-instances/network-instance[name=default]";

fn leaf() -> RouterEntry {
    toml::from_str(
        "name = 'l0'\nagent = '10.0.0.1'\n\
         port = [{ name = 'Ethernet0' }, { name = 'Ethernet4', speed = '40Gbps' }]",
    )
    .unwrap()
}

fn interfaces() -> Tree {
    tree(&[(
        "/interfaces",
        r#"{"openconfig-interfaces:interface": [
        {"name": "Ethernet0", "state": {"ifindex": 1, "admin-status": "UP", "oper-status": "UP"},
         "openconfig-if-ethernet:ethernet": {"state": {"port-speed": "openconfig-if-ethernet:SPEED_100GB"}}},
        {"name": "Ethernet4", "state": {"ifindex": 5, "admin-status": "UP", "oper-status": "LOWER_LAYER_DOWN"}}]}"#,
    )])
}

/// The static routes of an operator and the controller's.
fn statics() -> Tree {
    let at = format!("{INSTANCE}/protocols/protocol[identifier=STATIC][name=static]");
    tree(&[(
        &at,
        r#"{"openconfig-network-instance:static-routes": {"static": [
        {"prefix": "10.2.0.0/24", "config": {"prefix": "10.2.0.0/24"}, "next-hops": {"next-hop": [
            {"index": "10", "config": {"next-hop": "172.16.1.1"}, "interface-ref": {"config": {"interface": "Ethernet4"}}},
            {"index": "2", "config": {"next-hop": "172.16.0.1"}, "interface-ref": {"config": {"interface": "Ethernet0"}}}]}},
        {"prefix": "10.2.0.2/32", "config": {"set-tag": 200}, "next-hops": {"next-hop": [
            {"index": "0", "config": {"next-hop": "172.16.0.1"}, "interface-ref": {"config": {"interface": "Ethernet0"}}}]}},
        {"prefix": "10.3.0.0/24", "next-hops": {"next-hop": [
            {"index": "0", "config": {"next-hop": "openconfig-local-routing:DROP"}}]}},
        {"prefix": "0.0.0.0/0", "next-hops": {"next-hop": [
            {"index": "0", "config": {"next-hop": "10.9.0.254"}, "interface-ref": {"config": {"interface": "mgmt0"}}}]}}]}}"#,
    )])
}

/// Forwarding tables with the same routes, whose numbers are those of a JSON document.
fn aft(port: &str) -> Tree {
    let text = format!(
        r#"{{"openconfig-aft:ipv4-unicast": {{"ipv4-entry": [
            {{"prefix": "10.2.0.0/24", "state": {{"next-hop-group": "7"}}}},
            {{"prefix": "10.2.0.2/32", "state": {{"next-hop-group": "8"}}}},
            {{"prefix": "10.9.0.1/32", "state": {{"origin-protocol": "DIRECTLY_CONNECTED"}}}}]}},
        "next-hop-groups": {{"next-hop-group": [
            {{"id": "7", "next-hops": {{"next-hop": [{{"index": "10", "state": {{"weight": "3"}}}}, {{"index": "2"}}]}}}},
            {{"id": "8", "next-hops": {{"next-hop": [{{"index": "2", "state": {{"weight": "1"}}}}]}}}}]}},
        "next-hops": {{"next-hop": [
            {{"index": "2", "state": {{"ip-address": "172.16.0.1"}}, "interface-ref": {{"state": {{"interface": "Ethernet0"}}}}}},
            {{"index": "10", "state": {{"ip-address": "172.16.1.1"}}, "interface-ref": {{"state": {{"interface": "{port}"}}}}}}]}}}}"#
    );
    tree(&[(&format!("{INSTANCE}/afts"), &text)])
}

fn converted(routes: RouteSource, aft: Tree) -> Result<Tables, AnswerFault> {
    let settings = GnmiSettings { routes, ..GnmiSettings::plain("l0:9339") };
    convert(&leaf(), &settings, &Answer { ports: interfaces(), statics: statics(), aft })
}

/// Returns each route as text: the prefix, its ports with weights, and `*` if the controller has made it.
fn routes(router: &Router) -> Vec<String> {
    let group = |name: &str| router.groups.iter().find(|group| group.name == name).unwrap();
    let text = |route: &Route| {
        let via = match &route.via {
            Target::Group(name) => {
                let members = group(name).members.iter();
                let members = members.map(|it| format!("{}*{}", it.port, it.weight));
                members.collect::<Vec<_>>().join(" ")
            }
            other => format!("{other:?}"),
        };
        format!("{} {via}{}", route.to, if route.steered { " steered" } else { "" })
    };
    router.routes.iter().map(text).collect()
}

#[test]
fn ports_have_the_state_and_speed_that_the_server_reports() {
    let router = converted(RouteSource::Static, Tree::default()).unwrap().router;
    let ports: Vec<_> =
        router.ports.iter().map(|it| (it.ifindex, it.speed.as_bps(), it.state)).collect();
    let gbps = 1_000_000_000;
    assert_eq!(ports, [(1, 100 * gbps, PortState::Up), (5, 40 * gbps, PortState::NoCarrier)]);
    assert_eq!(router.hash, UNKNOWN_HASH);
}

#[test]
fn static_routes_are_the_tables_of_a_router_without_aft() {
    let tables = converted(RouteSource::Static, Tree::default()).unwrap();
    // The route by a port that is not configured is left out.
    assert_eq!(
        routes(&tables.router),
        [
            "10.2.0.0/24 Ethernet0*1 Ethernet4*1",
            "10.2.0.2/32 Ethernet0*1 steered",
            "10.3.0.0/24 Blackhole"
        ]
    );
    let foreign: Vec<String> = tables.foreign.iter().map(ToString::to_string).collect();
    assert_eq!(foreign, ["0.0.0.0/0", "10.2.0.0/24", "10.3.0.0/24"]);
}

#[test]
fn forwarding_tables_have_groups_in_the_order_of_their_indices() {
    let router = converted(RouteSource::Aft, aft("Ethernet4")).unwrap().router;
    assert_eq!(
        routes(&router),
        ["10.2.0.0/24 Ethernet0*1 Ethernet4*3", "10.2.0.2/32 Ethernet0*1 steered"]
    );
    let hop = &router.groups[0].members[1];
    assert_eq!(hop.via, Some("172.16.1.1".parse().unwrap()));
}

#[test]
fn an_answer_that_does_not_fit_names_what_is_missing() {
    let error = converted(RouteSource::Aft, aft("Ethernet8")).unwrap_err().to_string();
    assert_eq!(error, "10.2.0.0/24 leads by Ethernet8, which is no [[router.port]]: add it");
    let error = converted(RouteSource::Aft, Tree::default()).unwrap_err().to_string();
    assert_eq!(error, "it has no afts");
    let mut entry = leaf();
    entry.ports[1].speed = None;
    let settings = GnmiSettings { routes: RouteSource::Static, ..GnmiSettings::plain("l0:9339") };
    let answer = Answer { ports: interfaces(), ..Answer::default() };
    let error = convert(&entry, &settings, &answer).unwrap_err().to_string();
    assert_eq!(error, "it has no speed (set `speed`) of interface Ethernet4");
}

#[test]
fn speeds_are_identities() {
    let bps = |text| speed(text).map(BitRate::as_bps);
    assert_eq!(bps("openconfig-if-ethernet:SPEED_400GB"), Some(400_000_000_000));
    assert_eq!(bps("SPEED_2500MB"), Some(2_500_000_000));
    for wrong in ["SPEED_UNKNOWN", "SPEED_0GB", "100GB", "SPEED_99999999999GB"] {
        assert_eq!(bps(wrong), None, "{wrong}");
    }
}
