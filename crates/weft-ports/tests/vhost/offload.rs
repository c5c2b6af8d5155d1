//! Tests of guests that need frames segmented and with complete checksums (virtio 1.2, 5.1.6.4).

use weft_ports::Port;
use weft_vpc::Frame;
use weft_vpc::offload::verify;
use weft_vpc::{Staging, Turn};

use crate::common::front_end::{USUAL, bit};
use crate::common::network::noise;
use crate::tenant;

/// The features that a guest without offloads accepts.
const PLAIN: u64 = USUAL & !(bit::GUEST_CSUM | bit::GUEST_TSO4 | bit::GUEST_TSO6 | bit::GUEST_ECN);

/// Returns a TCP packet whose checksum the sender left to its device, and whose segments have `segment` bytes; 0 means
/// no segmentation.
fn tcp(payload: &[u8], segment: u16) -> Vec<u8> {
    let len = u16::try_from(40 + payload.len()).unwrap();
    let mut ip = vec![0x45, 0, 0, 0, 0, 7, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    ip[2..4].copy_from_slice(&len.to_be_bytes());
    let header_sum = !sum(&ip);
    ip[10..12].copy_from_slice(&header_sum.to_be_bytes());
    let pseudo = [&ip[12..20], &[0, 6], &(len - 20).to_be_bytes()].concat();
    let mut tcp =
        vec![0x9c, 0x40, 0, 80, 0, 0, 0x10, 0, 0, 0, 0x20, 0, 0x50, 0x18, 0xff, 0xff, 0, 0, 0, 0];
    tcp[16..18].copy_from_slice(&sum(&pseudo).to_be_bytes());
    let gso_type = u8::from(segment > 0);
    let mut virtio = vec![1, gso_type, 54, 0];
    virtio.extend([segment, 34, 16, 0].map(u16::to_le_bytes).concat());
    let ethernet = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    [&virtio, &ethernet[..], &ip, &tcp, payload].concat()
}

/// Returns the ones' complement sum of 16-bit words (RFC 1071).
fn sum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
    let total: u32 = words.sum();
    let folded = (total & 0xffff) + (total >> 16);
    u16::try_from((folded & 0xffff) + (folded >> 16)).unwrap()
}

/// Returns the frame that a guest receives, and the port's counters.
fn received(
    name: &str,
    features: u64,
    len: u32,
    frame: &[u8],
) -> (Vec<Vec<u8>>, weft_ports::PortCounters) {
    let mut b = tenant(name, 64, features, len);
    let slot = b
        .port
        .claim(u32::try_from(frame.len()).unwrap(), Turn::OutOfOrder, Staging::InPlace, &[])
        .unwrap();
    for (at, piece) in frame.chunks(1_400).enumerate() {
        b.port.place(slot, u32::try_from(at * 1_400).unwrap(), piece).unwrap();
    }
    b.port.complete(slot);
    b.port.flush().unwrap();
    b.guest.receive();
    (b.guest.received, b.port.counters())
}

#[test]
fn a_super_frame_is_cut_for_a_guest_that_takes_none() {
    let payload = noise(20_500);
    let (frames, counters) = received("cut", PLAIN, 2_048, &tcp(&payload, 1_000));
    assert_eq!((frames.len(), counters.segmented), (21, 1));
    let mut carried: Vec<u8> = vec![];
    for frame in &frames {
        assert_eq!(frame[..12], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
        let bytes = &frame[12..];
        verify(bytes, &Frame::parse(bytes, bytes.len()).unwrap()).unwrap();
        carried.extend(&bytes[54..]);
    }
    assert!(carried == payload);
}

#[test]
fn a_super_frame_stays_whole_for_a_guest_that_takes_it() {
    let frame = tcp(&noise(20_500), 1_000);
    let (frames, counters) = received("whole", USUAL, 2_048, &frame);
    assert_eq!((frames.len(), counters.segmented), (1, 0));
    assert!(frames[0][12..] == frame[12..]);
    assert_eq!(frames[0][..10], frame[..10]);
    // A guest without UDP super-frames still receives TCP's: the port distinguishes them per frame.
    assert_eq!(u16::from_le_bytes([frames[0][10], frames[0][11]]), 11);
}

#[test]
fn a_checksum_is_completed_for_a_guest_that_does_not() {
    let frame = tcp(b"payload", 0);
    let (frames, _) = received("checksum", PLAIN, 2_048, &frame);
    let bytes = &frames[0][12..];
    verify(bytes, &Frame::parse(bytes, bytes.len()).unwrap()).unwrap();
    let (frames, _) = received("no-checksum", USUAL, 2_048, &frame);
    assert!(frames[0][12..] == frame[12..]);
}

#[test]
fn a_header_that_does_not_fit_its_frame_is_not_shown() {
    let fits = tcp(b"payload", 0);
    let corruptions: [(usize, u8); 4] = [(6, 200), (8, 250), (1, 5), (1, 77)];
    for (at, value) in corruptions {
        for (name, features) in [("misfit-a", USUAL), ("misfit-b", PLAIN)] {
            let mut frame = fits.clone();
            frame[at] = value;
            let (frames, counters) = received(name, features, 2_048, &frame);
            assert_eq!((frames.len(), counters.bad_header), (0, 1), "byte {at} is {value}");
        }
    }
}

#[test]
fn a_frame_that_no_buffer_of_the_guest_holds_is_lost_and_delays_no_other() {
    let features = USUAL & !bit::MRG_RXBUF;
    let mut b = tenant("too-large", 64, features, 2_048);
    for len in [9_000, 1_000] {
        let frame = tcp(&noise(len), 1_000);
        let slot = b
            .port
            .claim(u32::try_from(frame.len()).unwrap(), Turn::OutOfOrder, Staging::InPlace, &[])
            .unwrap();
        b.port.place(slot, 0, &frame).unwrap();
        b.port.complete(slot);
    }
    b.port.flush().unwrap();
    b.guest.receive();
    assert_eq!((b.guest.received.len(), b.port.counters().lost), (1, 1));
    assert_eq!(b.port.holdings().claimed_memory, 0);
}
