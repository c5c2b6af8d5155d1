//! What arrives on the sockets that only send. A peer answers a packet of a connection that it does not
//! know (any more) to where it came from, having nothing else to go by.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::event::{Timespec, epoll};
use rustix::io;
use rustix::net::{RecvFlags, recvfrom};
use socket2::Socket;

/// Such answers are short. What is longer is something else, and is cut.
const LONGEST: usize = 256;

/// Does not wait.
const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// Watches sockets for what nobody waits for.
#[derive(Debug)]
pub(super) struct Strays {
    epoll: OwnedFd,
    buffer: [u8; LONGEST],
}

impl Strays {
    pub(super) fn watch(sockets: &[Socket]) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (index, socket) in sockets.iter().enumerate() {
            let index = epoll::EventData::new_u64(index as u64);
            epoll::add(&epoll, socket, index, epoll::EventFlags::IN)?;
        }
        Ok(Self { epoll, buffer: [0; LONGEST] })
    }

    /// The next one, if any: who sent it, and what. One system call when there is none.
    pub(super) fn next(&mut self, sockets: &[Socket]) -> Option<(SocketAddr, &[u8])> {
        let nothing =
            epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) };
        let mut ready = [nothing];
        let count = epoll::wait(&self.epoll, &mut ready, Some(&AT_ONCE)).ok()?;
        let index = ready[..count].first()?.data.u64();
        let socket = sockets.get(usize::try_from(index).ok()?)?;
        let (len, _, from) = recvfrom(socket, &mut self.buffer, RecvFlags::DONTWAIT).ok()?;
        Some((from?.try_into().ok()?, &self.buffer[..len]))
    }
}
