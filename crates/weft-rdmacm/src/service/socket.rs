//! The UDP sockets of bound identifiers: a port of an RDMA port space is the UDP port of that number, on each address
//! that it is bound to. So the kernel keeps ports apart between processes, and reports a port without a socket. Each
//! socket is bound to one address, so answers leave from the address that was asked.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::event::epoll;
use socket2::{Domain, Protocol, Type};

use crate::errno::{EADDRINUSE, Outcome};
use crate::manager::Space;

/// Maximum number of attempts to bind several addresses to one port that the kernel picks.
const ATTEMPTS: u32 = 64;

#[derive(Debug)]
struct Socket {
    udp: UdpSocket,
    /// The port spaces it is bound in; empty if only closing connections still use it.
    spaces: BTreeSet<Space>,
}

/// The addresses and the port that an identifier is bound to.
#[derive(Clone, Debug)]
pub(crate) struct Bound {
    pub(crate) space: Space,
    pub(crate) addresses: Vec<SocketAddr>,
}

impl Bound {
    pub(crate) fn port(&self) -> u16 {
        self.addresses.first().map_or(0, SocketAddr::port)
    }
}

#[derive(Debug)]
pub(crate) struct Sockets {
    bound: BTreeMap<SocketAddr, Socket>,
    by_descriptor: BTreeMap<u64, SocketAddr>,
    unbound: BTreeSet<SocketAddr>,
    /// Readable when a datagram has arrived.
    pub(super) arrivals: OwnedFd,
}

impl Sockets {
    pub(super) fn open() -> Outcome<Self> {
        Ok(Self {
            bound: BTreeMap::new(),
            by_descriptor: BTreeMap::new(),
            unbound: BTreeSet::new(),
            arrivals: epoll::create(epoll::CreateFlags::CLOEXEC)?,
        })
    }

    /// Binds a port on every address; port zero selects one that is free on all of them.
    ///
    /// # Errors
    /// `EADDRINUSE`: another socket has it; nothing is bound then.
    pub(crate) fn bind(&mut self, space: Space, ips: &[IpAddr], port: u16) -> Outcome<Bound> {
        let mut outcome = Err(EADDRINUSE);
        for _ in 0..if port == 0 { ATTEMPTS } else { 1 } {
            outcome = self.bind_all(space, ips, port);
            if outcome.is_ok() {
                break;
            }
        }
        outcome
    }

    fn bind_all(&mut self, space: Space, ips: &[IpAddr], port: u16) -> Outcome<Bound> {
        let mut bound = Bound { space, addresses: Vec::new() };
        for &ip in ips {
            let port = if bound.addresses.is_empty() { port } else { bound.port() };
            match self.bind_one(space, (ip, port).into()) {
                Ok(address) => bound.addresses.push(address),
                Err(errno) => {
                    self.release(&bound);
                    self.close_unused(|_| false);
                    return Err(errno);
                }
            }
        }
        Ok(bound)
    }

    fn bind_one(&mut self, space: Space, address: SocketAddr) -> Outcome<SocketAddr> {
        if let Some(socket) = self.bound.get_mut(&address) {
            self.unbound.remove(&address);
            return if socket.spaces.insert(space) { Ok(address) } else { Err(EADDRINUSE) };
        }
        let socket =
            socket2::Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
        socket.set_nonblocking(true)?;
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        socket.bind(&address.into())?;
        let udp = UdpSocket::from(socket);
        let address = udp.local_addr()?;
        let descriptor = key(&udp);
        let data = epoll::EventData::new_u64(descriptor);
        epoll::add(&self.arrivals, &udp, data, epoll::EventFlags::IN)?;
        self.by_descriptor.insert(descriptor, address);
        self.bound.insert(address, Socket { udp, spaces: BTreeSet::from([space]) });
        Ok(address)
    }

    /// Connects the socket to its only peer, so that the kernel reports when the peer is gone.
    pub(crate) fn connect(&mut self, local: SocketAddr, peer: SocketAddr) {
        if let Some(socket) = self.bound.get(&local)
            && socket.spaces.len() == 1
        {
            // A failure costs only time.
            let _ = socket.udp.connect(peer);
        }
    }

