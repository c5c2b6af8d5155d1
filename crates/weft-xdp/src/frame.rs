//! Frames of UDP datagrams as bytes: Ethernet, IP and UDP headers before the payload.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use weft_wire::checksum::PseudoHeader;
use weft_wire::{
    Ecn, EtherType, EthernetHeader, Ipv4Header, Ipv4Options, Ipv6Header, MacAddr, U2, U6, U13, U20,
    UdpHeader,
};

/// The headers of a frame to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Headers {
    /// The addresses of this host's interface and of the next hop.
    pub(crate) ethernet: [MacAddr; 2],
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
    /// DSCP and ECN bits.
    pub(crate) traffic_class: u8,
    pub(crate) hop_limit: u8,
}

/// A datagram in a frame that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parsed {
    pub(crate) from: SocketAddr,
    pub(crate) traffic_class: u8,
    pub(crate) hop_limit: u8,
    /// Place of the payload in the frame.
    pub(crate) start: usize,
    pub(crate) len: usize,
}

/// Returns the bytes of headers before the payload of a datagram to `to`.
#[inline]
pub(crate) fn headers_len(to: IpAddr) -> usize {
    let ip = if to.is_ipv4() { Ipv4Header::LEN } else { Ipv6Header::LEN };
    EthernetHeader::LEN + ip + UdpHeader::LEN
}

impl Headers {
    /// Writes the headers before the payload, which is in `frame` already. The UDP checksum covers it: a receiver's
    /// kernel verifies it.
    ///
    /// # Panics
    /// If the addresses are of two families, or the payload is longer than a datagram's.
    #[inline]
    pub(crate) fn emit(&self, frame: &mut [u8]) {
        let (ethernet, packet) = frame.split_at_mut(EthernetHeader::LEN);
        let [source, destination] = self.ethernet;
        let ethertype = if self.to.is_ipv4() { EtherType::IPV4 } else { EtherType::IPV6 };
        EthernetHeader { destination, source, ethertype }.emit(ethernet);
        let pseudo = match (self.from.ip(), self.to.ip()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                self.emit_v4(source, destination, packet)
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                self.emit_v6(source, destination, packet)
            }
            (from, to) => panic!("no packet leads from {from} to {to}"),
        };
        let (header, payload) = packet
            [headers_len(self.to.ip()) - EthernetHeader::LEN - UdpHeader::LEN..]
            .split_at_mut(UdpHeader::LEN);
        let udp = UdpHeader {
            source_port: self.from.port(),
            destination_port: self.to.port(),
            payload_len: length(payload),
            checksum: 0,
        };
        udp.with_checksum(pseudo, payload).emit(header);
    }

    fn emit_v4(&self, source: Ipv4Addr, destination: Ipv4Addr, packet: &mut [u8]) -> PseudoHeader {
        let header = Ipv4Header {
            dscp: dscp(self.traffic_class),
            ecn: ecn(self.traffic_class),
            payload_len: length(&packet[Ipv4Header::LEN..]),
            identification: 0,
            // Switches hash fragments without ports, so they would leave the path.
            dont_fragment: true,
            more_fragments: false,
            fragment_offset: U13::truncate(0),
            ttl: self.hop_limit,
            protocol: UdpHeader::PROTOCOL,
            source,
            destination,
            options: Ipv4Options::default(),
        };
        header.emit(packet);
        header.pseudo_header()
    }

    fn emit_v6(&self, source: Ipv6Addr, destination: Ipv6Addr, packet: &mut [u8]) -> PseudoHeader {
        let header = Ipv6Header {
            dscp: dscp(self.traffic_class),
            ecn: ecn(self.traffic_class),
            flow_label: flow_label(self.from.port()),
            payload_len: length(&packet[Ipv6Header::LEN..]),
            next_header: UdpHeader::PROTOCOL,
            hop_limit: self.hop_limit,
            source,
            destination,
        };
        header.emit(packet);
        header.pseudo_header()
    }
}

