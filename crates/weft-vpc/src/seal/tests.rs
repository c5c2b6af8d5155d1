use weft_units::{Rng, Seed};

use super::key::derive_bytes;
use super::*;

const VNI: u32 = 123_456;
const TEXT: &[u8] = b"a tenant's frame";

fn secret(first: u8) -> SealSecret {
    SealSecret::new(core::array::from_fn(|index| first.wrapping_add(u8::try_from(index).unwrap())))
}

fn at(secs: u64) -> Instant {
    Instant::EPOCH + Duration::from_secs(secs)
}

fn config(cipher: Cipher, local: &str, remote: &str) -> SealConfig {
    SealConfig {
        cipher,
        local: local.parse().unwrap(),
        remote: remote.parse().unwrap(),
        sender: U24::truncate(7),
        overlap: Duration::from_secs(60),
    }
}

/// Two hosts with secret 2.
fn pair(cipher: Cipher) -> [Seal; 2] {
    let ends = ["192.0.2.1", "192.0.2.2"];
    [[0, 1], [1, 0]].map(|[local, remote]| {
        Seal::new(config(cipher, ends[local], ends[remote]), 2, secret(0), 1000)
    })
}

fn vxlan(next: VxlanNext) -> VxlanHeader {
    VxlanHeader { vni: U24::truncate(VNI), next }
}

fn seal(sender: &mut Seal, text: &[u8]) -> Vec<u8> {
    let mut buffer = vec![0; Seal::HEADERS_LEN + text.len() + SealHeader::TAG_LEN];
    buffer[Seal::HEADERS_LEN..][..text.len()].copy_from_slice(text);
    let len = sender.seal(vxlan(VxlanNext::Weft), &mut buffer, text.len()).unwrap();
    assert_eq!(len, buffer.len());
    buffer
}

fn open(receiver: &mut Seal, packet: &[u8], now: Instant) -> Result<Vec<u8>, OpenError> {
    let mut packet = packet.to_vec();
    receiver.open(&mut packet, now).map(|(header, text)| {
        assert_eq!(header, vxlan(VxlanNext::Weft));
        text.to_vec()
    })
}

fn hex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().as_chunks::<2>().0;
    digits
        .iter()
        .map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

/// Keys and packets that OpenSSL made of the same secret (HKDF and AESGCM of Python's `cryptography`).
#[test]
fn keys_and_packets_are_those_of_another_library() {
    for (cipher, ends, next, key, packet) in [
        (
            Cipher::Aes128Gcm,
            ("192.0.2.1", "192.0.2.2"),
            VxlanNext::Frame,
            "43232301e7d4d840496c19aee1fd84de",
            "0c00007f01e240000300000002000007112233445566778841a8b9ef6409b6784482d05089329df0\
             ce0ece64731b0b3cb72e7d3f74936a74",
        ),
        (
            Cipher::Aes256Gcm,
            ("2001:db8::1", "2001:db8::2"),
            VxlanNext::Weft,
            "5f854e922b3fc4075a574a3011b9426a1cf7c04afe64d042f17ee83e666686a9",
            "0c00007f01e240007e0100000200000711223344556677886a763a8f52cec8329ace6bc3353ec077\
             42b7d7fb0a21b2a7bad642a7288ff984",
        ),
    ] {
        let config = config(cipher, ends.0, ends.1);
        let mut derived = vec![0; key.len() / 2];
        derive_bytes(&secret(0), cipher, (config.local, config.remote), 0x0200_0007, &mut derived);
        assert_eq!(derived, hex(key));
        let mut sender = Seal::new(config, 2, secret(0), 0x1122_3344_5566_7788);
        let mut buffer = vec![0; Seal::HEADERS_LEN + TEXT.len() + 16];
        buffer[Seal::HEADERS_LEN..][..TEXT.len()].copy_from_slice(TEXT);
        sender.seal(vxlan(next), &mut buffer, TEXT.len()).unwrap();
        assert_eq!(buffer, hex(packet));
        let (local, remote) = (config.remote, config.local);
        let mut receiver = Seal::new(SealConfig { local, remote, ..config }, 2, secret(0), 0);
        let opened = receiver.open(&mut buffer, at(0)).unwrap();
        assert_eq!(opened, (vxlan(next), &mut TEXT.to_vec()[..]));
    }
}

