//! One turn: receives packets and work, sends packets, delivers completions and events.

use rustix::event::epoll;
use weft_rnic::{Event, Handle, Owner};
use weft_udp::Budget;
use weft_units::Instant;

use super::events::failure_by;
use super::tenant::Tenant;
use super::{Client, ClientId, Daemon, EventKind};
use crate::attach::{Corrupt, Page, Work, decode};
use crate::engine::Fault;
use crate::engine::blocking::{self, Stall};

/// The maximum number of work requests taken from one client in a row, for fairness.
const MAX_REQUESTS: usize = 64;

/// Number of datagrams of one address after which a turn reads no more. It is larger than the number that leave in one: otherwise
/// arrivals of many clients, each of which is one datagram, would wait longer and longer. A turn looks at the ring of every client
/// at work, so it also is the number of datagrams that share the cost of that.
const MAX_DATAGRAMS: usize = 256;

/// Returns the limits of a turn.
pub(super) fn budget() -> Budget {
    Budget { datagrams: MAX_DATAGRAMS, ..Budget::default() }
}

impl Daemon {
    /// Runs one turn without waiting, over `all` addresses or over those in use. Returns `true` if there was work.
    pub(super) fn turn(&mut self, all: bool) -> bool {
        self.end_faulty();
        let now = self.host.now();
        let handled = if all { self.host.turn_with(now, true) } else { self.host.turn(now) };
        let mut worked = handled > 0;
        self.resume(now);
        let ids: Vec<ClientId> = self.active.read().collect();
        for id in ids {
            match self.take_work_of(id, false) {
                Ok(0) => {}
                Ok(_) => {
                    self.active.wake(id, now);
                    worked = true;
                }
                Err(reason) => self.end_client(id, Some(reason)),
            }
        }
        self.rest(now);
        let now = self.host.now();
        self.end_faulty();
        worked |= self.host.transmit(now) > 0;
        self.end_faulty();
        self.deliver_all() || worked
    }

    /// Stops to read clients that have posted nothing for long. The next request of each comes with a signal.
    fn rest(&mut self, now: Instant) {
        for id in self.active.idle(now) {
            if let Some(tenant) = self.clients.get(&id).and_then(|client| client.tenant.as_ref()) {
                tenant.page.ask_for_signal(Page::DAEMON_SLEEPS);
                if tenant.work.has_any(&tenant.page) {
                    // It came before the flag was set, and without a signal.
                    tenant.page.needs_no_signal(Page::DAEMON_SLEEPS);
                    continue;
                }
            }
            self.active.rest(id);
        }
    }

    /// Makes a client wait until its device may send again: its ring is not read, nor are its messages, which may be commands
    /// about what is in the ring.
    pub(super) fn pause(&mut self, id: ClientId, due: Instant) {
        if !self.active.wait(id, due) {
            return;
        }
        let Some(client) = self.clients.get_mut(&id) else { return };
        if let Some(tenant) = &mut client.tenant {
            tenant.counters.waits += 1;
        }
        self.watch_messages(id, epoll::EventFlags::empty());
    }

    /// Reads clients again whose device may send again.
    fn resume(&mut self, now: Instant) {
        while let Some(id) = self.active.pop_due(now) {
            self.watch_messages(id, epoll::EventFlags::IN);
        }
    }

