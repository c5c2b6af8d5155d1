//! A host's ports: the mapping of paths to UDP source ports, and the size of a packet's frame.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};

use weft_topo::NodeId;
use weft_topo::hash::FiveTuple;
use weft_transport::ConnectionId;
use weft_transport::path::PathId;
use weft_units::{Rng, Seed};

/// UDP port on which every host receives (RoCEv2's).
pub const RECEIVE_PORT: u16 = 4791;

/// Bytes around the transport's packet: Ethernet 14 and its checksum 4, IPv4 20, UDP 8. Preamble
/// and gap are left out, as in htsim and ns-3.
pub const FRAME_OVERHEAD: u16 = 46;

/// Bytes of the transport's own headers around a message's payload.
const HEADERS: u16 = 32;

/// Bytes of Ethernet's shortest frame without its checksum, as ns-3 counts.
const MIN_FRAME: u16 = 60;

/// Returns the bytes on the wire of a packet with this much payload and these headers, where a data packet has
/// `overhead` bytes around its payload ([`TransportConfig::packet_overhead`](weft_transport::TransportConfig)).
#[inline]
pub fn frame_len(overhead: u16, header_len: u16, payload_len: u16) -> u16 {
    (overhead - HEADERS + header_len + payload_len).max(MIN_FRAME)
}

/// Returns the bytes on the wire of an ACK without holes.
pub fn ack_len(overhead: u16) -> u16 {
    frame_len(overhead, HEADERS, 0)
}

/// The first dynamic port: RoCEv2 NICs take source ports from 0xC000 on, which leaves 14 bits of entropy.
const FIRST_PORT: u16 = 0xc000;
const PORT_MASK: u32 = 0x3fff;

/// The number of dynamic ports.
pub const PORTS: u16 = 0x4000;

const FIRST_ADDRESS: u32 = 0x0a00_0000;
const UDP: u8 = 17;

/// Returns a host's receive address: 10.0.0.0 plus its number.
pub fn address(host: NodeId) -> SocketAddr {
    address_on(host, RECEIVE_PORT)
}

/// Returns a host's source address for `port`.
#[inline]
pub fn address_on(host: NodeId, port: u16) -> SocketAddr {
    SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::from_bits(FIRST_ADDRESS + host.0), port))
}

/// Returns the host with this address; `None` for an address that [`address`] never returns for one of `hosts` hosts.
#[inline]
pub fn host_at(address: SocketAddr, hosts: u32) -> Option<NodeId> {
    let IpAddr::V4(ip) = address.ip() else { return None };
    let host = u32::from(ip).wrapping_sub(FIRST_ADDRESS);
    (host < hosts).then_some(NodeId(host))
}

/// Returns the five-tuple that switches hash.
#[inline]
pub fn five_tuple(source: NodeId, destination: NodeId, source_port: u16) -> FiveTuple {
    FiveTuple {
        src: FIRST_ADDRESS + source.0,
        dst: FIRST_ADDRESS + destination.0,
        src_port: source_port,
        dst_port: RECEIVE_PORT,
        protocol: UDP,
    }
}

/// Maps the paths of a host's connections to UDP source ports.
#[derive(Debug)]
pub struct Entropy {
    key: u64,
    /// `true` if all connections of the host send a path's packets from one port.
    shared: bool,
    /// Source ports of a connection's paths, if they were planned.
    planned: BTreeMap<ConnectionId, Box<[u16]>>,
}

impl Entropy {
    /// Returns the mapping of one host.
    pub fn new(seed: Seed, shared: bool) -> Self {
        Self { key: seed.rng().next_u64(), shared, planned: BTreeMap::new() }
    }

    /// Assigns these ports to a connection's paths, in order; further paths keep theirs.
    pub fn plan(&mut self, connection: ConnectionId, ports: Box<[u16]>) {
        self.planned.insert(connection, ports);
    }

    /// Returns the source port of a path. Ports that were not planned are distinct for the up to 4096 paths of one
    /// connection, because the stride is odd; for different connections they are unrelated, or the same if shared.
    #[inline]
    pub fn source_port(&self, connection: Option<ConnectionId>, path: PathId) -> u16 {
        let ports = connection.and_then(|connection| self.planned.get(&connection));
        if let Some(&port) = ports.and_then(|ports| ports.get(usize::from(path.0))) {
            return port;
        }
        let number = connection.filter(|_| !self.shared).map_or(0, |id| u64::from(id.0) + 1);
        let mut rng = Seed(self.key ^ number.wrapping_mul(0xd134_2543_de82_ef95)).rng();
        let (base, stride) = (rng.next_u32(), rng.next_u32() | 1);
        let offset = base.wrapping_add(stride.wrapping_mul(u32::from(path.0))) & PORT_MASK;
        FIRST_PORT | u16::try_from(offset).expect("masked to 14 bits")
    }
}

/// The small irregularity of a host's sending: the time a frame spends between the NIC's queue and the far end of its
/// cable varies by up to `bound` picoseconds, without reordering.
///
/// Without it, senders of one rate meet at a switch at the same picosecond, or a constant few picoseconds apart, and a
/// full queue always serves the same one first. In htsim's derivatives one sender got every free slot and the other
/// every drop. This is the phase effect of Floyd and Jacobson (1992), and this is their remedy.
#[derive(Debug)]
pub struct Jitter {
    bound: u64,
    rng: Rng,
}

impl Jitter {
    /// Returns draws of up to `bound_picos`; zero draws nothing.
    pub fn new(bound_picos: u64, seed: Seed) -> Self {
        Self { bound: bound_picos, rng: seed.rng() }
    }

    /// Returns the next delay, picoseconds.
    #[inline]
    pub fn draw(&mut self) -> u64 {
        if self.bound == 0 { 0 } else { self.rng.below(self.bound) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_name_hosts_and_nothing_else() {
        assert_eq!(host_at(address(NodeId(300)), 301), Some(NodeId(300)));
        assert_eq!(host_at(address(NodeId(300)), 300), None);
        assert_eq!(host_at("9.255.255.255:4791".parse().unwrap(), 300), None);
        assert_eq!(host_at("[::1]:4791".parse().unwrap(), 300), None);
    }

    #[test]
    fn the_paths_of_a_connection_have_different_ports_from_the_dynamic_range() {
        let entropy = Entropy::new(Seed(3), false);
        for connection in [None, Some(ConnectionId(0)), Some(ConnectionId(77))] {
            let mut ports: Vec<_> =
                (0..4096).map(|path| entropy.source_port(connection, PathId(path))).collect();
            assert!(ports.iter().all(|&port| port >= 0xc000));
            ports.sort_unstable();
            ports.dedup();
            assert_eq!(ports.len(), 4096);
        }
    }

    #[test]
    fn connections_share_their_ports_only_if_configured() {
        let ports_of_100 = |shared: bool| {
            let entropy = Entropy::new(Seed(3), shared);
            let first = |id| entropy.source_port(Some(ConnectionId(id)), PathId(0));
            let mut ports: Vec<_> = (0..100).map(first).collect();
            ports.sort_unstable();
            ports.dedup();
            ports.len()
        };
        assert!(ports_of_100(false) > 95, "{} different ports of 100", ports_of_100(false));
        assert_eq!(ports_of_100(true), 1);
    }
}
