//! The packets of an interface. With segmentation offload, the kernel delivers several datagrams as one packet of up to
//! 64 KiB with one set of headers; this module returns each datagram separately, as on the wire.

use std::fs;
use std::io;

use weft_units::Duration;
use weft_wire::{
    EtherType, EthernetHeader, Ipv4Header, Ipv6Header, Packet, SealedHeader, UdpHeader,
};

#[expect(unsafe_code, reason = "packet sockets and their control messages have no safe form")]
mod socket;

use socket::PacketSocket;

/// Maximum length of the headers, bytes: Ethernet, IPv4 with options or IPv6, UDP.
const MAX_HEADERS: usize = EthernetHeader::LEN + Ipv4Header::MAX_LEN + UdpHeader::LEN;

/// The values of `/sys/class/net/NAME/type` for Ethernet and for the loopback, which has Ethernet
/// headers (`if_arp.h`).
const WITH_ETHERNET_HEADERS: [&str; 2] = ["1", "772"];

/// An error of [`Sniffer::open`].
#[derive(Debug, thiserror::Error)]
pub enum SnifferError {
    /// The interface does not exist.
    #[error("no interface {name}; `ip -brief link` lists them")]
    NoInterface {
        /// The requested name.
        name: String,
    },
    /// Packets of the interface have no Ethernet header.
    #[error("{name} carries no Ethernet frames; name an Ethernet interface, or lo")]
    NoEthernet {
        /// The requested name.
        name: String,
    },
    /// The kernel refused the packet socket.
    #[error("cannot listen to {name}: {cause}; it takes root or CAP_NET_RAW")]
    Refused {
        /// The requested name.
        name: String,
        /// The kernel's error.
        cause: io::Error,
    },
}

/// A datagram of the transport, as it was on the wire.
#[derive(Clone, Copy, Debug)]
pub struct Sniffed<'a> {
    /// The kernel's wall-clock time of the packet, nanoseconds since 1970; zero if it gave none.
    pub time_ns: u64,
    /// `true` if this machine sent it.
    pub outgoing: bool,
    /// Ethernet, IP and UDP headers.
    pub headers: &'a [u8],
    /// The UDP payload.
    pub payload: &'a [u8],
}

/// A listener on an interface.
#[derive(Debug)]
pub struct Sniffer {
    socket: PacketSocket,
    /// The UDP port from or to which packets match, whatever their contents; `None` for the transport's packets.
    port: Option<u16>,
    /// `true` for the loopback, at which each packet that leaves arrives again.
    is_loopback: bool,
}

impl Sniffer {
    /// Opens a listener on the interface `name`: for all packets of a UDP port, or for those of the transport.
    ///
    /// # Errors
    /// Returns `NoInterface` or `NoEthernet` for the name, `Refused` if the kernel refuses the socket.
    pub fn open(name: &str, port: Option<u16>) -> Result<Self, SnifferError> {
        let read = |file: &str| match name.contains('/') {
            true => None,
            false => fs::read_to_string(format!("/sys/class/net/{name}/{file}")).ok(),
        };
        let (kind, index) = (read("type"), read("ifindex"));
        let index = index.and_then(|index| index.trim().parse().ok());
        let (Some(kind), Some(index)) = (kind, index) else {
            return Err(SnifferError::NoInterface { name: name.to_owned() });
        };
        if !WITH_ETHERNET_HEADERS.contains(&kind.trim()) {
            return Err(SnifferError::NoEthernet { name: name.to_owned() });
        }
        let socket = PacketSocket::open(index)
            .map_err(|cause| SnifferError::Refused { name: name.to_owned(), cause })?;
        Ok(Self { socket, port, is_loopback: kind.trim() == WITH_ETHERNET_HEADERS[1] })
    }

