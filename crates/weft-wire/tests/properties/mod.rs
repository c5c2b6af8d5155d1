//! The properties of every parser for every input, one function per parser. The deterministic mutation
//! test and the fuzz targets both call these.
#![allow(dead_code, unreachable_pub, reason = "each user of this file calls what it needs")]

use weft_wire::checksum::Checksum;
use weft_wire::sflow::{Datagram, DatagramWriter, Sample, SampledPacket, SflowError};
use weft_wire::{
    ChannelOffer, EthernetHeader, FrameHeader, Ipv4Header, Ipv6Header, Packet, ParseError,
    RdmaHeader, RemoteBody, SealedHeader, UdpHeader, VirtioNetHeader, VxlanHeader,
};

/// Feeds bytes to a parser, holds its promises, and says whether the bytes were accepted.
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

/// A header that was accepted, written again and read again; and what the parser left.
struct Again<'a, H> {
    header: H,
    rest: &'a [u8],
}

/// Parses, and holds that a refusal's numbers are true of the input.
fn parsed<'a, H>(
    bytes: &'a [u8],
    parse: fn(&'a [u8]) -> Parsed<'a, H>,
) -> Result<Again<'a, H>, ParseError> {
    match parse(bytes) {
        Ok((header, rest)) => Ok(Again { header, rest }),
        Err(ParseError::Truncated { needed, got }) => {
            assert_eq!(got, bytes.len());
            assert!(needed > got, "{needed} bytes needed, {got} there: no reason to refuse");
            Err(ParseError::Truncated { needed, got })
        }
        Err(error) => Err(error),
    }
}

/// Holds that a value written as bytes is read as the same value and payload.
fn assert_stable<H: PartialEq + core::fmt::Debug>(
    again: &Again<'_, H>,
    header_bytes: &[u8],
    parse: fn(&[u8]) -> Parsed<'_, H>,
) {
    let whole = [header_bytes, again.rest].concat();
    let (header, rest) = parse(&whole).expect("what was emitted is accepted");
    assert_eq!(header, again.header);
    assert_eq!(rest, again.rest);
}

pub fn packet(bytes: &[u8]) -> Result<(), ParseError> {
    let again = parsed(bytes, Packet::parse)?;
    let mut out = [0; Packet::MAX_LEN];
    let len = again.header.emit(&mut out);
    assert_eq!(len, again.header.len());
    assert_eq!(len + again.rest.len(), bytes.len(), "every byte is header or payload");
    assert_stable(&again, &out[..len], Packet::parse);
    assert!(!again.header.to_string().contains('\n'), "a packet is one line");
    Ok(())
}

pub fn rdma(bytes: &[u8]) -> Result<(), ParseError> {
    let again = parsed(bytes, RdmaHeader::parse)?;
    let mut out = [0; RdmaHeader::MAX_LEN];
    let len = again.header.emit(&mut out);
    assert_eq!(len + again.rest.len(), bytes.len(), "every byte is header or payload");
    assert_stable(&again, &out[..len], RdmaHeader::parse);
    Ok(())
}

/// A frame's header, and what a large one says instead of its body.
pub fn frame(bytes: &[u8]) -> Result<(), ParseError> {
    let again = parsed(bytes, FrameHeader::parse)?;
    let mut out = [0; FrameHeader::MAX_LEN];
    let len = again.header.emit(&mut out);
    assert_eq!(len + again.rest.len(), bytes.len(), "every byte is header or body");
    assert_stable(&again, &out[..len], FrameHeader::parse);
    let body = RemoteBody::parse(again.rest)?;
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
    let again = parsed(bytes, EthernetHeader::parse)?;
    let mut out = [0; EthernetHeader::LEN];
    again.header.emit(&mut out);
    assert_eq!(out, bytes[..EthernetHeader::LEN], "nothing in the header is reserved");
    assert_stable(&again, &out, EthernetHeader::parse);
    Ok(())
}

