//! The server of measurements. It has no options: the first message of each connection is the plan that it runs.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use weft_transport::{
    ConnectionId, Endpoint, Event, Message, Payload, Placement, SubmitError, TransportConfig,
};
use weft_udp::{Agent, AgentConfig, Application, OpenError, SealConfig, WaitMode};
use weft_units::Instant;

use crate::pattern::Pattern;
use crate::plan::{MAX_PLAN, Plan, PlanError, SERVICE, opcode};
use crate::report::{Counts, TransportCounters};

/// Maximum memory for the messages of all connections, bytes.
const MAX_TOTAL_SLOT_BYTES: usize = 1 << 30;

/// The bit of the tokens of control messages. Other tokens are offsets in the slots of the load.
const CONTROL_TOKEN: u64 = 1 << 63;

/// The settings of a server.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// The address at which the server receives.
    pub local: SocketAddr,
    /// The transport of its connections; where both ends must agree, the smaller value applies.
    pub transport: TransportConfig,
    /// The encryption of its connections.
    pub encryption: SealConfig,
    /// The way in which the server waits for packets.
    pub wait: WaitMode,
}

/// A server of measurements.
#[derive(Debug)]
pub struct Server {
    agent: Agent,
    sessions: Sessions,
}

impl Server {
    /// Opens the server's sockets.
    ///
    /// # Errors
    /// Returns the [`OpenError`] of the agent.
    pub fn open(config: &ServerConfig) -> Result<Self, OpenError> {
        let mut agent = AgentConfig::new(config.local, config.transport.clone()).accepting();
        agent.wait = config.wait;
        agent.encryption = config.encryption.clone();
        Ok(Self { agent: Agent::open(&agent)?, sessions: Sessions::default() })
    }

    /// Returns the address and port that clients connect to.
    pub fn local(&self) -> SocketAddr {
        self.agent.local()
    }

    /// Returns the agent, for counters.
    pub fn agent(&mut self) -> &mut Agent {
        &mut self.agent
    }

    /// Serves until `stop` is set. It reads `stop` at least ten times per second.
    pub fn run(&mut self, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            self.step();
        }
    }

    /// Takes one turn of the loop; waits for at most 0.1 s.
    pub fn step(&mut self) {
        let _ = self.agent.step(&mut self.sessions, Instant::FAR_FUTURE);
        if self.sessions.wants_counts {
            self.sessions.wants_counts = false;
            let counters = TransportCounters::of(&mut self.agent);
            let now = self.agent.now();
            self.sessions.send_counts(self.agent.endpoint(), now, &counters);
        }
    }
}

/// Every connection's test.
#[derive(Debug, Default)]
struct Sessions {
    by_connection: BTreeMap<ConnectionId, Session>,
    slot_bytes: usize,
    wants_counts: bool,
}

/// One connection's test.
#[derive(Debug, Default)]
struct Session {
    state: State,
    /// Control messages in flight to the client, by token.
    control: BTreeMap<u64, Vec<u8>>,
}

#[derive(Debug, Default)]
enum State {
    /// The plan has not begun to arrive.
    #[default]
    Fresh,
    /// The received part of the plan.
    Planning(Vec<u8>),
    /// The load runs.
    Running(Box<Load>),
    /// The client's last message has arrived; the client waits for the counts.
    Finished(Box<Load>),
    /// The test ended or was refused: all later messages of the peer are ignored.
    Over,
}

/// A message that has arrived whole.
#[derive(Clone, Copy, Debug)]
struct Delivery {
    connection: ConnectionId,
    message: u32,
    opcode: u8,
    /// Its length, bytes.
    length: u32,
}

#[derive(Debug)]
struct Load {
    plan: Plan,
    pattern: Option<Pattern>,
    slots: Vec<u8>,
    counts: Counts,
}

/// The reason for which a server refuses a plan.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    /// No plan has arrived.
    #[error("the first message must be a test plan")]
    NoPlan,
    /// The plan is invalid.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The messages of all connections would need more memory than the server has for them.
    #[error(
        "this server keeps {} MiB for all its clients together; wait for others to finish, or ask for smaller or \
         fewer messages",
        MAX_TOTAL_SLOT_BYTES >> 20
    )]
    NoMemory,
}

impl Sessions {
    fn session(&mut self, connection: ConnectionId) -> &mut Session {
        self.by_connection.entry(connection).or_default()
    }

