//! Connections over links that lose, duplicate and reorder nothing, such as memory shared by two processes of one host.
//! They exchange the same packets as an [`Endpoint`](crate::Endpoint)'s connections and need few of its functions:
//! there is one path, no congestion, and no retransmission. The owner knows the peer of a link, so no address is
//! proved.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::net::SocketAddr;

use weft_units::{Duration, Instant};
use weft_wire::{AckHeader, Packet, SetupKind, SetupParameters};

use crate::{
    CloseReason, ConnectError, ConnectionId, Departure, DropReason, Event, Message, Payload, Peer,
    PlacedError, SubmitError, Verdict,
};

mod handshake;
mod stream;
mod streams;
#[cfg(test)]
mod tests;

use stream::{Setup, Stream};
use streams::Streams;

/// The id of a link, chosen by its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u32);

/// The configuration of connections over links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectConfig {
    /// The largest payload of one packet, bytes.
    pub mtu: u16,
    /// Maximum number of packets of one connection that the peer has not placed, at least 1. The two ends agree on the
    /// smaller of theirs; a packet beyond the receiver's closes the connection as a protocol violation.
    pub window: u16,
    /// The UDP port on which this end receives over the network; peers identify it by this port.
    pub receive_port: u16,
    /// The time without a packet on the link of a peer that owes an answer, after which the peer is considered gone.
    pub peer_timeout: Duration,
    /// Maximum number of queued messages on one connection.
    pub message_queue: u32,
    /// Maximum number of connections, at most 2^20.
    pub max_connections: u32,
}

/// An acknowledgement of a connection's packets, which another packet carries along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acknowledgement {
    /// The data sender's connection id.
    pub destination_cid: u32,
    /// The first packet not placed: every packet before it has been placed.
    pub psn_base: u32,
}

/// An outgoing packet, without its headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// The link to send it on.
    pub link: LinkId,
    /// The destination and the payload.
    pub departure: Departure,
    /// An acknowledgement that the owner passes to [`Direct::handle_acknowledged`] at the other end, before the packet.
    pub acknowledged: Option<Acknowledgement>,
}

/// Maximum number of queued answers: peers may request more of them than they receive.
const MAX_ANSWERS: usize = 1 << 16;

/// The state of a link.
#[derive(Clone, Copy, Debug)]
struct Link {
    /// The time of the last packet received on it.
    last_received_at: Instant,
    /// `true` while the link accepts no packets.
    held: bool,
}

/// One process's end of every connection over its links.
#[derive(Debug)]
pub struct Direct {
    config: DirectConfig,
    streams: Streams,
    links: BTreeMap<LinkId, Link>,
    /// Connections that may have something to send, in round-robin order.
    ready: VecDeque<u32>,
    /// The connections whose link was held in their turn.
    parked: Vec<u32>,
    /// Queued packets that do not wait for their connection's turn.
    answers: VecDeque<(LinkId, Departure, Packet)>,
    events: VecDeque<Event>,
    /// The time at which peers that owe an answer are checked.
    timeout_at: Option<Instant>,
}

impl Direct {
    /// The first connection id: all ids of this kind are in the upper half of the range.
    pub const FIRST_ID: u32 = 1 << 31;

    /// Creates an end without links and connections.
    pub const fn new(config: DirectConfig) -> Self {
        Self {
            config,
            streams: Streams::new(config.max_connections),
            links: BTreeMap::new(),
            ready: VecDeque::new(),
            parked: Vec::new(),
            answers: VecDeque::new(),
            events: VecDeque::new(),
            timeout_at: None,
        }
    }

    /// Returns `true` if an id is, or was, that of a connection over a link.
    #[inline]
    pub const fn is_direct(connection: ConnectionId) -> bool {
        connection.0 >= Self::FIRST_ID
    }

    // Commands from the owner.

    /// Adds a link.
    pub fn link_up(&mut self, now: Instant, link: LinkId) {
        self.links.insert(link, Link { last_received_at: now, held: false });
    }

    /// Reports that a link has no room: nothing is sent on it until [`Self::resume`].
    pub fn pause(&mut self, link: LinkId) {
        if let Some(link) = self.links.get_mut(&link) {
            link.held = true;
        }
    }

