use weft_units::{Rng, Seed};

use super::*;

/// Returns a header with the second row's fields from `bits` and the others at random.
fn sample(bits: u32, rng: &mut Rng) -> Ipv4Header {
    let [a, b, c, d, e, f, ..] = rng.next_u64().to_be_bytes();
    Ipv4Header {
        dscp: U6::truncate(bits),
        ecn: Ecn::from_number(U2::truncate(bits >> 6)),
        payload_len: u16::from_be_bytes([a, b]).min(65_475),
        identification: u16::from_be_bytes([c, d]),
        dont_fragment: bits >> 8 & 1 != 0,
        more_fragments: bits >> 9 & 1 != 0,
        fragment_offset: U13::truncate(bits >> 10),
        ttl: e,
        protocol: f,
        source: Ipv4Addr::from_bits(rng.next_u32()),
        destination: Ipv4Addr::from_bits(rng.next_u32()),
        options: Ipv4Options::NONE,
    }
}

fn assert_comes_back(header: Ipv4Header, bytes: &mut [u8]) {
    header.emit(bytes);
    let (parsed, payload) = Ipv4Header::parse(bytes).expect("just emitted");
    assert_eq!((parsed, payload.len()), (header, usize::from(header.payload_len)));
}

#[test]
fn every_flag_offset_and_class_comes_back_as_it_went() {
    let mut rng = Seed(1).child("ipv4", 0).rng();
    let mut bytes = vec![0; 65_535];
    for bits in 0..1 << 23 {
        assert_comes_back(sample(bits, &mut rng), &mut bytes);
    }
}

#[test]
fn every_length_of_options_comes_back_as_it_went() {
    let mut rng = Seed(1).child("ipv4", 1).rng();
    let mut bytes = vec![0; 65_535];
    for len in 0..=Ipv4Options::MAX_LEN {
        // One option over the whole length: kind 0x44, timestamps (RFC 791).
        let mut option = vec![0x44; len];
        if let Some(length) = option.get_mut(1) {
            *length = u8::try_from(len).unwrap();
        }
        let Some(options) = Ipv4Options::new(&option) else {
            assert_eq!(len, 1, "an option needs its length");
            continue;
        };
        let header = Ipv4Header { options, ..sample(rng.next_u32(), &mut rng) };
        assert_eq!(header.header_len(), 20 + len.next_multiple_of(4));
        assert_comes_back(header, &mut bytes);
    }
}

#[test]
fn options_with_invalid_lengths_cannot_be_constructed() {
    assert_eq!(Ipv4Options::new(&[1; 41]), None, "longer than a header has room for");
    assert_eq!(Ipv4Options::new(&[0x44, 5, 0, 0]), None, "ends past the options");
    assert_eq!(Ipv4Options::new(&[0x44, 1, 0, 0]), None, "shorter than its own head");
    assert_eq!(Ipv4Options::new(&[1, 1, 1, 0x44]), None, "no room for its length");
    assert!(Ipv4Options::new(&[0, 0x44, 99, 99]).is_some(), "nothing counts after the end");
    assert!(Ipv4Options::new(&[1, 1, 1, 1]).is_some());
}

#[test]
fn malformed_options_are_refused_with_their_offset() {
    let mut rng = Seed(1).child("ipv4", 2).rng();
    let options = Ipv4Options::new(&[1, 1, 0x44, 2]).unwrap();
    let header = Ipv4Header { payload_len: 0, options, ..sample(0, &mut rng) };
    let mut bytes = [0; 24];
    header.emit(&mut bytes);
    bytes[23] = 3;
    rewrite_checksum(&mut bytes);
    assert_eq!(Ipv4Header::parse(&bytes), Err(ParseError::MalformedOption { offset: 2 }));
}

#[test]
fn any_flipped_bit_of_the_header_is_refused() {
    let mut rng = Seed(1).child("ipv4", 3).rng();
    let mut bytes = [0; 20];
    Ipv4Header { payload_len: 0, ..sample(0, &mut rng) }.emit(&mut bytes);
    for bit in 0..160 {
        let mut flipped = bytes;
        flipped[bit / 8] ^= 0x80 >> (bit % 8);
        assert!(Ipv4Header::parse(&flipped).is_err(), "bit {bit}");
    }
}

#[test]
fn an_impossible_length_is_refused_even_with_a_valid_checksum() {
    let mut rng = Seed(1).child("ipv4", 4).rng();
    let mut bytes = [0; 30];
    Ipv4Header { payload_len: 10, ..sample(0, &mut rng) }.emit(&mut bytes);

    let mut short = bytes;
    short[2..4].copy_from_slice(&19u16.to_be_bytes());
    rewrite_checksum(&mut short[..20]);
    let too_small = ParseError::LengthTooSmall { min: 20, got: 19 };
    assert_eq!(Ipv4Header::parse(&short), Err(too_small));

    let mut long = bytes;
    long[2..4].copy_from_slice(&31u16.to_be_bytes());
    rewrite_checksum(&mut long[..20]);
    let truncated = ParseError::Truncated { needed: 31, got: 30 };
    assert_eq!(Ipv4Header::parse(&long), Err(truncated));

    let mut narrow = bytes;
    narrow[0] = 0x44;
    let too_small = ParseError::LengthTooSmall { min: 20, got: 16 };
    assert_eq!(Ipv4Header::parse(&narrow), Err(too_small));

    let mut wide = bytes;
    wide[0] = 0x4f;
    let truncated = ParseError::Truncated { needed: 60, got: 30 };
    assert_eq!(Ipv4Header::parse(&wide), Err(truncated));

    let wrong = ParseError::WrongIpVersion { expected: 4, got: 6 };
    bytes[0] = 0x65;
    assert_eq!(Ipv4Header::parse(&bytes), Err(wrong));
}

fn rewrite_checksum(header: &mut [u8]) {
    header[10..12].fill(0);
    let checksum = Checksum::new().with(header).finish();
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
}
