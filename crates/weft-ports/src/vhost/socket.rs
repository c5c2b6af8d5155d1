//! The socket of the vhost-user protocol: the port listens and front ends connect, or the reverse.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use super::Role;
use crate::PortError;

/// The port's side of the connection set-up: a listener, or a path to connect to.
#[derive(Debug)]
pub(super) struct Rendezvous {
    path: PathBuf,
    listener: Option<UnixListener>,
}

impl Rendezvous {
    /// Listens at `path`, or prepares to connect there. A stale socket of an earlier process is replaced.
    pub(super) fn new(path: &Path, role: Role) -> Result<Self, PortError> {
        let listener = match role {
            Role::Connect => None,
            Role::Listen => {
                Some(listen(path).map_err(PortError::io(format!("listen at {}", path.display())))?)
            }
        };
        Ok(Self { path: path.into(), listener })
    }

    /// Returns the descriptor that is readable when a front end connects, if this side listens.
    pub(super) fn listener(&self) -> Option<BorrowedFd<'_>> {
        self.listener.as_ref().map(AsFd::as_fd)
    }

    /// Returns the connection of a front end that waits, if there is one.
    pub(super) fn accept_or_connect(&self) -> io::Result<Option<UnixStream>> {
        let connected = match &self.listener {
            Some(listener) => listener.accept().map(|(stream, _)| stream),
            None => connect_to(&self.path),
        };
        match connected {
            Ok(stream) => Ok(Some(stream)),
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock
                | ErrorKind::Interrupted
                | ErrorKind::ConnectionAborted
                | ErrorKind::ConnectionRefused
                | ErrorKind::NotFound => Ok(None),
                _ => Err(error),
            },
        }
    }
}

impl Drop for Rendezvous {
    fn drop(&mut self) {
        if self.listener.is_some() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn listen(path: &Path) -> io::Result<UnixListener> {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    if is_socket {
        // No process accepts connections at a stale socket.
        match connect_to(path) {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => fs::remove_file(path)?,
            _ => return Err(ErrorKind::AddrInUse.into()),
        }
    }
    let listener = UnixListener::bind(path)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Connects without waiting for a busy listener.
fn connect_to(path: &Path) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(UnixStream::from(socket))
}