    /// Waits for packets for at most `within` and calls `observe` with each matching datagram.
    ///
    /// # Errors
    /// Returns the kernel's error, such as that the interface went down.
    pub fn listen(
        &mut self,
        within: Duration,
        mut observe: impl FnMut(Sniffed<'_>),
    ) -> io::Result<()> {
        if !self.socket.wait(within)? {
            return Ok(());
        }
        while let Some(frame) = self.socket.receive()? {
            if self.is_loopback && frame.outgoing {
                continue;
            }
            let (time_ns, outgoing, port) = (frame.time_ns, frame.outgoing, self.port);
            split(frame.bytes, frame.segment, |headers, payload| {
                if matches(port, headers, payload) {
                    observe(Sniffed { time_ns, outgoing, headers, payload });
                }
            });
        }
        Ok(())
    }

    /// Returns the number of packets that the kernel dropped since the last call because the buffer was full.
    ///
    /// # Errors
    /// Returns the kernel's error.
    pub fn dropped(&self) -> io::Result<u32> {
        self.socket.dropped()
    }
}

/// Returns `true` if a datagram matches: its port, or without a port, its contents.
fn matches(port: Option<u16>, headers: &[u8], payload: &[u8]) -> bool {
    let Some(port) = port else { return Packet::parse(payload).is_ok() || is_sealed(payload) };
    let udp = &headers[headers.len() - UdpHeader::LEN..];
    udp[..4].as_chunks().0.iter().any(|bytes| u16::from_be_bytes(*bytes) == port)
}

/// Returns `true` if a datagram of the transport is encrypted.
pub fn is_sealed(payload: &[u8]) -> bool {
    let sealed = SealedHeader::parse(payload);
    sealed.is_ok_and(|(_, rest)| rest.len() >= SealedHeader::TAG_LEN)
}

/// Calls `each` with the headers and the payload of every datagram of a frame; never if the frame is not UDP. `segment`
/// is the payload length of each datagram but the last.
fn split(frame: &[u8], segment: Option<u16>, mut each: impl FnMut(&[u8], &[u8])) {
    let Some(layers) = Layers::parse(frame) else { return };
    let segment = segment.map_or(usize::MAX, usize::from).clamp(1, layers.payload.len().max(1));
    let mut headers = [0; MAX_HEADERS];
    let headers = &mut headers[..layers.headers_len()];
    if layers.payload.len() <= segment {
        return each(&frame[..layers.headers_len()], layers.payload);
    }
    for payload in layers.payload.chunks(segment) {
        layers.emit(headers, payload);
        each(headers, payload);
    }
}

/// The headers and the payload of a datagram.
struct Layers<'a> {
    ethernet: EthernetHeader,
    ip: Ip,
    udp: UdpHeader,
    payload: &'a [u8],
}

enum Ip {
    Four(Ipv4Header),
    Six(Ipv6Header),
}

impl<'a> Layers<'a> {
    fn parse(frame: &'a [u8]) -> Option<Self> {
        let (ethernet, rest) = EthernetHeader::parse(frame).ok()?;
        let (ip, protocol, rest) = if ethernet.ethertype == EtherType::IPV6 {
            let (ip, rest) = Ipv6Header::parse(rest).ok()?;
            (Ip::Six(ip), ip.next_header, rest)
        } else {
            // Other ethertypes are rejected by the IP version.
            let (ip, rest) = Ipv4Header::parse(rest).ok()?;
            (Ip::Four(ip), ip.protocol, rest)
        };
        if protocol != UdpHeader::PROTOCOL {
            return None;
        }
        let (udp, payload) = UdpHeader::parse(rest).ok()?;
        Some(Self { ethernet, ip, udp, payload })
    }

    fn headers_len(&self) -> usize {
        let ip = match &self.ip {
            Ip::Four(ip) => ip.header_len(),
            Ip::Six(ip) => ip.header_len(),
        };
        EthernetHeader::LEN + ip + UdpHeader::LEN
    }

