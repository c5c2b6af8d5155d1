//! Machines that move from one host to another. Here the second machine moves from the second host to the
//! third.

use weft_units::Duration;
use weft_wire::{EtherType, MacAddr, VirtioNetHeader};

use super::hosts::{Hosts, PORT, RED, frame, host, mac};
use super::policy::{acl, dropped};
use crate::example::{between, udp, v4, v4_packet};
use crate::{DropCause, Handover, NetworkConfig, Place, PortConfig, PortId, Presence, protocol};

const LIMIT: Duration = Duration::from_secs(20);

/// Returns the hosts at the other ends of the first host's connections.
fn led_to(hosts: &Hosts) -> Vec<usize> {
    let peers = hosts.hosts[0].switch.pairs();
    peers.map(|pair| (0..3).find(|&end| host(end) == pair.peer).unwrap()).collect()
}

#[test]
fn frames_follow_a_machine_that_sends_from_another_host() {
    let mut hosts = Hosts::new();
    hosts.add_third();
    // The machine's place is learned only.
    hosts.hosts[0].switch.table(RED).set_mac(mac(2), None);
    hosts.send_numbers(1, 0..1, 100);
    assert!(hosts.run(LIMIT, |hosts| hosts.seen(0) == [0]));
    hosts.send_numbers(0, 0..5, 100);
    assert!(hosts.run(LIMIT, |hosts| hosts.seen(1).len() == 5));
    // What is acknowledged does not follow the machine.
    assert!(hosts.run(LIMIT, |hosts| hosts.hosts[0].tenants.sent.is_empty()));
    // The same machine sends from the third host; the connection to the second still exists and is in use.
    hosts.send(2, PORT, frame(mac(2), mac(1), 1, 100));
    assert!(hosts.run(LIMIT, |hosts| hosts.seen(0) == [0, 1]));
    hosts.send_numbers(0, 5..10, 100);
    assert!(hosts.run(LIMIT, |hosts| hosts.seen(2).len() == 5), "{:?}", hosts.seen(1));
    assert_eq!((hosts.seen(1), hosts.seen(2)), ((0..5).collect(), (5..10).collect()));
    assert_eq!(led_to(&hosts), [2]);
    assert_eq!(hosts.plain_frames, 0);
}

#[test]
fn a_machine_that_is_set_elsewhere_is_cut_off_from_where_it_was() {
    let mut hosts = Hosts::new();
    hosts.add_third();
    hosts.send_numbers(0, 0..5, 100);
    assert!(hosts.run(LIMIT, |hosts| hosts.seen(1).len() == 5));
    let now = hosts.now;
    let own = &mut hosts.hosts[0];
    let set = |own: &mut super::hosts::Host, end| {
        own.switch.set_place(now, RED, mac(2), Some(Place::Peer(host(end))), &mut own.tenants);
    };
    // The same place again changes nothing.
    set(own, 1);
    assert_eq!(own.switch.pair_count(), 1);
    set(own, 2);
    assert_eq!(
        own.switch.pair_count(),
        0,
        "the second host still speaks in the name of the machine"
    );
    hosts.send_numbers(0, 5..10, 100);
    assert!(hosts.run(LIMIT, |hosts| hosts.seen(2).len() == 5));
    assert_eq!((hosts.seen(1), led_to(&hosts)), ((0..5).collect(), vec![2]));
}

/// A port of the second host that may send from every address.
const ANY: PortId = PortId(2);

/// Returns hosts after the first was told that the second machine has moved to the third host. The second host's
/// connection from another machine, the fourth, to the first machine is up.
fn moved() -> Hosts {
    let mut hosts = Hosts::new();
    hosts.add_third();
    hosts.hosts[1].switch.set_port(ANY, PortConfig { vni: RED, addresses: Vec::new() });
    hosts.send_numbers(1, 0..1, 100);
    hosts.send(1, ANY, frame(mac(4), mac(1), 1, 100));
    assert!(hosts.run(LIMIT, |hosts| hosts.seen(0).len() == 2));
    let (now, own) = (hosts.now, &mut hosts.hosts[0]);
    own.switch.set_place(now, RED, mac(2), Some(Place::Peer(host(2))), &mut own.tenants);
    assert_eq!(led_to(&hosts), [1]);
    // The second host learns that the machine's own connection has ended.
    assert!(hosts.run(LIMIT, |hosts| hosts.hosts[1].switch.pair_count() == 1));
    hosts
}

