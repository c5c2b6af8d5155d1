//! Tests of packets that an honest peer would not send: counted by reason, without panic and without stall.

use weft_units::{Duration, Seed};
use weft_wire::{
    AckHeader, Bitmap, DataHeader, MessageHeader, NextHeader, Packet, SetupHeader, SetupKind,
    SetupParameters, U4, U5, U11,
};

use super::pair::{Pair, address};
use crate::{Arrival, CloseReason, ConnectionId, DropReason, Event, TransportConfig, Verdict};

const LIMIT: Duration = Duration::from_secs(5);

fn data(cid: u32, psn: u32) -> (DataHeader, MessageHeader) {
    let header = DataHeader {
        version: U4::truncate(1),
        next: NextHeader::Message,
        psn,
        destination_cid: cid,
        ..DataHeader::default()
    };
    (header, MessageHeader { opcode: 0, tag: 0, id: 0, offset: 0, length: 100 })
}

fn ack(cid: u32, psn: u32) -> AckHeader {
    AckHeader {
        version: U4::truncate(1),
        destination_cid: cid,
        psn,
        psn_base: psn,
        ..AckHeader::default()
    }
}

/// Returns a set-up packet of a peer that names its connection `local_cid` and receives on `receive_port`.
fn setup(kind: SetupKind, local_cid: u32, destination_cid: u32, receive_port: u16) -> Packet {
    let terms = SetupParameters {
        capabilities: 3,
        mtu: 1440,
        window: 100,
        paths: 1,
        receive_port,
        ..SetupParameters::default()
    };
    Packet::Setup(SetupHeader {
        kind,
        version: U4::truncate(1),
        cc_type: U4::default(),
        thread_id: 0,
        reason: 0,
        local_cid,
        destination_cid,
        terms: (kind == SetupKind::Accept).then_some(terms),
    })
}

/// Returns a reset of the connection whose peer names it `cid`.
fn reset(cid: u32, reason: u8, number: u32) -> Packet {
    let Packet::Setup(header) = setup(SetupKind::Reset, cid, number, 0) else { unreachable!() };
    Packet::Setup(SetupHeader { reason, ..header })
}

/// Returns a pair in the middle of a transfer that a hostile third party disturbs.
fn mid_transfer() -> (Pair, u32, u32) {
    let (mut pair, ids) = Pair::joined(&TransportConfig::stellar());
    pair.submit(0, ids[0], 1, 10_000_000);
    pair.run_for(Duration::from_micros(30));
    (pair, ids[0].0, ids[1].0)
}

#[test]
fn acks_of_packets_never_sent_are_refused() {
    let (mut pair, cid, _) = mid_transfer();
    let next = pair.ends[0].next_psn(ConnectionId(cid));
    let beyond = ack(cid, next);
    let mut bitmap = Bitmap::default();
    bitmap.set(255);
    let base = next.wrapping_sub(10);
    let forged = [
        beyond,
        AckHeader { psn: next.wrapping_sub(1), psn_base: next.wrapping_add(1), ..beyond },
        AckHeader { psn: base, psn_base: base, bitmap, ..beyond },
        AckHeader { psn: base, psn_base: base, block: U5::MAX, bitmap, ..beyond },
    ];
    for header in forged {
        let verdict = pair.inject(0, &Packet::Ack(header), 0);
        assert_eq!(verdict, Verdict::Dropped(DropReason::AckOfUnsent), "{header:?}");
    }
    pair.run_until(LIMIT, |pair| pair.acked_tokens(0) == [1]);
    assert_eq!(pair.bytes_placed(1), 10_000_000);
}

/// Attacker: a host that sees no packet of the connection, forges the peer's address and even knows the peer's id.
#[test]
fn a_reset_that_repeats_nothing_of_the_connection_is_refused() {
    let (mut pair, sender, receiver) = mid_transfer();
    let mut rng = Seed(3).rng();
    let unproven = Verdict::Dropped(DropReason::UnprovenReset);
    for (to, cid) in [(0, receiver), (1, sender)] {
        for reason in 0..=8 {
            assert_eq!(pair.inject(to, &reset(cid, reason, 0), 0), unproven, "{reason}");
            for _ in 0..1_000 {
                let number = rng.next_u32();
                assert_eq!(pair.inject(to, &reset(cid, reason, number), 0), unproven, "{reason}");
            }
        }
    }
    pair.run_until(LIMIT, |pair| pair.acked_tokens(0) == [1]);
    assert_eq!(pair.bytes_placed(1), 10_000_000);
}

