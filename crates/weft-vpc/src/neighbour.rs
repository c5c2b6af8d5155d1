//! Address resolution: requests of ARP (RFC 826) and of IPv6's neighbour discovery (RFC 4861), the addresses
//! that they announce, and their replies.
//!
//! Messages of neighbour discovery are used only if they pass the checks of RFC 4861, section 7.1: damaged messages and
//! messages from beyond a router are ignored.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use weft_wire::{Ecn, EthernetHeader, Ipv6Header, MacAddr, U6, U20};

use crate::{Arp, Frame, GATEWAY, Icmp, Ip, Network, Transport, offload, protocol};

/// The hop limit of all messages of discovery: no router has lowered it.
const HOP_LIMIT: u8 = 255;
const ARP_REQUEST: u16 = 1;
const ARP_REPLY: u16 = 2;
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
/// Options that carry an Ethernet address (RFC 4861, section 4.6.1): the sender's, the target's.
const SOURCE_LINK: u8 = 1;
const TARGET_LINK: u8 = 2;

/// Returns `true` for router and neighbour discovery from the same link (RFC 4861, section 3.1).
pub(crate) const fn is_discovery(ip: &Ip) -> bool {
    matches!(ip.transport, Transport::Icmp(Icmp { kind: 133..=137, .. }))
        && ip.protocol == protocol::ICMPV6
        && ip.hop_limit == HOP_LIMIT
}

/// A request for an address, sent to a group or to the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AddressRequest {
    /// An ARP request of `sender` for `target`.
    Arp { sender: Ipv4Addr, target: Ipv4Addr },
    /// A neighbour solicitation; a sender without address checks for a duplicate (RFC 4862, section 5.4).
    Solicitation { sender: Ipv6Addr, target: Ipv6Addr },
}

/// Returns the address request in a frame to a group or the gateway; `None` for other frames. Requests to one machine
/// are refreshes (RFC 4861, section 7.3).
pub(crate) fn address_request(frame: &Frame, bytes: &[u8]) -> Option<AddressRequest> {
    if !frame.destination.is_group() && frame.destination != GATEWAY {
        return None;
    }
    match &frame.network {
        Network::Arp(Arp { operation: ARP_REQUEST, sender, target, .. }) if sender != target => {
            Some(AddressRequest::Arp { sender: *sender, target: *target })
        }
        Network::Ip(ip) => {
            let message = discovery(frame, ip, bytes, SOLICITATION)?;
            let IpAddr::V6(sender) = ip.source else { return None };
            Some(AddressRequest::Solicitation { sender, target: message.target })
        }
        _ => None,
    }
}

/// Returns the address that a frame announces for its own sender; announcements for a third machine are
/// ignored.
pub(crate) fn announced(frame: &Frame, bytes: &[u8]) -> Option<(IpAddr, MacAddr)> {
    let (address, mac): (IpAddr, MacAddr) = match &frame.network {
        Network::Arp(Arp { operation: ARP_REQUEST | ARP_REPLY, sender_mac, sender, .. }) => {
            ((*sender).into(), *sender_mac)
        }
        Network::Ip(ip) => {
            if let Some(message) = discovery(frame, ip, bytes, SOLICITATION) {
                (ip.source, message.link(SOURCE_LINK)?)
            } else {
                let message = discovery(frame, ip, bytes, ADVERTISEMENT)?;
                (message.target.into(), message.link(TARGET_LINK)?)
            }
        }
        _ => return None,
    };
    let unusable = match address {
        IpAddr::V4(v4) => v4.is_unspecified() || v4.is_multicast() || v4.is_broadcast(),
        IpAddr::V6(v6) => v6.is_unspecified() || v6.is_multicast(),
    };
    (mac == frame.source && !unusable).then_some((address, mac))
}

/// The content of a solicitation or an advertisement.
struct Discovery<'a> {
    target: Ipv6Addr,
    options: &'a [u8],
}

