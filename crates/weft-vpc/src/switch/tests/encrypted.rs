//! Frames outside pairs' connections between hosts that encrypt.

use weft_units::Duration;
use weft_wire::{MacAddr, VirtioNetHeader};

use super::hosts::{Hosts, PORT, RED, frame, host, mac};
use crate::{DropCause, InClear, NetworkConfig, Place};

const LIMIT: Duration = Duration::from_secs(60);

/// Returns two hosts that encrypt by `in_clear`, in a network that is reliable or not.
fn hosts(in_clear: [InClear; 2], reliable: bool) -> Hosts {
    let mut hosts = Hosts::new();
    for (end, in_clear) in in_clear.into_iter().enumerate() {
        hosts.encrypt(end, in_clear);
        let network = NetworkConfig { reliable, in_order: true, ..NetworkConfig::default() };
        hosts.hosts[end].switch.set_network(RED, network);
    }
    hosts
}

/// Sends a broadcast from the tenant of an end.
fn broadcast(hosts: &mut Hosts, end: usize, number: u32) {
    let own = mac(u8::try_from(end + 1).unwrap());
    hosts.send(end, PORT, frame(own, MacAddr::BROADCAST, number, 100));
}

/// Sends an unencrypted frame to host 1 with the forged address of host 0.
fn forge(hosts: &mut Hosts, to: MacAddr) {
    let ethernet = frame(mac(9), to, 99, 100).split_off(VirtioNetHeader::LEN);
    let (now, own) = (hosts.now, &mut hosts.hosts[1]);
    own.switch.handle_plain(now, host(0), RED, &ethernet, &mut own.tenants);
}

fn dropped(hosts: &Hosts, end: usize, cause: DropCause) -> u64 {
    let switch = &hosts.hosts[end].switch;
    switch.counters().dropped_for(cause) + switch.port_counters(PORT).unwrap().dropped_for(cause)
}

/// Checks that broadcasts, and all frames of a network without reliable delivery, wait for a connection's keys, and
/// that frames under them are trusted.
#[test]
fn frames_outside_connections_leave_under_the_keys_of_one() {
    for in_clear in [InClear::Unable, InClear::Nothing] {
        let mut hosts = hosts([in_clear; 2], false);
        broadcast(&mut hosts, 0, 0);
        hosts.send_numbers(0, 1..20, 100);
        assert!(hosts.run(LIMIT, |hosts| hosts.seen(1).len() == 20));
        assert_eq!(hosts.seen(1), (0..20).collect::<Vec<_>>());
        assert_eq!((hosts.plain_frames, hosts.sealed_frames), (0, 20));
        // No pair of interfaces has a connection.
        assert_eq!(hosts.hosts.iter().map(|host| host.switch.pair_count()).sum::<usize>(), 0);
        assert!(hosts.hosts.iter().all(|host| host.tenants.holds_nothing()));
    }
}

#[test]
fn a_forged_frame_in_the_clear_is_refused_whatever_the_network_is() {
    for (in_clear, before) in
        [(InClear::Unable, DropCause::Unproven), (InClear::Nothing, DropCause::InClear)]
    {
        for (reliable, to) in [
            (false, mac(2)),
            (false, MacAddr::BROADCAST),
            (true, mac(2)),
            (true, MacAddr::BROADCAST),
        ] {
            let mut hosts = hosts([in_clear; 2], reliable);
            // Before it is known whether the peer encrypts, and after.
            forge(&mut hosts, to);
            assert_eq!(dropped(&hosts, 1, before), 1);
            broadcast(&mut hosts, 1, 0);
            assert!(hosts.run(LIMIT, |hosts| hosts.seen(0) == [0]));
            forge(&mut hosts, to);
            assert!(hosts.seen(1).is_empty());
            assert!(dropped(&hosts, 1, DropCause::InClear) > 0);
            let now = hosts.now;
            assert_eq!(hosts.hosts[1].switch.table(RED).place(mac(9), now), None);
        }
    }
}

#[test]
fn a_frame_under_keys_proves_where_its_machine_is() {
    let mut hosts = hosts([InClear::Unable; 2], true);
    hosts.hosts[1].switch.table(RED).set_mac(mac(1), None);
    broadcast(&mut hosts, 0, 0);
    assert!(hosts.run(LIMIT, |hosts| hosts.seen(1) == [0]));
    let now = hosts.now;
    let place = hosts.hosts[1].switch.table(RED).place(mac(1), now);
    assert_eq!(place, Some(Place::Peer(host(0))));
}

#[test]
fn a_host_that_does_not_encrypt_is_spoken_to_in_the_clear_where_that_is_allowed() {
    let mut preferred = hosts([InClear::Unable, InClear::Any], true);
    broadcast(&mut preferred, 0, 0);
    assert!(preferred.run(LIMIT, |hosts| hosts.seen(1) == [0]));
    // By then the peer is known not to encrypt.
    broadcast(&mut preferred, 1, 1);
    assert!(preferred.run(LIMIT, |hosts| hosts.seen(0) == [1]));
    assert_eq!((preferred.plain_frames, preferred.sealed_frames), (2, 0));

    let mut required = hosts([InClear::Nothing, InClear::Any], true);
    broadcast(&mut required, 0, 0);
    broadcast(&mut required, 1, 1);
    required.run(Duration::from_secs(5), |_| false);
    assert_eq!((required.seen(0).len(), required.seen(1).len()), (0, 0));
    assert_eq!(dropped(&required, 0, DropCause::NotEncrypted), 1);
    assert_eq!(dropped(&required, 0, DropCause::InClear), 1);
    assert!(required.hosts.iter().all(|host| host.tenants.holds_nothing()));
}

/// Checks with three hosts, one of which does not answer as Weft, that a broadcast leaves for each host as soon as
/// its way is known.
#[test]
fn a_host_that_speaks_only_vxlan_delays_no_other_host() {
    let mut hosts = hosts([InClear::Unable, InClear::Any], true);
    hosts.add_third();
    hosts.encrypt(2, InClear::Unable);
    hosts.plain_host = Some(1);
    broadcast(&mut hosts, 0, 0);
    assert!(hosts.run(Duration::from_millis(100), |hosts| hosts.seen(2) == [0]));
    assert!(hosts.seen(1).is_empty() && !hosts.hosts[0].tenants.holds_nothing());
    assert!(hosts.run(LIMIT, |hosts| hosts.seen(1) == [0]));
    assert_eq!((hosts.plain_frames, hosts.sealed_frames), (1, 1));
    assert!(hosts.hosts[0].tenants.holds_nothing());
    // Frames of a removed port are dropped wherever they wait.
    broadcast(&mut hosts, 0, 1);
    let (now, first) = (hosts.now, &mut hosts.hosts[0]);
    first.switch.remove_port(now, PORT, &mut first.tenants);
    assert!(first.tenants.holds_nothing());
}
