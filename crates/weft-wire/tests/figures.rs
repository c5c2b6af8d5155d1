//! Tests of every bit against BIFROST's figures C2 to C4. The positions below are copied from the
//! figures' column heads, independently of the tables in the crate: setting one field of a value must
//! set exactly the bits that the figure gives to the field.

use std::ops::RangeInclusive;

use weft_wire::spec::HEADERS;
use weft_wire::{
    AckHeader, AckType, Bitmap, DataHeader, NextHeader, SetupHeader, SetupKind, U3, U4, U5, U6, U11,
};

type Set<H> = fn(&mut H);
type Figure<H> = &'static [(&'static str, RangeInclusive<usize>, Set<H>)];

const FIGURE_C2: Figure<DataHeader> = &[
    ("Pkt Type", 0..=7, |_| {}),
    ("Version", 8..=11, |h| h.version = U4::MAX),
    ("CC Type", 12..=15, |h| h.cc_type = U4::MAX),
    ("se", 16..=16, |h| h.special = true),
    ("ack", 17..=17, |h| h.ack_now = true),
    ("dir", 18..=18, |h| h.from_acceptor = true),
    ("ece", 19..=19, |h| h.ece = true),
    ("ret", 20..=20, |h| h.retransmitted = true),
    ("Path ID", 21..=23, |h| h.path_id = U3::MAX),
    ("Reserved", 24..=31, |_| {}),
    ("Packet Sequence Number", 32..=63, |h| h.psn = u32::MAX),
    ("Destination CID", 64..=95, |h| h.destination_cid = u32::MAX),
    ("Timestamp Value", 96..=127, |h| h.timestamp = u32::MAX),
];

const FIGURE_C3: Figure<SetupHeader> = &[
    ("Pkt Type", 0..=7, |_| {}),
    ("Version", 8..=11, |h| h.version = U4::MAX),
    ("CC Type", 12..=15, |h| h.cc_type = U4::MAX),
    ("Thread ID", 16..=23, |h| h.thread_id = u8::MAX),
    ("Reserved", 24..=31, |h| h.reason = u8::MAX),
    ("Local CID", 32..=63, |h| h.local_cid = u32::MAX),
    ("Destination CID", 64..=95, |h| h.destination_cid = u32::MAX),
];

/// The fields of figure C4. Its second-to-last row has no column heads; the widths are those of the
/// text: 11, 11, 4, and the remaining 6.
const FIGURE_C4: Figure<AckHeader> = &[
    ("Pkt Type", 0..=7, |_| {}),
    ("Version", 8..=11, |h| h.version = U4::MAX),
    ("CC Type", 12..=15, |h| h.cc_type = U4::MAX),
    ("se", 16..=16, |h| h.special = true),
    ("Path ID", 17..=19, |h| h.path_id = U3::MAX),
    ("Hop Count", 20..=23, |h| h.hop_count = U4::MAX),
    ("ACK Value", 24..=28, |h| h.block = U5::MAX),
    ("ACK Type", 29..=31, |h| h.ack_type = AckType::Other(U3::MAX)),
    ("Packet Sequence Number", 32..=63, |h| h.psn = u32::MAX),
    ("Destination CID", 64..=95, |h| h.destination_cid = u32::MAX),
    ("Timestamp Value", 96..=127, |h| h.timestamp = u32::MAX),
    ("Timestamp Echo", 128..=159, |h| h.timestamp_echo = u32::MAX),
    ("Timestamp NIC RX", 160..=191, |h| h.timestamp_nic_rx = u32::MAX),
    ("Num_ACK", 192..=202, |h| h.num_ack = U11::MAX),
    ("Num_ece", 203..=213, |h| h.num_ece = U11::MAX),
    ("PSN_bitmap_len", 214..=217, |_| {}),
    ("Reserved", 218..=223, |h| h.reserved = U6::MAX),
    ("PSN_base", 224..=255, |h| h.psn_base = u32::MAX),
];

