//! Questions to the kernel's tables of links, addresses, routes and neighbours (rtnetlink(7)), and notices of changes.

use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;

use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkLayerType, LinkMessage};
use netlink_packet_route::neighbour::{NeighbourAttribute, NeighbourMessage, NeighbourState};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteType, RouteVia,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily as SocketFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send,
    socket_with,
};
use weft_wire::MacAddr;

use crate::refusal::Refusal;

/// Bytes of the longest answer that is read: the kernel's datagrams of a dump are at most 32 KiB.
const BUFFER: usize = 32 << 10;

/// Multicast groups of changes: links, neighbours, and addresses and routes of both families (linux/rtnetlink.h).
const GROUPS: u32 = 1 | 1 << 2 | 1 << 4 | 1 << 6 | 1 << 8 | 1 << 10;

/// An Ethernet interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Interface {
    pub(crate) index: u32,
    pub(crate) name: String,
    pub(crate) address: MacAddr,
    /// Maximum bytes of a packet with its IP header.
    pub(crate) mtu: usize,
    /// Number of receive queues that the driver may have.
    pub(crate) queues: u32,
}

/// A change of the kernel's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// A neighbour of an interface has another link-layer address, or none.
    Neighbour { interface: u32, ip: IpAddr, address: Option<MacAddr> },
    /// A link, an address or a route is another, or changes were lost.
    Tables,
}

/// A socket to the kernel's tables.
#[derive(Debug)]
pub(crate) struct Netlink {
    socket: OwnedFd,
    buffer: Box<[u8]>,
}

impl Netlink {
    /// Opens a socket for questions.
    ///
    /// # Errors
    /// The kernel's error.
    pub(crate) fn open() -> io::Result<Self> {
        Self::in_groups(0)
    }

    /// Opens a socket that receives changes.
    ///
    /// # Errors
    /// The kernel's error.
    pub(crate) fn watch() -> io::Result<Self> {
        Self::in_groups(GROUPS)
    }