/// Returns the datagram of a frame; `None` if the frame has none, or only its beginning. The UDP checksum is not
/// verified: between virtual interfaces a kernel sends packets whose checksum is not computed yet.
#[inline]
pub(crate) fn parse(frame: &[u8]) -> Option<Parsed> {
    let (ethernet, packet) = EthernetHeader::parse(frame).ok()?;
    let (source, traffic_class, hop_limit, ip_len, datagram) = match ethernet.ethertype {
        EtherType::IPV4 => {
            let (header, datagram) = Ipv4Header::parse(packet).ok()?;
            let class = header.dscp.get() << 2 | header.ecn.number().get();
            let len = header.header_len();
            (IpAddr::V4(header.source), class, header.ttl, len, datagram)
        }
        EtherType::IPV6 => {
            let (header, datagram) = Ipv6Header::parse(packet).ok()?;
            let class = header.dscp.get() << 2 | header.ecn.number().get();
            (IpAddr::V6(header.source), class, header.hop_limit, Ipv6Header::LEN, datagram)
        }
        _ => return None,
    };
    let (udp, payload) = UdpHeader::parse(datagram).ok()?;
    Some(Parsed {
        from: SocketAddr::new(source, udp.source_port),
        traffic_class,
        hop_limit,
        start: EthernetHeader::LEN + ip_len + UdpHeader::LEN,
        len: payload.len(),
    })
}

/// Returns a flow label that differs from path to path, as a source port does (RFC 6438). A path's packets share it.
fn flow_label(source_port: u16) -> U20 {
    // The golden ratio's bits, so that neighbouring ports differ in the high bits, too.
    U20::truncate(u32::from(source_port).wrapping_mul(0x9e37_79b1) >> 12)
}

fn dscp(traffic_class: u8) -> U6 {
    U6::truncate((traffic_class >> 2).into())
}

fn ecn(traffic_class: u8) -> Ecn {
    Ecn::from_number(U2::truncate(traffic_class.into()))
}

fn length(bytes: &[u8]) -> u16 {
    u16::try_from(bytes.len()).expect("a datagram of at most 65,535 bytes")
}

#[cfg(test)]
mod tests {
    use weft_units::Seed;

    use super::*;

    fn headers(from: &str, to: &str) -> Headers {
        Headers {
            ethernet: [MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2])],
            from: from.parse().unwrap(),
            to: to.parse().unwrap(),
            traffic_class: 0b1011_1010,
            hop_limit: 64,
        }
    }

    const PAIRS: [(&str, &str); 2] =
        [("192.0.2.1:50000", "198.51.100.2:4791"), ("[2001:db8::1]:50000", "[2001:db8:1::2]:4791")];

    #[test]
    fn a_frame_comes_back_as_it_went_with_a_valid_checksum() {
        for (from, to) in PAIRS {
            let headers = headers(from, to);
            let start = headers_len(headers.to.ip());
            let mut frame = vec![0x5a; start + 1000];
            headers.emit(&mut frame);
            let parsed = parse(&frame).unwrap();
            assert_eq!((parsed.from, parsed.start, parsed.len), (headers.from, start, 1000));
            assert_eq!((parsed.traffic_class, parsed.hop_limit), (0b1011_1010, 64));
            assert!(frame[start..].iter().all(|&byte| byte == 0x5a));
            let (_, packet) = EthernetHeader::parse(&frame).unwrap();
            let (pseudo, datagram) = match headers.to {
                SocketAddr::V4(_) => {
                    let (header, datagram) = Ipv4Header::parse(packet).unwrap();
                    (header.pseudo_header(), datagram)
                }
                SocketAddr::V6(_) => {
                    let (header, datagram) = Ipv6Header::parse(packet).unwrap();
                    (header.pseudo_header(), datagram)
                }
            };
            let (udp, payload) = UdpHeader::parse(datagram).unwrap();
            assert_eq!(udp.verify(pseudo, payload), Ok(()), "{from}");
        }
    }

    #[test]
    fn no_bytes_make_the_parser_panic_and_a_cut_frame_is_none() {
        let mut rng = Seed(1).child("frames", 0).rng();
        for (from, to) in PAIRS {
            let headers = headers(from, to);
            let mut frame = vec![0; headers_len(headers.to.ip()) + 100];
            headers.emit(&mut frame);
            assert_eq!(parse(&frame[..frame.len() - 1]), None);
            for _ in 0..10_000 {
                let mut hostile = frame.clone();
                let at = usize::try_from(rng.below(60)).unwrap();
                hostile[at] = rng.next_u64().to_be_bytes()[0];
                if let Some(parsed) = parse(&hostile) {
                    assert!(parsed.start + parsed.len <= hostile.len());
                }
            }
        }
    }

    #[test]
    fn paths_differ_in_the_flow_label() {
        let labels: std::collections::BTreeSet<u32> =
            (50_000..50_128).map(|port| flow_label(port).get()).collect();
        assert_eq!(labels.len(), 128);
    }
}
