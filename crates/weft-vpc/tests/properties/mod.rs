//! Properties that hold for every input of the parsers of tenants' bytes. The deterministic mutation test and the
//! fuzz targets both call these.
#![allow(dead_code, unreachable_pub, reason = "each user of this file calls what it needs")]

use weft_units::Instant;
use weft_vpc::offload::{Segments, complete, fill, verify};
use weft_vpc::{
    ConnectionsConfig, Direction, Frame, FrameError, GATEWAY, Offload, Pass, SecurityGroupConfig,
    SecurityGroups, Sets, Table, TableConfig, Transport,
};
use weft_wire::{MacAddr, VirtioNetHeader};

/// A function that checks properties for some bytes and returns a short name of the outcome.
pub type Property = fn(&[u8]) -> &'static str;

/// All properties by the name of their fuzz targets.
pub const PROPERTIES: &[(&str, Property)] = &[
    ("tenant_frame", tenant_frame),
    ("offload", offload),
    ("table", table),
    ("security_groups", security_groups),
];

/// Checks a frame after its virtio-net header.
pub fn tenant_frame(bytes: &[u8]) -> &'static str {
    match parsed(bytes) {
        Ok(_) => "accepted",
        Err(error) => {
            assert!(!error.to_string().contains('\n'), "an error is one line");
            error.reason()
        }
    }
}

/// Parses a whole frame, and checks that its headers lie within it and that its first bytes parse to
/// the same.
fn parsed(bytes: &[u8]) -> Result<Frame, FrameError> {
    let (_, frame) = Frame::parse_virtio(bytes, bytes.len())?;
    let ethernet = &bytes[12..];
    assert_eq!(frame.len as usize, ethernet.len());
    assert!(!frame.source.is_group());
    let first = &ethernet[..ethernet.len().min(Frame::MIN_PARSE_BYTES)];
    match Frame::parse(first, ethernet.len()) {
        Ok(same) => assert_eq!(same, frame),
        Err(error) => {
            assert_eq!(error.reason(), "truncated");
            assert!(ethernet.len() > Frame::MIN_PARSE_BYTES);
        }
    }
    if let Some(ip) = frame.ip() {
        let end = usize::from(ip.transport_offset) + usize::from(ip.transport_len);
        assert!(usize::from(frame.network_offset) < usize::from(ip.transport_offset));
        assert!(end <= ethernet.len(), "the packet ends at {end} of {}", ethernet.len());
        let needed = match ip.transport {
            Transport::Tcp(tcp) => usize::from(tcp.header_len),
            Transport::Udp(_) | Transport::Icmp(_) => 8,
            Transport::LaterFragment | Transport::Other => 0,
        };
        assert!(needed <= usize::from(ip.transport_len), "the header lies in the packet");
        let later = ip.fragment.is_some_and(|fragment| fragment.is_later());
        assert_eq!(later, ip.transport == Transport::LaterFragment);
    }
    Ok(frame)
}

/// Checks the work that a frame's virtio-net header requests.
pub fn offload(bytes: &[u8]) -> &'static str {
    let Ok((header, frame)) = Frame::parse_virtio(bytes, bytes.len()) else {
        return "no_frame";
    };
    let offload = match Offload::check(&header, &frame) {
        Ok(offload) => offload,
        Err(error) => {
            assert!(!error.to_string().contains('\n'), "an error is one line");
            return error.reason();
        }
    };
    assert_eq!(Offload::check(&offload.header(), &frame), Ok(offload), "the header is the same");
    let mut whole = bytes[VirtioNetHeader::LEN..].to_vec();
    match (offload.checksum, offload.segmentation) {
        (None, None) => {
            fill(&mut whole, &frame);
            verify(&whole, &frame).expect("what was filled in is right");
            "as_it_is"
        }
        (Some(checksum), None) => {
            complete(&mut whole, checksum);
            let changed: Vec<_> =
                whole.iter().zip(&bytes[VirtioNetHeader::LEN..]).map(|(a, b)| a != b).collect();
            let at = usize::from(checksum.at);
            let elsewhere = [&changed[..at], &changed[at + 2..]].concat();
            assert!(!elsewhere.contains(&true), "only the checksum is written");
            "completed"
        }
        (_, Some(segmentation)) => {
            let mut segments = Segments::new(&whole, &frame, segmentation);
            let mut out = vec![0; segments.longest()];
            let header_len = usize::from(segmentation.header_len);
            let mut joined = whole[..header_len].to_vec();
            let mut count = 0;
            while let Some(len) = segments.write_next(&mut out) {
                let segment = Frame::parse(&out[..len], len).expect("a segment is a frame");
                verify(&out[..len], &segment).expect("a segment adds up");
                joined.extend_from_slice(&out[header_len..len]);
                count += 1;
            }
            assert_eq!((joined, count), (whole, segmentation.count()));
            "cut"
        }
    }
}

