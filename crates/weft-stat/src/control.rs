//! Orders to a running node, over a socket beside its file: a datagram asks, a datagram answers. Its user may ask, and root:
//! the socket's mode is 0600 whatever the folder's, and the kernel says whose each datagram is.
//!
//! A request is a word and its arguments, each on a line: `list`, or `set`, a name and a value. An answer is `ok` and
//! what was asked for, or `error` and why. `list` answers with four lines a parameter: name, value, `online` or
//! `offline`, what it does.

use std::ffi::OsStr;
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

/// What a node is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ask {
    /// All its parameters.
    List,
    /// To change one.
    Set {
        /// Which.
        name: String,
        /// To what.
        value: String,
    },
}

/// A parameter as a node has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
    /// Whether it may change while the node runs.
    pub online: bool,
    /// What it does.
    pub about: String,
}

/// Why a node has not done what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// Its words for it.
    #[error("{0}")]
    Refused(String),
    /// Its socket.
    #[error("cannot speak to the node at {path}: {error}")]
    Io {
        /// Where it is.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        error: io::Error,
    },
    /// Nothing came.
    #[error("the node does not answer: its program has not polled it for {PATIENCE:?}")]
    NoAnswer,
    /// Something else came.
    #[error("the node answers what makes no sense")]
    Garbled,
}

/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// Bytes of the longest request and answer.
const LONGEST: usize = 64 << 10;

/// Requests that are answered at a time.
const AT_A_TIME: usize = 8;

/// A node's end.
#[derive(Debug)]
pub struct Control {
    socket: UnixDatagram,
    path: PathBuf,
    pid: u32,
}

impl Control {
    /// Takes orders beside a node's file.
    ///
    /// # Errors
    /// The kernel has no more sockets, or the path is longer than its addresses.
    pub fn beside(file: &Path) -> io::Result<Self> {
        let path = file.with_extension(CONTROL);
        // The file's name is ours, and so is what goes with it.
        let _ = std::fs::remove_file(&path);
        let socket = bind(&path)?;
        socket.set_nonblocking(true)?;
        rustix::net::sockopt::set_socket_passcred(&socket, true)?;
        Ok(Self { socket, path, pid: std::process::id() })
    }

    /// Answers what has been asked. `answer` says what became of a request.
    pub fn serve(&self, mut answer: impl FnMut(Ask) -> Result<Vec<Setting>, String>) {
        let mut bytes = vec![0; LONGEST];
        for _ in 0..AT_A_TIME {
            let Ok(received) = receive(&self.socket, &mut bytes) else { return };
            let asked = str::from_utf8(&bytes[..received.length]).ok().and_then(read_request);
            let asked = asked.ok_or_else(|| "no such request".to_owned());
            let answered = received.check().and(asked).and_then(&mut answer);
            // Whoever does not wait for the answer does without.
            let from = received.from.as_ref().and_then(SocketAddrUnix::path);
            let to = from.as_ref().map(|path| Path::new(OsStr::from_bytes(path.to_bytes())));
            let _ = to.map(|to| self.socket.send_to(render(&answered).as_bytes(), to));
        }
    }
}

/// A datagram that came.
struct Received {
    length: usize,
    from: Option<SocketAddrUnix>,
    /// Whose it is, as the kernel says.
    user: Option<Uid>,
}

impl Received {
    /// # Errors
    /// Its user may not give orders here.
    fn check(&self) -> Result<(), String> {
        let own = rustix::process::geteuid();
        match self.user {
            Some(user) if user == own || user.is_root() => Ok(()),
            Some(user) => {
                let (user, own) = (user.as_raw(), own.as_raw());
                Err(format!("this program is user {own}'s, and takes no orders of user {user}"))
            }
            None => Err("the kernel does not say whose order this is".to_owned()),
        }
    }
}

/// Binds a socket that only its user may write to. What the file's mode will be is decided before there is a file.
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

/// Asks the node whose socket is at `path`, and waits for its answer.
///
/// # Errors
/// It refuses, does not answer, or is not there.
pub fn ask(path: &Path, request: &Ask) -> Result<Vec<Setting>, ControlError> {
    let failed = |error| ControlError::Io { path: path.to_owned(), error };
    let own = Reply::new(path).map_err(failed)?;
    own.socket.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    own.socket.send_to(write_request(request).as_bytes(), path).map_err(failed)?;
    let mut bytes = vec![0; LONGEST];
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

/// Where an answer comes to: in the same folder, which both ends see, whatever else separates them.
struct Reply {
    socket: UnixDatagram,
    path: PathBuf,
}

static ASKED: AtomicU32 = AtomicU32::new(0);

impl Reply {
    fn new(node: &Path) -> io::Result<Self> {
        let number = ASKED.fetch_add(1, Ordering::Relaxed);
        let path = node.with_file_name(format!(".ask-{}-{number}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let reply = Self { socket: bind(&path)?, path };
        // Where root asks, the node's user is to answer, and nobody else.
        if rustix::process::geteuid().is_root() {
            let owner = std::fs::metadata(node)?.uid();
            std::os::unix::fs::chown(&reply.path, Some(owner), None)?;
        }
        Ok(reply)
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn write_request(request: &Ask) -> String {
    match request {
        Ask::List => "list\n".to_owned(),
        Ask::Set { name, value } => format!("set\n{name}\n{value}\n"),
    }
}

fn read_request(text: &str) -> Option<Ask> {
    let lines: Vec<&str> = text.lines().collect();
    match lines.as_slice() {
        ["list"] => Some(Ask::List),
        ["set", name, value] => Some(Ask::Set { name: (*name).into(), value: (*value).into() }),
        _ => None,
    }
}

fn render(answer: &Result<Vec<Setting>, String>) -> String {
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
