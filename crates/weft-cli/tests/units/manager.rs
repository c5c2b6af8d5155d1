//! A service manager that receives a daemon's messages.

use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The time limit for a message.
const LIMIT: Duration = Duration::from_secs(60);

/// A socket that `NOTIFY_SOCKET` names.
pub(crate) struct Manager {
    socket: UnixDatagram,
    pub(crate) path: PathBuf,
}

impl Manager {
    pub(crate) fn at(path: PathBuf) -> Self {
        let socket = UnixDatagram::bind(&path).unwrap();
        Self { socket, path }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the next message, or `None` if there is none for this long.
    pub(crate) fn next_within(&self, span: Duration) -> Option<String> {
        let mut message = [0; 4096];
        self.socket.set_read_timeout(Some(span)).unwrap();
        match self.socket.recv(&mut message) {
            Ok(length) => Some(String::from_utf8(message[..length].to_vec()).unwrap()),
            Err(error) => {
                let is_timeout =
                    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
                assert!(is_timeout, "{error}");
                None
            }
        }
    }

    /// Returns the next message.
    pub(crate) fn next(&self) -> String {
        self.next_within(LIMIT).expect("a message")
    }

    /// Reads until a message begins with these words, and returns it.
    pub(crate) fn until(&self, beginning: &str) -> String {
        let give_up = Instant::now() + LIMIT;
        loop {
            let message = self.next();
            if message.starts_with(beginning) {
                return message;
            }
            assert!(Instant::now() < give_up, "no {beginning}, but {message}");
        }
    }

    /// Returns all messages that were sent.
    pub(crate) fn rest(&self) -> Vec<String> {
        std::iter::from_fn(|| self.next_within(Duration::from_millis(1))).collect()
    }
}
