//! The properties of every parser for every input, one function per parser. The deterministic mutation
//! test and the fuzz targets both call these.
#![allow(dead_code, unreachable_pub, reason = "each user of this file calls what it needs")]

use weft_wire::checksum::Checksum;
use weft_wire::sflow::{
    CounterSample, Datagram, DatagramWriter, Sample, SampledPacket, SflowError, Source,
};
use weft_wire::{
    ChannelOffer, EthernetHeader, FrameHeader, Ipv4Header, Ipv6Header, Packet, ParseError,
    RdmaHeader, RemoteBody, SealedHeader, UdpHeader, VirtioNetHeader, VxlanHeader,
};

/// Checks the properties of a parser with these bytes; returns its error if it refuses them.
pub type Property = fn(&[u8]) -> Result<(), ParseError>;

/// Every parser by the name of its fuzz target.
pub const PARSERS: &[(&str, Property)] = &[
    ("packet", packet),
    ("rdma", rdma),
    ("frame", frame),
    ("offer", offer),
    ("eth", eth),
    ("ipv4", ipv4),
    ("ipv6", ipv6),
    ("udp", udp),
    ("virtio_net", virtio_net),
    ("vxlan", vxlan),
    ("sealed", sealed),
];

/// The result of a parser.
type Parsed<'a, H> = Result<(H, &'a [u8]), ParseError>;

/// A header that a parser accepted, and the bytes after it.
struct Accepted<'a, H> {
    header: H,
    rest: &'a [u8],
}

/// Parses `bytes`, and checks that the numbers in a `Truncated` error match the input.
fn parsed<'a, H>(
    bytes: &'a [u8],
    parse: fn(&'a [u8]) -> Parsed<'a, H>,
) -> Result<Accepted<'a, H>, ParseError> {
    match parse(bytes) {
        Ok((header, rest)) => Ok(Accepted { header, rest }),
        Err(ParseError::Truncated { needed, got }) => {
            assert_eq!(got, bytes.len());
            assert!(needed > got, "{needed} bytes needed, {got} there: no reason to refuse");
            Err(ParseError::Truncated { needed, got })
        }
        Err(error) => Err(error),
    }
}

/// Checks that the emitted header, followed by the same bytes, is parsed as the same value and rest.
fn assert_stable<H: PartialEq + core::fmt::Debug>(
    accepted: &Accepted<'_, H>,
    header_bytes: &[u8],
    parse: fn(&[u8]) -> Parsed<'_, H>,
) {
    let whole = [header_bytes, accepted.rest].concat();
    let (header, rest) = parse(&whole).expect("what was emitted is accepted");
    assert_eq!(header, accepted.header);
    assert_eq!(rest, accepted.rest);
}

pub fn packet(bytes: &[u8]) -> Result<(), ParseError> {
    let accepted = parsed(bytes, Packet::parse)?;
    let mut out = [0; Packet::MAX_LEN];
    let len = accepted.header.emit(&mut out);
    assert_eq!(len, accepted.header.len());
    assert_eq!(len + accepted.rest.len(), bytes.len(), "every byte is header or payload");
    assert_stable(&accepted, &out[..len], Packet::parse);
    assert!(!accepted.header.to_string().contains('\n'), "a packet is one line");
    Ok(())
}

pub fn rdma(bytes: &[u8]) -> Result<(), ParseError> {
    let accepted = parsed(bytes, RdmaHeader::parse)?;
    let mut out = [0; RdmaHeader::MAX_LEN];
    let len = accepted.header.emit(&mut out);
    assert_eq!(len + accepted.rest.len(), bytes.len(), "every byte is header or payload");
    assert_stable(&accepted, &out[..len], RdmaHeader::parse);
    Ok(())
}

