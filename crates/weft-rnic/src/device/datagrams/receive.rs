//! Reception of datagrams: a datagram is received completely or not at all. Any host may send datagrams, so one that no
//! queue pair accepts is dropped with its first packet, and held packets count toward the peer's limit,
//! [`Limits::held_bytes_per_peer`](crate::Limits::held_bytes_per_peer).

use core::net::{IpAddr, SocketAddr};

use weft_transport::{ConnectionId, Placement};
use weft_units::Instant;
use weft_wire::{MissingOperands, RdmaHeader, RdmaOpcode, RdmaOperation};

use crate::completion::{Completion, Extra, Source, Status, WorkKind};
use crate::device::Device;
use crate::device::active::ActiveQp;
use crate::device::holding::NotHeld;
use crate::device::requester::{is_request, scatter, write_parts};
use crate::memory::{Memory, Right};
use crate::queue_pair::{HeldPart, Inbox, Incoming, Intake, Refusal};
use crate::receive_queue::Receive;
use crate::{Event, PayloadLost, QueuePairNumber, Service};

/// Bytes of the receive buffer before the datagram, which hold its global route header (IBTA volume 1, chapter 10).
const ROUTE_HEADER: u32 = 40;

/// A connection on which a host sends datagrams.
#[derive(Debug)]
pub(super) struct Inbound {
    peer: IpAddr,
    inbox: Inbox,
}

impl Inbound {
    /// Returns the bytes of the entries of its datagrams.
    pub(super) fn entry_bytes(&self) -> u64 {
        entries(self.inbox.entries())
    }
}

/// The result of adding a packet to a datagram that is not the next or not complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entered {
    /// The packet's datagram is complete, and the next.
    Next,
    /// Other packets must arrive first.
    Waits,
    /// The limit of held bytes is reached: the packet is declined, and the peer retransmits it.
    Declined,
    /// The peer violates the protocol, or the payload is lost.
    Broken,
}

impl Device {
    /// Accepts a connection for datagrams, or closes it if no queue pair receives datagrams.
    pub(in crate::device) fn accept_datagrams(&mut self, now: Instant, connection: ConnectionId) {
        let peer = self.peer_ip(connection).filter(|_| self.datagrams.queue_pairs > 0);
        let Some(peer) = peer else { return self.carriers.close(now, connection) };
        let inbound = Inbound { peer, inbox: Inbox::default() };
        self.datagrams.inbound.insert(connection, inbound);
    }

    /// Returns `true` if a host sends datagrams on this connection.
    pub(in crate::device) fn carries_datagrams(&self, connection: ConnectionId) -> bool {
        self.datagrams.inbound.contains_key(&connection)
    }

    /// Handles a packet of a datagram. Payload is held until the datagram is complete: only then its receive request is known,
    /// since datagrams of other hosts may arrive earlier.
    pub(in crate::device) fn handle_datagram_packet(
        &mut self,
        now: Instant,
        placement: &Placement,
        header: &RdmaHeader,
        memory: &mut impl Memory,
    ) {
        let Placement { connection, psn, opcode, message, len, length, .. } = *placement;
        let Some(inbound) = self.datagrams.inbound.get_mut(&connection) else { return };
        let is_next = u32::from(len) == length && inbound.inbox.is_next(message);
        let entered = if is_next {
            let before = inbound.inbox.entries();
            inbound.inbox.pass_first();
            let removed = before - inbound.inbox.entries();
            self.holding.free(inbound.peer, entries(removed));
            Entered::Next
        } else {
            self.enter_datagram(placement, header, memory)
        };
        let taken = match (entered, request(opcode)) {
            (Entered::Waits, _) => Ok(()),
            (Entered::Declined, _) => return self.carriers.decline(connection, psn),
            (Entered::Broken, _) | (Entered::Next, None) => Err(PayloadLost),
            (Entered::Next, Some(operation)) => {
                let alone = Incoming::new(*header, operation, length);
                self.receive_datagrams(now, placement, is_next.then_some(alone), memory)
            }
        };
        match taken {
            Ok(()) => drop(self.carriers.placed(now, connection, psn)),
            Err(PayloadLost) => self.carriers.close(now, connection),
        }
    }

