//! Leases of memory between this process and its neighbours: passed on, revoked and used.

use weft_rnic::{Lease, LeaseEvent, LeaseId, LeasedAccess, Reach};

use super::Neighbours;
use super::channel::{Channel, Mapped};

/// Numbers of requests that were executed in memory of neighbours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LeasedRequests {
    /// In memory that this process has mapped.
    pub(crate) mapped: u64,
    /// By a system call for each.
    pub(crate) by_call: u64,
}

impl Neighbours {
    /// Grants and revokes leases: neighbours do not use revoked ones when this returns.
    pub(crate) fn notify(&mut self, change: &LeaseEvent) {
        match change {
            LeaseEvent::Granted { link, connection, lease, .. } => {
                let to = self.channels.iter_mut().find(|channel| channel.link == *link);
                let Some(channel) = to else { return };
                channel.lend(*connection, lease, self.lendable.backing(lease));
            }
            LeaseEvent::KeyRevoked(key) => {
                self.channels
                    .iter_mut()
                    .for_each(|channel| channel.revoke(|lent| lent.key == *key));
                self.lendable.forget(*key);
            }
            LeaseEvent::ConnectionRevoked(connection) => self
                .channels
                .iter_mut()
                .for_each(|channel| channel.revoke(|lent| lent.connection == connection.0)),
        }
    }

    /// Passes each lease from neighbours to `each`.
    #[inline]
    pub(crate) fn take_leases(&mut self, mut each: impl FnMut(LeaseId, Lease, Reach)) {
        self.channels.iter_mut().for_each(|channel| channel.take_leases(&mut each));
    }

    /// Executes a request in a neighbour's memory. Returns `true` if that succeeded.
    pub(crate) fn execute_leased(&mut self, request: &LeasedAccess<'_>) -> bool {
        let Some(channel) = lender(&self.channels, request) else { return false };
        match channel.execute_mapped(request) {
            Mapped::Executed => self.executed.mapped += 1,
            Mapped::Failed => return false,
            Mapped::Not if channel.execute_by_call(request) => self.executed.by_call += 1,
            Mapped::Not => return false,
        }
        true
    }

    /// Executes a request in a neighbour's memory, if it is mapped. Returns `true` if that succeeded.
    #[inline]
    pub(crate) fn execute_mapped(&mut self, request: &LeasedAccess<'_>) -> bool {
        let executed = lender(&self.channels, request)
            .is_some_and(|channel| channel.execute_mapped(request) == Mapped::Executed);
        self.executed.mapped += u64::from(executed);
        executed
    }

    /// Returns the numbers of requests that were executed in memory of neighbours.
    pub(crate) const fn executed(&self) -> LeasedRequests {
        self.executed
    }
}

/// Returns the neighbour whose memory a request accesses.
#[inline]
fn lender<'a>(channels: &'a [Channel], request: &LeasedAccess<'_>) -> Option<&'a Channel> {
    channels.iter().find(|channel| channel.link == request.lease.link)
}