    /// Reports that a link has room again.
    pub fn resume(&mut self, link: LinkId) {
        let was_held = |link: &mut Link| core::mem::take(&mut link.held);
        if !self.links.get_mut(&link).is_some_and(was_held) {
            return;
        }
        for slot in core::mem::take(&mut self.parked) {
            if let Some(stream) = self.streams.get_mut(slot) {
                stream.queued = false;
                self.reschedule(slot);
            }
        }
    }

    /// Removes a link and its connections. [`Event::Closed`] follows for each connection.
    pub fn link_down(&mut self, link: LinkId) {
        self.links.remove(&link);
        self.answers.retain(|(over, ..)| *over != link);
        for slot in self.streams.over(link) {
            self.retire(slot, CloseReason::LinkDown);
        }
    }

    /// Requests a connection from a peer. [`Event::Connected`] or [`Event::Closed`] follows.
    ///
    /// # Errors
    /// [`ConnectError::TooManyConnections`] if the maximum number is open.
    ///
    /// # Panics
    /// If the service is 2^56 or more.
    pub fn connect(
        &mut self,
        now: Instant,
        link: LinkId,
        peer: SocketAddr,
        service: u64,
    ) -> Result<ConnectionId, ConnectError> {
        assert!(service < 1 << 56, "a service has 56 bits");
        let timeout = self.config.peer_timeout;
        let slot =
            self.streams.insert(|id| Stream::new(id, link, peer, Setup::Requesting, timeout));
        let slot =
            slot.ok_or(ConnectError::TooManyConnections { limit: self.config.max_connections })?;
        let stream = self.streams.at(slot);
        stream.waiting_since = Some(now);
        let terms = Some(SetupParameters { service, ..self.config.terms() });
        self.answer(slot, SetupKind::Request, terms);
        self.arm_timeout(now);
        Ok(self.streams.at(slot).id)
    }

    /// Queues a message on an established connection.
    ///
    /// # Errors
    /// See [`SubmitError`].
    pub fn submit(
        &mut self,
        connection: ConnectionId,
        message: Message,
    ) -> Result<(), SubmitError> {
        let slot = self.streams.find(connection.0).ok_or(SubmitError::UnknownConnection)?;
        let stream = self.streams.at(slot);
        stream.submit(message, self.config.message_queue)?;
        // A message goes before queued acknowledgements: peers wait for messages more often.
        if !stream.queued && stream.wants_transmit() {
            stream.queued = true;
            self.ready.push_front(slot);
        }
        Ok(())
    }

    /// Submits a message and returns its packet, with the headers written to `packet`. Returns `None`, and the message
    /// must be [submitted](Self::submit), if it needs several packets, others leave before it, or its link accepts
    /// none.
    #[inline]
    pub fn send_at_once(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        message: Message,
        packet: &mut Packet,
    ) -> Option<Outgoing> {
        let slot = self.streams.find(connection.0).filter(|_| self.answers.is_empty())?;
        let stream = self.streams.at(slot);
        if message.length > stream.mtu.into() || !stream.has_sent_all() {
            return None;
        }
        self.links.get(&stream.link).filter(|link| !link.held)?;
        stream.submit(message, self.config.message_queue).ok()?;
        let payload = stream.poll(packet)?;
        Some(self.send_out(now, slot, payload))
    }

    /// Reports that the payload of packet `psn` is where [`Verdict::Place`] required it; the packet may be
    /// acknowledged.
    ///
    /// # Errors
    /// See [`PlacedError`].
    #[inline]
    pub fn placed(&mut self, connection: ConnectionId, psn: u32) -> Result<(), PlacedError> {
        let slot = self.streams.find(connection.0).ok_or(PlacedError::UnknownConnection)?;
        self.streams.at(slot).placed(psn)?;
        self.reschedule(slot);
        Ok(())
    }

    /// Sets the time without a packet on the link of a connection, while its peer owes an answer, after which the peer is considered gone,
    /// in place of the configuration's. It is checked once every [`peer_timeout`](DirectConfig::peer_timeout) of the configuration. An
    /// unknown id is ignored.
    pub fn set_peer_timeout(&mut self, connection: ConnectionId, timeout: Duration) {
        if let Some(slot) = self.streams.find(connection.0) {
            self.streams.at(slot).peer_timeout = timeout;
        }
    }

    /// Closes a connection and notifies the peer. [`Event::Closed`] follows. An unknown id is ignored.
    pub fn close(&mut self, connection: ConnectionId) {
        if let Some(slot) = self.streams.find(connection.0) {
            self.retire(slot, CloseReason::Local);
        }
    }

