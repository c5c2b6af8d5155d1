//! The listening side: it waits for peers that have its handle.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener};
use std::sync::Arc;

use super::control::{Control, Message, Received};
use super::link::{Change, Link};
use crate::device::Port;
use crate::failure::Failure;
use crate::handle::{Handle, Nonce};
use crate::verbs::Domain;

/// Maximum number of connections that have not opened a link yet: more are closed.
const MAX_PENDING: usize = 1_024;

/// A connection that has not opened a link yet.
#[derive(Debug)]
enum Pending {
    /// The peer has not offered a queue pair.
    Unknown(Control),
    /// The queue pairs are connected; the peer does not know yet.
    Offered(Box<Link>),
}

/// A listener.
#[derive(Debug)]
pub(crate) struct Listener {
    tcp: TcpListener,
    port: Port,
    nonce: Nonce,
    pending: Vec<Pending>,
}

impl Listener {
    /// Listens on a port of the device and returns the handle with which peers connect.
    ///
    /// # Errors
    /// No address of this host can be listened on.
    pub(crate) fn open(port: Port) -> Result<(Self, Handle), Failure> {
        let doing =
            |error: io::Error| Failure::system(&format!("listening on {}", port.address), &error);
        let tcp = bind(port.address).map_err(doing)?;
        tcp.set_nonblocking(true).map_err(doing)?;
        let address = tcp.local_addr().map_err(doing)?;
        let mut nonce = Nonce::default();
        getrandom::fill(&mut nonce).map_err(|error| doing(io::Error::other(error)))?;
        Ok((Self { tcp, port, nonce, pending: Vec::new() }, Handle { address, nonce, attempt: 0 }))
    }

    /// Returns the next link that a peer has opened; `None` if none has yet. It never blocks.
    ///
    /// # Errors
    /// The kernel or the device has no resources left.
    pub(crate) fn accept(&mut self, domain: &Arc<Domain>) -> Result<Option<Link>, Failure> {
        self.accept_connections()?;
        let mut opened = None;
        for pending in core::mem::take(&mut self.pending) {
            if opened.is_some() {
                self.pending.push(pending);
                continue;
            }
            match pending {
                Pending::Unknown(control) => self.pending.extend(self.meet(domain, control)?),
                Pending::Offered(mut link) => match link.service(0) {
                    Ok(Change::Ready) => opened = Some(*link),
                    Ok(Change::None) => self.pending.push(Pending::Offered(link)),
                    // The peer has tried again by another connection, or its process has ended.
                    Ok(_) | Err(_) => {}
                },
            }
        }
        Ok(opened)
    }

    /// Returns the number of connections that have not opened a link yet.
    #[cfg(test)]
    pub(super) fn pending(&self) -> usize {
        self.pending.len()
    }

    fn accept_connections(&mut self) -> Result<(), Failure> {
        loop {
            match self.tcp.accept() {
                Ok((stream, _)) if self.pending.len() < MAX_PENDING => {
                    self.pending.extend(Control::new(stream).ok().map(Pending::Unknown));
                }
                Ok(_) => {}
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => return Ok(()),
                    ErrorKind::Interrupted | ErrorKind::ConnectionAborted => {}
                    _ => return Err(Failure::system("accepting a connection", &error)),
                },
            }
        }
    }

    /// Answers a peer's offer once it has arrived. A peer without the nonce is refused.
    fn meet(&self, domain: &Arc<Domain>, mut control: Control) -> Result<Option<Pending>, Failure> {
        match control.poll() {
            Ok(Received::Nothing) => Ok(Some(Pending::Unknown(control))),
            Ok(Received::Message(Message::Offer { epoch: 0, from, nonce, .. }))
                if nonce == self.nonce =>
            {
                let mut link = Link::offer(domain, self.port, control, nonce)?;
                link.accept_offer(&from)?;
                Ok(Some(Pending::Offered(Box::new(link))))
            }
            Ok(_) | Err(_) => Ok(None),
        }
    }
}

/// Listens on the address of a port, or on all of this host's if it has none of that: the device may be a daemon's, in another
/// network namespace.
fn bind(address: IpAddr) -> io::Result<TcpListener> {
    TcpListener::bind((address, 0)).or_else(|error| {
        if error.kind() != ErrorKind::AddrNotAvailable {
            return Err(error);
        }
        let own = first_own_address(address)?;
        TcpListener::bind((own, 0))
    })
}

/// Returns the address of this host from which packets to `other` would leave.
fn first_own_address(other: IpAddr) -> io::Result<IpAddr> {
    let any: IpAddr =
        if other.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = std::net::UdpSocket::bind((any, 0))?;
    // The kernel selects a route; no packet is sent.
    socket.connect((other, 9))?;
    Ok(socket.local_addr()?.ip())
}