#[test]
fn packets_open_in_any_order_and_once() {
    for cipher in [Cipher::Aes128Gcm, Cipher::Aes256Gcm] {
        let [mut a, mut b] = pair(cipher);
        let mut rng = Seed(1).child("seal", 0).rng();
        let mut packets: Vec<_> =
            (0..2000_u32).map(|number| (number, seal(&mut a, &number.to_be_bytes()))).collect();
        rng.shuffle(&mut packets);
        for (number, packet) in &packets {
            assert_eq!(open(&mut b, packet, at(0)).unwrap(), number.to_be_bytes());
        }
        for (_, packet) in &packets {
            assert_eq!(open(&mut b, packet, at(0)).unwrap_err().reason(), "replayed");
        }
        assert_eq!(
            (a.counters().sealed, b.counters().opened, b.counters().replayed),
            (2000, 2000, 2000)
        );
        // 4,096 packets on, the first are too old to tell.
        let late = seal(&mut a, TEXT);
        (0..4200).for_each(|_| assert!(open(&mut b, &seal(&mut a, TEXT), at(0)).is_ok()));
        assert_eq!(open(&mut b, &late, at(0)).unwrap_err().reason(), "replayed");
    }
}

/// Any change to any bit is noticed, or, of the VXLAN header's unread bits, too; and the packet itself
/// then still opens.
#[test]
fn every_flipped_bit_is_noticed() {
    for cipher in [Cipher::Aes128Gcm, Cipher::Aes256Gcm] {
        let [mut a, mut b] = pair(cipher);
        let packet = seal(&mut a, TEXT);
        for bit in 0..8 * packet.len() {
            let mut damaged = packet.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(open(&mut b, &damaged, at(0)).is_err(), "bit {bit}");
        }
        for len in 0..packet.len() {
            assert!(open(&mut b, &packet[..len], at(0)).is_err(), "{len} bytes");
        }
        assert_eq!(b.counters().opened, 0);
        assert!(open(&mut b, &packet, at(0)).is_ok());
    }
}

#[test]
fn a_packet_opens_for_whom_it_was_sealed() {
    let [mut a, mut b] = pair(Cipher::Aes128Gcm);
    let packet = seal(&mut a, TEXT);
    // Sent back to its sender; for a host with another address, or from one; under another secret.
    assert_eq!(open(&mut a, &packet, at(0)).unwrap_err().reason(), "not_authentic");
    for (local, remote, first) in [
        ("192.0.2.3", "192.0.2.1", 0),
        ("192.0.2.2", "192.0.2.3", 0),
        ("192.0.2.2", "192.0.2.1", 1),
    ] {
        let config = config(Cipher::Aes128Gcm, local, remote);
        let mut other = Seal::new(config, 2, secret(first), 0);
        assert_eq!(open(&mut other, &packet, at(0)).unwrap_err().reason(), "not_authentic");
    }
    let config = config(Cipher::Aes128Gcm, "192.0.2.2", "192.0.2.1");
    let mut other = Seal::new(config, 3, secret(0), 0);
    assert_eq!(open(&mut other, &packet, at(0)), Err(OpenError::UnknownSpi { spi: 0x0200_0007 }));
    let mut plain = [0; 64];
    vxlan(VxlanNext::Frame).emit(&mut plain);
    assert_eq!(open(&mut b, &plain, at(0)), Err(OpenError::NotSealed));
    assert_eq!(b.counters(), SealCounters { malformed: 1, ..SealCounters::default() });
}

