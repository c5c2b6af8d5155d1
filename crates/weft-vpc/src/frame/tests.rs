use super::*;
use crate::example::{ALICE, BOB, ethernet, icmp, packet, parsed, syn, tcp, udp, v4, v4_packet};

fn refused(bytes: &[u8]) -> FrameError {
    Frame::parse(bytes, bytes.len()).unwrap_err()
}

fn transport(bytes: &[u8]) -> Transport {
    parsed(bytes).ip().unwrap().transport
}

/// Returns an extension header of eight bytes before `payload`. `next` is its next header, `kind` its third byte, the
/// type of a routing header.
fn extension(next: u8, kind: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![next, 0, kind, 0, 0, 0, 0, 0];
    bytes.extend_from_slice(payload);
    bytes
}

#[test]
fn a_syn_of_either_version_is_understood() {
    for (bytes, transport_offset) in syn().into_iter().zip([34, 54]) {
        let frame = parsed(&bytes);
        assert_eq!((frame.source, frame.destination, frame.vlan), (ALICE, BOB, None));
        assert_eq!((frame.network_offset, frame.len as usize), (14, bytes.len()));
        let ip = frame.ip().unwrap();
        assert_eq!((ip.protocol, ip.fragment), (protocol::TCP, None));
        assert_eq!((ip.transport_offset, ip.transport_len), (transport_offset, 20));
        let expected = Tcp {
            source: 40_000,
            destination: 80,
            sequence: 1000,
            acknowledgement: 2000,
            flags: TcpFlags::SYN,
            header_len: 20,
        };
        assert_eq!(ip.transport, Transport::Tcp(expected));
    }
}

#[test]
fn tags_are_skipped_and_the_outer_id_is_kept() {
    let [v4, _] = syn();
    let tagged = |tags: &[[u8; 4]]| [&v4[..12], &tags.concat(), &v4[12..]].concat();
    let one = parsed(&tagged(&[[0x81, 0, 0xe0, 42]]));
    assert_eq!((one.vlan, one.network_offset), (Some(42), 18));
    let two = parsed(&tagged(&[[0x88, 0xa8, 0, 7], [0x81, 0, 0, 42]]));
    assert_eq!((two.vlan, two.ethertype, two.network_offset), (Some(7), EtherType::IPV4, 22));
    assert_eq!(two.ip().unwrap().transport_offset, 42);
    let three = parsed(&tagged(&[[0x81, 0, 0, 1]; 3]));
    assert_eq!((three.ethertype, three.network), (EtherType::VLAN, Network::Other));
}

#[test]
fn arp_for_ipv4_over_ethernet_is_understood_and_other_arp_is_not() {
    let mut arp = vec![0, 1, 8, 0, 6, 4, 0, 1];
    arp.extend([2, 0, 0, 0, 0, 0xa, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2]);
    let expected = Arp {
        operation: 1,
        sender_mac: ALICE,
        sender: Ipv4Addr::new(10, 0, 0, 1),
        target_mac: MacAddr::default(),
        target: Ipv4Addr::new(10, 0, 0, 2),
    };
    assert_eq!(parsed(&ethernet(EtherType::ARP, &arp)).network, Network::Arp(expected));
    let short = refused(&ethernet(EtherType::ARP, &arp[..27]));
    assert_eq!(short, FrameError::Truncated { needed: 42, got: 41 });
    arp[1] = 6;
    assert_eq!(parsed(&ethernet(EtherType::ARP, &arp)).network, Network::Other);
}

#[test]
fn options_and_padding_move_and_end_the_transport() {
    let segment = udp(5000, 53, b"query");
    let ends = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
    let mut header = v4(ends.0, ends.1, protocol::UDP, segment.len());
    header.options = weft_wire::Ipv4Options::new(&[0x94, 4, 0, 0]).unwrap();
    let mut bytes = ethernet(EtherType::IPV4, &v4_packet(header, &segment));
    bytes.resize(60, 0);
    let ip = *parsed(&bytes).ip().unwrap();
    assert_eq!((ip.transport_offset, ip.transport_len), (38, 13));
    assert_eq!(ip.transport, Transport::Udp(Udp { source: 5000, destination: 53, len: 13 }));
}

