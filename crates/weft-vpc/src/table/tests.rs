use core::net::Ipv6Addr;

use weft_units::Seed;
use weft_wire::EtherType;

use super::*;
use crate::example::{ALICE, BOB, between, icmp, packet, parsed, syn, udp, v6_packet};
use crate::offload::{fill, verify};
use crate::{Network, protocol};

const HERE: u8 = 1;
const THERE: u8 = 2;

fn at(secs: u64) -> Instant {
    Instant::EPOCH + Duration::from_secs(secs)
}

fn table() -> Table<u8> {
    Table::new(TableConfig::default())
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Returns an ARP broadcast from `mac`.
fn arp(operation: u8, mac: MacAddr, sender: [u8; 4], target: [u8; 4]) -> Vec<u8> {
    let mut payload = vec![0, 1, 8, 0, 6, 4, 0, operation];
    payload.extend(mac.0.into_iter().chain(sender));
    payload.extend([0; 6].into_iter().chain(target));
    between(mac, MacAddr::BROADCAST, EtherType::ARP, &payload)
}

/// Returns a solicitation from `mac` for `target`, with its option.
fn solicitation(mac: MacAddr, sender: &str, target: &str) -> Vec<u8> {
    let target: Ipv6Addr = target.parse().unwrap();
    let mut payload = icmp(135, 0, 0, &target.octets());
    payload[7] = 0;
    if sender != "::" {
        payload.extend([1, 1].into_iter().chain(mac.0));
    }
    let [.., a, b, c] = target.octets();
    let group =
        Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | u16::from(a), u16::from_be_bytes([b, c]));
    let packet = v6_packet(sender.parse().unwrap(), group, protocol::ICMPV6, &payload);
    let to = MacAddr([0x33, 0x33, 0xff, a, b, c]);
    let mut bytes = between(mac, to, EtherType::IPV6, &packet);
    let frame = parsed(&bytes);
    fill(&mut bytes, &frame);
    bytes
}

fn learn(table: &mut Table<u8>, bytes: &[u8], place: u8, now: Instant) {
    table.learn(&parsed(bytes), bytes, place, now);
}

#[test]
fn an_address_is_learned_at_its_last_place_for_a_lifetime() {
    let mut table = table();
    let [from_alice, _] = syn();
    let to_alice = parsed(&between(BOB, ALICE, EtherType(0x88b5), &[]));
    assert_eq!(table.find(&to_alice, at(0)), None);
    learn(&mut table, &from_alice, HERE, at(0));
    assert_eq!(table.find(&to_alice, at(299)), Some(HERE));
    assert_eq!(table.find(&to_alice, at(300)), None);
    learn(&mut table, &from_alice, HERE, at(299));
    assert_eq!(table.find(&to_alice, at(598)), Some(HERE));
    learn(&mut table, &from_alice, THERE, at(400));
    assert_eq!(table.find(&to_alice, at(400)), Some(THERE));
    let counters = table.counters();
    assert_eq!((counters.learned, counters.moved, counters.aged), (1, 1, 0));
    table.sweep(at(700));
    assert_eq!((table.counters().aged, table.iter().count()), (1, 0));
    // After it expired, an address counts as learned and not as moved.
    learn(&mut table, &from_alice, HERE, at(700));
    assert_eq!((table.counters().learned, table.counters().moved), (2, 1));
}

#[test]
fn set_places_override_learned_ones() {
    let mut table = table();
    let to_alice = parsed(&between(BOB, ALICE, EtherType(0x88b5), &[]));
    table.set_mac(ALICE, Some(HERE));
    learn(&mut table, &syn()[0], THERE, at(0));
    assert_eq!(table.find(&to_alice, at(0)), Some(HERE));
    assert_eq!((table.counters().contradicted, table.counters().learned), (1, 0));
    learn(&mut table, &syn()[0], HERE, at(0));
    assert_eq!(table.counters().contradicted, 1);
    // The other order: first learned, then set.
    table.set_mac(ALICE, None);
    learn(&mut table, &syn()[0], THERE, at(0));
    table.set_mac(ALICE, Some(HERE));
    assert_eq!(table.find(&to_alice, at(0)), Some(HERE));
    table.set_neighbour(ip("10.0.0.1"), Some(BOB));
    learn(&mut table, &arp(1, ALICE, [10, 0, 0, 1], [10, 0, 0, 2]), THERE, at(0));
    assert_eq!(table.neighbour(ip("10.0.0.1"), at(0)), Some(BOB));
    assert_eq!(
        table.iter().collect::<Vec<_>>(),
        [Entry { address: ALICE, value: HERE, is_set: true }]
    );
}