    fn in_groups(groups: u32) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(SocketFamily::NETLINK, SocketType::RAW, flags, None)?;
        bind(&socket, &SocketAddrNetlink::new(0, groups))?;
        Ok(Self { socket, buffer: vec![0; BUFFER].into_boxed_slice() })
    }

    /// Returns the interface that has this address.
    ///
    /// # Errors
    /// There is none, or it is no Ethernet interface.
    pub(crate) fn interface_of(&mut self, ip: IpAddr) -> Result<Interface, Refusal> {
        let mut request = AddressMessage::default();
        request.header.family = family(ip);
        let what = "list its addresses";
        let addresses = self
            .ask(RouteNetlinkMessage::GetAddress(request), NLM_F_DUMP)
            .map_err(Refusal::to(what))?;
        let index = addresses.into_iter().find_map(|answer| match answer {
            RouteNetlinkMessage::NewAddress(it) => has_address(&it, ip).then_some(it.header.index),
            _ => None,
        });
        let index = index.ok_or(Refusal::NoInterface(ip))?;
        let mut request = LinkMessage::default();
        request.header.index = index;
        let what = "describe an interface";
        let links =
            self.ask(RouteNetlinkMessage::GetLink(request), 0).map_err(Refusal::to(what))?;
        let link = links.into_iter().find_map(|answer| match answer {
            RouteNetlinkMessage::NewLink(link) => Some(link),
            _ => None,
        });
        interface(&link.ok_or(Refusal::NoInterface(ip))?)
    }

    /// Returns the address of the next hop towards `ip`, if the route of packets from `source` leads over an interface.
    pub(crate) fn next_hop(
        &mut self,
        source: IpAddr,
        ip: IpAddr,
        interface: u32,
    ) -> Option<IpAddr> {
        let mut request = RouteMessage::default();
        request.header.address_family = family(ip);
        request.header.destination_prefix_length = bits(ip);
        request.header.source_prefix_length = bits(source);
        request.attributes.push(RouteAttribute::Destination(route_address(ip)));
        request.attributes.push(RouteAttribute::Source(route_address(source)));
        let answers = self.ask(RouteNetlinkMessage::GetRoute(request), 0).ok()?;
        let route = answers.into_iter().find_map(|answer| match answer {
            RouteNetlinkMessage::NewRoute(route) => Some(route),
            _ => None,
        })?;
        next_hop_of(&route, ip, interface)
    }

    /// Returns the link-layer address of a neighbour, if it is known.
    pub(crate) fn neighbour(&mut self, ip: IpAddr, interface: u32) -> Option<MacAddr> {
        let mut request = NeighbourMessage::default();
        request.header.family = family(ip);
        request.header.ifindex = interface;
        request.attributes.push(NeighbourAttribute::Destination(ip.into()));
        let answers = self.ask(RouteNetlinkMessage::GetNeighbour(request), 0).ok()?;
        answers.into_iter().find_map(|answer| match answer {
            RouteNetlinkMessage::NewNeighbour(neighbour) => usable_address(&neighbour),
            _ => None,
        })
    }

    /// Returns the changes since the last call, without waiting.
    pub(crate) fn changes(&mut self) -> Vec<Change> {
        let mut changes = Vec::new();
        loop {
            match recv(&self.socket, &mut *self.buffer, RecvFlags::DONTWAIT) {
                Ok((len, _)) => {
                    let messages = messages(&self.buffer[..len]);
                    changes.extend(
                        messages.into_iter().filter_map(|message| change(&message.payload)),
                    );
                }
                Err(rustix::io::Errno::INTR) => {}
                // More changes than the socket's buffer holds.
                Err(rustix::io::Errno::NOBUFS) => changes.push(Change::Tables),
                Err(_) => return changes,
            }
        }
    }

    /// Asks a question, and returns the answers.
    fn ask(
        &mut self,
        question: RouteNetlinkMessage,
        flags: u16,
    ) -> io::Result<Vec<RouteNetlinkMessage>> {
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        let mut request = NetlinkMessage::new(header, NetlinkPayload::from(question));
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        send(&self.socket, &bytes, SendFlags::empty())?;
        let mut answers = Vec::new();
        loop {
            let (len, _) = match recv(&self.socket, &mut *self.buffer, RecvFlags::empty()) {
                Err(rustix::io::Errno::INTR) => continue,
                received => received?,
            };
            for message in messages(&self.buffer[..len]) {
                match message.payload {
                    NetlinkPayload::InnerMessage(answer) => answers.push(answer),
                    NetlinkPayload::Error(error) => match error.code {
                        Some(_) => return Err(error.to_io()),
                        None => return Ok(answers),
                    },
                    _ => return Ok(answers),
                }
            }
            // Without a dump there is one answer, and nothing ends it.
            if flags & NLM_F_DUMP == 0 {
                return Ok(answers);
            }
        }
    }
}

/// Returns the messages of a datagram of the kernel. Those of kinds that the library does not know are left out.
fn messages(mut bytes: &[u8]) -> Vec<NetlinkMessage<RouteNetlinkMessage>> {
    let mut messages = Vec::new();
    while let Some(&len) = bytes.first_chunk() {
        let len = usize::try_from(u32::from_ne_bytes(len)).unwrap_or(usize::MAX);
        let Some(message) = bytes.get(..len).filter(|message| !message.is_empty()) else { break };
        messages.extend(NetlinkMessage::deserialize(message));
        // Messages begin at multiples of four bytes.
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or(&[]);
    }
    messages
}

fn change(payload: &NetlinkPayload<RouteNetlinkMessage>) -> Option<Change> {
    use RouteNetlinkMessage as Message;
    let NetlinkPayload::InnerMessage(message) = payload else { return None };
    match message {
        Message::NewNeighbour(it) => neighbour_change(it, usable_address(it)),
        Message::DelNeighbour(it) => neighbour_change(it, None),
        _ => Some(Change::Tables),
    }
}

