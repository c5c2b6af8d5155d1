//! Frames on a port between a guest and its host, a stream of bytes: messages of one process at a time, and signals,
//! which are frames without bytes. Each frame has its session, a number that a process draws when it opens the port.
//! The next process, whose frames may follow the last ones of a process that died, has another number; it ignores
//! frames with a number that is not its own.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};

/// The size of a frame's header, bytes: session, then length, both little-endian.
const HEADER: usize = 8;

/// The maximum size of a frame, bytes. Linux passes a write of up to 32 KiB on in one piece (`virtio_console`), so a
/// process that is killed leaves no part of a frame.
const MAX_FRAME: usize = 32 << 10;

/// The maximum size of a message in a frame, bytes.
pub(crate) const MAX_BODY: usize = MAX_FRAME - HEADER;

/// A frame; without bytes it is a signal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) session: u32,
    pub(crate) body: Vec<u8>,
}

/// Returns the bytes of a frame.
///
/// # Errors
/// The message is longer than a frame.
pub(crate) fn frame(session: u32, body: &[u8]) -> io::Result<Vec<u8>> {
    let length = u32::try_from(body.len()).ok().filter(|_| body.len() <= MAX_BODY);
    let length = length.ok_or(io::ErrorKind::InvalidInput)?;
    Ok([&session.to_le_bytes()[..], &length.to_le_bytes(), body].concat())
}

/// One end of a port.
#[derive(Debug)]
pub(crate) struct Frames {
    port: File,
    /// The received bytes of frames that were not returned yet: at most those of two frames.
    received: Vec<u8>,
}

impl Frames {
    pub(crate) const fn new(port: File) -> Self {
        Self { port, received: Vec::new() }
    }

    /// Sends a frame; waits for room.
    ///
    /// # Errors
    /// The other end has closed, or the message is longer than a frame.
    pub(crate) fn send(&mut self, session: u32, body: &[u8]) -> io::Result<()> {
        // In one call: see `MAX_FRAME`.
        self.port.write_all(&frame(session, body)?)
    }

    /// Receives some bytes; waits for them. Returns `false` when the other end has closed.
    ///
    /// # Errors
    /// The port cannot be read.
    pub(crate) fn receive(&mut self) -> io::Result<bool> {
        let begin = self.received.len();
        self.received.resize(begin + MAX_FRAME, 0);
        let read = self.port.read(&mut self.received[begin..]);
        self.received.truncate(begin + read.as_ref().map_or(0, |&bytes| bytes));
        match read {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(true),
            read => Ok(read? > 0),
        }
    }

    /// Returns the next frame of those received, if all of it is there.
    ///
    /// # Errors
    /// `InvalidData`: it would be longer than the maximum.
    pub(crate) fn pop(&mut self) -> io::Result<Option<Frame>> {
        let Some((header, rest)) = self.received.split_first_chunk::<HEADER>() else {
            return Ok(None);
        };
        let [session, length] = [0, 4].map(|at| {
            u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        });
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length > MAX_BODY {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a frame is too long"));
        }
        let Some(body) = rest.get(..length) else { return Ok(None) };
        let frame = Frame { session, body: body.to_vec() };
        self.received.drain(..HEADER + length);
        Ok(Some(frame))
    }
}

impl AsFd for Frames {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.port.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    fn pair() -> (UnixStream, Frames) {
        let (one, other) = UnixStream::pair().unwrap();
        (one, Frames::new(File::from(OwnedFd::from(other))))
    }

    #[test]
    fn frames_arrive_whole_whatever_pieces_the_bytes_come_in() {
        let (mut port, mut frames) = pair();
        let mut sender = Frames::new(File::from(OwnedFd::from(port.try_clone().unwrap())));
        sender.send(7, b"message").unwrap();
        sender.send(7, b"").unwrap();
        let (mut bytes, mut found) = (vec![0; 2 * HEADER + 7], Vec::new());
        frames.receive().unwrap();
        bytes.copy_from_slice(&frames.received);
        frames.received.clear();
        for byte in bytes {
            port.write_all(&[byte]).unwrap();
            assert!(frames.receive().unwrap());
            found.extend(frames.pop().unwrap());
        }
        let frame = |body: &[u8]| Frame { session: 7, body: body.to_vec() };
        assert_eq!(found, [frame(b"message"), frame(b"")]);
        drop((port, sender));
        assert!(!frames.receive().unwrap());
    }

    #[test]
    fn a_longer_frame_is_neither_sent_nor_awaited() {
        let (mut port, mut frames) = pair();
        assert!(frames.send(1, &vec![0; MAX_BODY + 1]).is_err());
        port.write_all(&[1, 0, 0, 0, 0xff, 0xff, 0xff, 0x7f]).unwrap();
        frames.receive().unwrap();
        assert_eq!(frames.pop().unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
