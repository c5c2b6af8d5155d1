//! The sender of a request. The owner of the node's folder may be an attacker, and the sender root.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, recv, sendmsg_addr, socketpair,
};

use super::{ControlError, MAX_DATAGRAM, Request, Setting, read_settings, write_request};
use crate::directory::Directory;

/// The timeout of a response.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// Sends a request to the node whose socket is at `path`, and waits up to 2 s for the response.
///
/// # Errors
/// Returns an error if the node refuses, does not answer, or does not exist, or if the socket does not belong to the
/// owner of its folder.
pub fn ask(path: &Path, request: &Request) -> Result<Vec<Setting>, ControlError> {
    let failed = |error: io::Error| match error.kind() {
        // The node does not read its socket, or does not write to the client's.
        io::ErrorKind::WouldBlock => ControlError::NoAnswer,
        _ => ControlError::Io { path: path.to_owned(), error },
    };
    let reply = submit(path, write_request(request).as_bytes()).map_err(failed)?;
    let mut bytes = vec![0; MAX_DATAGRAM];
    let (length, _) = recv(&reply, bytes.as_mut_slice(), RecvFlags::empty())
        .map_err(|error| failed(error.into()))?;
    if length == 0 {
        return Err(ControlError::Closed { path: path.to_owned() });
    }
    let text = str::from_utf8(&bytes[..length]).map_err(|_| ControlError::Garbled)?;
    // The client may print the response to a terminal.
    let text: String = text.chars().filter(|it| *it == '\n' || !it.is_control()).collect();
    match text.split_once('\n') {
        Some(("ok", settings)) => read_settings(settings).ok_or(ControlError::Garbled),
        Some(("error", why)) => Err(ControlError::Refused(why.trim_end().to_owned())),
        _ => Err(ControlError::Garbled),
    }
}

/// Sends a request. Returns the socket on which the response arrives, or the end of the node's copy of its peer.
fn submit(path: &Path, request: &[u8]) -> io::Result<OwnedFd> {
    let node = open_socket(path)?;
    // The path of a descriptor leads to the file that was checked, whatever has its name by now.
    let address = SocketAddrUnix::new(format!("/proc/self/fd/{}", node.as_raw_fd()))?;
    // Of a pair of datagram sockets, the kernel does not report that the peer is closed.
    let (own, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&own, Timeout::Recv, Some(ANSWER_TIMEOUT))?;
    let sender = UnixDatagram::unbound()?;
    sender.set_write_timeout(Some(ANSWER_TIMEOUT))?;
    let files = [theirs.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    assert!(ancillary.push(SendAncillaryMessage::ScmRights(&files)), "there is space for one");
    let request = [IoSlice::new(request)];
    sendmsg_addr(&sender, &address, &request, &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(own)
}

/// Opens the path of a node's socket, which must belong to the owner of its folder.
fn open_socket(path: &Path) -> io::Result<OwnedFd> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    Directory::open(folder.unwrap_or_else(|| Path::new(".")))?.open_socket(name)
}
