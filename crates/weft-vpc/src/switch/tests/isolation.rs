//! The isolation of tenants from each other.

use alloc::vec;
use alloc::vec::Vec;
use core::net::SocketAddr;

use weft_transport::{Arrival, TransportConfig};
use weft_units::Duration;
use weft_wire::{MacAddr, Packet, VirtioNetHeader};

use super::hosts::{Hosts, PORT, RED, frame, host, mac};
use crate::{DropCause, Inbound, Place, PortConfig, PortId, Vni};

const LIMIT: Duration = Duration::from_secs(20);
const BLUE: Vni = Vni::new(8).unwrap();
const BLUE_PORT: PortId = PortId(2);

/// Returns hosts that both have two networks with the same addresses.
fn two_networks() -> Hosts {
    let mut hosts = Hosts::with(&TransportConfig::bifrost());
    for (end, own) in hosts.hosts.iter_mut().enumerate() {
        let (here, there) = (mac(end as u8 + 1), mac(2 - end as u8));
        let switch = &mut own.switch;
        switch.set_port(BLUE_PORT, PortConfig { vni: BLUE, addresses: vec![here] });
        switch.set_peers(BLUE, vec![host(1 - end)]);
        switch.table(BLUE).set_mac(here, Some(Place::Port(BLUE_PORT)));
        switch.table(BLUE).set_mac(there, Some(Place::Peer(host(1 - end))));
    }
    hosts
}

fn seen(hosts: &Hosts, end: usize, port: PortId) -> Vec<u32> {
    hosts.hosts[end].tenants.numbers(port)
}

#[test]
fn tenants_with_the_same_addresses_never_meet() {
    let mut hosts = two_networks();
    for number in 0..50 {
        hosts.send(0, PORT, frame(mac(1), mac(2), number, 200));
        hosts.send(0, BLUE_PORT, frame(mac(1), mac(2), 1000 + number, 200));
        hosts.send(1, BLUE_PORT, frame(mac(2), MacAddr::BROADCAST, 2000 + number, 200));
    }
    let all = |hosts: &Hosts| {
        seen(hosts, 1, PORT).len()
            + seen(hosts, 1, BLUE_PORT).len()
            + seen(hosts, 0, BLUE_PORT).len()
            == 150
    };
    assert!(hosts.run(LIMIT, all));
    assert_eq!(seen(&hosts, 1, PORT), (0..50).collect::<Vec<_>>());
    assert_eq!(seen(&hosts, 1, BLUE_PORT), (1000..1050).collect::<Vec<_>>());
    assert_eq!(seen(&hosts, 0, BLUE_PORT), (2000..2050).collect::<Vec<_>>());
    assert!(seen(&hosts, 0, PORT).is_empty());
}

/// Returns the packets of the first host's connection, as an observer on the path would see them.
fn packets(hosts: &mut Hosts) -> Vec<(Packet, Vec<u8>)> {
    hosts.send(0, PORT, frame(mac(1), mac(2), 9, 200));
    let own = &mut hosts.hosts[0];
    let (mut packet, mut found) = (Packet::default(), Vec::new());
    own.switch.poll_burst(hosts.now, 10, &mut packet, |leaves| {
        let mut payload = vec![0; usize::from(leaves.payload_len())];
        leaves.read(&mut own.tenants, &mut payload);
        found.push((*leaves.packet, payload));
    });
    found
}

fn arrival(hosts: &Hosts, from: SocketAddr) -> Arrival {
    Arrival { from, received_at: hosts.now, congestion_experienced: false, hops: 2 }
}

#[test]
fn a_packet_under_another_network_is_not_taken() {
    let mut hosts = two_networks();
    hosts.send_numbers(0, 0..1, 100);
    assert!(hosts.run(LIMIT, |hosts| hosts.seen(1).len() == 1));
    let forged = packets(&mut hosts);
    assert!(!forged.is_empty());
    let arrival = arrival(&hosts, host(0));
    for (packet, payload) in &forged {
        let own = &mut hosts.hosts[1];
        let now = hosts.now;
        let inbound = Inbound { arrival: &arrival, vni: BLUE, packet, payload };
        own.switch.handle_packet(now, &inbound, &mut own.tenants);
        own.switch.handle_timeout(now, &mut own.tenants);
    }
    let counters = hosts.hosts[1].switch.port_counters(PORT).unwrap();
    assert_eq!(counters.dropped_for(DropCause::Misdirected), forged.len() as u64);
    assert_eq!((seen(&hosts, 1, PORT), seen(&hosts, 1, BLUE_PORT)), (vec![0], vec![]));
    // The frame itself is retransmitted and arrives.
    assert!(hosts.run(LIMIT, |hosts| hosts.seen(1) == [0, 9]));
}

