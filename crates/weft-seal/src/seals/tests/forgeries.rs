//! Packets that an attacker forges, replays or reflects on an encrypted connection: none changes it.

use weft_transport::DropReason;
use weft_wire::AckHeader;

use super::*;

#[test]
fn packets_in_the_clear_do_not_reach_an_encrypted_connection() {
    let (mut pair, [id, theirs]) = Pair::connected(both(&SealConfig::default()));
    pair.submit(0, id, 3_000);
    pair.run(MS * 5);
    let from = pair.hosts[0].at;
    let data = DataHeader { destination_cid: theirs.0, ..DataHeader::default() };
    let ack = AckHeader { destination_cid: theirs.0, ..AckHeader::default() };
    let close = SetupHeader {
        kind: SetupKind::Close,
        version: weft_wire::U4::truncate(1),
        cc_type: weft_wire::U4::truncate(0),
        thread_id: 0,
        reason: 0,
        local_cid: id.0,
        destination_cid: theirs.0,
        terms: None,
    };
    for packet in [Packet::data(data, None), Packet::Ack(ack), Packet::Setup(close)] {
        let mut bytes = vec![0; packet.len()];
        packet.emit(&mut bytes);
        let refused = pair.hosts[1].receive(pair.now, from, bytes);
        assert_eq!(refused, Err(OpenError::InClear { connection: theirs }));
    }
    pair.run(MS * 5);
    assert_eq!(pair.hosts[1].closed(), None);
    assert_eq!(pair.hosts[1].seals.counters().in_clear, 3);
}

#[test]
fn replayed_reflected_changed_and_cut_packets_are_refused() {
    let (mut pair, [id, _]) = Pair::connected(both(&SealConfig::default()));
    pair.submit(0, id, 50_000);
    pair.run(MS * 10);
    let sealed: Vec<Datagram> =
        pair.recorded.iter().filter(|(.., bytes)| bytes[0] == 9).cloned().collect();
    let now = pair.now;
    for (from, to, bytes) in &sealed {
        let host = pair.hosts.iter_mut().find(|host| host.at == *to).unwrap();
        let error = host.receive(now, *from, bytes.clone()).unwrap_err();
        assert!(matches!(error, OpenError::Replayed { .. }), "{error}");
        let sender = pair.hosts.iter_mut().find(|host| host.at == *from).unwrap();
        let error = sender.receive(now, *to, bytes.clone()).unwrap_err();
        assert!(matches!(error, OpenError::UnknownKey { .. }), "{error}");
    }
    // A packet that has not arrived, with each bit changed, and truncated at each length; then unchanged.
    pair.submit(0, id, 40);
    let fresh = pair.hosts[0].send(now);
    let (from, _, bytes) = fresh.iter().find(|(.., bytes)| bytes[0] == 9).unwrap();
    for bit in 0..8 * bytes.len() {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        if damaged[0] != 9 {
            continue;
        }
        assert!(pair.hosts[1].receive(now, *from, damaged).is_err(), "bit {bit}");
    }
    for len in 0..bytes.len() {
        let cut = pair.hosts[1].receive(now, *from, bytes[..len].to_vec());
        assert!(cut.is_err() || len == 0, "{len} bytes");
    }
    assert!(pair.hosts[1].receive(now, *from, bytes.clone()).is_ok());
}

/// Both ends use one connection id, so that only the keys tell the directions apart: under one key for both, a packet
/// that returns to its sender would be opened.
#[test]
fn a_reflected_packet_is_refused_although_both_ends_have_one_connection_id() {
    let (mut pair, [id, theirs]) = Pair::connected(both(&SealConfig::default()));
    let [near, far] = pair.hosts.each_mut().map(|host| &mut host.seals);
    near.channels.get_mut(&id).unwrap().remote = id.0;
    let channel = far.channels.remove(&theirs).unwrap();
    let [sending, receiving] = [true, false].map(|sending| near.channels[&id].log(id, sending).3);
    assert_ne!(sending, receiving);
    assert_eq!((receiving, sending), (channel.log(id, true).3, channel.log(id, false).3));
    far.channels.insert(id, channel);
    let mut packet =
        vec![0; SealedHeader::OVERHEAD + Packet::data(DataHeader::default(), None).len()];
    let header = DataHeader { destination_cid: id.0, ..DataHeader::default() };
    header.emit(Wrap::Sealed(id).inside_mut(0, &mut packet));
    near.seal(Wrap::Sealed(id), 0, &mut packet);
    let reflected = near.open(&mut packet.clone(), 0).map(|_| ());
    assert_eq!(reflected, Err(OpenError::NotAuthentic { connection: id }));
    assert!(far.open(&mut packet, 0).is_ok(), "the packet itself is genuine");
}

