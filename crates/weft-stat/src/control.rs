//! Orders to a running node, over a socket beside its file: a datagram asks, a datagram answers. Whoever may
//! write into the folder may ask: its user, and root.
//!
//! A request is a word and its arguments, each on a line: `list`, or `set`, a name and a value. An answer is `ok` and
//! what was asked for, or `error` and why. `list` answers with four lines a parameter: name, value, `online` or
//! `offline`, what it does.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::folder::CONTROL;

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
        let socket = UnixDatagram::bind(&path)?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, path, pid: std::process::id() })
    }

    /// Answers what has been asked. `answer` says what became of a request.
    pub fn serve(&self, mut answer: impl FnMut(Ask) -> Result<Vec<Setting>, String>) {
        let mut bytes = vec![0; LONGEST];
        for _ in 0..AT_A_TIME {
            let Ok((length, from)) = self.socket.recv_from(&mut bytes) else { return };
            let asked = str::from_utf8(&bytes[..length]).ok().and_then(read_request);
            let answered = asked.ok_or_else(|| "no such request".to_owned()).and_then(&mut answer);
            // Whoever does not wait for the answer does without.
            let _ =
                from.as_pathname().map(|to| self.socket.send_to(render(&answered).as_bytes(), to));
        }
    }
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
        Ok(Self { socket: UnixDatagram::bind(&path)?, path })
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