#[test]
fn the_longest_route_gives_the_machine_that_the_gateway_forwards_to() {
    let mut table = table();
    let next = |table: &Table<u8>, address: &str| table.next_machine(ip(address), at(0));
    table.set_neighbour(ip("10.0.0.2"), Some(ALICE));
    table.set_neighbour(ip("2001:db8::2"), Some(ALICE));
    assert_eq!(next(&table, "10.0.0.2"), None, "no route leads there");
    table.set_route("10.0.0.0/24".parse().unwrap(), Some(Hop::Direct));
    table.set_route("0.0.0.0/0".parse().unwrap(), Some(Hop::Via(ip("10.0.0.9"))));
    table.set_route("2001:db8::/64".parse().unwrap(), Some(Hop::Direct));
    assert_eq!(next(&table, "10.0.0.2"), Some(ALICE));
    assert_eq!(next(&table, "2001:db8::2"), Some(ALICE));
    // No machine has the address, or the next hop's.
    assert_eq!((next(&table, "10.0.0.3"), next(&table, "192.0.2.1")), (None, None));
    // The machine is learned, and expires after a lifetime.
    learn(&mut table, &arp(1, BOB, [10, 0, 0, 9], [10, 0, 0, 8]), THERE, at(0));
    assert_eq!(next(&table, "192.0.2.1"), Some(BOB));
    assert_eq!(table.next_machine(ip("192.0.2.1"), at(300)), None);
    table.set_route("192.0.2.0/24".parse().unwrap(), Some(Hop::Via(ip("10.0.0.2"))));
    assert_eq!(next(&table, "192.0.2.1"), Some(ALICE));
    table.set_route("192.0.2.0/24".parse().unwrap(), None);
    assert_eq!(next(&table, "192.0.2.1"), Some(BOB));
}

#[test]
fn the_gateway_is_resolved_and_has_no_place() {
    let mut table = table();
    table.set_neighbour(ip("10.0.0.254"), Some(GATEWAY));
    let mut request = arp(1, ALICE, [10, 0, 0, 1], [10, 0, 0, 254]);
    for to in [MacAddr::BROADCAST, GATEWAY] {
        request[..6].copy_from_slice(&to.0);
        let reply = table.answer(&parsed(&request), &request, at(0)).unwrap();
        assert_eq!(parsed(&reply).source, GATEWAY);
    }
    learn(&mut table, &between(GATEWAY, BOB, EtherType::IPV4, &syn()[0][14..]), THERE, at(0));
    assert_eq!(table.iter().count(), 0);
}

#[test]
fn the_number_of_learned_addresses_is_bounded() {
    let mut table = Table::new(TableConfig { max_learned: 100, ..TableConfig::default() });
    for index in 0..200_u8 {
        let mac = MacAddr([2, 0, 0, 0, 1, index]);
        learn(&mut table, &arp(1, mac, [10, 0, 1, index], [10, 0, 0, 1]), HERE, at(0));
    }
    assert_eq!((table.iter().count(), table.neighbours().count()), (100, 100));
    assert_eq!((table.counters().learned, table.counters().full), (200, 200));
    // Known addresses may move and stay.
    learn(&mut table, &arp(1, MacAddr([2, 0, 0, 0, 1, 7]), [10, 0, 1, 7], [10, 0, 0, 1]), 2, at(9));
    assert_eq!(table.counters().moved, 1);
    // Room is made for others when the old ones expire.
    let newcomer = MacAddr([2, 0, 0, 0, 2, 1]);
    let request = arp(1, newcomer, [10, 0, 2, 1], [10, 0, 0, 1]);
    learn(&mut table, &request, HERE, at(299));
    assert_eq!((table.iter().count(), table.counters().full), (100, 202));
    learn(&mut table, &request, HERE, at(301));
    assert_eq!((table.iter().count(), table.neighbours().count()), (2, 2));
    table.sweep(at(310));
    assert_eq!(table.iter().map(|entry| entry.address).collect::<Vec<_>>(), [newcomer]);
}

