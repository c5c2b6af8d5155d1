//! Which IP addresses a port's tenant may send from, and say that it has: without this a tenant could
//! take its neighbours' traffic by claiming their addresses.

use alloc::vec::Vec;
use core::net::IpAddr;

use crate::{Frame, Network, Prefix, neighbour};

/// The addresses of a port's tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceGuard {
    sources: Vec<Prefix>,
}

impl SourceGuard {
    /// A tenant that may send from these addresses only. A tenant that forwards for others has their
    /// prefixes too.
    pub const fn new(sources: Vec<Prefix>) -> Self {
        Self { sources }
    }

    /// Whether the tenant may send a frame. `bytes` are the frame's, at least
    /// [`LOOK_AHEAD`](Frame::LOOK_AHEAD) of them.
    ///
    /// Besides its own addresses it may use none at all, as it must to ask for one (DHCP) or to see
    /// whether one is free (RFC 4862; RFC 5227), and IPv6's link-local ones. What is neither IP nor ARP
    /// has no such address.
    pub fn allows(&self, frame: &Frame, bytes: &[u8]) -> bool {
        let source = match &frame.network {
            Network::Ip(ip) => ip.source,
            Network::Arp(arp) => arp.sender.into(),
            Network::Other => return true,
        };
        // A machine may speak from its own address and announce another one.
        let announced = neighbour::announced(frame, bytes).map(|(address, _)| address);
        self.owns(source) && announced.is_none_or(|address| self.owns(address))
    }

    fn owns(&self, address: IpAddr) -> bool {
        let link_local = match address {
            IpAddr::V4(_) => false,
            IpAddr::V6(v6) => v6.is_unicast_link_local(),
        };
        let known = || self.sources.iter().any(|source| source.contains(address));
        address.is_unspecified() || link_local || known()
    }
}

#[cfg(test)]
mod tests {
    use weft_wire::{EtherType, MacAddr};

    use super::*;
    use crate::example::{ALICE, between, icmp, packet, parsed, udp, v6_packet};
    use crate::{offload, protocol};

    fn guard() -> SourceGuard {
        let sources = ["10.0.0.1", "10.7.0.0/16", "2001:db8::1"];
        SourceGuard::new(sources.map(|source| source.parse().unwrap()).to_vec())
    }

    fn allows(bytes: &[u8]) -> bool {
        guard().allows(&parsed(bytes), bytes)
    }

    fn arp(sender: [u8; 4]) -> Vec<u8> {
        let mut payload = vec![0, 1, 8, 0, 6, 4, 0, 2];
        payload.extend(ALICE.0.into_iter().chain(sender).chain([0; 6]).chain([10, 0, 0, 9]));
        between(ALICE, MacAddr::BROADCAST, EtherType::ARP, &payload)
    }

    /// Alice says from `source` that it has `target`.
    fn advertisement(source: &str, target: &str) -> Vec<u8> {
        let [source, target]: [core::net::Ipv6Addr; 2] =
            [source, target].map(|address| address.parse().unwrap());
        let mut message = icmp(136, 0, 0, &target.octets());
        message[7] = 0;
        message.extend([2, 1].into_iter().chain(ALICE.0));
        let everybody = "ff02::1".parse().unwrap();
        let packet = v6_packet(source, everybody, protocol::ICMPV6, &message);
        let mut bytes = between(ALICE, MacAddr([0x33, 0x33, 0, 0, 0, 1]), EtherType::IPV6, &packet);
        let frame = parsed(&bytes);
        offload::fill(&mut bytes, &frame);
        bytes
    }

    #[test]
    fn a_tenant_sends_from_its_own_addresses() {
        let from = |source, destination| {
            allows(&packet(source, destination, protocol::UDP, &udp(68, 67, &[])))
        };
        assert!(from("10.0.0.1", "10.0.0.2") && from("10.7.8.9", "10.0.0.2"));
        assert!(from("2001:db8::1", "2001:db8::2") && from("fe80::5", "ff02::2"));
        assert!(from("0.0.0.0", "255.255.255.255") && from("::", "ff02::16"));
        assert!(!from("10.0.0.2", "10.0.0.1") && !from("2001:db8::2", "2001:db8::1"));
        assert!(!from("::ffff:10.0.0.1", "2001:db8::2"), "mapped, not the same address");
        assert!(allows(&between(ALICE, MacAddr::BROADCAST, EtherType(0x88cc), &[0; 50])));
    }

    #[test]
    fn a_tenant_announces_its_own_addresses() {
        assert!(allows(&arp([10, 0, 0, 1])) && allows(&arp([0; 4])));
        assert!(!allows(&arp([10, 0, 0, 2])));
        assert!(allows(&advertisement("2001:db8::1", "2001:db8::1")));
        assert!(allows(&advertisement("fe80::5", "2001:db8::1")));
        assert!(!allows(&advertisement("2001:db8::1", "2001:db8::2")));
        assert!(!allows(&advertisement("fe80::5", "2001:db8::2")));
    }
}