/// Attacker: a host that forges the peer's address and knows one of the connection's two ids.
#[test]
fn a_close_that_does_not_name_both_ids_is_refused() {
    let (mut pair, sender, receiver) = mid_transfer();
    let mut rng = Seed(4).rng();
    let refused = |pair: &mut Pair, to, local, destination, reason| {
        let close = setup(SetupKind::Close, local, destination, 0);
        let verdict = pair.inject(to, &close, 0);
        assert_eq!(verdict, Verdict::Dropped(reason), "{local} closes {destination}");
    };
    for (to, own, peer) in [(0, sender, receiver), (1, receiver, sender)] {
        for wrong in (0..1_000).map(|_| rng.next_u32()).chain([0, own]).filter(|&id| id != peer) {
            refused(&mut pair, to, wrong, own, DropReason::UnexpectedSetup);
        }
        for wrong in (0..1_000).map(|_| rng.next_u32()).chain([0, peer]).filter(|&id| id != own) {
            refused(&mut pair, to, peer, wrong, DropReason::UnknownConnection);
        }
    }
    pair.run_until(LIMIT, |pair| pair.acked_tokens(0) == [1]);
    assert_eq!(pair.bytes_placed(1), 10_000_000);
    let close = setup(SetupKind::Close, sender, receiver, 0);
    assert_eq!(pair.inject(1, &close, 0), Verdict::Done, "both ids are right");
}

/// Attacker: a host that knows the connection's ids and numbers, but cannot forge the peer's address.
#[test]
fn packets_from_another_address_than_the_peers_are_refused() {
    let (mut pair, sender, receiver) = mid_transfer();
    let next = pair.ends[0].next_psn(ConnectionId(sender));
    let (header, message) = data(receiver, pair.ends[1].next_expected(ConnectionId(receiver)));
    for (to, packet, len) in [
        (0, Packet::Ack(ack(sender, next.wrapping_sub(1))), 0),
        (1, Packet::Data(header, Some(message)), 100),
        (0, setup(SetupKind::Close, receiver, sender, 0), 0),
        (1, setup(SetupKind::Close, sender, receiver, 0), 0),
    ] {
        let (from, received_at) = (address(8), pair.now);
        let arrival = Arrival { from, received_at, congestion_experienced: false, hops: 3 };
        let verdict = pair.ends[to].handle_packet(pair.now, &arrival, &packet, len);
        assert_eq!(verdict, Verdict::Dropped(DropReason::UnknownConnection), "{packet:?}");
    }
    pair.run_until(LIMIT, |pair| pair.acked_tokens(0) == [1]);
    assert_eq!(pair.bytes_placed(1), 10_000_000);
}

#[test]
fn a_reset_may_repeat_any_packet_in_flight_and_no_other() {
    for (before_base, ends) in [(1, false), (0, true)] {
        let (mut pair, sender, receiver) = mid_transfer();
        let base = pair.ends[0].send_base(ConnectionId(sender)).wrapping_sub(before_base);
        let verdict = pair.inject(0, &reset(receiver, 1, base), 0);
        assert_eq!(verdict == Verdict::Done, ends, "{verdict:?}");
    }
    for (past, ends) in [(1, true), (0, false)] {
        let (mut pair, sender, receiver) = mid_transfer();
        let next = pair.ends[0].next_psn(ConnectionId(sender)).wrapping_sub(past);
        let verdict = pair.inject(0, &reset(receiver, 1, next), 0);
        assert_eq!(verdict == Verdict::Done, ends, "{verdict:?}");
    }
}

#[test]
fn a_timestamp_from_the_future_is_refused() {
    let (mut pair, cid, _) = mid_transfer();
    let next = pair.ends[0].next_psn(ConnectionId(cid));
    let header = AckHeader {
        timestamp_echo: pair.now.to_wire().wrapping_add(1_000_000),
        num_ack: U11::MAX,
        ..ack(cid, next.wrapping_sub(1))
    };
    let verdict = pair.inject(0, &Packet::Ack(header), 0);
    assert_eq!(verdict, Verdict::Dropped(DropReason::BadTimestamp));
    pair.run_until(LIMIT, |pair| pair.acked_tokens(0) == [1]);
}

