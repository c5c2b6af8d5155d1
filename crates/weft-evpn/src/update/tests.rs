use alloc::vec;
use weft_wire::MacAddr;

use super::*;
use crate::route::{RouteDistinguisher, RouteTarget};

const CONTEXT: Context =
    Context { asn: 65_001, router_id: Ipv4Addr::new(10, 1, 0, 2), is_internal: false };
const INTERNAL: Context = Context { asn: 65_000, is_internal: true, ..CONTEXT };

/// A route of a machine with an IP address, and its wish for a place.
fn route() -> Nlri {
    let rd = RouteDistinguisher::new(Ipv4Addr::new(10, 9, 0, 7), 2);
    let (mac, address) = (MacAddr([2, 0, 0, 0, 7, 9]), Some(IpAddr::from([192, 168, 7, 9])));
    Nlri { key: RouteKey::MacIp { rd, tag: 0, mac, address }, label: 100 }
}

/// The attributes of the route as a router of AS 65000 sends them: each with its flags and type.
fn attributes() -> Vec<Vec<u8>> {
    let mut reach = vec![0, 25, 70, 4, 10, 9, 0, 7, 0];
    route().emit(&mut reach);
    let communities = vec![
        // Route target 65000:100, encapsulation VXLAN, and the third move.
        0, 2, 0xfd, 0xe8, 0, 0, 0, 100, 3, 0x0c, 0, 0, 0, 0, 0, 8, 6, 0, 0, 0, 0, 0, 0, 3,
    ];
    [
        (0x80, kind::MP_REACH, reach),
        (0x40, kind::ORIGIN, vec![0]),
        (0x40, kind::AS_PATH, vec![2, 1, 0, 0, 0xfd, 0xe8]),
        (0x80, kind::MULTI_EXIT_DISC, vec![0, 0, 0, 7]),
        (0x40, kind::LOCAL_PREF, vec![0, 0, 0, 100]),
        (0xc0, kind::EXTENDED_COMMUNITIES, communities),
    ]
    .map(|(flags, kind, value)| attribute(flags, kind, &value))
    .to_vec()
}

fn attribute(flags: u8, kind: u8, value: &[u8]) -> Vec<u8> {
    [&[flags, kind, u8::try_from(value.len()).unwrap()], value].concat()
}

fn body(attributes: &[Vec<u8>]) -> Vec<u8> {
    let attributes = attributes.concat();
    let len = u16::try_from(attributes.len()).unwrap();
    [&[0, 0], &len.to_be_bytes()[..], &attributes].concat()
}

fn parse(attributes: &[Vec<u8>]) -> Result<Update, Notification> {
    Update::parse(&body(attributes), &CONTEXT)
}

#[test]
fn a_routers_update_is_read() {
    let update = parse(&attributes()).unwrap();
    let targets = vec![RouteTarget::of_network(65_000, 100)];
    let next_hop = IpAddr::from([10, 9, 0, 7]);
    let expected = Attributes { targets, sequence: 3, ..Attributes::new(next_hop) };
    assert_eq!((update.announced, update.attributes), (vec![route()], expected));
    assert_eq!((update.withdrawn, update.fault), (vec![], None));
}

#[test]
fn an_update_is_the_same_after_it_was_written() {
    for context in [CONTEXT, INTERNAL] {
        let targets = vec![RouteTarget::of_network(65_000, 100), "10.0.0.1:7".parse().unwrap()];
        for next_hop in [IpAddr::from([10, 9, 0, 7]), IpAddr::from([0xfd; 16])] {
            let sent = Attributes {
                targets: targets.clone(),
                sequence: 7,
                is_sticky: true,
                flood_vni: Some(100),
                ..Attributes::new(next_hop)
            };
            let mut message = vec![];
            announce(&route(), &sent, &Context { asn: 65_000, ..context }, &mut message);
            let read = Update::parse(&message[message::HEADER..], &context).unwrap();
            assert_eq!((read.announced, read.attributes), (vec![route()], sent));
            assert_eq!(read.fault, None);
        }
    }
    let mut message = vec![];
    withdraw(route().key, &mut message);
    let read = Update::parse(&message[message::HEADER..], &CONTEXT).unwrap();
    assert_eq!((read.withdrawn, read.announced), (vec![route().key], vec![]));
}

/// Checks that the routes of a message count as withdrawn, for this reason.
fn assert_withdrawn(context: &Context, attributes: &[Vec<u8>], subcode: u8) {
    let update = Update::parse(&body(attributes), context).unwrap();
    assert_eq!((update.withdrawn, update.announced), (vec![route().key], vec![]));
    assert_eq!(update.fault.map(|fault| (fault.code, fault.subcode)), Some((3, subcode)));
}

