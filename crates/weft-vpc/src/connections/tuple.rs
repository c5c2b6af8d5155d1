//! The key of a connection, the same in both directions.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::acl::{Headers, Upper};
use crate::{Icmp, Ip, Transport, protocol};

/// One end: an address, and a port or the ICMP identifier.
type End = (IpAddr, u16);

/// A protocol and two ends, the lower one first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tuple {
    protocol: u8,
    ends: [End; 2],
}

/// One of a tuple's two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Low,
    High,
}

impl Tuple {
    fn new(protocol: u8, source: End, destination: End) -> (Self, Side) {
        match source <= destination {
            true => (Self { protocol, ends: [source, destination] }, Side::Low),
            false => (Self { protocol, ends: [destination, source] }, Side::High),
        }
    }

    /// Returns the tuple of a packet and its sender's side; `None` for later fragments and for ICMP messages that
    /// are neither request nor reply.
    pub(crate) fn of(ip: &Ip) -> Option<(Self, Side)> {
        let (source, destination) = match ip.transport {
            Transport::Tcp(tcp) => (tcp.source, tcp.destination),
            Transport::Udp(udp) => (udp.source, udp.destination),
            Transport::Icmp(icmp) => {
                query(ip.protocol, icmp.kind)?;
                (icmp.identifier, icmp.identifier)
            }
            Transport::Other => (0, 0),
            Transport::LaterFragment => return None,
        };
        Some(Self::new(ip.protocol, (ip.source, source), (ip.destination, destination)))
    }

    pub(crate) const fn protocol(&self) -> u8 {
        self.protocol
    }

    pub(crate) const fn ends(&self) -> [End; 2] {
        self.ends
    }

    /// Returns the fields that rules match in a packet with which `originator` begins the connection.
    pub(crate) fn headers(&self, originator: Side) -> Headers {
        let [low, high] = self.ends;
        let (from, to) = match originator {
            Side::Low => (low, high),
            Side::High => (high, low),
        };
        let upper = match self.protocol {
            protocol::TCP | protocol::UDP => Upper::Ports { source: from.1, destination: to.1 },
            protocol::ICMP => Upper::Icmp { kind: 8, code: 0 },
            protocol::ICMPV6 => Upper::Icmp { kind: 128, code: 0 },
            _ => Upper::Nothing,
        };
        Headers { source: from.0, destination: to.0, protocol: self.protocol, upper }
    }

    pub(crate) const fn is_icmp(&self) -> bool {
        matches!(self.protocol, protocol::ICMP | protocol::ICMPV6)
    }
}

/// Returns `true` for an ICMP request and `false` for a reply of echo, timestamp, information and mask
/// (RFC 792; RFC 950; RFC 4443); `None` for errors and all other messages.
pub(crate) const fn query(protocol: u8, kind: u8) -> Option<bool> {
    match (protocol, kind) {
        (protocol::ICMP, 8 | 13 | 15 | 17) | (protocol::ICMPV6, 128) => Some(true),
        (protocol::ICMP, 0 | 14 | 16 | 18) | (protocol::ICMPV6, 129) => Some(false),
        _ => None,
    }
}

/// Returns `true` if an ICMP message reports that a packet was not delivered (RFC 792; RFC 4443).
const fn is_error(protocol: u8, icmp: Icmp) -> bool {
    match protocol {
        protocol::ICMP => matches!(icmp.kind, 3 | 4 | 11 | 12),
        _ => matches!(icmp.kind, 1..=4),
    }
}

/// Returns the connection of the packet that an ICMP error quotes, if the receiver of the error sent that packet:
/// the error is of no use to any other receiver.
pub(crate) fn quoted(ip: &Ip, bytes: &[u8]) -> Option<Tuple> {
    let Transport::Icmp(icmp) = ip.transport else { return None };
    if !is_error(ip.protocol, icmp) {
        return None;
    }
    let start = usize::from(ip.transport_offset);
    let end = bytes.len().min(start + usize::from(ip.transport_len));
    let quote = bytes.get(start + 8..end)?;
    let (protocol, source, destination, rest): (_, IpAddr, IpAddr, _) = match ip.source {
        IpAddr::V4(_) => {
            let (header, _) = quote.split_first_chunk::<20>()?;
            let &[ihl, .., s0, s1, s2, s3, d0, d1, d2, d3] = header;
            let rest = quote.get(4 * usize::from(ihl & 0xf).max(5)..)?;
            let later = header[6] & 0x1f != 0 || header[7] != 0;
            if ihl >> 4 != 4 || later {
                return None;
            }
            let source = Ipv4Addr::new(s0, s1, s2, s3).into();
            (header[9], source, Ipv4Addr::new(d0, d1, d2, d3).into(), rest)
        }
        IpAddr::V6(_) => {
            let (header, rest) = quote.split_first_chunk::<40>()?;
            let (_, addresses) = header.split_first_chunk::<8>()?;
            let (source, destination) = addresses.split_first_chunk::<16>()?;
            let destination: [u8; 16] = destination.try_into().ok()?;
            if header[0] >> 4 != 6 {
                return None;
            }
            (header[6], Ipv6Addr::from(*source).into(), Ipv6Addr::from(destination).into(), rest)
        }
    };
    if source != ip.destination {
        return None;
    }
    let port = |at: usize| {
        let port = rest.get(at..at + 2)?;
        Some(u16::from_be_bytes([port[0], port[1]]))
    };
    let (from, to) = match protocol {
        protocol::TCP | protocol::UDP => (port(0)?, port(2)?),
        protocol::ICMP | protocol::ICMPV6 => {
            query(protocol, *rest.first()?)?;
            (port(4)?, port(4)?)
        }
        _ => (0, 0),
    };
    Some(Tuple::new(protocol, (source, from), (destination, to)).0)
}