#[test]
fn a_long_frame_is_parsed_from_its_first_bytes() {
    let segment = tcp((1, 2), TcpFlags::ACK, &[], &[0; 60_000]);
    for bytes in [
        packet("10.0.0.1", "10.0.0.2", protocol::TCP, &segment),
        packet("2001:db8::1", "2001:db8::2", protocol::TCP, &segment),
    ] {
        let first = Frame::parse(&bytes[..Frame::MIN_PARSE_BYTES], bytes.len()).unwrap();
        assert_eq!(first, parsed(&bytes));
        assert_eq!(first.ip().unwrap().transport_len, 60_020);
    }
}

#[test]
fn every_length_that_reaches_too_far_is_refused() {
    let [v4, v6] = syn();
    // IPv4 total length: one more than available, and less than its header.
    for (len, min) in [(41_u8, 20), (19, 20)] {
        let mut bytes = v4.clone();
        bytes[17] = len;
        let wrong = FrameError::WrongLength {
            field: "IPv4 total length",
            got: usize::from(len),
            min,
            max: 40,
        };
        assert_eq!(refused(&bytes), wrong);
    }
    // IPv4 header length.
    for (ihl, reason) in [(4, "wrong_length"), (15, "wrong_length"), (10, "truncated")] {
        let mut bytes = v4.clone();
        bytes[14] = 0x40 | ihl;
        assert_eq!(refused(&bytes).reason(), reason, "{ihl}");
    }
    // IPv6 payload length.
    let mut bytes = v6.clone();
    bytes[19] = 21;
    assert_eq!(refused(&bytes).reason(), "wrong_length");
    // TCP data offset.
    for words in [0_u8, 4, 6, 15] {
        let mut bytes = v4.clone();
        bytes[46] = words << 4;
        let wrong = FrameError::WrongLength {
            field: "TCP data offset",
            got: 4 * usize::from(words),
            min: 20,
            max: 20,
        };
        assert_eq!(refused(&bytes), wrong);
    }
    // UDP length.
    for len in [7, 10] {
        let mut bytes = packet("10.0.0.1", "10.0.0.2", protocol::UDP, &udp(1, 2, &[0]));
        bytes[39] = len;
        assert_eq!(refused(&bytes).reason(), "wrong_length");
    }
    // Every truncation of a frame.
    for bytes in [v4, v6] {
        for len in 0..bytes.len() {
            assert!(Frame::parse(&bytes[..len], bytes.len()).is_err(), "{len}");
            assert!(Frame::parse(&bytes[..len], len).is_err(), "{len}");
        }
        assert_eq!(Frame::parse(&bytes, 20).unwrap_err().reason(), "longer_than_frame");
    }
}

#[test]
fn fragments_are_distinguished_from_whole_packets() {
    let datagram = udp(5000, 53, &[0; 64]);
    let ends = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
    let fragment_of = |range: core::ops::Range<usize>| {
        let payload = &datagram[range.clone()];
        let mut header = v4(ends.0, ends.1, protocol::UDP, payload.len());
        header.dont_fragment = false;
        header.more_fragments = range.end < datagram.len();
        header.fragment_offset =
            weft_wire::U13::new(u16::try_from(range.start / 8).unwrap()).unwrap();
        ethernet(EtherType::IPV4, &v4_packet(header, payload))
    };
    let first = *parsed(&fragment_of(0..40)).ip().unwrap();
    assert_eq!(first.fragment, Some(Fragment { identification: 0xfffe, offset: 0, more: true }));
    assert_eq!(first.transport, Transport::Udp(Udp { source: 5000, destination: 53, len: 72 }));
    let later = *parsed(&fragment_of(40..72)).ip().unwrap();
    assert_eq!(later.fragment, Some(Fragment { identification: 0xfffe, offset: 40, more: false }));
    assert_eq!(later.transport, Transport::LaterFragment);
    assert_eq!(parsed(&fragment_of(0..72)).ip().unwrap().fragment, None);
}

#[test]
fn fragments_that_hide_or_overwrite_a_header_are_refused() {
    // RFC 3128: the first fragment ends within the TCP header, the second brings its flags.
    let segment = tcp((40_000, 80), TcpFlags::SYN, &[], &[]);
    let ends = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
    let mut header = v4(ends.0, ends.1, protocol::TCP, 8);
    header.more_fragments = true;
    let first = ethernet(EtherType::IPV4, &v4_packet(header, &segment[..8]));
    assert_eq!(refused(&first), FrameError::TinyFragment { offset: 0 });
    for units in [1_u8, 2] {
        let mut header = v4(ends.0, ends.1, protocol::TCP, 12);
        header.fragment_offset = weft_wire::U13::truncate(units.into());
        let later = ethernet(EtherType::IPV4, &v4_packet(header, &segment[8..]));
        assert_eq!(refused(&later), FrameError::TinyFragment { offset: 8 * u16::from(units) });
    }
}

