//! One descriptor that is readable when any of several is, so that whoever waits for a port has one to wait for,
//! however its tenants come and go.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{Timespec, epoll};

use crate::PortError;

/// A set of descriptors (epoll(7)), itself a descriptor.
#[derive(Debug)]
pub(crate) struct Readiness {
    epoll: OwnedFd,
}

/// How a member is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watch {
    /// Ready as long as there is something to read.
    Level,
    /// Ready once for each time that something came: an eventfd need not be read then.
    Edge,
    /// Not watched for now.
    Paused,
}

impl Watch {
    fn flags(self) -> epoll::EventFlags {
        match self {
            Self::Level => epoll::EventFlags::IN,
            Self::Edge => epoll::EventFlags::IN | epoll::EventFlags::ET,
            Self::Paused => epoll::EventFlags::empty(),
        }
    }
}

impl Readiness {
    pub(crate) fn new() -> Result<Self, PortError> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|errno| PortError::io("create an epoll set")(errno.into()))?;
        Ok(Self { epoll })
    }

    /// Watches `member`, which [`ready`](Self::ready) will call `key`.
    pub(crate) fn add(&self, member: impl AsFd, key: u64, watch: Watch) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, member, epoll::EventData::new_u64(key), watch.flags())?)
    }

    pub(crate) fn change(&self, member: impl AsFd, key: u64, watch: Watch) -> io::Result<()> {
        Ok(epoll::modify(&self.epoll, member, epoll::EventData::new_u64(key), watch.flags())?)
    }

    /// Watches it no longer. One that was not watched is no error.
    pub(crate) fn remove(&self, member: impl AsFd) {
        let _ = epoll::delete(&self.epoll, member);
    }

    /// The keys of members that are ready, without waiting.
    pub(crate) fn ready(&self) -> impl Iterator<Item = u64> + use<> {
        let mut events = Vec::with_capacity(8);
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        // An interrupted call is made again next time: what is ready stays ready.
        let _ = epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&now));
        events.into_iter().map(|event: epoll::Event| event.data.u64())
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}
