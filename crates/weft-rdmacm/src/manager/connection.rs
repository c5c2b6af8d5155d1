//! One end's side of a connection: its state, the message it retransmits, and the events for its owner. The states are
//! those of IBTA volume 1, section 12.9.5, with two differences: an established connection probes the other end when
//! idle, and a request for disconnection is answered at once and not by the program, which bounds the other
//! end's wait.

use weft_units::{Duration, Instant};

use super::{AddressPair, Event, Outbox, Owner, Rejection, Space, Transmit};
use crate::message::{Body, CommunicationId, Message, Offer, Reason, count_copy};

/// The retransmission timeout of a message's first transmission; it doubles each time.
const INITIAL_TIMEOUT: Duration = Duration::from_millis(50);
/// The maximum retransmission timeout.
const MAX_TIMEOUT: Duration = Duration::from_secs(1);
/// The number of transmissions before the other end is given up: 11 to 12 seconds after the first.
pub(super) const MAX_TRANSMISSIONS: u8 = 15;
/// The time without a message after which an established connection probes the other end.
const IDLE_TIMEOUT: Duration = Duration::from_secs(5);
/// The time for which the answering end keeps its state, so that a late copy of a request is not a new one.
const TIME_WAIT: Duration = Duration::from_secs(15);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    RequestSent,
    /// The owner has not answered the request yet.
    RequestReceived,
    ReplySent,
    /// The owner has not confirmed the reply yet.
    ReplyReceived,
    Established,
    DisconnectSent,
    TimeWait,
    /// The connection has nothing left to send or to remember.
    Closed,
}

/// A message that is retransmitted until it is answered.
#[derive(Debug)]
struct Retransmission {
    bytes: Vec<u8>,
    timeout: Duration,
    transmissions_left: u8,
}

/// The active or the passive end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Active,
    Passive { listener: Owner },
}

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) space: Space,
    pub(super) side: Side,
    pub(super) addresses: AddressPair,
    pub(super) own: CommunicationId,
    pub(super) peer: CommunicationId,
    pub(super) state: State,
    /// The time of the next timeout.
    pub(super) deadline: Option<Instant>,
    /// `true` while an owner wants its events.
    pub(super) is_owned: bool,
    retransmission: Option<Retransmission>,
    /// The answer to a copy of the request.
    answer: Option<Vec<u8>>,
}

impl Connection {
    /// Creates a connection that has sent nothing. `peer` is [`CommunicationId::NONE`] until the peer answers.
    pub(super) fn new(
        space: Space,
        side: Side,
        addresses: AddressPair,
        own: CommunicationId,
        peer: CommunicationId,
    ) -> Self {
        Self {
            space,
            side,
            addresses,
            own,
            peer,
            state: State::RequestReceived,
            deadline: None,
            is_owned: true,
            retransmission: None,
            answer: None,
        }
    }

    fn bytes(&self, body: Body) -> Vec<u8> {
        Message { from: self.own, to: self.peer, copy: 0, body }.emit()
    }

    fn send(&self, bytes: Vec<u8>, out: &mut Outbox) {
        let AddressPair { local, remote } = self.addresses;
        out.transmits.push_back(Transmit { from: local, to: remote, bytes });
    }

    fn send_body(&self, body: Body, out: &mut Outbox) {
        self.send(self.bytes(body), out);
    }

    fn push_event(&self, event: Event, out: &mut Outbox) {
        if self.is_owned {
            out.events.push_back((self.own, event));
        }
    }

    /// Sends a message now, and again after each timeout until it is answered.
    fn send_until_answered(&mut self, body: Body, now: Instant, out: &mut Outbox) -> Vec<u8> {
        let bytes = self.bytes(body);
        self.send(bytes.clone(), out);
        let retransmission = Retransmission {
            bytes: bytes.clone(),
            timeout: INITIAL_TIMEOUT,
            transmissions_left: MAX_TRANSMISSIONS - 1,
        };
        self.deadline = Some(now + retransmission.timeout);
        self.retransmission = Some(retransmission);
        bytes
    }

    /// Resets the transmission count: the other end is alive.
    fn on_peer_alive(&mut self, now: Instant) {
        if let Some(retransmission) = &mut self.retransmission {
            retransmission.transmissions_left = MAX_TRANSMISSIONS;
            retransmission.timeout = MAX_TIMEOUT;
            self.deadline = Some(now + MAX_TIMEOUT);
        }
    }