/// Returns the number of the first host's drops because of a sender that is set at another host.
fn wrong_host(hosts: &Hosts) -> u64 {
    let switch = &hosts.hosts[0].switch;
    let port = switch.port_counters(PORT).unwrap();
    [port, switch.counters()]
        .map(|counters| counters.dropped_for(DropCause::WrongHost))
        .iter()
        .sum()
}

/// Checks that only the third host sends in the name of the second machine.
fn assert_cut_off(hosts: &mut Hosts, dropped: u64) {
    assert_eq!((wrong_host(hosts), hosts.seen(0)), (dropped, vec![0, 1]));
    let (now, table) = (hosts.now, hosts.hosts[0].switch.table(RED));
    assert_eq!(table.place(mac(2), now), Some(Place::Peer(host(2))));
    assert_eq!(table.neighbour([10, 0, 0, 9].into(), now), None);
    hosts.send(2, PORT, frame(mac(2), mac(1), 2, 100));
    assert!(hosts.run(LIMIT, |hosts| hosts.seen(0) == [0, 1, 2]));
    assert_eq!(wrong_host(hosts), dropped);
}

/// Returns the second machine's announcement of an address, to the machine `to`.
fn announcement(to: MacAddr) -> Vec<u8> {
    let mut message = [0, 1, 8, 0, 6, 4, 0, 2].to_vec();
    message.extend(mac(2).0.into_iter().chain([10, 0, 0, 9]));
    message.extend(mac(1).0.into_iter().chain([10, 0, 0, 1]));
    let mut frame = vec![0; VirtioNetHeader::LEN];
    frame.extend(between(mac(2), to, EtherType::ARP, &message));
    frame
}

#[test]
fn a_former_host_sends_nothing_on_another_machines_connection() {
    let mut hosts = moved();
    hosts.send(1, ANY, frame(mac(2), mac(1), 66, 100));
    hosts.send(1, ANY, frame(mac(2), mac(1), 66, 20_000));
    hosts.send(1, ANY, announcement(mac(1)));
    assert!(hosts.run(LIMIT, |hosts| hosts.hosts[1].tenants.holds_nothing()));
    assert!(hosts.hosts[0].tenants.holds_nothing());
    assert_eq!(led_to(&hosts), [1]);
    assert_cut_off(&mut hosts, 3);
}

#[test]
fn a_former_hosts_frame_is_dropped_before_the_rules() {
    let mut hosts = moved();
    hosts.hosts[0].switch.set_acl(PORT, Some(acl(&["deny ingress udp to any"])));
    let payload = udp(40_000, 53, &[7; 10]);
    let (from, to) = ([10, 0, 0, 2].into(), [10, 0, 0, 1].into());
    let packet = v4_packet(v4(from, to, protocol::UDP, payload.len()), &payload);
    for machine in [mac(4), mac(2)] {
        let mut frame = vec![0; VirtioNetHeader::LEN];
        frame.extend(between(machine, mac(1), EtherType::IPV4, &packet));
        hosts.send(1, ANY, frame);
    }
    assert!(hosts.run(LIMIT, |hosts| hosts.hosts[1].tenants.holds_nothing()));
    assert_eq!((dropped(&hosts, 0, DropCause::Denied), wrong_host(&hosts)), (1, 1));
}

