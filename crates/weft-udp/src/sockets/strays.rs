//! Reception on the sockets that only send. A peer answers a packet of an unknown connection to its
//! source port, the only address of the sender that it knows.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{Timespec, epoll};
use rustix::io;
use rustix::net::{RecvFlags, recvfrom};
use socket2::Socket;

/// Maximum length of such an answer, bytes. Longer datagrams are not answers, and are truncated.
const MAX_LEN: usize = 256;

/// The number of a descriptor that is none of the sockets.
const OTHER: u64 = u64::MAX;

/// The timeout of a poll that does not wait.
const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// The sockets that only send, watched for arrivals by epoll.
#[derive(Debug)]
pub(super) struct Strays {
    epoll: OwnedFd,
    buffer: [u8; MAX_LEN],
}

impl Strays {
    /// Watches these sockets.
    ///
    /// # Errors
    /// The kernel's error.
    pub(super) fn watch(sockets: &[Socket]) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let strays = Self { epoll, buffer: [0; MAX_LEN] };
        (0..).zip(sockets).try_for_each(|(index, socket)| strays.watch_one(socket, index))?;
        Ok(strays)
    }

    /// Watches one more socket. A closed socket is not watched any more.
    ///
    /// # Errors
    /// The kernel's error.
    pub(super) fn watch_one(&self, socket: &Socket, index: u16) -> io::Result<()> {
        let index = epoll::EventData::new_u64(index.into());
        epoll::add(&self.epoll, socket, index, epoll::EventFlags::IN)
    }

    /// Makes the descriptor readable while `other` is, too.
    ///
    /// # Errors
    /// The kernel's error.
    pub(super) fn wake_for(&self, other: BorrowedFd<'_>) -> io::Result<()> {
        epoll::add(&self.epoll, other, epoll::EventData::new_u64(OTHER), epoll::EventFlags::IN)
    }

    /// Returns the descriptor that is readable while a datagram waits.
    pub(super) fn readable(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Returns the next datagram with its source, if any. If there is none, it takes one system call.
    pub(super) fn next(&mut self, sockets: &[Socket]) -> Option<(SocketAddr, &mut [u8])> {
        let nothing =
            epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) };
        let mut ready = [nothing];
        let count = epoll::wait(&self.epoll, &mut ready, Some(&AT_ONCE)).ok()?;
        let index = ready[..count].first()?.data.u64();
        let socket = sockets.get(usize::try_from(index).ok()?)?;
        let (len, _, from) = recvfrom(socket, &mut self.buffer, RecvFlags::DONTWAIT).ok()?;
        Some((from?.try_into().ok()?, &mut self.buffer[..len]))
    }
}