#[test]
fn arp_is_answered_for_known_addresses() {
    let mut table = table();
    let request = arp(1, ALICE, [10, 0, 0, 1], [10, 0, 0, 2]);
    let frame = parsed(&request);
    assert_eq!(table.answer(&frame, &request, at(0)), None);
    learn(&mut table, &arp(2, BOB, [10, 0, 0, 2], [10, 0, 0, 9]), THERE, at(0));
    let reply = parsed(&table.answer(&frame, &request, at(1)).unwrap());
    assert_eq!((reply.source, reply.destination), (BOB, ALICE));
    let Network::Arp(arp_reply) = reply.network else { panic!("{reply:?}") };
    assert_eq!((arp_reply.operation, arp_reply.sender_mac, arp_reply.target_mac), (2, BOB, ALICE));
    assert_eq!(
        (ip("10.0.0.2"), ip("10.0.0.1")),
        (arp_reply.sender.into(), arp_reply.target.into())
    );
    // The reply has the request's tag.
    let tagged = [&request[..12], &[0x81, 0, 0, 42], &request[12..]].concat();
    let reply = parsed(&table.answer(&parsed(&tagged), &tagged, at(1)).unwrap());
    assert_eq!((reply.vlan, reply.network), (Some(42), Network::Arp(arp_reply)));
    // No reply after the lifetime, to the owner of the address, or to a request for one machine.
    assert_eq!(table.answer(&frame, &request, at(300)), None);
    for unanswered in [
        arp(1, BOB, [10, 0, 0, 9], [10, 0, 0, 2]),
        arp(1, ALICE, [10, 0, 0, 2], [10, 0, 0, 2]),
        arp(2, ALICE, [10, 0, 0, 1], [10, 0, 0, 2]),
        between(ALICE, BOB, EtherType::ARP, &request[14..]),
    ] {
        assert_eq!(table.answer(&parsed(&unanswered), &unanswered, at(1)), None);
    }
}

#[test]
fn solicitations_are_answered_for_known_addresses() {
    let mut table = table();
    let request = solicitation(ALICE, "2001:db8::1", "2001:db8::2");
    let frame = parsed(&request);
    assert_eq!(table.answer(&frame, &request, at(0)), None);
    // Bob is learned from its own request.
    learn(&mut table, &solicitation(BOB, "2001:db8::2", "2001:db8::9"), THERE, at(0));
    let bytes = table.answer(&frame, &request, at(0)).unwrap();
    let reply = parsed(&bytes);
    verify(&bytes, &reply).unwrap();
    assert_eq!((reply.source, reply.destination), (BOB, ALICE));
    let packet = reply.ip().unwrap();
    assert_eq!((packet.source, packet.destination), (ip("2001:db8::2"), ip("2001:db8::1")));
    // Advertisement, solicited and override flags, target, link-layer address.
    assert_eq!(bytes[54..56], [136, 0]);
    assert_eq!(bytes[58..62], [0x60, 0, 0, 0]);
    assert_eq!(bytes[62..78], "2001:db8::2".parse::<Ipv6Addr>().unwrap().octets());
    assert_eq!(bytes[78..], [2, 1, 2, 0, 0, 0, 0, 0xb]);
    // A check for a duplicate address is answered to all nodes (RFC 4861, section 7.2.4).
    let request = solicitation(ALICE, "::", "2001:db8::2");
    let bytes = table.answer(&parsed(&request), &request, at(0)).unwrap();
    let reply = parsed(&bytes);
    assert_eq!(reply.destination, MacAddr([0x33, 0x33, 0, 0, 0, 1]));
    assert_eq!(reply.ip().unwrap().destination, ip("ff02::1"));
    assert_eq!(bytes[58], 0x20);
    // Every receiver learns from the reply.
    let mut other = self::table();
    learn(&mut other, &bytes, THERE, at(0));
    assert_eq!(other.neighbour(ip("2001:db8::2"), at(0)), Some(BOB));
}