    fn stop_retransmission(&mut self, until: Option<Instant>) {
        self.retransmission = None;
        self.deadline = until;
    }

    fn establish(&mut self, now: Instant) {
        self.state = State::Established;
        self.stop_retransmission(Some(now + IDLE_TIMEOUT));
    }

    /// Enters TIME-WAIT if this end is the passive one, for late copies of the request; otherwise closes.
    fn end(&mut self, now: Instant) {
        match self.side {
            Side::Active => {
                self.state = State::Closed;
                self.stop_retransmission(None);
            }
            Side::Passive { .. } => {
                self.state = State::TimeWait;
                self.stop_retransmission(Some(now + TIME_WAIT));
            }
        }
    }

    pub(super) fn request(&mut self, offer: Offer, now: Instant, out: &mut Outbox) {
        self.state = State::RequestSent;
        let body = match self.space {
            Space::Connected => Body::Request(offer),
            Space::Datagram => Body::ServiceRequest(offer),
        };
        self.send_until_answered(body, now, out);
    }

    /// Accepts the request. Returns `true` if there was one.
    pub(super) fn accept(&mut self, offer: Offer, now: Instant, out: &mut Outbox) -> bool {
        if self.state != State::RequestReceived {
            return false;
        }
        match self.space {
            Space::Connected => {
                self.state = State::ReplySent;
                self.answer = Some(self.send_until_answered(Body::Reply(offer), now, out));
            }
            Space::Datagram => {
                let bytes = self.bytes(Body::ServiceReply(offer));
                self.send(bytes.clone(), out);
                self.answer = Some(bytes);
                self.end(now);
            }
        }
        true
    }

    /// Rejects the request or the reply. Returns `true` if there was one.
    pub(super) fn reject(&mut self, rejection: Rejection, now: Instant, out: &mut Outbox) -> bool {
        let Rejection { reason, private_data } = rejection;
        use State::{ReplyReceived, ReplySent, RequestReceived, RequestSent};
        if !matches!(self.state, RequestSent | RequestReceived | ReplySent | ReplyReceived) {
            return false;
        }
        let bytes = self.bytes(Body::Reject { reason, private_data });
        self.send(bytes.clone(), out);
        self.answer = Some(bytes);
        self.end(now);
        true
    }

    /// Confirms the reply: the owner is ready. Returns `true` if there was a reply.
    pub(super) fn ready(&mut self, now: Instant, out: &mut Outbox) -> bool {
        if self.state != State::ReplyReceived {
            return false;
        }
        self.send_body(Body::ReadyToUse, out);
        self.establish(now);
        true
    }

    /// Records that the owner has seen the connection in use. Returns `true` if it waited for that.
    pub(super) fn notify(&mut self, now: Instant, out: &mut Outbox) -> bool {
        if self.state != State::ReplySent {
            return false;
        }
        self.establish(now);
        self.push_event(Event::Established, out);
        true
    }

    /// Ends the connection. Returns `true` if there was one.
    pub(super) fn disconnect(&mut self, now: Instant, out: &mut Outbox) -> bool {
        if !matches!(self.state, State::Established | State::ReplySent) {
            return false;
        }
        self.state = State::DisconnectSent;
        self.send_until_answered(Body::DisconnectRequest, now, out);
        true
    }

    /// Ends the connection without its owner: notifies the other end and drops later events.
    pub(super) fn forget(&mut self, now: Instant, out: &mut Outbox) {
        self.is_owned = false;
        if self.state == State::Established {
            self.disconnect(now, out);
        } else {
            self.reject(Rejection::CONSUMER, now, out);
        }
    }