#[test]
fn a_bad_attribute_withdraws_the_routes_of_its_message() {
    let with = |index: usize, attribute: Vec<u8>| {
        let mut all = attributes();
        all[index] = attribute;
        all
    };
    let without = |index: usize| {
        let mut all = attributes();
        all.remove(index);
        all
    };
    // RFC 7606, sections 3 (c), (d) and 7.
    assert_withdrawn(&CONTEXT, &without(1), 3);
    assert_withdrawn(&CONTEXT, &without(2), 3);
    assert_withdrawn(&INTERNAL, &without(4), 3);
    for (index, flags, kind, value, subcode) in [
        (1, 0x40, kind::ORIGIN, &[3][..], 6),
        (1, 0x40, kind::ORIGIN, &[0, 0], 5),
        (1, 0xc0, kind::ORIGIN, &[0], 4),
        (2, 0x40, kind::AS_PATH, &[2, 0], 11),
        (2, 0x40, kind::AS_PATH, &[9, 1, 0, 0, 0, 1], 11),
        (2, 0x40, kind::AS_PATH, &[2, 2, 0, 0, 0, 1], 11),
        (3, 0x80, kind::MULTI_EXIT_DISC, &[0; 3], 5),
        (5, 0xc0, kind::EXTENDED_COMMUNITIES, &[], 9),
        (5, 0xc0, kind::EXTENDED_COMMUNITIES, &[0; 7], 9),
        (5, 0xc0, kind::PMSI_TUNNEL, &[0, 6, 0, 0], 9),
        (5, 0xc0, kind::PMSI_TUNNEL, &[0, 6, 0, 0, 1, 10, 0, 0], 9),
    ] {
        assert_withdrawn(&CONTEXT, &with(index, attribute(flags, kind, value)), subcode);
    }
    for (kind, value) in [(kind::ORIGINATOR_ID, &[0; 3][..]), (kind::CLUSTER_LIST, &[0; 5])] {
        let all = [attributes(), vec![attribute(0x80, kind, value)]].concat();
        assert_withdrawn(&INTERNAL, &all, 5);
        assert_eq!(parse(&all).unwrap().announced, [route()], "discarded from another AS");
    }
    let many = [0, 2, 0, 1, 0, 0, 0, 100].repeat(crate::MAX_TARGETS - 1);
    let most = with(5, attribute(0xc0, kind::EXTENDED_COMMUNITIES, &many));
    assert_eq!(parse(&most).unwrap().announced, [route()]);
    // One target more than are kept.
    let value = [0, 2, 0, 1, 0, 0, 0, 100].repeat(crate::MAX_TARGETS + 1);
    let len = u16::try_from(value.len()).unwrap().to_be_bytes();
    let many = [&[0xd0, kind::EXTENDED_COMMUNITIES, len[0], len[1]], &value[..]].concat();
    assert_withdrawn(&CONTEXT, &with(5, many), 9);
    // The last attribute is longer than the message.
    let mut cut = attributes();
    cut[5][2] = 200;
    assert_withdrawn(&CONTEXT, &cut, 1);
}

#[test]
fn a_message_whose_routes_cannot_be_found_ends_the_session() {
    let refused = |bytes: &[u8]| {
        let error = Update::parse(bytes, &CONTEXT).unwrap_err();
        (error.code, error.subcode)
    };
    let all = attributes();
    let twice = [all.clone(), vec![all[0].clone()]].concat();
    assert_eq!(refused(&body(&twice)), (3, 1));
    let mut truncated = all.clone();
    truncated[0].pop();
    truncated[0][2] -= 1;
    assert_eq!(refused(&body(&truncated)), (3, 10));
    let mut next_hop = all.clone();
    next_hop[0][6] = 5;
    assert_eq!(refused(&body(&next_hop)), (3, 9));
    // An attribute before the routes leads past the end.
    assert_eq!(refused(&body(&[vec![0x40, 1, 200, 0]])), (3, 1));
    assert_eq!(refused(&body(&[attribute(0x40, 99, &[])])), (3, 2), "an unknown well-known one");
    assert_eq!(refused(&[0, 9, 0, 0]), (3, 1));
    assert_eq!(refused(&[0, 0, 0, 9]), (3, 1));
}

#[test]
fn what_is_unknown_or_of_other_families_is_skipped() {
    let mut all = attributes();
    all.push(attribute(0xc0, 32, &[0; 12]));
    all.push(attribute(0x40, 6, &[]));
    all.push(attribute(0x40, kind::ORIGIN, &[7]));
    assert_eq!(parse(&all).unwrap().announced, [route()], "the first of two counts");
    // IPv6 unicast.
    let other = vec![attribute(0x80, kind::MP_REACH, &[0, 2, 1, 4, 1, 2, 3, 4, 0, 0])];
    let update = parse(&other).unwrap();
    assert_eq!((update.announced, update.withdrawn, update.fault), (vec![], vec![], None));
    // The end of the routes (RFC 4724, section 2).
    let end = vec![attribute(0x80, kind::MP_UNREACH, &[0, 25, 70])];
    assert!(parse(&end).unwrap().withdrawn.is_empty());
    assert!(Update::parse(&[0, 0, 0, 0], &CONTEXT).unwrap().announced.is_empty());
    let nvgre = [3, 0x0c, 0, 0, 0, 0, 0, 9];
    all[5] = attribute(0xc0, kind::EXTENDED_COMMUNITIES, &nvgre);
    assert!(!parse(&all).unwrap().attributes.is_vxlan);
}

#[test]
fn routes_that_return_to_their_speaker_count_as_withdrawn_without_a_fault() {
    let mut all = attributes();
    all[2] = attribute(0x40, kind::AS_PATH, &[2, 2, 0, 0, 0xfd, 0xe8, 0, 0, 0xfd, 0xe9]);
    let update = parse(&all).unwrap();
    assert_eq!((update.withdrawn, update.fault), (vec![route().key], None));
    let own = attribute(0x80, kind::ORIGINATOR_ID, &[10, 1, 0, 2]);
    let all = [attributes(), vec![own]].concat();
    let internal = Context { asn: 65_009, ..INTERNAL };
    let update = Update::parse(&body(&all), &internal).unwrap();
    assert_eq!((update.withdrawn, update.fault), (vec![route().key], None));
}
