//! Commands to a running node, over a datagram socket beside its status file. Only the node's user and root may send
//! them: the socket has mode 0600 independent of the folder's, and the kernel reports the sender of each datagram.
//!
//! A request carries the socket for its response as a descriptor. That socket has no name and no owner, so root creates
//! nothing in a user's folder and changes the owner of nothing; a name there could become a link to any file before
//! root uses it again. Unlike an abstract address, a descriptor also reaches a node in another network namespace.
//!
//! A request is a word and its arguments, one per line: `list`, or `set`, a name and a value. A response is `ok` and
//! the result, or `error` and the reason. The result of `list` has four lines per parameter: name, value, `online` or
//! `offline`, description.

use std::fmt;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketAddrUnix, recvmsg, send,
};
use rustix::process::Uid;
use serde::{Deserialize, Serialize};

use crate::folder::CONTROL;

mod client;

pub use client::ask;

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
    #[error(
        "the node does not answer: its program has not polled it for {:?}",
        client::ANSWER_TIMEOUT
    )]
    NoAnswer,
    /// The node closed the reply socket without a response.
    #[error(
        "the node at {path} closed the request without a response: its program ended, or is of another version of Weft"
    )]
    Closed {
        /// The socket's path.
        path: PathBuf,
    },
    /// The response is malformed.
    #[error("the response of the node is malformed")]
    Garbled,
}

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
            // A client that no longer waits does not get the response. Its closed socket must not raise SIGPIPE in the
            // program, nor a full one block it.
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            let _ = received.reply.map(|reply| send(&reply, response.as_bytes(), flags));
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
    /// The socket for the response.
    reply: Option<OwnedFd>,
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
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1), ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut room = [IoSliceMut::new(bytes)];
    let message = recvmsg(socket, &mut room, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let mut received = Received { length: message.bytes, reply: None, user: None };
    for it in ancillary.drain() {
        match it {
            RecvAncillaryMessage::ScmCredentials(credentials) => {
                received.user = Some(credentials.uid)
            }
            RecvAncillaryMessage::ScmRights(mut files) => received.reply = files.next(),
            _ => {}
        }
    }
    Ok(received)
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
