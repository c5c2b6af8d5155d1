use std::net::Ipv4Addr;

use super::*;
use crate::tables::Shown;

const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 2, 0, 2);

fn shown(routes: &str) -> Shown {
    Shown { routes: serde_json::from_str(routes).unwrap(), ..Shown::default() }
}

fn change(ports: Option<&[&str]>) -> Change {
    match ports {
        Some(ports) => Change::by(ADDRESS, ports.iter().copied()),
        None => Change::back(ADDRESS),
    }
}

const STATIC: &str = r#"[{"dst":"default","gateway":"10.9.9.9","dev":"eth9","flags":[]},
    {"dst":"10.2.0.0/16","flags":[],"nexthops":[
    {"gateway":"10.100.0.2","dev":"s0","weight":3,"flags":[]},
    {"gateway":"10.100.1.2","dev":"s1","weight":1,"flags":["dead"]},
    {"via":{"family":"inet6","host":"fe80::1"},"dev":"s2","weight":2,"flags":["onlink"]}]}]"#;

#[test]
fn the_kernels_next_hops_are_copied_to_a_route_of_protocol_200() {
    let commands = kernel::commands(&shown(STATIC), &change(Some(&["s0"]))).unwrap();
    assert_eq!(commands, ["ip route replace 10.2.0.2/32 proto 200 via 10.100.0.2 dev s0"]);
    let commands = kernel::commands(&shown(STATIC), &change(Some(&["s2", "s0"]))).unwrap();
    assert_eq!(
        commands,
        ["ip route replace 10.2.0.2/32 proto 200 \
        nexthop via inet6 fe80::1 dev s2 onlink weight 1 nexthop via 10.100.0.2 dev s0 weight 1"]
    );
}

/// IPv6 has metrics where IPv4 has none, and separate lists and families in FRR.
#[test]
fn ipv6_is_steered_beside_ipv4() {
    let to: IpAddr = "fd00:2::2".parse().unwrap();
    let routes = r#"[{"dst":"10.2.0.0/16","gateway":"10.9.9.9","dev":"s9","flags":[]},
        {"dst":"fd00:2::/32","metric":1024,"flags":[],"nexthops":[
        {"gateway":"fd00:100::2","dev":"s0","weight":1,"flags":[]},
        {"gateway":"fe80::1","dev":"s1","weight":1,"flags":[]}]},
        {"dst":"fd00:2::2","protocol":"200","metric":1,"gateway":"fe80::1","dev":"s1","flags":[]}]"#;
    let by = |port| Change::by(to, [port]);
    let commands = kernel::commands(&shown(routes), &by("s1")).unwrap();
    assert_eq!(
        commands,
        ["ip -6 route replace fd00:2::2/128 proto 200 metric 1 via fe80::1 dev s1"]
    );
    let commands = kernel::commands(&shown(routes), &Change::back(to)).unwrap();
    assert_eq!(commands, ["ip -6 route del fd00:2::2/128 proto 200 metric 1"]);
    assert!(kernel::commands(&shown(routes), &by("s9")).unwrap_err().to_string().contains("by s9"));

    let frr = |configured: &str, change: &Change| {
        frr::commands(None, configured, &candidates(&shown(routes), change).unwrap(), change)
    };
    let [command] = frr(CONFIGURED, &by("s1")).unwrap().try_into().unwrap();
    for wanted in [
        "'ipv6 prefix-list WEFT6-s0 permit fd00:2::2/128'",
        "'match ipv6 address prefix-list WEFT6-s0'",
        "'address-family ipv6 unicast' -c 'neighbor s0 route-map WEFT6-s0 in'",
        "'clear bgp ipv6 unicast s0 soft in'",
    ] {
        assert!(command.contains(wanted), "{command}");
    }
    // A route-map of the operator counts only in its own family.
    let map = |family| {
        format!(
            "{CONFIGURED} address-family {family} unicast\n  neighbor s0 route-map MINE in\n exit-address-family\n"
        )
    };
    assert!(frr(&map("ipv4"), &by("s1")).is_ok());
    assert!(frr(&map("ipv6"), &by("s1")).unwrap_err().to_string().contains("of the operator's"));
    let lists = "ip prefix-list WEFT-s0 seq 5 permit 10.2.0.2/32\nipv6 prefix-list WEFT6-s0 seq 5 permit fd00:2::2/128\nipv6 prefix-list MINE permit any\n";
    assert_eq!(frr::listed(lists), ["10.2.0.2/32", "fd00:2::2/128"]);
}