    /// Parses the plan and starts its load.
    ///
    /// # Errors
    /// Returns the [`Refusal`] of the plan.
    fn begin(&mut self, connection: ConnectionId) -> Result<(), Refusal> {
        let state = std::mem::take(&mut self.session(connection).state);
        let State::Planning(bytes) = state else {
            return Err(Refusal::NoPlan);
        };
        let plan = Plan::parse(&bytes)?;
        if self.slot_bytes + plan.slot_bytes() > MAX_TOTAL_SLOT_BYTES {
            return Err(Refusal::NoMemory);
        }
        self.slot_bytes += plan.slot_bytes();
        let load = Load {
            plan,
            pattern: plan.verify.then(|| Pattern::new(plan.message_bytes)),
            slots: vec![0; plan.slot_bytes()],
            counts: Counts::default(),
        };
        self.session(connection).state = State::Running(Box::new(load));
        Ok(())
    }

    fn on_delivered(&mut self, endpoint: &mut Endpoint, now: Instant, delivery: Delivery) {
        let Delivery { connection, message, opcode, length } = delivery;
        match (opcode, &mut self.session(connection).state) {
            (opcode::PLAN, State::Fresh | State::Planning(_)) => {
                let (opcode, answer) = match self.begin(connection) {
                    Ok(()) => (opcode::READY, Vec::new()),
                    Err(reason) => {
                        self.session(connection).state = State::Over;
                        (opcode::REFUSED, reason.to_string().into_bytes())
                    }
                };
                self.session(connection).send(endpoint, now, connection, opcode, answer);
            }
            (opcode::LOAD, State::Running(load)) if length == load.plan.message_bytes => {
                load.on_message(endpoint, now, connection, message);
            }
            (opcode::FINISH, State::Running(_)) => {
                let session = self.session(connection);
                if let State::Running(load) = std::mem::take(&mut session.state) {
                    session.state = State::Finished(load);
                }
                self.wants_counts = true;
            }
            (_, State::Over) => {}
            _ => {
                let session = self.session(connection);
                let released = session.slot_bytes();
                session.state = State::Over;
                self.slot_bytes -= released;
                endpoint.close(now, connection);
            }
        }
    }

    fn send_counts(&mut self, endpoint: &mut Endpoint, now: Instant, counters: &TransportCounters) {
        for (&connection, session) in &mut self.by_connection {
            let State::Finished(load) = &mut session.state else { continue };
            self.slot_bytes -= load.plan.slot_bytes();
            let counts = std::mem::take(&mut load.counts);
            let counts = Counts { transport: counters.clone(), ..counts };
            session.state = State::Over;
            let json = serde_json::to_vec(&counts).expect("counts are numbers and names");
            session.send(endpoint, now, connection, opcode::COUNTS, json);
        }
    }
}

impl Session {
    fn send(
        &mut self,
        endpoint: &mut Endpoint,
        now: Instant,
        connection: ConnectionId,
        opcode: u8,
        bytes: Vec<u8>,
    ) {
        let token = CONTROL_TOKEN | u64::from(opcode);
        let length = u32::try_from(bytes.len()).expect("control messages are short");
        self.control.insert(token, bytes);
        submit(endpoint, now, connection, Message { token, opcode, tag: 0, length });
    }

    /// Returns the memory of its load, bytes.
    fn slot_bytes(&self) -> usize {
        self.load().map_or(0, |load| load.plan.slot_bytes())
    }

    fn load(&self) -> Option<&Load> {
        match &self.state {
            State::Running(load) | State::Finished(load) => Some(load),
            State::Fresh | State::Planning(_) | State::Over => None,
        }
    }
}

impl Load {
    /// Counts a delivered message of the load, and answers it if the plan has replies.
    fn on_message(
        &mut self,
        endpoint: &mut Endpoint,
        now: Instant,
        connection: ConnectionId,
        message: u32,
    ) {
        let number = load_number(message);
        self.counts.messages += 1;
        self.counts.bytes += u64::from(self.plan.message_bytes);
        let start = self.plan.slot_start(number);
        let length = self.plan.message_bytes;
        if let Some(pattern) = &self.pattern {
            let slot = &self.slots[start..start + length as usize];
            self.counts.corrupt += u64::from(slot != pattern.piece(number, 0, slot.len()));
        }
        if self.plan.kind.replies() {
            let token = start as u64;
            submit(
                endpoint,
                now,
                connection,
                Message { token, opcode: opcode::REPLY, tag: 0, length },
            );
        }
    }

    fn place(&mut self, now: Instant, placement: &Placement, bytes: &[u8]) {
        if placement.length != self.plan.message_bytes {
            return;
        }
        let start = self.plan.slot_start(load_number(placement.message));
        let start = start + placement.offset as usize;
        self.slots[start..start + bytes.len()].copy_from_slice(bytes);
        self.counts.placed.add(now, bytes.len() as u64);
    }
}

/// Returns a message's number in the load: message 0 is the plan.
fn load_number(message: u32) -> u32 {
    message.wrapping_sub(1)
}