    // Inputs from the links and the clock.

    /// Processes a packet received on a link from a peer's address. `payload_len` is the number of bytes after the
    /// packet's headers.
    #[inline]
    pub fn handle_packet(
        &mut self,
        now: Instant,
        link: LinkId,
        from: SocketAddr,
        packet: &Packet,
        payload_len: u16,
    ) -> Verdict {
        let Some(state) = self.links.get_mut(&link) else {
            return Verdict::Dropped(DropReason::UnknownConnection);
        };
        state.last_received_at = now;
        match packet {
            Packet::Data(header, Some(message)) => {
                let Some(slot) = self.established_slot(link, header.destination_cid) else {
                    return self.reset_unknown(link, from, header.destination_cid);
                };
                let window = self.config.window;
                match self.streams.at(slot).ingest(header, message, payload_len, window) {
                    Some(placement) => Verdict::Place(placement),
                    None => self.close_for_violation(slot),
                }
            }
            Packet::Data(_, None) => Verdict::Dropped(DropReason::Malformed),
            Packet::Ack(ack) => {
                let AckHeader { destination_cid, psn_base, .. } = *ack;
                let acknowledged = Acknowledgement { destination_cid, psn_base };
                self.handle_acknowledged(now, link, from, acknowledged)
            }
            Packet::Setup(header) => {
                let done = self.handle_setup(link, from, header);
                if done { Verdict::Done } else { Verdict::Dropped(DropReason::UnexpectedSetup) }
            }
        }
    }

    /// Processes the acknowledgement that a packet received on a link carried along.
    #[inline]
    pub fn handle_acknowledged(
        &mut self,
        now: Instant,
        link: LinkId,
        from: SocketAddr,
        acknowledged: Acknowledgement,
    ) -> Verdict {
        let Some(slot) = self.established_slot(link, acknowledged.destination_cid) else {
            return self.reset_unknown(link, from, acknowledged.destination_cid);
        };
        let stream = self.streams.at(slot);
        if !stream.acknowledge(acknowledged.psn_base) {
            return self.close_for_violation(slot);
        }
        let owes = stream.is_waiting() || stream.may_send();
        stream.waiting_since = owes.then_some(now);
        let connection = stream.id;
        while let Some(Message { token, .. }) = stream.pop_done() {
            self.events.push_back(Event::Acked { connection, token });
        }
        self.reschedule(slot);
        Verdict::Done
    }