/// Checks a frame from which a table learns and which the table answers. Its checksums are filled in, which random
/// bytes would not have.
pub fn table(bytes: &[u8]) -> &'static str {
    const NOW: Instant = Instant::EPOCH;
    let Ok((_, frame)) = Frame::parse_virtio(bytes, bytes.len()) else {
        return "no_frame";
    };
    let mut ethernet = bytes[VirtioNetHeader::LEN..].to_vec();
    fill(&mut ethernet, &frame);
    let mut table = Table::new(TableConfig::default());
    let known = MacAddr([2, 0, 0, 0, 0, 0xc]);
    for address in ["10.0.0.2", "2001:db8::2"] {
        table.set_neighbour(address.parse().expect("an address"), Some(known));
    }
    table.learn(&frame, &ethernet, 1, NOW);
    let learned = usize::from(frame.source != GATEWAY);
    assert_eq!(table.iter().count(), learned, "every sender is learned");
    for entry in table.neighbours() {
        assert!(entry.is_set || entry.value == frame.source, "only its own address");
    }
    if let Some(answer) = table.answer(&frame, &ethernet, NOW) {
        let parsed = Frame::parse(&answer, answer.len()).expect("an answer is a frame");
        verify(&answer, &parsed).expect("an answer adds up");
        assert_eq!((parsed.source, parsed.vlan), (known, frame.vlan));
        assert!(parsed.destination == frame.source || parsed.destination.is_group());
        return "answered";
    }
    if table.neighbours().count() > 2 { "announced" } else { "nothing" }
}

/// Checks a frame that a tenant sends where it may send anything, and receives where no unrequested frame may
/// come.
pub fn security_groups(bytes: &[u8]) -> &'static str {
    const NOW: Instant = Instant::EPOCH;
    let Ok((_, frame)) = Frame::parse_virtio(bytes, bytes.len()) else {
        return "no_frame";
    };
    let ethernet = &bytes[VirtioNetHeader::LEN..];
    let rules = vec!["allow egress any".parse().expect("a rule")];
    let group = SecurityGroupConfig { name: "fuzz".into(), members: Vec::new(), rules };
    let connections = ConnectionsConfig::default();
    let groups = SecurityGroups::new(&[group], &Sets::new(), connections, (1, 2));
    let mut groups = groups.expect("a good group");
    let unrequested = groups.evaluate(Direction::Ingress, &frame, ethernet, NOW);
    assert!(matches!(unrequested, Err(_) | Ok(Pass::Neighbours)), "{unrequested:?}");
    let sent = groups.evaluate(Direction::Egress, &frame, ethernet, NOW);
    let again = groups.evaluate(Direction::Egress, &frame, ethernet, NOW);
    assert_eq!(sent.is_ok(), again.is_ok(), "what passed passes again");
    let counters = groups.counters();
    assert_eq!(counters.passed + counters.denied + counters.no_first_part, 3);
    match (sent, again) {
        (Err(refusal), _) => refusal.reason(),
        (_, Ok(Pass::Connection)) => "connection",
        (_, Ok(Pass::Rule(_))) => "each_for_itself",
        (_, other) => {
            assert!(matches!(other, Ok(Pass::Neighbours)), "{other:?}");
            "neighbours"
        }
    }
}
