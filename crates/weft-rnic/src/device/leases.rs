//! Leases: a peer of this host may reach a region by itself, without this device's help, until that is recalled.
//! Whoever has asked for a region's bytes once, and was allowed to, gets one; what it then does with them it does in
//! the place where it is posted, so that nobody at this end has to be awake.
//!
//! A lease allows what this device allows: the region's rights and the queue pair's, for that connection. It is
//! recalled when any of this changes, and the owner sees to it that nobody uses it once the call that changed it
//! is over. Order is kept because a request is carried out so only where nothing is under way before it.

use weft_transport::{ConnectionId, LinkId};
use weft_units::Instant;

use super::receiver::Receiver;
use super::requester::scatter;
use super::{Device, Source};
use crate::QueuePairNumber;
use crate::memory::{Access, Accessor, Owner, RegionRequest, Right};
use crate::queue_pair::{Borrowed, QueuePair, Reachable, Role, State};

/// What a peer may reach by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// For requests on this connection, as the borrower calls it.
    pub connection: ConnectionId,
    /// That name this key.
    pub key: u32,
    /// Where the region begins, as requests count.
    pub start: u64,
    /// How long it is, bytes.
    pub length: u64,
    /// Where it begins in the lender's memory.
    pub address: u64,
    /// Whether it may be written.
    pub writable: bool,
    /// Whether it may be read.
    pub readable: bool,
}

/// Names a lease, as its borrower's owner counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseId {
    /// The link to the lender.
    pub link: LinkId,
    /// Which of those over that link.
    pub number: u64,
}

/// What an owner of memory is to tell its borrowers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leasing {
    /// Who is at the other end of a link may reach this.
    Granted {
        /// The link.
        link: LinkId,
        /// Whose memory it is.
        owner: Owner,
        /// The connection, as it is called here.
        connection: ConnectionId,
        /// What may be reached.
        lease: Lease,
    },
    /// Nobody may reach anything by this key any more.
    KeyRecalled(u32),
    /// Nobody may reach anything for this connection any more.
    ConnectionRecalled(ConnectionId),
}

/// A request to carry out in the lender's memory.
#[derive(Clone, Copy, Debug)]
pub struct Reach<'a> {
    /// By which lease.
    pub lease: LeaseId,
    /// Where in the lender's memory.
    pub address: u64,
    /// Bytes.
    pub length: u32,
    /// Whether they go there, or come from there.
    pub writes: bool,
    /// Where they come from, or go.
    pub local: Source<'a>,
}

impl Receiver<'_> {
    /// A peer may use a region of which it was allowed to reach a part just now.
    pub(super) fn lend(&mut self, key: u32) {
        let who = self.accessor();
        let pair = &mut *self.pair;
        let rights = [Access::REMOTE_WRITE, Access::REMOTE_READ].map(|right| pair.allows(right));
        let Some(flow) = &mut pair.responder.flow else { return };
        let known = Some((key, self.emtt.changes()));
        if flow.lent == known {
            return;
        }
        let connection = flow.connection;
        let Some((link, borrower)) = self.carriers.borrower(connection) else { return };
        // Of windows there is none: they come and go by requests.
        let Some((start, region)) = self.emtt.whole(who, key) else { return };
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
        *self.lends = true;
        self.leasing.push_back(Leasing::Granted { link, owner, connection, lease });
    }
}

impl Device {
    /// The next thing to tell borrowers. What is recalled may still be reached until they were told; so
    /// this is asked until there is nothing, after each call and before its caller goes on.
    pub fn poll_leasing(&mut self) -> Option<Leasing> {
        self.leasing.pop_front()
    }

    /// Nobody reaches anything by a key any more.
    pub(super) fn recall(&mut self, key: u32) {
        if self.lends {
            self.leasing.push_back(Leasing::KeyRecalled(key));
        }
    }

    /// Nobody reaches anything through a queue pair's connection any more.
    pub(super) fn recall_from(&mut self, qp: QueuePairNumber) {
        let flow = self.qps.get_mut(qp.0).and_then(|pair| pair.responder.flow.as_mut());
        if let Some(flow) = flow
            && flow.lent.take().is_some()
        {
            self.leasing.push_back(Leasing::ConnectionRecalled(flow.connection));
        }
    }

    /// The process at the other end of a link lends its memory.
    pub fn borrow(&mut self, lease: Lease, id: LeaseId) {
        let Some(&(qp, Role::Requester)) = self.connections.get(&lease.connection) else { return };
        let goes = self.carriers.borrower(lease.connection);
        if goes.is_some_and(|(link, _)| link == id.link)
            && let Some(pair) = self.qps.get_mut(qp.0)
        {
            pair.requester.leases.insert(lease.key, Borrowed { id, lease });
        }
    }

    /// Whether a request may be carried out by a lease, unless its completion has no room yet.
    pub fn may_reach(&self) -> bool {
        !self.reaching.is_empty()
    }

    /// Has `reach` carry out the next request that a lease allows; false if there is none. It says when that was done,
    /// or `None`: the lease may have been recalled meanwhile, and the request takes the usual way then. Of what is
    /// written the last byte is to be stored last.
    pub fn poll_reach(
        &mut self,
        now: Instant,
        reach: impl FnOnce(&Reach<'_>) -> Option<Instant>,
    ) -> bool {
        let has_room = |qp: &QueuePairNumber| {
            let cq = self.qps.get(qp.0).and_then(|pair| self.cqs.get(pair.request.send_cq.0));
            cq.is_none_or(|queue| queue.completions.has_room())
        };
        let Some(next) = self.reaching.iter().position(has_room) else { return false };
        let qp = self.reaching.remove(next).expect("found just now");
        self.carry_out_there(now, qp, reach);
        self.retire(now, qp);
        self.pump(now, qp);
        self.handle_transport_events(now);
        true
    }

    fn carry_out_there(
        &mut self,
        now: Instant,
        qp: QueuePairNumber,
        reach: impl FnOnce(&Reach<'_>) -> Option<Instant>,
    ) {
        let Some(pair) = self.qps.get_mut(qp.0) else { return };
        let QueuePair { request, state, send, requester, .. } = pair;
        if *state != State::ReadyToSend || !requester.is_free() || send.is_under_way() {
            return;
        }
        let Some((_, wqe)) = send.upcoming() else { return };
        let Some(Reachable { id, key, address, writes, .. }) = requester.reachable(wqe) else {
            return;
        };
        let who = Accessor { domain: request.domain, qp: qp.0 };
        let length = u32::try_from(wqe.length).expect("leases are for shorter ones");
        let right = if writes { Right::LocalRead } else { Right::LocalWrite };
        if scatter(&self.emtt, who, &wqe.sges, (0, length), right, &mut self.places).is_err() {
            return;
        }
        let local = match wqe.inline.as_deref() {
            Some(bytes) => Source::Inline(bytes),
            None => Source::Memory(&self.places),
        };
        if let Some(done) = reach(&Reach { lease: id, address, length, writes, local }) {
            requester.row.note(now, done);
            send.carried_out();
        } else {
            requester.leases.remove(&key);
        }
    }
}
