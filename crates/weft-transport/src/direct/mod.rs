//! Connections over links that lose, repeat and reorder nothing, such as memory that two processes of one
//! host share. They say the same packets as an [`Endpoint`](crate::Endpoint)'s and need little of what it
//! has: there is one path, no congestion, nothing to send again. Who is at the other end of a link is the
//! owner's to know, so no address is proved.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::net::SocketAddr;

use weft_units::{Duration, Instant};
use weft_wire::{AckHeader, Packet, SetupKind, Terms};

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

/// Names a link, as its owner counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u32);

/// How connections over links behave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectConfig {
    /// Largest payload of one packet, bytes.
    pub mtu: u16,
    /// Packets of one connection that the peer has not placed, at most. A power of two at most 4096.
    pub window: u16,
    /// UDP port on which this end receives what comes over the network: peers know it by that.
    pub receive_port: u16,
    /// A peer that owes an answer and whose link is silent for this long is gone.
    pub peer_timeout: Duration,
    /// Messages that may wait on one connection.
    pub message_queue: u32,
    /// Connections at most, at most 2^20.
    pub max_connections: u32,
}

/// How far the packets of a connection were placed, as a packet of another says along with what it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acknowledged {
    /// The data sender's connection id.
    pub destination_cid: u32,
    /// Every packet before this one has been placed.
    pub psn_base: u32,
}

/// A packet on its way out, beside its headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// Over which link.
    pub link: LinkId,
    /// To whom, with which payload.
    pub departure: Departure,
    /// What the owner hands to [`Direct::handle_acknowledged`] at the other end, before the packet.
    pub acknowledged: Option<Acknowledged>,
}

/// Answers that wait to leave, at most: peers may ask for more of them than they take in.
const MOST_ANSWERS: usize = 1 << 16;

/// A link.
#[derive(Clone, Copy, Debug)]
struct Link {
    /// When it was heard of last.
    heard_at: Instant,
    /// It takes nothing at present.
    held: bool,
}

/// One process's end of every connection over its links.
#[derive(Debug)]
pub struct Direct {
    config: DirectConfig,
    streams: Streams,
    links: BTreeMap<LinkId, Link>,
    /// Connections that may have something to send, in turn.
    ready: VecDeque<u32>,
    /// Those whose link was held in their turn.
    parked: Vec<u32>,
    /// Packets that do not wait for their connection's turn.
    answers: VecDeque<(LinkId, Departure, Packet)>,
    events: VecDeque<Event>,
    /// When peers that owe something are looked at.
    look_at: Option<Instant>,
}

impl Direct {
    /// The first connection id: all of this kind are in the upper half of numbers.
    pub const FIRST_ID: u32 = 1 << 31;

    /// No link, no connection.
    pub const fn new(config: DirectConfig) -> Self {
        Self {
            config,
            streams: Streams::new(config.max_connections),
            links: BTreeMap::new(),
            ready: VecDeque::new(),
            parked: Vec::new(),
            answers: VecDeque::new(),
            events: VecDeque::new(),
            look_at: None,
        }
    }

    /// Whether an id is one of these connections', or was.
    #[inline]
    pub const fn is_direct(connection: ConnectionId) -> bool {
        connection.0 >= Self::FIRST_ID
    }

    // Commands from the owner.

    /// There is a link.
    pub fn link_up(&mut self, now: Instant, link: LinkId) {
        self.links.insert(link, Link { heard_at: now, held: false });
    }

    /// A link has no room: nothing leaves over it until it is said to have.
    pub fn hold(&mut self, link: LinkId) {
        if let Some(link) = self.links.get_mut(&link) {
            link.held = true;
        }
    }

    /// A link has room again.
    pub fn release(&mut self, link: LinkId) {
        let was_held = |link: &mut Link| core::mem::take(&mut link.held);
        if !self.links.get_mut(&link).is_some_and(was_held) {
            return;
        }
        for slot in core::mem::take(&mut self.parked) {
            if let Some(stream) = self.streams.get_mut(slot) {
                stream.queued = false;
                self.settle(slot);
            }
        }
    }

    /// A link is no more, nor what goes over it. `Closed` follows for each connection.
    pub fn link_down(&mut self, link: LinkId) {
        self.links.remove(&link);
        self.answers.retain(|(over, ..)| *over != link);
        for slot in self.streams.over(link) {
            self.retire(slot, CloseReason::LinkDown);
        }
    }

    /// Asks a peer for a connection. `Connected` or `Closed` follows.
    ///
    /// # Errors
    /// As many are open as may be.
    pub fn connect(
        &mut self,
        now: Instant,
        link: LinkId,
        peer: SocketAddr,
        service: u32,
    ) -> Result<ConnectionId, ConnectError> {
        let slot = self.streams.insert(|id| Stream::new(id, link, peer, Setup::Requesting));
        let slot =
            slot.ok_or(ConnectError::TooManyConnections { limit: self.config.max_connections })?;
        let stream = self.streams.at(slot);
        stream.waiting_since = Some(now);
        let terms = Some(Terms { service, ..self.config.terms() });
        self.answer(slot, SetupKind::Request, terms);
        self.watch(now);
        Ok(self.streams.at(slot).id)
    }