    /// Takes all the work that a client had posted when this is called, whatever its device's limit of messages: they count
    /// against it later. The client may refill its ring all the while, so this ends after as many bytes as a ring has.
    ///
    /// # Errors
    /// The ring's content is invalid; the error is the reason in words.
    pub(super) fn take_posted_work_of(&mut self, id: ClientId) -> Result<(), &'static str> {
        let mut taken = 0;
        while taken < Page::RING as usize {
            match self.take_work_of(id, true)? {
                0 => break,
                bytes => taken += bytes,
            }
        }
        Ok(())
    }

    /// Takes work from a client's ring; with `at_once` also what its device may send only later. Returns the number of bytes
    /// of its records.
    ///
    /// # Errors
    /// The ring's content is invalid; the error is the reason in words.
    fn take_work_of(&mut self, id: ClientId, at_once: bool) -> Result<usize, &'static str> {
        let mut record = core::mem::take(&mut self.record);
        let (mut bytes, mut outcome) = (0, Ok(()));
        for _ in 0..MAX_REQUESTS {
            let Some(tenant) = self.clients.get_mut(&id).and_then(|client| client.tenant.as_mut())
            else {
                break;
            };
            if !tenant.work.has_any(&tenant.page) {
                break;
            }
            if tenant.messages_per_second.is_some()
                && !at_once
                && let Some(due) = self.devices.waits_until(&tenant.device, self.host.now())
            {
                self.pause(id, due);
                break;
            }
            match tenant.work.pop(&tenant.page, &mut record) {
                Ok(true) => bytes += record.len(),
                Ok(false) => break,
                Err(Corrupt) => {
                    outcome = Err("its ring is corrupt");
                    break;
                }
            }
            outcome = self.post(id, &record);
            if outcome.is_err() {
                break;
            }
        }
        self.record = record;
        outcome.map(|()| bytes)
    }

    /// Posts a work request. A correct client's library has refused every request that the device refuses.
    ///
    /// # Errors
    /// The record is invalid, or the queue is not the client's or refuses it; the error is the reason in words.
    fn post(&mut self, id: ClientId, record: &[u8]) -> Result<(), &'static str> {
        let foreign = "it posted to a queue that is not its own";
        let work = decode(record).ok_or("it posted an invalid work request")?;
        let handle = match work {
            Work::Send(qp, _) | Work::Receive(qp, _) => Handle::QueuePair(qp),
            Work::SharedReceive(srq, _) => Handle::SharedReceiveQueue(srq),
        };
        self.owned(id, handle).ok_or(foreign)?;
        let (now, device) = (self.host.now(), &mut self.host.device);
        let posted = match &work {
            Work::Send(qp, posted) => device.post_send(now, *qp, &posted.request()),
            Work::Receive(qp, awaited) => device.post_receive(*qp, &awaited.request()),
            Work::SharedReceive(srq, awaited) => device.post_srq_receive(*srq, &awaited.request()),
        };
        posted.map_err(|_| "it posted a request that its queue refuses")?;
        if let Work::Send(_, posted) = &work
            && let Some(tenant) = self.clients.get_mut(&id).and_then(|it| it.tenant.as_mut())
        {
            tenant.count_posted(posted);
            if let Some(per_second) = tenant.messages_per_second {
                self.devices.charge(&tenant.device, now, per_second);
            }
        }
        Ok(())
    }

    /// Ends clients whose registered memory no longer exists, before a peer gets an acknowledgement or the data: as an
    /// IOMMU's fault ends a device's access to memory.
    pub(super) fn end_faulty(&mut self) {
        for (owner, stall) in blocking::take_stalls() {
            let Some((id, user)) = self.tenant_of(owner) else { continue };
            let is_given_up = stall.is_given_up();
            self.note_stall(user, stall);
            if is_given_up {
                self.end_client(id, Some("memory that it registered does not respond"));
            }
        }
        for Fault(owner) in self.host.take_faults() {
            if let Some((id, _)) = self.tenant_of(owner) {
                self.end_client(
                    id,
                    Some("memory that it registered does not exist: it unmapped it, or ended"),
                );
            }
        }
    }

    /// Returns the client that owns this memory, and its user.
    fn tenant_of(&self, owner: Owner) -> Option<(ClientId, u32)> {
        let is_its = |tenant: &Tenant| tenant.owner() == owner;
        let found =
            self.clients.iter().find(|(_, client)| client.tenant.as_ref().is_some_and(is_its));
        found.map(|(&id, client)| (id, client.user))
    }

    /// Records that a user's client has stalled the device. Ends all of the user's processes if the total is too long.
    pub(super) fn note_stall(&mut self, user: u32, stall: Stall) {
        if stall.checks == 0 {
            return;
        }
        let now = self.host.now();
        self.stalls.note(now, user, stall, self.quotas.exempt(user));
        if !self.stalls.exclude(now, user) {
            return;
        }
        let is_its = |client: &Client| client.user == user && client.tenant.is_some();
        let clients = self.clients.iter().filter(|(_, client)| is_its(client));
        for id in clients.map(|(&id, _)| id).collect::<Vec<_>>() {
            self.remove_client(id, Some("memory of its user's processes stalls the device"));
        }
    }

    /// Delivers completions and events to clients. Returns `true` if it delivered anything.
    pub(super) fn deliver_all(&mut self) -> bool {
        while let Some(cq) = self.host.device.poll_ready() {
            let context = self.host.device.context_of(Handle::CompletionQueue(cq));
            let id = context.and_then(|context| self.contexts.get(&context)).copied();
            if let Some(tenant) = id.and_then(|id| self.clients.get_mut(&id)?.tenant.as_mut()) {
                tenant.mark_ready(cq);
                self.undelivered.extend(id);
            }
        }
        while let Some(event) = self.host.next_event() {
            let context = about(event).and_then(|handle| self.host.device.context_of(handle));
            let id = context.and_then(|context| self.contexts.get(&context)).copied();
            if let Some(client) = id.and_then(|id| self.clients.get_mut(&id))
                && let Some(tenant) = &mut client.tenant
            {
                let queued = tenant.on_event(event);
                if let Some(cause) = failure_by(event) {
                    self.events.add(EventKind::QueuePairFailed, cause, client.subject_on_device());
                }
                self.undelivered.extend(id);
                if let (Err(Corrupt), Some(id)) = (queued, id) {
                    self.end_client(id, Some("it does not read its events"));
                }
            }
        }
        self.deliver()
    }

    /// Sets the flag of clients whose ring had no room, so that they wake the daemon when there is some, and tries
    /// again. Returns `true` if it delivered anything.
    pub(super) fn retry_delivery(&mut self) -> bool {
        for id in &self.undelivered {
            if let Some(tenant) = self.clients.get(id).and_then(|client| client.tenant.as_ref()) {
                tenant.page.ask_for_signal(Page::DAEMON_STALLS);
            }
        }
        self.deliver()
    }

    fn deliver(&mut self) -> bool {
        let mut delivered = false;
        for id in core::mem::take(&mut self.undelivered) {
            let Some(client) = self.clients.get_mut(&id) else { continue };
            let Some(tenant) = &mut client.tenant else { continue };
            let mut failures = Vec::new();
            let sent = tenant.deliver(&mut self.host.device, &mut self.record, &mut failures);
            let has_more = tenant.has_undelivered();
            for cause in failures {
                self.events.add(EventKind::QueuePairFailed, cause, client.subject_on_device());
            }
            match sent {
                Ok(any) => delivered |= any,
                Err(Corrupt) => {
                    self.end_client(id, Some("its ring is corrupt"));
                    continue;
                }
            }
            if has_more {
                self.undelivered.insert(id);
            }
        }
        delivered
    }
}

/// Returns the object that an event is about.
fn about(event: Event) -> Option<Handle> {
    Some(match event {
        Event::Completion { cq } | Event::CqError { cq } => Handle::CompletionQueue(cq),
        Event::QpFatal { qp }
        | Event::QpRequestError { qp }
        | Event::QpAccessError { qp }
        | Event::CommunicationEstablished { qp }
        | Event::SendQueueDrained { qp }
        | Event::LastWqeReached { qp } => Handle::QueuePair(qp),
        Event::SrqLimitReached { srq } => Handle::SharedReceiveQueue(srq),
        _ => return None,
    })
}
