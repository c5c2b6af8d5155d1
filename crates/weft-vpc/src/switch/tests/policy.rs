//! Drops by policy are not losses (BIFROST, section 7.1).

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::num::NonZeroU64;

use weft_transport::{TransportConfig, congestion};
use weft_units::{BitRate, Duration};
use weft_wire::{EtherType, GsoType, MacAddr, VirtioNetHeader};

use super::hosts::{Fate, Hosts, PORT, RED, mac};
use crate::example::{between, udp, v4, v4_packet};
use crate::{
    Acl, AclConfig, Action, ConnectionsConfig, Direction, DropCause, Limit, SecurityGroupConfig,
    SecurityGroups, Sets, SourceGuard, protocol,
};

const LIMIT: Duration = Duration::from_secs(20);

/// Returns a datagram for a port of the second host's tenant.
pub(super) fn datagram(port: u16, len: usize) -> Vec<u8> {
    let payload = udp(40_000, port, &vec![7; len]);
    let (from, to) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    let packet = v4_packet(v4(from, to, protocol::UDP, payload.len()), &payload);
    let mut frame = vec![0; VirtioNetHeader::LEN];
    frame.extend(between(mac(1), mac(2), EtherType::IPV4, &packet));
    frame
}

pub(super) fn acl(rules: &[&str]) -> Acl {
    let rules = rules.iter().map(|rule| rule.parse().unwrap()).collect();
    let config = AclConfig { name: "web".into(), default: Action::Allow, rules };
    Acl::new(&config, &Sets::new()).unwrap()
}

pub(super) fn dropped(hosts: &Hosts, end: usize, cause: DropCause) -> u64 {
    hosts.hosts[end].switch.port_counters(PORT).unwrap().dropped_for(cause)
}

/// Returns `true` if the sender's tenant has all its frames released.
pub(super) fn all_released(hosts: &Hosts) -> bool {
    hosts.hosts[0].tenants.holds_nothing()
}

#[test]
fn frames_that_the_receivers_list_denies_are_acknowledged_and_not_retransmitted() {
    let mut hosts = Hosts::new();
    hosts.hosts[1].switch.set_acl(PORT, Some(acl(&["deny ingress udp to any port 53"])));
    for number in 0..100 {
        hosts.send(0, PORT, datagram(if number % 2 == 0 { 53 } else { 80 }, 1000));
    }
    assert!(hosts.run(LIMIT, all_released));
    assert_eq!(hosts.hosts[1].tenants.seen[&PORT].len(), 50);
    assert_eq!(dropped(&hosts, 1, DropCause::Denied), 50);
    assert_eq!(
        (hosts.hosts[0].tenants.reads_again, hosts.hosts[1].tenants.holds_nothing()),
        (0, true)
    );
}

#[test]
fn frames_that_the_senders_list_denies_do_not_leave() {
    let mut hosts = Hosts::new();
    hosts.hosts[0].switch.set_acl(PORT, Some(acl(&["deny egress udp to any port 53"])));
    hosts.send(0, PORT, datagram(53, 10));
    assert!(all_released(&hosts));
    assert_eq!(dropped(&hosts, 0, DropCause::Denied), 1);
}

/// Congestion controls that slow down on marks, and the largest rate at which each may send to a limited receiver,
/// in percent of the limit; the overlay's default is first. Swift's windows do not get small enough for the limit.
const MARK_SENSITIVE: [(congestion::Kind, u64); 3] =
    [(congestion::Kind::Weft, 160), (congestion::Kind::Dctcp, 125), (congestion::Kind::Swift, 450)];

/// The rate limit at the receiver, bits per second.
const RATE: u64 = 100_000_000;
/// Number of frames sent, of 1,442 bytes each.
const FRAMES: u64 = 4_000;

/// Sends frames to a receiver with a rate limit, on a network with a round trip of 1 ms. Returns the number of
/// frames that it accepted, and the number that the limit allows in the time that all of them needed.
fn send_to_limited(congestion: congestion::Kind) -> (u64, u64) {
    let base_rtt = Duration::from_millis(1);
    // The first window of overlays as shipped.
    let bifrost = TransportConfig::bifrost();
    let transport = TransportConfig { congestion, base_rtt, first_window: 64 << 10, ..bifrost };
    let mut hosts = Hosts::with(&transport);
    hosts.fate = Box::new(move |_, _| Fate::After(base_rtt / 2));
    let (began, rate) = (hosts.now, Limit { rate: BitRate::bps(RATE), ..Limit::default() });
    let set = hosts.hosts[1].switch.set_limit(began, PORT, Direction::Ingress, Some(rate));
    assert_eq!(set, Ok(true));
    for _ in 0..FRAMES {
        hosts.send(0, PORT, datagram(80, 1400));
    }
    assert!(hosts.run(LIMIT, all_released));
    let took = hosts.now.since(began).as_nanos();
    let seen = hosts.hosts[1].tenants.seen[&PORT].len() as u64;
    let shed = dropped(&hosts, 1, DropCause::RateLimited);
    assert_eq!((seen + shed, hosts.hosts[0].tenants.reads_again), (FRAMES, 0));
    assert_eq!(hosts.hosts[0].switch.transport().ecn_marks_reported, shed);
    // The burst of 128 KiB is 90 frames.
    (seen, 90 + took * RATE / 1_000_000_000 / 8 / 1_442)
}

