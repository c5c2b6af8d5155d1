//! The IP and UDP headers of a datagram of which only addresses and payload are known, because a
//! socket sent or received it or the simulator passed it as a value.

use core::net::{IpAddr, SocketAddr};

use weft_wire::{Ecn, Ipv4Header, Ipv4Options, Ipv6Header, U6, U13, U20, UdpHeader};

#[expect(clippy::cast_possible_truncation, reason = "eight bytes")]
const UDP_LEN: u16 = UdpHeader::LEN as u16;

/// The fields of a datagram's IP and UDP headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Source address and port.
    pub source: SocketAddr,
    /// Destination address and port. If it is not of the same family as `source`, the IPv4 address of the two is
    /// written as an IPv4-mapped IPv6 address.
    pub destination: SocketAddr,
    /// The ECN field of the IP header.
    pub ecn: Ecn,
    /// TTL (IPv4) or hop limit (IPv6).
    pub hop_limit: u8,
    /// Length of the UDP payload in bytes, at most 65,507.
    pub payload_len: u16,
}

impl Datagram {
    /// Length of the longest headers in bytes.
    pub const MAX_LEN: usize = Ipv6Header::LEN + UdpHeader::LEN;

    /// Writes the headers over the start of `out` and returns their length in bytes. The UDP checksum
    /// is zero: none is computed.
    ///
    /// # Panics
    /// Panics if `out` is shorter than [`MAX_LEN`](Self::MAX_LEN), or if the payload is longer than a
    /// datagram can carry.
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let payload_len = UDP_LEN + self.payload_len;
        let ip_len = match (self.source.ip(), self.destination.ip()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let header = Ipv4Header {
                    dscp: U6::truncate(0),
                    ecn: self.ecn,
                    payload_len,
                    identification: 0,
                    dont_fragment: true,
                    more_fragments: false,
                    fragment_offset: U13::truncate(0),
                    ttl: self.hop_limit,
                    protocol: UdpHeader::PROTOCOL,
                    source,
                    destination,
                    options: Ipv4Options::NONE,
                };
                header.emit(out);
                header.header_len()
            }
            (source, destination) => {
                let header = Ipv6Header {
                    dscp: U6::truncate(0),
                    ecn: self.ecn,
                    flow_label: U20::truncate(0),
                    payload_len,
                    next_header: UdpHeader::PROTOCOL,
                    hop_limit: self.hop_limit,
                    source: to_ipv6(source),
                    destination: to_ipv6(destination),
                };
                header.emit(out);
                header.header_len()
            }
        };
        let udp = UdpHeader {
            source_port: self.source.port(),
            destination_port: self.destination.port(),
            payload_len: self.payload_len,
            checksum: 0,
        };
        udp.emit(&mut out[ip_len..]);
        ip_len + udp.header_len()
    }
}

fn to_ipv6(address: IpAddr) -> core::net::Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn datagram(from: &str, to: &str) -> Datagram {
        let (from, to) = (from.parse().unwrap(), to.parse().unwrap());
        Datagram {
            source: from,
            destination: to,
            ecn: Ecn::CongestionExperienced,
            hop_limit: 61,
            payload_len: 3,
        }
    }

    #[test]
    fn ipv4_comes_back() {
        let mut bytes = [0x5a; 64];
        let datagram = datagram("10.0.0.1:49152", "10.0.0.2:4791");
        assert_eq!(datagram.emit(&mut bytes), 28);
        let (ip, rest) = Ipv4Header::parse(&bytes[..31]).unwrap();
        assert_eq!((ip.ecn, ip.ttl, ip.payload_len), (Ecn::CongestionExperienced, 61, 11));
        let (udp, payload) = UdpHeader::parse(rest).unwrap();
        assert_eq!((udp.source_port, udp.destination_port), (49152, 4791));
        assert_eq!(payload, [0x5a; 3]);
    }

    #[test]
    fn ipv6_comes_back() {
        let mut bytes = [0x5a; 64];
        let datagram = datagram("[fd00::1]:49152", "[fd00::2]:4791");
        assert_eq!(datagram.emit(&mut bytes), Datagram::MAX_LEN);
        let (ip, rest) = Ipv6Header::parse(&bytes[..51]).unwrap();
        assert_eq!((ip.source, ip.hop_limit), ("fd00::1".parse().unwrap(), 61));
        assert_eq!(UdpHeader::parse(rest).unwrap().1, [0x5a; 3]);
    }
}
