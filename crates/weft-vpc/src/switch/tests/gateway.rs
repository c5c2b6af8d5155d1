//! Packets between the subnets of a network.

use alloc::vec;
use alloc::vec::Vec;

use weft_units::Duration;
use weft_wire::{EtherType, MacAddr, VirtioNetHeader};

use super::hosts::{Hosts, PORT, RED, mac};
use super::traffic::bad_link;
use crate::example::{between, udp, v4, v4_packet};
use crate::offload::verify;
use crate::{
    DropCause, Frame, GATEWAY, Hop, NetworkConfig, Place, PortConfig, PortId, gateway, protocol,
};

const LIMIT: Duration = Duration::from_secs(20);
/// Another tenant of the first host.
const NEAR: PortId = PortId(2);

/// Returns hosts where tenant 1 is 10.0.0.1, the other host's tenant 10.0.1.2, and the second of the first
/// 10.0.2.3.
fn subnets() -> Hosts {
    let mut hosts = Hosts::new();
    for host in &mut hosts.hosts {
        let table = host.switch.table(RED);
        for (address, owner) in
            [([10, 0, 0, 1], mac(1)), ([10, 0, 1, 2], mac(2)), ([10, 0, 2, 3], mac(3))]
        {
            table.set_neighbour(address.into(), Some(owner));
            table.set_neighbour([address[0], address[1], address[2], 254].into(), Some(GATEWAY));
        }
        table.set_route("10.0.0.0/16".parse().unwrap(), Some(Hop::Direct));
    }
    let near = &mut hosts.hosts[0].switch;
    near.set_port(NEAR, PortConfig { vni: RED, addresses: vec![mac(3)] });
    near.table(RED).set_mac(mac(3), Some(Place::Port(NEAR)));
    hosts
}

/// Returns a datagram of tenant 1 for the gateway.
fn datagram(to: [u8; 4], hop_limit: u8, bytes: usize) -> Vec<u8> {
    let udp = udp(1000, 53, &vec![7; bytes]);
    let mut header = v4([10, 0, 0, 1].into(), to.into(), protocol::UDP, udp.len());
    header.ttl = hop_limit;
    let mut frame = vec![0; VirtioNetHeader::LEN];
    frame.extend(between(mac(1), GATEWAY, EtherType::IPV4, &v4_packet(header, &udp)));
    frame
}

fn seen(hosts: &Hosts, end: usize, port: PortId) -> &[Vec<u8>] {
    hosts.hosts[end].tenants.seen.get(&port).map_or(&[], Vec::as_slice)
}

/// Returns a datagram as a tenant receives it after the gateway.
fn forwarded(mut frame: Vec<u8>, to: MacAddr) -> Vec<u8> {
    gateway::forward(&mut frame[VirtioNetHeader::LEN..], to);
    frame
}

#[test]
fn packets_cross_subnets_and_losses_with_a_hop_less() {
    let mut hosts = subnets();
    hosts.fate = bad_link(20, Duration::from_micros(200));
    let sent: Vec<_> = (0..500).map(|at| datagram([10, 0, 1, 2], 64, 10 + at * 7)).collect();
    sent.iter().for_each(|frame| hosts.send(0, PORT, frame.clone()));
    assert!(hosts.run(LIMIT, |hosts| seen(hosts, 1, PORT).len() == sent.len()));
    assert!(hosts.hosts[0].tenants.reads_again > 0, "what was lost was read again");
    for (sent, seen) in sent.into_iter().zip(seen(&hosts, 1, PORT)) {
        assert_eq!(*seen, forwarded(sent, mac(2)));
        let ethernet = &seen[VirtioNetHeader::LEN..];
        let frame = Frame::parse(ethernet, ethernet.len()).unwrap();
        assert_eq!((frame.source, frame.ip().unwrap().hop_limit), (GATEWAY, 63));
        verify(ethernet, &frame).unwrap();
    }
}

#[test]
fn packets_cross_subnets_of_one_host_and_in_plain_vxlan() {
    let mut hosts = subnets();
    hosts.send(0, PORT, datagram([10, 0, 2, 3], 64, 100));
    assert_eq!(seen(&hosts, 0, NEAR), [forwarded(datagram([10, 0, 2, 3], 64, 100), mac(3))]);
    let plain = NetworkConfig { reliable: false, in_order: true, ..NetworkConfig::default() };
    hosts.hosts.iter_mut().for_each(|host| host.switch.set_network(RED, plain));
    hosts.send(0, PORT, datagram([10, 0, 1, 2], 64, 100));
    assert!(hosts.run(LIMIT, |hosts| seen(hosts, 1, PORT).len() == 1));
    assert_eq!(seen(&hosts, 1, PORT), [forwarded(datagram([10, 0, 1, 2], 64, 100), mac(2))]);
    assert_eq!(hosts.plain_frames, 1);
}

#[test]
fn packets_that_the_gateway_cannot_forward_are_counted_without_an_icmp_error() {
    let mut hosts = subnets();
    let arp = between(mac(1), GATEWAY, EtherType::ARP, &[0; 28]);
    let bridged = [&[0; VirtioNetHeader::LEN][..], &arp].concat();
    for (frame, cause) in [
        (datagram([10, 0, 1, 2], 1, 10), DropCause::HopLimit),
        (datagram([10, 0, 1, 9], 64, 10), DropCause::NoRoute),
        (datagram([192, 0, 2, 1], 64, 10), DropCause::NoRoute),
        // The gateway's own address, which has no machine.
        (datagram([10, 0, 1, 254], 64, 10), DropCause::NoRoute),
        (datagram([10, 0, 0, 1], 64, 10), DropCause::NoRoute),
        (bridged, DropCause::NoRoute),
    ] {
        let before = hosts.hosts[0].switch.port_counters(PORT).unwrap().dropped_for(cause);
        hosts.send(0, PORT, frame);
        let after = hosts.hosts[0].switch.port_counters(PORT).unwrap().dropped_for(cause);
        assert_eq!(after - before, 1, "{cause:?}");
    }
    assert!(hosts.run(LIMIT, |hosts| hosts.hosts[0].tenants.holds_nothing()));
    assert!(seen(&hosts, 1, PORT).is_empty() && seen(&hosts, 0, NEAR).is_empty());
}
