//! Hosts that speak plain VXLAN alone: what leaves for them, what is accepted from them, and machines that return from them.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::iter::from_fn;

use weft_units::Duration;
use weft_wire::{MacAddr, VirtioNetHeader};

use super::hosts::{Hosts, PORT, RED, frame, host, mac};
use crate::{DropCause, InClear, Place};

const LIMIT: Duration = Duration::from_secs(60);

/// Returns two Weft hosts of which the first knows the third one as a router that receives broadcasts, with machine 3.
fn hosts(in_clear: InClear) -> Hosts {
    let mut hosts = Hosts::new();
    (0..2).for_each(|end| hosts.encrypt(end, in_clear));
    let switch = &mut hosts.hosts[0].switch;
    switch.set_vteps(RED, BTreeMap::from([(host(2), true), (host(3), false)]));
    switch.table(RED).set_mac(mac(3), Some(Place::Peer(host(2))));
    hosts
}

/// Sends a frame of the first host's tenant, and returns the hosts that get it outside connections: `true` if it is
/// encrypted.
fn send(hosts: &mut Hosts, to: MacAddr) -> Vec<(core::net::SocketAddr, bool)> {
    hosts.send(0, PORT, frame(mac(1), to, 7, 100));
    let switch = &mut hosts.hosts[0].switch;
    let plain: Vec<_> = from_fn(|| switch.poll_plain()).collect();
    plain.iter().flat_map(|it| it.to.iter().map(|&to| (to, it.under.is_some()))).collect()
}

/// Delivers a plain frame to the first host.
fn arrive(hosts: &mut Hosts, from: usize, source: MacAddr, to: MacAddr) {
    let ethernet = frame(source, to, 9, 100).split_off(VirtioNetHeader::LEN);
    let (now, own) = (hosts.now, &mut hosts.hosts[0]);
    own.switch.handle_plain(now, host(from), RED, &ethernet, &mut own.tenants);
}

fn dropped(hosts: &Hosts, cause: DropCause) -> u64 {
    hosts.hosts[0].switch.counters().dropped_for(cause)
}

#[test]
fn frames_for_a_routers_machine_leave_at_once_and_in_the_clear() {
    for in_clear in [InClear::Any, InClear::Unable, InClear::Nothing] {
        let mut hosts = hosts(in_clear);
        assert_eq!(send(&mut hosts, mac(3)), [(host(2), false)], "{in_clear:?}");
        // No connection is requested.
        assert_eq!(hosts.hosts[0].switch.pair_count(), 0);
    }
}

#[test]
fn a_broadcast_goes_to_hosts_that_want_it_and_to_each_in_its_way() {
    for (in_clear, encrypts) in [(InClear::Any, false), (InClear::Nothing, true)] {
        let mut hosts = hosts(in_clear);
        let to = send(&mut hosts, MacAddr::BROADCAST);
        // Without encryption both get the same frame; otherwise that for the other Weft host waits for keys.
        let expected = match encrypts {
            false => Vec::from([(host(1), false), (host(2), false)]),
            true => Vec::from([(host(2), false)]),
        };
        assert_eq!(to, expected);
        if encrypts {
            assert!(hosts.run(LIMIT, |hosts| hosts.seen(1) == [7]), "the Weft host got it too");
            assert_eq!((hosts.plain_frames, hosts.sealed_frames), (0, 1));
        }
        // A frame for an unknown machine is one.
        assert!(send(&mut hosts, mac(77)).contains(&(host(2), false)));
    }
}

#[test]
fn frames_of_a_router_are_accepted_and_no_place_is_learned_from_them() {
    for in_clear in [InClear::Any, InClear::Unable, InClear::Nothing] {
        let mut hosts = hosts(in_clear);
        // From its machine, from one of which no route is known yet, and from a host without a wish for broadcasts.
        arrive(&mut hosts, 2, mac(3), mac(1));
        arrive(&mut hosts, 2, mac(4), MacAddr::BROADCAST);
        arrive(&mut hosts, 3, mac(5), mac(1));
        assert_eq!(hosts.seen(0), [9, 9, 9]);
        let now = hosts.now;
        let table = hosts.hosts[0].switch.table(RED);
        assert_eq!([4, 5].map(|last| table.place(mac(last), now)), [None, None]);
        // Nothing is passed on to others.
        let switch = &mut hosts.hosts[0].switch;
        assert_eq!((switch.poll_plain(), switch.pair_count()), (None, 0));
        // In the name of a machine of this host, of another host's, and from a stranger.
        arrive(&mut hosts, 2, mac(1), MacAddr::BROADCAST);
        arrive(&mut hosts, 2, mac(2), mac(1));
        arrive(&mut hosts, 3, mac(3), mac(1));
        assert_eq!(dropped(&hosts, DropCause::WrongHost), 3);
        arrive(&mut hosts, 4, mac(6), mac(1));
        assert_eq!(
            dropped(&hosts, DropCause::UnknownPeer) + dropped(&hosts, DropCause::InClear),
            1
        );
        // For a machine of a third host: two hosts that each think that the other has it would pass it on for ever.
        arrive(&mut hosts, 2, mac(3), mac(2));
        assert_eq!(dropped(&hosts, DropCause::NoRoute), 1);
        assert_eq!(hosts.seen(0).len(), 3);
    }
}

#[test]
fn a_machine_that_sends_although_it_counts_as_elsewhere_is_reported_once() {
    let mut hosts = hosts(InClear::Any);
    send(&mut hosts, mac(3));
    assert!(hosts.hosts[0].switch.take_returned().is_empty());
    let (now, own) = (hosts.now, &mut hosts.hosts[0]);
    own.switch.set_place(now, RED, mac(1), Some(Place::Peer(host(2))), &mut own.tenants);
    send(&mut hosts, mac(3));
    send(&mut hosts, mac(3));
    let returned = hosts.hosts[0].switch.take_returned();
    assert_eq!(returned.into_iter().collect::<Vec<_>>(), [(RED, mac(1))]);
    assert!(hosts.hosts[0].switch.take_returned().is_empty());
}

#[test]
fn a_router_that_is_one_no_longer_is_a_stranger() {
    let mut hosts = hosts(InClear::Any);
    hosts.hosts[0].switch.set_vteps(RED, BTreeMap::new());
    arrive(&mut hosts, 2, mac(3), mac(1));
    assert_eq!((dropped(&hosts, DropCause::UnknownPeer), hosts.seen(0).len()), (1, 0));
    let to = send(&mut hosts, MacAddr::BROADCAST);
    assert_eq!(to, [(host(1), false)]);
}
