//! The readiness of a thread's ports. Where there are many, to try each would cost one system call per port and
//! turn; this costs one per turn.

use std::collections::BTreeSet;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{Timespec, epoll};
use weft_vpc::PortId;

/// Largest number of ports for which trying each one every turn is cheaper than epoll.
const FEW: usize = 4;

/// Largest number of ready ports that one poll returns; the next poll returns others.
const A_LOOK: usize = 64;

/// The ports of a thread with an epoll descriptor for them.
#[derive(Debug)]
pub(crate) struct Crowd {
    epoll: OwnedFd,
    ports: Vec<PortId>,
    /// Ports that may have frames: an idle port returns to this set when its descriptor becomes readable.
    eager: BTreeSet<PortId>,
}

impl Crowd {
    pub(crate) fn new() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Self { epoll, ports: vec![], eager: BTreeSet::new() })
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
        self.eager.extend(&self.ports);
        Ok(())
    }

    pub(crate) fn remove(&mut self, id: PortId, fd: BorrowedFd<'_>) {
        let _ = epoll::delete(&self.epoll, fd);
        self.ports.retain(|&known| known != id);
        self.eager.remove(&id);
    }

    /// Returns all ports.
    pub(crate) fn ports(&self) -> &[PortId] {
        &self.ports
    }

    /// Returns `true` if all ports are tried each turn.
    pub(crate) fn is_small(&self) -> bool {
        self.ports.len() <= FEW
    }

    /// Returns a descriptor that is readable while one of the ports is.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Returns, without waiting, the ports whose descriptors are readable, and marks them as ready.
    pub(crate) fn look(&mut self) -> Vec<PortId> {
        let mut events = [const { MaybeUninit::uninit() }; A_LOOK];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let number = |event: &epoll::Event| u32::try_from(event.data.u64()).ok().map(PortId);
        let ready: Vec<PortId> = match epoll::wait(&self.epoll, &mut events, Some(&now)) {
            Ok((ready, _)) => ready.iter().filter_map(number).collect(),
            // An interrupted call is made again next time: what is ready stays ready.
            Err(_) => vec![],
        };
        self.eager.extend(&ready);
        ready
    }

    /// Replaces the content of `out` with the ports that may have frames.
    pub(crate) fn eager(&self, out: &mut Vec<PortId>) {
        out.clear();
        match self.is_small() {
            true => out.extend(&self.ports),
            false => out.extend(&self.eager),
        }
    }

    /// Marks a port as idle: it has no more frames.
    pub(crate) fn rest(&mut self, id: PortId) {
        if !self.is_small() {
            self.eager.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{EventfdFlags, eventfd};

    use super::*;

    fn eager(crowd: &Crowd) -> Vec<PortId> {
        let mut out = vec![PortId(9999)];
        crowd.eager(&mut out);
        out
    }

    #[test]
    fn only_those_that_have_something_are_tried_where_there_are_many() {
        let fds: Vec<OwnedFd> =
            (0..200).map(|_| eventfd(0, EventfdFlags::NONBLOCK).unwrap()).collect();
        let mut crowd = Crowd::new().unwrap();
        for (id, fd) in (0..).map(PortId).zip(&fds) {
            crowd.add(id, fd.as_fd()).unwrap();
        }
        // At first all may have frames.
        assert_eq!(eager(&crowd).len(), 200);
        eager(&crowd).into_iter().for_each(|id| crowd.rest(id));
        assert_eq!((crowd.look(), eager(&crowd)), (vec![], vec![]));
        let signal = |at: usize| rustix::io::write(&fds[at], &1_u64.to_ne_bytes()).unwrap();
        signal(7);
        signal(150);
        let mut heard = crowd.look();
        heard.sort_unstable();
        assert_eq!(heard, [PortId(7), PortId(150)]);
        // An idle port is returned again while its descriptor is readable.
        crowd.rest(PortId(7));
        assert_eq!(eager(&crowd), [PortId(150)]);
        assert!(crowd.look().contains(&PortId(7)));
        crowd.remove(PortId(7), fds[7].as_fd());
        assert_eq!(crowd.look(), [PortId(150)]);
        assert_eq!((eager(&crowd), crowd.ports().len()), (vec![PortId(150)], 199));
        // All ports are returned in the end, though one poll returns a limited number.
        (0..200).for_each(|at| {
            signal(at);
        });
        let mut all = BTreeSet::new();
        for _ in 0..20 {
            all.extend(crowd.look());
        }
        assert_eq!(all.len(), 199);
    }

    #[test]
    fn a_few_are_tried_always() {
        let fds: Vec<OwnedFd> =
            (0..2).map(|_| eventfd(0, EventfdFlags::NONBLOCK).unwrap()).collect();
        let mut crowd = Crowd::new().unwrap();
        for (id, fd) in (0..).map(PortId).zip(&fds) {
            crowd.add(id, fd.as_fd()).unwrap();
            crowd.rest(id);
        }
        assert_eq!(eager(&crowd), [PortId(0), PortId(1)]);
    }
}
