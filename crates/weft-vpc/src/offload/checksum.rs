//! Checksums of packets in frames: completed, computed and checked.

use core::net::IpAddr;

use thiserror::Error;
use weft_wire::checksum::{Checksum, PseudoHeader};

use super::PartialChecksum;
use crate::{Frame, Ip, Transport, protocol};

/// A checksum that is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ChecksumError {
    /// The IPv4 header's checksum.
    #[error("the IPv4 header's checksum is wrong by {residue:#06x}")]
    Header {
        /// The complemented sum over the header; zero if it is right.
        residue: u16,
    },
    /// The checksum of TCP, UDP or ICMP.
    #[error("the checksum of protocol {protocol} is wrong by {residue:#06x}")]
    Transport {
        /// The packet's protocol.
        protocol: u8,
        /// The complemented sum over the covered bytes; zero if it is right.
        residue: u16,
    },
}

/// Completes a checksum whose field holds the sum of the pseudo header.
///
/// # Panics
/// If `bytes` are not the frame that the partial checksum was checked against.
pub fn complete(bytes: &mut [u8], partial: PartialChecksum) {
    let covered = &bytes[usize::from(partial.start)..partial.end as usize];
    put(bytes, usize::from(partial.at), never_zero(Checksum::new().with(covered).finish()));
}

/// Computes the checksums of a packet: the IPv4 header's, and that of TCP, UDP or ICMP in a
/// packet that is no fragment.
///
/// # Panics
/// If `bytes` are not the parsed frame.
pub fn fill(bytes: &mut [u8], frame: &Frame) {
    let Some(ip) = whole(bytes, frame) else { return };
    if let Some(header) = v4_header(ip, frame) {
        let at = header.start + 10;
        put(bytes, at, 0);
        put(bytes, at, Checksum::new().with(&bytes[header]).finish());
    }
    if let Some(offset) = checksum_offset(ip) {
        let at = usize::from(ip.transport_offset) + offset;
        put(bytes, at, 0);
        put(bytes, at, never_zero(transport_sum(bytes, ip)));
    }
}

/// Checks the checksums that [`fill`] fills in. A UDP datagram over IPv4 may have none (RFC 768).
///
/// # Errors
/// The first checksum that is wrong.
///
/// # Panics
/// If `bytes` are not the parsed frame.
pub fn verify(bytes: &[u8], frame: &Frame) -> Result<(), ChecksumError> {
    let Some(ip) = whole(bytes, frame) else { return Ok(()) };
    if let Some(header) = v4_header(ip, frame) {
        let residue = Checksum::new().with(&bytes[header]).finish();
        if residue != 0 {
            return Err(ChecksumError::Header { residue });
        }
    }
    let Some(offset) = checksum_offset(ip) else { return Ok(()) };
    let at = usize::from(ip.transport_offset) + offset;
    let unused = bytes[at..at + 2] == [0, 0] && matches!(ip.transport, Transport::Udp(_));
    let residue = transport_sum(bytes, ip);
    let right = if unused { ip.source.is_ipv4() } else { residue == 0 };
    let protocol = ip.protocol;
    if right { Ok(()) } else { Err(ChecksumError::Transport { protocol, residue }) }
}

/// Returns the pseudo header that a transport checksum covers besides the transport's bytes.
pub(super) fn pseudo_header(ip: &Ip) -> PseudoHeader {
    match (ip.source, ip.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => PseudoHeader::V4 { source, destination },
        (IpAddr::V6(source), IpAddr::V6(destination)) => PseudoHeader::V6 { source, destination },
        _ => unreachable!("a packet is of one version"),
    }
}

/// Returns 0xffff for a sum of zero: in UDP zero means that there is no checksum (RFC 768), and for
/// the other protocols both forms are equal.
pub(super) const fn never_zero(checksum: u16) -> u16 {
    if checksum == 0 { 0xffff } else { checksum }
}

pub(super) fn put(bytes: &mut [u8], at: usize, checksum: u16) {
    bytes[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
}

/// Returns the IP packet of a frame, after a check that `bytes` are the whole frame.
fn whole<'a>(bytes: &[u8], frame: &'a Frame) -> Option<&'a Ip> {
    assert_eq!(bytes.len(), frame.len as usize, "these are not the parsed frame's bytes");
    frame.ip()
}

fn v4_header(ip: &Ip, frame: &Frame) -> Option<core::ops::Range<usize>> {
    let header = usize::from(frame.network_offset)..usize::from(ip.transport_offset);
    ip.source.is_ipv4().then_some(header)
}

/// Returns the checksum's offset in the transport header. A fragment has none to compute.
fn checksum_offset(ip: &Ip) -> Option<usize> {
    match ip.transport {
        _ if ip.fragment.is_some() => None,
        Transport::Tcp(_) => Some(16),
        Transport::Udp(_) => Some(6),
        Transport::Icmp(_) => Some(2),
        Transport::LaterFragment | Transport::Other => None,
    }
}

