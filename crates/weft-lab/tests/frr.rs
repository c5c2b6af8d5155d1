//! Labs whose routers run BGP. Without root, a tool or FRR each test reports that it was skipped, and the reason.
#![allow(clippy::disallowed_methods, reason = "these tests watch a kernel in real time")]

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use weft_lab::{Lab, LabError, LabSpec, Routing, enter};

/// Returns `true` if a datagram from h0 arrives at h1 within ten seconds.
fn reaches(lab: &Lab) -> bool {
    let bind = |host| lab.enter(host, || UdpSocket::bind("0.0.0.0:0")).unwrap().unwrap();
    let (sender, receiver) = (bind("h0"), bind("h1"));
    receiver.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let to = (lab.fabric().address(1), receiver.local_addr().unwrap().port());
    let deadline = Instant::now() + Duration::from_secs(10);
    while Instant::now() < deadline {
        sender.send_to(b"are you there", to).unwrap();
        if receiver.recv(&mut [0; 64]).is_ok() {
            return true;
        }
    }
    false
}

#[test]
fn bgp_routers_install_all_paths_and_others_after_a_link_failure() {
    if weft_testkit::lab_is_missing("routers that speak BGP", &["FRR"]) {
        return;
    }
    let spec = LabSpec {
        spines: 2,
        routing: Routing::Frr,
        ..LabSpec::named(format!("frr{}", std::process::id()))
    };
    let mut lab = Lab::up(&spec).unwrap();
    assert!(reaches(&lab));
    assert!(matches!(lab.paths(), Err(LabError::DynamicRoutes | LabError::Unpredictable)));
    let shown = lab.vtysh("l0", &["show bgp ipv4 unicast 10.2.0.2/32 json"]).unwrap();
    assert_eq!(shown.matches("\"multipath\":true").count(), 2, "{shown}");
    lab.set_down("l1-s0").unwrap();
    lab.converge().unwrap();
    let shown = lab.vtysh("l0", &["show ip route 10.2.0.2/32 json"]).unwrap();
    assert!(!shown.contains("\"s0\"") && shown.contains("\"s1\""), "{shown}");
    assert!(reaches(&lab));
    lab.set_up("l1-s0").unwrap();
    lab.converge().unwrap();
    assert!(lab.vtysh("h0", &["show version"]).is_err());
    let namespace = lab.fabric().leaf(0).namespace.clone();
    drop(lab);
    assert!(enter(&namespace, || ()).is_err(), "{namespace} is left");
}
