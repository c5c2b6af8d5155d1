//! The fields of an IPv6 packet that a switch hashes.

use core::net::Ipv6Addr;

use super::{Function, SwitchHash, linux, modulo, rotate_right};

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

impl SwitchHash {
    /// Returns [`value`](Self::value) for an IPv6 packet.
    pub fn value6(&self, tuple: &FiveTuple6) -> u32 {
        match self.algorithm.function() {
            Function::Affine { width, hash } => {
                rotate_right(hash(self.seed, &tuple.to_bytes()), self.rotate, width)
            }
            Function::Linux(policy) => linux::multipath_hash6(policy, self.seed, tuple),
        }
    }

    /// Returns [`select`](Self::select) for an IPv6 packet.
    ///
    /// # Panics
    /// Panics if `count` is zero.
    pub fn select6(&self, tuple: &FiveTuple6, count: usize) -> usize {
        match self.algorithm.function() {
            Function::Affine { .. } => modulo(self.value6(tuple), count),
            Function::Linux(_) => linux::select(self.value6(tuple), count),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::HashAlgorithm;

    /// Microsoft's verification suite for RSS, IPv6 with TCP: source, port, destination, port, hash.
    const RSS: [(&str, u16, &str, u16, u32); 3] = [
        ("3ffe:2501:200:1fff::7", 2794, "3ffe:2501:200:3::1", 1766, 0x4020_7d3d),
        ("3ffe:501:8::260:97ff:fe40:efab", 14230, "ff02::1", 4739, 0xdde5_1bbf),
        (
            "3ffe:1900:4545:3:200:f8ff:fe21:67cf",
            44251,
            "fe80::200:f8ff:fe21:67cf",
            38024,
            0x02d1_feef,
        ),
    ];

    #[test]
    fn toeplitz_gives_the_published_hashes_of_ipv6_flows() {
        let switch = SwitchHash { algorithm: HashAlgorithm::Toeplitz, seed: 0, rotate: 0 };
        for (src, src_port, dst, dst_port, hash) in RSS {
            let (src, dst) = (src.parse().unwrap(), dst.parse().unwrap());
            let tuple = FiveTuple6 { src, dst, flow_label: 7, src_port, dst_port, protocol: 6 };
            assert_eq!(switch.value6(&tuple), hash, "{src}");
        }
    }

    #[test]
    fn every_function_distinguishes_source_ports() {
        let (src, dst) = ("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap());
        for &algorithm in HashAlgorithm::ALL {
            let switch = SwitchHash { algorithm, seed: 9, rotate: 3 };
            let tuple = |src_port| FiveTuple6 {
                src,
                dst,
                flow_label: 0,
                src_port,
                dst_port: 4791,
                protocol: 17,
            };
            let mut used = [0u32; 8];
            (0xc000..0xd000).for_each(|port| used[switch.select6(&tuple(port), 8)] += 1);
            let name = algorithm.name();
            assert!(used.iter().all(|&count| (256..1024).contains(&count)), "{name}: {used:?}");
        }
    }
}
