//! An IPv4 address without a label, for interfaces whose name leaves no room for one (rtnetlink(7)).

use std::io;
use std::net::Ipv4Addr;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with};

/// Bytes of the answer that are read: its header, its code, and the request.
const ANSWER: usize = 1 << 10;

/// Gives an interface of this thread's namespace an address. One that it has already is no error.
pub(super) fn add_ipv4(interface: u32, address: Ipv4Addr, prefix: u8) -> io::Result<()> {
    let mut message = AddressMessage::default();
    message.header.family = AddressFamily::Inet;
    message.header.prefix_len = prefix;
    message.header.index = interface;
    let attributes = [AddressAttribute::Local, AddressAttribute::Address];
    message.attributes = attributes.map(|attribute| attribute(address.into())).into();
    message.attributes.extend(broadcast(address, prefix).map(AddressAttribute::Broadcast));
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE;
    let payload = NetlinkPayload::from(RouteNetlinkMessage::NewAddress(message));
    let mut request = NetlinkMessage::new(header, payload);
    request.finalize();
    let mut bytes = vec![0; request.buffer_len()];
    request.serialize(&mut bytes);
    answer(&bytes)
}

/// Returns the address of all machines of a subnet; the smallest have none (RFC 3021).
fn broadcast(address: Ipv4Addr, prefix: u8) -> Option<Ipv4Addr> {
    let host = u32::MAX.checked_shr(prefix.into()).filter(|host| *host > 1)?;
    Some(Ipv4Addr::from(u32::from(address) | host))
}

/// Sends a request to the kernel, and waits for its answer.
fn answer(request: &[u8]) -> io::Result<()> {
    let (family, flags) = (rustix::net::AddressFamily::NETLINK, SocketFlags::CLOEXEC);
    let socket = socket_with(family, SocketType::RAW, flags, None)?;
    bind(&socket, &SocketAddrNetlink::new(0, 0))?;
    send(&socket, request, SendFlags::empty())?;
    let mut buffer = [0; ANSWER];
    let len = loop {
        match recv(&socket, &mut buffer, RecvFlags::empty()) {
            Err(Errno::INTR) => {}
            received => break received?.0,
        }
    };
    let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&buffer[..len]);
    match answer.map_err(io::Error::other)?.payload {
        NetlinkPayload::Error(error) if error.code.is_some() => Err(error.to_io()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subnet_of_more_than_two_machines_has_a_broadcast_address() {
        let address = Ipv4Addr::new(10, 1, 9, 9);
        let rows = [
            (0, Some([255; 4])),
            (16, Some([10, 1, 255, 255])),
            (30, Some([10, 1, 9, 11])),
            (31, None),
            (32, None),
        ];
        for (prefix, expected) in rows {
            assert_eq!(broadcast(address, prefix), expected.map(Ipv4Addr::from), "/{prefix}");
        }
    }
}