#[test]
fn a_change_that_the_tables_do_not_permit_is_refused_with_the_permitted_ports() {
    for (routes, ports, words) in [
        (STATIC, &["s7"][..], "no route to 10.2.0.2/32 by s7, only by s0, s1, s2"),
        (STATIC, &["s1"], "by s1"),
        (STATIC, &[], "no next hop"),
        ("[]", &["s0"], "no route to 10.2.0.2"),
        (
            r#"[{"dst":"10.2.0.2","protocol":"static","gateway":"10.100.0.2","dev":"s0","flags":[]}]"#,
            &["s0"],
            "has a route of protocol static with metric 0",
        ),
    ] {
        let error = kernel::commands(&shown(routes), &change(Some(ports))).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[test]
fn a_name_that_a_shell_would_run_reaches_no_script() {
    for (device, family) in [("$(reboot)", "inet6"), ("a'b;c", "inet6"), ("s0", "inet6 `id`")] {
        let routes = format!(
            r#"[{{"dst":"10.2.0.2","protocol":"bgp","metric":20,"flags":[],"nexthops":[
            {{"via":{{"family":"{family}","host":"fe80::1"}},"dev":"{device}","flags":[]}},
            {{"via":{{"family":"inet6","host":"fe80::2"}},"dev":"s1","flags":[]}}]}}]"#
        );
        let refused = |error: Refusal| assert!(matches!(error, Refusal::Unsafe { .. }), "{error}");
        refused(kernel::commands(&shown(&routes), &change(Some(&["s1"]))).unwrap_err());
        refused(frr("router bgp 64512\n", &routes, Some(&["s1"])).unwrap_err());
    }
}

#[test]
fn a_routers_line_for_bgp_is_quoted_as_one_word_of_the_shell() {
    let lines = ["router bgp 64512 vrf a'$(reboot)'b".to_owned()];
    let echo = frr::vtysh(None, &lines).replacen("vtysh", "printf %s,", 1);
    let output = std::process::Command::new("sh").args(["-c", &echo]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("-c,{},", lines[0]));
}

#[test]
fn only_our_own_route_is_taken_back() {
    assert_eq!(kernel::commands(&shown(STATIC), &change(None)).unwrap(), [""; 0]);
    let ours =
        r#"[{"dst":"10.2.0.2","protocol":"200","gateway":"10.100.0.2","dev":"s0","flags":[]}]"#;
    let commands = kernel::commands(&shown(ours), &change(None)).unwrap();
    assert_eq!(commands, ["ip route del 10.2.0.2/32 proto 200"]);
}

const CONFIGURED: &str =
    "router bgp 64512\n neighbor s0 interface v6only remote-as external\n exit\n!\n";
const BGP: &str = r#"[{"dst":"10.2.0.2","protocol":"bgp","metric":20,"flags":[],"nexthops":[
    {"gateway":"169.254.0.1","dev":"s0","weight":1,"flags":["onlink"]},
    {"gateway":"169.254.0.1","dev":"s1","weight":1,"flags":["onlink"]}]}]"#;

fn frr(configured: &str, routes: &str, ports: Option<&[&str]>) -> Result<Vec<String>, Refusal> {
    let change = change(ports);
    frr::commands(None, configured, &candidates(&shown(routes), &change)?, &change)
}

#[test]
fn frr_filters_the_neighbours_that_shall_not_be_used() {
    let [command] = frr(CONFIGURED, BGP, Some(&["s1"])).unwrap().try_into().unwrap();
    for wanted in [
        "'ip prefix-list WEFT-s0 permit 10.2.0.2/32'",
        "'route-map WEFT-s0 deny 10' -c 'match ip address prefix-list WEFT-s0'",
        "'router bgp 64512' -c 'address-family ipv4 unicast' -c 'neighbor s0 route-map WEFT-s0 in'",
        "'clear bgp ipv4 unicast s0 soft in'",
    ] {
        assert!(command.contains(wanted), "{command}");
    }
    assert!(!command.contains("WEFT-s1"), "{command}");
}

#[test]
fn frr_receives_only_changed_lines() {
    let steered = format!("ip prefix-list WEFT-s0 seq 5 permit 10.2.0.2/32\n{CONFIGURED}");
    // BGP has only s1 left for the host; the leaf's network still has s0.
    let narrowed = r#"[{"dst":"10.2.0.2","protocol":"bgp","metric":20,"gateway":"169.254.0.1","dev":"s1","flags":["onlink"]},
        {"dst":"10.2.0.0/24","protocol":"bgp","metric":20,"flags":[],"nexthops":[
        {"gateway":"169.254.0.1","dev":"s0","flags":["onlink"]},{"gateway":"169.254.0.1","dev":"s1","flags":["onlink"]}]}]"#;
    assert_eq!(frr(&steered, narrowed, Some(&["s1"])).unwrap(), [""; 0]);
    let [back] = frr(&steered, narrowed, None).unwrap().try_into().unwrap();
    assert!(back.contains("'no ip prefix-list WEFT-s0 permit 10.2.0.2/32'"), "{back}");
    let operators = format!("{CONFIGURED} neighbor s0 route-map MINE in\n");
    let error = frr(&operators, BGP, Some(&["s1"])).unwrap_err();
    assert!(error.to_string().contains("route-map of the operator's"), "{error}");
    assert!(frr("", BGP, Some(&["s1"])).unwrap_err().to_string().contains("no BGP"));
}
