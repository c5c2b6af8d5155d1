//! A neighbour whose messages are written here: refusals, limits, and routes that are not used.

use alloc::collections::{BTreeMap, BTreeSet};
use core::net::{IpAddr, Ipv4Addr};

use weft_units::{Duration, Instant, Seed};

use super::world::{VNI, mac, machine_address};
use crate::attribute::Attributes;
use crate::message::{self, Kind};
use crate::open::Open;
use crate::route::{Nlri, RouteDistinguisher, RouteKey, RouteTarget};
use crate::update::{self, Context};
use crate::{Action, Change, NeighbourConfig, NeighbourView, Speaker, SpeakerConfig, State};

const ROUTER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 9, 0, 1));
const VTEP: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 9, 0, 7));
const OWN: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 2);
const NOW: Instant = Instant::from_nanos(1_000_000_000);

/// Returns a speaker of AS 65001 that has just sent its OPEN to a router of AS 65000.
fn speaker(max_routes: usize) -> Speaker {
    let config = SpeakerConfig { asn: 65_001, router_id: OWN, vtep: OWN.into() };
    let mut speaker = Speaker::new(config, Seed(1));
    let hold_time = Duration::from_secs(90);
    let neighbour = NeighbourConfig { address: ROUTER, asn: 65_000, hold_time, max_routes };
    speaker.set_neighbours(NOW, &[neighbour]);
    speaker.set_networks(BTreeMap::from([(VNI, BTreeSet::new())]));
    speaker.handle_timeout(NOW);
    assert_eq!(speaker.poll_action(), Some(Action::Connect(ROUTER)));
    speaker.on_connected(NOW, ROUTER);
    speaker
}

fn open() -> Open {
    Open {
        asn: 65_000,
        hold_time: Duration::from_secs(9),
        router_id: Ipv4Addr::new(10, 9, 0, 1),
        has_evpn: true,
        has_four_octet_as: true,
    }
}

fn bytes(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out);
    out
}

fn keepalive() -> Vec<u8> {
    bytes(|out| message::write(out, Kind::Keepalive, |_| ()))
}

fn established(max_routes: usize) -> Speaker {
    let mut speaker = speaker(max_routes);
    let hello = [bytes(|out| open().emit(out)), keepalive()].concat();
    speaker.handle_bytes(NOW, ROUTER, &hello);
    assert_eq!(view(&speaker).state, State::Established);
    speaker
}

fn view(speaker: &Speaker) -> NeighbourView {
    speaker.neighbours().next().unwrap()
}

/// Returns the message by which the router announces a machine.
fn machine(number: u8, change: impl FnOnce(&mut Nlri, &mut Attributes)) -> Vec<u8> {
    let rd = RouteDistinguisher::new(Ipv4Addr::new(10, 9, 0, 7), 2);
    let address = Some(machine_address(number));
    let key = RouteKey::MacIp { rd, tag: 0, mac: mac(number), address };
    let mut nlri = Nlri { key, label: VNI };
    let targets = Vec::from([RouteTarget::of_network(65_000, VNI)]);
    let mut attributes = Attributes { targets, ..Attributes::new(VTEP) };
    change(&mut nlri, &mut attributes);
    let context =
        Context { asn: 65_000, router_id: Ipv4Addr::new(10, 9, 0, 1), is_internal: false };
    bytes(|out| update::announce(&nlri, &attributes, &context, out))
}

fn changes(speaker: &mut Speaker) -> Vec<Change> {
    core::iter::from_fn(|| speaker.poll_change()).collect()
}

/// Returns the place of a machine as the last change says.
fn place(speaker: &mut Speaker, number: u8) -> Option<IpAddr> {
    let changes = changes(speaker);
    let mut places = changes.iter().rev().filter_map(|change| match change {
        Change::Machine { mac: of, at, .. } if *of == mac(number) => Some(*at),
        _ => None,
    });
    places.next().flatten()
}

