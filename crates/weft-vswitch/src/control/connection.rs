//! One client of the control socket: its requests, a line each, and the answers to them.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Largest length of a request with its newline, bytes: a configuration with some 500,000 routes.
pub const MAX_REQUEST_BYTES: usize = 64 << 20;

/// Largest number of bytes that are read from one client before the other clients.
const MAX_READ_PER_TURN: usize = 1 << 20;

/// The longest time that a client which does not read delays the daemon.
const SEND_TIMEOUT: Duration = Duration::from_millis(200);

/// A request longer than [`MAX_REQUEST_BYTES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the request is longer than {MAX_REQUEST_BYTES} bytes, which the control socket takes at most; a restarted \
     daemon reads a configuration of any length, and `weft vpc route add` adds routes one by one"
)]
pub struct TooLong;

/// Returns an error if a request has more bytes than a daemon accepts.
pub(super) fn check_length(bytes: usize) -> Result<(), TooLong> {
    if bytes > MAX_REQUEST_BYTES { Err(TooLong) } else { Ok(()) }
}

/// A connected client.
#[derive(Debug)]
pub(super) struct Connection {
    stream: UnixStream,
    lines: Lines,
}

impl Connection {
    /// Creates a client on a stream that does not block.
    pub(super) fn new(stream: UnixStream) -> Self {
        Self { stream, lines: Lines::default() }
    }

    /// Returns the descriptor to wait on.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// Reads the bytes that have arrived. Returns `false` if no more will come.
    pub(super) fn receive(&mut self) -> bool {
        let mut bytes = [0; 64 << 10];
        let mut read = 0;
        while read < MAX_READ_PER_TURN {
            match self.stream.read(&mut bytes) {
                Ok(0) => return false,
                Ok(count) => {
                    self.lines.push(&bytes[..count]);
                    read += count;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
        }
        true
    }

    /// Returns the next whole line, or an error in place of one that was too long.
    pub(super) fn next_line(&mut self) -> Option<Result<Vec<u8>, TooLong>> {
        self.lines.next_line()
    }

    /// Sends a whole line. Blocks until the client has read it, at most for [`SEND_TIMEOUT`].
    pub(super) fn send(&mut self, line: &[u8]) -> io::Result<()> {
        self.stream.set_nonblocking(false)?;
        self.stream.set_write_timeout(Some(SEND_TIMEOUT))?;
        self.stream.write_all(line)?;
        self.stream.set_nonblocking(true)
    }
}

/// Received bytes, split into lines.
#[derive(Debug, Default)]
pub(super) struct Lines {
    received: Vec<u8>,
    /// Number of first bytes of `received` that have no newline.
    searched: usize,
    /// `true` if the line being received is longer than allowed: its bytes are dropped until it ends.
    too_long: bool,
}

impl Lines {
    /// Appends bytes that were received.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.received.extend(bytes);
    }

    /// Returns the next whole line, or an error in place of one that was too long.
    pub(super) fn next_line(&mut self) -> Option<Result<Vec<u8>, TooLong>> {
        let rest = &self.received[self.searched..];
        let Some(end) = rest.iter().position(|&byte| byte == b'\n') else {
            self.searched = self.received.len();
            if check_length(self.searched).is_err() {
                self.too_long = true;
            }
            if self.too_long {
                (self.received, self.searched) = (vec![], 0);
            }
            return None;
        };
        let line: Vec<u8> = self.received.drain(..=self.searched + end).collect();
        self.searched = 0;
        let too_long = std::mem::take(&mut self.too_long) || check_length(line.len()).is_err();
        Some(if too_long { Err(TooLong) } else { Ok(line) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends `bytes` from a client and returns the lines that arrive meanwhile.
    fn lines_of(bytes: Vec<u8>) -> Vec<Result<Vec<u8>, TooLong>> {
        let (mut client, server) = UnixStream::pair().unwrap();
        server.set_nonblocking(true).unwrap();
        let sending = std::thread::spawn(move || client.write_all(&bytes).unwrap());
        let mut connection = Connection::new(server);
        let mut lines = vec![];
        let mut open = true;
        while open {
            open = connection.receive();
            lines.extend(std::iter::from_fn(|| connection.next_line()));
            assert!(connection.lines.received.len() <= MAX_REQUEST_BYTES);
        }
        sending.join().unwrap();
        lines
    }

    #[test]
    fn a_line_that_is_too_long_is_an_error_and_the_next_one_a_line() {
        let mut bytes = vec![b'x'; MAX_REQUEST_BYTES - 1];
        bytes.extend(b"\nshort\n");
        let lines = lines_of(bytes.clone());
        assert_eq!(lines[0].as_ref().unwrap().len(), MAX_REQUEST_BYTES);
        assert_eq!(lines[1..], [Ok(b"short\n".to_vec())]);
        bytes.insert(0, b'x');
        assert_eq!(lines_of(bytes), [Err(TooLong), Ok(b"short\n".to_vec())]);
        let endless = lines_of(vec![b'x'; 2 * MAX_REQUEST_BYTES]);
        assert_eq!(endless, []);
    }
}
