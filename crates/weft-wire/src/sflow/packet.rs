//! Which flow a sampled packet belongs to.

use core::net::Ipv4Addr;

use super::{ETHERNET, IPV4, RawHeader};
use crate::bits::U2;
use crate::{Ecn, EtherType};

/// What the first bytes of a sampled IPv4 packet say. Unlike [`Ipv4Header`](crate::Ipv4Header), this reads
/// packets that are cut off after those bytes, and checks no checksum: the router forwarded it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampledPacket {
    /// Who sent it.
    pub source: Ipv4Addr,
    /// Whom it is for.
    pub destination: Ipv4Addr,
    /// What follows the IPv4 header.
    pub protocol: u8,
    /// Source and destination port of UDP and TCP; zeros for anything else and for all fragments, as
    /// Linux hashes them.
    pub ports: (u16, u16),
    /// Whether it met congestion, and whether it would say so.
    pub ecn: Ecn,
}

const TCP: u8 = 6;
const UDP: u8 = 17;
/// EtherType of a service provider's VLAN tag (IEEE 802.1ad).
const SERVICE_VLAN: EtherType = EtherType(0x88a8);
/// VLAN tags that are looked behind.
const VLAN_TAGS: usize = 2;

impl SampledPacket {
    /// The flow of a sampled header; `None` where it is not IPv4 or is cut off before the ports.
    #[inline]
    pub fn parse(header: &RawHeader<'_>) -> Option<Self> {
        match header.protocol {
            ETHERNET => Self::behind_ethernet(header.bytes),
            IPV4 => Self::from_ipv4(header.bytes),
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
        let ports = if matches!(protocol, TCP | UDP) && !fragment {
            let &[a, b, c, d] = bytes.get(header_len..)?.first_chunk()?;
            (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]))
        } else {
            (0, 0)
        };
        Some(Self {
            source: Ipv4Addr::new(s0, s1, s2, s3),
            destination: Ipv4Addr::new(d0, d1, d2, d3),
            protocol,
            ports,
            ecn: Ecn::from_number(U2::truncate(fixed[1].into())),
        })
    }
}