/// Tries the bytes as they are, then with a right checksum, which chance would not find.
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
    let again = parsed(bytes, Ipv4Header::parse)?;
    assert_eq!(again.rest.len(), usize::from(again.header.payload_len));
    let mut out = [0; Ipv4Header::MAX_LEN];
    again.header.emit(&mut out);
    assert_stable(&again, &out[..again.header.header_len()], Ipv4Header::parse);
    Ok(())
}

pub fn ipv6(bytes: &[u8]) -> Result<(), ParseError> {
    let again = parsed(bytes, Ipv6Header::parse)?;
    assert_eq!(again.rest.len(), usize::from(again.header.payload_len));
    let mut out = [0; Ipv6Header::LEN];
    again.header.emit(&mut out);
    assert_eq!(out, bytes[..Ipv6Header::LEN], "nothing in the header is reserved");
    assert_stable(&again, &out, Ipv6Header::parse);
    Ok(())
}

/// Also holds that a checksum that was computed is accepted, over both kinds of address.
pub fn udp(bytes: &[u8]) -> Result<(), ParseError> {
    use weft_wire::checksum::PseudoHeader;

    let again = parsed(bytes, UdpHeader::parse)?;
    assert_eq!(again.rest.len(), usize::from(again.header.payload_len));
    let mut out = [0; UdpHeader::LEN];
    again.header.emit(&mut out);
    assert_eq!(out, bytes[..UdpHeader::LEN], "nothing in the header is reserved");
    assert_stable(&again, &out, UdpHeader::parse);
    for pseudo in [
        PseudoHeader::V4 { source: [10, 0, 0, 1].into(), destination: [10, 0, 0, 2].into() },
        PseudoHeader::V6 { source: [1; 16].into(), destination: [2; 16].into() },
    ] {
        let header = again.header.with_checksum(pseudo, again.rest);
        assert_eq!(header.verify(pseudo, again.rest), Ok(()));
    }
    Ok(())
}

pub fn virtio_net(bytes: &[u8]) -> Result<(), ParseError> {
    let again = parsed(bytes, VirtioNetHeader::parse)?;
    let mut out = [0; VirtioNetHeader::LEN];
    again.header.emit(&mut out);
    assert_eq!(out[1..], bytes[1..VirtioNetHeader::LEN], "only flags are reserved");
    assert_stable(&again, &out, VirtioNetHeader::parse);
    Ok(())
}

pub fn vxlan(bytes: &[u8]) -> Result<(), ParseError> {
    let again = parsed(bytes, VxlanHeader::parse)?;
    let mut out = [0; VxlanHeader::LEN];
    again.header.emit(&mut out);
    assert_stable(&again, &out, VxlanHeader::parse);
    Ok(())
}

pub fn sealed(bytes: &[u8]) -> Result<(), ParseError> {
    let again = parsed(bytes, SealedHeader::parse)?;
    let mut out = [0; SealedHeader::LEN];
    again.header.emit(&mut out);
    assert_stable(&again, &out, SealedHeader::parse);
    Ok(())
}

/// A datagram is read to its end without a panic, and samples that were read are written as the same values.
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
            Ok(Sample::Counters(counters)) => {
                let _ = counters.interface();
            }
            Ok(_) => {}
            Err(error) => first_error = first_error.and(Err(error)),
        }
    }
    let length = writer.finish();
    let again = Datagram::parse(&out[..length]).expect("what was written is accepted");
    assert_eq!((again.agent, again.sequence), (agent, sequence));
    for (sample, flow) in again.samples.zip(&written) {
        let Ok(Sample::Flow(sample)) = sample else { panic!("{sample:?} instead of {flow:?}") };
        let compact =
            |index| matches!(index, weft_wire::sflow::Interface::Index(index) if index >= 1 << 30);
        if !compact(flow.input) && !compact(flow.output) {
            assert_eq!((sample.header, sample.rate), (flow.header, flow.rate));
        }
    }
    first_error
}
