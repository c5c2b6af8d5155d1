//! One end's side of a connection: its state, the message it retransmits, and the events for its owner. The states are
//! those of IBTA volume 1, section 12.9.5, with two differences: an established connection probes the other end when
//! idle, and a request for disconnection is answered at once and not when the program says so, which bounds the other
//! end's wait.

use std::net::SocketAddr;

use weft_units::{Duration, Instant};

use super::{Event, Outbox, Owner, Space, Transmit};
use crate::message::{Body, CommunicationId, Message, Offer, Reason, count_copy};

/// The retransmission timeout of a message's first transmission; it doubles each time.
const FIRST_WAIT: Duration = Duration::from_millis(50);
/// The maximum retransmission timeout.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// The number of transmissions before the other end is given up: 11 to 12 seconds after the first.
pub(super) const TRIES: u8 = 15;
/// The time without a message after which an established connection probes the other end.
const IDLE: Duration = Duration::from_secs(5);
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
struct Repeated {
    bytes: Vec<u8>,
    wait: Duration,
    tries_left: u8,
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
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
    pub(super) own: CommunicationId,
    pub(super) peer: CommunicationId,
    pub(super) state: State,
    /// The time of the next timeout.
    pub(super) deadline: Option<Instant>,
    /// `true` while an owner wants its events.
    pub(super) is_owned: bool,
    repeated: Option<Repeated>,
    /// The answer to a copy of the request.
    answer: Option<Vec<u8>>,
}

impl Connection {
    pub(super) fn new(
        (space, side): (Space, Side),
        (local, remote): (SocketAddr, SocketAddr),
        (own, peer): (CommunicationId, CommunicationId),
    ) -> Self {
        Self {
            space,
            side,
            local,
            remote,
            own,
            peer,
            state: State::RequestReceived,
            deadline: None,
            is_owned: true,
            repeated: None,
            answer: None,
        }
    }

    fn bytes(&self, body: Body) -> Vec<u8> {
        Message { from: self.own, to: self.peer, copy: 0, body }.emit()
    }

    fn send(&self, bytes: Vec<u8>, out: &mut Outbox) {
        out.transmits.push_back(Transmit { from: self.local, to: self.remote, bytes });
    }

    fn say(&self, body: Body, out: &mut Outbox) {
        self.send(self.bytes(body), out);
    }

    fn tell(&self, event: Event, out: &mut Outbox) {
        if self.is_owned {
            out.events.push_back((self.own, event));
        }
    }

    /// Sends a message now, and again after each timeout until it is answered.
    fn insist(&mut self, body: Body, now: Instant, out: &mut Outbox) -> Vec<u8> {
        let bytes = self.bytes(body);
        self.send(bytes.clone(), out);
        let repeated = Repeated { bytes: bytes.clone(), wait: FIRST_WAIT, tries_left: TRIES - 1 };
        self.deadline = Some(now + repeated.wait);
        self.repeated = Some(repeated);
        bytes
    }

    /// Resets the transmission count: the other end is alive.
    fn hear(&mut self, now: Instant) {
        if let Some(repeated) = &mut self.repeated {
            repeated.tries_left = TRIES;
            repeated.wait = LONGEST_WAIT;
            self.deadline = Some(now + LONGEST_WAIT);
        }
    }

    fn rest(&mut self, until: Option<Instant>) {
        self.repeated = None;
        self.deadline = until;
    }

    fn establish(&mut self, now: Instant) {
        self.state = State::Established;
        self.rest(Some(now + IDLE));
    }

    /// Enters TIME-WAIT if this end was the one asked, for copies of the request; else closes.
    fn end(&mut self, now: Instant) {
        match self.side {
            Side::Active => {
                self.state = State::Closed;
                self.rest(None);
            }
            Side::Passive { .. } => {
                self.state = State::TimeWait;
                self.rest(Some(now + TIME_WAIT));
            }
        }
    }

    pub(super) fn request(&mut self, offer: Offer, now: Instant, out: &mut Outbox) {
        self.state = State::RequestSent;
        let body = match self.space {
            Space::Connected => Body::Request(offer),
            Space::Datagram => Body::ServiceRequest(offer),
        };
        self.insist(body, now, out);
    }