#[test]
fn data_outside_the_window_or_its_message_is_refused() {
    let (mut pair, _, cid) = mid_transfer();
    let base = pair.ends[1].next_expected(ConnectionId(cid));
    let (header, message) = data(cid, base.wrapping_add(4096));
    let far = Packet::Data(header, Some(message));
    assert_eq!(pair.inject(1, &far, 100), Verdict::Dropped(DropReason::OutsideWindow));
    let (header, message) = data(cid, base.wrapping_add(3000));
    for (offset, length, len) in
        [(50, 100, 51), (u32::MAX, u32::MAX, 1), (0, 100, 0), (0, 9000, 8999)]
    {
        let packet = Packet::Data(header, Some(MessageHeader { offset, length, ..message }));
        assert_eq!(pair.inject(1, &packet, len), Verdict::Dropped(DropReason::BadExtent));
    }
    let old = Packet::Data(DataHeader { psn: base.wrapping_sub(1), ..header }, Some(message));
    assert_eq!(pair.inject(1, &old, 100), Verdict::Dropped(DropReason::Duplicate));
    pair.run_until(LIMIT, |pair| pair.acked_tokens(0) == [1]);
    assert_eq!(pair.bytes_placed(1), 10_000_000);
}

/// Attacker: a peer whose first packet names a message far ahead, for which the owner would make room.
#[test]
fn a_message_further_ahead_than_its_packet_is_refused() {
    let (mut pair, ids) = Pair::joined(&TransportConfig::stellar());
    let base = pair.ends[1].next_expected(ids[1]);
    for (packet, message_id, fits) in
        [(0, 1, false), (0, u32::MAX, false), (7, 8, false), (7, 7, true), (9, 3, true)]
    {
        let (header, message) = data(ids[1].0, base.wrapping_add(packet));
        let message = MessageHeader { id: message_id, ..message };
        let verdict = pair.inject(1, &Packet::Data(header, Some(message)), 100);
        let refused = verdict == Verdict::Dropped(DropReason::BadExtent);
        assert_eq!(refused, !fits, "message {message_id} in packet {packet}: {verdict:?}");
    }
}

#[test]
fn packets_of_another_version_than_agreed_are_refused() {
    let (mut pair, sender, receiver) = mid_transfer();
    let next = pair.ends[0].next_psn(ConnectionId(sender)).wrapping_sub(1);
    let base = pair.ends[1].next_expected(ConnectionId(receiver)).wrapping_add(3000);
    for version in [0, 2, 15].map(U4::truncate) {
        let ack = AckHeader { version, ..ack(sender, next) };
        let (header, message) = data(receiver, base);
        let header = DataHeader { version, ..header };
        let probe = DataHeader { special: true, next: NextHeader::Frame, ..header };
        for (to, packet, len) in [
            (0, Packet::Ack(ack), 0),
            (1, Packet::Data(header, Some(message)), 100),
            (1, Packet::Data(probe, None), 0),
        ] {
            let verdict = pair.inject(to, &packet, len);
            assert_eq!(verdict, Verdict::Dropped(DropReason::UnknownVersion), "{packet:?}");
        }
    }
    let counted = |end: usize| pair.ends[end].stats().dropped_for(DropReason::UnknownVersion);
    assert_eq!((counted(0), counted(1)), (3, 6));
    pair.run_until(LIMIT, |pair| pair.acked_tokens(0) == [1]);
    assert_eq!(pair.bytes_placed(1), 10_000_000);
}

#[test]
fn unknown_connections_are_answered_with_a_reset_and_counted() {
    let (mut pair, _, cid) = mid_transfer();
    let (header, message) = data(cid ^ 0x8000_0000, 5);
    let packet = Packet::Data(header, Some(message));
    assert_eq!(pair.inject(1, &packet, 100), Verdict::Dropped(DropReason::UnknownConnection));
    assert_eq!(pair.ends[1].stats().dropped_for(DropReason::UnknownConnection), 1);
    pair.run_until(LIMIT, |pair| pair.acked_tokens(0) == [1]);
}

#[test]
fn a_peer_whose_packets_do_not_add_up_to_messages_is_cut_off() {
    let (mut pair, ids) = Pair::joined(&TransportConfig::stellar());
    let base = pair.ends[1].next_expected(ids[1]);
    let (header, message) = data(ids[1].0, base);
    let message = MessageHeader { offset: 10, length: 110, ..message };
    let verdict = pair.inject(1, &Packet::Data(header, Some(message)), 100);
    let Verdict::Place(placement) = verdict else { panic!("{verdict:?}") };
    let now = pair.now;
    pair.ends[1].placed(now, placement.connection, placement.psn).unwrap();
    pair.run_for(Duration::from_micros(50));
    let violation = CloseReason::ProtocolViolation;
    assert!(pair.events[1].contains(&Event::Closed { connection: ids[1], reason: violation }));
}

