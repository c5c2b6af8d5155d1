//! Tests of two endpoints with encryption, and a network that records, loses, changes and replays datagrams.

use std::collections::BTreeSet;

use weft_transport::{CloseReason, SetupClass, Verdict};
use weft_units::{Duration, Rng, Seed};

use super::*;

mod forgeries;
mod pair;
mod strangers;

use pair::*;

#[test]
fn a_connection_agrees_on_keys_and_nothing_leaves_in_the_clear() {
    for cipher in [weft_wire::Cipher::Aes128Gcm, weft_wire::Cipher::Aes256Gcm] {
        let ours = SealConfig { cipher, ..SealConfig::default() };
        let (mut pair, [id, theirs]) = Pair::connected([ours, SealConfig::default()]);
        assert_eq!(pair.hosts[0].seals.peer(id), Some(pair.hosts[1].seals.identity()));
        assert_eq!(pair.hosts[1].seals.peer(theirs), Some(pair.hosts[0].seals.identity()));
        pair.submit(0, id, 100_000);
        pair.submit(1, theirs, 5_000);
        pair.run(MS * 20);
        assert_eq!(pair.hosts.each_ref().map(Host::delivered), [1, 1]);
        assert_eq!(pair.hosts[1].placed, 100_000);
        pair.hosts[0].endpoint.close(pair.now, id);
        pair.run(MS * 20);
        assert_eq!(
            pair.hosts.each_ref().map(Host::closed),
            [Some(CloseReason::Local), Some(CloseReason::Peer)]
        );
        // Set-up is four datagrams: request, challenge, request, accept.
        let clear =
            pair.recorded.iter().filter(|(.., bytes)| bytes[0] != SealedHeader::PACKET_TYPE);
        assert_eq!(clear.map(|(.., bytes)| bytes[0]).collect::<Vec<_>>(), [3, 4, 3, 5]);
        // A sealed packet begins with 12 bytes in the clear, and the rest shows no pattern of the payload.
        let sealed =
            pair.recorded.iter().filter(|(.., bytes)| bytes[0] == SealedHeader::PACKET_TYPE);
        assert!(sealed.clone().count() > 90);
        assert!(sealed.clone().all(|(.., bytes)| !contains_plaintext(bytes, 7)));
        // Keys are erased with the connection.
        assert_eq!(pair.hosts.each_ref().map(|host| host.seals.connections()), [0, 0]);
    }
}

#[test]
fn a_peer_that_cannot_encrypt_is_connected_in_the_clear_or_refused() {
    use Mode::{Off, Preferred, Required};
    for (ours, theirs, sealed, closed) in [
        (Preferred, Off, false, None),
        (Off, Preferred, false, None),
        (Off, Off, false, None),
        (Required, Preferred, true, None),
        (Preferred, Required, true, None),
        (Required, Off, false, Some(CloseReason::NotEncrypted)),
        (Off, Required, false, Some(CloseReason::NotEncrypted)),
    ] {
        let mut pair = Pair::new([mode(ours), mode(theirs)]);
        let id = pair.connect();
        pair.run(MS * 5);
        assert_eq!(pair.hosts[0].closed(), closed, "{ours} to {theirs}");
        assert_eq!(pair.hosts[0].seals.is_sealed(id), sealed, "{ours} to {theirs}");
        if closed.is_none() {
            pair.submit(0, id, 10_000);
            pair.run(MS * 10);
            assert_eq!(pair.hosts[1].delivered(), 1);
            let clear = pair.hosts.each_ref().map(|host| host.seals.counters().clear);
            assert_eq!(clear.iter().sum::<u64>() > 0, [ours, theirs] != [Off, Off] && !sealed);
        } else {
            let count = |host: &Host| host.seals.counters().refused_clear;
            assert!(pair.hosts.iter().map(count).sum::<u64>() > 0);
        }
    }
}

/// An attacker on the path who removes the exchange gets a connection in the clear from hosts that only prefer
/// encryption, and none from hosts that require it.
#[test]
fn a_downgrade_is_refused_where_encryption_is_required() {
    for (demand, delivered) in [(Mode::Preferred, 1), (Mode::Required, 0)] {
        let mut pair = Pair::new([mode(demand), mode(demand)]);
        let id = pair.connect();
        let strip = |(from, to, mut bytes): Datagram| {
            if matches!(bytes[0], 3..=5) {
                bytes.truncate(44);
            }
            vec![(from, to, bytes)]
        };
        pair.pass(MS * 5, strip);
        let _ = pair.try_submit(0, id, 3_000);
        pair.pass(MS * 10, strip);
        assert_eq!(pair.hosts[1].delivered(), delivered, "{demand}");
        let payload_seen = pair.recorded.iter().any(|(.., bytes)| contains_plaintext(bytes, 0));
        assert_eq!(payload_seen, demand == Mode::Preferred);
        let [near, far] = pair.hosts.each_ref().map(|host| host.seals.counters());
        let reported = (near.clear, far.clear, far.refused_clear > 0);
        assert_eq!(reported, if delivered > 0 { (1, 1, false) } else { (0, 0, true) }, "{demand}");
    }
}