    /// Closes connections whose peers owe an answer and were silent for the peer timeout.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.timeout_at.is_none_or(|at| now < at) {
            return;
        }
        self.timeout_at = None;
        for slot in self.streams.all() {
            let stream = self.streams.at(slot);
            let Some(since) = stream.waiting_since else { continue };
            let received_at =
                self.links.get(&stream.link).map_or(Instant::EPOCH, |link| link.last_received_at);
            if now.since(since.max(received_at)) >= stream.peer_timeout {
                let requesting = stream.setup == Setup::Requesting;
                let reason =
                    if requesting { CloseReason::ConnectTimeout } else { CloseReason::PeerGone };
                self.retire(slot, reason);
            } else {
                self.arm_timeout(now);
            }
        }
    }

    // Outputs.

    /// Returns the next packet that may be sent; its headers are written to `packet`.
    #[inline]
    pub fn poll_transmit_into(&mut self, now: Instant, packet: &mut Packet) -> Option<Outgoing> {
        if let Some((link, departure, answer)) = self.next_answer() {
            *packet = answer;
            return Some(Outgoing { link, departure, acknowledged: None });
        }
        while let Some(slot) = self.ready.pop_front() {
            let Some(stream) = self.streams.get_mut(slot) else { continue };
            if self.links.get(&stream.link).is_some_and(|link| link.held) {
                self.parked.push(slot);
                // A peer that never receives the queued packets is closed like one that does not answer.
                self.await_answer(slot, now);
                continue;
            }
            stream.queued = false;
            let Some(payload) = stream.poll(packet) else { continue };
            let outgoing = self.send_out(now, slot, payload);
            self.reschedule(slot);
            return Some(outgoing);
        }
        None
    }

    /// Returns a connection's outgoing packet, with this payload or with an acknowledgement alone.
    #[inline]
    fn send_out(&mut self, now: Instant, slot: u32, payload: Option<Payload>) -> Outgoing {
        let stream = self.streams.at(slot);
        let (link, departure) = (stream.link, stream.departure(payload));
        if payload.is_none() {
            stream.stop_waiting();
            return Outgoing { link, departure, acknowledged: None };
        }
        let acknowledged = stream.poll_ack();
        self.await_answer(slot, now);
        let acknowledged = acknowledged.or_else(|| self.next_acknowledged(link));
        Outgoing { link, departure, acknowledged }
    }

    /// Returns the acknowledgement of the connection whose turn is next, if it is on this link. In a ping-pong that
    /// acknowledges the message which the outgoing one answers, and saves a packet in each direction.
    #[inline]
    fn next_acknowledged(&mut self, link: LinkId) -> Option<Acknowledgement> {
        let &slot = self.ready.front()?;
        let stream = self.streams.get_mut(slot).filter(|stream| stream.link == link)?;
        let acknowledged = stream.poll_ack()?;
        stream.stop_waiting();
        if !stream.may_send() {
            stream.queued = false;
            self.ready.pop_front();
        }
        Some(acknowledged)
    }

    /// Returns `true` if there may be packets to send.
    #[inline]
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty() || !self.answers.is_empty()
    }

    /// Returns `true` if packets other than acknowledgements of messages may be sent.
    pub fn has_messages(&self) -> bool {
        let sends = |&slot: &u32| self.streams.get(slot).is_some_and(Stream::may_send);
        !self.answers.is_empty() || self.ready.iter().any(sends)
    }

    /// Returns the time at which [`Self::handle_timeout`] must be called next. No timeout may be due then.
    #[inline]
    pub const fn poll_timeout(&self) -> Option<Instant> {
        self.timeout_at
    }

    /// Returns the next event.
    #[inline]
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Returns the peer of a connection; `None` until it is established.
    pub fn peer(&self, connection: ConnectionId) -> Option<Peer> {
        let stream = self.streams.get(self.streams.find(connection.0)?)?;
        let established = stream.setup == Setup::Established;
        established.then_some(Peer { address: stream.peer, thread_id: 0, paths: 1 })
    }

    /// Returns the link of a connection, and the peer's id of it; `None` until it is established.
    pub fn route(&self, connection: ConnectionId) -> Option<(LinkId, ConnectionId)> {
        let stream = self.streams.get(self.streams.find(connection.0)?)?;
        let established = stream.setup == Setup::Established;
        established.then_some((stream.link, ConnectionId(stream.remote)))
    }

    // Internal functions.

    /// Returns the slot of the established connection with this id on this link.
    #[inline]
    fn established_slot(&self, link: LinkId, cid: u32) -> Option<u32> {
        let slot = self.streams.find(cid)?;
        self.streams.get(slot).filter(|stream| stream.is_established_on(link)).map(|_| slot)
    }

    /// Closes a connection whose peer violated the protocol.
    fn close_for_violation(&mut self, slot: u32) -> Verdict {
        self.retire(slot, CloseReason::ProtocolViolation);
        Verdict::Dropped(DropReason::Malformed)
    }

    /// Returns the next packet that waits for no turn, on a link that accepts packets.
    #[inline]
    fn next_answer(&mut self) -> Option<(LinkId, Departure, Packet)> {
        if self.answers.is_empty() {
            return None;
        }
        let held = |link: &LinkId| self.links.get(link).is_some_and(|link| link.held);
        let next = self.answers.iter().position(|(link, ..)| !held(link))?;
        self.answers.remove(next)
    }

    /// Records that the peer owes an answer from now on, unless it did already.
    fn await_answer(&mut self, slot: u32, now: Instant) {
        let stream = self.streams.at(slot);
        if stream.waiting_since.is_none() {
            stream.waiting_since = Some(now);
            self.arm_timeout(now);
        }
    }

    /// Queues a connection if it may send.
    #[inline]
    fn reschedule(&mut self, slot: u32) {
        let stream = self.streams.at(slot);
        if !stream.queued && stream.wants_transmit() {
            stream.queued = true;
            self.ready.push_back(slot);
        }
    }

    /// Arms the timer for peers that owe an answer.
    fn arm_timeout(&mut self, now: Instant) {
        self.timeout_at.get_or_insert(now + self.config.peer_timeout);
    }
}
