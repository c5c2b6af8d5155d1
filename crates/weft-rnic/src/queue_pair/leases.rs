//! What a requester may reach of its peer's memory by itself.

use super::{Requester, Wqe};
use crate::device::LeaseId;
use crate::{Lease, Operation, Remote};

/// Longer requests take the usual way: who posts one waits until it is carried out, and so does who takes the memory
/// away.
const LONGEST: u64 = 1 << 20;

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
}

impl Operation {
    /// What it reaches, where it does nothing else; whether it writes there.
    pub(super) const fn reaches(&self) -> Option<(Remote, bool)> {
        match *self {
            Self::Write(remote) => Some((remote, true)),
            Self::Read(remote) => Some((remote, false)),
            _ => None,
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
        fits.then_some(Reachable { id: *id, key: remote.rkey, address, writes })
    }
}