    /// Handles a message from the other end.
    pub(super) fn handle(&mut self, message: Message, now: Instant, out: &mut Outbox) {
        match (self.state, message.body) {
            (State::RequestSent | State::ReplySent, Body::Received) => self.on_peer_alive(now),
            (State::RequestSent, Body::Reply(offer)) if self.space == Space::Connected => {
                self.peer = message.from;
                self.state = State::ReplyReceived;
                self.stop_retransmission(None);
                self.push_event(Event::Response(offer), out);
            }
            (State::RequestSent, Body::ServiceReply(offer)) if self.space == Space::Datagram => {
                self.push_event(Event::Resolved(offer), out);
                self.end(now);
            }
            (State::RequestReceived, Body::Request(_) | Body::ServiceRequest(_))
            | (State::ReplyReceived, Body::Reply(_)) => self.send_body(Body::Received, out),
            (State::ReplySent | State::TimeWait, Body::Request(_) | Body::ServiceRequest(_)) => {
                if let Some(answer) = self.answer.clone() {
                    self.send(answer, out);
                }
            }
            (State::ReplySent, Body::ReadyToUse) => {
                self.notify(now, out);
            }
            (State::ReplySent, Body::Probe) => {
                self.notify(now, out);
                self.send_body(Body::ProbeReply, out);
            }
            (State::Established, Body::Reply(_)) => self.send_body(Body::ReadyToUse, out),
            (State::Established, Body::Probe) => {
                self.send_body(Body::ProbeReply, out);
                self.stop_retransmission(Some(now + IDLE_TIMEOUT));
            }
            (State::Established, Body::ProbeReply) => {
                self.stop_retransmission(Some(now + IDLE_TIMEOUT))
            }
            (_, Body::Reject { reason, private_data }) => {
                self.handle_reject(reason, private_data, now, out);
            }
            (_, Body::DisconnectRequest) => self.handle_disconnect_request(now, out),
            (State::DisconnectSent, Body::DisconnectReply) => self.close(0, now, out),
            // A copy of an answered message, or an answer without a request.
            _ => {}
        }
    }

    fn handle_reject(&mut self, reason: Reason, data: Vec<u8>, now: Instant, out: &mut Outbox) {
        match (self.state, self.space) {
            (State::RequestSent, Space::Datagram) => {
                self.push_event(Event::Unreachable { status: i32::from(reason.0) }, out);
                self.end(now);
            }
            (
                State::RequestSent
                | State::RequestReceived
                | State::ReplySent
                | State::ReplyReceived,
                _,
            ) => {
                self.answer = None;
                self.push_event(Event::Rejected { reason, private_data: data }, out);
                self.end(now);
            }
            (State::Established, _) if reason == Reason::INVALID_COMMUNICATION_ID => {
                self.close(0, now, out);
            }
            (State::DisconnectSent, _) => self.close(0, now, out),
            (State::Established | State::TimeWait | State::Closed, _) => {}
        }
    }

    fn handle_disconnect_request(&mut self, now: Instant, out: &mut Outbox) {
        match self.state {
            State::RequestSent | State::RequestReceived | State::Closed => return,
            // The connection was in use, and the message that reports it was lost.
            State::ReplySent => self.push_event(Event::Established, out),
            State::ReplyReceived | State::Established | State::DisconnectSent | State::TimeWait => {
            }
        }
        self.send_body(Body::DisconnectReply, out);
        if self.state != State::TimeWait {
            self.close(0, now, out);
        }
    }

    /// Ends the connection; the owner's event has `status`, zero or a negative error number.
    fn close(&mut self, status: i32, now: Instant, out: &mut Outbox) {
        self.answer = None;
        self.push_event(Event::Disconnected { status }, out);
        self.end(now);
    }

    /// Handles the other host's notice that the port has no socket.
    pub(super) fn handle_refused(&mut self, now: Instant, out: &mut Outbox) {
        match self.state {
            State::RequestSent | State::ReplyReceived => {
                self.handle_reject(Reason::INVALID_SERVICE_ID, Vec::new(), now, out);
            }
            State::Established | State::DisconnectSent => self.close(0, now, out),
            State::RequestReceived | State::ReplySent | State::TimeWait | State::Closed => {}
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Instant, out: &mut Outbox) {
        match &mut self.retransmission {
            Some(retransmission) if retransmission.transmissions_left > 0 => {
                retransmission.transmissions_left -= 1;
                let doubled = Duration::from_nanos(retransmission.timeout.as_nanos() * 2);
                retransmission.timeout = doubled.min(MAX_TIMEOUT);
                self.deadline = Some(now + retransmission.timeout);
                count_copy(&mut retransmission.bytes);
                let bytes = retransmission.bytes.clone();
                self.send(bytes, out);
            }
            Some(_) => self.give_up(now, out),
            None if self.state == State::Established => {
                self.send_until_answered(Body::Probe, now, out);
            }
            None => {
                self.state = State::Closed;
                self.stop_retransmission(None);
            }
        }
    }

    /// Gives up after the last transmission without an answer.
    fn give_up(&mut self, now: Instant, out: &mut Outbox) {
        if matches!(self.state, State::RequestSent | State::ReplySent) {
            self.answer = None;
            self.push_event(Event::Unreachable { status: -libc::ETIMEDOUT }, out);
            self.end(now);
        } else {
            self.close(-libc::ETIMEDOUT, now, out);
        }
    }
}