/// A reset that copies fields seen on an encrypted connection makes this end probe the peer, which answers. A reset
/// without such fields does not even cause a probe.
#[test]
fn a_forged_reset_ends_nothing_and_a_restarted_peer_is_noticed() {
    let (mut pair, [id, theirs]) = Pair::connected(both(&SealConfig::default()));
    pair.submit(0, id, 3_000);
    pair.run(MS * 10);
    let [near, far] = pair.hosts.each_ref().map(|host| host.at);
    for round in 0..50 {
        let seen = pair.recorded.iter().rfind(|(from, _, bytes)| *from == near && bytes[0] == 9);
        let iv = u32::from_be_bytes(*seen.unwrap().2[4..8].first_chunk().unwrap());
        for reason in 1..=5 {
            let _ = pair.hosts[0].receive(pair.now, far, reset(theirs, reason, iv));
            let _ =
                pair.hosts[0].receive(pair.now, far, reset(theirs, reason, iv + 77_000 + round));
        }
        pair.run(MS * 10);
    }
    assert_eq!(pair.hosts[0].closed(), None);
    pair.submit(0, id, 3_000);
    pair.run(MS * 10);
    assert_eq!(pair.hosts[1].delivered(), 2);

    // The same holds while no packets flow: only the peer timeout decides about silence.
    pair.submit(0, id, 3_000);
    pair.pass(MS, |_| vec![]);
    let seen = pair.recorded.iter().rfind(|(from, _, bytes)| *from == near && bytes[0] == 9);
    let iv = u32::from_be_bytes(*seen.unwrap().2[4..8].first_chunk().unwrap());
    let _ = pair.hosts[0].receive(pair.now, far, reset(theirs, 5, iv));
    pair.pass(MS * 700, |_| vec![]);
    pair.run(MS * 200);
    assert_eq!((pair.hosts[0].closed(), pair.hosts[1].delivered()), (None, 3));

    // The peer restarts: it has no keys, sends a reset, and answers no probe.
    pair.hosts[1] = host(2, 2, SealConfig::default());
    pair.submit(0, id, 3_000);
    pair.run(MS * 600);
    assert_eq!(pair.hosts[0].closed(), Some(CloseReason::Reset));
    assert_eq!(pair.hosts[1].delivered(), 0);
}

/// Returns a reset of a connection that its peer knows by this id.
fn reset(unknown: ConnectionId, reason: u8, number: u32) -> Vec<u8> {
    let header = SetupHeader {
        kind: SetupKind::Reset,
        version: weft_wire::U4::truncate(1),
        cc_type: weft_wire::U4::truncate(0),
        thread_id: 0,
        reason,
        local_cid: unknown.0,
        destination_cid: number,
        terms: None,
    };
    let mut bytes = vec![0; header.header_len()];
    header.emit(&mut bytes);
    bytes
}

/// Resets from an off-path sender that knows the peer's connection id, but has seen no packet: as many as end the
/// connection to a peer that is silent, if each of them makes this end probe the peer.
#[test]
fn a_guessed_reset_ends_nothing_while_the_peer_is_silent() {
    let (mut pair, [id, theirs]) = Pair::connected(both(&SealConfig::default()));
    pair.submit(0, id, 3_000);
    pair.run(MS * 10);
    let far = pair.hosts[1].at;
    let sent = pair.recorded.len();
    // The next packet's number, one before the first packet, and one that is far from both.
    let next = u32::try_from(pair.hosts[0].seals.counters().sealed).unwrap();
    for round in 1..=8 {
        for number in [next, u32::MAX, 0x5555_5555] {
            for reason in 1..=5 {
                let verdict = pair.hosts[0].receive(pair.now, far, reset(theirs, reason, number));
                assert_eq!(verdict, Ok(Verdict::Dropped(DropReason::UnprovenReset)));
            }
        }
        pair.pass(MS * 100, |_| vec![]);
        let dropped = pair.hosts[0].endpoint.stats().dropped_for(DropReason::UnprovenReset);
        assert_eq!(dropped, round * 15);
    }
    assert_eq!(pair.hosts[0].closed(), None);
    assert_eq!(pair.recorded.len(), sent, "no probe is sent");
    pair.submit(0, id, 3_000);
    pair.run(MS * 10);
    assert_eq!(pair.hosts[1].delivered(), 2);
}
