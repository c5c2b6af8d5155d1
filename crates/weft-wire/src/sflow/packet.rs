//! The flow of a sampled packet.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{ETHERNET, IPV4, IPV6, RawHeader};
use crate::bits::U2;
use crate::{Ecn, EtherType};

/// The flow of a sampled IPv4 or IPv6 packet, from its first bytes. Unlike [`Ipv4Header`](crate::Ipv4Header),
/// it accepts truncated packets and checks no checksum, because the router forwarded the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampledPacket {
    /// Address of the sender.
    pub source: IpAddr,
    /// Address of the receiver, of the same family.
    pub destination: IpAddr,
    /// IPv6's flow label; zero for IPv4.
    pub flow_label: u32,
    /// Protocol after the IPv4 header, or after IPv6's header and extensions.
    pub protocol: u8,
    /// Source and destination port of UDP and TCP; zeros for other protocols and for all fragments, as in
    /// Linux's hash.
    pub ports: (u16, u16),
    /// The ECN codepoint.
    pub ecn: Ecn,
}

/// An extension header of IPv6 with a length field (RFC 8200, section 4); Linux's flow dissector skips this one
/// and the next two.
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const DESTINATION: u8 = 60;
/// The extension header of a fragment.
const FRAGMENT: u8 = 44;
/// Maximum number of extension headers that are skipped: each of the three once, destination options twice.
const MAX_EXTENSIONS: usize = 4;
const TCP: u8 = 6;
const UDP: u8 = 17;
/// The EtherType of a service provider's VLAN tag (IEEE 802.1ad).
const SERVICE_VLAN: EtherType = EtherType(0x88a8);
/// Maximum number of VLAN tags that are skipped.
const MAX_VLAN_TAGS: usize = 2;

impl SampledPacket {
    /// Returns the flow of a sampled header; `None` if it is not IP or is truncated before the ports.
    #[inline]
    pub fn parse(header: &RawHeader<'_>) -> Option<Self> {
        match header.protocol {
            ETHERNET => Self::from_ethernet(header.bytes),
            IPV4 => Self::from_ipv4(header.bytes),
            IPV6 => Self::from_ipv6(header.bytes),
            _ => None,
        }
    }

    #[inline]
    fn from_ethernet(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes.get(12..)?;
        for _ in 0..=MAX_VLAN_TAGS {
            let (ethertype, after) = rest.split_first_chunk()?;
            match EtherType(u16::from_be_bytes(*ethertype)) {
                EtherType::IPV4 => return Self::from_ipv4(after),
                EtherType::IPV6 => return Self::from_ipv6(after),
                EtherType::VLAN | SERVICE_VLAN => rest = after.get(2..)?,
                _ => return None,
            }
        }
        None
    }

    #[inline]
    fn from_ipv4(bytes: &[u8]) -> Option<Self> {
        let fixed: &[u8; 20] = bytes.first_chunk()?;
        let header_len = 4 * usize::from(fixed[0] & 15);
        if fixed[0] >> 4 != 4 || header_len < 20 {
            return None;
        }
        let [.., s0, s1, s2, s3, d0, d1, d2, d3] = *fixed;
        let protocol = fixed[9];
        // More-fragments bit or non-zero offset: only the first fragment has ports.
        let fragment = u16::from_be_bytes([fixed[6], fixed[7]]) & 0x3fff != 0;
        Some(Self {
            source: Ipv4Addr::new(s0, s1, s2, s3).into(),
            destination: Ipv4Addr::new(d0, d1, d2, d3).into(),
            flow_label: 0,
            protocol,
            ports: if fragment { (0, 0) } else { ports(protocol, bytes.get(header_len..)?)? },
            ecn: Ecn::from_number(U2::truncate(fixed[1].into())),
        })
    }

    #[inline]
    fn from_ipv6(bytes: &[u8]) -> Option<Self> {
        let (fixed, mut rest) = bytes.split_first_chunk::<40>()?;
        let [v, t, l0, l1, ..] = *fixed;
        if v >> 4 != 6 {
            return None;
        }
        let address = |at: usize| -> Option<IpAddr> {
            let octets: [u8; 16] = *fixed.get(at..)?.first_chunk()?;
            Some(Ipv6Addr::from(octets).into())
        };
        let mut protocol = fixed[6];
        for _ in 0..MAX_EXTENSIONS {
            if !matches!(protocol, HOP_BY_HOP | ROUTING | DESTINATION) {
                break;
            }
            let &[next, length] = rest.first_chunk()?;
            rest = rest.get(8 * (usize::from(length) + 1)..)?;
            protocol = next;
        }
        let fragment = protocol == FRAGMENT;
        if fragment {
            protocol = *rest.first()?;
        }
        Some(Self {
            source: address(8)?,
            destination: address(24)?,
            flow_label: u32::from_be_bytes([0, t & 15, l0, l1]),
            protocol,
            ports: if fragment { (0, 0) } else { ports(protocol, rest)? },
            // ECN is the low two bits of the traffic class, which begins in the middle of the first byte.
            ecn: Ecn::from_number(U2::truncate((t >> 4).into())),
        })
    }
}

/// Returns the ports at the start of UDP's and TCP's headers; zeros for other protocols.
#[inline]
fn ports(protocol: u8, header: &[u8]) -> Option<(u16, u16)> {
    if !matches!(protocol, TCP | UDP) {
        return Some((0, 0));
    }
    let &[a, b, c, d] = header.first_chunk()?;
    Some((u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])))
}
