//! Plain VXLAN: forged frames with a peer's address, and frames of peers that speak only VXLAN.

use alloc::vec::Vec;

use weft_units::Duration;
use weft_wire::{EtherType, MacAddr, VirtioNetHeader};

use super::hosts::{Hosts, PORT, RED, frame, host, mac};
use crate::example::between;
use crate::{DropCause, NetworkConfig, Place};

const LIMIT: Duration = Duration::from_secs(60);

/// Sends a forged plain frame to host `end` with the address of host `as_host`.
fn forge(hosts: &mut Hosts, end: usize, as_host: usize, ethernet: &[u8]) {
    let (now, own) = (hosts.now, &mut hosts.hosts[end]);
    own.switch.handle_plain(now, host(as_host), RED, ethernet, &mut own.tenants);
}

/// Returns a broadcast which announces that `owner` has the address 10.0.0.`last`.
fn announcement(owner: MacAddr, last: u8) -> Vec<u8> {
    let mut message = [0, 1, 8, 0, 6, 4, 0, 1].to_vec();
    message.extend(owner.0.into_iter().chain([10, 0, 0, last]));
    message.extend([0; 6].into_iter().chain([10, 0, 0, last]));
    between(owner, MacAddr::BROADCAST, EtherType::ARP, &message)
}

fn unproven(hosts: &Hosts, end: usize) -> u64 {
    hosts.hosts[end].switch.port_counters(PORT).unwrap().dropped_for(DropCause::Unproven)
}

fn place(hosts: &mut Hosts, end: usize, machine: MacAddr) -> Option<Place> {
    let now = hosts.now;
    hosts.hosts[end].switch.table(RED).place(machine, now)
}

#[test]
fn a_forged_frame_reaches_no_machine_and_teaches_nothing() {
    let mut hosts = Hosts::new();
    let injected = frame(mac(1), mac(2), 99, 100).split_off(VirtioNetHeader::LEN);
    let foreign = frame(mac(9), mac(2), 99, 100).split_off(VirtioNetHeader::LEN);
    // Before the peer has sent anything, and after.
    for round in 1..=2_u64 {
        forge(&mut hosts, 1, 0, &injected);
        forge(&mut hosts, 1, 0, &foreign);
        hosts.run(Duration::from_secs(2), |_| false);
        assert_eq!((unproven(&hosts, 1), place(&mut hosts, 1, mac(9))), (2 * round, None));
        let number = round as u32 - 1;
        hosts.send_numbers(0, number..number + 1, 100);
        assert!(hosts.run(LIMIT, |hosts| hosts.seen(1).contains(&number)));
    }
    assert_eq!(hosts.seen(1), [0, 1]);
    // The peer is sent one request per second, however many frames are forged.
    for _ in 0..1_000 {
        forge(&mut hosts, 1, 0, &foreign);
    }
    assert!(hosts.hosts[1].switch.pair_count() <= 3, "{}", hosts.hosts[1].switch.pair_count());
}

#[test]
fn a_forged_announcement_moves_no_machine() {
    let mut hosts = Hosts::new();
    hosts.add_third();
    // The third host has no such machine.
    let (now, third) = (hosts.now, &mut hosts.hosts[2]);
    third.switch.remove_port(now, PORT, &mut third.tenants);
    hosts.hosts[0].switch.table(RED).set_mac(mac(2), None);
    hosts.send_numbers(1, 0..1, 100);
    assert!(hosts.run(LIMIT, |hosts| hosts.seen(0) == [0]));
    for _ in 0..5 {
        forge(&mut hosts, 0, 2, &announcement(mac(2), 2));
        hosts.run(Duration::from_secs(2), |_| false);
        assert_eq!(place(&mut hosts, 0, mac(2)), Some(Place::Peer(host(1))));
    }
    hosts.send_numbers(0, 0..5, 100);
    assert!(hosts.run(LIMIT, |hosts| hosts.seen(1).len() == 5));
    // A forged frame also does not move an address that a machine announced on its connection to another
    // machine.
    let address = [10, 0, 0, 2].into();
    let mut announced = [0; VirtioNetHeader::LEN].to_vec();
    announced.extend(announcement(mac(2), 2));
    announced[12..18].copy_from_slice(&mac(1).0);
    hosts.send(1, PORT, announced);
    assert!(hosts.run(LIMIT, |hosts| hosts.hosts[1].tenants.holds_nothing()));
    let known = |hosts: &mut Hosts| {
        let now = hosts.now;
        hosts.hosts[0].switch.table(RED).neighbour(address, now)
    };
    assert_eq!(known(&mut hosts), Some(mac(2)));
    forge(&mut hosts, 0, 2, &announcement(mac(8), 2));
    assert_eq!(known(&mut hosts), Some(mac(2)));
}

