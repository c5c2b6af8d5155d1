//! Guests that read and write their receive buffers while frames arrive in them, and hosts that send packets which
//! no switch sends.

use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::Cell;
use core::num::NonZeroU64;

use weft_units::Duration;
use weft_wire::{EtherType, VirtioNetHeader};

use super::hosts::{Hosts, PORT, RED, frame, mac};
use super::policy::{acl, all_released, datagram, dropped};
use super::traffic::bad_link;
use crate::example::{between, udp, v4, v4_packet};
use crate::{
    ConnectionsConfig, Direction, DropCause, Limit, Place, PortConfig, PortId, SecurityGroupConfig,
    SecurityGroups, Sets, protocol,
};

const LIMIT: Duration = Duration::from_secs(20);

/// The offset of a datagram's destination port in a frame.
const DESTINATION_PORT: usize = VirtioNetHeader::LEN + 14 + 20 + 2;

fn groups(rules: &[&str]) -> SecurityGroups {
    let group = SecurityGroupConfig {
        name: "web".into(),
        members: Vec::new(),
        rules: rules.iter().map(|rule| rule.parse().unwrap()).collect(),
    };
    SecurityGroups::new(&[group], &Sets::new(), ConnectionsConfig::default(), (1, 2)).unwrap()
}

/// Returns two hosts; the second's tenant has rules, an access list or security groups.
fn with_rules(tracked: bool) -> Hosts {
    let mut hosts = Hosts::new();
    let switch = &mut hosts.hosts[1].switch;
    if tracked {
        switch.set_groups(PORT, Some(groups(&["allow ingress udp to any port 80"])));
    } else {
        switch.set_acl(PORT, Some(acl(&["deny ingress udp to any port 53"])));
    }
    hosts.fate = bad_link(20, Duration::from_micros(200));
    hosts
}

/// Returns a datagram that the rules deny, filled with bytes that no other frame has.
fn denied(len: usize) -> Vec<u8> {
    let mut frame = datagram(53, len);
    frame[DESTINATION_PORT + 6..].fill(0x5a);
    frame
}

#[test]
fn a_guest_reads_nothing_of_a_frame_that_is_denied() {
    for (tracked, len) in [(false, 100), (false, 20_000), (true, 100), (true, 20_000)] {
        let mut hosts = with_rules(tracked);
        let secrets = Rc::new(Cell::new(0));
        let found = Rc::clone(&secrets);
        hosts.hosts[1].tenants.guest = Some(Box::new(move |memory| {
            found.set(
                found.get() + usize::from(memory.windows(16).any(|bytes| bytes == [0x5a; 16])),
            );
        }));
        for _ in 0..30 {
            hosts.send(0, PORT, denied(len));
            hosts.send(0, PORT, datagram(80, len));
        }
        assert!(hosts.run(LIMIT, all_released));
        assert_eq!(hosts.hosts[1].tenants.seen[&PORT].len(), 30);
        assert_eq!(dropped(&hosts, 1, DropCause::Denied), 30);
        assert_eq!(secrets.get(), 0, "read of {len} bytes, tracked: {tracked}");
    }
}

#[test]
fn a_guest_that_rewrites_its_memory_is_judged_by_what_came() {
    for (tracked, len) in [(false, 100), (false, 20_000), (true, 100), (true, 20_000)] {
        let mut hosts = with_rules(tracked);
        hosts.hosts[1].tenants.guest = Some(Box::new(|memory| {
            memory[DESTINATION_PORT..][..2].copy_from_slice(&80_u16.to_be_bytes());
        }));
        (0..30).for_each(|_| hosts.send(0, PORT, denied(len)));
        assert!(hosts.run(LIMIT, all_released));
        assert_eq!(dropped(&hosts, 1, DropCause::Denied), 30);
        assert!(!hosts.hosts[1].tenants.seen.contains_key(&PORT));
    }
}

