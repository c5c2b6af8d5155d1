//! Packets that a switch cut, as a packet socket or XDP sees them: lengths and checksums are often still those of the whole
//! packet, so the strict parsers refuse them and kernels drop them (`docs/design/trimming.md`).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::{Ipv4Header, Ipv6Header, ParseError, U6, UdpHeader};

/// A UDP datagram of which the beginning arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CutDatagram<'a> {
    /// The address of the sender.
    pub source: IpAddr,
    /// The address of the receiver.
    pub destination: IpAddr,
    /// The source port: the entropy of the packet's path.
    pub source_port: u16,
    /// The destination port.
    pub destination_port: u16,
    /// The forwarding class: a switch that cuts packets gives them one of their own, which may say where it is.
    pub dscp: U6,
    /// Bytes of the datagram that are missing, by the length in the UDP header. Zero if it is whole, or if the switch wrote
    /// the new length there: then only [`dscp`](Self::dscp) shows the cut.
    pub missing: u16,
    /// The bytes that arrived of the datagram's payload.
    pub bytes: &'a [u8],
}

const IPV4_PROTOCOL: usize = 9;
const IPV6_NEXT_HEADER: usize = 6;
/// The flag and the offset of fragments, of the IPv4 word at byte 6.
const FRAGMENT: u16 = 0x3fff;

fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn octets<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("the caller checked the length")
}

/// The parts of an IP header that a cut leaves valid.
struct Ip {
    header_len: usize,
    /// Length of the payload by this header.
    payload_len: usize,
    protocol: u8,
    traffic_class: u8,
    source: IpAddr,
    destination: IpAddr,
}

impl Ip {
    fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let version = bytes.first().map(|first| first >> 4);
        let least = if version == Some(6) { Ipv6Header::LEN } else { Ipv4Header::LEN };
        if bytes.len() < least {
            return Err(ParseError::Truncated { needed: least, got: bytes.len() });
        }
        if version == Some(6) {
            return Ok(Self {
                header_len: Ipv6Header::LEN,
                payload_len: word(bytes, 4).into(),
                protocol: bytes[IPV6_NEXT_HEADER],
                traffic_class: (word(bytes, 0) >> 4 & 0xff) as u8,
                source: Ipv6Addr::from(octets::<16>(bytes, 8)).into(),
                destination: Ipv6Addr::from(octets::<16>(bytes, 24)).into(),
            });
        }
        let header_len = 4 * usize::from(bytes[0] & 0xf);
        if version != Some(4) {
            return Err(ParseError::WrongIpVersion { expected: 4, got: bytes[0] >> 4 });
        }
        if header_len < Ipv4Header::LEN {
            return Err(ParseError::LengthTooSmall { min: Ipv4Header::LEN, got: header_len });
        }
        // A later fragment has no UDP header, and a first one is not cut by a switch.
        let is_fragment = word(bytes, 6) & FRAGMENT != 0;
        Ok(Self {
            header_len,
            payload_len: usize::from(word(bytes, 2)).saturating_sub(header_len),
            protocol: if is_fragment { 0 } else { bytes[IPV4_PROTOCOL] },
            traffic_class: bytes[1],
            source: Ipv4Addr::from(octets::<4>(bytes, 12)).into(),
            destination: Ipv4Addr::from(octets::<4>(bytes, 16)).into(),
        })
    }
}

impl<'a> CutDatagram<'a> {
    /// Reads an IP packet whose end may be missing. Checksums are not verified: a switch that cuts a packet need not compute
    /// them again, and the UDP checksum covers bytes that are gone. Bytes beyond either length, such as Ethernet's padding,
    /// are left out. `None` if the packet is not UDP or is a fragment.
    ///
    /// # Errors
    /// `Truncated` if bytes of the IP or the UDP header are missing, `WrongIpVersion`, or `LengthTooSmall` if a length does
    /// not cover its header.
    pub fn parse(packet: &'a [u8]) -> Result<Option<Self>, ParseError> {
        let ip = Ip::parse(packet)?;
        if ip.protocol != UdpHeader::PROTOCOL {
            return Ok(None);
        }
        let needed = ip.header_len + UdpHeader::LEN;
        if packet.len() < needed {
            return Err(ParseError::Truncated { needed, got: packet.len() });
        }
        let udp = &packet[ip.header_len..];
        let announced = usize::from(word(udp, 4));
        if announced < UdpHeader::LEN {
            return Err(ParseError::LengthTooSmall { min: UdpHeader::LEN, got: announced });
        }
        let arrived = udp.len().min(ip.payload_len.max(UdpHeader::LEN)).min(announced);
        Ok(Some(Self {
            source: ip.source,
            destination: ip.destination,
            source_port: word(udp, 0),
            destination_port: word(udp, 2),
            dscp: U6::truncate((ip.traffic_class >> 2).into()),
            missing: u16::try_from(announced - arrived).expect("lengths have 16 bits"),
            bytes: &udp[UdpHeader::LEN..arrived],
        }))
    }
}

#[cfg(test)]
mod tests;