/// Returns the bits that differ between two emitted headers, numbered as in the figures.
fn changed_bits(before: &[u8], after: &[u8]) -> Vec<usize> {
    assert_eq!(before.len(), after.len());
    (0..before.len() * 8)
        .filter(|bit| (before[bit / 8] ^ after[bit / 8]) << (bit % 8) & 0x80 != 0)
        .collect()
}

/// Checks that each field of the figure changes exactly its bits; `untouched` lists fields without a setter.
fn assert_figure<H: Copy, const LEN: usize>(
    figure: Figure<H>,
    zero: H,
    emit: fn(&H, &mut [u8]),
    untouched: &[&str],
) {
    let bytes_of = |header: &H| {
        let mut bytes = [0; LEN];
        emit(header, &mut bytes);
        bytes
    };
    for (name, bits, set) in figure {
        let mut header = zero;
        set(&mut header);
        let changed = changed_bits(&bytes_of(&zero), &bytes_of(&header));
        if untouched.contains(name) {
            assert!(changed.is_empty(), "{name} has no setter");
        } else {
            assert_eq!(changed, bits.clone().collect::<Vec<_>>(), "{name}");
        }
    }
}

/// Checks that the crate's table, from which the reference page is generated, has the figure's fields.
fn assert_table<H>(figure: Figure<H>, name: &str) {
    let header = HEADERS.iter().find(|header| header.name == name).expect("a header's name");
    let table: Vec<_> = header
        .fields
        .iter()
        .map(|field| (field.name, field.first_bit..=field.first_bit + field.width - 1))
        .collect();
    let figure: Vec<_> = figure.iter().map(|(name, bits, _)| (*name, bits.clone())).collect();
    assert_eq!(table, figure);
}

#[test]
fn data_packets_are_figure_c2() {
    let zero = DataHeader::default();
    assert_figure::<_, 16>(FIGURE_C2, zero, DataHeader::emit, &["Pkt Type", "Reserved"]);
    assert_table(FIGURE_C2, "Data packet");
    let (mut frame, mut message) = ([0; 16], [0; 16]);
    zero.emit(&mut frame);
    DataHeader { next: NextHeader::Message, ..zero }.emit(&mut message);
    assert_eq!(changed_bits(&frame, &message), [31], "the reserved byte is 1");
    assert_eq!(frame, [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn setup_packets_are_figure_c3() {
    let zero = SetupHeader {
        kind: SetupKind::Close,
        version: U4::default(),
        cc_type: U4::default(),
        thread_id: 0,
        reason: 0,
        local_cid: 0,
        destination_cid: 0,
        terms: None,
    };
    assert_figure::<_, 12>(FIGURE_C3, zero, SetupHeader::emit, &["Pkt Type"]);
    assert_table(FIGURE_C3, "Connection set-up packet");
}

#[test]
fn acks_are_figure_c4() {
    let zero = AckHeader::default();
    assert_figure::<_, 32>(FIGURE_C4, zero, AckHeader::emit, &["Pkt Type", "PSN_bitmap_len"]);
    assert_table(FIGURE_C4, "ACK packet");
    for words in 0..=8 {
        let header = AckHeader { bitmap: Bitmap::from_words(&vec![0; words]), ..zero };
        let (mut empty, mut longer) = ([0; 64], [0; 64]);
        zero.emit(&mut empty);
        header.emit(&mut longer);
        let length = (214..=217).filter(|bit| words >> (217 - bit) & 1 == 1);
        assert_eq!(changed_bits(&empty, &longer), length.collect::<Vec<_>>());
        assert_eq!(header.header_len(), 32 + 4 * words);
    }
}

#[test]
fn the_bitmap_follows_word_after_word() {
    for index in 0..256u32 {
        let mut bitmap = Bitmap::from_words(&[0; 8]);
        let (mut empty, mut set) = ([0; 64], [0; 64]);
        AckHeader { bitmap, ..AckHeader::default() }.emit(&mut empty);
        bitmap.set(index);
        AckHeader { bitmap, ..AckHeader::default() }.emit(&mut set);
        assert_eq!(changed_bits(&empty, &set), [256 + index as usize]);
    }
}
