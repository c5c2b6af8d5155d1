//! What a requester may reach of its peer's memory by itself.

use weft_units::{Duration, Instant};

use super::{Requester, Wqe};
use crate::device::LeaseId;
use crate::{Lease, Operation, Remote};

/// Longer requests take the usual way: who posts one waits until it is carried out, and so does who takes the memory
/// away.
const LONGEST: u64 = 1 << 20;
/// Bytes that a link carries sooner than a system call does, where the peer takes them in as they come.
const SHORT: u64 = 8 << 10;
/// WRITEs that are posted so soon after one another are a row: sooner than a peer could have answered,
const SOON: Duration = Duration::from_micros(2);
/// and so many make it a long one. Fewer are data and the word that says they are there.
const LONG_ROW: u32 = 8;

/// A lease, and what the owner calls it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Borrowed {
    pub(crate) id: LeaseId,
    pub(crate) lease: Lease,
}

/// A request that its lease allows: where its bytes are in the lender's memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reachable {
    pub(crate) id: LeaseId,
    pub(crate) key: u32,
    pub(crate) address: u64,
    pub(crate) writes: bool,
    short: bool,
}

/// WRITEs that went by leases, each posted as soon as the one before was done.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Row {
    length: u32,
    /// When the last was done, or left.
    last: Option<Instant>,
}

impl Row {
    fn goes_on(&self, now: Instant) -> bool {
        self.last.is_some_and(|last| now <= last + SOON)
    }

    fn is_long(&self, now: Instant) -> bool {
        self.length >= LONG_ROW && self.goes_on(now)
    }

    /// Notes a request that was begun `from` and done `to`.
    pub(crate) fn note(&mut self, from: Instant, to: Instant) {
        let length = if self.goes_on(from) { self.length.saturating_add(1) } else { 1 };
        *self = Self { length, last: Some(to) };
    }
}

impl Operation {
    /// What it reaches, where it does nothing else; whether it writes there.
    pub(super) const fn reaches(&self) -> Option<(Remote, bool)> {
        match *self {
            Self::Write(remote) => Some((remote, true)),
            Self::Read(remote) => Some((remote, false)),
            Self::Send
            | Self::SendWithImmediate(_)
            | Self::SendWithInvalidate(_)
            | Self::WriteWithImmediate(..)
            | Self::Atomic { .. }
            | Self::LocalInvalidate(_)
            | Self::BindWindow { .. } => None,
        }
    }
}

impl Wqe {
    /// Whether a lease might allow it.
    pub(crate) const fn only_reaches(&self) -> bool {
        self.operation.reaches().is_some()
    }
}

impl Requester {
    /// What a lease allows of a request: all of it, or nothing.
    #[inline]
    pub(crate) fn reachable(&self, wqe: &Wqe) -> Option<Reachable> {
        if self.leases.is_empty() || wqe.length == 0 || wqe.length > LONGEST {
            return None;
        }
        let (remote, writes) = wqe.operation.reaches()?;
        let Borrowed { id, lease } = self.leases.get(&remote.rkey)?;
        let allowed = if writes { lease.writable } else { lease.readable };
        let offset = remote.address.checked_sub(lease.start)?;
        let end = offset.checked_add(wqe.length)?;
        let address = lease.address.checked_add(offset)?;
        let fits = allowed && end <= lease.length;
        let short = writes && wqe.length <= SHORT;
        fits.then_some(Reachable { id: *id, key: remote.rkey, address, writes, short })
    }

    /// Whether a request goes by its lease, if it has one, where `latest` is what was begun before it and is not done.
    /// Short WRITEs in a long row go over the link: the program waits for none of them alone.
    #[inline]
    pub(crate) fn goes_by_lease(&mut self, now: Instant, wqe: &Wqe, latest: Option<bool>) -> bool {
        let Some(reachable) = self.reachable(wqe) else { return false };
        let by_link = reachable.short && (latest.is_some() || self.row.is_long(now));
        if by_link {
            self.row.last = Some(now);
        }
        !by_link
    }
}