#[test]
fn a_routers_machine_becomes_an_entry() {
    let mut speaker = established(10);
    speaker.handle_bytes(NOW, ROUTER, &machine(1, |_, _| ()));
    let expected = [
        Change::Machine { vni: VNI, mac: mac(1), at: Some(VTEP) },
        Change::Address { vni: VNI, address: machine_address(1), mac: Some(mac(1)) },
        // It has announced no wish for broadcasts.
        Change::Vteps { vni: VNI, vteps: BTreeMap::from([(VTEP, false)]) },
    ];
    assert_eq!(changes(&mut speaker), expected);
    assert_eq!((view(&speaker).routes_received, view(&speaker).routes_sent), (1, 0));
    // The OPEN, a KEEPALIVE, and the wish for broadcasts of the network.
    let sent = speaker.output(ROUTER);
    let kinds = core::iter::successors(Some(sent), |rest| {
        let len = message::split(rest).unwrap()?.len;
        Some(&rest[len..])
    });
    let kinds: Vec<_> = kinds.filter_map(|rest| rest.get(18).copied()).collect();
    assert_eq!(kinds, [1, 4, 2]);
    assert_eq!(view(&speaker).routes_sent, 1);
}

#[test]
fn a_piece_at_a_time_is_as_good_as_all_at_once() {
    let mut speaker = established(10);
    for byte in machine(1, |_, _| ()) {
        speaker.handle_bytes(NOW, ROUTER, &[byte]);
    }
    assert_eq!(place(&mut speaker, 1), Some(VTEP));
}

#[test]
fn routes_that_lead_nowhere_are_kept_and_not_used() {
    let own: RouteTarget = "65009:7".parse().unwrap();
    type Edit = &'static dyn Fn(&mut Nlri, &mut Attributes);
    let unused: [(&str, Edit); 8] = [
        ("another network", &|nlri, _| nlri.label = 101),
        ("another target", &|_, it| it.targets = Vec::from([RouteTarget::of_network(65_000, 101)])),
        ("no target", &|_, it| it.targets.clear()),
        ("this host", &|_, it| it.next_hop = OWN.into()),
        ("nobody", &|_, it| it.next_hop = Ipv4Addr::UNSPECIFIED.into()),
        ("a group", &|_, it| it.next_hop = Ipv4Addr::new(239, 1, 1, 1).into()),
        ("another family", &|_, it| it.next_hop = IpAddr::from([1; 16])),
        ("a tag", &|nlri, _| {
            let RouteKey::MacIp { tag, .. } = &mut nlri.key else { unreachable!() };
            *tag = 1;
        }),
    ];
    for (why, edit) in unused {
        let mut speaker = established(10);
        speaker.handle_bytes(NOW, ROUTER, &machine(1, edit));
        assert_eq!((view(&speaker).routes_received, place(&mut speaker, 1)), (1, None), "{why}");
    }
    let mut speaker = established(10);
    let group = |nlri: &mut Nlri, _: &mut Attributes| {
        let RouteKey::MacIp { mac, .. } = &mut nlri.key else { unreachable!() };
        mac.0 = [0xff; 6];
    };
    speaker.handle_bytes(NOW, ROUTER, &machine(1, group));
    assert!(changes(&mut speaker).is_empty());
    // A network with targets of its own imports these alone.
    let mut speaker = established(10);
    speaker.set_networks(BTreeMap::from([(VNI, BTreeSet::from([own]))]));
    speaker.handle_bytes(NOW, ROUTER, &machine(1, |_, _| ()));
    assert_eq!(place(&mut speaker, 1), None);
    speaker.handle_bytes(NOW, ROUTER, &machine(1, |_, it| it.targets = Vec::from([own])));
    assert_eq!(place(&mut speaker, 1), Some(VTEP));
}

#[test]
fn a_machine_that_does_not_move_is_not_claimed() {
    let mut speaker = established(10);
    speaker.set_machines(BTreeMap::from([((VNI, mac(1)), BTreeSet::new())]));
    speaker.handle_bytes(NOW, ROUTER, &machine(1, |_, it| it.is_sticky = true));
    assert_eq!(place(&mut speaker, 1), Some(VTEP));
    speaker.on_frame(NOW, VNI, mac(1));
    assert_eq!(place(&mut speaker, 1), None, "no change: it is still there");
    speaker.set_machines(BTreeMap::new());
    speaker.set_machines(BTreeMap::from([((VNI, mac(1)), BTreeSet::new())]));
    assert_eq!(place(&mut speaker, 1), Some(VTEP));
}

