//! One descriptor that is readable when any of several is, so that the caller waits on a single one
//! while a port's tenants connect and disconnect.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{Timespec, epoll};

use crate::PortError;

/// Maximum number of events of one [`poll`](Readiness::poll): more than any port has members.
const MAX_EVENTS: usize = 64;

/// A set of descriptors (epoll(7)), itself a descriptor.
#[derive(Debug)]
pub(crate) struct Readiness {
    epoll: OwnedFd,
}

/// The ways to watch a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watch {
    /// Level-triggered: ready while there is something to read.
    Level,
    /// Edge-triggered: ready once for each event, so that an eventfd need not be read.
    Edge,
    /// Temporarily not watched.
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

    /// Watches `member`, which [`poll`](Self::poll) identifies by `key`.
    pub(crate) fn add(&self, member: impl AsFd, key: u64, watch: Watch) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, member, epoll::EventData::new_u64(key), watch.flags())?)
    }

    pub(crate) fn change(&self, member: impl AsFd, key: u64, watch: Watch) -> io::Result<()> {
        Ok(epoll::modify(&self.epoll, member, epoll::EventData::new_u64(key), watch.flags())?)
    }

    /// Stops watching a member. A descriptor that is not watched is no error.
    pub(crate) fn remove(&self, member: impl AsFd) {
        let _ = epoll::delete(&self.epoll, member);
    }

    /// Consumes the readiness of all members without waiting, edges included. Returns `true` if a
    /// ready member has one of `keys`.
    pub(crate) fn poll(&self, keys: &[u64]) -> bool {
        let mut events = [const { MaybeUninit::uninit() }; MAX_EVENTS];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        match epoll::wait(&self.epoll, &mut events, Some(&now)) {
            Ok((ready, _)) => ready.iter().any(|event| keys.contains(&event.data.u64())),
            // An interrupted call is repeated next time: members stay ready.
            Err(_) => false,
        }
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}
