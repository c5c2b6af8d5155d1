//! A UDP socket that says how long each packet waited in it, by the kernel's clock.

use std::io::{self, ErrorKind, IoSliceMut};
use std::net::{SocketAddr, SocketAddrV4, SocketAddrV6, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt, sockopt,
};
use nix::sys::time::TimeSpec;

use super::packet::{LEN, Packet};
use crate::SteerError;

/// A UDP socket that does not block.
#[derive(Debug)]
pub(super) struct TimedSocket(UdpSocket);

/// A received datagram.
pub(super) struct Received {
    /// The packet; `None` if the bytes are none.
    pub(super) packet: Option<Packet>,
    pub(super) from: SocketAddr,
    /// The time between its arrival and now.
    pub(super) waited: Duration,
}

/// Bytes for packets that wait while this process does not run: the kernel counts 768 or more for each, so that these
/// are a second of 5,000 probes.
const BUFFER: usize = 4 << 20;

impl TimedSocket {
    pub(super) fn bind(at: SocketAddr) -> io::Result<Self> {
        let socket = UdpSocket::bind(at)?;
        socket.set_nonblocking(true)?;
        setsockopt(&socket, sockopt::ReceiveTimestampns, &true)?;
        // Beyond `net.core.rmem_max` with CAP_NET_ADMIN only.
        if setsockopt(&socket, sockopt::RcvBufForce, &BUFFER).is_err() {
            setsockopt(&socket, sockopt::RcvBuf, &BUFFER)?;
        }
        Ok(Self(socket))
    }

    pub(super) fn send(&self, packet: &Packet, to: SocketAddr) -> io::Result<()> {
        self.0.send_to(&packet.emit(), to).map(drop)
    }

    /// Returns a received datagram; `None` if there is none.
    ///
    /// # Errors
    /// Returns `Io` if the socket fails.
    pub(super) fn receive(&self) -> Result<Option<Received>, SteerError> {
        // A longer datagram is cut to one byte more than a packet, which is none.
        let mut bytes = [0; LEN + 1];
        let mut control = nix::cmsg_space!(TimeSpec);
        let mut slices = [IoSliceMut::new(&mut bytes)];
        let flags = MsgFlags::empty();
        let fd = self.0.as_raw_fd();
        let message = match recvmsg::<SockaddrStorage>(fd, &mut slices, Some(&mut control), flags) {
            Ok(message) => message,
            Err(errno) => return none_waits(errno.into()),
        };
        let Some(from) = message.address.as_ref().and_then(socket_address) else {
            return Ok(None);
        };
        let arrived = message.cmsgs().ok().into_iter().flatten().find_map(|it| match it {
            ControlMessageOwned::ScmTimestampns(at) => Some(UNIX_EPOCH + Duration::from(at)),
            _ => None,
        });
        let waited = arrived.and_then(|at| SystemTime::now().duration_since(at).ok());
        let length = message.bytes;
        let packet = Packet::parse(&bytes[..length]);
        Ok(Some(Received { packet, from, waited: waited.unwrap_or_default() }))
    }
}

/// Returns no datagram, or the error if it says more.
fn none_waits(error: io::Error) -> Result<Option<Received>, SteerError> {
    match error.kind() {
        // The last is an ICMP error of an earlier datagram.
        ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::ConnectionRefused => Ok(None),
        _ => Err(SteerError::io("receive probes")(error)),
    }
}

fn socket_address(address: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = address.as_sockaddr_in().map(|it| SocketAddr::V4(SocketAddrV4::from(*it)));
    v4.or_else(|| address.as_sockaddr_in6().map(|it| SocketAddr::V6(SocketAddrV6::from(*it))))
}

impl AsFd for TimedSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
