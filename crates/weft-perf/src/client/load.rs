//! The client's load: keeps every connection's window full until the time is up, and measures each
//! message's latency.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use weft_transport::{CloseReason, ConnectionId, Endpoint, Event, Message, Payload, Placement};
use weft_udp::Application;
use weft_units::{Duration, Instant};

use super::Progress;
use crate::pattern::Pattern;
use crate::plan::{MAX_ANSWER, Plan, opcode};
use crate::report::{Counts, latency_histogram};

/// Tokens from this value on are control messages; lower ones are numbers of the load.
const PLAN_TOKEN: u64 = 1 << 62;
const FINISH_TOKEN: u64 = PLAN_TOKEN + 1;

/// The phase of the measurement: that of its slowest connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    Connecting,
    Running,
    Finishing,
    Done,
}

/// A failure that ends the measurement.
#[derive(Debug)]
pub(super) enum Failure {
    Closed(CloseReason),
    Refused(String),
    BadCounts(serde_json::Error),
}

/// Every connection's load.
#[derive(Debug)]
pub(super) struct Load {
    plan: Plan,
    plan_json: Vec<u8>,
    pattern: Pattern,
    duration: Duration,
    streams: BTreeMap<ConnectionId, Stream>,
    phase: Phase,
    started_at: Instant,
    finished_at: Instant,
    failure: Option<Failure>,
    messages: u64,
    corrupt: u64,
    latency: Histogram<u64>,
}

/// One connection's load.
#[derive(Debug)]
struct Stream {
    phase: Phase,
    /// Number of the next message.
    next: u64,
    /// The lowest number of a message that is not complete.
    completed_below: u64,
    /// The submission time of each outstanding message, by its number modulo the window; `None`
    /// once it is complete.
    submitted: Vec<Option<Instant>>,
    /// The bytes of outstanding replies, in slots like the server's; empty if replies are not verified.
    replies: Vec<u8>,
    /// The received part of a control message of the server.
    control: Vec<u8>,
    counts: Option<Counts>,
}

impl Load {
    pub(super) fn new(plan: Plan, duration: Duration) -> Self {
        Self {
            plan,
            plan_json: plan.to_json(),
            pattern: Pattern::new(plan.message_bytes),
            duration,
            streams: BTreeMap::new(),
            phase: Phase::Connecting,
            started_at: Instant::FAR_FUTURE,
            finished_at: Instant::FAR_FUTURE,
            failure: None,
            messages: 0,
            corrupt: 0,
            latency: latency_histogram(),
        }
    }

    /// Adds a requested connection.
    pub(super) fn add(&mut self, connection: ConnectionId) {
        let checks_replies = self.plan.verify && self.plan.kind.replies();
        self.streams.insert(
            connection,
            Stream {
                phase: Phase::Connecting,
                next: 0,
                completed_below: 0,
                submitted: vec![None; self.plan.outstanding as usize],
                replies: vec![0; if checks_replies { self.plan.slot_bytes() } else { 0 }],
                control: Vec::new(),
                counts: None,
            },
        );
    }

    pub(super) fn phase(&self) -> Phase {
        self.phase
    }

    /// Returns the time from which no new message is submitted.
    pub(super) fn stop_at(&self) -> Instant {
        match self.phase {
            Phase::Running => self.started_at + self.duration,
            _ => Instant::FAR_FUTURE,
        }
    }

    /// Removes the failure that ended the measurement and returns it.
    pub(super) fn take_failure(&mut self) -> Option<Failure> {
        self.failure.take()
    }

    pub(super) fn connections(&self) -> impl Iterator<Item = ConnectionId> + use<> {
        self.streams.keys().copied().collect::<Vec<_>>().into_iter()
    }

    pub(super) fn messages(&self) -> u64 {
        self.messages
    }

    pub(super) fn bytes(&self) -> u64 {
        self.messages * u64::from(self.plan.message_bytes)
    }