#[test]
fn a_guest_that_rewrites_its_memory_teaches_nothing() {
    let mut hosts = Hosts::new();
    let mut reply = [0, 1, 8, 0, 6, 4, 0, 2].to_vec();
    reply.extend(mac(1).0.into_iter().chain([10, 0, 0, 1]));
    reply.extend(mac(2).0.into_iter().chain([10, 0, 0, 2]));
    let mut frame = [0; VirtioNetHeader::LEN].to_vec();
    frame.extend(between(mac(1), mac(2), EtherType::ARP, &reply));
    // The guest writes a third machine's addresses over the sender's.
    hosts.hosts[1].tenants.guest = Some(Box::new(|memory| {
        memory[18..24].copy_from_slice(&mac(3).0);
        memory[34..40].copy_from_slice(&mac(3).0);
        memory[40..44].copy_from_slice(&[10, 0, 0, 3]);
    }));
    hosts.send(0, PORT, frame);
    assert!(hosts.run(LIMIT, all_released));
    assert_eq!(hosts.hosts[1].tenants.seen[&PORT].len(), 1);
    let now = hosts.now;
    let table = hosts.hosts[1].switch.table(RED);
    assert_eq!(
        (table.place(mac(3), now), table.neighbour([10, 0, 0, 3].into(), now)),
        (None, None)
    );
    assert_eq!(table.neighbour([10, 0, 0, 1].into(), now), Some(mac(1)));
}

/// Checks with fragmented packets, of which only the first fragment has the ports.
#[test]
fn frames_are_inspected_in_the_order_of_their_flow() {
    let mut hosts = with_rules(true);
    let (from, to) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    for identification in 0..200 {
        for (at, len) in [(0, 1_480), (185, 1_000)] {
            let payload = udp(40_000, 80, &[7; 1_472])[..len].to_vec();
            let mut header = v4(from, to, protocol::UDP, len);
            header.dont_fragment = false;
            header.identification = identification;
            header.more_fragments = at == 0;
            header.fragment_offset = weft_wire::U13::truncate(at);
            let mut frame = [0; VirtioNetHeader::LEN].to_vec();
            frame.extend(between(mac(1), mac(2), EtherType::IPV4, &v4_packet(header, &payload)));
            hosts.send(0, PORT, frame);
        }
    }
    assert!(hosts.run(LIMIT, all_released));
    assert_eq!(dropped(&hosts, 1, DropCause::NoFirstFragment), 0);
    assert_eq!(hosts.hosts[1].tenants.seen[&PORT].len(), 400);
    assert!(hosts.hosts[0].tenants.reads_again > 0, "nothing was late");
}

#[test]
fn a_segment_size_without_segments_counts_as_one_frame() {
    const NEIGHBOUR: PortId = PortId(2);
    const BURST: u64 = 25;
    let mut hosts = Hosts::new();
    let now = hosts.now;
    let switch = &mut hosts.hosts[0].switch;
    switch.set_port(NEIGHBOUR, PortConfig { vni: RED, addresses: [mac(3)].to_vec() });
    switch.table(RED).set_mac(mac(3), Some(Place::Port(NEIGHBOUR)));
    let limit = Limit {
        frames_per_second: NonZeroU64::new(1),
        frame_burst: NonZeroU64::new(BURST),
        ..Limit::default()
    };
    assert_eq!(switch.set_limit(now, NEIGHBOUR, Direction::Ingress, Some(limit)), Ok(true));
    for number in 0..=BURST as u32 {
        let mut frame = frame(mac(1), mac(3), number, 1_000);
        VirtioNetHeader { gso_size: 1, ..VirtioNetHeader::default() }.emit(&mut frame);
        hosts.send(0, PORT, frame);
    }
    let own = &hosts.hosts[0];
    let dropped = own.switch.port_counters(NEIGHBOUR).unwrap().dropped_for(DropCause::RateLimited);
    assert_eq!((own.tenants.numbers(NEIGHBOUR).len() as u64, dropped), (BURST, 1));
}
