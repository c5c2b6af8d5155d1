//! Datagrams (UD). One connection to each host carries those of all queue pairs: a datagram has no order
//! to keep and no connection of its own. What cannot be taken in is dropped and nobody is told.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::net::SocketAddr;

use weft_transport::{ConnectionId, Message, Placement};
use weft_units::Instant;
use weft_wire::{RdmaHeader, RdmaOperation, U24};

use super::Device;
use super::requester::{check_memory, scatter, write_parts};
use crate::completion::{Completion, Extra, Source, Status, WorkKind};
use crate::memory::{Accessor, Memory, Right};
use crate::queue_pair::{Inbox, Incoming, Intake, Refusal, State, Token, Wqe};
use crate::{Event, Operation, QueuePairNumber, Service};

/// What a connection for datagrams says it is for; others name a queue pair, in 24 bits.
pub(super) const SERVICE: u32 = 1 << 31;

/// Bytes of a receive request before the datagram, where verbs have its global route header (IBTA volume 1,
/// chapter 10).
pub(super) const ROUTE_HEADER: u32 = 40;

/// With this bit, the sender's own key is sent (IBTA volume 1, chapter 10).
const PRIVILEGED: u32 = 1 << 31;

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
    outbound: BTreeMap<SocketAddr, Outbound>,
    hosts: BTreeMap<ConnectionId, SocketAddr>,
    inbound: BTreeMap<ConnectionId, Inbox>,
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
        let opcode = wqe.operation.on_the_wire(Service::UnreliableDatagram);
        let message = Message {
            token: Token::Request { qp, round: 0, number }.pack(),
            opcode: opcode.expect("checked when it was posted") as u8,
            length: u32::try_from(wqe.length).expect("checked just now"),
        };
        let Some(host) = self.datagrams.outbound.get_mut(&datagram.address) else {
            return self.reach(now, qp, datagram.address);
        };
        if !host.ready || self.endpoint.submit(now, host.connection, message).is_err() {
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
    fn reach(&mut self, now: Instant, qp: QueuePairNumber, address: SocketAddr) -> bool {
        let Ok(connection) = self.endpoint.connect(now, address, SERVICE) else {
            self.lose_upcoming(qp, address);
            return true;
        };
        let (under_way, waiting) = (VecDeque::new(), alloc::vec![qp]);
        let host = Outbound { connection, ready: false, under_way, waiting };
        self.datagrams.outbound.insert(address, host);
        self.datagrams.hosts.insert(connection, address);
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
        let Some(address) = self.datagrams.hosts.get(&connection) else { return };
        let Some(host) = self.datagrams.outbound.get_mut(address) else { return };
        host.ready = true;
        for qp in core::mem::take(&mut host.waiting) {
            self.pump(now, qp);
        }
    }

    /// A host has the first datagram under way to it; whether it was one.
    pub(super) fn on_datagram_sent(&mut self, now: Instant, connection: ConnectionId) -> bool {
        let Some(address) = self.datagrams.hosts.get(&connection) else { return false };
        let Some(host) = self.datagrams.outbound.get_mut(address) else { return false };
        let sent = host.under_way.pop_front();
        let waiting = core::mem::take(&mut host.waiting);
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
        self.datagrams.inbound.remove(&connection);
        let Some(address) = self.datagrams.hosts.remove(&connection) else { return };
        let Some(host) = self.datagrams.outbound.remove(&address) else { return };
        for &(qp, number) in &host.under_way {
            self.finish_datagram(qp, number);
        }
        for &qp in &host.waiting {
            self.lose_upcoming(qp, address);
        }
        for qp in host.under_way.into_iter().map(|(qp, _)| qp).chain(host.waiting) {
            self.pump(now, qp);
        }
    }

    /// Ends the connections that carry nothing.
    pub(super) fn end_datagrams(&mut self, now: Instant) {
        let carries = |host: &&Outbound| !host.under_way.is_empty() || !host.waiting.is_empty();
        let hosts = self.datagrams.outbound.values().filter(|host| !carries(host));
        for connection in hosts.map(|host| host.connection).collect::<Vec<_>>() {
            self.endpoint.close(now, connection);
        }
    }

    /// A host wants to send datagrams.
    pub(super) fn accept_datagrams(&mut self, connection: ConnectionId) {
        self.datagrams.inbound.insert(connection, Inbox::default());
    }

    pub(super) fn carries_datagrams(&self, connection: ConnectionId) -> bool {
        self.datagrams.inbound.contains_key(&connection)
    }

    /// Takes in a packet of a datagram.
    pub(super) fn take_datagram(
        &mut self,
        now: Instant,
        placement: &Placement,
        header: &RdmaHeader,
        memory: &mut impl Memory,
    ) {
        let connection = placement.connection;
        if self.begin_datagram_in(placement, header).is_none()
            || !self.place_datagram(placement, header, memory)
        {
            return self.endpoint.close(now, connection);
        }
        let from = self.endpoint.peer(connection).map(|peer| peer.address);
        while let Some(inbox) = self.datagrams.inbound.get_mut(&connection)
            && let Some(incoming) = inbox.pop_whole()
        {
            self.receive_datagram(now, incoming, from, memory);
        }
        let _ = self.endpoint.placed(now, connection, placement.psn);
    }

    /// Enters a datagram unless it is known; `None` for nonsense.
    fn begin_datagram_in(&mut self, placement: &Placement, header: &RdmaHeader) -> Option<()> {
        let inbox = self.datagrams.inbound.get_mut(&placement.connection)?;
        if inbox.holds(placement.message).ok()? {
            return Some(());
        }
        let operation = RdmaOperation::from_number(placement.opcode)?;
        if !super::requester::is_request(operation, Service::UnreliableDatagram) {
            return None;
        }
        let receive = self.admit_datagram(header, placement.length);
        let intake = match receive {
            Some(_) => Intake::Place,
            None => Intake::Refuse(Refusal::NotReady),
        };
        let incoming = Incoming::new(*header, operation, placement.length, intake, receive);
        self.datagrams.inbound.get_mut(&placement.connection)?.begin(placement.message, incoming);
        Some(())
    }

    /// The receive request of a datagram that may be taken in.
    fn admit_datagram(
        &mut self,
        header: &RdmaHeader,
        length: u32,
    ) -> Option<crate::receive_queue::Receive> {
        let qp = QueuePairNumber(header.destination_qp.get());
        let pair = self.qps.get(qp.0)?;
        let meant = pair.request.service == Service::UnreliableDatagram
            && pair.receives()
            && pair.attributes.qkey == Some(header.key)
            && length <= self.limits.datagram_bytes;
        if !meant {
            return None;
        }
        let next = match pair.request.srq {
            Some(srq) => self.srqs.get(srq.0)?.queue.first(),
            None => pair.receive.first(),
        };
        next.filter(|next| next.room() >= u64::from(length + ROUTE_HEADER))?;
        self.take_receive(qp)
    }

    /// Places a packet of a datagram, or drops it; false for nonsense.
    fn place_datagram(
        &mut self,
        placement: &Placement,
        header: &RdmaHeader,
        memory: &mut impl Memory,
    ) -> bool {
        let Placement { connection, message, offset, len, .. } = *placement;
        let Some(inbox) = self.datagrams.inbound.get_mut(&connection) else { return false };
        let incoming = inbox.message(message);
        if incoming.header != *header || incoming.length != placement.length {
            // The sender had to give up what it had begun.
            incoming.intake = Intake::Refuse(Refusal::InvalidRequest);
        }
        let qp = QueuePairNumber(incoming.header.destination_qp.get());
        if let (Some(receive), Some(pair)) = (&incoming.receive, self.qps.get(qp.0))
            && incoming.intake == Intake::Place
        {
            let who = Accessor { domain: pair.request.domain, qp: qp.0 };
            let (piece, right) = ((ROUTE_HEADER + offset, len.into()), Right::LocalWrite);
            match scatter(&self.emtt, who, &receive.sges, piece, right, &mut self.places) {
                Ok(()) => {
                    let mut from = 0;
                    for &place in &self.places {
                        memory.place(place, from);
                        from += u16::try_from(place.len).expect("a part of a packet");
                    }
                }
                Err(_) => incoming.intake = Intake::Refuse(Refusal::LocalProtection),
            }
        }
        incoming.note(len)
    }

    /// A datagram is whole.
    fn receive_datagram(
        &mut self,
        now: Instant,
        incoming: Incoming,
        from: Option<SocketAddr>,
        memory: &mut impl Memory,
    ) {
        let Incoming { header, operation, length, intake, .. } = incoming;
        let qp = QueuePairNumber(header.destination_qp.get());
        let Some(receive) = incoming.receive else { return };
        let Some(pair) = self.qps.get(qp.0).filter(|pair| pair.receives()) else { return };
        let cq = pair.request.receive_cq;
        let who = Accessor { domain: pair.request.domain, qp: qp.0 };
        if let Some(from) = from.filter(|_| intake == Intake::Place) {
            let (piece, right) = ((0, ROUTE_HEADER), Right::LocalWrite);
            if scatter(&self.emtt, who, &receive.sges, piece, right, &mut self.places).is_ok() {
                write_parts(&self.places, &memory.route_header(from, length), memory);
            }
        }
        let sender = QueuePairNumber(sender_of(&header));
        let with_word = operation == RdmaOperation::UdSendWithImmediate;
        let status = match intake {
            Intake::Place => Status::Success,
            Intake::Refuse(_) => Status::LocalProtection,
        };
        let completion = Completion {
            wr_id: receive.wr_id,
            status,
            kind: WorkKind::Receive,
            length: length + ROUTE_HEADER,
            extra: with_word.then_some(Extra::Immediate(header.immediate)),
            qp,
            source: from.map(|address| Source { qp: sender, address }),
            solicited: header.solicited,
        };
        self.complete(cq, completion);
        if status == Status::Success {
            self.fail_if_overrun(now, qp);
        } else {
            self.events.push_back(Event::QpRequestError { qp });
            self.fail_qp(now, qp);
        }
    }
}

/// What the packets of a datagram say.
pub(super) fn datagram_header(wqe: &Wqe, qp: QueuePairNumber, own_qkey: u32) -> RdmaHeader {
    let Some(datagram) = wqe.datagram else { return RdmaHeader::default() };
    let privileged = datagram.qkey & PRIVILEGED != 0;
    let immediate = match wqe.operation {
        Operation::SendWithImmediate(word) => word,
        _ => 0,
    };
    RdmaHeader {
        solicited: wqe.solicited,
        destination_qp: U24::truncate(datagram.qp.0),
        address: qp.0.into(),
        key: if privileged { own_qkey } else { datagram.qkey },
        immediate,
        ..RdmaHeader::default()
    }
}

/// The queue pair that sent a datagram.
fn sender_of(header: &RdmaHeader) -> u32 {
    let bytes = header.address.to_be_bytes();
    u32::from_be_bytes([0, bytes[5], bytes[6], bytes[7]])
}
