//! A process's end of the control socket.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use super::{Answer, Refusal, Request, Socket, decode, encode};
use crate::errno::Errno;

/// Why a daemon did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// Nobody listens there.
    #[error(
        "no daemon at {}: start one with `weft device serve`, or say where it is with \
         WEFT_DEVICE_SOCKET or --socket", path.display()
    )]
    NoDaemon {
        /// Where.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        cause: io::Error,
    },
    /// The daemon ended, or gave up on this process.
    #[error("the daemon is gone")]
    Gone(#[source] io::Error),
    /// The daemon's answer makes no sense.
    #[error("the daemon speaks otherwise: it is of another version of Weft")]
    Nonsense,
    /// The daemon says no.
    #[error("{reason}")]
    Refused {
        /// `errno(3)`.
        errno: i32,
        /// In words.
        reason: String,
    },
}

impl CallError {
    pub(crate) fn errno(&self) -> Errno {
        match self {
            Self::NoDaemon { cause, .. } => Errno::from_io(cause),
            Self::Gone(_) => Errno(libc::EIO),
            Self::Nonsense => Errno(libc::EPROTO),
            Self::Refused { errno, .. } => Errno(*errno),
        }
    }
}

/// Asks, and waits for the answer.
#[derive(Debug)]
pub(crate) struct Caller {
    socket: Socket,
    message: Vec<u8>,
}

impl Caller {
    /// # Errors
    /// Nobody listens at this path.
    pub(crate) fn connect(path: &Path) -> Result<Self, CallError> {
        let no_daemon = |cause| CallError::NoDaemon { path: path.into(), cause };
        let socket = Socket::connect(path).map_err(no_daemon)?;
        Ok(Self { socket, message: Vec::new() })
    }

    /// # Errors
    /// The daemon is gone, or says no.
    pub(crate) fn call(
        &mut self,
        request: &Request,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(Answer, Vec<OwnedFd>), CallError> {
        encode(request, &mut self.message);
        self.socket.send(&self.message, descriptors, false).map_err(CallError::Gone)?;
        let received =
            self.socket.receive(&mut self.message, false, true).map_err(CallError::Gone)?;
        let end = || CallError::Gone(io::ErrorKind::UnexpectedEof.into());
        let descriptors = received.ok_or_else(end)?;
        match decode::<Result<Answer, Refusal>>(&self.message).ok_or(CallError::Nonsense)? {
            Ok(answer) => Ok((answer, descriptors)),
            Err(Refusal { errno, reason }) => Err(CallError::Refused { errno, reason }),
        }
    }
}

#[cfg(test)]
impl Caller {
    /// For tests that say what no caller says.
    pub(crate) fn socket(&self) -> &Socket {
        &self.socket
    }
}

impl AsFd for Caller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
