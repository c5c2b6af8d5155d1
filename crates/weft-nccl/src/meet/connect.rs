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

/// The time after which a new TCP connection is tried, from another source port: the fabric then chooses another path.
const DIAL_TIMEOUT: Duration = Duration::from_secs(1);
/// The same for a connection that is open and carries no answer: its path may have died since. The peer may also not have called
/// `accept` yet, which NCCL allows it for as long as it likes.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// The time after which a peer to which no TCP connection opens counts as unreachable.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(120);

#[derive(Debug)]
enum Stage {
    Dialing(Socket),
    Offered(Box<Link>),
}

/// An attempt to connect to a listener.
#[derive(Debug)]
pub(crate) struct Attempt {
    handle: Handle,
    port: Port,
    /// The time since which no TCP connection was open.
    unreachable_since: Instant,
    try_began_at: Instant,
    stage: Option<Stage>,
}

#[expect(clippy::disallowed_methods, reason = "the network's timeouts are real time")]
fn now() -> Instant {
    Instant::now()
}

impl Attempt {
    pub(crate) fn new(handle: Handle, port: Port) -> Self {
        let now = now();
        Self { handle, port, unreachable_since: now, try_began_at: now, stage: None }
    }

    /// Returns the link once it is open; `None` before.
    ///
    /// # Errors
    /// The peer refuses connections, which is how a process that has ended answers, or does not answer for two minutes.
    pub(crate) fn advance(&mut self, domain: &Arc<Domain>) -> Result<Option<Link>, Failure> {
        let now = now();
        let peer = self.handle.address;
        if now - self.unreachable_since > CONNECT_TIMEOUT {
            let text = format!(
                "{peer} does not answer for {} s: can this host reach that address by TCP (NCCL_SOCKET_IFNAME selects another)?",
                CONNECT_TIMEOUT.as_secs()
            );
            return Err(Failure::remote(text));
        }
        let limit = match self.stage {
            Some(Stage::Offered(_)) => ANSWER_TIMEOUT,
            _ => DIAL_TIMEOUT,
        };
        if now - self.try_began_at > limit {
            (self.stage, self.try_began_at) = (None, now);
        }
        match self.stage.take() {
            None => {
                let dialed = dial(peer, self.port).map_err(|error| connecting(peer, &error))?;
                self.stage = Some(Stage::Dialing(dialed));
            }
            Some(Stage::Dialing(socket)) => match is_connected(&socket) {
                Ok(false) => self.stage = Some(Stage::Dialing(socket)),
                Ok(true) => {
                    let control = Control::new(TcpStream::from(socket))
                        .map_err(|error| connecting(peer, &error))?;
                    let link = Link::offer(domain, self.port, control, self.handle.nonce)?;
                    self.stage = Some(Stage::Offered(Box::new(link)));
                }
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                    return Err(connecting(peer, &error));
                }
                // The network may recover: the next try waits for its turn.
                Err(_) => self.stage = Some(Stage::Dialing(socket)),
            },
            Some(Stage::Offered(mut link)) => match link.service(0)? {
                Change::Renewed { .. } => {
                    link.send_ready();
                    return Ok(Some(*link));
                }
                Change::End => {
                    return Err(Failure::remote(format!(
                        "{peer} closed the connection: its process has ended, or it is not this plugin"
                    )));
                }
                _ => {
                    self.unreachable_since = now;
                    self.stage = Some(Stage::Offered(link));
                }
            },
        }
        Ok(None)
    }
}

fn connecting(peer: SocketAddr, error: &io::Error) -> Failure {
    Failure::remote(format!("connecting to {peer}: {error}"))
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
            now() - began > DIAL_TIMEOUT * 2
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
