use weft_units::{Rng, Seed};

use super::*;

impl SetupHeader {
    /// Returns a header with the first row's fields from `bits` and the others at random.
    pub(crate) fn sample(kind: SetupKind, bits: u32, rng: &mut Rng) -> Self {
        let [thread_id, reason, ..] = (bits >> 8).to_le_bytes();
        Self {
            kind,
            version: U4::truncate(bits),
            cc_type: U4::truncate(bits >> 4),
            thread_id,
            reason,
            local_cid: rng.next_u32(),
            destination_cid: rng.next_u32(),
            terms: kind.carries_terms().then(|| SetupParameters::sample(rng)),
        }
    }
}

impl SetupParameters {
    fn sample(rng: &mut Rng) -> Self {
        let mut half = || u16::try_from(rng.next_u32() >> 16).expect("sixteen bits are left");
        Self {
            mtu: half(),
            window: half(),
            paths: half(),
            receive_port: half(),
            capabilities: rng.next_u32(),
            first_psn: rng.next_u32(),
            service: rng.next_u64() >> 8,
            min_version: (rng.next_u32() >> 24) as u8,
            token: rng.next_u64(),
        }
    }
}

#[test]
fn every_first_row_of_every_kind_comes_back_as_it_went() {
    let mut rng = Seed(1).child("setup header", 0).rng();
    let mut bytes = [0; SetupHeader::LEN + SetupParameters::LEN];
    for kind in SetupKind::ALL {
        for bits in 0..1 << 24 {
            // All values of the two nibbles, with every thread and with every reason.
            if bits >> 16 != 0 && bits >> 8 & 0xff != 0 {
                continue;
            }
            let header = SetupHeader::sample(kind, bits, &mut rng);
            header.emit(&mut bytes);
            let (parsed, rest) = SetupHeader::parse(&bytes[..header.header_len()]).unwrap();
            assert_eq!(parsed, header);
            assert!(rest.is_empty());
        }
    }
}

#[test]
fn packet_types_and_kinds_correspond() {
    for packet_type in 0..=u8::MAX {
        match SetupKind::from_packet_type(packet_type) {
            Some(kind) => assert_eq!(kind.packet_type(), packet_type),
            None => assert!(!SetupKind::ALL.iter().any(|k| k.packet_type() == packet_type)),
        }
    }
    assert!(SetupKind::ALL.iter().all(|k| SetupKind::from_packet_type(k.packet_type()).is_some()));
}

#[test]
fn bytes_after_the_terms_are_returned() {
    let mut rng = Seed(1).child("setup header", 1).rng();
    let header = SetupHeader::sample(SetupKind::Accept, 0, &mut rng);
    let mut bytes = [0x55; SetupHeader::LEN + SetupParameters::LEN + 7];
    header.emit(&mut bytes);
    assert_eq!(SetupHeader::parse(&bytes), Ok((header, &[0x55; 7][..])));
}

#[test]
fn a_request_without_its_terms_is_refused() {
    let mut rng = Seed(1).child("setup header", 2).rng();
    let mut bytes = [0; SetupHeader::LEN + SetupParameters::LEN];
    SetupHeader::sample(SetupKind::Request, 0, &mut rng).emit(&mut bytes);
    for got in 12..44 {
        let truncated = ParseError::Truncated { needed: 44, got };
        assert_eq!(SetupHeader::parse(&bytes[..got]), Err(truncated));
    }
    for got in 0..12 {
        let truncated = ParseError::Truncated { needed: 12, got };
        assert_eq!(SetupHeader::parse(&bytes[..got]), Err(truncated));
    }
}

#[test]
#[should_panic(expected = "only request, challenge and accept carry terms")]
fn terms_in_a_reject_panic() {
    let mut rng = Seed(1).child("setup header", 3).rng();
    let request = SetupHeader::sample(SetupKind::Request, 0, &mut rng);
    SetupHeader { kind: SetupKind::Reject, ..request }.emit(&mut [0; 64]);
}