    /// Writes these headers with the lengths of one datagram, as the NIC does. The UDP checksum is zero, because the
    /// NIC computes it later.
    fn emit(&self, out: &mut [u8], payload: &[u8]) {
        let payload_len = u16::try_from(payload.len()).expect("a part of a datagram");
        let ip_payload_len = payload_len + 8;
        self.ethernet.emit(out);
        let out = &mut out[EthernetHeader::LEN..];
        let out = match self.ip {
            Ip::Four(ip) => {
                Ipv4Header { payload_len: ip_payload_len, ..ip }.emit(out);
                &mut out[ip.header_len()..]
            }
            Ip::Six(ip) => {
                Ipv6Header { payload_len: ip_payload_len, ..ip }.emit(out);
                &mut out[ip.header_len()..]
            }
        };
        UdpHeader { payload_len, checksum: 0, ..self.udp }.emit(out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_trace::Datagram;
    use weft_wire::{Ecn, MacAddr};

    /// Returns a frame with `payload` for port 4791.
    fn frame(ipv6: bool, payload: &[u8]) -> Vec<u8> {
        let (from, to) = match ipv6 {
            false => ("10.0.0.1:50000", "10.0.0.2:4791"),
            true => ("[fd00::1]:50000", "[fd00::2]:4791"),
        };
        let ethertype = if ipv6 { EtherType::IPV6 } else { EtherType::IPV4 };
        let ethernet =
            EthernetHeader { destination: MacAddr([2; 6]), source: MacAddr([3; 6]), ethertype };
        let datagram = Datagram {
            source: from.parse().unwrap(),
            destination: to.parse().unwrap(),
            ecn: Ecn::Capable0,
            hop_limit: 64,
            payload_len: payload.len().try_into().unwrap(),
        };
        let mut frame = vec![0; MAX_HEADERS];
        ethernet.emit(&mut frame);
        let len = EthernetHeader::LEN + datagram.emit(&mut frame[EthernetHeader::LEN..]);
        frame.truncate(len);
        frame.extend(payload);
        frame
    }

    #[test]
    fn a_large_packet_is_split_into_the_datagrams_on_the_wire() {
        for ipv6 in [false, true] {
            let payload: Vec<u8> = (0..250).collect();
            let mut pieces = Vec::new();
            split(&frame(ipv6, &payload), Some(100), |headers, payload| {
                // The result is a whole frame again.
                assert_eq!(Layers::parse(&[headers, payload].concat()).unwrap().payload, payload);
                assert_eq!(headers, &frame(ipv6, payload)[..headers.len()]);
                pieces.push(payload.to_vec());
            });
            assert_eq!(pieces, payload.chunks(100).map(<[u8]>::to_vec).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_small_packet_is_one_datagram() {
        let whole = frame(false, b"hello");
        let mut count = 0;
        split(&whole, None, |headers, payload| {
            assert_eq!([headers, payload].concat(), whole);
            count += 1;
        });
        assert_eq!(count, 1);
    }

    #[test]
    fn encrypted_packets_match_and_shorter_or_invalid_ones_do_not() {
        let mut sealed = [0; SealedHeader::OVERHEAD];
        SealedHeader::default().emit(&mut sealed);
        assert!(matches(None, &[], &sealed));
        assert!(!matches(None, &[], &sealed[..SealedHeader::OVERHEAD - 1]));
        sealed[3] = 0xff;
        assert!(!matches(None, &[], &sealed));
    }

    #[test]
    fn damaged_frames_never_panic() {
        let whole = frame(false, &[7; 100]);
        for len in 0..whole.len() {
            split(&whole[..len], Some(10), |_, _| panic!("{len} bytes are not the whole frame"));
        }
        for byte in 0..whole.len() {
            for bit in 0..8 {
                let mut broken = whole.clone();
                broken[byte] ^= 1 << bit;
                split(&broken, Some(10), |_, payload| assert!(payload.len() <= 10));
            }
        }
    }

    #[test]
    fn an_interface_that_does_not_exist_is_named() {
        let error = Sniffer::open("no-such-0", None).unwrap_err().to_string();
        assert!(error.contains("no interface no-such-0"), "{error}");
        let error = Sniffer::open("../../etc", None).unwrap_err().to_string();
        assert!(error.contains("no interface"), "{error}");
    }
}