    /// Receives the datagrams whose turn has come: `first`, or the first in the inbox, with the payload of the packet that is
    /// being handled, and then those behind it.
    fn receive_datagrams(
        &mut self,
        now: Instant,
        placement: &Placement,
        mut first: Option<Incoming>,
        memory: &mut impl Memory,
    ) -> Result<(), PayloadLost> {
        let Placement { connection, offset, len, .. } = *placement;
        let from = self.carriers.peer(connection).map(|peer| peer.address);
        let mut current = Some((offset, len));
        while let Some(incoming) = first.take().or_else(|| self.next_datagram(connection)) {
            self.receive_datagram(now, incoming, current.take(), from, memory)?;
        }
        Ok(())
    }

    /// Takes the next datagram of the inbox, if it is complete.
    fn next_datagram(&mut self, connection: ConnectionId) -> Option<Incoming> {
        let Inbound { peer, inbox } = self.datagrams.inbound.get_mut(&connection)?;
        let incoming = inbox.pop_whole()?;
        self.holding.free(*peer, entries(1));
        Some(incoming)
    }

    /// Adds a packet to its datagram. A datagram that no queue pair accepts is dropped with its first packet, and none of its
    /// payload is held.
    fn enter_datagram(
        &mut self,
        placement: &Placement,
        header: &RdmaHeader,
        memory: &mut impl Memory,
    ) -> Entered {
        let Placement { connection, message, len, length, .. } = *placement;
        match self.begin_incoming(placement, header) {
            Entered::Waits => {}
            other => return other,
        }
        let Some(Inbound { inbox, .. }) = self.datagrams.inbound.get_mut(&connection) else {
            return Entered::Broken;
        };
        let is_first = inbox.ahead_of(message) == 0;
        let incoming = inbox.message(message);
        let completes = incoming.completes(len);
        if !incoming.note(len) {
            return Entered::Broken;
        }
        if incoming.header != *header || incoming.length != length {
            // The sender abandoned the datagram after its first packets.
            self.drop_datagram(connection, message, memory);
        } else if incoming.intake == Intake::Place && !(is_first && completes) {
            match self.holding.hold(&self.carriers, placement, memory) {
                Ok(part) => self.push_held(connection, message, part),
                Err(NotHeld::NoRoom) => self.drop_datagram(connection, message, memory),
                Err(NotHeld::Lost) => return Entered::Broken,
            }
        }
        if is_first && completes { Entered::Next } else { Entered::Waits }
    }

    /// Adds the datagram of a packet to the inbox, unless it is there.
    fn begin_incoming(&mut self, placement: &Placement, header: &RdmaHeader) -> Entered {
        let Placement { connection, opcode, message, length, .. } = *placement;
        let inbound = self.datagrams.inbound.get(&connection);
        match inbound.map(|inbound| inbound.inbox.holds(message)) {
            Some(Ok(true)) => return Entered::Waits,
            Some(Ok(false)) => {}
            Some(Err(_)) | None => return Entered::Broken,
        }
        let Some(operation) = request(opcode) else { return Entered::Broken };
        let active = self.active(QueuePairNumber(header.destination_qp.get()));
        let accepted = active.is_some_and(|active| active.find_receive(header, length).is_some());
        let intake = if accepted { Intake::Place } else { Intake::Refuse(Refusal::NotReady) };
        let Some(Inbound { peer, inbox }) = self.datagrams.inbound.get_mut(&connection) else {
            return Entered::Broken;
        };
        let bytes = entries(inbox.entries_to(message));
        if inbox.ahead_of(message) == 0 {
            // The first datagram is always accepted, since the connection would stall without it.
            self.holding.reserve_over_limit(*peer, bytes);
        } else if !self.holding.reserve(*peer, bytes) {
            return Entered::Declined;
        }
        let mut incoming = Incoming::new(*header, operation, length);
        incoming.intake = intake;
        inbox.begin(message, incoming);
        Entered::Waits
    }