#[test]
fn a_former_hosts_hello_is_refused() {
    let mut hosts = moved();
    hosts.send(1, PORT, frame(mac(2), mac(1), 66, 100));
    assert!(hosts.run(LIMIT, |hosts| hosts.hosts[1].tenants.holds_nothing()));
    assert_eq!(led_to(&hosts), [1]);
    assert_cut_off(&mut hosts, 1);
}

#[test]
fn a_former_hosts_frames_outside_connections_are_refused() {
    for reliable in [true, false] {
        let mut hosts = moved();
        let network = NetworkConfig { reliable, in_order: true, ..NetworkConfig::default() };
        hosts.hosts.iter_mut().for_each(|own| own.switch.set_network(RED, network));
        let mut sent = 2;
        hosts.send(1, PORT, frame(mac(2), MacAddr::BROADCAST, 66, 100));
        hosts.send(1, PORT, announcement(MacAddr::BROADCAST));
        if !reliable {
            hosts.send(1, PORT, frame(mac(2), mac(1), 66, 100));
            sent += 1;
        }
        assert!(hosts.run(LIMIT, |hosts| wrong_host(hosts) == sent), "{}", wrong_host(&hosts));
        assert_cut_off(&mut hosts, sent);
    }
}

#[test]
fn no_host_sends_in_the_name_of_another_hosts_machine() {
    let mut hosts = Hosts::new();
    hosts.hosts[1].switch.set_port(ANY, PortConfig { vni: RED, addresses: Vec::new() });
    // The first host's own machine.
    hosts.send(1, ANY, frame(mac(1), mac(1), 66, 100));
    assert!(hosts.run(LIMIT, |hosts| hosts.hosts[1].tenants.holds_nothing()));
    assert_eq!((wrong_host(&hosts), hosts.seen(0)), (1, vec![]));
    let now = hosts.now;
    assert_eq!(hosts.hosts[0].switch.table(RED).place(mac(1), now), Some(Place::Port(PORT)));
}

/// Sets whether the second machine is at its port of a host.
fn set_present(hosts: &mut Hosts, end: usize, present: bool) {
    let (now, own) = (hosts.now, &mut hosts.hosts[end]);
    own.switch.set_present(now, PORT, present, &mut own.tenants);
}

/// Returns hosts of which the second has a port that the second machine may leave for the third; no place of the machine
/// is set.
fn movable() -> Hosts {
    let mut hosts = Hosts::new();
    hosts.add_third();
    for end in 0..3 {
        let switch = &mut hosts.hosts[end].switch;
        switch.table(RED).set_mac(mac(2), None);
        switch.set_peers(RED, (0..3).filter(|&other| other != end).map(host).collect());
    }
    let machine = PortConfig { vni: RED, addresses: vec![mac(2)] };
    (1..3).for_each(|end| hosts.hosts[end].switch.set_port(PORT, machine.clone()));
    set_present(&mut hosts, 1, true);
    hosts
}

/// Returns the numbers of the frames that the second machine received at a host, without announcements.
fn received(hosts: &Hosts, end: usize) -> Vec<u32> {
    hosts.seen(end).into_iter().filter(|&number| number != 77).collect()
}

/// Returns the place of the second machine as a host knows it.
fn place_at(hosts: &Hosts, end: usize) -> Option<Place> {
    let mut places = hosts.hosts[end].switch.addresses(RED);
    places.find(|entry| entry.address == mac(2)).map(|entry| entry.value)
}

/// Announces the second machine at a host.
fn announce(hosts: &mut Hosts, end: usize) {
    let broadcast = frame(mac(2), MacAddr([0xff; 6]), 77, 60);
    let len = u32::try_from(broadcast.len()).unwrap();
    let (now, own) = (hosts.now, &mut hosts.hosts[end]);
    let token = own.tenants.send(PORT, broadcast);
    let sent = crate::TenantFrame { port: PORT, token, len };
    own.switch.announce(now, sent, &mut own.tenants);
}

