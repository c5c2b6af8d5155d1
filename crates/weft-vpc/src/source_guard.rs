//! The IP addresses that a port's tenant may send from and announce: without this check a tenant could
//! attract its neighbours' traffic by announcing their addresses.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr};

use weft_wire::MacAddr;

use crate::{Frame, Network, Prefix, neighbour};

/// The addresses that a port's tenant may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceGuard {
    sources: Vec<Prefix>,
}

impl SourceGuard {
    /// Creates a guard for a tenant that may send only from these prefixes. A tenant that forwards for others has
    /// their prefixes too.
    pub const fn new(sources: Vec<Prefix>) -> Self {
        Self { sources }
    }

    /// Returns `true` if the tenant may send the frame. `bytes` are the frame's, at least
    /// [`MIN_PARSE_BYTES`](Frame::MIN_PARSE_BYTES) of them.
    ///
    /// Besides its own addresses it may use the unspecified one, to request an address (DHCP) or to probe for a
    /// duplicate (RFC 4862; RFC 5227), and the link-local one derived from its Ethernet address. A tenant with
    /// another link-local address (RFC 7217; RFC 8981) needs it among its prefixes. Frames of neither IP nor ARP
    /// have no such address and pass.
    pub fn allows(&self, frame: &Frame, bytes: &[u8]) -> bool {
        let source = match &frame.network {
            Network::Ip(ip) => ip.source,
            Network::Arp(arp) => arp.sender.into(),
            Network::Other => return true,
        };
        // A machine may send from its own address and announce another one.
        let announced = neighbour::announced(frame, bytes).map(|(address, _)| address);
        let owns = |address| self.owns(address, frame.source);
        owns(source) && announced.is_none_or(owns)
    }

    fn owns(&self, address: IpAddr, mac: MacAddr) -> bool {
        let known = || self.sources.iter().any(|source| source.contains(address));
        address.is_unspecified() || address == link_local(mac) || known()
    }
}

/// Returns the link-local address of a machine with this address on Ethernet (RFC 4291, appendix A).
fn link_local(mac: MacAddr) -> IpAddr {
    let [a, b, c, d, e, f] = mac.0;
    let word = |high, low| u16::from_be_bytes([high, low]);
    Ipv6Addr::new(0xfe80, 0, 0, 0, word(a ^ 2, b), word(c, 0xff), word(0xfe, d), word(e, f)).into()
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

    /// Returns an advertisement of `target` that Alice sends from `source`.
    fn advertisement(source: &str, target: &str) -> Vec<u8> {
        let [source, target]: [Ipv6Addr; 2] =
            [source, target].map(|address| address.parse().unwrap());
        let mut message = icmp(136, 0, 0, &target.octets());
        message[7] = 0;
        message.extend([2, 1].into_iter().chain(ALICE.0));
        let all_nodes = "ff02::1".parse().unwrap();
        let packet = v6_packet(source, all_nodes, protocol::ICMPV6, &message);
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
        assert!(from("2001:db8::1", "2001:db8::2"));
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
        assert!(allows(&advertisement(&link_local(ALICE).to_string(), "2001:db8::1")));
        assert!(!allows(&advertisement("2001:db8::1", "2001:db8::2")));
        assert!(!allows(&advertisement(&link_local(ALICE).to_string(), "2001:db8::2")));
    }

    #[test]
    fn a_tenant_has_the_link_local_address_of_its_mac_and_listed_ones() {
        // RFC 4291, appendix A: the universal bit is inverted.
        let mac = MacAddr([0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde]);
        assert_eq!(link_local(mac), IpAddr::V6("fe80::3656:78ff:fe9a:bcde".parse().unwrap()));
        let own = link_local(ALICE).to_string();
        let from = |source: &str| packet(source, "ff02::2", protocol::UDP, &udp(68, 67, &[]));
        assert!(allows(&from(&own)) && !allows(&from("fe80::5")));
        // Another machine's address, also by neighbour discovery.
        assert!(allows(&advertisement(&own, &own)) && !allows(&advertisement(&own, "fe80::5")));
        let listed = SourceGuard::new(vec!["fe80::/10".parse().unwrap()]);
        assert!(listed.allows(&parsed(&from("fe80::5")), &from("fe80::5")));
    }
}