/// Checks the header of a frame, and the location of a remote body after it.
pub fn frame(bytes: &[u8]) -> Result<(), ParseError> {
    let accepted = parsed(bytes, FrameHeader::parse)?;
    let mut out = [0; FrameHeader::MAX_LEN];
    let len = accepted.header.emit(&mut out);
    assert_eq!(len + accepted.rest.len(), bytes.len(), "every byte is header or body");
    assert_stable(&accepted, &out[..len], FrameHeader::parse);
    let body = RemoteBody::parse(accepted.rest)?;
    let mut out = [0; RemoteBody::LEN];
    body.emit(&mut out);
    assert_eq!(RemoteBody::parse(&out), Ok(body));
    Ok(())
}

pub fn offer(bytes: &[u8]) -> Result<(), ParseError> {
    let offer = ChannelOffer::parse(bytes)?;
    assert_eq!(ChannelOffer::parse(&offer.emit()), Ok(offer));
    Ok(())
}

pub fn eth(bytes: &[u8]) -> Result<(), ParseError> {
    let accepted = parsed(bytes, EthernetHeader::parse)?;
    let mut out = [0; EthernetHeader::LEN];
    accepted.header.emit(&mut out);
    assert_eq!(out, bytes[..EthernetHeader::LEN], "nothing in the header is reserved");
    assert_stable(&accepted, &out, EthernetHeader::parse);
    Ok(())
}

/// Checks the bytes as they are, then with a valid checksum, which random bytes almost never have.
pub fn ipv4(bytes: &[u8]) -> Result<(), ParseError> {
    match ipv4_as_is(bytes) {
        Err(ParseError::BadChecksum { .. }) => {
            let mut repaired = bytes.to_vec();
            let header = &mut repaired[..4 * usize::from(bytes[0] & 0xf)];
            header[10..12].fill(0);
            let checksum = Checksum::new().with(header).finish();
            header[10..12].copy_from_slice(&checksum.to_be_bytes());
            let outcome = ipv4_as_is(&repaired);
            assert!(!matches!(outcome, Err(ParseError::BadChecksum { .. })), "{checksum:#06x}");
            outcome
        }
        outcome => outcome,
    }
}

fn ipv4_as_is(bytes: &[u8]) -> Result<(), ParseError> {
    let accepted = parsed(bytes, Ipv4Header::parse)?;
    assert_eq!(accepted.rest.len(), usize::from(accepted.header.payload_len));
    let mut out = [0; Ipv4Header::MAX_LEN];
    accepted.header.emit(&mut out);
    assert_stable(&accepted, &out[..accepted.header.header_len()], Ipv4Header::parse);
    Ok(())
}

pub fn ipv6(bytes: &[u8]) -> Result<(), ParseError> {
    let accepted = parsed(bytes, Ipv6Header::parse)?;
    assert_eq!(accepted.rest.len(), usize::from(accepted.header.payload_len));
    let mut out = [0; Ipv6Header::LEN];
    accepted.header.emit(&mut out);
    assert_eq!(out, bytes[..Ipv6Header::LEN], "nothing in the header is reserved");
    assert_stable(&accepted, &out, Ipv6Header::parse);
    Ok(())
}

/// Also checks that a computed checksum is valid, with both kinds of address.
pub fn udp(bytes: &[u8]) -> Result<(), ParseError> {
    use weft_wire::checksum::PseudoHeader;

    let accepted = parsed(bytes, UdpHeader::parse)?;
    assert_eq!(accepted.rest.len(), usize::from(accepted.header.payload_len));
    let mut out = [0; UdpHeader::LEN];
    accepted.header.emit(&mut out);
    assert_eq!(out, bytes[..UdpHeader::LEN], "nothing in the header is reserved");
    assert_stable(&accepted, &out, UdpHeader::parse);
    for pseudo in [
        PseudoHeader::V4 { source: [10, 0, 0, 1].into(), destination: [10, 0, 0, 2].into() },
        PseudoHeader::V6 { source: [1; 16].into(), destination: [2; 16].into() },
    ] {
        let header = accepted.header.with_checksum(pseudo, accepted.rest);
        assert_eq!(header.verify(pseudo, accepted.rest), Ok(()));
    }
    Ok(())
}

