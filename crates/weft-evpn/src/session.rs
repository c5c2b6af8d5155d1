//! A session with one neighbour: its states and timers (RFC 4271, section 8), the bytes that arrive and those that leave.
//!
//! This end always opens the connection, so that no two connections of one neighbour can collide.

use alloc::collections::BTreeSet;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::IpAddr;

use weft_units::{Duration, Instant, Rng};

use crate::message::{self, Framed, Kind};
use crate::notification::code;
use crate::open::{FAMILY, Open};
use crate::route::RouteKey;
use crate::update::{Context, Update};
use crate::{MIN_HOLD_TIME, Notification};

/// Time within which a connection must be set up.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The first and the longest time between two attempts; each failure doubles it.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// Time for which a session must have lived for its failures to be forgotten.
const STABLE: Duration = Duration::from_secs(30);
/// Number of unsent bytes from which on no more routes are written.
const MAX_UNSENT: usize = 32 << 10;

/// A router or a route reflector to exchange routes with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NeighbourConfig {
    /// Its address.
    pub address: IpAddr,
    /// Its AS number.
    pub asn: u32,
    /// The time without a message after which it counts as dead; the shorter one of both ends is in force.
    pub hold_time: Duration,
    /// Maximum number of routes to keep of it; it is left when it announces more.
    pub max_routes: usize,
}

/// The states of a session (RFC 4271, section 8.2.2). `Connect` waits for TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// Waiting for the next attempt.
    Idle,
    /// A TCP connection is being set up.
    Connect,
    /// The OPEN is sent.
    OpenSent,
    /// The neighbour's OPEN is accepted.
    OpenConfirm,
    /// Routes are exchanged.
    Established,
}

impl State {
    /// Returns the name of the RFC.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Connect => "connect",
            Self::OpenSent => "open-sent",
            Self::OpenConfirm => "open-confirm",
            Self::Established => "established",
        }
    }
}

/// Numbers of events on the sessions with a neighbour. All of them only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionCounters {
    /// Number of sessions that were established.
    pub established: u64,
    /// Number of established sessions that ended.
    pub ended: u64,
    /// Number of UPDATE messages received.
    pub updates_received: u64,
    /// Number of UPDATE messages sent.
    pub updates_sent: u64,
    /// Number of UPDATE messages whose routes counted as withdrawn for a fault.
    pub updates_faulty: u64,
}

/// An event on a session.
#[derive(Debug)]
pub(crate) enum SessionEvent {
    /// Routes may be sent.
    Established,
    /// The neighbour announced and withdrew routes.
    Update(Update),
    /// The neighbour wants all routes again.
    Refresh,
}

/// A session with one neighbour, and what is known of earlier ones.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) config: NeighbourConfig,
    pub(crate) context: Context,
    pub(crate) state: State,
    /// The time of the last change to or from `Established`.
    pub(crate) since: Instant,
    pub(crate) counters: SessionCounters,
    /// The reason that the last session ended, or the last fault.
    pub(crate) error: Option<String>,
    /// Keys of routes of this speaker that the neighbour does not have as they are.
    pub(crate) unsent: BTreeSet<RouteKey>,
    /// Time of the next attempt in `Idle`; otherwise the time by which the neighbour must have answered.
    deadline: Instant,
    keepalive_at: Option<Instant>,
    /// The hold time that both ends agreed on.
    hold_time: Duration,
    /// Number of sessions and attempts that failed in a row.
    failures: u32,
    input: Vec<u8>,
    /// Number of bytes of `input` that were handled.
    read: usize,
    output: Vec<u8>,
}

impl Session {
    pub(crate) fn new(now: Instant, config: NeighbourConfig, context: Context) -> Self {
        Self {
            hold_time: config.hold_time,
            config,
            context,
            state: State::Idle,
            since: now,
            counters: SessionCounters::default(),
            error: None,
            unsent: BTreeSet::new(),
            deadline: now,
            keepalive_at: None,
            failures: 0,
            input: Vec::new(),
            read: 0,
            output: Vec::new(),
        }
    }

