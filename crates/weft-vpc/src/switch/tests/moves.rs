//! Machines that move from one host to another. Here the second machine moves from the second host to the
//! third.

use weft_units::Duration;
use weft_wire::{EtherType, MacAddr, VirtioNetHeader};

use super::hosts::{Hosts, PORT, RED, frame, host, mac};
use super::policy::{acl, dropped};
use crate::example::{between, udp, v4, v4_packet};
use crate::{DropCause, NetworkConfig, Place, PortConfig, PortId, protocol};

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
        let network = NetworkConfig { reliable, in_order: true };
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