#[test]
fn frames_above_the_receivers_rate_are_not_retransmitted_and_slow_the_sender() {
    for (congestion, max) in MARK_SENSITIVE {
        let (seen, allowed) = send_to_limited(congestion);
        let offered = FRAMES * 100 / allowed;
        assert!(seen <= allowed + 1, "{congestion}: {seen} frames where {allowed} are allowed");
        assert!(seen * 10 > allowed * 9, "{congestion}: {seen} frames where {allowed} are allowed");
        assert!(offered <= max, "{congestion}: {offered} % of the limit");
    }
    let (_, allowed) = send_to_limited(congestion::Kind::FixedWindow);
    // Only slow start holds it: its growth ends with the first marks.
    assert!(FRAMES > 5 * allowed, "it does not slow down: {allowed}");
}

/// Sends a datagram with the type of service `sent` and returns the byte that the receiving tenant sees.
fn received_type_of_service(marks: bool, sent: u8) -> u8 {
    let mut hosts = Hosts::new();
    hosts.marks = marks;
    let mut frame = datagram(80, 1400);
    let byte = VirtioNetHeader::LEN + 15;
    frame[byte] = sent;
    hosts.send(0, PORT, frame);
    assert!(hosts.run(LIMIT, all_released));
    hosts.hosts[1].tenants.seen[&PORT][0][byte]
}

#[test]
fn a_mark_on_the_way_reaches_a_tenant_that_is_ecn_capable() {
    // RFC 6040, section 4.2; Not-ECT stays unchanged: the transport has slowed down on the mark.
    for (sent, marked) in [(0b00, 0b00), (0b01, 0b11), (0b10, 0b11), (0b11, 0b11)] {
        assert_eq!(received_type_of_service(false, sent), sent);
        assert_eq!(received_type_of_service(true, sent), marked);
    }
}

#[test]
fn frames_above_the_senders_rate_do_not_leave() {
    let mut hosts = Hosts::new();
    let rate = Limit { rate: BitRate::bps(1_000_000), ..Limit::default() };
    let now = hosts.now;
    hosts.hosts[0].switch.set_limit(now, PORT, Direction::Egress, Some(rate)).unwrap();
    for _ in 0..200 {
        hosts.send(0, PORT, datagram(80, 1400));
    }
    assert!(hosts.run(LIMIT, all_released));
    // 128 KiB are 90 frames of 1442 bytes.
    let seen = hosts.hosts[1].tenants.seen[&PORT].len() as u64;
    assert_eq!((seen, dropped(&hosts, 0, DropCause::RateLimited)), (90, 110));
}

#[test]
fn address_resolution_is_answered_on_the_host() {
    let mut hosts = Hosts::new();
    hosts.hosts[0].switch.table(RED).set_neighbour([10, 0, 0, 2].into(), Some(mac(2)));
    let mut question = vec![0, 1, 8, 0, 6, 4, 0, 1];
    question.extend(mac(1).0.into_iter().chain([10, 0, 0, 1]));
    question.extend([0; 6].into_iter().chain([10, 0, 0, 2]));
    let mut frame = vec![0; VirtioNetHeader::LEN];
    frame.extend(between(mac(1), MacAddr::BROADCAST, EtherType::ARP, &question));
    hosts.send(0, PORT, frame);
    assert!(all_released(&hosts));
    let answer = &hosts.hosts[0].tenants.seen[&PORT][0];
    assert_eq!(answer[34..44], [&mac(2).0[..], &[10, 0, 0, 2]].concat());
    assert!(hosts.hosts[0].switch.poll_plain().is_none());
}

#[test]
fn frames_from_another_address_do_not_leave() {
    let mut hosts = Hosts::new();
    let guard = |source: &str| Some(SourceGuard::new(vec![source.parse().unwrap()]));
    assert!(hosts.hosts[0].switch.set_sources(PORT, guard("10.0.0.1")));
    hosts.send(0, PORT, datagram(80, 10));
    assert!(hosts.run(LIMIT, all_released));
    assert_eq!(hosts.hosts[1].tenants.seen[&PORT].len(), 1);
    assert!(hosts.hosts[0].switch.set_sources(PORT, guard("10.0.0.3")));
    hosts.send(0, PORT, datagram(80, 10));
    assert!(all_released(&hosts));
    assert_eq!(dropped(&hosts, 0, DropCause::Spoofed), 1);
}

