//! Commands to a running node, over a datagram socket beside its status file. Only the node's user and root may send
//! them: the socket has mode 0600 independent of the folder's, and the kernel reports the sender of each datagram.
//!
//! A request is a word and its arguments, one per line: `list`, or `set`, a name and a value. A response is `ok` and
//! the result, or `error` and the reason. The result of `list` has four lines per parameter: name, value, `online` or
//! `offline`, description.

use std::ffi::OsStr;
use std::fmt;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::fs::Mode;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketAddrUnix, recvmsg};
use rustix::process::Uid;
use serde::{Deserialize, Serialize};

use crate::folder::CONTROL;

#[cfg(any(test, fuzzing))]
pub(crate) mod properties;

/// A request to a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Request {
    /// Returns all parameters.
    List,
    /// Changes a parameter.
    Set {
        /// The parameter's name.
        name: String,
        /// The new value.
        value: String,
    },
}

/// A parameter of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// The name.
    pub name: String,
    /// The value.
    pub value: String,
    /// `true` if it can change while the node runs.
    pub online: bool,
    /// A description.
    pub about: String,
}

/// An error of a request to a node.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// The node refused, for this reason.
    #[error("{0}")]
    Refused(String),
    /// The socket failed.
    #[error("cannot reach the node at {path}: {error}")]
    Io {
        /// The socket's path.
        path: PathBuf,
        /// The system's error.
        #[source]
        error: io::Error,
    },
    /// No response arrived.
    #[error("the node does not answer: its program has not polled it for {ANSWER_TIMEOUT:?}")]
    NoAnswer,
    /// The response is malformed.
    #[error("the response of the node is malformed")]
    Garbled,
}

/// The timeout of a response.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// Maximum bytes of a request and of a response.
const MAX_DATAGRAM: usize = 64 << 10;

/// Maximum number of requests that one call of `serve` answers.
const MAX_REQUESTS: usize = 8;

/// The node's end of the socket.
#[derive(Debug)]
pub struct Control {
    socket: UnixDatagram,
    path: PathBuf,
    pid: u32,
}

impl Control {
    /// Opens the socket beside a node's status file.
    ///
    /// # Errors
    /// Returns an error if the kernel has no more sockets or the path is too long for a socket address.
    pub fn beside(file: &Path) -> io::Result<Self> {
        let path = file.with_extension(CONTROL);
        // The status file's name belongs to this process, so the socket's name does too.
        let _ = std::fs::remove_file(&path);
        let socket = bind(&path)?;
        socket.set_nonblocking(true)?;
        rustix::net::sockopt::set_socket_passcred(&socket, true)?;
        Ok(Self { socket, path, pid: std::process::id() })
    }

    /// Answers up to 8 pending requests with the results of `answer`. If `answer` returns an error, the client receives
    /// the error's text.
    pub fn serve<E: fmt::Display>(
        &self,
        mut answer: impl FnMut(Request) -> Result<Vec<Setting>, E>,
    ) {
        let mut bytes = vec![0; MAX_DATAGRAM];
        for _ in 0..MAX_REQUESTS {
            let Ok(received) = receive(&self.socket, &mut bytes) else { return };
            let request = str::from_utf8(&bytes[..received.length]).ok().and_then(read_request);
            let request = received.check().and_then(|()| request.ok_or(RequestFault::Unknown));
            let response = match request {
                Ok(request) => render(&answer(request)),
                Err(fault) => render(&Err(fault)),
            };
            // A client that no longer waits does not get the response.
            let from = received.from.as_ref().and_then(SocketAddrUnix::path);
            let to = from.as_ref().map(|path| Path::new(OsStr::from_bytes(path.to_bytes())));
            let _ = to.map(|to| self.socket.send_to(response.as_bytes(), to));
        }
    }
}

/// The reason for which a request is not passed to the node.
#[derive(Debug, thiserror::Error)]
enum RequestFault {
    #[error("no such request")]
    Unknown,
    #[error("this program belongs to user {own} and takes no orders from user {user}")]
    User { user: u32, own: u32 },
    #[error("the kernel does not report the sender of this request")]
    NoSender,
}

/// A received datagram.
struct Received {
    length: usize,
    from: Option<SocketAddrUnix>,
    /// The sender's user, as the kernel reports it.
    user: Option<Uid>,
}