fn submit(endpoint: &mut Endpoint, now: Instant, connection: ConnectionId, message: Message) {
    match endpoint.submit(now, connection, message) {
        // A connection that ends before its answer needs none; `Closed` follows.
        Ok(()) | Err(SubmitError::Closing | SubmitError::UnknownConnection) => {}
        // The client has more messages outstanding than its plan permits.
        Err(_) => endpoint.close(now, connection),
    }
}

impl Application for Sessions {
    fn read(&mut self, connection: ConnectionId, payload: Payload, out: &mut [u8]) {
        let Some(session) = self.by_connection.get(&connection) else { return };
        let offset = payload.offset as usize;
        let bytes = match session.control.get(&payload.token) {
            Some(bytes) => bytes.get(offset..),
            None => session
                .load()
                .and_then(|load| load.slots.get(usize::try_from(payload.token).ok()? + offset..)),
        };
        if let Some(bytes) = bytes.and_then(|bytes| bytes.get(..out.len())) {
            out.copy_from_slice(bytes);
        }
    }

    fn place(&mut self, now: Instant, placement: &Placement, bytes: &[u8]) {
        let Some(session) = self.by_connection.get_mut(&placement.connection) else { return };
        match (&mut session.state, placement.opcode) {
            (State::Running(load), opcode::LOAD) => load.place(now, placement, bytes),
            (State::Fresh, opcode::PLAN) if placement.length <= MAX_PLAN => {
                let mut plan = vec![0; placement.length as usize];
                copy_at(&mut plan, placement.offset, bytes);
                session.state = State::Planning(plan);
            }
            (State::Planning(plan), opcode::PLAN) => copy_at(plan, placement.offset, bytes),
            _ => {}
        }
    }

    fn on_event(&mut self, endpoint: &mut Endpoint, now: Instant, event: Event) {
        match event {
            Event::Accepted { connection, service } if service != SERVICE => {
                endpoint.close(now, connection);
            }
            Event::Accepted { connection, .. } => {
                self.by_connection.insert(connection, Session::default());
            }
            Event::Delivered { connection, message, opcode, length } => {
                let delivery = Delivery { connection, message, opcode, length };
                self.on_delivered(endpoint, now, delivery);
            }
            Event::Acked { connection, token } if token & CONTROL_TOKEN != 0 => {
                self.session(connection).control.remove(&token);
            }
            Event::Closed { connection, .. } => {
                if let Some(session) = self.by_connection.remove(&connection) {
                    self.slot_bytes -= session.slot_bytes();
                }
            }
            _ => {}
        }
    }
}

/// Copies a piece to its offset in a message. A piece that exceeds the message is ignored: the pieces of a peer's
/// message may state different lengths.
fn copy_at(message: &mut [u8], offset: u32, bytes: &[u8]) {
    let start = offset as usize;
    if let Some(place) = message.get_mut(start..start + bytes.len()) {
        place.copy_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use weft_transport::{CloseReason, EndpointConfig, Secret};
    use weft_units::Seed;

    use super::*;
    use crate::plan::TestKind;

    const CONNECTION: ConnectionId = ConnectionId(7);

    fn endpoint() -> Endpoint {
        let config = EndpointConfig {
            transport: TransportConfig::stellar(),
            receive_port: 4791,
            thread_id: 0,
            accept: true,
            max_connections: 1,
        };
        Endpoint::new(config, Seed(1), Secret::from_seed(Seed(1))).unwrap()
    }

    /// Starts the load of a plan on a connection.
    fn start(sessions: &mut Sessions, endpoint: &mut Endpoint, plan: Plan) {
        let plan = plan.to_json();
        sessions.session(CONNECTION).state = State::Planning(plan.clone());
        let length = u32::try_from(plan.len()).unwrap();
        let (connection, opcode) = (CONNECTION, opcode::PLAN);
        let delivery = Delivery { connection, message: 0, opcode, length };
        sessions.on_delivered(endpoint, Instant::EPOCH, delivery);
    }

    #[test]
    fn a_violation_of_the_protocol_releases_the_memory_of_the_load() {
        let plan = Plan::new(TestKind::Throughput, 1000, 4, false).unwrap();
        for (opcode, length) in [(opcode::PLAN, 10), (opcode::LOAD, 999), (opcode::COUNTS, 0)] {
            let (mut sessions, mut endpoint) = (Sessions::default(), endpoint());
            start(&mut sessions, &mut endpoint, plan);
            assert_eq!(sessions.slot_bytes, 4000);
            let delivery = Delivery { connection: CONNECTION, message: 1, opcode, length };
            sessions.on_delivered(&mut endpoint, Instant::EPOCH, delivery);
            let closed = Event::Closed { connection: CONNECTION, reason: CloseReason::Local };
            sessions.on_event(&mut endpoint, Instant::EPOCH, closed);
            assert_eq!(sessions.slot_bytes, 0, "opcode {opcode}");
        }
    }
}
