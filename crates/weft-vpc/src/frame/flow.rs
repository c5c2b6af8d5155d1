//! Which frames belong together: what a network must not reorder (RFC 7348, section 5; RFC 2992).

use core::net::IpAddr;

use super::{Frame, Transport};

impl Frame {
    /// A number that all frames of a tenant's flow have, in one direction, and few others: of its
    /// addresses, protocol and ports. Parts of a packet count without ports, which only the first has.
    pub fn flow_hash(&self) -> u32 {
        // FNV-1a: a few bytes a frame, and no enemy gains by a collision.
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        let mut mix = |bytes: &[u8]| {
            for &byte in bytes {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
        };
        if let Some(ip) = self.ip() {
            for address in [ip.source, ip.destination] {
                match address {
                    IpAddr::V4(address) => mix(&address.octets()),
                    IpAddr::V6(address) => mix(&address.octets()),
                }
            }
            mix(&[ip.protocol]);
            let ports = match ip.transport {
                _ if ip.fragment.is_some() => (0, 0),
                Transport::Tcp(tcp) => (tcp.source, tcp.destination),
                Transport::Udp(udp) => (udp.source, udp.destination),
                _ => (0, 0),
            };
            mix(&ports.0.to_be_bytes());
            mix(&ports.1.to_be_bytes());
        } else {
            mix(&self.source.0);
            mix(&self.destination.0);
        }
        (hash >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use crate::TcpFlags;
    use crate::example::{ethernet, packet, parsed, tcp, udp};
    use crate::frame::protocol;
    use weft_wire::EtherType;

    #[test]
    fn a_flow_is_what_has_the_same_addresses_protocol_and_ports() {
        let flow = |ports, payload: &[u8]| {
            let segment = tcp(ports, TcpFlags(0x10), &[], payload);
            parsed(&packet("10.0.0.1", "10.0.0.2", protocol::TCP, &segment)).flow_hash()
        };
        assert_eq!(flow((1000, 80), b"one"), flow((1000, 80), b"another"));
        assert_ne!(flow((1000, 80), b""), flow((1001, 80), b""));
        assert_ne!(flow((1000, 80), b""), flow((80, 1000), b""));
        let datagram = packet("10.0.0.1", "10.0.0.2", protocol::UDP, &udp(1000, 80, b""));
        assert_ne!(flow((1000, 80), b""), parsed(&datagram).flow_hash());
    }

    #[test]
    fn frames_without_ip_are_one_flow() {
        let hash = |payload: &[u8]| parsed(&ethernet(EtherType(0x88b5), payload)).flow_hash();
        assert_eq!(hash(b"one"), hash(b"another"));
    }
}