#[test]
fn a_reply_passes_the_group_that_its_request_passed() {
    let mut hosts = Hosts::new();
    let group = SecurityGroupConfig {
        name: "client".into(),
        members: Vec::new(),
        rules: vec!["allow egress udp to any port 53".parse().unwrap()],
    };
    let groups =
        SecurityGroups::new(&[group], &Sets::new(), ConnectionsConfig::default(), (1, 2)).unwrap();
    hosts.hosts[0].switch.set_groups(PORT, Some(groups));
    let answer = |from: u16| {
        let payload = udp(from, 40_000, &[7; 10]);
        let (source, to) = ([10, 0, 0, 2].into(), [10, 0, 0, 1].into());
        let packet = v4_packet(v4(source, to, protocol::UDP, payload.len()), &payload);
        let mut frame = vec![0; VirtioNetHeader::LEN];
        frame.extend(between(mac(2), mac(1), EtherType::IPV4, &packet));
        frame
    };
    let all_done = |hosts: &Hosts| hosts.hosts.iter().all(|host| host.tenants.holds_nothing());
    // First an unrequested reply; then a request on the port that a rule allows, and one on another.
    hosts.send(1, PORT, answer(53));
    assert!(hosts.run(LIMIT, all_done));
    hosts.send(0, PORT, datagram(53, 10));
    hosts.send(0, PORT, datagram(54, 10));
    assert!(hosts.run(LIMIT, all_done));
    hosts.send(1, PORT, answer(53));
    hosts.send(1, PORT, answer(54));
    assert!(hosts.run(LIMIT, all_done));
    assert_eq!(dropped(&hosts, 0, DropCause::Denied), 3);
    assert_eq!(hosts.hosts[0].tenants.seen[&PORT].len(), 1);
    assert_eq!(hosts.hosts[1].tenants.seen[&PORT].len(), 1);
}

#[test]
fn frames_that_a_group_refuses_are_counted_by_reason() {
    let mut hosts = Hosts::new();
    let group = SecurityGroupConfig {
        name: "client".into(),
        members: Vec::new(),
        rules: vec!["allow egress udp to any".parse().unwrap()],
    };
    let no_connections = ConnectionsConfig { max_connections: 0, ..ConnectionsConfig::default() };
    let groups = SecurityGroups::new(&[group], &Sets::new(), no_connections, (1, 2)).unwrap();
    hosts.hosts[0].switch.set_groups(PORT, Some(groups));
    hosts.send(0, PORT, datagram(53, 10));
    // The second fragment of a packet (RFC 791) whose first fragment has not passed.
    let (from, to) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    let mut packet = v4_packet(v4(from, to, protocol::UDP, 16), &[0; 16]);
    packet[7] = 3;
    let mut later = vec![0; VirtioNetHeader::LEN];
    later.extend(between(mac(1), mac(2), EtherType::IPV4, &packet));
    hosts.send(0, PORT, later);
    let packet = v4_packet(v4(from, to, protocol::TCP, 20), &[0x50; 20]);
    let mut other = vec![0; VirtioNetHeader::LEN];
    other.extend(between(mac(1), mac(2), EtherType::IPV4, &packet));
    hosts.send(0, PORT, other);
    assert!(all_released(&hosts));
    let causes = [DropCause::TableFull, DropCause::NoFirstFragment, DropCause::Denied];
    assert_eq!(causes.map(|cause| dropped(&hosts, 0, cause)), [1, 1, 1]);
}

#[test]
fn a_super_frame_counts_as_its_packets_regardless_of_its_header() {
    let mut hosts = Hosts::new();
    let limit = Limit {
        frames_per_second: NonZeroU64::new(1),
        frame_burst: NonZeroU64::new(25),
        ..Limit::default()
    };
    let now = hosts.now;
    hosts.hosts[0].switch.set_limit(now, PORT, Direction::Egress, Some(limit)).unwrap();
    let header = VirtioNetHeader {
        needs_csum: true,
        gso_type: GsoType::Udp,
        gso_size: 100,
        csum_start: 34,
        csum_offset: 6,
        ..VirtioNetHeader::default()
    };
    let mut send = |header: VirtioNetHeader| {
        let mut frame = datagram(80, 1000);
        header.emit(&mut frame);
        hosts.send(0, PORT, frame);
    };
    // Ten frames each: one whose hint counts all of it as headers, and two more, of which the last is too many.
    send(VirtioNetHeader { hdr_len: 1042, ..header });
    send(header);
    send(header);
    // A frame that is not TCP does not leave.
    send(VirtioNetHeader { gso_type: GsoType::TcpV4, ..header });
    assert!(hosts.run(LIMIT, all_released));
    assert_eq!(dropped(&hosts, 0, DropCause::RateLimited), 1);
    assert_eq!(dropped(&hosts, 0, DropCause::Malformed), 1);
    assert_eq!(hosts.hosts[1].tenants.seen[&PORT].len(), 2);
}
