//! The readiness of a thread's ports. Where there are many, to try each would cost one system call per port and
//! turn; this costs one per turn.

use std::collections::BTreeSet;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{Timespec, epoll};
use weft_vpc::PortId;

/// Largest number of ports for which trying each one every turn is cheaper than epoll.
const MAX_ALWAYS_POLLED: usize = 4;

/// Largest number of ready ports that one poll returns; the next poll returns others.
const MAX_EVENTS: usize = 64;

/// The ports of a thread with an epoll descriptor for them.
#[derive(Debug)]
pub(crate) struct PortPoller {
    epoll: OwnedFd,
    ports: Vec<PortId>,
    /// Ports that may have frames: an idle port returns to this set when its descriptor becomes readable.
    ready: BTreeSet<PortId>,
}

impl PortPoller {
    pub(crate) fn new() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Self { epoll, ports: vec![], ready: BTreeSet::new() })
    }

    /// Adds a port. Its descriptor must live as long as the port.
    ///
    /// # Errors
    /// The kernel refuses another descriptor.
    pub(crate) fn add(&mut self, id: PortId, fd: BorrowedFd<'_>) -> io::Result<()> {
        let data = epoll::EventData::new_u64(id.0.into());
        epoll::add(&self.epoll, fd, data, epoll::EventFlags::IN)?;
        self.ports.push(id);
        // Some descriptors may have been readable before, with their frames still there.
        self.ready.extend(&self.ports);
        Ok(())
    }

    pub(crate) fn remove(&mut self, id: PortId, fd: BorrowedFd<'_>) {
        let _ = epoll::delete(&self.epoll, fd);
        self.ports.retain(|&known| known != id);
        self.ready.remove(&id);
    }

    /// Returns all ports.
    pub(crate) fn ports(&self) -> &[PortId] {
        &self.ports
    }

    /// Returns `true` if all ports are tried each turn.
    pub(crate) fn is_small(&self) -> bool {
        self.ports.len() <= MAX_ALWAYS_POLLED
    }

    /// Returns a descriptor that is readable while one of the ports is.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Returns, without waiting, the ports whose descriptors are readable, and marks them as ready.
    pub(crate) fn poll(&mut self) -> Vec<PortId> {
        let mut events = [const { MaybeUninit::uninit() }; MAX_EVENTS];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let number = |event: &epoll::Event| u32::try_from(event.data.u64()).ok().map(PortId);
        let readable: Vec<PortId> = match epoll::wait(&self.epoll, &mut events, Some(&now)) {
            Ok((readable, _)) => readable.iter().filter_map(number).collect(),
            // The next poll repeats an interrupted call: readable descriptors stay readable.
            Err(_) => vec![],
        };
        self.ready.extend(&readable);
        readable
    }

    /// Replaces the content of `out` with the ports that may have frames.
    pub(crate) fn ready(&self, out: &mut Vec<PortId>) {
        out.clear();
        match self.is_small() {
            true => out.extend(&self.ports),
            false => out.extend(&self.ready),
        }
    }

    /// Marks a port as idle: it has no more frames.
    pub(crate) fn set_idle(&mut self, id: PortId) {
        if !self.is_small() {
            self.ready.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{EventfdFlags, eventfd};

    use super::*;

    fn ready(poller: &PortPoller) -> Vec<PortId> {
        let mut out = vec![PortId(9999)];
        poller.ready(&mut out);
        out
    }

    #[test]
    fn only_ready_ports_are_returned_where_there_are_many() {
        let fds: Vec<OwnedFd> =
            (0..200).map(|_| eventfd(0, EventfdFlags::NONBLOCK).unwrap()).collect();
        let mut poller = PortPoller::new().unwrap();
        for (id, fd) in (0..).map(PortId).zip(&fds) {
            poller.add(id, fd.as_fd()).unwrap();
        }
        // At first all may have frames.
        assert_eq!(ready(&poller).len(), 200);
        ready(&poller).into_iter().for_each(|id| poller.set_idle(id));
        assert_eq!((poller.poll(), ready(&poller)), (vec![], vec![]));
        let signal = |at: usize| rustix::io::write(&fds[at], &1_u64.to_ne_bytes()).unwrap();
        signal(7);
        signal(150);
        let mut polled = poller.poll();
        polled.sort_unstable();
        assert_eq!(polled, [PortId(7), PortId(150)]);
        // An idle port is returned again while its descriptor is readable.
        poller.set_idle(PortId(7));
        assert_eq!(ready(&poller), [PortId(150)]);
        assert!(poller.poll().contains(&PortId(7)));
        poller.remove(PortId(7), fds[7].as_fd());
        assert_eq!(poller.poll(), [PortId(150)]);
        assert_eq!((ready(&poller), poller.ports().len()), (vec![PortId(150)], 199));
        // All ports are returned in the end, though one poll returns a limited number.
        (0..200).for_each(|at| {
            signal(at);
        });
        let mut all = BTreeSet::new();
        for _ in 0..20 {
            all.extend(poller.poll());
        }
        assert_eq!(all.len(), 199);
    }

    #[test]
    fn few_ports_are_always_returned() {
        let fds: Vec<OwnedFd> =
            (0..2).map(|_| eventfd(0, EventfdFlags::NONBLOCK).unwrap()).collect();
        let mut poller = PortPoller::new().unwrap();
        for (id, fd) in (0..).map(PortId).zip(&fds) {
            poller.add(id, fd.as_fd()).unwrap();
            poller.set_idle(id);
        }
        assert_eq!(ready(&poller), [PortId(0), PortId(1)]);
    }
}