#[test]
fn an_announcement_moves_a_machine_that_its_host_has() {
    let mut hosts = Hosts::new();
    hosts.add_third();
    hosts.hosts[0].switch.table(RED).set_mac(mac(2), None);
    hosts.send_numbers(1, 0..1, 100);
    assert!(hosts.run(LIMIT, |hosts| hosts.seen(0) == [0]));
    let mut announced = [0; VirtioNetHeader::LEN].to_vec();
    announced.extend(announcement(mac(2), 2));
    hosts.send(2, PORT, announced);
    let connected = hosts.run(LIMIT, |hosts| {
        hosts.hosts[0].switch.pairs().any(|pair| pair.peer == host(2) && pair.up)
    });
    assert!(connected, "the third host was not probed");
    hosts.run(Duration::from_millis(10), |_| false);
    assert_eq!(place(&mut hosts, 0, mac(2)), Some(Place::Peer(host(2))));
    hosts.send_numbers(0, 0..5, 100);
    assert!(hosts.run(LIMIT, |hosts| hosts.seen(2).len() >= 5), "{:?}", hosts.seen(1));
}

#[test]
fn a_machine_that_has_not_sent_is_found_by_its_host() {
    let mut hosts = Hosts::new();
    hosts.hosts[0].switch.table(RED).set_mac(mac(2), None);
    // The frame goes to all hosts, and the host that has the machine requests a connection.
    hosts.send_numbers(0, 0..1, 100);
    assert!(hosts.run(LIMIT, |hosts| hosts.hosts[0].switch.pair_count() == 1));
    hosts.run(Duration::from_millis(10), |_| false);
    hosts.send_numbers(0, 1..5, 100);
    assert!(hosts.run(LIMIT, |hosts| hosts.seen(1) == [1, 2, 3, 4]));
    assert_eq!((unproven(&hosts, 1), hosts.plain_frames), (1, 1));
}

#[test]
fn where_all_machines_are_known_a_frame_for_another_is_dropped_and_a_broadcast_is_not() {
    let mut hosts = Hosts::new();
    let known = NetworkConfig { flood: false, ..NetworkConfig::default() };
    hosts.hosts[0].switch.set_network(RED, known);
    hosts.hosts[0].switch.table(RED).set_mac(mac(2), None);
    hosts.send_numbers(0, 0..3, 100);
    let counters = hosts.hosts[0].switch.port_counters(PORT).unwrap();
    assert_eq!(counters.dropped_for(DropCause::UnknownMachine), 3);
    assert_eq!((counters.plain_sent, hosts.hosts[0].switch.pair_count()), (0, 0));
    hosts.send(0, PORT, frame(mac(1), MacAddr([0xff; 6]), 7, 100));
    assert!(hosts.run(LIMIT, |hosts| hosts.seen(1) == [7]));
}

#[test]
fn plain_frames_of_a_peer_that_speaks_only_vxlan_are_trusted() {
    let mut hosts = Hosts::new();
    hosts.only_plain = true;
    hosts.hosts[1].switch.set_network(
        RED,
        NetworkConfig { reliable: false, in_order: true, ..NetworkConfig::default() },
    );
    hosts.send_numbers(1, 0..1, 100);
    assert!(hosts.run(LIMIT, |hosts| unproven(hosts, 0) == 1));
    // The host was sent a request and did not answer.
    hosts.run(Duration::from_secs(5), |_| false);
    hosts.send_numbers(1, 1..5, 100);
    assert!(hosts.run(LIMIT, |hosts| hosts.seen(0) == [1, 2, 3, 4]));
    // The host answers at last: from here on plain frames from it are refused.
    hosts.only_plain = false;
    hosts.hosts[1].switch.set_network(RED, NetworkConfig::default());
    hosts.send_numbers(1, 5..6, 100);
    assert!(hosts.run(LIMIT, |hosts| hosts.seen(0).contains(&5)));
    forge(&mut hosts, 0, 1, &frame(mac(2), mac(1), 99, 100)[VirtioNetHeader::LEN..]);
    assert_eq!((unproven(&hosts, 0), hosts.seen(0).contains(&99)), (2, false));
}
