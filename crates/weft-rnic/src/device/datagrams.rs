//! Datagrams (UD). One connection to each host carries those of all queue pairs: a datagram has no order
//! to keep and no connection of its own. What cannot be taken in is dropped and nobody is told.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::net::SocketAddr;

use weft_transport::{ConnectionId, Message, Placement};
use weft_units::Instant;
use weft_wire::{RdmaHeader, RdmaOperation, U24};

use super::Device;
use super::begin::check_memory;
use super::requester::{is_request, scatter, write_parts};
use crate::completion::{Completion, Extra, Source, Status, WorkKind};
use crate::memory::{Accessor, Held, Memory, Right};
use crate::queue_pair::{HeldPart, Inbox, Incoming, Intake, Refusal, State, Token, Wqe};
use crate::receive_queue::Receive;
use crate::{Event, Operation, PayloadLost, QueuePairNumber, Service};

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
            tag: 0,
            length: u32::try_from(wqe.length).expect("checked just now"),
        };
        let Some(host) = self.datagrams.outbound.get_mut(&datagram.address) else {
            return self.reach(now, qp, datagram.address);
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
    fn reach(&mut self, now: Instant, qp: QueuePairNumber, address: SocketAddr) -> bool {
        let Ok(connection) = self.carriers.connect(now, address, SERVICE) else {
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
        if self.datagrams.inbound.remove(&connection).is_some_and(|inbox| inbox.holds_payload()) {
            self.events.push_back(Event::ReleaseHeld { connection });
        }
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
            self.carriers.close(now, connection);
        }
    }

    /// A host wants to send datagrams.
    pub(super) fn accept_datagrams(&mut self, connection: ConnectionId) {
        self.datagrams.inbound.insert(connection, Inbox::default());
    }

    pub(super) fn carries_datagrams(&self, connection: ConnectionId) -> bool {
        self.datagrams.inbound.contains_key(&connection)
    }

    /// Takes in a packet of a datagram. Payload waits until the whole datagram is there: only then is it known
    /// which receive request it takes, for others may come from other hosts meanwhile.
    pub(super) fn take_datagram(
        &mut self,
        now: Instant,
        placement: &Placement,
        header: &RdmaHeader,
        memory: &mut impl Memory,
    ) {
        let connection = placement.connection;
        let Some(is_turn) = self.enter_datagram(placement, header, memory) else {
            return self.carriers.close(now, connection);
        };
        let from = self.carriers.peer(connection).map(|peer| peer.address);
        let mut at_hand = Some((placement.offset, placement.len));
        while is_turn
            && let Some(inbox) = self.datagrams.inbound.get_mut(&connection)
            && let Some(incoming) = inbox.pop_whole()
        {
            let at_hand = at_hand.take();
            if self.receive_datagram(now, incoming, at_hand, from, memory).is_err() {
                return self.carriers.close(now, connection);
            }
        }
        let _ = self.carriers.placed(now, connection, placement.psn);
    }

    /// Enters a packet; whether its datagram's turn has come with it. `None` for nonsense, and where the payload
    /// is lost.
    fn enter_datagram(
        &mut self,
        placement: &Placement,
        header: &RdmaHeader,
        memory: &mut impl Memory,
    ) -> Option<bool> {
        let Placement { connection, psn, opcode, message, offset, len, length, .. } = *placement;
        let longest = self.limits.datagram_bytes;
        let inbox = self.datagrams.inbound.get_mut(&connection)?;
        if !inbox.holds(message).ok()? {
            let operation = RdmaOperation::from_number(opcode)?;
            if !is_request(operation, Service::UnreliableDatagram) {
                return None;
            }
            inbox.begin(message, Incoming::new(*header, operation, length, Intake::Place, None));
        }
        let is_first = inbox.ahead_of(message) == 0;
        let incoming = inbox.message(message);
        if incoming.header != *header || incoming.length != length || length > longest {
            // Too long, or the sender had to give up what it had begun.
            incoming.intake = Intake::Refuse(Refusal::InvalidRequest);
        }
        let completes = incoming.completes(len);
        if !incoming.note(len) {
            return None;
        }
        let is_turn = is_first && completes;
        if !is_turn && incoming.intake == Intake::Place {
            let packet = Held { connection, psn };
            memory.hold(packet).ok()?;
            incoming.held.push(HeldPart { packet, offset, len });
        }
        Some(is_turn)
    }

    /// The receive request of a datagram that may be taken in.
    fn admit_datagram(&mut self, header: &RdmaHeader, length: u32) -> Option<Receive> {
        let qp = QueuePairNumber(header.destination_qp.get());
        let pair = self.qps.get(qp.0)?;
        let meant = pair.request.service == Service::UnreliableDatagram
            && pair.receives()
            && pair.attributes.qkey == Some(header.key);
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

    /// A datagram is whole, perhaps with the packet at hand. What nobody is to take is dropped.
    fn receive_datagram(
        &mut self,
        now: Instant,
        incoming: Incoming,
        at_hand: Option<(u32, u16)>,
        from: Option<SocketAddr>,
        memory: &mut impl Memory,
    ) -> Result<(), PayloadLost> {
        let Incoming { header, operation, length, held, .. } = incoming;
        let receive = match incoming.intake {
            Intake::Place => self.admit_datagram(&header, length),
            Intake::Refuse(_) => None,
        };
        let Some(receive) = receive else {
            held.iter().for_each(|part| memory.release(part.packet));
            return Ok(());
        };
        let qp = QueuePairNumber(header.destination_qp.get());
        let placed = self.place_datagram(qp, &receive, &held, at_hand, memory);
        held.iter().for_each(|part| memory.release(part.packet));
        let Ok(placed) = placed else {
            self.put_receive_back(qp, receive);
            return Err(PayloadLost);
        };
        if let Some(from) = from.filter(|_| placed)
            && self.locate_datagram(qp, &receive, (0, ROUTE_HEADER))
        {
            write_parts(&self.places, &memory.route_header(from, length), memory);
        }
        let with_word = operation == RdmaOperation::UdSendWithImmediate;
        let sender = QueuePairNumber(sender_of(&header));
        let cq = self.qps.get(qp.0).expect("it took a receive request").request.receive_cq;
        let completion = Completion {
            wr_id: receive.wr_id,
            status: if placed { Status::Success } else { Status::LocalProtection },
            kind: WorkKind::Receive,
            length: length + ROUTE_HEADER,
            extra: with_word.then_some(Extra::Immediate(header.immediate)),
            qp,
            source: from.map(|address| Source { qp: sender, address }),
            solicited: header.solicited,
        };
        self.complete(cq, completion);
        if placed {
            self.fail_if_overrun(now, qp);
        } else {
            self.events.push_back(Event::QpRequestError { qp });
            self.fail_qp(now, qp);
        }
        Ok(())
    }

    /// Places what was held and the packet at hand; false where the receive request's memory does not allow it.
    fn place_datagram(
        &mut self,
        qp: QueuePairNumber,
        receive: &Receive,
        held: &[HeldPart],
        at_hand: Option<(u32, u16)>,
        memory: &mut impl Memory,
    ) -> Result<bool, PayloadLost> {
        let held = held.iter().map(|part| (part.offset, part.len, Some(part.packet)));
        let at_hand = at_hand.map(|(offset, len)| (offset, len, None));
        for (offset, len, packet) in held.chain(at_hand) {
            if !self.locate_datagram(qp, receive, (ROUTE_HEADER + offset, len.into())) {
                return Ok(false);
            }
            let mut from = 0;
            for &place in &self.places {
                match packet {
                    Some(packet) => memory.place_held(packet, place, from),
                    None => memory.place(place, from)?,
                }
                from += u16::try_from(place.len).expect("a part of a packet");
            }
        }
        Ok(true)
    }

    /// Finds where a piece of a receive request is: into `self.places`; false where that may not be written.
    fn locate_datagram(
        &mut self,
        qp: QueuePairNumber,
        receive: &Receive,
        piece: (u32, u32),
    ) -> bool {
        let Some(pair) = self.qps.get(qp.0) else { return false };
        let who = Accessor { domain: pair.request.domain, qp: qp.0 };
        scatter(&self.emtt, who, &receive.sges, piece, Right::LocalWrite, &mut self.places).is_ok()
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
