//! The control socket: a Unix socket that keeps messages apart, and passes descriptors with them.

use std::env;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, UCred, accept_with,
    bind, connect, listen, recvmsg, sendmsg, socket_with,
};

use super::LONGEST_MESSAGE;

/// Descriptors that come with one message, at most.
const DESCRIPTORS: usize = 2;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// A socket of this kind, listening or connected.
#[derive(Debug)]
pub(crate) struct Socket(OwnedFd);

fn unix() -> io::Result<OwnedFd> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    Ok(socket_with(family, kind, SocketFlags::CLOEXEC, None)?)
}

impl Socket {
    /// Listens at a path where nothing is yet.
    ///
    /// # Errors
    /// Something is there, or the folder is not, or may not be written to.
    pub(crate) fn listen(path: &Path) -> io::Result<Self> {
        let socket = unix()?;
        bind(&socket, &SocketAddrUnix::new(path)?)?;
        listen(&socket, BACKLOG)?;
        Ok(Self(socket))
    }

    /// Connects to who listens at this path.
    ///
    /// # Errors
    /// Nobody does, or this user may not.
    pub(crate) fn connect(path: &Path) -> io::Result<Self> {
        let socket = unix()?;
        connect(&socket, &SocketAddrUnix::new(path)?)?;
        Ok(Self(socket))
    }

    /// Two that are connected with each other.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn pair() -> io::Result<(Self, Self)> {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let (one, other) = rustix::net::socketpair(family, kind, SocketFlags::CLOEXEC, None)?;
        Ok((Self(one), Self(other)))
    }

    /// The next connection.
    ///
    /// # Errors
    /// There are no more descriptors; or none waits, where the listener has been found readable and the
    /// connection is gone.
    pub(crate) fn accept(&self) -> io::Result<Self> {
        Ok(Self(accept_with(&self.0, SocketFlags::CLOEXEC)?))
    }

    /// Who is at the other end, as the kernel knows.
    ///
    /// # Errors
    /// It is not connected.
    pub(crate) fn peer(&self) -> io::Result<UCred> {
        Ok(socket_peercred(&self.0)?)
    }

    /// Sends a message; waits for room unless `now`.
    ///
    /// # Errors
    /// The other end is gone; or there is no room now.
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

    /// The next message, in place of what was in `message`, and the descriptors that came with it; `None`
    /// when the other end is gone. Waits for it unless `now`. The kernel drops descriptors that are not taken.
    ///
    /// # Errors
    /// There is none now, or it is longer than messages are.
    pub(crate) fn receive(
        &self,
        message: &mut Vec<u8>,
        now: bool,
        with_descriptors: bool,
    ) -> io::Result<Option<Vec<OwnedFd>>> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let room = if with_descriptors { &mut space[..] } else { &mut [] };
        let mut control = RecvAncillaryBuffer::new(room);
        message.resize(LONGEST_MESSAGE, 0);
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
        // Nobody sends a message of nothing.
        Ok((received.bytes > 0).then_some(descriptors))
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Makes a call again that a signal interrupted.
fn retried<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            outcome => return outcome,
        }
    }
}

/// Names the socket where it is not at its usual place.
const VARIABLE: &str = "WEFT_DEVICE_SOCKET";

/// Where the machine's daemon listens.
const OF_THE_MACHINE: &str = "/run/weft/device.sock";

/// Where a daemon listens if nobody says otherwise: where `WEFT_DEVICE_SOCKET` says, or at the machine's place
/// where the user is root, or at this user's.
pub fn default_socket() -> PathBuf {
    if let Some(path) = env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
        return path.into();
    }
    let user = rustix::process::getuid();
    if user.is_root() {
        return OF_THE_MACHINE.into();
    }
    let folder = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let folder = folder.unwrap_or_else(|| format!("/tmp/weft-{}", user.as_raw()).into());
    folder.join("weft/device.sock")
}

/// Where programs look for a daemon: where this user's listens, or the machine's.
pub(crate) fn daemon_socket() -> PathBuf {
    let own = default_socket();
    let said = env::var_os(VARIABLE).is_some_and(|path| !path.is_empty());
    if said || own.exists() { own } else { OF_THE_MACHINE.into() }
}