fn neighbour_change(message: &NeighbourMessage, address: Option<MacAddr>) -> Option<Change> {
    use netlink_packet_route::neighbour::NeighbourAddress;
    let ip = message.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::Destination(NeighbourAddress::Inet(ip)) => Some((*ip).into()),
        NeighbourAttribute::Destination(NeighbourAddress::Inet6(ip)) => Some((*ip).into()),
        _ => None,
    })?;
    Some(Change::Neighbour { interface: message.header.ifindex, ip, address })
}

/// Returns the link-layer address of a neighbour that the kernel would send to: also of one that it has not verified
/// lately.
fn usable_address(neighbour: &NeighbourMessage) -> Option<MacAddr> {
    use NeighbourState::{Delay, Noarp, Permanent, Probe, Reachable, Stale};
    let state = neighbour.header.state;
    if ![Reachable, Stale, Delay, Probe, Permanent, Noarp].contains(&state) {
        return None;
    }
    neighbour.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::LinkLayerAddress(bytes) => mac(bytes),
        _ => None,
    })
}

fn next_hop_of(route: &RouteMessage, ip: IpAddr, interface: u32) -> Option<IpAddr> {
    let leads_there = |attribute: &RouteAttribute| *attribute == RouteAttribute::Oif(interface);
    // An encapsulating route adds headers that are the kernel's.
    let encapsulates = |attribute: &RouteAttribute| {
        matches!(attribute, RouteAttribute::Encap(_) | RouteAttribute::EncapType(_))
    };
    let attributes = &route.attributes;
    if route.header.kind != RouteType::Unicast
        || !attributes.iter().any(leads_there)
        || attributes.iter().any(encapsulates)
    {
        return None;
    }
    let gateway = attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Gateway(RouteAddress::Inet(ip))
        | RouteAttribute::Via(RouteVia::Inet(ip)) => Some((*ip).into()),
        RouteAttribute::Gateway(RouteAddress::Inet6(ip))
        | RouteAttribute::Via(RouteVia::Inet6(ip)) => Some((*ip).into()),
        _ => None,
    });
    Some(gateway.unwrap_or(ip))
}

fn has_address(message: &AddressMessage, ip: IpAddr) -> bool {
    // On a link to one peer the other attribute is the peer's address.
    let local = message.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Local(local) => Some(*local),
        _ => None,
    });
    let address = message.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Address(address) => Some(*address),
        _ => None,
    });
    local.or(address) == Some(ip)
}

fn interface(link: &LinkMessage) -> Result<Interface, Refusal> {
    let (mut name, mut address, mut mtu, mut queues) = (String::new(), None, 0, 1);
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::IfName(it) => name.clone_from(it),
            LinkAttribute::Address(bytes) => address = mac(bytes),
            LinkAttribute::Mtu(bytes) => mtu = *bytes as usize,
            LinkAttribute::NumRxQueues(number) => queues = *number,
            _ => {}
        }
    }
    let refuse = |reason| Err(Refusal::NotEthernet { interface: name.clone(), reason });
    match (link.header.link_layer_type, address) {
        (LinkLayerType::Ether, Some(address)) => {
            Ok(Interface { index: link.header.index, name, address, mtu, queues })
        }
        (LinkLayerType::Loopback, _) => refuse("it is the loopback interface"),
        _ => refuse("it has no Ethernet header, as a tunnel"),
    }
}

fn mac(bytes: &[u8]) -> Option<MacAddr> {
    bytes.try_into().ok().map(MacAddr)
}

fn family(ip: IpAddr) -> AddressFamily {
    if ip.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

fn bits(ip: IpAddr) -> u8 {
    if ip.is_ipv4() { 32 } else { 128 }
}

fn route_address(ip: IpAddr) -> RouteAddress {
    match ip {
        IpAddr::V4(ip) => RouteAddress::Inet(ip),
        IpAddr::V6(ip) => RouteAddress::Inet6(ip),
    }
}