#[test]
fn extension_headers_lead_to_the_transport() {
    let v6 = |next, payload: &[u8]| packet("2001:db8::1", "2001:db8::2", next, payload);
    let echo = icmp(128, 0, 77, &[]);
    let expected = Transport::Icmp(Icmp { kind: 128, code: 0, identifier: 77 });
    // Hop-by-hop, destination options, authentication of 12 bytes.
    let authentication = [&[58, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0][..], &echo].concat();
    let chain = extension(60, 0, &extension(51, 0, &authentication));
    let ip = *parsed(&v6(0, &chain)).ip().unwrap();
    assert_eq!((ip.protocol, ip.transport), (protocol::ICMPV6, expected));
    assert_eq!((ip.transport_offset, ip.transport_len), (54 + 28, 8));
    // A fragment that is the whole packet (RFC 6946), a first fragment and a later one.
    for (offset_more, fragment, transport) in [
        (0, None, expected),
        (1, Some(Fragment { identification: 9, offset: 0, more: true }), expected),
        (
            16,
            Some(Fragment { identification: 9, offset: 16, more: false }),
            Transport::LaterFragment,
        ),
    ] {
        let header = [&[58, 0, 0, offset_more, 0, 0, 0, 9][..], &echo].concat();
        let ip = *parsed(&v6(44, &header)).ip().unwrap();
        assert_eq!((ip.fragment, ip.transport), (fragment, transport));
    }
    // No header follows; a segment-routing header is accepted, a source route is not.
    assert_eq!(transport(&v6(59, &[])), Transport::Other);
    let mut routing = extension(58, 4, &echo);
    routing[3] = 1;
    assert_eq!(transport(&v6(43, &routing)), expected);
    routing[2] = 0;
    assert_eq!(refused(&v6(43, &routing)), FrameError::SourceRoute);
}

#[test]
fn a_chain_of_extension_headers_is_bounded() {
    let chain = |count: usize| {
        let mut payload = udp(1, 2, &[]);
        for index in 0..count {
            payload = extension(if index == 0 { protocol::UDP } else { 60 }, 0, &payload);
        }
        packet("2001:db8::1", "2001:db8::2", 60, &payload)
    };
    let datagram = Transport::Udp(Udp { source: 1, destination: 2, len: 8 });
    assert_eq!(transport(&chain(Ip::MAX_EXTENSIONS)), datagram);
    assert_eq!(refused(&chain(Ip::MAX_EXTENSIONS + 1)), FrameError::TooManyExtensions);
    // An extension header whose length leads past the packet.
    let mut payload = extension(protocol::UDP, 0, &udp(1, 2, &[]));
    payload[1] = 200;
    let past = refused(&packet("2001:db8::1", "2001:db8::2", 60, &payload));
    assert_eq!(past.reason(), "truncated");
}

#[test]
fn group_sources_and_wrong_ip_versions_are_refused() {
    let [mut v4, _] = syn();
    v4[14] = 0x65;
    assert_eq!(refused(&v4), FrameError::WrongIpVersion { expected: 4, got: 6 });
    v4[6] |= 1;
    assert_eq!(refused(&v4).reason(), "group_source");
}

#[test]
fn the_header_of_virtio_comes_first() {
    let [v4, _] = syn();
    let mut bytes = vec![0; VirtioNetHeader::LEN];
    let header = VirtioNetHeader { needs_csum: true, csum_start: 34, ..Default::default() };
    header.emit(&mut bytes);
    bytes.extend_from_slice(&v4);
    assert_eq!(Frame::parse_virtio(&bytes, bytes.len()), Ok((header, parsed(&v4))));
    assert_eq!(Frame::parse_virtio(&bytes[..11], 11).unwrap_err().reason(), "truncated");
    assert_eq!(Frame::parse_virtio(&bytes, 11).unwrap_err().reason(), "longer_than_frame");
}