impl Received {
    /// Checks that the sender is this process's user or root.
    ///
    /// # Errors
    /// Returns the reason for a refusal.
    fn check(&self) -> Result<(), RequestFault> {
        let own = rustix::process::geteuid();
        match self.user {
            Some(user) if user == own || user.is_root() => Ok(()),
            Some(user) => Err(RequestFault::User { user: user.as_raw(), own: own.as_raw() }),
            None => Err(RequestFault::NoSender),
        }
    }
}

/// Binds a socket that only its user may write to. The mode is set before the file exists.
fn bind(path: &Path) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

fn receive(socket: &UnixDatagram, bytes: &mut [u8]) -> io::Result<Received> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut room = [IoSliceMut::new(bytes)];
    let message = recvmsg(socket, &mut room, &mut ancillary, RecvFlags::empty())?;
    let user = ancillary.drain().find_map(|it| match it {
        RecvAncillaryMessage::ScmCredentials(credentials) => Some(credentials.uid),
        _ => None,
    });
    let from = message.address.and_then(|address| SocketAddrUnix::try_from(address).ok());
    Ok(Received { length: message.bytes, from, user })
}

impl AsFd for Control {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        if self.pid == std::process::id() {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Sends a request to the node whose socket is at `path`, and waits up to 2 s for the response.
///
/// # Errors
/// Returns an error if the node refuses, does not answer, or does not exist.
pub fn ask(path: &Path, request: &Request) -> Result<Vec<Setting>, ControlError> {
    let failed = |error| ControlError::Io { path: path.to_owned(), error };
    let own = ReplySocket::new(path).map_err(failed)?;
    own.socket.set_read_timeout(Some(ANSWER_TIMEOUT)).map_err(failed)?;
    own.socket.send_to(write_request(request).as_bytes(), path).map_err(failed)?;
    let mut bytes = vec![0; MAX_DATAGRAM];
    let length = match own.socket.recv(&mut bytes) {
        Ok(length) => length,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            return Err(ControlError::NoAnswer);
        }
        Err(error) => return Err(failed(error)),
    };
    let text = str::from_utf8(&bytes[..length]).map_err(|_| ControlError::Garbled)?;
    match text.split_once('\n') {
        Some(("ok", settings)) => read_settings(settings).ok_or(ControlError::Garbled),
        Some(("error", why)) => Err(ControlError::Refused(why.trim_end().to_owned())),
        _ => Err(ControlError::Garbled),
    }
}

/// The socket that receives a response. It is in the node's folder because both processes see that folder,
/// even in different containers.
struct ReplySocket {
    socket: UnixDatagram,
    path: PathBuf,
}

static NEXT_REPLY: AtomicU32 = AtomicU32::new(0);

impl ReplySocket {
    fn new(node: &Path) -> io::Result<Self> {
        let number = NEXT_REPLY.fetch_add(1, Ordering::Relaxed);
        let path = node.with_file_name(format!(".ask-{}-{number}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let reply = Self { socket: bind(&path)?, path };
        // If root sends the request, the node's user must be able to answer, and nobody else.
        if rustix::process::geteuid().is_root() {
            let owner = std::fs::metadata(node)?.uid();
            std::os::unix::fs::chown(&reply.path, Some(owner), None)?;
        }
        Ok(reply)
    }
}

impl Drop for ReplySocket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn write_request(request: &Request) -> String {
    match request {
        Request::List => "list\n".to_owned(),
        Request::Set { name, value } => format!("set\n{name}\n{value}\n"),
    }
}

fn read_request(text: &str) -> Option<Request> {
    let lines: Vec<&str> = text.lines().collect();
    match lines.as_slice() {
        ["list"] => Some(Request::List),
        ["set", name, value] => Some(Request::Set { name: (*name).into(), value: (*value).into() }),
        _ => None,
    }
}

fn render<E: fmt::Display>(answer: &Result<Vec<Setting>, E>) -> String {
    match answer {
        Ok(settings) => {
            let when = |online| if online { "online" } else { "offline" };
            let lines = settings.iter().map(|Setting { name, value, online, about }| {
                format!("{name}\n{value}\n{}\n{about}\n", when(*online))
            });
            format!("ok\n{}", lines.collect::<String>())
        }
        Err(why) => format!("error\n{why}\n"),
    }
}

fn read_settings(text: &str) -> Option<Vec<Setting>> {
    let lines: Vec<&str> = text.lines().collect();
    let settings = lines.chunks(4).map(|lines| {
        let &[name, value, when, about] = lines else { return None };
        let online = when == "online";
        let [name, value, about] = [name, value, about].map(str::to_owned);
        Some(Setting { name, value, online, about })
    });
    settings.collect()
}
