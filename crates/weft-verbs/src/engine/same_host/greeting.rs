//! The handshake of neighbours, over a Unix socket whose name contains the port of a process's share. Each sends its
//! identity and proves that its memory may be read; the one that connects brings the shared memory.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

use super::proof::{self, PROOF_BYTES};

/// The first bytes of a greeting; the last one is the version of the whole shared memory.
const MAGIC: [u8; 8] = *b"weft-sh\x06";

const BYTES: usize = MAGIC.len() + 2 + 8 + PROOF_BYTES;

/// Maximum number of connections that wait to be accepted.
const BACKLOG: i32 = 64;

/// The identity of a neighbour.
#[derive(Debug)]
pub(super) struct Greeting {
    /// The port of its share.
    pub(super) port: u16,
    /// Its process ID.
    pub(super) pid: i32,
    /// Its descriptors: its doorbell, after the shared memory if it is the one that connects.
    pub(super) descriptors: Vec<OwnedFd>,
}

/// Returns the socket address of the process with this port.
pub(super) fn address(port: u16) -> rustix::io::Result<SocketAddrUnix> {
    SocketAddrUnix::new_abstract_name(format!("weft/same-host/{port}").as_bytes())
}

fn socket() -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

/// Listens for other processes.
pub(super) fn listen(port: u16) -> rustix::io::Result<OwnedFd> {
    let listener = socket()?;
    rustix::net::bind(&listener, &address(port)?)?;
    rustix::net::listen(&listener, BACKLOG)?;
    Ok(listener)
}

/// Accepts a connection.
pub(super) fn accept(listener: &OwnedFd) -> Option<OwnedFd> {
    rustix::net::accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK).ok()
}

/// Connects to the process with this port, if it exists and [may be read](may_read). Any user's process may listen under
/// a name that no other has yet, and a process that gets the doorbell could take its rings away.
pub(super) fn connect(port: u16) -> Option<OwnedFd> {
    let socket = socket().ok()?;
    rustix::net::connect(&socket, &address(port).ok()?).ok()?;
    may_read(&socket).then_some(socket)
}

/// Returns `true` if the other end is a process of this user that this process may read: no other can become a
/// neighbour.
pub(super) fn may_read(socket: &OwnedFd) -> bool {
    own_user_s_process(socket.as_fd()).is_some_and(proof::may_read)
}

/// Sends this process's greeting, with its port.
pub(super) fn send(socket: &OwnedFd, port: u16, descriptors: &[BorrowedFd<'_>]) -> Option<()> {
    let (address, proof) = proof::own()?;
    let mut bytes = [0; BYTES];
    let (magic, rest) = bytes.split_at_mut(MAGIC.len());
    magic.copy_from_slice(&MAGIC);
    rest[..2].copy_from_slice(&port.to_ne_bytes());
    rest[2..10].copy_from_slice(&address.to_ne_bytes());
    rest[10..].copy_from_slice(&proof);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return None;
    }
    let flags = SendFlags::NOSIGNAL;
    let sent = rustix::net::sendmsg(socket, &[IoSlice::new(&bytes)], &mut control, flags).ok()?;
    (sent == BYTES).then_some(())
}

/// The result of waiting for a greeting.
#[derive(Debug)]
pub(super) enum GreetingState {
    Nothing,
    /// A valid greeting, with the expected number of descriptors.
    Accepted(Greeting),
    /// The other end is gone, or refused.
    Refused,
}

/// Receives the greeting of the other end, if it has sent one.
pub(super) fn receive(socket: &OwnedFd, descriptors: usize) -> GreetingState {
    let mut bytes = [0; BYTES + 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let mut slices = [IoSliceMut::new(&mut bytes)];
    let received = match rustix::net::recvmsg(socket, &mut slices, &mut control, flags) {
        Ok(received) => received.bytes,
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return GreetingState::Nothing,
        Err(_) => return GreetingState::Refused,
    };
    let mut brought = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            brought.extend(descriptors);
        }
    }
    let recognized = (received == BYTES && brought.len() == descriptors)
        .then(|| recognize(socket.as_fd(), &bytes[..BYTES]))
        .flatten();
    match recognized {
        Some((port, pid)) => GreetingState::Accepted(Greeting { port, pid, descriptors: brought }),
        None => GreetingState::Refused,
    }
}

/// Returns `true` if nothing has arrived, and the other end is open.
pub(super) fn is_quiet(socket: BorrowedFd<'_>) -> bool {
    let flags = RecvFlags::PEEK;
    matches!(rustix::net::recv(socket, &mut [0_u8; 1], flags), Err(rustix::io::Errno::AGAIN))
}

/// Returns the port and the process ID of a process of this user that has this version and may be read; `None` for any
/// other.
fn recognize(socket: BorrowedFd<'_>, greeting: &[u8]) -> Option<(u16, i32)> {
    let rest = greeting.strip_prefix(&MAGIC)?;
    let port = u16::from_ne_bytes(rest.get(..2)?.try_into().ok()?);
    let address = u64::from_ne_bytes(rest.get(2..10)?.try_into().ok()?);
    let proof: [u8; PROOF_BYTES] = rest.get(10..)?.try_into().ok()?;
    // A process in another PID namespace has no ID here, or another process has the same ID.
    let pid = own_user_s_process(socket)?;
    proof::proves(pid, address, &proof).then_some((port, pid))
}

/// Returns the ID of the process that connected or listens at the other end, if it has this process's user.
fn own_user_s_process(socket: BorrowedFd<'_>) -> Option<i32> {
    let credentials = getsockopt(&socket, PeerCredentials).ok()?;
    // SAFETY: it has no arguments and cannot fail.
    let same_user = credentials.uid() == unsafe { libc::geteuid() };
    // One outside this process namespace has no ID here.
    (same_user && credentials.pid() != 0).then_some(credentials.pid())
}

#[cfg(test)]
mod tests {
    use rustix::net::socketpair;

    use super::*;

    fn pair() -> (OwnedFd, OwnedFd) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap()
    }

    #[test]
    fn a_greeting_is_accepted_with_its_descriptors() {
        let (a, b) = pair();
        assert!(matches!(receive(&b, 1), GreetingState::Nothing));
        send(&a, 20_481, &[a.as_fd()]).unwrap();
        let GreetingState::Accepted(greeting) = receive(&b, 1) else { panic!() };
        assert_eq!(greeting.port, 20_481);
        drop((a, greeting));
        assert!(matches!(receive(&b, 1), GreetingState::Refused));
    }

    #[test]
    fn invalid_greetings_are_refused() {
        for bytes in [&b""[..], b"hello", &[0; BYTES], &[0; 200]] {
            let (a, b) = pair();
            let _ = rustix::io::write(&a, bytes);
            drop(a);
            assert!(matches!(receive(&b, 0), GreetingState::Refused), "{bytes:?}");
        }
        let (a, b) = pair();
        send(&a, 1, &[a.as_fd()]).unwrap();
        assert!(matches!(receive(&b, 2), GreetingState::Refused), "it brought too little");
    }
}
