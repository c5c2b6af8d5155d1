//! Leases: a peer on this host accesses a region directly, without this device, until the lease is revoked. A peer gets a
//! lease of a region after its first authorised access. Later requests are executed in the process that posts them, so the
//! process of this device need not run.
//!
//! A lease grants the rights of the region and of the queue pair, for one connection. It is revoked when one of these changes,
//! and the device's owner ensures that no peer uses it after the call that made the change. Requests stay in order because a
//! request uses a lease only if no earlier one is in flight.

use weft_units::Instant;

use super::active::ActiveQp;
use super::requester::{scatter, succeeded};
use super::{Device, Source};
use crate::memory::{Access, RegionRequest, Right};
use crate::queue_pair::{Borrowed, Done, QueuePair, Reachable, Role, State};
use crate::work::total;
use crate::{Data, Lease, LeaseEvent, LeaseId, QueuePairNumber, Reach, SendRequest};

/// A request to execute in the lender's memory.
#[derive(Clone, Copy, Debug)]
pub struct LeasedAccess<'a> {
    /// The lease.
    pub lease: LeaseId,
    /// The address in the lender's memory.
    pub address: u64,
    /// The length in bytes.
    pub length: u32,
    /// `true` to write the lender's memory, `false` to read it.
    pub writes: bool,
    /// The local source of a write, or destination of a read.
    pub local: Source<'a>,
}