/// Returns the message of neighbour discovery of type `kind`, if it passes the checks.
fn discovery<'a>(frame: &Frame, ip: &Ip, bytes: &'a [u8], kind: u8) -> Option<Discovery<'a>> {
    let Transport::Icmp(icmp) = ip.transport else { return None };
    let is_valid = ip.protocol == protocol::ICMPV6
        && (icmp.kind, icmp.code) == (kind, 0)
        && ip.hop_limit == HOP_LIMIT
        && ip.fragment.is_none()
        && bytes.len() == frame.len as usize
        && offload::verify(bytes, frame).is_ok();
    if !is_valid {
        return None;
    }
    let start = usize::from(ip.transport_offset);
    let message = &bytes[start..start + usize::from(ip.transport_len)];
    let (_, rest) = message.split_at_checked(8)?;
    let (target, options) = rest.split_first_chunk::<16>()?;
    let target = Ipv6Addr::from(*target);
    let message = Discovery { target, options };
    (!target.is_multicast() && message.options_add_up()).then_some(message)
}

impl Discovery<'_> {
    /// Returns the options: type and content, in units of eight bytes.
    fn options(&self) -> impl Iterator<Item = (u8, &[u8])> {
        let mut rest = self.options;
        core::iter::from_fn(move || {
            let &[kind, words, ..] = rest else { return None };
            let (option, after) = rest.split_at_checked(8 * usize::from(words))?;
            rest = after;
            Some((kind, option.get(2..)?))
        })
    }

    /// Returns `true` if the options fill the message exactly.
    fn options_add_up(&self) -> bool {
        let len: usize = self.options().map(|(_, content)| content.len() + 2).sum();
        len == self.options.len()
    }

    /// Returns the Ethernet address in the first option of type `kind`.
    fn link(&self, kind: u8) -> Option<MacAddr> {
        let content = self.options().find(|(found, _)| *found == kind)?.1;
        content.first_chunk().copied().map(MacAddr)
    }
}

impl AddressRequest {
    /// Returns the requested address.
    pub(crate) fn target(&self) -> IpAddr {
        match *self {
            Self::Arp { target, .. } => target.into(),
            Self::Solicitation { target, .. } => target.into(),
        }
    }

    /// Returns the reply to the sender of `frame`, with the request's VLAN tags: `mac` has the requested address.
    pub(crate) fn reply(&self, frame: &Frame, bytes: &[u8], mac: MacAddr) -> Vec<u8> {
        let mut reply = bytes[..usize::from(frame.network_offset)].to_vec();
        let mut destination = frame.source;
        match *self {
            Self::Arp { sender, target } => {
                reply.extend([0, 1, 8, 0, 6, 4]);
                reply.extend(ARP_REPLY.to_be_bytes());
                reply.extend(mac.0.into_iter().chain(target.octets()));
                reply.extend(frame.source.0.into_iter().chain(sender.octets()));
            }
            Self::Solicitation { sender, target } => {
                let to_all_nodes = sender.is_unspecified();
                let to = if to_all_nodes { ALL_NODES } else { sender };
                if to_all_nodes {
                    destination = ALL_NODES_ON_ETHERNET;
                }
                advertise(&mut reply, mac, (target, to), !to_all_nodes);
            }
        }
        reply[..6].copy_from_slice(&destination.0);
        reply[6..12].copy_from_slice(&mac.0);
        let parsed = Frame::parse(&reply, reply.len()).expect("an answer is a frame");
        offload::fill(&mut reply, &parsed);
        reply
    }
}

const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const ALL_NODES_ON_ETHERNET: MacAddr = MacAddr([0x33, 0x33, 0, 0, 0, 1]);

/// Appends an advertisement (RFC 4861, section 4.4) that overrides the receiver's cache entry.
fn advertise(
    out: &mut Vec<u8>,
    mac: MacAddr,
    (source, destination): (Ipv6Addr, Ipv6Addr),
    solicited: bool,
) {
    const SOLICITED: u8 = 0x40;
    const OVERRIDE: u8 = 0x20;
    let flags = if solicited { SOLICITED | OVERRIDE } else { OVERRIDE };
    let header = Ipv6Header {
        dscp: U6::default(),
        ecn: Ecn::NotCapable,
        flow_label: U20::default(),
        payload_len: 32,
        next_header: protocol::ICMPV6,
        hop_limit: 255,
        source,
        destination,
    };
    let start = out.len();
    out.resize(start + Ipv6Header::LEN, 0);
    header.emit(&mut out[start..]);
    out.extend([ADVERTISEMENT, 0, 0, 0, flags, 0, 0, 0]);
    out.extend(source.octets());
    out.extend([TARGET_LINK, 1].into_iter().chain(mac.0));
    debug_assert!(start >= EthernetHeader::LEN, "the Ethernet header comes first");
}