#[test]
fn packets_of_unknown_peers_are_dropped() {
    let mut hosts = two_networks();
    let unknown_peer = "10.9.9.9:4789".parse().unwrap();
    let (arrival, now) = (arrival(&hosts, unknown_peer), hosts.now);
    let forged = packets(&mut hosts);
    let own = &mut hosts.hosts[1];
    for (packet, payload) in &forged {
        let inbound = Inbound { arrival: &arrival, vni: RED, packet, payload };
        own.switch.handle_packet(now, &inbound, &mut own.tenants);
    }
    let ethernet = &frame(mac(1), mac(2), 0, 100)[VirtioNetHeader::LEN..];
    own.switch.handle_plain(now, unknown_peer, RED, ethernet, &mut own.tenants);
    own.switch.handle_plain(now, host(0), Vni::new(99).unwrap(), ethernet, &mut own.tenants);
    let refused = own.switch.counters().dropped_for(DropCause::UnknownPeer);
    assert_eq!(refused, forged.len() as u64 + 2);
    assert_eq!(own.switch.pairs().count(), 0);
}

/// Checks with a host that is in one network only: the first host knows it from there, and refuses its connections
/// and frames for the other network.
#[test]
fn a_host_is_heard_only_in_its_networks() {
    let mut hosts = two_networks();
    hosts.hosts[0].switch.set_peers(BLUE, Vec::new());
    hosts.send_numbers(1, 0..1, 100);
    hosts.send(1, BLUE_PORT, frame(mac(2), mac(1), 66, 100));
    hosts.send(1, BLUE_PORT, frame(mac(2), MacAddr::BROADCAST, 67, 100));
    assert!(hosts.run(LIMIT, |hosts| hosts.hosts[1].tenants.holds_nothing()));
    assert!(hosts.run(LIMIT, |hosts| hosts.seen(0) == [0]));
    assert!(seen(&hosts, 0, BLUE_PORT).is_empty());
    let counters = hosts.hosts[0].switch.counters();
    let causes = [DropCause::Misdirected, DropCause::UnknownPeer];
    assert_eq!(causes.map(|cause| counters.dropped_for(cause)), [1, 1]);
}

#[test]
fn a_host_that_leaves_a_network_is_no_longer_heard_in_it() {
    let mut hosts = two_networks();
    // The place of its machine is learned only.
    hosts.hosts[0].switch.table(BLUE).set_mac(mac(2), None);
    hosts.send_numbers(1, 0..1, 100);
    hosts.send(1, BLUE_PORT, frame(mac(2), mac(1), 1000, 100));
    let both = |hosts: &Hosts| seen(hosts, 0, BLUE_PORT) == [1000] && hosts.seen(0) == [0];
    assert!(hosts.run(LIMIT, both));
    hosts.hosts[0].switch.set_peers(BLUE, Vec::new());
    hosts.send_numbers(1, 1..2, 100);
    hosts.send(1, BLUE_PORT, frame(mac(2), mac(1), 66, 100));
    assert!(hosts.run(LIMIT, |hosts| hosts.hosts[1].tenants.holds_nothing()));
    assert_eq!((hosts.seen(0), seen(&hosts, 0, BLUE_PORT)), (vec![0, 1], vec![1000]));
    let (now, switch) = (hosts.now, &mut hosts.hosts[0].switch);
    assert!(switch.pairs().all(|pair| pair.vni == RED));
    assert_eq!(switch.table(BLUE).place(mac(2), now), None);
}

#[test]
fn a_tenant_sends_from_its_own_addresses_only() {
    let mut hosts = two_networks();
    hosts.send(0, PORT, frame(mac(9), mac(2), 0, 100));
    hosts.send(0, PORT, frame(mac(1), mac(1), 0, 100));
    let mut broken = frame(mac(1), mac(2), 0, 100);
    broken[24..26].copy_from_slice(&[0x08, 0x00]);
    hosts.send(0, PORT, broken);
    let counters = hosts.hosts[0].switch.port_counters(PORT).unwrap();
    let causes = [DropCause::Spoofed, DropCause::NoRoute, DropCause::Malformed];
    assert_eq!(causes.map(|cause| counters.dropped_for(cause)), [1, 1, 1]);
    assert!(hosts.hosts[0].tenants.holds_nothing());
}