#[test]
fn another_preshared_key_or_an_identity_that_is_not_listed_is_refused() {
    let mut pair = Pair::new([with_key(1), with_key(2)]);
    pair.connect();
    pair.run(MS * 5);
    assert_eq!(pair.hosts[0].closed(), Some(CloseReason::NotAuthentic));
    assert_eq!(pair.hosts[1].seals.counters().refused_exchanges, 1);
    let (pair, [id, _]) = Pair::connected([with_key(1), with_key(1)]);
    assert!(pair.hosts[0].seals.is_sealed(id));

    let identity = |first: u8| PrivateKey::new([first; 32]);
    let listing = |own: u8, peers: &[u8]| SealConfig {
        identity: Some(identity(own)),
        peers: Some(peers.iter().map(|&peer| identity(peer).public()).collect::<BTreeSet<_>>()),
        mode: Mode::Required,
        ..SealConfig::default()
    };
    let (pair, [id, _]) = Pair::connected([listing(1, &[2, 3]), listing(2, &[1])]);
    assert_eq!(pair.hosts[0].seals.peer(id), Some(identity(2).public()));
    for (ours, theirs) in
        [(listing(1, &[3]), listing(2, &[1])), (listing(1, &[2]), listing(2, &[3]))]
    {
        let mut pair = Pair::new([ours, theirs]);
        pair.connect();
        pair.run(MS * 20);
        assert_eq!(pair.hosts[0].closed(), Some(CloseReason::NotAuthentic));
        assert_eq!(pair.hosts[0].seals.connections(), 0);
    }
}

/// Requests from forged addresses, with a genuine exchange and tokens that were never issued.
#[test]
fn nothing_is_computed_for_an_address_that_is_not_proved() {
    let mut pair = Pair::new(both(&SealConfig::default()));
    pair.connect();
    let mut requests = Vec::new();
    pair.pass(MS * 5, |(from, to, bytes)| {
        if bytes[0] == SetupKind::Request.packet_type() && bytes[36..44] != [0; 8] {
            requests.push(bytes.clone());
        }
        vec![(from, to, bytes)]
    });
    let exchanges = pair.hosts[1].seals.counters().exchanges;
    pair.hosts[1] = host(2, 1, SealConfig::default());
    for last in 0..=255 {
        let from = SocketAddr::new([192, 0, 2, last].into(), 4791);
        let refused = pair.hosts[1].receive(pair.now, from, requests[0].clone());
        assert!(matches!(refused, Ok(Verdict::Dropped(_))), "{refused:?}");
    }
    let seals = &mut pair.hosts[1].seals;
    assert_eq!((exchanges, seals.responders.len(), seals.counters().exchanges), (1, 0, 0));
    // No random numbers were drawn either.
    let drawn = seals.random.draw();
    assert_eq!(host(2, 1, SealConfig::default()).seals.random.draw(), drawn);
}

#[test]
fn changed_terms_are_noticed_and_the_genuine_accept_still_counts() {
    // Bytes of the accept: congestion control, thread, first PSN, MTU, window, paths, receive port.
    for byte in [1, 2, 19, 21, 23, 25, 27] {
        let mut pair = Pair::new(both(&mode(Mode::Required)));
        let id = pair.connect();
        pair.pass(MS * 5, |(from, to, bytes)| {
            let mut forged = bytes.clone();
            if bytes[0] == 5 {
                forged[byte] ^= 1;
                forged.push(0);
            }
            vec![(from, to, forged), (from, to, bytes)]
        });
        assert!(pair.hosts[0].seals.is_sealed(id), "byte {byte}");
        pair.submit(0, id, 5_000);
        pair.run(MS * 10);
        assert_eq!(pair.hosts[1].delivered(), 1, "byte {byte}");
        assert!(pair.hosts[0].seals.counters().refused_exchanges >= 1);
    }
    // In the request all fields except the load and the token are bound.
    for byte in [1, 2, 19, 21, 23, 25, 31] {
        let mut pair = Pair::new(both(&mode(Mode::Required)));
        pair.connect();
        pair.pass(MS * 5, |(from, to, mut bytes)| {
            if bytes[0] == 3 {
                bytes[byte] ^= 1;
            }
            vec![(from, to, bytes)]
        });
        assert_eq!(pair.hosts[0].seals.connections(), 0, "byte {byte}");
        assert!(pair.hosts[1].seals.counters().refused_exchanges > 0, "byte {byte}");
    }
}

