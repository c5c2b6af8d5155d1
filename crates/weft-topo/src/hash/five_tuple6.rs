//! The fields of an IPv6 packet that a switch hashes.

use core::net::Ipv6Addr;

/// An IPv6 flow: addresses, ports and protocol, and its flow label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FiveTuple6 {
    /// Source address.
    pub src: Ipv6Addr,
    /// Destination address.
    pub dst: Ipv6Addr,
    /// Flow label, 20 bits (RFC 6437). Only Linux hashes it, and only if its policy includes it.
    pub flow_label: u32,
    /// Source port: the path's entropy.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// The protocol after the IPv6 header: 17 for UDP, 6 for TCP.
    pub protocol: u8,
}

impl FiveTuple6 {
    /// Length of [`Self::to_bytes`] in bytes.
    pub const LEN: usize = 37;

    /// Returns source, destination, source port, destination port and protocol, each in network order.
    /// All functions except Linux's hash the tuple in this order, as for IPv4.
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..16].copy_from_slice(&self.src.octets());
        bytes[16..32].copy_from_slice(&self.dst.octets());
        bytes[32..34].copy_from_slice(&self.src_port.to_be_bytes());
        bytes[34..36].copy_from_slice(&self.dst_port.to_be_bytes());
        bytes[36] = self.protocol;
        bytes
    }
}