#[test]
fn frames_on_their_way_follow_a_machine_that_is_announced_elsewhere() {
    let mut hosts = movable();
    announce(&mut hosts, 1);
    assert!(hosts.run(LIMIT, |hosts| place_at(hosts, 0) == Some(Place::Peer(host(1)))));
    hosts.send_numbers(0, 0..5, 100);
    assert!(hosts.run(LIMIT, |hosts| received(hosts, 1).len() == 5));
    assert_eq!(led_to(&hosts), [1]);
    // The machine leaves: its port has no room, and what is sent there is kept.
    set_present(&mut hosts, 1, false);
    hosts.hosts[1].tenants.room.insert(PORT, 0);
    hosts.send_numbers(0, 5..10, 100);
    hosts.run(Duration::from_millis(50), |_| false);
    assert_eq!(received(&hosts, 1).len(), 5);
    set_present(&mut hosts, 2, true);
    announce(&mut hosts, 2);
    assert!(hosts.run(LIMIT, |hosts| received(hosts, 2).len() == 5));
    assert_eq!(received(&hosts, 2), (5..10).collect::<Vec<_>>());
    assert_eq!(led_to(&hosts), [2]);
    // The former host knows the place, too.
    assert_eq!(place_at(&hosts, 1), Some(Place::Peer(host(2))));
    // Nothing is held for the frames that moved.
    assert!(hosts.run(LIMIT, |hosts| hosts.hosts[0].tenants.sent.is_empty()));
}

#[test]
fn more_frames_than_wait_for_a_connection_follow_a_machine() {
    let mut hosts = movable();
    announce(&mut hosts, 1);
    assert!(hosts.run(LIMIT, |hosts| place_at(hosts, 0) == Some(Place::Peer(host(1)))));
    hosts.send_numbers(0, 0..5, 100);
    assert!(hosts.run(LIMIT, |hosts| received(hosts, 1).len() == 5));
    set_present(&mut hosts, 1, false);
    hosts.hosts[1].tenants.room.insert(PORT, 0);
    hosts.hosts[0].switch.config.waiting_frames = 256;
    hosts.send_numbers(0, 100..700, 100);
    hosts.run(Duration::from_millis(50), |_| false);
    set_present(&mut hosts, 2, true);
    // As after an announcement of a host that encrypts, to which there is no connection yet.
    let (now, own) = (hosts.now, &mut hosts.hosts[0]);
    own.switch.table(RED).set_mac(mac(2), Some(Place::Peer(host(2))));
    own.switch.follow(now, RED, mac(2), &mut own.tenants);
    assert!(hosts.run(LIMIT, |hosts| hosts.hosts[0].tenants.sent.is_empty()));
    assert_eq!(received(&hosts, 2), (100..700).collect::<Vec<_>>());
    assert_eq!(dropped(&hosts, 0, DropCause::QueueFull), 0);
}

#[test]
fn frames_that_cannot_follow_a_machine_are_counted() {
    let mut hosts = movable();
    announce(&mut hosts, 1);
    assert!(hosts.run(LIMIT, |hosts| place_at(hosts, 0) == Some(Place::Peer(host(1)))));
    hosts.send_numbers(0, 0..5, 100);
    assert!(hosts.run(LIMIT, |hosts| hosts.hosts[0].tenants.sent.is_empty()));
    set_present(&mut hosts, 1, false);
    hosts.hosts[1].tenants.room.insert(PORT, 0);
    hosts.send_numbers(0, 5..10, 100);
    hosts.run(Duration::from_millis(50), |_| false);
    assert_eq!(hosts.hosts[0].tenants.sent.len(), 5);
    // A port of this host has the machine, and is removed before another thread says so.
    let (now, own) = (hosts.now, &mut hosts.hosts[0]);
    let gone = Presence { port: PortId(9), vni: RED, address: mac(2), present: true };
    own.switch.handle_handover(now, Handover::Presence(gone), &mut own.tenants);
    assert!(hosts.hosts[0].tenants.sent.is_empty());
    assert_eq!(dropped(&hosts, 0, DropCause::NoRoute), 5);
}
