//! One descriptor that is readable when any of several is, so that whoever waits for a port has one to wait for,
//! however its tenants come and go.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{Timespec, epoll};

use crate::PortError;

/// More than any port has.
const MEMBERS: usize = 8;

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

    /// Watches `member`, which [`look`](Self::look) knows as `key`.
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

    /// Looks at all members that are ready, without waiting: edges among them are past then. Whether any is
    /// called by one of `keys`.
    pub(crate) fn look(&self, keys: &[u64]) -> bool {
        let mut events = [const { MaybeUninit::uninit() }; MEMBERS];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        match epoll::wait(&self.epoll, &mut events, Some(&now)) {
            Ok((ready, _)) => ready.iter().any(|event| keys.contains(&event.data.u64())),
            // An interrupted call is made again next time: what is ready stays ready.
            Err(_) => false,
        }
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}
