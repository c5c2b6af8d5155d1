//! The requester's leases: memory of its peer that it accesses directly.

use weft_units::{Duration, Instant};

use super::{Requester, Wqe};
use crate::{Lease, LeaseId, Operation, Reach, Remote};

/// Largest request that is executed by a lease, bytes. The posting program, and a revocation of the lease, wait for the copy.
const MAX_LEASED_BYTES: u64 = 1 << 20;
/// Largest WRITE, bytes, that a link carries faster than a system call copies it while the peer receives.
const MAX_SHORT_BYTES: u64 = 8 << 10;
/// Longest interval between the end of a WRITE and the start of the next of the same burst: shorter than the round trip
/// to a peer.
const MAX_BURST_GAP: Duration = Duration::from_micros(2);
/// Minimum WRITEs of a long burst. Data followed by a flag is typically fewer.
const MIN_LONG_BURST: u32 = 8;

/// A lease, and its id at the device's owner.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Borrowed {
    pub(crate) id: LeaseId,
    pub(crate) lease: Lease,
    pub(crate) reach: Reach,
}

/// A request that a lease allows, with the address of its bytes in the lender's memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reachable {
    pub(crate) id: LeaseId,
    pub(crate) key: u32,
    pub(crate) address: u64,
    pub(crate) writes: bool,
    pub(crate) reach: Reach,
    /// `true` if a link carries it faster in a long burst.
    short: bool,
}

/// A burst of WRITEs executed by leases, each posted as soon as the previous one was done.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Burst {
    length: u32,
    /// The time at which the last WRITE was done or transmitted.
    last: Option<Instant>,
}

impl Burst {
    fn continues(&self, now: Instant) -> bool {
        self.last.is_some_and(|last| now <= last + MAX_BURST_GAP)
    }

    fn is_long(&self, now: Instant) -> bool {
        self.length >= MIN_LONG_BURST && self.continues(now)
    }

    /// Records a request that was executed from `from` to `to`.
    pub(crate) fn record(&mut self, from: Instant, to: Instant) {
        let length = if self.continues(from) { self.length.saturating_add(1) } else { 1 };
        *self = Self { length, last: Some(to) };
    }
}

impl Operation {
    /// Returns the remote memory of a plain READ or WRITE, and `true` for a WRITE; `None` for other operations.
    pub(super) const fn remote_access(&self) -> Option<(Remote, bool)> {
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
    /// Returns `true` for a plain READ or WRITE, which a lease may allow.
    pub(crate) const fn is_leasable(&self) -> bool {
        self.operation.remote_access().is_some()
    }
}

impl Requester {
    /// Returns the location of a request of this length in the lender's memory, if a lease allows all of it.
    #[inline]
    pub(crate) fn reachable(&self, operation: &Operation, length: u64) -> Option<Reachable> {
        if self.leases.is_empty() || length == 0 || length > MAX_LEASED_BYTES {
            return None;
        }
        let (remote, writes) = operation.remote_access()?;
        let &Borrowed { id, ref lease, reach } = self.leases.get(&remote.rkey)?;
        let allowed = if writes { lease.writable } else { lease.readable };
        let offset = remote.address.checked_sub(lease.start)?;
        let end = offset.checked_add(length)?;
        let address = lease.address.checked_add(offset)?;
        let fits = allowed && end <= lease.length;
        let short = reach == Reach::SystemCall && writes && length <= MAX_SHORT_BYTES;
        fits.then_some(Reachable { id, key: remote.rkey, address, writes, reach, short })
    }

    /// Returns `true` if a request is executed by a lease. `latest` is the result of [`Wqe::is_leasable`] for the request
    /// before it, while that is in flight. Short WRITEs in a long burst use the link, since the program does not wait for each,
    /// unless the lender's memory is mapped.
    #[inline]
    pub(crate) fn uses_lease(&mut self, now: Instant, wqe: &Wqe, latest: Option<bool>) -> bool {
        let Some(reachable) = self.reachable(&wqe.operation, wqe.length) else { return false };
        let uses_link = reachable.short && (latest.is_some() || self.burst.is_long(now));
        if uses_link {
            self.burst.last = Some(now);
        }
        !uses_link
    }
}
