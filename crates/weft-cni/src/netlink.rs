//! Questions and orders to the kernel about links, addresses and routes (rtnetlink(7)).

use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{InfoKind, LinkAttribute, LinkInfo, LinkMessage};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteMetric, RouteProtocol, RouteScope,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily as SocketFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send,
    socket_with,
};

use crate::attachment::Route;
use crate::cidr::Cidr;

/// Bytes of the longest answer that is read: the kernel's datagrams of a dump are at most 32 KiB.
const BUFFER: usize = 32 << 10;

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) index: u32,
    pub(crate) mac: Vec<u8>,
    pub(crate) mtu: u32,
    /// `true` for an interface of a program: TAP.
    pub(crate) is_tap: bool,
}

/// A route that the kernel has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Installed {
    pub(crate) dst: Cidr,
    pub(crate) gateway: Option<IpAddr>,
    interface: u32,
}

/// A socket to the kernel's tables of this thread's namespace.
#[derive(Debug)]
pub(crate) struct Netlink {
    socket: OwnedFd,
    buffer: Box<[u8]>,
}

impl Netlink {
    pub(crate) fn open() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(SocketFamily::NETLINK, SocketType::RAW, flags, None)?;
        bind(&socket, &SocketAddrNetlink::new(0, 0))?;
        Ok(Self { socket, buffer: vec![0; BUFFER].into_boxed_slice() })
    }

    /// Returns the interface of a name, if there is one.
    pub(crate) fn link(&mut self, name: &str) -> io::Result<Option<Link>> {
        let mut request = LinkMessage::default();
        request.attributes.push(LinkAttribute::IfName(name.to_owned()));
        let answers = match self.send(RouteNetlinkMessage::GetLink(request), 0) {
            Err(error) if is(&error, Errno::NODEV) => return Ok(None),
            answers => answers?,
        };
        Ok(answers.iter().find_map(|answer| match answer {
            RouteNetlinkMessage::NewLink(message) => Some(link(message)),
            _ => None,
        }))
    }

    /// Sets the Ethernet address that an interface has. The kernel announces its IP addresses then, if `arp_notify` is set.
    pub(crate) fn set_mac(&mut self, link: &Link) -> io::Result<()> {
        let mut request = LinkMessage::default();
        request.header.index = link.index;
        request.attributes.push(LinkAttribute::Address(link.mac.clone()));
        self.send(RouteNetlinkMessage::SetLink(request), NLM_F_ACK).map(drop)
    }

    /// Removes an interface. One that is gone already is no error.
    pub(crate) fn remove_link(&mut self, index: u32) -> io::Result<()> {
        let mut request = LinkMessage::default();
        request.header.index = index;
        match self.send(RouteNetlinkMessage::DelLink(request), NLM_F_ACK) {
            Err(error) if is(&error, Errno::NODEV) => Ok(()),
            done => done.map(drop),
        }
    }

    /// Returns the addresses of an interface.
    pub(crate) fn addresses(&mut self, interface: u32) -> io::Result<Vec<Cidr>> {
        let request = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        let answers = self.send(request, NLM_F_DUMP)?;
        let address = |answer: &RouteNetlinkMessage| match answer {
            RouteNetlinkMessage::NewAddress(it) if it.header.index == interface => cidr(it),
            _ => None,
        };
        Ok(answers.iter().filter_map(address).collect())
    }

    /// Returns the routes of all tables over an interface.
    pub(crate) fn routes(&mut self, interface: u32) -> io::Result<Vec<Installed>> {
        let request = RouteNetlinkMessage::GetRoute(RouteMessage::default());
        let answers = self.send(request, NLM_F_DUMP)?;
        let route = |answer: &RouteNetlinkMessage| match answer {
            RouteNetlinkMessage::NewRoute(it) => installed(it),
            _ => None,
        };
        let routes = answers.iter().filter_map(route);
        Ok(routes.filter(|route| route.interface == interface).collect())
    }

    /// Adds a route over an interface. One that is there already is no error, such as the default route of the
    /// container's first interface.
    pub(crate) fn add_route(
        &mut self,
        route: &Route,
        gateway: Option<IpAddr>,
        interface: u32,
    ) -> io::Result<()> {
        let request = RouteNetlinkMessage::NewRoute(message(route, gateway, interface));
        match self.send(request, NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL) {
            Err(error) if is(&error, Errno::EXIST) => Ok(()),
            done => done.map(drop),
        }
    }

    fn send(
        &mut self,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> io::Result<Vec<RouteNetlinkMessage>> {
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        let mut request = NetlinkMessage::new(header, NetlinkPayload::from(message));
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        send(&self.socket, &bytes, SendFlags::empty())?;
        let mut answers = vec![];
        loop {
            let (len, _) = match recv(&self.socket, &mut *self.buffer, RecvFlags::empty()) {
                Err(Errno::INTR) => continue,
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
            // Neither a dump nor an order: there is one answer, and nothing ends it.
            if flags & (NLM_F_DUMP | NLM_F_ACK) == 0 {
                return Ok(answers);
            }
        }
    }
}

fn is(error: &io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno.raw_os_error())
}