    /// Adds a held packet to its datagram.
    fn push_held(&mut self, connection: ConnectionId, message: u32, part: HeldPart) {
        if let Some(Inbound { inbox, .. }) = self.datagrams.inbound.get_mut(&connection) {
            inbox.message(message).held.push(part);
        }
    }

    /// Drops a datagram of which packets may still arrive.
    fn drop_datagram(&mut self, connection: ConnectionId, message: u32, memory: &mut impl Memory) {
        let Some(Inbound { inbox, .. }) = self.datagrams.inbound.get_mut(&connection) else {
            return;
        };
        let incoming = inbox.message(message);
        incoming.intake = Intake::Refuse(Refusal::NotReady);
        for part in core::mem::take(&mut incoming.held) {
            self.holding.release(part, memory);
        }
    }

    /// Receives a complete datagram, of which `current` is the part in the packet that is being handled. A datagram
    /// that no queue pair accepts is dropped.
    ///
    /// # Errors
    /// The payload of that packet is lost.
    fn receive_datagram(
        &mut self,
        now: Instant,
        incoming: Incoming,
        current: Option<PacketPart>,
        from: Option<SocketAddr>,
        memory: &mut impl Memory,
    ) -> Result<(), PayloadLost> {
        let Incoming { header, opcode, length, intake, held, .. } = incoming;
        let fields = decode(opcode, &header).filter(|_| intake == Intake::Place);
        let qp = QueuePairNumber(header.destination_qp.get());
        let mut received = Ok(());
        if let Some(fields) = fields
            && let Some(mut active) = self.active(qp)
            && let Some(receive) = active.admit_datagram(&header, length)
        {
            let datagram = ReceivedDatagram { header, fields, length, from, held: &held, current };
            received = active.receive_datagram(now, &datagram, receive, memory);
        }
        held.into_iter().for_each(|part| self.holding.release(part, memory));
        received
    }

    /// Drops the incomplete datagrams of a connection that has ended.
    pub(super) fn end_inbound(&mut self, connection: ConnectionId) {
        let Some(mut inbound) = self.datagrams.inbound.remove(&connection) else { return };
        self.holding.free(inbound.peer, inbound.entry_bytes());
        let mut held = false;
        for part in inbound.inbox.drain().flat_map(|incoming| incoming.held) {
            self.holding.free_packet(&part);
            held = true;
        }
        if held {
            self.events.push_back(Event::ReleaseHeld { connection });
        }
    }
}

