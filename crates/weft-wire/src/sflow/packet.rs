//! Which flow a sampled packet belongs to.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{ETHERNET, IPV4, IPV6, RawHeader};
use crate::bits::U2;
use crate::{Ecn, EtherType};

/// What the first bytes of a sampled IPv4 or IPv6 packet say. Unlike [`Ipv4Header`](crate::Ipv4Header), this
/// reads packets that are cut off after those bytes, and checks no checksum: the router forwarded it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampledPacket {
    /// Who sent it.
    pub source: IpAddr,
    /// Whom it is for, of the same family.
    pub destination: IpAddr,
    /// IPv6's flow label; zero for IPv4.
    pub flow_label: u32,
    /// What follows the IPv4 header, or IPv6's header and extensions.
    pub protocol: u8,
    /// Source and destination port of UDP and TCP; zeros for anything else and for all fragments, as
    /// Linux hashes them.
    pub ports: (u16, u16),
    /// Whether it met congestion, and whether it would say so.
    pub ecn: Ecn,
}

/// Extension headers of IPv6 that say how long they are (RFC 8200, section 4), in which Linux's flow dissector
/// looks for what follows.
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const DESTINATION: u8 = 60;
/// The extension header of a fragment.
const FRAGMENT: u8 = 44;
/// Extension headers that are looked behind: each of the three once, and destination options twice.
const EXTENSIONS: usize = 4;
const TCP: u8 = 6;
const UDP: u8 = 17;
/// EtherType of a service provider's VLAN tag (IEEE 802.1ad).
const SERVICE_VLAN: EtherType = EtherType(0x88a8);
/// VLAN tags that are looked behind.
const VLAN_TAGS: usize = 2;

impl SampledPacket {
    /// The flow of a sampled header; `None` where it is not IP or is cut off before the ports.
    #[inline]
    pub fn parse(header: &RawHeader<'_>) -> Option<Self> {
        match header.protocol {
            ETHERNET => Self::behind_ethernet(header.bytes),
            IPV4 => Self::from_ipv4(header.bytes),
            IPV6 => Self::from_ipv6(header.bytes),
            _ => None,
        }
    }

    #[inline]
    fn behind_ethernet(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes.get(12..)?;
        for _ in 0..=VLAN_TAGS {
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
        // Either more fragments or not the first: the other fragments have no ports.
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
        for _ in 0..EXTENSIONS {
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
            // The low bits of the traffic class, which begins in the middle of the first byte.
            ecn: Ecn::from_number(U2::truncate((t >> 4).into())),
        })
    }
}

/// The ports with which UDP's and TCP's headers begin.
#[inline]
fn ports(protocol: u8, header: &[u8]) -> Option<(u16, u16)> {
    if !matches!(protocol, TCP | UDP) {
        return Some((0, 0));
    }
    let &[a, b, c, d] = header.first_chunk()?;
    Some((u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])))
}
