//! The connecting side: an attempt that each call of `connect` moves on, without ever waiting.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use socket2::{Domain as Family, Protocol, SockAddr, Socket, Type};

use super::control::Control;
use super::link::{Change, Link};
use crate::device::Port;
use crate::failure::Failure;
use crate::handle::Handle;
use crate::verbs::Domain;

/// The interval at which more TCP connections are tried beside those that have no answer yet, each from another source port: the
/// fabric chooses another path for it. The first that opens is used.
const DIAL_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum number of connections that are tried at once; then the oldest is given up for a new one.
const MAX_DIALS: usize = 32;
/// The time after which a connection that is open and carries no answer is given up: its path may have died. The peer may also not
/// have called `accept` yet, which NCCL allows it for as long as it likes.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// The time after which a peer to which no TCP connection opens counts as unreachable.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(120);

/// An attempt to connect to a listener.
#[derive(Debug)]
pub(crate) struct Attempt {
    handle: Handle,
    port: Port,
    /// The TCP connections that are not open yet, the oldest first.
    dials: Vec<Socket>,
    /// The link that is offered to the peer.
    offered: Option<Box<Link>>,
    /// The time since which no TCP connection was open.
    unreachable_since: Instant,
    /// The time of the last dial or offer.
    acted_at: Instant,
}

#[expect(clippy::disallowed_methods, reason = "the network's timeouts are real time")]
fn now() -> Instant {
    Instant::now()
}

impl Attempt {
    pub(crate) fn new(handle: Handle, port: Port) -> Self {
        let now = now();
        let (dials, offered) = (Vec::new(), None);
        Self { handle, port, dials, offered, unreachable_since: now, acted_at: now }
    }

    /// Returns the link once it is open; `None` before.
    ///
    /// # Errors
    /// The peer refuses connections, which is how a process that has ended answers, or does not answer for two minutes.
    pub(crate) fn advance(&mut self, domain: &Arc<Domain>) -> Result<Option<Link>, Failure> {
        let now = now();
        match self.offered.take() {
            Some(link) if now - self.acted_at < ANSWER_TIMEOUT => self.wait_for_answer(now, link),
            _ => {
                self.dial(now)?;
                if let Some(stream) = self.take_connected()? {
                    let control = Control::new(stream).map_err(|error| self.failed(&error))?;
                    let link = Link::offer(domain, self.port, control, self.handle.nonce)?;
                    (self.offered, self.acted_at) = (Some(Box::new(link)), now);
                }
                Ok(None)
            }
        }
    }

    /// Returns the link if the peer has answered the offer.
    fn wait_for_answer(
        &mut self,
        now: Instant,
        mut link: Box<Link>,
    ) -> Result<Option<Link>, Failure> {
        self.unreachable_since = now;
        match link.service(0)? {
            Change::Renewed { .. } => {
                link.send_ready();
                return Ok(Some(*link));
            }
            Change::End => {
                return Err(Failure::remote(format!(
                    "{} closed the connection: its process has ended, or it is not this plugin",
                    self.handle.address
                )));
            }
            _ => self.offered = Some(link),
        }
        Ok(None)
    }

    /// Tries one more TCP connection if it is time.
    fn dial(&mut self, now: Instant) -> Result<(), Failure> {
        if now - self.unreachable_since > CONNECT_TIMEOUT {
            return Err(Failure::remote(format!(
                "{} does not answer for {} s: can this host reach that address by TCP (NCCL_SOCKET_IFNAME selects another)?",
                self.handle.address,
                CONNECT_TIMEOUT.as_secs()
            )));
        }
        if self.dials.is_empty() || now - self.acted_at > DIAL_INTERVAL {
            if self.dials.len() == MAX_DIALS {
                self.dials.remove(0);
            }
            self.acted_at = now;
            let dialed = dial(self.handle.address, self.port);
            self.dials.push(dialed.map_err(|error| self.failed(&error))?);
        }
        Ok(())
    }

    /// Returns a TCP connection that is open, and gives up the others.
    fn take_connected(&mut self) -> Result<Option<TcpStream>, Failure> {
        for index in 0..self.dials.len() {
            match is_connected(&self.dials[index]) {
                Ok(true) => {
                    let socket = self.dials.swap_remove(index);
                    self.dials.clear();
                    return Ok(Some(socket.into()));
                }
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                    return Err(self.failed(&error));
                }
                // The network may recover: this one makes room for another in its turn.
                Ok(false) | Err(_) => {}
            }
        }
        Ok(None)
    }

    fn failed(&self, error: &io::Error) -> Failure {
        Failure::remote(format!("connecting to {}: {error}", self.handle.address))
    }
}

/// Begins a TCP connection from the port's address, or from any if this host does not have that.
fn dial(peer: SocketAddr, port: Port) -> io::Result<Socket> {
    let socket =
        Socket::new(Family::for_address(peer), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    if port.address.is_ipv4() == peer.is_ipv4() {
        let _ = socket.bind(&SockAddr::from(SocketAddr::new(port.address, 0)));
    }
    match socket.connect(&SockAddr::from(peer)) {
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => Ok(socket),
        // The network may recover: the next try waits for its turn.
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::NetworkUnreachable | ErrorKind::HostUnreachable
            ) =>
        {
            Ok(socket)
        }
        other => other.map(|()| socket),
    }
}

/// Returns `true` once a connection is open.
///
/// # Errors
/// It was refused, or the peer's host does not answer.
fn is_connected(socket: &Socket) -> io::Result<bool> {
    let mut poll = libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
    // SAFETY: the descriptor is open, and the kernel writes one structure.
    if unsafe { libc::poll(&raw mut poll, 1, 0) } == 0 {
        return Ok(false);
    }
    match socket.take_error()? {
        Some(error) => Err(error),
        None => socket.peer_addr().map(|_| true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Device;
    use crate::meet::Listener;

    fn until(what: &str, mut condition: impl FnMut() -> bool) {
        let began = now();
        while !condition() {
            assert!(now() - began < Duration::from_secs(30), "not within half a minute: {what}");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_peer_may_call_accept_late_and_is_not_dialled_again_meanwhile() {
        let device = Device::current().unwrap();
        let port = device.interfaces[0].port;
        let (mut listener, handle) = Listener::open(port).unwrap();
        let mut attempt = Attempt::new(handle, port);
        let began = now();
        until("the time of a dial has passed", || {
            assert!(attempt.advance(&device.domain).unwrap().is_none(), "nobody has accepted");
            now() - began > DIAL_INTERVAL * 20
        });
        let (mut sending, mut receiving) = (None, None);
        until("both ends are open", || {
            sending = sending.take().or_else(|| attempt.advance(&device.domain).unwrap());
            receiving = receiving.take().or_else(|| listener.accept(&device.domain).unwrap());
            assert!(listener.pending() <= 1, "{listener:?}");
            sending.is_some() && receiving.is_some()
        });
    }

    #[test]
    fn a_process_that_has_ended_is_named_at_once() {
        let device = Device::current().unwrap();
        let port = device.interfaces[0].port;
        let (listener, handle) = Listener::open(port).unwrap();
        drop(listener);
        let mut attempt = Attempt::new(handle, port);
        let mut failed = None;
        until("the connection is refused", || {
            failed = attempt.advance(&device.domain).err();
            failed.is_some()
        });
        let text = failed.map(|failure| failure.to_string()).unwrap_or_default();
        assert!(text.contains(&handle.address.to_string()) && text.contains("refused"), "{text}");
    }
}