#[test]
fn invalid_messages_are_not_learned_from() {
    let good = solicitation(ALICE, "2001:db8::1", "2001:db8::2");
    let refill = |mut bytes: Vec<u8>| {
        let frame = parsed(&bytes);
        fill(&mut bytes, &frame);
        bytes
    };
    let with = |change: fn(&mut Vec<u8>)| {
        let mut bytes = good.clone();
        change(&mut bytes);
        bytes
    };
    let mut learned = table();
    learn(&mut learned, &good, HERE, at(0));
    assert_eq!(learned.neighbours().count(), 1);
    for bytes in [
        // From beyond a router; damaged; an option of length zero, and one of another machine.
        with(|bytes| bytes[21] = 254),
        with(|bytes| bytes[60] ^= 1),
        refill(with(|bytes| bytes[79] = 0)),
        refill(with(|bytes| bytes[80] = 6)),
        refill(with(|bytes| bytes[79] = 2)),
        // An undefined code; a group as target.
        refill(with(|bytes| bytes[55] = 1)),
        refill(with(|bytes| bytes[62] = 0xff)),
        // A check for a duplicate address does not claim it.
        solicitation(ALICE, "::", "2001:db8::1"),
        arp(1, ALICE, [0; 4], [10, 0, 0, 1]),
        // An announcement for another machine.
        between(
            BOB,
            MacAddr::BROADCAST,
            EtherType::ARP,
            &arp(1, ALICE, [10, 0, 0, 1], [10, 0, 0, 2])[14..],
        ),
    ] {
        let mut table = table();
        learn(&mut table, &bytes, HERE, at(0));
        assert_eq!(table.neighbours().count(), 0, "{bytes:02x?}");
    }
}

/// Checks that tables of several networks with random, equal addresses each match a plain list of the addresses set
/// and learned in their own network, and find nothing of another's.
#[test]
fn networks_with_the_same_addresses_never_meet() {
    const NETWORKS: usize = 3;
    for seed in 0..50 {
        let mut rng = Seed(seed).child("networks", 0).rng();
        let mut tables: Vec<_> =
            (0..NETWORKS).map(|_| Table::new(TableConfig::default())).collect();
        // By network and address: the last place, `true` if it was set, and the time.
        let mut model: Vec<BTreeMap<MacAddr, (usize, bool, u64)>> = vec![BTreeMap::new(); NETWORKS];
        let mut now = 0;
        for _ in 0..500 {
            now += rng.below(60);
            let (network, host) = (rng.index(NETWORKS), u8::try_from(rng.below(8)).unwrap());
            let mac = MacAddr([2, 0, 0, 0, 0, host]);
            // A place belongs to one network, given by its number.
            let place = network + NETWORKS * rng.index(4);
            let known = model[network].get(&mac).copied();
            match rng.below(8) {
                0 => {
                    tables[network].set_mac(mac, Some(place));
                    model[network].insert(mac, (place, true, now));
                }
                1 => {
                    tables[network].set_mac(mac, None);
                    model[network].remove(&mac);
                }
                2..=4 => {
                    let bytes = arp(1, mac, [10, 0, 0, host], [10, 0, 0, 99]);
                    tables[network].learn(&parsed(&bytes), &bytes, place, at(now));
                    if !known.is_some_and(|(_, fixed, _)| fixed) {
                        model[network].insert(mac, (place, false, now));
                    }
                }
                _ => {
                    let frame = parsed(&between(MacAddr([2; 6]), mac, EtherType(0x88b5), &[]));
                    let found = tables[network].find(&frame, at(now));
                    let expected = known.filter(|&(_, fixed, when)| fixed || now - when < 300);
                    assert_eq!(found, expected.map(|(place, ..)| place), "seed {seed}");
                    assert!(found.is_none_or(|place| place % NETWORKS == network));
                }
            }
        }
    }
}

#[test]
fn packets_that_are_no_discovery_get_no_reply() {
    let table = table();
    for bytes in [
        packet("10.0.0.1", "10.0.0.2", protocol::UDP, &udp(1, 2, &[])),
        packet("2001:db8::1", "2001:db8::2", protocol::ICMPV6, &icmp(128, 0, 1, &[])),
        between(ALICE, MacAddr::BROADCAST, EtherType(0x88b5), &[0; 50]),
    ] {
        assert_eq!(table.answer(&parsed(&bytes), &bytes, at(0)), None);
    }
}