    /// Queues a message on a connection that is set up.
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
        // Before acknowledgements that wait: somebody waits for a message more often than for those.
        if !stream.queued && stream.wants_transmit(self.config.window) {
            stream.queued = true;
            self.ready.push_front(slot);
        }
        Ok(())
    }

    /// Sends a message in the call that submits it, and puts its packet's headers into `packet`: where one packet is
    /// enough for it, nothing is to leave before it, and its link takes it. Else `None`, and it is to be
    /// [submitted](Self::submit).
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
        if message.length > stream.mtu.into() || !stream.has_sent_all(self.config.window) {
            return None;
        }
        self.links.get(&stream.link).filter(|link| !link.held)?;
        stream.submit(message, self.config.message_queue).ok()?;
        let payload = stream.poll(self.config.window, packet)?;
        Some(self.set_out(now, slot, payload))
    }

    /// The payload of packet `psn` is where [`Verdict::Place`] said; it may be acknowledged.
    ///
    /// # Errors
    /// See [`PlacedError`].
    #[inline]
    pub fn placed(&mut self, connection: ConnectionId, psn: u32) -> Result<(), PlacedError> {
        let slot = self.streams.find(connection.0).ok_or(PlacedError::UnknownConnection)?;
        self.streams.at(slot).placed(psn)?;
        self.settle(slot);
        Ok(())
    }

    /// Ends a connection and tells the peer. `Closed` follows. An id that means nothing is ignored.
    pub fn close(&mut self, connection: ConnectionId) {
        if let Some(slot) = self.streams.find(connection.0) {
            self.retire(slot, CloseReason::Local);
        }
    }

    // Inputs from the links and the clock.

    /// Takes in what came over a link from a peer's address. `payload_len` is the number of bytes after the
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
        let Some(heard_of) = self.links.get_mut(&link) else {
            return Verdict::Dropped(DropReason::UnknownConnection);
        };
        heard_of.heard_at = now;
        match packet {
            Packet::Data(header, Some(message)) => {
                let Some(slot) = self.named(link, header.destination_cid) else {
                    return self.unknown(link, from, header.destination_cid);
                };
                let window = self.config.window;
                match self.streams.at(slot).take_in(header, message, payload_len, window) {
                    Some(placement) => Verdict::Place(placement),
                    None => self.misspoke(slot),
                }
            }
            Packet::Data(_, None) => Verdict::Dropped(DropReason::Malformed),
            Packet::Ack(ack) => {
                let AckHeader { destination_cid, psn_base, .. } = *ack;
                let acknowledged = Acknowledged { destination_cid, psn_base };
                self.handle_acknowledged(now, link, from, acknowledged)
            }
            Packet::Setup(header) => {
                let done = self.take_setup(link, from, header);
                if done { Verdict::Done } else { Verdict::Dropped(DropReason::UnexpectedSetup) }
            }
        }
    }

    /// Takes in what a packet that came over a link said along with what it is for.
    #[inline]
    pub fn handle_acknowledged(
        &mut self,
        now: Instant,
        link: LinkId,
        from: SocketAddr,
        acknowledged: Acknowledged,
    ) -> Verdict {
        let Some(slot) = self.named(link, acknowledged.destination_cid) else {
            return self.unknown(link, from, acknowledged.destination_cid);
        };
        let stream = self.streams.at(slot);
        if !stream.acknowledge(acknowledged.psn_base) {
            return self.misspoke(slot);
        }
        let owes = stream.is_waiting() || stream.may_send(self.config.window);
        stream.waiting_since = owes.then_some(now);
        let connection = stream.id;
        while let Some(Message { token, .. }) = stream.pop_done() {
            self.events.push_back(Event::Sent { connection, token });
        }
        self.settle(slot);
        Verdict::Done
    }

    /// Gives up peers that owe an answer and were not heard of for too long.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.look_at.is_none_or(|at| now < at) {
            return;
        }
        self.look_at = None;
        for slot in self.streams.all() {
            let stream = self.streams.at(slot);
            let Some(since) = stream.waiting_since else { continue };
            let heard = self.links.get(&stream.link).map_or(Instant::EPOCH, |link| link.heard_at);
            if now.since(since.max(heard)) >= self.config.peer_timeout {
                let asked = stream.setup == Setup::Requesting;
                let gone = if asked { CloseReason::ConnectTimeout } else { CloseReason::PeerGone };
                self.retire(slot, gone);
            } else {
                self.watch(now);
            }
        }
    }

    // Outputs.

    /// Puts the headers of the next packet that may be sent into `packet`.
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
                // A peer that never takes in what is there is given up like one that does not answer.
                self.owes(slot, now);
                continue;
            }
            stream.queued = false;
            let Some(payload) = stream.poll(self.config.window, packet) else { continue };
            let outgoing = self.set_out(now, slot, payload);
            self.settle(slot);
            return Some(outgoing);
        }
        None
    }

    /// A packet of a connection leaves, with this payload or for an acknowledgement alone.
    #[inline]
    fn set_out(&mut self, now: Instant, slot: u32, payload: Option<Payload>) -> Outgoing {
        let stream = self.streams.at(slot);
        let (link, departure) = (stream.link, stream.departure(payload));
        if payload.is_none() {
            stream.rest();
            return Outgoing { link, departure, acknowledged: None };
        }
        let acknowledged = stream.poll_ack();
        self.owes(slot, now);
        let acknowledged = acknowledged.or_else(|| self.next_acknowledged(link));
        Outgoing { link, departure, acknowledged }
    }

    /// What the connection whose turn is next has to acknowledge over a link. In a ping-pong that is the message
    /// that the one which leaves answers: a packet less in each direction.
    #[inline]
    fn next_acknowledged(&mut self, link: LinkId) -> Option<Acknowledged> {
        let &slot = self.ready.front()?;
        let window = self.config.window;
        let stream = self.streams.get_mut(slot).filter(|stream| stream.link == link)?;
        let acknowledged = stream.poll_ack()?;
        stream.rest();
        if !stream.may_send(window) {
            stream.queued = false;
            self.ready.pop_front();
        }
        Some(acknowledged)
    }

    /// Whether there may be something to send.
    #[inline]
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty() || !self.answers.is_empty()
    }

    /// Whether something more than acknowledgements of messages may be sent.
    pub fn has_messages(&self) -> bool {
        let window = self.config.window;
        let sends = |&slot: &u32| self.streams.get(slot).is_some_and(|s| s.may_send(window));
        !self.answers.is_empty() || self.ready.iter().any(sends)
    }

    /// When [`Self::handle_timeout`] must be called next. It may turn out that nothing was due.
    #[inline]
    pub const fn poll_timeout(&self) -> Option<Instant> {
        self.look_at
    }

    /// The next thing that happened.
    #[inline]
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Who is at the other end of a connection; `None` until it is set up.
    pub fn peer(&self, connection: ConnectionId) -> Option<Peer> {
        let stream = self.streams.get(self.streams.find(connection.0)?)?;
        let established = stream.setup == Setup::Established;
        established.then_some(Peer { address: stream.peer, thread_id: 0, paths: 1 })
    }

    /// Over which link a connection goes, and what the peer calls it; `None` until it is set up.
    pub fn route(&self, connection: ConnectionId) -> Option<(LinkId, ConnectionId)> {
        let stream = self.streams.get(self.streams.find(connection.0)?)?;
        let established = stream.setup == Setup::Established;
        established.then_some((stream.link, ConnectionId(stream.remote)))
    }

    // Inside.

    #[inline]
    fn named(&self, link: LinkId, cid: u32) -> Option<u32> {
        let slot = self.streams.find(cid)?;
        self.streams.get(slot).filter(|stream| stream.is_up_over(link)).map(|_| slot)
    }

    /// Ends a connection whose peer says what cannot be.
    fn misspoke(&mut self, slot: u32) -> Verdict {
        self.retire(slot, CloseReason::ProtocolViolation);
        Verdict::Dropped(DropReason::Malformed)
    }

    /// The next packet that waits for no turn, over a link that takes it.
    #[inline]
    fn next_answer(&mut self) -> Option<(LinkId, Departure, Packet)> {
        if self.answers.is_empty() {
            return None;
        }
        let held = |link: &LinkId| self.links.get(link).is_some_and(|link| link.held);
        let next = self.answers.iter().position(|(link, ..)| !held(link))?;
        self.answers.remove(next)
    }

    /// The peer owes an answer from now on, if it did not already.
    fn owes(&mut self, slot: u32, now: Instant) {
        let stream = self.streams.at(slot);
        if stream.waiting_since.is_none() {
            stream.waiting_since = Some(now);
            self.watch(now);
        }
    }

    /// Lets a connection send if it may.
    #[inline]
    fn settle(&mut self, slot: u32) {
        let window = self.config.window;
        let stream = self.streams.at(slot);
        if !stream.queued && stream.wants_transmit(window) {
            stream.queued = true;
            self.ready.push_back(slot);
        }
    }

    /// Looks at peers that owe something later.
    fn watch(&mut self, now: Instant) {
        self.look_at.get_or_insert(now + self.config.peer_timeout);
    }
}
