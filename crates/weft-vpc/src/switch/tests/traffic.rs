//! The frames that tenants see on a good network and on a bad one.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use weft_units::Duration;
use weft_wire::{EtherType, MacAddr, VirtioNetHeader};

use super::hosts::{Fate, Fates, Hosts, PORT, RED, frame, mac};
use crate::example::{between, udp, v4, v4_packet};
use crate::{DropCause, NetworkConfig, protocol};

const LIMIT: Duration = Duration::from_secs(20);

fn numbers(to: u32) -> Vec<u32> {
    (0..to).collect()
}

/// Returns a link that loses one packet in `one_in` and delays each by 20 us to 20 us + `max`.
pub(super) fn bad_link(one_in: u64, max: Duration) -> Fates {
    Box::new(move |rng, _| {
        if rng.below(one_in) == 0 {
            return Fate::Lost;
        }
        Fate::After(Duration::from_nanos(20_000 + rng.below(max.as_nanos())))
    })
}

#[test]
fn frames_of_every_size_arrive_whole_and_in_order_through_loss_and_reordering() {
    for (len, count) in [(30, 2_000), (1_400, 2_000), (65_000, 40)] {
        let mut hosts = Hosts::new();
        hosts.fate = bad_link(50, Duration::from_micros(200));
        hosts.send_numbers(0, 0..count, len);
        let all = hosts.run(LIMIT, |hosts| hosts.seen(1).len() == count as usize);
        assert!(all, "{} of {count} frames of {len} bytes", hosts.seen(1).len());
        assert_eq!(hosts.seen(1), numbers(count));
        for (number, seen) in hosts.hosts[1].tenants.seen[&PORT].iter().enumerate() {
            assert_eq!(*seen, frame(mac(1), mac(2), number as u32, len));
        }
        let all_released =
            hosts.run(LIMIT, |hosts| hosts.hosts.iter().all(|host| host.tenants.holds_nothing()));
        assert!(all_released, "everything is released");
        assert!(hosts.hosts[0].tenants.reads_again > 0, "what was lost was read again");
    }
}

/// Returns a datagram of a flow with its number at its end.
fn datagram(flow: u16, number: u32) -> Vec<u8> {
    let udp = udp(1000 + flow, 53, &number.to_be_bytes());
    let header = v4([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), protocol::UDP, udp.len());
    let mut bytes = vec![0; VirtioNetHeader::LEN];
    bytes.extend(between(mac(1), mac(2), EtherType::IPV4, &v4_packet(header, &udp)));
    bytes
}

#[test]
fn a_lost_packet_holds_back_its_own_flow_only() {
    const FLOWS: u16 = 7;
    const COUNT: u32 = 4_000;
    let mut hosts = Hosts::new();
    hosts.fate = bad_link(30, Duration::from_micros(200));
    for number in 0..COUNT {
        // The flows do not alternate: they have different rates.
        let flow = (number * number / 3 % u32::from(FLOWS)) as u16;
        hosts.send(0, PORT, datagram(flow, number));
        if number % 10 == 0 {
            hosts.run(Duration::from_micros(50), |_| false);
        }
    }
    let seen = |hosts: &Hosts| hosts.hosts[1].tenants.seen.get(&PORT).map_or(0, Vec::len);
    assert!(hosts.run(LIMIT, |hosts| seen(hosts) == COUNT as usize));
    let (mut last, mut overtaken) = ([None; FLOWS as usize], 0);
    let mut highest = 0;
    for frame in &hosts.hosts[1].tenants.seen[&PORT] {
        let flow = u16::from_be_bytes(frame[46..48].try_into().unwrap()) - 1000;
        let number = u32::from_be_bytes(*frame.last_chunk().unwrap());
        let last = &mut last[usize::from(flow)];
        assert!(*last < Some(number), "flow {flow}: {number} after {last:?}");
        *last = Some(number);
        overtaken += u32::from(number < highest);
        highest = highest.max(number);
    }
    assert!(overtaken > COUNT / 20, "only {overtaken} frames were overtaken by other flows");
}