    pub(super) fn corrupt(&self) -> u64 {
        self.corrupt
    }

    pub(super) fn latency(&self) -> &Histogram<u64> {
        &self.latency
    }

    /// Returns the time from the first message until the last was complete.
    pub(super) fn elapsed(&self) -> Duration {
        self.finished_at.since(self.started_at)
    }

    pub(super) fn progress(&self, now: Instant) -> Progress {
        Progress {
            seconds: now.min(self.finished_at).since(self.started_at).as_secs_f64(),
            of_seconds: self.duration.as_secs_f64(),
            messages: self.messages,
            bytes: self.bytes(),
        }
    }

    /// Removes the server's counts of all connections and returns their sum.
    pub(super) fn server_counts(&mut self) -> Counts {
        let mut total = Counts::default();
        for counts in self.streams.values_mut().filter_map(|stream| stream.counts.take()) {
            total.messages += counts.messages;
            total.bytes += counts.bytes;
            total.corrupt += counts.corrupt;
            total.placed.merge(&counts.placed);
            // Each has the counters of the whole server; the latest are the highest.
            if counts.transport.engine.data_received >= total.transport.engine.data_received {
                total.transport = counts.transport;
            }
        }
        total
    }

    /// Sets the phase to that of the slowest connection.
    fn advance(&mut self, now: Instant) {
        let slowest = self.streams.values().map(|stream| stream.phase).min().unwrap_or(Phase::Done);
        if slowest <= self.phase {
            return;
        }
        if self.phase == Phase::Connecting {
            self.started_at = now;
        }
        if slowest >= Phase::Finishing && self.finished_at == Instant::FAR_FUTURE {
            self.finished_at = now;
        }
        self.phase = slowest;
    }

    /// Counts message `number` of a connection as complete and records its latency.
    fn on_complete(&mut self, connection: ConnectionId, number: u64, now: Instant) {
        let Some(stream) = self.streams.get_mut(&connection) else { return };
        let window = stream.submitted.len() as u64;
        let slot = slot(number, window);
        let Some(submitted_at) = stream.submitted[slot].take() else { return };
        self.messages += 1;
        self.latency.saturating_record(now.since(submitted_at).as_nanos());
        while stream.completed_below < stream.next
            && stream.submitted[self::slot(stream.completed_below, window)].is_none()
        {
            stream.completed_below += 1;
        }
    }

    fn check_reply(&mut self, connection: ConnectionId, number: u64) {
        let Some(stream) = self.streams.get(&connection) else { return };
        if stream.replies.is_empty() {
            return;
        }
        let number = wire_number(number);
        let start = self.plan.slot_start(number);
        let reply = &stream.replies[start..start + self.plan.message_bytes as usize];
        self.corrupt += u64::from(reply != self.pattern.piece(number, 0, reply.len()));
    }

    fn on_delivered(
        &mut self,
        connection: ConnectionId,
        message: u32,
        opcode: u8,
        length: u32,
        now: Instant,
    ) {
        let Some(stream) = self.streams.get_mut(&connection) else { return };
        match opcode {
            opcode::READY => stream.phase = stream.phase.max(Phase::Running),
            opcode::REFUSED => {
                let reason = String::from_utf8_lossy(&stream.control).into_owned();
                self.failure = Some(Failure::Refused(reason));
            }
            opcode::REPLY if length == self.plan.message_bytes => {
                // Replies come in the order of requests; the server's READY was message 0.
                let number = stream.completed_below;
                if wire_number(number) == message.wrapping_sub(1) {
                    self.check_reply(connection, number);
                    self.on_complete(connection, number, now);
                }
            }
            opcode::COUNTS => match serde_json::from_slice(&stream.control) {
                Ok(counts) => {
                    stream.counts = Some(counts);
                    stream.phase = Phase::Done;
                }
                Err(cause) => self.failure = Some(Failure::BadCounts(cause)),
            },
            _ => {}
        }
    }
}

