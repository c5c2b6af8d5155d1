//! Messages of the vhost-user protocol (QEMU's docs/interop/vhost-user.rst), read without blocking:
//! a front end that sends half a message delays no other port.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendFlags, recvmsg, sendmsg,
};
use vhost::vhost_user::message::{MAX_ATTACHED_FD_ENTRIES, MAX_MSG_SIZE};

/// Bytes of request, flags and size.
const HEADER: usize = 12;
const VERSION: u32 = 1;
const VERSION_MASK: u32 = 3;
const REPLY: u32 = 1 << 2;
const NEED_REPLY: u32 = 1 << 3;

/// A message of the front end.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) request: u32,
    /// `true` if the front end waits for an answer even if there is none (`NEED_REPLY`).
    pub(super) need_reply: bool,
    pub(super) body: Vec<u8>,
    pub(super) files: Vec<OwnedFd>,
}

/// The connection to a front end.
#[derive(Debug)]
pub(super) struct Channel {
    socket: UnixStream,
    /// The received part of the next message.
    bytes: Vec<u8>,
    files: Vec<OwnedFd>,
}

impl Channel {
    pub(super) fn new(socket: UnixStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self { socket, bytes: vec![], files: vec![] })
    }

    /// Returns the next message, if all of it has arrived.
    ///
    /// # Errors
    /// The front end is gone, or sends an invalid message; the connection is unusable afterwards.
    pub(super) fn receive(&mut self) -> io::Result<Option<Message>> {
        loop {
            let missing = self.length()?.saturating_sub(self.bytes.len());
            if missing == 0 {
                return Ok(Some(self.message()));
            }
            if !self.fill(missing)? {
                return Ok(None);
            }
        }
    }

    /// Returns the length of the arriving message, bytes; that of its header until the header has arrived.
    fn length(&self) -> io::Result<usize> {
        if self.bytes.len() < HEADER {
            return Ok(HEADER);
        }
        let (flags, size) = (self.word(4), self.word(8) as usize);
        if flags & VERSION_MASK != VERSION || flags & REPLY != 0 || size > MAX_MSG_SIZE {
            let reason = format!("no message: flags {flags:#x}, {size} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
        }
        Ok(HEADER + size)
    }

    fn word(&self, at: usize) -> u32 {
        let bytes = self.bytes[at..at + 4].try_into().expect("four bytes");
        u32::from_ne_bytes(bytes)
    }

    fn message(&mut self) -> Message {
        let (request, flags) = (self.word(0), self.word(4));
        Message {
            request,
            need_reply: flags & NEED_REPLY != 0,
            body: self.bytes.drain(..).skip(HEADER).collect(),
            files: std::mem::take(&mut self.files),
        }
    }

    /// Reads up to `count` bytes with their descriptors. Returns `true` if there were any.
    fn fill(&mut self, count: usize) -> io::Result<bool> {
        let start = self.bytes.len();
        self.bytes.resize(start + count, 0);
        let mut space =
            [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_ATTACHED_FD_ENTRIES))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut room = [IoSliceMut::new(&mut self.bytes[start..])];
        let received = recvmsg(&self.socket, &mut room, &mut ancillary, RecvFlags::CMSG_CLOEXEC);
        let read = received.as_ref().map_or(0, |message| message.bytes);
        self.bytes.truncate(start + read);
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(files) = message {
                self.files.extend(files);
            }
        }
        match received {
            Ok(message) if message.flags.contains(ReturnFlags::CTRUNC) => {
                Err(io::Error::new(io::ErrorKind::InvalidData, "too many descriptors in a message"))
            }
            Ok(message) if message.bytes == 0 => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => Ok(true),
            Err(Errno::AGAIN | Errno::INTR) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Answers a request.
    ///
    /// # Errors
    /// The front end is gone, or does not read its answers.
    pub(super) fn reply(&self, request: u32, body: &[u8]) -> io::Result<()> {
        let size = u32::try_from(body.len()).expect("answers are short");
        let mut bytes = Vec::with_capacity(HEADER + body.len());
        for word in [request, VERSION | REPLY, size] {
            bytes.extend(word.to_ne_bytes());
        }
        bytes.extend(body);
        let mut nothing = SendAncillaryBuffer::default();
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let sent = sendmsg(&self.socket, &[IoSlice::new(&bytes)], &mut nothing, flags)?;
        if sent == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn message(request: u32, flags: u32, body: &[u8]) -> Vec<u8> {
        let size = u32::try_from(body.len()).unwrap();
        [request, flags, size]
            .map(u32::to_ne_bytes)
            .concat()
            .into_iter()
            .chain(body.to_vec())
            .collect()
    }

    #[test]
    fn a_message_that_comes_byte_by_byte_is_one_message() {
        let (mut front, back) = UnixStream::pair().unwrap();
        let mut channel = Channel::new(back).unwrap();
        let bytes = [message(8, 1, &[1; 8]), message(1, 9, &[])].concat();
        let mut got = vec![];
        for byte in bytes {
            assert!(channel.receive().unwrap().is_none());
            front.write_all(&[byte]).unwrap();
            got.extend(channel.receive().unwrap());
        }
        let got: Vec<_> =
            got.into_iter().map(|one| (one.request, one.need_reply, one.body.len())).collect();
        assert_eq!(got, [(8, false, 8), (1, true, 0)]);
        drop(front);
        assert!(channel.receive().is_err());
    }

    #[test]
    fn an_invalid_message_ends_the_connection() {
        for bytes in [
            message(1, 2, &[]),
            message(1, 1 | REPLY, &[]),
            [1, 1, 0x1001].map(u32::to_ne_bytes).concat(),
        ] {
            let (mut front, back) = UnixStream::pair().unwrap();
            front.write_all(&bytes).unwrap();
            assert!(Channel::new(back).unwrap().receive().is_err());
        }
    }
}