    /// Returns `true` if there was a request to accept.
    pub(super) fn accept(&mut self, offer: Offer, now: Instant, out: &mut Outbox) -> bool {
        if self.state != State::RequestReceived {
            return false;
        }
        match self.space {
            Space::Connected => {
                self.state = State::ReplySent;
                self.answer = Some(self.insist(Body::Reply(offer), now, out));
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

    /// Returns `true` if there was a request or a reply to reject.
    pub(super) fn reject(
        &mut self,
        (reason, private_data): (Reason, Vec<u8>),
        now: Instant,
        out: &mut Outbox,
    ) -> bool {
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
        self.say(Body::ReadyToUse, out);
        self.establish(now);
        true
    }

    /// Records that the owner has seen the connection in use. Returns `true` if it waited for that.
    pub(super) fn notify(&mut self, now: Instant, out: &mut Outbox) -> bool {
        if self.state != State::ReplySent {
            return false;
        }
        self.establish(now);
        self.tell(Event::Established, out);
        true
    }

    /// Returns `true` if there was a connection to end.
    pub(super) fn disconnect(&mut self, now: Instant, out: &mut Outbox) -> bool {
        if !matches!(self.state, State::Established | State::ReplySent) {
            return false;
        }
        self.state = State::DisconnectSent;
        self.insist(Body::DisconnectRequest, now, out);
        true
    }

    /// Ends the connection without its owner: notifies the other end and drops later events.
    pub(super) fn forget(&mut self, now: Instant, out: &mut Outbox) {
        self.is_owned = false;
        if self.state == State::Established {
            self.disconnect(now, out);
        } else {
            self.reject((Reason::CONSUMER, Vec::new()), now, out);
        }
    }

    /// Handles a message from the other end.
    pub(super) fn handle(&mut self, message: Message, now: Instant, out: &mut Outbox) {
        match (self.state, message.body) {
            (State::RequestSent | State::ReplySent, Body::Received) => self.hear(now),
            (State::RequestSent, Body::Reply(offer)) if self.space == Space::Connected => {
                self.peer = message.from;
                self.state = State::ReplyReceived;
                self.rest(None);
                self.tell(Event::Response(offer), out);
            }
            (State::RequestSent, Body::ServiceReply(offer)) if self.space == Space::Datagram => {
                self.tell(Event::Resolved(offer), out);
                self.end(now);
            }
            (State::RequestReceived, Body::Request(_) | Body::ServiceRequest(_))
            | (State::ReplyReceived, Body::Reply(_)) => self.say(Body::Received, out),
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
                self.say(Body::ProbeReply, out);
            }
            (State::Established, Body::Reply(_)) => self.say(Body::ReadyToUse, out),
            (State::Established, Body::Probe) => {
                self.say(Body::ProbeReply, out);
                self.rest(Some(now + IDLE));
            }
            (State::Established, Body::ProbeReply) => self.rest(Some(now + IDLE)),
            (_, Body::Reject { reason, private_data }) => {
                self.handle_reject(reason, private_data, now, out);
            }
            (_, Body::DisconnectRequest) => self.handle_disconnect_request(now, out),
            (State::DisconnectSent, Body::DisconnectReply) => self.lose(0, now, out),
            // A copy of an answered message, or an answer without a question.
            _ => {}
        }
    }

    fn handle_reject(&mut self, reason: Reason, data: Vec<u8>, now: Instant, out: &mut Outbox) {
        match (self.state, self.space) {
            (State::RequestSent, Space::Datagram) => {
                self.tell(Event::Unreachable { status: i32::from(reason.0) }, out);
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
                self.tell(Event::Rejected { reason, private_data: data }, out);
                self.end(now);
            }
            (State::Established, _) if reason == Reason::INVALID_COMMUNICATION_ID => {
                self.lose(0, now, out);
            }
            (State::DisconnectSent, _) => self.lose(0, now, out),
            (State::Established | State::TimeWait | State::Closed, _) => {}
        }
    }

    fn handle_disconnect_request(&mut self, now: Instant, out: &mut Outbox) {
        match self.state {
            State::RequestSent | State::RequestReceived | State::Closed => return,
            // The connection was in use, and the message that says so was lost.
            State::ReplySent => self.tell(Event::Established, out),
            State::ReplyReceived | State::Established | State::DisconnectSent | State::TimeWait => {
            }
        }
        self.say(Body::DisconnectReply, out);
        if self.state != State::TimeWait {
            self.lose(0, now, out);
        }
    }

    /// Ends the connection; the owner's event has `status`, zero or a negative error number.
    fn lose(&mut self, status: i32, now: Instant, out: &mut Outbox) {
        self.answer = None;
        self.tell(Event::Disconnected { status }, out);
        self.end(now);
    }

    /// Handles the other host's notice that the port has no socket.
    pub(super) fn handle_refused(&mut self, now: Instant, out: &mut Outbox) {
        match self.state {
            State::RequestSent | State::ReplyReceived => {
                self.handle_reject(Reason::INVALID_SERVICE_ID, Vec::new(), now, out);
            }
            State::Established | State::DisconnectSent => self.lose(0, now, out),
            State::RequestReceived | State::ReplySent | State::TimeWait | State::Closed => {}
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Instant, out: &mut Outbox) {
        match &mut self.repeated {
            Some(repeated) if repeated.tries_left > 0 => {
                repeated.tries_left -= 1;
                let doubled = Duration::from_nanos(repeated.wait.as_nanos() * 2);
                repeated.wait = doubled.min(LONGEST_WAIT);
                self.deadline = Some(now + repeated.wait);
                count_copy(&mut repeated.bytes);
                let bytes = repeated.bytes.clone();
                self.send(bytes, out);
            }
            Some(_) => self.give_up(now, out),
            None if self.state == State::Established => {
                self.insist(Body::Probe, now, out);
            }
            None => {
                self.state = State::Closed;
                self.rest(None);
            }
        }
    }

    /// Gives up after the last transmission without an answer.
    fn give_up(&mut self, now: Instant, out: &mut Outbox) {
        if matches!(self.state, State::RequestSent | State::ReplySent) {
            self.answer = None;
            self.tell(Event::Unreachable { status: -libc::ETIMEDOUT }, out);
            self.end(now);
        } else {
            self.lose(-libc::ETIMEDOUT, now, out);
        }
    }
}
