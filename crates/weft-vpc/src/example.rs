//! Frames for tests, built from the payload outwards.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use weft_wire::checksum::Checksum;
use weft_wire::{
    Ecn, EtherType, EthernetHeader, Ipv4Header, Ipv4Options, Ipv6Header, MacAddr, U6, U13, U20,
    UdpHeader,
};

use crate::{Frame, TcpFlags, protocol};

pub(crate) const ALICE: MacAddr = MacAddr([2, 0, 0, 0, 0, 0xa]);
pub(crate) const BOB: MacAddr = MacAddr([2, 0, 0, 0, 0, 0xb]);

/// Returns a frame from Alice to Bob.
pub(crate) fn ethernet(ethertype: EtherType, payload: &[u8]) -> Vec<u8> {
    between(ALICE, BOB, ethertype, payload)
}

pub(crate) fn between(
    source: MacAddr,
    destination: MacAddr,
    ethertype: EtherType,
    payload: &[u8],
) -> Vec<u8> {
    let mut bytes = vec![0; EthernetHeader::LEN];
    EthernetHeader { destination, source, ethertype }.emit(&mut bytes);
    bytes.extend_from_slice(payload);
    bytes
}

/// Returns an IP packet of the addresses' version, in a frame from Alice to Bob.
pub(crate) fn packet(source: &str, destination: &str, protocol: u8, payload: &[u8]) -> Vec<u8> {
    match (source.parse().unwrap(), destination.parse().unwrap()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let header = v4(source, destination, protocol, payload.len());
            ethernet(EtherType::IPV4, &v4_packet(header, payload))
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            ethernet(EtherType::IPV6, &v6_packet(source, destination, protocol, payload))
        }
        _ => panic!("{source} and {destination} are of two versions"),
    }
}

pub(crate) fn v4(
    source: Ipv4Addr,
    destination: Ipv4Addr,
    protocol: u8,
    payload_len: usize,
) -> Ipv4Header {
    Ipv4Header {
        dscp: U6::default(),
        ecn: Ecn::NotCapable,
        payload_len: payload_len.try_into().unwrap(),
        identification: 0xfffe,
        dont_fragment: true,
        more_fragments: false,
        fragment_offset: U13::default(),
        ttl: 64,
        protocol,
        source,
        destination,
        options: Ipv4Options::NONE,
    }
}

pub(crate) fn v4_packet(header: Ipv4Header, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; header.header_len()];
    header.emit(&mut bytes);
    bytes.extend_from_slice(payload);
    bytes
}

pub(crate) fn v6_packet(
    source: Ipv6Addr,
    destination: Ipv6Addr,
    next_header: u8,
    payload: &[u8],
) -> Vec<u8> {
    let header = Ipv6Header {
        dscp: U6::default(),
        ecn: Ecn::NotCapable,
        flow_label: U20::default(),
        payload_len: payload.len().try_into().unwrap(),
        next_header,
        hop_limit: 255,
        source,
        destination,
    };
    let mut bytes = vec![0; Ipv6Header::LEN];
    header.emit(&mut bytes);
    bytes.extend_from_slice(payload);
    bytes
}

/// Returns a TCP header without checksum, its options and payload.
pub(crate) fn tcp(ports: (u16, u16), flags: TcpFlags, options: &[u8], payload: &[u8]) -> Vec<u8> {
    tcp_numbered(ports, flags, (1000, 2000), options, payload)
}

pub(crate) fn tcp_numbered(
    (source, destination): (u16, u16),
    flags: TcpFlags,
    (sequence, acknowledgement): (u32, u32),
    options: &[u8],
    payload: &[u8],
) -> Vec<u8> {
    assert!(options.len().is_multiple_of(4), "whole words");
    let words = u8::try_from(5 + options.len() / 4).unwrap();
    let mut bytes = Vec::new();
    bytes.extend(source.to_be_bytes());
    bytes.extend(destination.to_be_bytes());
    bytes.extend(sequence.to_be_bytes());
    bytes.extend(acknowledgement.to_be_bytes());
    bytes.extend([words << 4, flags.0, 0xff, 0xff, 0, 0, 0, 0]);
    bytes.extend_from_slice(options);
    bytes.extend_from_slice(payload);
    bytes
}

/// Returns a UDP header without checksum, and its payload.
pub(crate) fn udp(source_port: u16, destination_port: u16, payload: &[u8]) -> Vec<u8> {
    let payload_len = payload.len().try_into().unwrap();
    let mut bytes = vec![0; UdpHeader::LEN];
    UdpHeader { source_port, destination_port, payload_len, checksum: 0 }.emit(&mut bytes);
    bytes.extend_from_slice(payload);
    bytes
}

/// Returns an ICMP message; its checksum is right for IPv4 only.
pub(crate) fn icmp(kind: u8, code: u8, identifier: u16, payload: &[u8]) -> Vec<u8> {
    let [i0, i1] = identifier.to_be_bytes();
    let mut bytes = vec![kind, code, 0, 0, i0, i1, 0, 1];
    bytes.extend_from_slice(payload);
    let checksum = Checksum::new().with(&bytes).finish();
    bytes[2..4].copy_from_slice(&checksum.to_be_bytes());
    bytes
}

pub(crate) fn parsed(bytes: &[u8]) -> Frame {
    Frame::parse(bytes, bytes.len()).unwrap()
}

/// Returns the first segment of a TCP connection, in both IP versions.
pub(crate) fn syn() -> [Vec<u8>; 2] {
    let segment = tcp((40_000, 80), TcpFlags::SYN, &[], &[]);
    [
        packet("10.0.0.1", "10.0.0.2", protocol::TCP, &segment),
        packet("2001:db8::1", "2001:db8::2", protocol::TCP, &segment),
    ]
}