pub fn virtio_net(bytes: &[u8]) -> Result<(), ParseError> {
    let accepted = parsed(bytes, VirtioNetHeader::parse)?;
    let mut out = [0; VirtioNetHeader::LEN];
    accepted.header.emit(&mut out);
    assert_eq!(out[1..], bytes[1..VirtioNetHeader::LEN], "only flags are reserved");
    assert_stable(&accepted, &out, VirtioNetHeader::parse);
    Ok(())
}

pub fn vxlan(bytes: &[u8]) -> Result<(), ParseError> {
    let accepted = parsed(bytes, VxlanHeader::parse)?;
    let mut out = [0; VxlanHeader::LEN];
    accepted.header.emit(&mut out);
    assert_stable(&accepted, &out, VxlanHeader::parse);
    Ok(())
}

pub fn sealed(bytes: &[u8]) -> Result<(), ParseError> {
    let accepted = parsed(bytes, SealedHeader::parse)?;
    let mut out = [0; SealedHeader::LEN];
    accepted.header.emit(&mut out);
    assert_stable(&accepted, &out, SealedHeader::parse);
    Ok(())
}

/// Checks that the counters and marks of a sample, if they are valid, are written as the same values.
fn counters_are_written_alike(counters: &CounterSample<'_>) {
    let marks = counters.queue_marks();
    let (Ok(Some(interface)), Ok(marks)) = (counters.interface(), marks) else { return };
    let mut out = [0; 200];
    let mut writer = DatagramWriter::new(&mut out, [10, 0, 0, 1].into(), 0, 1, 0);
    assert!(writer.counters(counters.sequence, Source::interface(1), &interface, marks));
    let length = writer.finish();
    let written = Datagram::parse(&out[..length]).expect("what was written is accepted");
    let Some(Ok(Sample::Counters(written))) = written.samples.last() else { panic!("no counters") };
    assert_eq!((written.interface(), written.queue_marks()), (Ok(Some(interface)), Ok(marks)));
}

/// Checks that a datagram is parsed to its end without a panic, and that its flow samples and counters are written as
/// the same values.
pub fn sflow(bytes: &[u8]) -> Result<(), SflowError> {
    let datagram = Datagram::parse(bytes)?;
    let mut out = vec![0; bytes.len() + 64];
    let Datagram { agent, sub_agent, sequence, uptime_ms, samples } = datagram;
    let mut writer = DatagramWriter::new(&mut out, agent, sub_agent, sequence, uptime_ms);
    let mut written = Vec::new();
    let mut first_error = Ok(());
    for sample in samples {
        match sample {
            // Only the expanded form has room for larger indices.
            Ok(Sample::Flow(flow)) if flow.source.kind < 256 && flow.source.index < 1 << 24 => {
                if let Some(header) = flow.header {
                    let _ = SampledPacket::parse(&header);
                }
                assert!(writer.flow(&flow), "it takes no more bytes than it came in");
                written.push(flow);
            }
            Ok(Sample::Counters(counters)) => counters_are_written_alike(&counters),
            Ok(_) => {}
            Err(error) => first_error = first_error.and(Err(error)),
        }
    }
    let length = writer.finish();
    let accepted = Datagram::parse(&out[..length]).expect("what was written is accepted");
    assert_eq!((accepted.agent, accepted.sequence), (agent, sequence));
    for (sample, flow) in accepted.samples.zip(&written) {
        let Ok(Sample::Flow(sample)) = sample else { panic!("{sample:?} instead of {flow:?}") };
        let is_truncated =
            |index| matches!(index, weft_wire::sflow::Interface::Index(index) if index >= 1 << 30);
        if !is_truncated(flow.input) && !is_truncated(flow.output) {
            assert_eq!((sample.header, sample.rate), (flow.header, flow.rate));
        }
    }
    first_error
}
