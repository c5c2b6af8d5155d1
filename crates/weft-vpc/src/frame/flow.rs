//! The flow of a frame: the unit within which a network must not reorder (RFC 7348, section 5; RFC 2992).

use core::net::IpAddr;

use weft_units::Fnv1a;

use super::{Frame, Transport};

impl Frame {
    /// Returns a hash of the frame's addresses, protocol and ports: equal for all frames of a tenant's flow in one
    /// direction, and rarely equal for two flows. Fragments are hashed without ports, which only the first has.
    pub fn flow_hash(&self) -> u32 {
        self.hash_of(|ends| ends)
    }

    /// Returns a hash that is equal for all frames of a tenant's flow in both directions, and otherwise like
    /// [`flow_hash`](Self::flow_hash).
    pub fn two_way_flow_hash(&self) -> u32 {
        fn ordered<T: Ord>([a, b]: [T; 2]) -> [T; 2] {
            if a <= b { [a, b] } else { [b, a] }
        }
        match self.ip() {
            Some(_) => self.hash_of(ordered),
            None => {
                let [a, b] = ordered([self.source, self.destination]);
                scatter(Fnv1a::new().with(a.0).with(b.0).finish())
            }
        }
    }

    /// Returns the hash of the flow's ends in the order that `arrange` returns.
    fn hash_of(&self, arrange: impl Fn([(IpAddr, u16); 2]) -> [(IpAddr, u16); 2]) -> u32 {
        // FNV-1a: a frame hashes few bytes, and an attacker gains nothing by a collision.
        let mut hash = Fnv1a::new();
        let mut mix = |bytes: &[u8]| hash = hash.with(bytes.iter().copied());
        if let Some(ip) = self.ip() {
            let ports = match ip.transport {
                _ if ip.fragment.is_some() => (0, 0),
                Transport::Tcp(tcp) => (tcp.source, tcp.destination),
                Transport::Udp(udp) => (udp.source, udp.destination),
                _ => (0, 0),
            };
            let ends = arrange([(ip.source, ports.0), (ip.destination, ports.1)]);
            for (address, _) in ends {
                match address {
                    IpAddr::V4(address) => mix(&address.octets()),
                    IpAddr::V6(address) => mix(&address.octets()),
                }
            }
            mix(&[ip.protocol]);
            for (_, port) in ends {
                mix(&port.to_be_bytes());
            }
        } else {
            mix(&self.source.0);
            mix(&self.destination.0);
        }
        scatter(hash.finish())
    }
}

/// Mixes a hash so that each of its bits affects each bit of the result: FNV-1a alone carries the last bytes, a
/// client's port, into few bits, and the flows of a server's clients would all take one path. This is the first step of
/// the 64-bit finalizer of MurmurHash3.
fn scatter(hash: u64) -> u32 {
    ((hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;

    use crate::TcpFlags;
    use crate::example::{ethernet, packet, parsed, tcp, udp};
    use crate::frame::protocol;
    use weft_wire::EtherType;

    #[test]
    fn frames_with_the_same_addresses_protocol_and_ports_are_one_flow() {
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
    fn the_clients_of_a_server_are_spread_both_ways() {
        // Linux assigns even ports to clients, one after the other.
        let clients = (0..200).map(|client| 32_768 + 2 * client);
        for to_server in [true, false] {
            let mut paths = BTreeMap::<u32, u32>::new();
            for client in clients.clone() {
                let ports = if to_server { (client, 6379) } else { (6379, client) };
                let segment = tcp(ports, TcpFlags(0x10), &[], b"");
                let frame = parsed(&packet("10.0.0.1", "10.0.0.2", protocol::TCP, &segment));
                *paths.entry(frame.flow_hash() % 8).or_default() += 1;
            }
            // 25 on average; a deviation past four standard deviations is not chance.
            assert_eq!(paths.len(), 8, "{paths:?}");
            assert!(paths.values().all(|flows| (6..=44).contains(flows)), "{paths:?}");
        }
    }

    #[test]
    fn both_directions_of_a_flow_have_the_same_two_way_hash() {
        let flow = |from: &str, to: &str, ports| {
            let segment = tcp(ports, TcpFlags(0x10), &[], b"");
            parsed(&packet(from, to, protocol::TCP, &segment)).two_way_flow_hash()
        };
        let (a, b) = ("10.0.0.1", "10.0.0.2");
        assert_eq!(flow(a, b, (1000, 80)), flow(b, a, (80, 1000)));
        assert_ne!(flow(a, b, (1000, 80)), flow(a, b, (80, 1000)));
        assert_ne!(flow(a, b, (1000, 80)), flow(b, a, (80, 1001)));
        let mut queues = BTreeMap::<u32, u32>::new();
        for client in (0..200).map(|client| 32_768 + 2 * client) {
            *queues.entry(flow(a, b, (client, 6379)) % 4).or_default() += 1;
        }
        // 50 on average; a deviation past four standard deviations is not chance.
        assert!(queues.len() == 4 && queues.values().all(|flows| (26..=74).contains(flows)));
    }

    #[test]
    fn frames_without_ip_are_one_flow() {
        let hash = |payload: &[u8]| parsed(&ethernet(EtherType(0x88b5), payload)).flow_hash();
        assert_eq!(hash(b"one"), hash(b"another"));
    }
}