impl Stream {
    /// Submits as many messages as the window permits.
    fn fill(&mut self, endpoint: &mut Endpoint, id: ConnectionId, plan: &Plan, now: Instant) {
        let window = self.submitted.len() as u64;
        while self.next < self.completed_below + window {
            let message = Message {
                token: self.next,
                opcode: opcode::LOAD,
                tag: 0,
                length: plan.message_bytes,
            };
            if endpoint.submit(now, id, message).is_err() {
                return;
            }
            self.submitted[slot(self.next, window)] = Some(now);
            self.next += 1;
        }
    }

    fn finish(&mut self, endpoint: &mut Endpoint, id: ConnectionId, now: Instant) {
        let message = Message { token: FINISH_TOKEN, opcode: opcode::FINISH, tag: 0, length: 0 };
        if endpoint.submit(now, id, message).is_ok() {
            self.phase = Phase::Finishing;
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "below the window, which is a usize")]
fn slot(number: u64, window: u64) -> usize {
    (number % window) as usize
}

#[expect(clippy::cast_possible_truncation, reason = "message numbers are modulo 2^32")]
fn wire_number(number: u64) -> u32 {
    number as u32
}

impl Application for Load {
    fn read(&mut self, _connection: ConnectionId, payload: Payload, out: &mut [u8]) {
        match payload.token {
            PLAN_TOKEN => {
                let start = payload.offset as usize;
                out.copy_from_slice(&self.plan_json[start..start + out.len()]);
            }
            number => {
                let number = wire_number(number);
                out.copy_from_slice(self.pattern.piece(number, payload.offset, out.len()));
            }
        }
    }

    fn place(&mut self, _now: Instant, placement: &Placement, bytes: &[u8]) {
        let Some(stream) = self.streams.get_mut(&placement.connection) else { return };
        let (into, start) = match placement.opcode {
            opcode::REPLY if placement.length == self.plan.message_bytes => {
                let number = placement.message.wrapping_sub(1);
                (&mut stream.replies, self.plan.slot_start(number))
            }
            opcode::REFUSED | opcode::COUNTS if placement.length <= MAX_ANSWER => {
                stream.control.resize(placement.length as usize, 0);
                (&mut stream.control, 0)
            }
            _ => return,
        };
        let start = start + placement.offset as usize;
        if let Some(place) = into.get_mut(start..start + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    }

    fn on_event(&mut self, endpoint: &mut Endpoint, now: Instant, event: Event) {
        match event {
            Event::Connected { connection } => {
                let length = u32::try_from(self.plan_json.len()).expect("a plan is short");
                let message = Message { token: PLAN_TOKEN, opcode: opcode::PLAN, tag: 0, length };
                if endpoint.submit(now, connection, message).is_err() {
                    self.failure = Some(Failure::Closed(CloseReason::Local));
                }
            }
            Event::Acked { connection, token }
                if token < PLAN_TOKEN && !self.plan.kind.replies() =>
            {
                self.on_complete(connection, token, now);
            }
            Event::Delivered { connection, message, opcode, length } => {
                self.on_delivered(connection, message, opcode, length, now);
            }
            Event::Closed { connection, reason } => {
                let stream = self.streams.get(&connection);
                if stream.is_some_and(|stream| stream.phase < Phase::Done) {
                    self.failure = Some(Failure::Closed(reason));
                }
            }
            _ => {}
        }
    }

    fn on_turn(&mut self, endpoint: &mut Endpoint, now: Instant) {
        self.advance(now);
        if self.phase != Phase::Running {
            return;
        }
        let may_submit = now < self.stop_at();
        for (&id, stream) in &mut self.streams {
            if stream.phase != Phase::Running {
                continue;
            }
            if may_submit {
                stream.fill(endpoint, id, &self.plan, now);
            } else if stream.completed_below == stream.next {
                stream.finish(endpoint, id, now);
            }
        }
        self.advance(now);
    }
}
