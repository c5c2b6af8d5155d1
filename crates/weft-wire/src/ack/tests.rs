use weft_units::{Rng, Seed};

use super::*;

impl AckHeader {
    /// Returns a header with the first row's fields from `bits` and the others at random.
    pub(crate) fn sample(bits: u32, rng: &mut Rng) -> Self {
        let words: Vec<u32> = (0..rng.below(9)).map(|_| rng.next_u32()).collect();
        Self {
            version: U4::truncate(bits),
            cc_type: U4::truncate(bits >> 4),
            special: bits >> 8 & 1 != 0,
            path_id: U3::truncate(bits >> 9),
            hop_count: U4::truncate(bits >> 12),
            block: U5::truncate(bits >> 16),
            ack_type: AckType::from_number(U3::truncate(bits >> 21)),
            psn: rng.next_u32(),
            destination_cid: rng.next_u32(),
            timestamp: rng.next_u32(),
            timestamp_echo: rng.next_u32(),
            timestamp_nic_rx: rng.next_u32(),
            num_ack: U11::truncate(rng.next_u32()),
            num_ece: U11::truncate(rng.next_u32()),
            reserved: U6::truncate(rng.next_u32()),
            psn_base: rng.next_u32(),
            bitmap: Bitmap::from_words(&words),
        }
    }
}

fn assert_comes_back(header: AckHeader) {
    let mut bytes = [0xff; AckHeader::MAX_LEN];
    header.emit(&mut bytes);
    let (parsed, rest) = AckHeader::parse(&bytes[..header.header_len()]).expect("just emitted");
    assert_eq!(parsed, header);
    assert!(rest.is_empty());
}

#[test]
fn every_first_row_comes_back_as_it_went() {
    let base = AckHeader::sample(0, &mut Seed(1).child("ack header", 0).rng());
    for bits in 0u32..1 << 24 {
        assert_comes_back(AckHeader {
            version: U4::truncate(bits),
            cc_type: U4::truncate(bits >> 4),
            special: bits >> 8 & 1 != 0,
            path_id: U3::truncate(bits >> 9),
            hop_count: U4::truncate(bits >> 12),
            block: U5::truncate(bits >> 16),
            ack_type: AckType::from_number(U3::truncate(bits >> 21)),
            ..base
        });
    }
}

#[test]
fn every_count_and_every_reserved_value_comes_back_as_it_went() {
    for bits in 0u32..1 << 22 {
        assert_comes_back(AckHeader {
            num_ack: U11::truncate(bits),
            num_ece: U11::truncate(bits >> 11),
            reserved: U6::truncate(bits ^ bits >> 16),
            ..AckHeader::default()
        });
    }
}

#[test]
fn every_bitmap_length_comes_back_as_it_went() {
    let mut rng = Seed(1).child("ack header", 1).rng();
    for bits in 0..1 << 16 {
        assert_comes_back(AckHeader::sample(bits, &mut rng));
    }
}

#[test]
fn a_bitmap_of_more_than_eight_words_is_refused() {
    let mut bytes = [0; 128];
    AckHeader::default().emit(&mut bytes);
    for words in 9..=15 {
        let row = u32::from(words) << 6;
        bytes[24..28].copy_from_slice(&row.to_be_bytes());
        assert_eq!(AckHeader::parse(&bytes), Err(ParseError::BitmapTooLong { words }));
    }
}

#[test]
fn a_truncated_bitmap_is_refused_with_its_numbers() {
    let header = AckHeader { bitmap: Bitmap::from_words(&[1, 2, 3]), ..AckHeader::default() };
    let mut bytes = [0; AckHeader::MAX_LEN];
    header.emit(&mut bytes);
    for got in 32..44 {
        let truncated = ParseError::Truncated { needed: 44, got };
        assert_eq!(AckHeader::parse(&bytes[..got]), Err(truncated));
    }
    for got in 0..32 {
        let truncated = ParseError::Truncated { needed: 32, got };
        assert_eq!(AckHeader::parse(&bytes[..got]), Err(truncated));
    }
}

#[test]
fn the_bit_of_a_packet_has_the_position_of_the_paper() {
    // BIFROST's ACK(3|0100): the base is 3, and of 3, 4, 5, 6 only 4 was received.
    let mut bitmap = Bitmap::default();
    bitmap.set(1);
    assert_eq!(bitmap.words(), [0b0100 << 28]);
    bitmap.set(255);
    assert_eq!(bitmap.words(), [0b0100 << 28, 0, 0, 0, 0, 0, 0, 1]);
    assert!(bitmap.contains(1) && bitmap.contains(255) && !bitmap.contains(254));
    assert!(!bitmap.contains(256) && !bitmap.contains(u32::MAX));
}

#[test]
fn the_set_bits_are_listed_lowest_first() {
    let mut rng = Seed(1).child("bitmap", 0).rng();
    for _ in 0..1000 {
        let mut want: Vec<u32> = (0..BITMAP_PACKETS).filter(|_| rng.chance(1, 3)).collect();
        let mut bitmap = Bitmap::default();
        rng.shuffle(&mut want);
        want.iter().for_each(|&index| bitmap.set(index));
        want.sort_unstable();
        assert_eq!(bitmap.iter().collect::<Vec<_>>(), want);
    }
}