#[test]
fn a_neighbour_with_too_many_routes_is_left_for_a_minute() {
    let mut speaker = established(2);
    for number in 1..=2 {
        speaker.handle_bytes(NOW, ROUTER, &machine(number, |_, _| ()));
    }
    // The same route again is not one more.
    speaker.handle_bytes(NOW, ROUTER, &machine(2, |_, it| it.sequence = 1));
    assert_eq!(view(&speaker).state, State::Established);
    speaker.handle_bytes(NOW, ROUTER, &machine(3, |_, _| ()));
    let view = view(&speaker);
    let words = "sent NOTIFICATION: cease: maximum number of prefixes reached";
    assert_eq!((view.error.as_deref(), view.routes_received), (Some(words), 0));
    let Some(Action::Close(ROUTER, last)) = speaker.poll_action() else { panic!() };
    // RFC 4486: the family, and the limit.
    assert!(last.ends_with(&[3, 6, 1, 0, 25, 70, 0, 0, 0, 2]), "{last:?}");
    assert!(speaker.poll_timeout().unwrap() >= NOW + Duration::from_secs(45));
}

#[test]
fn a_limited_number_of_hosts_gets_copies_of_broadcasts() {
    let mut speaker = established(2_000);
    let many = u8::try_from(crate::MAX_FLOODED / 256 + 1).unwrap();
    let hosts =
        (0..many).flat_map(|high| (0..=255).map(move |low| Ipv4Addr::new(10, 8, high, low)));
    for host in hosts {
        let host_wants_copies = |nlri: &mut Nlri, it: &mut Attributes| {
            let rd = RouteDistinguisher::new(host, 2);
            nlri.key = RouteKey::InclusiveMulticast { rd, tag: 0, originator: host.into() };
            (it.next_hop, it.flood_vni) = (host.into(), Some(VNI));
        };
        speaker.handle_bytes(NOW, ROUTER, &machine(1, host_wants_copies));
    }
    let Some(Change::Vteps { vteps, .. }) = changes(&mut speaker).pop() else { panic!() };
    let flooded = vteps.values().filter(|floods| **floods).count();
    assert_eq!((vteps.len(), flooded), (usize::from(many) * 256, crate::MAX_FLOODED));
}

#[test]
fn messages_out_of_turn_and_bad_ones_end_the_session_with_the_reason() {
    let refused = |mut speaker: Speaker, sent: &[u8]| {
        speaker.handle_bytes(NOW, ROUTER, sent);
        let Some(Action::Close(ROUTER, last)) = speaker.poll_action() else { panic!("{sent:?}") };
        let last = message::split(&last[last.len() - 21..]).ok().flatten();
        let words = view(&speaker).error.unwrap();
        assert_eq!(view(&speaker).state, State::Idle);
        (last.map(|it| (it.body[0], it.body[1])), words)
    };
    let update = machine(1, |_, _| ());
    let open_message = bytes(|out| open().emit(out));
    let (reason, words) = refused(speaker(9), &update);
    assert_eq!(reason, Some((5, 1)));
    assert_eq!(
        words,
        "sent NOTIFICATION: finite state machine error: unexpected message in OpenSent"
    );
    let confirm = [open_message.clone(), update].concat();
    assert_eq!(refused(speaker(9), &confirm).0, Some((5, 2)));
    assert_eq!(refused(established(9), &open_message).0, Some((5, 3)));
    let other = Open { asn: 65_002, ..open() };
    assert_eq!(refused(speaker(9), &bytes(|out| other.emit(out))).0, Some((2, 2)));
    assert_eq!(refused(established(9), &[0; 19]).0, Some((1, 1)));
    let end = bytes(|out| message::write_notification(&crate::Notification::new(6, 4), out));
    assert_eq!(
        refused(established(9), &end).1,
        "received NOTIFICATION: cease: administrative reset"
    );
}

#[test]
fn a_refresh_brings_all_routes_again() {
    let mut speaker = established(10);
    let len = speaker.output(ROUTER).len();
    speaker.consume(ROUTER, len);
    assert!(speaker.output(ROUTER).is_empty());
    let refresh =
        bytes(|out| message::write(out, Kind::RouteRefresh, |out| out.extend([0, 25, 0, 70])));
    speaker.handle_bytes(NOW, ROUTER, &refresh);
    assert_eq!(speaker.output(ROUTER)[18], 2);
}

#[test]
fn the_shorter_hold_time_of_both_ends_counts() {
    let mut speaker = established(10);
    // A third of the neighbour's nine seconds.
    assert_eq!(speaker.poll_timeout(), Some(NOW + Duration::from_secs(3)));
    speaker.handle_timeout(NOW + Duration::from_secs(9));
    assert_eq!(view(&speaker).error.as_deref(), Some("sent NOTIFICATION: hold timer expired"));
}