    /// Releases a port. Sockets stay open until [`Self::close_unused`].
    pub(crate) fn release(&mut self, bound: &Bound) {
        for address in &bound.addresses {
            if let Some(socket) = self.bound.get_mut(address) {
                socket.spaces.remove(&bound.space);
                if socket.spaces.is_empty() {
                    self.unbound.insert(*address);
                }
            }
        }
    }

    /// Closes sockets that are neither bound nor used by a connection.
    pub(super) fn close_unused(&mut self, is_used: impl Fn(SocketAddr) -> bool) {
        for address in self.unbound.extract_if(.., |address| !is_used(*address)) {
            if let Some(socket) = self.bound.remove(&address) {
                // A child of fork may hold the socket, and then closing would not end the watch.
                let _ = epoll::delete(&self.arrivals, socket.udp.as_fd());
                self.by_descriptor.remove(&key(&socket.udp));
            }
        }
    }

    pub(super) fn address(&self, descriptor: u64) -> Option<SocketAddr> {
        self.by_descriptor.get(&descriptor).copied()
    }

    /// Receives one datagram.
    pub(super) fn receive(
        &self,
        local: SocketAddr,
        to: &mut [u8],
    ) -> io::Result<(usize, SocketAddr)> {
        let socket = self.bound.get(&local).ok_or(io::ErrorKind::WouldBlock)?;
        socket.udp.recv_from(to)
    }

    pub(super) fn send(&self, from: SocketAddr, to: SocketAddr, bytes: &[u8]) -> io::Result<usize> {
        let socket = self.bound.get(&from).ok_or(io::ErrorKind::NotConnected)?;
        socket.udp.send_to(bytes, to)
    }

    /// Returns the peer that a socket is connected to.
    pub(super) fn peer(&self, local: SocketAddr) -> Option<SocketAddr> {
        self.bound.get(&local)?.udp.peer_addr().ok()
    }
}

fn key(socket: &UdpSocket) -> u64 {
    socket.as_raw_fd().cast_unsigned().into()
}

/// Returns the local address from which this host reaches another.
///
/// # Errors
/// `ENETUNREACH` and other errors of `connect(2)`.
pub(crate) fn source_for(peer: SocketAddr) -> Outcome<IpAddr> {
    let any: SocketAddr = match peer {
        SocketAddr::V4(_) => (std::net::Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (std::net::Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let probe = UdpSocket::bind(any)?;
    probe.connect(peer)?;
    Ok(probe.local_addr()?.ip())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::errno::Errno;

    const HOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
    const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

    #[test]
    fn a_port_is_one_number_on_all_addresses_and_has_one_owner() {
        let mut sockets = Sockets::open().unwrap();
        let bound = sockets.bind(Space::Connected, &[HOST, OTHER], 0).unwrap();
        let port = bound.port();
        assert!(port != 0 && bound.addresses == [(HOST, port).into(), (OTHER, port).into()]);
        let taken = |outcome: Outcome<Bound>| outcome.unwrap_err() == Errno(libc::EADDRINUSE);
        assert!(taken(sockets.bind(Space::Connected, &[OTHER], port)));
        assert!(taken(Sockets::open().unwrap().bind(Space::Datagram, &[OTHER], port)));
        // Each port space has its own ports.
        let other = sockets.bind(Space::Datagram, &[HOST, OTHER], port).unwrap();
        sockets.release(&other);
        sockets.release(&bound);
        sockets.close_unused(|_| true);
        assert!(taken(Sockets::open().unwrap().bind(Space::Connected, &[HOST], port)));
        sockets.close_unused(|_| false);
        Sockets::open().unwrap().bind(Space::Connected, &[HOST], port).unwrap();
        assert!(sockets.bound.is_empty() && sockets.by_descriptor.is_empty());
    }

    #[test]
    fn a_host_reaches_itself_from_the_address_it_asks_for() {
        assert_eq!(source_for((HOST, 9).into()), Ok(HOST));
    }
}