/// Returns the checksum over the transport's bytes as they are.
fn transport_sum(bytes: &[u8], ip: &Ip) -> u16 {
    let start = usize::from(ip.transport_offset);
    let len = match ip.transport {
        // A datagram may be shorter than its packet (RFC 768).
        Transport::Udp(udp) => udp.len,
        _ => ip.transport_len,
    };
    let sum = match ip.protocol {
        // ICMP for IPv4 covers no addresses.
        protocol::ICMP => Checksum::new(),
        protocol => Checksum::new().with_pseudo_header(pseudo_header(ip), protocol, u32::from(len)),
    };
    sum.with(&bytes[start..start + usize::from(len)]).finish()
}

#[cfg(test)]
mod tests {
    use weft_units::Seed;
    use weft_wire::VirtioNetHeader;

    use super::*;
    use crate::example::{icmp, packet, parsed, tcp, udp};
    use crate::{Offload, TcpFlags};

    fn filled(mut bytes: Vec<u8>) -> Vec<u8> {
        let frame = parsed(&bytes);
        fill(&mut bytes, &frame);
        verify(&bytes, &frame).unwrap();
        bytes
    }

    #[test]
    fn the_worked_example_adds_up() {
        // "Internet checksum", Wikipedia: the header of a UDP packet of 115 bytes, checksum b861.
        let header =
            [0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0, 0, 192, 168, 0, 1, 192, 168, 0, 199];
        let bytes = [&header[..], &udp(1, 2, &[7; 87])].concat();
        let bytes = filled(crate::example::ethernet(weft_wire::EtherType::IPV4, &bytes));
        assert_eq!(bytes[24..26], [0xb8, 0x61]);
    }

    #[test]
    fn every_protocol_is_filled_and_every_flipped_bit_is_noticed() {
        let mut rng = Seed(1).child("checksum", 0).rng();
        let segment = tcp((40_000, 80), TcpFlags::ACK, &[1; 8], b"odd");
        let datagram = udp(5000, 53, b"query");
        for bytes in [
            packet("10.0.0.1", "10.0.0.2", protocol::TCP, &segment),
            packet("2001:db8::1", "2001:db8::2", protocol::TCP, &segment),
            packet("10.0.0.1", "10.0.0.2", protocol::UDP, &datagram),
            packet("2001:db8::1", "2001:db8::2", protocol::UDP, &datagram),
            packet("10.0.0.1", "10.0.0.2", protocol::ICMP, &icmp(8, 0, 7, b"ping")),
            packet("2001:db8::1", "2001:db8::2", protocol::ICMPV6, &icmp(128, 0, 7, b"ping")),
        ] {
            let bytes = filled(bytes);
            let frame = parsed(&bytes);
            let start = usize::from(frame.ip().unwrap().transport_offset);
            for _ in 0..100 {
                let mut damaged = bytes.clone();
                // The bit is past the ports, so that the frame parses as before.
                let bit = 8 * (start + 8) + rng.index(8 * (bytes.len() - start - 8));
                damaged[bit / 8] ^= 1 << (bit % 8);
                let error = verify(&damaged, &frame).unwrap_err();
                assert!(matches!(error, ChecksumError::Transport { .. }));
            }
        }
    }

    #[test]
    fn completing_a_partial_checksum_equals_computing_it() {
        for (source, destination) in [("10.0.0.1", "10.0.0.2"), ("2001:db8::1", "2001:db8::2")] {
            let segment = tcp((40_000, 80), TcpFlags::ACK, &[1; 8], b"odd");
            let expected = filled(packet(source, destination, protocol::TCP, &segment));
            let frame = parsed(&expected);
            let ip = frame.ip().unwrap();
            // The guest leaves the pseudo header's sum, uncomplemented.
            let begun = !Checksum::new()
                .with_pseudo_header(pseudo_header(ip), ip.protocol, ip.transport_len.into())
                .finish();
            let mut bytes = expected.clone();
            let start = ip.transport_offset;
            put(&mut bytes, usize::from(start) + 16, begun);
            let header = VirtioNetHeader {
                needs_csum: true,
                csum_start: start,
                csum_offset: 16,
                ..VirtioNetHeader::default()
            };
            let offload = Offload::check(&header, &frame).unwrap();
            complete(&mut bytes, offload.checksum.unwrap());
            assert_eq!(bytes, expected);
        }
    }

    #[test]
    fn udp_omits_the_checksum_over_ipv4_only_and_a_zero_sum_is_sent_as_ones() {
        let v4 = packet("10.0.0.1", "10.0.0.2", protocol::UDP, &udp(1, 2, &[]));
        let frame = parsed(&v4);
        let mut bytes = v4.clone();
        put(&mut bytes, 24, 0);
        assert!(matches!(verify(&bytes, &frame), Err(ChecksumError::Header { .. })));
        assert_eq!(verify(&v4, &frame), Ok(()));
        let v6 = packet("2001:db8::1", "2001:db8::2", protocol::UDP, &udp(1, 2, &[]));
        assert!(verify(&v6, &parsed(&v6)).is_err());
        // The payload that makes the sum zero: the checksum of the datagram without it.
        let bytes = filled(packet("10.0.0.1", "10.0.0.2", protocol::UDP, &udp(1, 2, &[0, 0])));
        let sum = [bytes[40], bytes[41]];
        let bytes = filled(packet("10.0.0.1", "10.0.0.2", protocol::UDP, &udp(1, 2, &sum)));
        assert_eq!(bytes[40..42], [0xff, 0xff]);
    }
}
