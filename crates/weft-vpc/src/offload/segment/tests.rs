use weft_units::{Rng, Seed};
use weft_wire::VirtioNetHeader;

use super::*;
use crate::example::{packet, parsed, tcp_numbered, udp};
use crate::offload::{fill, verify};
use crate::{Offload, Transport, protocol};

/// Cuts a frame into segments of `size` bytes of payload.
fn cut(bytes: &[u8], kind: GsoType, size: u16) -> Vec<Vec<u8>> {
    let frame = parsed(bytes);
    let start = frame.ip().unwrap().transport_offset;
    let header = VirtioNetHeader {
        needs_csum: true,
        gso_type: kind,
        gso_size: size,
        csum_start: start,
        csum_offset: if kind == GsoType::Udp { 6 } else { 16 },
        ..VirtioNetHeader::default()
    };
    let segmentation = Offload::check(&header, &frame).unwrap().segmentation.unwrap();
    let mut segments = Segments::new(bytes, &frame, segmentation);
    let mut out = vec![0xa5; segments.longest()];
    let mut frames = Vec::new();
    while let Some(len) = segments.write_next(&mut out) {
        frames.push(out[..len].to_vec());
    }
    assert_eq!(frames.len(), segmentation.count());
    frames
}

fn tcp_of(bytes: &[u8]) -> crate::Tcp {
    match parsed(bytes).ip().unwrap().transport {
        Transport::Tcp(tcp) => tcp,
        other => panic!("{other:?}"),
    }
}

fn random_bytes(len: usize, rng: &mut Rng) -> Vec<u8> {
    (0..len).map(|_| rng.next_u64().to_le_bytes()[7]).collect()
}

#[test]
fn flags_and_numbers_go_where_they_belong() {
    let all = TcpFlags(0xf9);
    let segment = tcp_numbered((40_000, 80), all, (u32::MAX - 9, 7), &[1; 12], &[0; 25]);
    for (ends, kind) in [
        (("10.0.0.1", "10.0.0.2"), GsoType::TcpV4),
        (("2001:db8::1", "2001:db8::2"), GsoType::TcpV6),
    ] {
        let frames = cut(&packet(ends.0, ends.1, protocol::TCP, &segment), kind, 10);
        let tcp: Vec<_> = frames.iter().map(|frame| tcp_of(frame)).collect();
        let sequences: Vec<_> = tcp.iter().map(|tcp| tcp.sequence).collect();
        assert_eq!(sequences, [u32::MAX - 9, 0, 10], "modulo 2^32");
        let flags: Vec<_> = tcp.iter().map(|tcp| tcp.flags).collect();
        let fin_psh = TcpFlags::FIN.with(TcpFlags::PSH);
        let cwr = TcpFlags::CWR;
        assert_eq!(
            flags,
            [all.without(fin_psh), all.without(fin_psh).without(cwr), all.without(cwr)]
        );
        assert!(tcp.iter().all(|tcp| tcp.acknowledgement == 7 && tcp.header_len == 32));
        if kind == GsoType::TcpV4 {
            let ids: Vec<_> = frames.iter().map(|frame| [frame[18], frame[19]]).collect();
            assert_eq!(ids, [[0xff, 0xfe], [0xff, 0xff], [0, 0]], "modulo 2^16");
        }
    }
}

#[test]
fn one_segment_keeps_all_its_flags() {
    let segment = tcp_numbered((1, 2), TcpFlags(0xf9), (1, 2), &[], &[0; 10]);
    for size in [10, 11, 1000] {
        let frames =
            cut(&packet("10.0.0.1", "10.0.0.2", protocol::TCP, &segment), GsoType::TcpV4, size);
        assert_eq!(frames.len(), 1);
        assert_eq!(tcp_of(&frames[0]).flags, TcpFlags(0xf9));
    }
}

#[test]
fn headers_alone_are_the_headers_of_the_whole() {
    let segment = tcp_numbered((1, 2), TcpFlags::ACK, (1, 2), &[], &(0..100).collect::<Vec<u8>>());
    let bytes = packet("10.0.0.1", "10.0.0.2", protocol::TCP, &segment);
    let whole = cut(&bytes, GsoType::TcpV4, 30);
    let frame = parsed(&bytes);
    let header = VirtioNetHeader {
        needs_csum: true,
        gso_type: GsoType::TcpV4,
        gso_size: 30,
        csum_start: 34,
        csum_offset: 16,
        ..VirtioNetHeader::default()
    };
    let segmentation = Offload::check(&header, &frame).unwrap().segmentation.unwrap();
    let mut segments = Segments::new(&bytes, &frame, segmentation);
    let mut out = [0; 54];
    for expected in whole {
        let Segment { header_len, payload } = segments.write_next_headers(&mut out).unwrap();
        assert_eq!([&out[..header_len], &bytes[payload]].concat(), expected);
    }
    assert_eq!(segments.write_next_headers(&mut out), None);
}

/// Checks for random super-frames that the segments' checksums are right, that no segment is longer than requested,
/// and that they hold the payload in order.
#[test]
fn the_segments_are_the_super_frame() {
    for index in 0..2000 {
        let mut rng = Seed(7).child("segments", index).rng();
        let ends = [("10.0.0.1", "10.0.0.2"), ("2001:db8::1", "2001:db8::2")][rng.index(2)];
        let datagrams = rng.chance(1, 3);
        let size = 8 + rng.index(1500);
        let len = rng.index(if datagrams { (128 * size).min(60_000) } else { 60_000 } + 1);
        let payload = random_bytes(len, &mut rng);
        let options = random_bytes(4 * rng.index(11), &mut rng);
        let (kind, protocol, segment) = if datagrams {
            (GsoType::Udp, protocol::UDP, udp(1, 2, &payload))
        } else {
            let kind = if ends.0.contains(':') { GsoType::TcpV6 } else { GsoType::TcpV4 };
            let flags = TcpFlags(rng.next_u64().to_le_bytes()[0]);
            let numbers = (rng.next_u32(), rng.next_u32());
            (kind, protocol::TCP, tcp_numbered((1, 2), flags, numbers, &options, &payload))
        };
        let bytes = packet(ends.0, ends.1, protocol, &segment);
        let header_len = bytes.len() - len;
        let mut joined = Vec::new();
        for frame in cut(&bytes, kind, u16::try_from(size).unwrap()) {
            verify(&frame, &parsed(&frame)).unwrap_or_else(|error| panic!("{index}: {error}"));
            let payload = &frame[header_len..];
            assert!(payload.len() <= size, "{index}");
            // Segments share the Ethernet header.
            assert_eq!(frame[..14], bytes[..14]);
            joined.extend_from_slice(payload);
        }
        assert_eq!(joined, payload, "{index}");
    }
}

/// Checks that a super-frame of one segment equals the frame that `fill` completes.
#[test]
fn one_segment_is_the_frame_with_its_checksums() {
    let mut bytes = packet("10.0.0.1", "10.0.0.2", protocol::UDP, &udp(1, 2, b"datagram"));
    let frames = cut(&bytes, GsoType::Udp, 1000);
    let frame = parsed(&bytes);
    fill(&mut bytes, &frame);
    assert_eq!(frames, [bytes]);
}