impl ActiveQp<'_> {
    /// Grants a lease of the region to which an access was authorised, if the peer has none.
    pub(super) fn grant_lease(&mut self, key: u32) {
        let accessor = self.accessor();
        let pair = &mut *self.pair;
        let rights = [Access::REMOTE_WRITE, Access::REMOTE_READ].map(|right| pair.allows(right));
        let Some(flow) = &mut pair.responder.flow else { return };
        let known = Some((key, self.emtt.changes()));
        if flow.lent == known {
            return;
        }
        let connection = flow.connection;
        let Some((link, borrower)) = self.carriers.borrower(connection) else { return };
        // Windows have no leases, since requests bind and invalidate them.
        let Some((start, region)) = self.emtt.region_in_domain(accessor, key) else { return };
        flow.lent = known;
        let RegionRequest { owner, address, length, access, .. } = region;
        let lease = Lease {
            connection: borrower,
            key,
            start,
            length,
            address,
            writable: rights[0] && access.contains(Access::REMOTE_WRITE),
            readable: rights[1] && access.contains(Access::REMOTE_READ),
        };
        *self.has_lent = true;
        self.lease_events.push_back(LeaseEvent::Granted { link, owner, connection, lease });
    }

    /// Revokes the leases of the queue pair's connection.
    pub(super) fn revoke_leases(&mut self) {
        if let Some(flow) = &mut self.pair.responder.flow
            && flow.lent.take().is_some()
        {
            self.lease_events.push_back(LeaseEvent::ConnectionRevoked(flow.connection));
        }
    }

    /// Executes the next request by its lease through `execute`, unless it cannot start or has none.
    fn execute_by_lease(
        &mut self,
        now: Instant,
        execute: impl FnOnce(&LeasedAccess<'_>) -> Option<Instant>,
    ) {
        let accessor = self.accessor();
        let QueuePair { state, send, requester, .. } = &mut *self.pair;
        if *state != State::ReadyToSend || !requester.can_send() || send.is_in_flight() {
            return;
        }
        let Some((_, wqe)) = send.upcoming() else { return };
        let reachable = requester.reachable(&wqe.operation, wqe.length);
        let Some(Reachable { id, key, address, writes, .. }) = reachable else { return };
        let length = u32::try_from(wqe.length).expect("leases are for shorter ones");
        let right = if writes { Right::LocalRead } else { Right::LocalWrite };
        if scatter(self.emtt, accessor, &wqe.sges, (0, length), right, self.places).is_err() {
            return;
        }
        let local = match wqe.inline.as_deref() {
            Some(bytes) => Source::Inline(bytes),
            None => Source::Memory(self.places),
        };
        if let Some(done) = execute(&LeasedAccess { lease: id, address, length, writes, local }) {
            requester.burst.record(now, done);
            send.complete_leased();
        } else {
            requester.leases.remove(&key);
        }
    }

    /// Executes a request that is not queued through `execute`, if its lease is of mapped memory and no request precedes it.
    /// Returns `false` if it was not executed; the queue then reports the reason, or sends it over the link.
    fn execute_at_once(
        &mut self,
        request: &SendRequest<'_>,
        execute: impl FnOnce(&LeasedAccess<'_>) -> bool,
    ) -> bool {
        let accessor = self.accessor();
        let QueuePair { request: queues, state, attributes, send, requester, .. } = &mut *self.pair;
        let length = match request.data {
            Data::Gather([only]) => only.length.into(),
            Data::Gather(sges) => total(sges),
            Data::Inline(bytes) => bytes.len() as u64,
        };
        let Some(reachable) = requester.reachable(&request.operation, length) else { return false };
        let Reachable { id, key, address, writes, reach, .. } = reachable;
        let may_start = *state == State::ReadyToSend && requester.can_send() && send.len() == 0;
        let may_read = attributes.max_rd_atomic.unwrap_or(0) > 0;
        if reach != Reach::Mapped
            || !may_start
            || !(writes || may_read)
            || length > self.limits.message_bytes.into()
            || queues.check_send(request).is_err()
            || !self.completing.has_room(queues.send_cq)
        {
            return false;
        }
        let length = u32::try_from(length).expect("leases are for shorter ones");
        let local = match request.data {
            Data::Inline(bytes) => Source::Inline(bytes),
            Data::Gather(sges) => {
                let right = if writes { Right::LocalRead } else { Right::LocalWrite };
                if scatter(self.emtt, accessor, sges, (0, length), right, self.places).is_err() {
                    return false;
                }
                Source::Memory(self.places)
            }
        };
        if !execute(&LeasedAccess { lease: id, address, length, writes, local }) {
            requester.leases.remove(&key);
            return false;
        }
        (requester.rnr_tries, requester.tries) = (0, 0);
        if request.signaled || queues.signal_all {
            let done = Done::at_once(request, length);
            let completed = self.completing.complete(queues.send_cq, succeeded(self.qp, &done));
            assert!(completed, "there was room");
        }
        true
    }
}

impl Device {
    /// Returns the next notification for borrowers. A revoked lease is usable until its borrower is notified, so the owner
    /// drains the notifications after each call, before its caller continues.
    pub fn poll_lease_event(&mut self) -> Option<LeaseEvent> {
        self.lease_events.pop_front()
    }

    /// Revokes the leases of a key, if the device has ever granted one.
    pub(super) fn revoke(&mut self, key: u32) {
        if self.has_lent {
            self.lease_events.push_back(LeaseEvent::KeyRevoked(key));
        }
    }

    /// Handles a lease that the process at the other end of a link granted, which the owner uses in this way. A lease for an
    /// unknown connection, or for one over another link, is ignored.
    pub fn borrow(&mut self, lease: Lease, id: LeaseId, reach: Reach) {
        let Some(&(qp, Role::Requester)) = self.connections.get(&lease.connection) else { return };
        let Some(active) = self.active(qp) else { return };
        let borrower = active.carriers.borrower(lease.connection);
        if borrower.is_some_and(|(link, _)| link == id.link) {
            active.pair.requester.leases.insert(lease.key, Borrowed { id, lease, reach });
        }
    }

    /// Has `execute` execute a send request in this call, if a lease of [mapped](Reach::Mapped) memory allows it, no request
    /// precedes it, and there is room for its completion. Returns `false` if it was not executed, and has to be posted.
    /// `execute` is as in [`poll_leased_access`](Self::poll_leased_access), but returns no time.
    #[inline]
    pub fn execute_at_once(
        &mut self,
        qp: QueuePairNumber,
        request: &SendRequest<'_>,
        execute: impl FnOnce(&LeasedAccess<'_>) -> bool,
    ) -> bool {
        self.active(qp).is_some_and(|mut active| active.execute_at_once(request, execute))
    }

    /// Returns `true` if a request can be executed by a lease, apart from room for its completion.
    pub fn has_leased_access(&self) -> bool {
        !self.leased_accesses.is_empty()
    }

    /// Has `execute` execute the next request that a lease allows; returns `false` if there is none. `execute` returns the time at
    /// which the copy was done, or `None` if the lease was revoked; the request then uses the link. The last byte of a write
    /// must be stored last.
    pub fn poll_leased_access(
        &mut self,
        now: Instant,
        execute: impl FnOnce(&LeasedAccess<'_>) -> Option<Instant>,
    ) -> bool {
        let has_room = |qp: &QueuePairNumber| {
            let cq = self.qps.get(qp.0).and_then(|pair| self.cqs.get(pair.request.send_cq.0));
            cq.is_none_or(|queue| queue.completions.has_room())
        };
        let Some(next) = self.leased_accesses.iter().position(has_room) else { return false };
        let qp = self.leased_accesses.remove(next).expect("found just now");
        if let Some(mut active) = self.active(qp) {
            active.execute_by_lease(now, execute);
            active.retire(now);
            active.pump(now);
        }
        self.handle_transport_events(now);
        true
    }
}