/// Returns the messages of a datagram of the kernel. Those of kinds that the library does not know are left out.
fn messages(mut bytes: &[u8]) -> Vec<NetlinkMessage<RouteNetlinkMessage>> {
    let mut messages = vec![];
    while let Some(&len) = bytes.first_chunk() {
        let len = usize::try_from(u32::from_ne_bytes(len)).unwrap_or(usize::MAX);
        let Some(message) = bytes.get(..len).filter(|message| !message.is_empty()) else { break };
        messages.extend(NetlinkMessage::deserialize(message));
        // Messages begin at multiples of four bytes.
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or(&[]);
    }
    messages
}

fn link(message: &LinkMessage) -> Link {
    let mut link = Link { index: message.header.index, mac: vec![], mtu: 0, is_tap: false };
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::Address(mac) => link.mac.clone_from(mac),
            LinkAttribute::Mtu(mtu) => link.mtu = *mtu,
            LinkAttribute::LinkInfo(infos) => {
                link.is_tap = infos.contains(&LinkInfo::Kind(InfoKind::Tun));
            }
            _ => {}
        }
    }
    link
}

fn cidr(message: &AddressMessage) -> Option<Cidr> {
    let address = |local: bool| {
        message.attributes.iter().find_map(move |attribute| match attribute {
            AddressAttribute::Local(address) if local => Some(*address),
            AddressAttribute::Address(address) if !local => Some(*address),
            _ => None,
        })
    };
    let length = message.header.prefix_len;
    // On a link to one peer the other attribute is the peer's address.
    address(true).or_else(|| address(false)).map(|address| Cidr { address, length })
}

fn installed(message: &RouteMessage) -> Option<Installed> {
    let unspecified = match message.header.address_family {
        AddressFamily::Inet => IpAddr::from([0; 4]),
        AddressFamily::Inet6 => IpAddr::from([0; 16]),
        _ => return None,
    };
    let (mut address, mut gateway, mut interface) = (unspecified, None, None);
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(it) => address = ip(it)?,
            RouteAttribute::Gateway(it) => gateway = ip(it),
            RouteAttribute::Oif(index) => interface = Some(*index),
            _ => {}
        }
    }
    let dst = Cidr { address, length: message.header.destination_prefix_length };
    Some(Installed { dst, gateway, interface: interface? })
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some((*address).into()),
        RouteAddress::Inet6(address) => Some((*address).into()),
        _ => None,
    }
}

fn message(route: &Route, gateway: Option<IpAddr>, interface: u32) -> RouteMessage {
    let mut message = RouteMessage::default();
    let Cidr { address, length } = route.dst;
    let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let scope = match gateway {
        None => RouteScope::Link,
        Some(_) => RouteScope::Universe,
    };
    message.header.address_family = family;
    message.header.destination_prefix_length = length;
    message.header.table = RouteHeader::RT_TABLE_MAIN;
    message.header.protocol = RouteProtocol::Boot;
    message.header.scope = route.scope.map_or(scope, RouteScope::from);
    message.header.kind = netlink_packet_route::route::RouteType::Unicast;
    let attributes = &mut message.attributes;
    attributes.push(RouteAttribute::Oif(interface));
    if length > 0 {
        attributes.push(RouteAttribute::Destination(address.into()));
    }
    attributes.extend(gateway.map(|gateway| RouteAttribute::Gateway(gateway.into())));
    attributes.extend(route.priority.map(RouteAttribute::Priority));
    attributes.extend(route.table.map(RouteAttribute::Table));
    let metrics = [route.mtu.map(RouteMetric::Mtu), route.advmss.map(RouteMetric::Advmss)];
    let metrics: Vec<_> = metrics.into_iter().flatten().collect();
    if !metrics.is_empty() {
        attributes.push(RouteAttribute::Metrics(metrics));
    }
    message
}