    /// Returns the time of the next call of [`handle_timeout`](Self::handle_timeout).
    pub(crate) fn poll_timeout(&self) -> Instant {
        self.keepalive_at.map_or(self.deadline, |due| due.min(self.deadline))
    }

    /// Handles due timers. Returns `true` if a connection is to be opened.
    ///
    /// # Errors
    /// The notification for a silent neighbour.
    pub(crate) fn handle_timeout(&mut self, now: Instant) -> Result<bool, SessionEnd> {
        if now >= self.deadline {
            match self.state {
                State::Idle => {
                    self.state = State::Connect;
                    self.deadline = now + CONNECT_TIMEOUT;
                    return Ok(true);
                }
                State::Connect => return Err(SessionEnd::Failed("no answer to TCP".into())),
                _ => return Err(Notification::new(code::HOLD_TIMER, 0).into()),
            }
        }
        if self.keepalive_at.is_some_and(|due| due <= now) {
            self.send_keepalive(now);
        }
        Ok(false)
    }

    /// Handles a connection that is set up.
    pub(crate) fn on_connected(&mut self, now: Instant) {
        if self.state != State::Connect {
            return;
        }
        (self.input, self.read, self.output) = (Vec::new(), 0, Vec::new());
        let Context { asn, router_id, .. } = self.context;
        let hold_time = self.config.hold_time;
        let open = Open { asn, hold_time, router_id, has_evpn: true, has_four_octet_as: true };
        open.emit(&mut self.output);
        self.state = State::OpenSent;
        self.deadline = now + hold_time;
    }

