//! The ports of a thread that has many: which of them have something to take. Trying them all would cost a system
//! call each, every turn; this costs one.

use std::collections::BTreeSet;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{Timespec, epoll};
use weft_vpc::PortId;

/// Ports that are tried each turn: up to so many it is cheaper than to ask which.
const FEW: usize = 4;

/// Ports that are heard of by one look; others are by the next.
const A_LOOK: usize = 64;

/// A thread's ports.
#[derive(Debug)]
pub(crate) struct Crowd {
    epoll: OwnedFd,
    ports: Vec<PortId>,
    /// Those that may have something: whoever had nothing is in it again when its descriptor says so.
    eager: BTreeSet<PortId>,
}

impl Crowd {
    pub(crate) fn new() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Self { epoll, ports: vec![], eager: BTreeSet::new() })
    }

    /// Takes a port in, whose descriptor is as long as it lives.
    ///
    /// # Errors
    /// The kernel watches no more.
    pub(crate) fn add(&mut self, id: PortId, fd: BorrowedFd<'_>) -> io::Result<()> {
        let data = epoll::EventData::new_u64(id.0.into());
        epoll::add(&self.epoll, fd, data, epoll::EventFlags::IN)?;
        self.ports.push(id);
        // Some may have told already what nobody has taken yet.
        self.eager.extend(&self.ports);
        Ok(())
    }

    pub(crate) fn remove(&mut self, id: PortId, fd: BorrowedFd<'_>) {
        let _ = epoll::delete(&self.epoll, fd);
        self.ports.retain(|&known| known != id);
        self.eager.remove(&id);
    }

    /// All of them.
    pub(crate) fn ports(&self) -> &[PortId] {
        &self.ports
    }

    /// Whether all are tried each turn.
    pub(crate) fn is_small(&self) -> bool {
        self.ports.len() <= FEW
    }

    /// Readable when one of them is.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Hears, without waiting, which have something now; they are eager from then on.
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

    /// Puts those that may have something into `out`.
    pub(crate) fn eager(&self, out: &mut Vec<PortId>) {
        out.clear();
        match self.is_small() {
            true => out.extend(&self.ports),
            false => out.extend(&self.eager),
        }
    }

    /// A port has nothing more.
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
        // At first all may have something.
        assert_eq!(eager(&crowd).len(), 200);
        eager(&crowd).into_iter().for_each(|id| crowd.rest(id));
        assert_eq!((crowd.look(), eager(&crowd)), (vec![], vec![]));
        let signal = |at: usize| rustix::io::write(&fds[at], &1_u64.to_ne_bytes()).unwrap();
        signal(7);
        signal(150);
        let mut heard = crowd.look();
        heard.sort_unstable();
        assert_eq!(heard, [PortId(7), PortId(150)]);
        // One has nothing more; it is heard of again as long as it says so.
        crowd.rest(PortId(7));
        assert_eq!(eager(&crowd), [PortId(150)]);
        assert!(crowd.look().contains(&PortId(7)));
        crowd.remove(PortId(7), fds[7].as_fd());
        assert_eq!(crowd.look(), [PortId(150)]);
        assert_eq!((eager(&crowd), crowd.ports().len()), (vec![PortId(150)], 199));
        // All of them, though a look shows only so many.
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
