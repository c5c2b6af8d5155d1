//! A process's end of the control socket.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use super::{Answer, Probe, Refusal, Request, Signal, Socket, decode, encode};
use crate::errno::Errno;

/// The error of a request to a daemon.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// No daemon listens at the path.
    #[error(
        "no daemon at {}: start one with `weft device serve`, or give its path with \
         WEFT_DEVICE_SOCKET or --socket", path.display()
    )]
    NoDaemon {
        /// The path.
        path: PathBuf,
        /// The kernel's error.
        #[source]
        cause: io::Error,
    },
    /// The daemon ended, or closed this process's connection.
    #[error("the daemon, or the relay of a virtual machine, has closed the connection")]
    Gone(#[source] io::Error),
    /// The daemon's answer cannot be decoded.
    #[error(
        "the answer of the daemon, or of the relay of a virtual machine, cannot be decoded: it is of another version of \
         Weft"
    )]
    Nonsense,
    /// The daemon refused the request.
    #[error("{reason}")]
    Refused {
        /// The error number, as in `errno(3)`.
        errno: i32,
        /// The reason, in words.
        reason: String,
    },
}

impl CallError {
    /// A refusal of this host's kernel, not of the daemon.
    pub(crate) fn kernel(reason: &str, cause: &io::Error) -> Self {
        let Errno(errno) = Errno::from_io(cause);
        Self::Refused { errno, reason: format!("{reason}: {cause}") }
    }

    pub(crate) fn errno(&self) -> Errno {
        match self {
            Self::NoDaemon { cause, .. } => Errno::from_io(cause),
            Self::Gone(_) => Errno(libc::EIO),
            Self::Nonsense => Errno(libc::EPROTO),
            Self::Refused { errno, .. } => Errno(*errno),
        }
    }
}

/// The rings and the signal of an attached process.
#[derive(Debug)]
pub(crate) struct Attachment {
    /// The file of the rings' memory.
    pub(crate) rings: OwnedFd,
    pub(crate) signal: Signal,
}

/// The caller's end of the socket; each call waits for its answer.
#[derive(Debug)]
pub(crate) struct Caller {
    socket: Socket,
    message: Vec<u8>,
}

impl Caller {
    /// Connects to a daemon.
    ///
    /// # Errors
    /// No daemon listens at this path.
    pub(crate) fn connect(path: &Path) -> Result<Self, CallError> {
        let no_daemon = |cause| CallError::NoDaemon { path: path.into(), cause };
        let socket = Socket::connect(path).map_err(no_daemon)?;
        Ok(Self { socket, message: Vec::new() })
    }

    /// Uses a connected socket.
    pub(crate) const fn new(socket: Socket) -> Self {
        Self { socket, message: Vec::new() }
    }

    /// Attaches this process, with its memory, to a device. The rings are in a given file from an offset on, or in
    /// memory that the daemon makes.
    ///
    /// # Errors
    /// This process's memory cannot be opened; or the daemon has ended, or refuses.
    pub(crate) fn attach(
        &mut self,
        name: &str,
        rings: Option<(BorrowedFd<'_>, u64)>,
    ) -> Result<Attachment, CallError> {
        let memory = File::options().read(true).write(true).open("/proc/self/mem");
        let opening = "cannot open this process's memory for the daemon (/proc/self/mem)";
        let memory = memory.map_err(|cause| CallError::kernel(opening, &cause))?;
        let value = weft_udp::random();
        let value = value.map_err(|cause| CallError::kernel("no random numbers", &cause.into()))?;
        // On the heap, where no other code of this thread changes it.
        let value = Box::new(u64::from_ne_bytes(value));
        let address = (&raw const *value).expose_provenance() as u64;
        let mut request = Request::attach(name, Probe { address, value: *value });
        if let Request::Attach { rings: place, .. } = &mut request {
            *place = rings.map(|(_, offset)| offset);
        }
        let files: Vec<_> =
            [memory.as_fd()].into_iter().chain(rings.map(|(file, _)| file)).collect();
        let (answer, descriptors) = self.call(&request, &files)?;
        match (answer, <[OwnedFd; 2]>::try_from(descriptors)) {
            (Answer::Attached, Ok([rings, signal])) => {
                Ok(Attachment { rings, signal: Signal::open(signal) })
            }
            _ => Err(CallError::Nonsense),
        }
    }

    /// Sends a request and returns its answer.
    ///
    /// # Errors
    /// The daemon has ended, or refuses.
    pub(crate) fn call(
        &mut self,
        request: &Request,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(Answer, Vec<OwnedFd>), CallError> {
        encode(request, &mut self.message);
        match self.socket.send(&self.message, descriptors, false) {
            // A daemon without room for another client answers without reading the request, and closes.
            Err(error) if !is_end(&error) => return Err(CallError::Gone(error)),
            _ => {}
        }
        let received = self.receive().map_err(CallError::Gone)?;
        let end = || CallError::Gone(io::ErrorKind::UnexpectedEof.into());
        let descriptors = received.ok_or_else(end)?;
        match decode::<Result<Answer, Refusal>>(&self.message).ok_or(CallError::Nonsense)? {
            Ok(answer) => Ok((answer, descriptors)),
            Err(Refusal { errno, reason }) => Err(CallError::Refused { errno, reason }),
        }
    }

    /// Receives the next message, also one that the daemon sent before it closed: the kernel first reports that it has
    /// not read everything.
    fn receive(&mut self) -> io::Result<Option<Vec<OwnedFd>>> {
        match self.socket.receive(&mut self.message, false, true) {
            Err(error) if is_end(&error) => self.socket.receive(&mut self.message, false, true),
            received => received,
        }
    }
}

/// Returns `true` if an error means that the other end has closed.
fn is_end(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

#[cfg(test)]
impl Caller {
    /// Returns the socket, for tests that send invalid messages.
    pub(crate) fn socket(&self) -> &Socket {
        &self.socket
    }
}

impl AsFd for Caller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