#[test]
fn both_directions_share_a_connection() {
    let mut hosts = Hosts::new();
    hosts.send_numbers(0, 0..10, 100);
    assert!(hosts.run(LIMIT, |hosts| hosts.seen(1).len() == 10));
    hosts.send_numbers(1, 0..10, 100);
    assert!(hosts.run(LIMIT, |hosts| hosts.seen(0).len() == 10));
    for host in &hosts.hosts {
        assert_eq!(host.switch.pairs().count(), 1);
    }
}

#[test]
fn both_ends_may_request_at_once() {
    let mut hosts = Hosts::new();
    hosts.send_numbers(0, 0..100, 100);
    hosts.send_numbers(1, 0..100, 100);
    assert!(hosts.run(LIMIT, |hosts| hosts.seen(0).len() == 100 && hosts.seen(1).len() == 100));
    assert_eq!((hosts.seen(0), hosts.seen(1)), (numbers(100), numbers(100)));
}

#[test]
fn a_tenant_without_room_receives_every_frame_later() {
    let mut hosts = Hosts::new();
    hosts.hosts[1].tenants.room.insert(PORT, 3);
    hosts.fate = bad_link(100, Duration::from_micros(300));
    hosts.send_numbers(0, 0..200, 5_000);
    let all = hosts.run(LIMIT, |hosts| hosts.seen(1).len() == 200);
    assert!(all, "{} of 200 frames", hosts.seen(1).len());
    assert_eq!(hosts.seen(1), numbers(200));
    let counters = hosts.hosts[1].switch.port_counters(PORT).unwrap();
    assert!(counters.declined > 0);
    assert_eq!(counters.dropped, [0; DropCause::ALL.len()]);
}

#[test]
fn a_network_without_order_shows_frames_as_they_come() {
    let mut hosts = Hosts::new();
    for host in &mut hosts.hosts {
        host.switch.set_network(
            RED,
            NetworkConfig { reliable: true, in_order: false, ..NetworkConfig::default() },
        );
    }
    hosts.fate = bad_link(50, Duration::from_micros(500));
    hosts.send_numbers(0, 0..500, 1_000);
    assert!(hosts.run(LIMIT, |hosts| hosts.seen(1).len() == 500));
    let mut seen = hosts.seen(1);
    assert!(!seen.is_sorted());
    seen.sort_unstable();
    assert_eq!(seen, numbers(500), "each once all the same");
}

#[test]
fn a_network_without_reliability_is_a_plain_vxlan() {
    let mut hosts = Hosts::new();
    for host in &mut hosts.hosts {
        host.switch.set_network(
            RED,
            NetworkConfig { reliable: false, in_order: true, ..NetworkConfig::default() },
        );
    }
    hosts.send_numbers(0, 0..100, 1_000);
    assert!(hosts.run(LIMIT, |hosts| hosts.seen(1).len() == 100));
    assert_eq!((hosts.plain_frames, hosts.hosts[0].switch.pairs().count()), (100, 0));
}

#[test]
fn a_broadcast_reaches_every_port_of_the_network_and_its_senders_place_is_learned() {
    let mut hosts = Hosts::new();
    for host in &mut hosts.hosts {
        host.switch.table(RED).set_mac(mac(1), None);
        host.switch.table(RED).set_mac(mac(2), None);
    }
    hosts.send(0, PORT, frame(mac(1), MacAddr::BROADCAST, 0, 60));
    assert!(hosts.run(LIMIT, |hosts| hosts.seen(1) == [0]));
    assert_eq!(hosts.plain_frames, 1);
    // The reply's destination is known, and the other direction is learned from the reply.
    hosts.send(1, PORT, frame(mac(2), mac(1), 1, 60));
    assert!(hosts.run(LIMIT, |hosts| hosts.seen(0) == [1]));
    hosts.send(0, PORT, frame(mac(1), mac(2), 2, 60));
    assert!(hosts.run(LIMIT, |hosts| hosts.seen(1) == [0, 2]));
    assert_eq!(hosts.plain_frames, 1, "both went on the connection");
}