#[test]
fn a_restarted_receiver_takes_nothing_that_was_recorded() {
    let (mut pair, [id, _]) = Pair::connected(both(&SealConfig::default()));
    pair.submit(0, id, 20_000);
    pair.run(MS * 10);
    pair.hosts[1] = host(2, 3, SealConfig::default());
    let now = pair.now + Duration::from_secs(60);
    for (from, to, bytes) in pair.recorded.clone() {
        if to == pair.hosts[1].at {
            let _ = pair.hosts[1].receive(now, from, bytes);
        }
    }
    assert_eq!((pair.hosts[1].delivered(), pair.hosts[1].placed), (0, 0));
    assert_eq!(pair.hosts[1].seals.connections(), 0);
}

/// The accept arrives, and the peer restarts before the proof reaches it: the peer does not know the connection, and
/// the owner of this end has no event of it yet, so this end sends a new request with another exchange.
#[test]
fn a_peer_that_restarts_between_accept_and_proof_gets_a_new_request() {
    let mut pair = Pair::new(both(&SealConfig::default()));
    let near = pair.hosts[0].at;
    let id = pair.connect();
    pair.pass(MS * 5, |datagram| {
        let is_proof = datagram.0 == near && datagram.2[0] == SealedHeader::PACKET_TYPE;
        if is_proof { vec![] } else { vec![datagram] }
    });
    assert!(
        pair.hosts[0].seals.is_sealed(id) && pair.hosts.iter().all(|host| host.events.is_empty())
    );

    pair.hosts[1] = host(2, 2, SealConfig::default());
    pair.run(MS * 600);
    assert_eq!(pair.hosts[0].events, [weft_transport::Event::Connected { connection: id }]);
    pair.submit(0, id, 3_000);
    pair.run(MS * 10);
    assert_eq!(pair.hosts[1].delivered(), 1);
    assert_eq!(pair.hosts[0].seals.counters().exchanges, 2);

    // The new request does not fall back to the clear.
    let requests = pair
        .recorded
        .iter()
        .filter(|(from, _, bytes)| *from == near && bytes[0] == SetupKind::Request.packet_type());
    let plain = requests
        .filter(|(.., bytes)| bytes.len() <= SetupHeader::LEN + weft_wire::SetupParameters::LEN);
    assert_eq!(plain.count(), 0);
}

#[test]
fn keys_change_without_a_gap_whatever_overtakes() {
    let config = SealConfig { key_lifetime: MS * 2, key_log: true, ..SealConfig::default() };
    let (mut pair, [id, _]) = Pair::connected(both(&config));
    let mut rng = Seed(5).child("order", 0).rng();
    let mut held: Vec<Datagram> = Vec::new();
    for _ in 0..40 {
        pair.submit(0, id, 20_000);
        pair.pass(MS, |datagram| {
            held.push(datagram);
            (0..held.len() / 4).map(|_| held.swap_remove(rng.index(held.len()))).collect()
        });
    }
    pair.run(MS * 100);
    assert_eq!(pair.hosts[1].delivered(), 40);
    let keys: BTreeSet<u8> = pair
        .recorded
        .iter()
        .filter(|(.., bytes)| bytes[0] == 9)
        .map(|(.., bytes)| bytes[2])
        .collect();
    assert!(keys.len() > 10, "{keys:?}");
    let counters = pair.hosts[1].seals.counters();
    assert!(counters.not_authentic < counters.opened / 10, "{counters:?}");
    let lines: Vec<String> = core::iter::from_fn(|| pair.hosts[0].seals.poll_key_log()).collect();
    assert!(lines.len() > keys.len());
    let fields: Vec<&str> = lines[0].split(' ').collect();
    assert_eq!(
        (fields.len(), fields[0].len(), fields[1], fields[2], fields[3].len()),
        (4, 8, "0", "0", 32)
    );
}

