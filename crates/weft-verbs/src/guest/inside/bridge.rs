//! The guest's end of a port, for the library: a thread passes messages and signals on between the port and the sockets
//! that a process on a host has instead, so that all other code is the same. It also shows the relay that the process
//! lives.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::{PollFd, PollFlags, poll};
use weft_udp::wait::timespec;
use weft_units::Duration;

use crate::attach::{Caller, Signal, Socket};
use crate::engine::fork;
use crate::guest::frames::Frames;
use crate::guest::slot::Slot;
use crate::thread;

/// The interval of signs of life.
const BEAT_EVERY: Duration = Duration::from_millis(250);

/// The process's ends.
#[derive(Debug)]
pub(crate) struct Bridge {
    pub(crate) caller: Caller,
    pub(crate) signal: Signal,
}

/// The thread's ends, which children of `fork` close.
struct Ends {
    frames: Frames,
    session: u32,
    slot: Slot,
    socket: Socket,
    signal: Signal,
}

/// Starts the thread for a port that was just opened. It ends when the host closes the port, or the process its ends.
///
/// # Errors
/// There are no more descriptors or threads.
pub(crate) fn start(frames: Frames, session: u32, slot: Slot) -> io::Result<Bridge> {
    let (caller, socket) = Socket::pair()?;
    let [ours, signal] = Signal::pair()?;
    let mut ends = Ends { frames, session, slot, socket, signal };
    ends.descriptors().into_iter().for_each(fork::hold);
    thread::spawn(move || {
        // An error ends the process's device, as the end of a daemon does.
        while ends.pass().is_ok_and(|is_open| is_open) {}
    })?;
    Ok(Bridge { caller: Caller::new(caller), signal: ours })
}

impl Ends {
    fn descriptors(&self) -> [BorrowedFd<'_>; 3] {
        [self.frames.as_fd(), self.socket.as_fd(), self.signal.as_fd()]
    }

    /// Waits, then passes on what has arrived. Returns `false` at the end of either side.
    fn pass(&mut self) -> io::Result<bool> {
        self.slot.beat();
        let mut watched = [
            PollFd::new(&self.frames, PollFlags::IN),
            PollFd::new(&self.socket, PollFlags::IN),
            PollFd::new(&self.signal, PollFlags::IN),
        ];
        match poll(&mut watched, Some(&timespec(BEAT_EVERY))) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let [port, socket, signal] = watched.map(|end| end.revents());
        // A write to a port without a relay waits for one, and no relay knows this session any more.
        if !port.is_empty() && !self.pass_frames()? || port.contains(PollFlags::HUP) {
            return Ok(false);
        }
        if !socket.is_empty() && !self.pass_request()? {
            return Ok(false);
        }
        if !signal.is_empty() {
            self.signal.take();
            self.frames.send(self.session, &[])?;
        }
        Ok(true)
    }

    /// Passes a message of the process on to the host.
    fn pass_request(&mut self) -> io::Result<bool> {
        let mut message = Vec::new();
        if self.socket.receive(&mut message, false, false)?.is_none() {
            return Ok(false);
        }
        self.frames.send(self.session, &message)?;
        Ok(true)
    }

    /// Passes the host's frames on to the process, without those that are for a process before.
    fn pass_frames(&mut self) -> io::Result<bool> {
        if !self.frames.receive()? {
            return Ok(false);
        }
        while let Some(frame) = self.frames.pop()? {
            if frame.session != self.session {
                continue;
            }
            if frame.body.is_empty() {
                self.signal.give();
            } else {
                self.socket.send(&frame.body, &[], false)?;
            }
        }
        Ok(true)
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        self.descriptors().into_iter().for_each(fork::release);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::{AsRawFd, OwnedFd};
    use std::os::unix::net::UnixStream;

    use weft_udp::Clock;

    use super::*;
    use crate::guest::slot::SLOT;

    /// A child that closed them later would close whatever files have their numbers then.
    #[test]
    fn children_close_the_bridge_s_descriptors_only_while_it_has_them() {
        let bar = rustix::fs::memfd_create("bar", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&bar, SLOT).unwrap();
        let (host, port) = UnixStream::pair().unwrap();
        let number = port.as_raw_fd();
        let frames = Frames::new(File::from(OwnedFd::from(port)));
        let bridge = start(frames, 1, Slot::map(bar.as_fd(), 0).unwrap()).unwrap();
        assert!(fork::is_held(number));
        drop(host);
        bridge.signal.wait_for_end();
        // Another test may hold a descriptor with the same number for some time.
        let until = Clock.now() + Duration::from_secs(20);
        while fork::is_held(number) {
            assert!(Clock.now() < until, "{number} is held for ever");
            std::thread::yield_now();
        }
    }
}
