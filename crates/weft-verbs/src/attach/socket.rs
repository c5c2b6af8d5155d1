//! The control socket: a Unix socket that preserves message boundaries and passes descriptors.

use std::env;
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{UnixCredentials, getsockopt};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind,
    connect, listen, recvmsg, sendmsg, socket_with,
};

use super::MAX_MESSAGE;

/// Maximum number of descriptors with one message.
const DESCRIPTORS: usize = 2;

/// Maximum number of connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// A `SOCK_SEQPACKET` socket, listening or connected.
#[derive(Debug)]
pub(crate) struct Socket(OwnedFd);

fn unix() -> io::Result<OwnedFd> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    Ok(socket_with(family, kind, SocketFlags::CLOEXEC, None)?)
}

impl Socket {
    /// Listens at a path where no file exists.
    ///
    /// # Errors
    /// The path exists, or its folder does not exist or is not writable.
    pub(crate) fn listen(path: &Path) -> io::Result<Self> {
        let socket = unix()?;
        bind(&socket, &SocketAddrUnix::new(path)?)?;
        listen(&socket, BACKLOG)?;
        Ok(Self(socket))
    }

    /// Connects to the listener at this path.
    ///
    /// # Errors
    /// There is no listener, or this user may not connect.
    pub(crate) fn connect(path: &Path) -> io::Result<Self> {
        let socket = unix()?;
        connect(&socket, &SocketAddrUnix::new(path)?)?;
        Ok(Self(socket))
    }

    /// Creates two sockets that are connected with each other.
    ///
    /// # Errors
    /// There are no more descriptors.
    pub(crate) fn pair() -> io::Result<(Self, Self)> {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let (one, other) = rustix::net::socketpair(family, kind, SocketFlags::CLOEXEC, None)?;
        Ok((Self(one), Self(other)))
    }

    /// Accepts the next connection.
    ///
    /// # Errors
    /// The process has no more descriptors; or no connection waits, because it closed after the listener became
    /// readable.
    pub(crate) fn accept(&self) -> io::Result<Self> {
        Ok(Self(accept_with(&self.0, SocketFlags::CLOEXEC)?))
    }

    /// Returns the credentials of the other end, as the kernel knows them.
    ///
    /// # Errors
    /// It is not connected.
    pub(crate) fn peer(&self) -> io::Result<UnixCredentials> {
        // rustix takes process 0 for an error, which is that of a program outside this process namespace.
        Ok(getsockopt(&self.0, PeerCredentials)?)
    }

    /// Sends a message; waits for room unless `now`.
    ///
    /// # Errors
    /// The other end has closed; or there is no room now.
    pub(crate) fn send(
        &self,
        message: &[u8],
        descriptors: &[BorrowedFd<'_>],
        now: bool,
    ) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            let fits = control.push(SendAncillaryMessage::ScmRights(descriptors));
            assert!(fits, "at most {DESCRIPTORS} descriptors are sent at once");
        }
        let wait = if now { SendFlags::DONTWAIT } else { SendFlags::empty() };
        let flags = wait | SendFlags::NOSIGNAL;
        retried(|| sendmsg(&self.0, &[io::IoSlice::new(message)], &mut control, flags))?;
        Ok(())
    }

    /// Receives the next message in place of the content of `message`, and returns the descriptors that came with it;
    /// `None` when the other end has closed. Waits for it unless `now`. The kernel drops descriptors that do not fit,
    /// and all of them without `with_descriptors`.
    ///
    /// # Errors
    /// There is none now, or it is longer than the maximum.
    pub(crate) fn receive(
        &self,
        message: &mut Vec<u8>,
        now: bool,
        with_descriptors: bool,
    ) -> io::Result<Option<Vec<OwnedFd>>> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let room = if with_descriptors { &mut space[..] } else { &mut [] };
        let mut control = RecvAncillaryBuffer::new(room);
        message.resize(MAX_MESSAGE, 0);
        let wait = if now { RecvFlags::DONTWAIT } else { RecvFlags::empty() };
        let flags = wait | RecvFlags::CMSG_CLOEXEC;
        let received =
            retried(|| recvmsg(&self.0, &mut [io::IoSliceMut::new(message)], &mut control, flags))?;
        let descriptors: Vec<OwnedFd> = control
            .drain()
            .filter_map(|message| match message {
                RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
                _ => None,
            })
            .flatten()
            .collect();
        if received.flags.contains(rustix::net::ReturnFlags::TRUNC) {
            return Err(Errno::MSGSIZE.into());
        }
        message.truncate(received.bytes);
        // No side sends an empty message.
        Ok((received.bytes > 0).then_some(descriptors))
    }
}

impl From<OwnedFd> for Socket {
    fn from(descriptor: OwnedFd) -> Self {
        Self(descriptor)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Listens at a path, whose folder it makes; replaces the socket of a process that died.
///
/// # Errors
/// `AddrInUse`: a process serves it. Or the folder cannot be made, or written to.
pub(crate) fn listen_at<T>(
    path: &Path,
    listen: impl Fn(&Path) -> io::Result<T>,
    is_served: impl FnOnce(&Path) -> bool,
) -> io::Result<T> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    match listen(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && !is_served(path) => {
            fs::remove_file(path)?;
            listen(path)
        }
        listener => listener,
    }
}

/// Repeats a call that a signal interrupted.
fn retried<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            outcome => return outcome,
        }
    }
}

/// The environment variable with the path of the socket, if it is not the default.
const VARIABLE: &str = "WEFT_DEVICE_SOCKET";

/// The path of the machine's daemon.
const SYSTEM_SOCKET: &str = "/run/weft/device.sock";

/// Returns the default path for a daemon to listen at: `WEFT_DEVICE_SOCKET`, or the machine's path if the user is root,
/// or this user's.
pub fn default_socket() -> PathBuf {
    if let Some(path) = env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
        return path.into();
    }
    let user = rustix::process::getuid();
    if user.is_root() {
        return SYSTEM_SOCKET.into();
    }
    let folder = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let folder = folder.unwrap_or_else(|| format!("/tmp/weft-{}", user.as_raw()).into());
    folder.join("weft/device.sock")
}

/// Returns the path at which programs connect to a daemon: that of `WEFT_DEVICE_SOCKET`, else this user's if it exists,
/// else the machine's.
pub(crate) fn daemon_socket() -> PathBuf {
    let own = default_socket();
    let is_set = env::var_os(VARIABLE).is_some_and(|path| !path.is_empty());
    if is_set || own.exists() { own } else { SYSTEM_SOCKET.into() }
}
