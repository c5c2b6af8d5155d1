//! Datagrams (UD): the connections that carry them, and how they leave. One connection to each host carries those of all
//! queue pairs of a context: a datagram has no order to keep and no connection of its own. What cannot be taken in is dropped and nobody is told.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::net::SocketAddr;

use weft_transport::{ConnectionId, Message};
use weft_units::Instant;
use weft_wire::{RdmaHeader, U24};

use super::Device;
use super::begin::check_memory;
use crate::memory::Accessor;
use crate::queue_pair::{State, Token, Wqe};
use crate::{Context, QueuePairNumber, Service, Status};

mod receive;

use receive::Inbound;

/// The service number of a connection for datagrams; other connections name a queue pair, in 24 bits.
pub(super) const SERVICE: u32 = 1 << 31;

/// With this bit, the sender's own key is sent (IBTA volume 1, chapter 10).
const PRIVILEGED: u32 = 1 << 31;

/// A host, as one context speaks to it: contexts may do so from different addresses, and one's datagrams do not wait for
/// another's.
type Host = (Context, SocketAddr);

/// The connection to a host.
#[derive(Debug)]
struct Outbound {
    connection: ConnectionId,
    ready: bool,
    /// Requests handed to the transport, in order.
    under_way: VecDeque<(QueuePairNumber, u32)>,
    /// Queue pairs whose next request is for there.
    waiting: Vec<QueuePairNumber>,
}

/// Connections that carry datagrams.
#[derive(Debug, Default)]
pub(super) struct Datagrams {
    outbound: BTreeMap<Host, Outbound>,
    hosts: BTreeMap<ConnectionId, Host>,
    inbound: BTreeMap<ConnectionId, Inbound>,
    /// Queue pairs that take datagrams.
    pub(super) queue_pairs: u32,
}

impl Outbound {
    /// Returns `true` if it carries nothing and nothing waits for it.
    fn is_idle(&self) -> bool {
        self.under_way.is_empty() && self.waiting.is_empty()
    }
}

impl Datagrams {
    /// Returns whose the connection is that datagrams leave on.
    pub(super) fn sender(&self, connection: ConnectionId) -> Option<Context> {
        self.hosts.get(&connection).map(|(context, _)| *context)
    }
}

#[cfg(any(test, feature = "swarm"))]
impl Datagrams {
    pub(super) fn entry_bytes(&self) -> u64 {
        self.inbound.values().map(Inbound::entry_bytes).sum()
    }

    #[cfg(test)]
    pub(super) fn has_inbound(&self) -> bool {
        !self.inbound.is_empty()
    }
}

impl Device {
    /// Begins every datagram that may begin.
    pub(super) fn pump_datagrams(&mut self, now: Instant, qp: QueuePairNumber) {
        while let Some(pair) = self.qps.get_mut(qp.0)
            && pair.state == State::ReadyToSend
            && !pair.requester.broken
            && self.begin_datagram(now, qp)
        {}
    }

    /// Begins the next datagram; false if it has to wait.
    fn begin_datagram(&mut self, now: Instant, qp: QueuePairNumber) -> bool {
        let most = self.limits.datagram_bytes;
        let Some(pair) = self.qps.get_mut(qp.0) else { return false };
        let who = Accessor { domain: pair.request.domain, qp: qp.0 };
        let Some((number, wqe)) = pair.send.upcoming() else { return false };
        let Some(datagram) = wqe.datagram.filter(|_| wqe.outcome.is_none()) else {
            pair.send.advance();
            return true;
        };
        if let Some(status) = check_memory(&self.emtt, who, wqe, most) {
            wqe.outcome = Some(status);
            pair.send.advance();
            pair.requester.broken = true;
            return false;
        }
        let opcode = wqe.operation.opcode(Service::UnreliableDatagram);
        let message = Message {
            token: Token::Request { qp, round: 0, number }.pack(),
            opcode: opcode.expect("checked when it was posted") as u8,
            tag: 0,
            length: u32::try_from(wqe.length).expect("checked just now"),
        };
        let to = (pair.context, datagram.address);
        let Some(host) = self.datagrams.outbound.get_mut(&to) else {
            return self.reach(now, qp, to);
        };
        if !host.ready || self.carriers.submit(now, host.connection, message).is_err() {
            if !host.waiting.contains(&qp) {
                host.waiting.push(qp);
            }
            return false;
        }
        host.under_way.push_back((qp, number));
        pair.send.advance();
        true
    }