/// The key in the key log opens the packet with another implementation of AES-GCM.
#[test]
fn a_packet_opens_with_the_logged_key_by_another_library() {
    use aes_gcm::aead::{AeadInPlace, KeyInit};
    let config = SealConfig { key_log: true, ..SealConfig::default() };
    let (mut pair, [id, _]) = Pair::connected(both(&config));
    pair.submit(0, id, 100);
    pair.run(MS * 5);
    let (.., bytes) = pair
        .recorded
        .iter()
        .find(|(_, to, bytes)| bytes.len() > 128 && bytes[0] == 9 && *to == pair.hosts[1].at)
        .unwrap();
    let spi = bytes[8..12].iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let line = core::iter::from_fn(|| pair.hosts[0].seals.poll_key_log())
        .find(|line| line.starts_with(&spi));
    let line = line.expect("the key is in the log");
    let digits = line.rsplit(' ').next().unwrap();
    let key: Vec<u8> =
        (0..16).map(|at| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).unwrap()).collect();
    let mut nonce = [0; 12];
    nonce[..4].copy_from_slice(&bytes[8..12]);
    nonce[8..].copy_from_slice(&bytes[4..8]);
    let (headers, rest) = bytes.split_at(12);
    let (text, tag) = rest.split_at(rest.len() - 16);
    let mut text = text.to_vec();
    let cipher = aes_gcm::Aes128Gcm::new_from_slice(&key).unwrap();
    cipher.decrypt_in_place_detached(&nonce.into(), headers, &mut text, tag.into()).unwrap();
    let (packet, payload) = Packet::parse(&text).unwrap();
    assert!(
        matches!(packet, Packet::Data(..)) && payload.ends_with(&contents(0, 0, 100)),
        "{packet}"
    );
}

/// A packet that 65,535 others overtake is opened, and none twice.
#[test]
fn paths_may_differ_by_sixty_five_thousand_packets() {
    let (mut pair, [id, theirs]) = Pair::connected(both(&SealConfig::default()));
    pair.run(MS * 5);
    let seal = |pair: &mut Pair| {
        let mut packet = vec![0; 12 + 16 + 16];
        DataHeader { destination_cid: theirs.0, ..DataHeader::default() }.emit(&mut packet[12..]);
        pair.hosts[0].seals.seal(Wrap::Sealed(id), 0, &mut packet);
        packet
    };
    let late = seal(&mut pair);
    for _ in 0..65_535 {
        let mut packet = seal(&mut pair);
        assert!(pair.hosts[1].seals.open(&mut packet, 0).is_ok());
    }
    assert!(pair.hosts[1].seals.open(&mut late.clone(), 0).is_ok());
    assert!(pair.hosts[1].seals.open(&mut late.clone(), 0).is_err());
    // After 2^32 packets the transmitted half of the number wraps, and the next key is used.
    pair.hosts[0].seals.channels.get_mut(&id).unwrap().skip_to((1 << 32) - 2);
    for _ in 0..5 {
        let mut packet = seal(&mut pair);
        assert!(pair.hosts[1].seals.open(&mut packet, 0).is_ok());
    }
    assert_eq!(seal(&mut pair)[2], 1);
}

/// A network that loses, replays, damages, reorders and reflects packets, while keys change: each delivered message
/// was sent by the peer, and is delivered once.
#[test]
fn each_delivered_message_was_sent_by_the_peer_once() {
    for seed in 0..20 {
        let mut rng = Seed(seed).child("seals", 0).rng();
        let config = SealConfig { key_lifetime: MS * 20, ..mode(Mode::Required) };
        let mut pair = Pair::new(both(&config));
        let id = pair.connect();
        let mut seen: Vec<Datagram> = Vec::new();
        let mut fault = |datagram: Datagram| {
            seen.push(datagram.clone());
            let (from, to, bytes) = datagram.clone();
            let old = seen[rng.index(seen.len())].clone();
            match rng.below(12) {
                0 => vec![],
                1 => vec![datagram.clone(), datagram],
                2 => vec![(from, to, damage(bytes, &mut rng)), datagram],
                3 => vec![datagram, old],
                4 => vec![datagram, (to, from, bytes)],
                5 => vec![(old.0, old.1, damage(old.2, &mut rng)), datagram],
                _ => vec![datagram],
            }
        };
        // An attacker on the path can end a set-up, but nothing after it.
        pair.run(MS * 5);
        pair.pass(MS * 100, &mut fault);
        for _ in 0..20 {
            pair.submit(0, id, 4_000);
            pair.pass(MS * 5, &mut fault);
        }
        pair.pass(MS * 300, &mut fault);
        assert_eq!(pair.hosts[1].delivered(), 20, "seed {seed}");
        assert_eq!(pair.hosts[1].placed, 80_000, "seed {seed}");
    }
}

fn damage(mut packet: Vec<u8>, rng: &mut Rng) -> Vec<u8> {
    match rng.below(3) {
        0 => {
            let bit = rng.index(8 * packet.len());
            packet[bit / 8] ^= 1 << (bit % 8);
        }
        1 => packet.truncate(1 + rng.index(packet.len() - 1)),
        _ => packet.push(0),
    }
    packet
}