#[test]
fn a_reset_of_a_connection_accepted_on_another_port_and_closed_finds_nothing() {
    let mut pair = Pair::new(&TransportConfig::stellar());
    let now = pair.now;
    let id = pair.ends[0].connect(now, address(1), 0).unwrap();
    assert_eq!(pair.inject(0, &setup(SetupKind::Accept, 77, id.0, 4792), 0), Verdict::Done);
    pair.ends[0].close(now, id);
    let next = pair.ends[0].connect(now, address(1), 0).unwrap();
    let unknown = Verdict::Dropped(DropReason::UnknownConnection);
    assert_eq!(pair.inject(0, &setup(SetupKind::Reset, 77, 0, 0), 0), unknown);
    pair.run_for(Duration::from_micros(1));
    let ended = |id| {
        pair.events[0]
            .iter()
            .any(|event| matches!(event, Event::Closed { connection, .. } if *connection == id))
    };
    assert!(ended(id) && !ended(next), "{:?}", pair.events[0]);
}

#[test]
fn packets_go_to_the_port_that_the_accept_names() {
    let mut pair = Pair::new(&TransportConfig::stellar());
    let id = pair.ends[0].connect(pair.now, address(1), 0).unwrap();
    let _ = pair.inject(0, &setup(SetupKind::Accept, 77, id.0, 4792), 0);
    pair.submit(0, id, 1, 100);
    let sent = core::iter::from_fn(|| pair.ends[0].poll_transmit(pair.now)).last();
    assert_eq!(sent.map(|transmit| transmit.to.port()), Some(4792));
}

#[test]
fn an_accept_that_differs_from_the_first_is_refused() {
    let mut pair = Pair::new(&TransportConfig::stellar());
    let ids = [0; 2].map(|_| pair.ends[0].connect(pair.now, address(1), 0).unwrap());
    let accept = |cid, to: ConnectionId, port| setup(SetupKind::Accept, cid, to.0, port);
    let refused = Verdict::Dropped(DropReason::UnexpectedSetup);
    assert_eq!(pair.inject(0, &accept(77, ids[0], 0), 0), refused, "nobody receives on port 0");
    assert_eq!(pair.inject(0, &accept(77, ids[0], 4792), 0), Verdict::Done);
    assert_eq!(pair.inject(0, &accept(77, ids[0], 4792), 0), Verdict::Done, "came twice");
    assert_eq!(pair.inject(0, &accept(77, ids[0], 4793), 0), refused);
    assert_eq!(pair.inject(0, &accept(78, ids[0], 4792), 0), refused);
    assert_eq!(pair.inject(0, &accept(77, ids[1], 4792), 0), refused, "it is the first one's");
    assert_eq!(pair.inject(0, &accept(78, ids[1], 4792), 0), Verdict::Done);
}

#[test]
fn random_headers_never_panic_and_never_stall_the_honest_peer() {
    let mut rng = Seed(99).rng();
    for round in 0..40 {
        let (mut pair, to_sender, to_receiver) = mid_transfer();
        let near = pair.ends[0].next_psn(ConnectionId(to_sender));
        for _ in 0..200 {
            let psn = near.wrapping_add(rng.next_u32() % 8192).wrapping_sub(4096);
            let mut bitmap = Bitmap::default();
            (0..rng.below(9)).for_each(|_| bitmap.set(rng.next_u32() % 256));
            // Forged ACKs name packets in flight only if they guess a current number; here every number is past the
            // last packet sent, or already acknowledged.
            let header = AckHeader {
                special: rng.chance(1, 4),
                block: U5::truncate(rng.next_u32()),
                timestamp: rng.next_u32(),
                timestamp_echo: rng.next_u32(),
                timestamp_nic_rx: rng.next_u32(),
                num_ack: U11::truncate(rng.next_u32()),
                num_ece: U11::truncate(rng.next_u32()),
                psn_base: near.wrapping_add(1 + rng.next_u32() % 4096),
                bitmap,
                ..ack(to_sender, psn)
            };
            let _ = pair.inject(0, &Packet::Ack(header), 0);
            let (header, message) = data(to_receiver, psn.wrapping_sub(100_000));
            let _ = pair.inject(1, &Packet::Data(header, Some(message)), 100);
        }
        pair.run_until(LIMIT, |pair| pair.acked_tokens(0) == [1]);
        assert_eq!(pair.bytes_placed(1), 10_000_000, "round {round}");
    }
}