#[test]
fn a_rotation_loses_nothing_and_ends_the_old_secret() {
    let [mut a, mut b] = pair(Cipher::Aes128Gcm);
    let old = seal(&mut a, TEXT);
    let delayed = seal(&mut a, TEXT);
    assert!(open(&mut b, &old, at(0)).is_ok());
    // One host is told first; the other half a minute later.
    a.rotate(3, secret(100), at(0));
    assert_eq!((a.sending_with(), a.poll_timeout()), (2, Some(at(60))));
    assert!(open(&mut b, &seal(&mut a, TEXT), at(1)).is_ok());
    b.rotate(3, secret(100), at(30));
    b.rotate(3, secret(100), at(31));
    assert_eq!(b.poll_timeout(), Some(at(90)));
    // The first one's time comes, and the other follows at once.
    a.handle_timeout(at(60), 5000);
    assert_eq!(a.sending_with(), 3);
    assert!(open(&mut b, &seal(&mut a, TEXT), at(60)).is_ok());
    assert_eq!((b.sending_with(), b.poll_timeout()), (3, Some(at(150))));
    assert!(open(&mut a, &seal(&mut b, TEXT), at(60)).is_ok());
    // What was under way is still taken, until the old secret ends; a timer need not have fired.
    assert!(open(&mut b, &delayed, at(149)).is_ok());
    let unknown = OpenError::UnknownSpi { spi: 0x0200_0007 };
    assert_eq!(open(&mut b, &old, at(150)), Err(unknown));
    b.handle_timeout(at(150), 0);
    assert_eq!((b.secrets.len(), b.receiving.len(), b.poll_timeout()), (1, 1, None));
    assert_eq!(b.sending_with(), 3);
}

#[test]
fn two_rotations_in_a_row_leave_two_secrets() {
    let [mut a, mut b] = pair(Cipher::Aes128Gcm);
    for host in [&mut a, &mut b] {
        host.rotate(3, secret(3), at(0));
        host.rotate(4, secret(4), at(1));
        assert_eq!((host.sending_with(), host.secrets.len()), (3, 2));
    }
    assert!(open(&mut b, &seal(&mut a, TEXT), at(1)).is_ok());
    // A number that comes again is another secret.
    let packet = seal(&mut a, TEXT);
    b.rotate(3, secret(33), at(2));
    assert_eq!(open(&mut b, &packet, at(2)).unwrap_err().reason(), "not_authentic");
}

#[test]
fn a_restarted_sender_goes_on_above_what_it_used() {
    let [mut a, mut b] = pair(Cipher::Aes128Gcm);
    (0..100).for_each(|_| assert!(open(&mut b, &seal(&mut a, TEXT), at(0)).is_ok()));
    let mut again = Seal::new(a.config, 2, secret(0), 1_000_000);
    assert!(open(&mut b, &seal(&mut again, TEXT), at(1)).is_ok());
    // One whose clock went back uses numbers again: it is refused, not believed.
    let mut back = Seal::new(a.config, 2, secret(0), 1000);
    assert_eq!(open(&mut b, &seal(&mut back, TEXT), at(2)).unwrap_err().reason(), "replayed");
}

#[test]
fn each_sender_of_a_host_counts_for_itself_and_they_are_bounded() {
    let [a, mut b] = pair(Cipher::Aes128Gcm);
    for number in 0..300 {
        let config = SealConfig { sender: U24::truncate(number), ..a.config };
        let packet = seal(&mut Seal::new(config, 2, secret(0), 1000), TEXT);
        let opened = open(&mut b, &packet, at(0));
        match number < 256 {
            true => assert!(opened.is_ok()),
            false => assert_eq!(opened.unwrap_err().reason(), "too_many_senders"),
        }
    }
    // Whoever has not the secret takes no place.
    let [_, mut b] = pair(Cipher::Aes128Gcm);
    for number in 0..1000 {
        let config = SealConfig { sender: U24::truncate(number), ..a.config };
        let packet = seal(&mut Seal::new(config, 2, secret(9), 1000), TEXT);
        assert_eq!(open(&mut b, &packet, at(0)).unwrap_err().reason(), "not_authentic");
    }
    assert_eq!(b.receiving.len(), 0);
}

