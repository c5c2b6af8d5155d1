use super::*;
use crate::{DataHeader, MessageHeader, Packet};

/// The headers of a packet of 1,000 bytes of payload, DSCP 11 and ECT(0), from 10.1.0.2 port 50000 to 10.2.0.2 port 4791:
/// IPv4 with the length of the whole packet (1,060 bytes) and a checksum that no longer matches, UDP (1,040 bytes), data
/// header (packet 7 of connection 0xabcd), message header (byte 3,000 of 9,000).
const HEADERS: [u8; 60] = [
    0x45, 0x2e, 0x04, 0x24, 0x00, 0x00, 0x40, 0x00, 0x3e, 0x11, 0x12, 0x34, 10, 1, 0, 2, //
    10, 2, 0, 2, 0xc3, 0x50, 0x12, 0xb7, 0x04, 0x10, 0xbe, 0xef, 0x01, 0x00, 0x00, 0x01, //
    0x00, 0x00, 0x00, 0x07, 0x00, 0x00, 0xab, 0xcd, 0x00, 0x00, 0x30, 0x39, 0x01, 0x00, 0x00,
    0x00, //
    0x00, 0x00, 0x00, 0x09, 0x00, 0x00, 0x0b, 0xb8, 0x00, 0x00, 0x23, 0x28,
];

/// Returns an IP packet cut to `len` bytes, with these lengths in its headers.
fn cut(ip_len: u16, udp_len: u16, len: usize) -> Vec<u8> {
    let mut packet = HEADERS.to_vec();
    packet.resize(1_060, 0x5a);
    packet[2..4].copy_from_slice(&ip_len.to_be_bytes());
    packet[24..26].copy_from_slice(&udp_len.to_be_bytes());
    packet.truncate(len);
    packet
}

fn parse(packet: &[u8]) -> CutDatagram<'_> {
    CutDatagram::parse(packet).unwrap().expect("it is UDP")
}

/// Asserts that the rest of the packet has a whole data header.
fn names_the_packet(bytes: &[u8]) {
    let (packet, _) = Packet::parse(bytes).unwrap();
    let header =
        DataHeader { psn: 7, destination_cid: 0xabcd, timestamp: 12_345, ..DataHeader::default() };
    let message = MessageHeader { opcode: 1, tag: 0, id: 9, offset: 3_000, length: 9_000 };
    assert_eq!(packet, Packet::data(header, Some(message)));
}

#[test]
fn a_packet_of_spectrum_switches_has_the_lengths_of_the_whole_one() {
    // 256 bytes with the Ethernet header, the least that these switches cut to.
    let packet = cut(1_060, 1_040, 242);
    assert!(Ipv4Header::parse(&packet).is_err(), "the strict parser refuses it");
    let it = parse(&packet);
    assert_eq!((it.dscp.get(), it.missing, it.bytes.len()), (11, 1_060 - 242, 214));
    assert_eq!((it.source, it.source_port), (Ipv4Addr::new(10, 1, 0, 2).into(), 50_000));
    assert_eq!((it.destination, it.destination_port), (Ipv4Addr::new(10, 2, 0, 2).into(), 4791));
    names_the_packet(it.bytes);
}

#[test]
fn a_new_length_in_the_ip_header_alone_leaves_the_cut_in_the_udp_header() {
    // 64 bytes with Ethernet's header, padding up to the shortest frame: 50 bytes of the packet hold the data header.
    let packet = cut(50, 1_040, 50);
    let it = parse(&packet);
    assert_eq!((it.missing, it.bytes.len()), (1_010, 22));
    let (header, _) = DataHeader::parse(it.bytes).unwrap();
    assert_eq!((header.psn, header.destination_cid), (7, 0xabcd));
    let padded = [&packet[..], &[0; 10]].concat();
    assert_eq!(parse(&padded), it, "padding is no payload");
}

#[test]
fn new_lengths_in_both_headers_leave_the_dscp_alone() {
    let packet = cut(114, 94, 114);
    let it = parse(&packet);
    assert_eq!((it.dscp.get(), it.missing, it.bytes.len()), (11, 0, 86));
    names_the_packet(it.bytes);
}

#[test]
fn a_whole_packet_misses_nothing() {
    let packet = cut(1_060, 1_040, 1_060);
    assert_eq!((parse(&packet).missing, parse(&packet).bytes.len()), (0, 1_032));
}

#[test]
fn ipv6_is_read_too() {
    let mut packet = vec![0x62, 0xe0, 0, 0, 0x04, 0x10, 17, 62];
    packet.extend(Ipv6Addr::LOCALHOST.octets());
    packet.extend(Ipv6Addr::UNSPECIFIED.octets());
    packet.extend(&cut(0, 1_040, 128)[20..]);
    let it = parse(&packet);
    assert_eq!((it.dscp.get(), it.missing), (11, 1_040 - 108));
    assert_eq!(it.source, IpAddr::from(Ipv6Addr::LOCALHOST));
    names_the_packet(it.bytes);
}

#[test]
fn every_cut_is_an_error_or_a_part_of_the_datagram() {
    let whole = cut(1_060, 1_040, 1_060);
    for len in 0..whole.len() {
        match CutDatagram::parse(&whole[..len]) {
            Err(ParseError::Truncated { needed, got }) => {
                assert!(got == len && len < needed && needed <= 28)
            }
            Ok(Some(it)) => {
                assert_eq!((it.bytes.len(), usize::from(it.missing)), (len - 28, 1_060 - len))
            }
            other => panic!("{len}: {other:?}"),
        }
    }
    let mut tcp = whole.clone();
    tcp[9] = 6;
    let mut fragment = whole.clone();
    fragment[7] = 3;
    for packet in [tcp, fragment] {
        assert_eq!(CutDatagram::parse(&packet), Ok(None));
    }
}