    /// Appends bytes that arrived.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        if self.state >= State::OpenSent {
            self.input.extend_from_slice(bytes);
        }
    }

    /// Handles the messages that have arrived up to the next event. Returns `None` once none is left.
    ///
    /// # Errors
    /// The reason for which the session ends.
    pub(crate) fn next(&mut self, now: Instant) -> Result<Option<SessionEvent>, SessionEnd> {
        while self.state >= State::OpenSent {
            let input = core::mem::take(&mut self.input);
            let framed = message::split(&input[self.read..])?;
            let len = framed.map_or(0, |framed| framed.len);
            let handled = framed.map(|framed| self.handle(now, &framed));
            self.input = input;
            self.read += len;
            match handled {
                Some(handled) => {
                    if let Some(event) = handled? {
                        return Ok(Some(event));
                    }
                }
                None => {
                    self.input.drain(..self.read);
                    self.read = 0;
                    return Ok(None);
                }
            }
        }
        Ok(None)
    }

    fn handle(
        &mut self,
        now: Instant,
        framed: &Framed<'_>,
    ) -> Result<Option<SessionEvent>, SessionEnd> {
        if framed.kind == Kind::Notification {
            return Err(SessionEnd::Received(message::parse_notification(framed.body)?));
        }
        match (self.state, framed.kind) {
            (State::OpenSent, Kind::Open) => {
                let open = Open::parse(framed.body)?;
                open.check(self.config.asn, (self.context.asn, self.context.router_id))?;
                self.hold_time = self.config.hold_time.min(open.hold_time).max(MIN_HOLD_TIME);
                self.state = State::OpenConfirm;
                self.send_keepalive(now);
            }
            (State::OpenConfirm, Kind::Keepalive) => {
                (self.state, self.since) = (State::Established, now);
                self.counters.established += 1;
                self.error = None;
                self.deadline = now + self.hold_time;
                return Ok(Some(SessionEvent::Established));
            }
            (State::Established, Kind::Keepalive) => {}
            (State::Established, Kind::Update) => {
                self.counters.updates_received += 1;
                let update = Update::parse(framed.body, &self.context)?;
                if let Some(fault) = &update.fault {
                    self.counters.updates_faulty += 1;
                    self.error = Some(alloc::format!("routes withdrawn for a fault: {fault}"));
                }
                self.deadline = now + self.hold_time;
                return Ok(Some(SessionEvent::Update(update)));
            }
            // RFC 2918; of other families, or with operations of RFC 7313, nothing is sent.
            (State::Established, Kind::RouteRefresh) => {
                let [family, sub, safi] = FAMILY;
                self.deadline = now + self.hold_time;
                let is_ours = framed.body == [family, sub, 0, safi];
                return Ok(is_ours.then_some(SessionEvent::Refresh));
            }
            (state, _) => {
                let subcode = match state {
                    State::OpenSent => 1,
                    State::OpenConfirm => 2,
                    _ => 3,
                };
                return Err(Notification::new(code::STATE_MACHINE, subcode).into());
            }
        }
        self.deadline = now + self.hold_time;
        Ok(None)
    }

    fn send_keepalive(&mut self, now: Instant) {
        message::write(&mut self.output, Kind::Keepalive, |_| ());
        self.keepalive_at = Some(now + self.hold_time / 3);
    }

    /// Ends the session, or the attempt at one. Returns the last bytes to send if there is a connection to close.
    pub(crate) fn end(&mut self, now: Instant, end: &SessionEnd, rng: &mut Rng) -> Option<Vec<u8>> {
        if self.state == State::Established {
            self.counters.ended += 1;
            if now.since(self.since) >= STABLE {
                self.failures = 0;
            }
            self.since = now;
        }
        if let SessionEnd::Sent(notification) = end
            && self.state >= State::OpenSent
        {
            message::write_notification(notification, &mut self.output);
        }
        let has_connection = self.state > State::Idle;
        self.error = Some(end.to_string());
        self.state = State::Idle;
        self.keepalive_at = None;
        self.unsent.clear();
        (self.input, self.read) = (Vec::new(), 0);
        self.failures = self.failures.saturating_add(1);
        self.deadline = now + self.retry_after(end, rng);
        let last = core::mem::take(&mut self.output);
        has_connection.then_some(last)
    }

    /// Returns the time until the next attempt, with jitter (RFC 4271, section 10).
    fn retry_after(&self, end: &SessionEnd, rng: &mut Rng) -> Duration {
        let (first, longest) = RETRY;
        let is_too_many = matches!(end, SessionEnd::Sent(it) if it.code == code::CEASE);
        let span = match is_too_many {
            // It would announce as many again.
            true => longest,
            false => (first * (1 << (self.failures - 1).min(6))).min(longest),
        };
        span * (75 + rng.below(26)) / 100
    }

    /// Writes routes that the neighbour does not have, as far as there is room. `emit` appends a route's message.
    pub(crate) fn write_routes(&mut self, mut emit: impl FnMut(RouteKey, &mut Vec<u8>)) {
        while self.state == State::Established
            && self.output.len() < MAX_UNSENT
            && let Some(key) = self.unsent.pop_first()
        {
            emit(key, &mut self.output);
            self.counters.updates_sent += 1;
        }
    }

    /// Returns the bytes to send.
    pub(crate) fn output(&self) -> &[u8] {
        &self.output
    }

    /// Removes bytes that were sent.
    pub(crate) fn consume(&mut self, len: usize) {
        self.output.drain(..len.min(self.output.len()));
    }
}

/// The reason for the end of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SessionEnd {
    /// This speaker ends it, and tells the neighbour why.
    Sent(Notification),
    /// The neighbour ended it.
    Received(Notification),
    /// There is no connection.
    Failed(String),
}

impl From<Notification> for SessionEnd {
    fn from(notification: Notification) -> Self {
        Self::Sent(notification)
    }
}

impl core::fmt::Display for SessionEnd {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Sent(notification) => write!(out, "sent NOTIFICATION: {notification}"),
            Self::Received(notification) => write!(out, "received NOTIFICATION: {notification}"),
            Self::Failed(reason) => out.write_str(reason),
        }
    }
}