    /// Asks a host for a connection. Whether the queue pair can go on meanwhile.
    fn reach(&mut self, now: Instant, qp: QueuePairNumber, to: Host) -> bool {
        let Ok(connection) = self.carriers.connect(now, to.1, SERVICE) else {
            self.lose_upcoming(qp, to.1);
            return true;
        };
        let (under_way, waiting) = (VecDeque::new(), alloc::vec![qp]);
        let host = Outbound { connection, ready: false, under_way, waiting };
        self.datagrams.outbound.insert(to, host);
        self.datagrams.hosts.insert(connection, to);
        false
    }

    /// The next datagram is lost, if it is for there: nobody can be reached.
    fn lose_upcoming(&mut self, qp: QueuePairNumber, address: SocketAddr) {
        let Some(pair) = self.qps.get_mut(qp.0) else { return };
        if let Some((_, wqe)) = pair.send.upcoming()
            && wqe.datagram.is_some_and(|datagram| datagram.address == address)
        {
            wqe.outcome = Some(Status::Success);
            pair.send.advance();
        }
    }

    /// A connection is ready: those that wait for it go on.
    pub(super) fn on_connected(&mut self, now: Instant, connection: ConnectionId) {
        let Some(to) = self.datagrams.hosts.get(&connection) else { return };
        let Some(host) = self.datagrams.outbound.get_mut(to) else { return };
        host.ready = true;
        for qp in core::mem::take(&mut host.waiting) {
            self.pump(now, qp);
        }
    }

    /// A host has the first datagram under way to it; whether it was one.
    pub(super) fn on_datagram_sent(&mut self, now: Instant, connection: ConnectionId) -> bool {
        let Some(to) = self.datagrams.hosts.get(&connection) else { return false };
        let Some(host) = self.datagrams.outbound.get_mut(to) else { return false };
        let sent = host.under_way.pop_front();
        let waiting = core::mem::take(&mut host.waiting);
        if host.is_idle() && waiting.is_empty() && self.contexts.get(to.0.0).is_none() {
            self.carriers.close(now, connection);
        }
        if let Some((qp, number)) = sent {
            self.finish_datagram(qp, number);
        }
        for qp in sent.map(|(qp, _)| qp).into_iter().chain(waiting) {
            self.pump(now, qp);
        }
        true
    }

    fn finish_datagram(&mut self, qp: QueuePairNumber, number: u32) {
        if let Some(pair) = self.qps.get_mut(qp.0) {
            pair.send.finish_number(number, Status::Success);
        }
    }

    /// A connection that carried datagrams is no more: those under way are lost, as datagrams are.
    pub(super) fn on_datagrams_closed(&mut self, now: Instant, connection: ConnectionId) {
        self.end_inbound(connection);
        let Some(to) = self.datagrams.hosts.remove(&connection) else { return };
        let Some(host) = self.datagrams.outbound.remove(&to) else { return };
        for &(qp, number) in &host.under_way {
            self.finish_datagram(qp, number);
        }
        for &qp in &host.waiting {
            self.lose_upcoming(qp, to.1);
        }
        for qp in host.under_way.into_iter().map(|(qp, _)| qp).chain(host.waiting) {
            self.pump(now, qp);
        }
    }

    /// Ends the connections that carry nothing, of a context or of all.
    pub(super) fn end_datagrams(&mut self, now: Instant, of: Option<Context>) {
        let hosts = self.datagrams.outbound.iter();
        let idle = hosts
            .filter(|((context, _), host)| host.is_idle() && of.is_none_or(|of| of == *context));
        for connection in idle.map(|(_, host)| host.connection).collect::<Vec<_>>() {
            self.carriers.close(now, connection);
        }
    }
}

/// Returns the header of a datagram's packets.
pub(super) fn datagram_header(wqe: &Wqe, qp: QueuePairNumber, own_qkey: u32) -> RdmaHeader {
    let Some(datagram) = wqe.datagram else { return RdmaHeader::default() };
    let privileged = datagram.qkey & PRIVILEGED != 0;
    let qkey = if privileged { own_qkey } else { datagram.qkey };
    let operation = wqe.operation.datagram(U24::truncate(qp.0), qkey);
    RdmaHeader {
        solicited: wqe.solicited,
        destination_qp: U24::truncate(datagram.qp.0),
        ..operation.expect("checked when it was posted").header()
    }
}