impl ActiveQp<'_> {
    /// Finds the receive request that a datagram would consume now, if its queue pair, Q_Key and length are acceptable.
    fn find_receive(&self, header: &RdmaHeader, length: u32) -> Option<&Receive> {
        let pair = &*self.pair;
        let acceptable = length <= self.limits.datagram_bytes
            && pair.request.service == Service::UnreliableDatagram
            && pair.receives()
            && pair.attributes.qkey == Some(header.key);
        if !acceptable {
            return None;
        }
        let next = match pair.request.srq {
            Some(srq) => self.srqs.get(srq.0)?.queue.first(),
            None => pair.receive.first(),
        };
        next.filter(|next| next.room() >= u64::from(length + ROUTE_HEADER))
    }

    /// Takes the receive request of a datagram, if it is acceptable.
    fn admit_datagram(&mut self, header: &RdmaHeader, length: u32) -> Option<Receive> {
        self.find_receive(header, length)?;
        self.take_receive()
    }

    /// Places a datagram in the memory of a receive request, and completes it.
    fn receive_datagram(
        &mut self,
        now: Instant,
        datagram: &ReceivedDatagram<'_>,
        receive: Receive,
        memory: &mut impl Memory,
    ) -> Result<(), PayloadLost> {
        let ReceivedDatagram { header, fields, length, from, .. } = datagram;
        let (qp, length) = (self.qp, *length);
        let placed = match self.place_datagram(&receive, datagram, memory) {
            Ok(placed) => placed,
            Err(lost) => {
                self.put_receive_back(receive);
                return Err(lost);
            }
        };
        if let Some(from) = from.filter(|_| placed)
            && self.locate_datagram(&receive, (0, ROUTE_HEADER))
        {
            write_parts(self.places, &memory.route_header(from, length), memory);
        }
        let completion = Completion {
            wr_id: receive.wr_id,
            status: if placed { Status::Success } else { Status::LocalProtection },
            kind: WorkKind::Receive,
            length: length + ROUTE_HEADER,
            extra: fields.immediate.map(Extra::Immediate),
            qp,
            source: from.map(|address| Source { qp: fields.source_qp, address }),
            solicited: header.solicited,
        };
        self.completing.complete(self.pair.request.receive_cq, completion);
        if placed {
            self.fail_if_overrun(now);
        } else {
            self.completing.events.push_back(Event::QpRequestError { qp });
            self.fail(now);
        }
        Ok(())
    }

    /// Places the held parts and the part in the packet that is being handled; returns `false` if the receive request's
    /// memory is not accessible.
    fn place_datagram(
        &mut self,
        receive: &Receive,
        datagram: &ReceivedDatagram<'_>,
        memory: &mut impl Memory,
    ) -> Result<bool, PayloadLost> {
        let held = datagram.held.iter().map(|part| (part.offset, part.len, Some(part.packet)));
        let current = datagram.current.map(|(offset, len)| (offset, len, None));
        for (offset, len, packet) in held.chain(current) {
            if !self.locate_datagram(receive, (ROUTE_HEADER + offset, len.into())) {
                return Ok(false);
            }
            let mut from = 0;
            for &place in &*self.places {
                match packet {
                    Some(packet) => memory.place_held(packet, place, from),
                    None => memory.place(place, from)?,
                }
                from += u16::try_from(place.len).expect("a part of a packet");
            }
        }
        Ok(true)
    }

    /// Finds the places of a part of a receive request, and stores them in `self.places`; returns `false` if it is not writable.
    fn locate_datagram(&mut self, receive: &Receive, piece: (u32, u32)) -> bool {
        let accessor = self.accessor();
        scatter(self.emtt, accessor, &receive.sges, piece, Right::LocalWrite, self.places).is_ok()
    }
}

/// Returns the opcode with this number, if datagrams have it.
fn request(opcode: u8) -> Option<RdmaOpcode> {
    RdmaOpcode::from_number(opcode)
        .filter(|&operation| is_request(operation, Service::UnreliableDatagram))
}

/// Returns the bytes of `count` entries of an inbox.
const fn entries(count: usize) -> u64 {
    (count * Inbox::ENTRY_BYTES) as u64
}

/// The offset and length of the part of a message in a packet.
type PacketPart = (u32, u16);

/// A complete datagram.
struct ReceivedDatagram<'a> {
    header: RdmaHeader,
    fields: DatagramHeader,
    length: u32,
    /// The sender's host.
    from: Option<SocketAddr>,
    held: &'a [HeldPart],
    /// The part in the packet that is being handled.
    current: Option<PacketPart>,
}

/// The fields of a datagram's header that its completion reports.
struct DatagramHeader {
    source_qp: QueuePairNumber,
    immediate: Option<u32>,
}

/// Returns the fields of a datagram's header; `None` if the message is no datagram.
fn decode(opcode: RdmaOpcode, header: &RdmaHeader) -> Option<DatagramHeader> {
    match RdmaOperation::decode(opcode, header) {
        Ok(RdmaOperation::Datagram { source_qp, immediate, .. }) => {
            Some(DatagramHeader { source_qp: QueuePairNumber(source_qp.get()), immediate })
        }
        Ok(
            RdmaOperation::Send { .. }
            | RdmaOperation::Write { .. }
            | RdmaOperation::Read { .. }
            | RdmaOperation::Atomic { .. }
            | RdmaOperation::ReadResponse
            | RdmaOperation::AtomicAcknowledge { .. }
            | RdmaOperation::Acknowledge { .. },
        )
        | Err(MissingOperands) => None,
    }
}