#[test]
fn a_key_has_an_end() {
    let [mut a, mut b] = pair(Cipher::Aes128Gcm);
    a.sending.next_iv = a.sending.last_iv - 1;
    assert!(open(&mut b, &seal(&mut a, TEXT), at(0)).is_ok());
    let error = a.seal(vxlan(VxlanNext::Weft), &mut [0; 100], 10).unwrap_err();
    assert_eq!(error, SealError::KeyUsedUp { secret: 2 });
    a.rotate(3, secret(3), at(0));
    a.handle_timeout(at(60), 5000);
    b.rotate(3, secret(3), at(0));
    assert!(open(&mut b, &seal(&mut a, TEXT), at(60)).is_ok());
}

#[test]
fn secrets_are_read_and_never_shown() {
    let text = "000102030405060708090a0b0c0d0e0f101112131415161718191A1B1C1D1E1F";
    let read: SealSecret = text.parse().unwrap();
    assert_eq!(read.bytes(), secret(0).bytes());
    let [a, _] = pair(Cipher::Aes256Gcm);
    let shown = format!("{read:?} {a:?}");
    assert!(!shown.contains("[0, 1, 2") && !shown.to_lowercase().contains("00010203"), "{shown}");
    for wrong in
        ["", "00", &text[1..], &text.replace('A', "g"), &text.replace("00", "é"), &"+1".repeat(32)]
    {
        let error = wrong.parse::<SealSecret>().unwrap_err().to_string();
        assert!(error.starts_with("a secret is 64 hexadecimal digits"));
        assert!(
            wrong.is_empty() || !error.contains(&wrong[..wrong.len().min(60)]) || wrong == "00"
        );
    }
}

/// Hosts that seal, lose, repeat, damage, reorder and rotate: what opens is what was sealed, and once.
#[test]
fn what_opens_was_sealed_and_opens_once() {
    for seed in 0..50 {
        let mut rng = Seed(seed).child("seal", 1).rng();
        let cipher = [Cipher::Aes128Gcm, Cipher::Aes256Gcm][rng.index(2)];
        let [mut a, mut b] = pair(cipher);
        let (mut now, mut number, mut sealed, mut opened) = (0, 2_u8, Vec::new(), Vec::new());
        for step in 0..400_u64 {
            now += rng.below(5);
            for host in [&mut a, &mut b] {
                host.handle_timeout(at(now), 1000 + 1_000_000 * now);
            }
            match rng.below(6) {
                0 | 1 => {
                    let len = rng.index(100);
                    let text = [&step.to_be_bytes()[..], &vec![0; len]].concat();
                    sealed.push(seal(&mut a, &text));
                }
                2 if rng.chance(1, 20) => {
                    number = number.wrapping_add(1);
                    a.rotate(number, secret(number), at(now));
                    b.rotate(number, secret(number), at(now));
                }
                3 if !sealed.is_empty() => {
                    let mut damaged = sealed[rng.index(sealed.len())].clone();
                    damage(&mut damaged, &mut rng);
                    assert!(open(&mut b, &damaged, at(now)).is_err(), "seed {seed}");
                }
                _ if !sealed.is_empty() => {
                    let packet = &sealed[rng.index(sealed.len())];
                    if let Ok(text) = open(&mut b, packet, at(now)) {
                        assert!(!opened.contains(&text), "seed {seed}: opened twice");
                        opened.push(text);
                    }
                }
                _ => {}
            }
        }
        assert!(opened.len() > 20, "seed {seed}: only {} opened", opened.len());
        assert_eq!(b.counters().opened, opened.len() as u64);
    }
}

/// Changes something.
fn damage(packet: &mut Vec<u8>, rng: &mut Rng) {
    match rng.below(3) {
        0 => {
            let bit = rng.index(8 * packet.len());
            packet[bit / 8] ^= 1 << (bit % 8);
        }
        1 => packet.truncate(rng.index(packet.len())),
        _ => packet.push(0),
    }
}
