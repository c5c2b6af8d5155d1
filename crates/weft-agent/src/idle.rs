//! What a connection costs that does nothing: many of them, set up with real handshakes over
//! loopback, both ends in this process.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use serde::Serialize;
use weft_transport::{
    ConnectError, ConnectionId, Endpoint, Event, Message, Payload, Placement, TransportConfig,
};
use weft_units::{Duration, Instant};

use crate::{Agent, AgentConfig, Application, OpenError, SealConfig, WaitMode};

/// Handshakes under way at a time: as many as the receive buffer holds twice over.
const UNDER_WAY: u32 = 512;

/// How long everything may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// What was measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct IdleReport {
    /// Connections, each with both ends in this process.
    pub connections: u32,
    /// Until all were set up, seconds.
    pub setup_seconds: f64,
    /// Resident size before the first, bytes; sockets' buffers are in it.
    pub resident_before: u64,
    /// Resident size with all of them, before any carried a message, bytes.
    pub resident_idle: u64,
    /// Resident size after each carried a message and rested, bytes.
    pub resident_rested: u64,
}

impl IdleReport {
    /// Bytes a connection, its two ends together.
    pub fn bytes_per_connection(&self) -> f64 {
        self.share(self.resident_idle)
    }

    /// Bytes a connection, its two ends together, after it carried a message and rested.
    pub fn bytes_per_rested_connection(&self) -> f64 {
        self.share(self.resident_rested)
    }

    #[expect(clippy::cast_precision_loss, reason = "printed, not computed with")]
    fn share(&self, resident: u64) -> f64 {
        resident.saturating_sub(self.resident_before) as f64 / f64::from(self.connections.max(1))
    }
}

/// Why it could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum IdleError {
    /// Sockets or endpoint could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Too many connections.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The process's size cannot be read.
    #[error("cannot read this process's size from /proc/self/statm: {0}")]
    Size(#[from] io::Error),
    /// Connections were lost, or took too long.
    #[error("{ready} of {wanted} connections were ready after {seconds} s, {closed} closed")]
    Unfinished {
        /// Ready for use.
        ready: u32,
        /// Asked for.
        wanted: u32,
        /// Closed again.
        closed: u32,
        /// How long was waited.
        seconds: u64,
    },
}

/// Sets `connections` up, encrypted so, lets each carry a message, and measures this process before, between and
/// after. `observe` hears how many are ready.
///
/// # Errors
/// See [`IdleError`].
pub fn measure(
    connections: u32,
    encryption: &SealConfig,
    mut observe: impl FnMut(u32),
) -> Result<IdleReport, IdleError> {
    let mut pair = Pair::open(connections, encryption)?;
    let resident_before = resident()?;
    let began = pair.client.now();
    pair.connect_all(connections, &mut observe)?;
    let setup_seconds = pair.client.now().since(began).as_secs_f64();
    let resident_idle = resident()?;
    pair.carry_one_each(connections)?;
    pair.rest(Duration::from_secs(2));
    let resident_rested = resident()?;
    Ok(IdleReport { connections, setup_seconds, resident_before, resident_idle, resident_rested })
}

/// Both ends, stepped by turns on one thread.
struct Pair {
    client: Agent,
    server: Agent,
    asked: Ends,
    answered: Ends,
}

/// What one side's connections went through.
#[derive(Debug, Default)]
struct Ends {
    ready: Vec<ConnectionId>,
    closed: u32,
    sent: u32,
}

impl Pair {
    fn open(connections: u32, encryption: &SealConfig) -> Result<Self, IdleError> {
        let transport = TransportConfig {
            // None may end, or speak, while the others are set up and measured.
            idle_timeout: Duration::from_secs(3600),
            keepalive_interval: Duration::ZERO,
            peer_timeout: Duration::from_secs(30),
            ..AgentConfig::ethernet(4)
        };
        let local = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
        let mut config = AgentConfig::new(local, transport);
        config.max_connections = connections;
        config.wait = WaitMode::Block;
        config.encryption = encryption.clone();
        let client = Agent::open(&config)?;
        let server = Agent::open(&config.accepting())?;
        Ok(Self { client, server, asked: Ends::default(), answered: Ends::default() })
    }

    fn connect_all(
        &mut self,
        connections: u32,
        observe: &mut impl FnMut(u32),
    ) -> Result<(), IdleError> {
        let to = self.server.local();
        let mut asked = 0;
        self.asked.ready.reserve_exact(connections as usize);
        self.answered.ready.reserve_exact(connections as usize);
        self.until(connections, |pair| {
            let ready = count(&pair.asked.ready);
            let now = pair.client.now();
            while asked < connections && asked - ready < UNDER_WAY {
                pair.client.endpoint().connect(now, to, 0)?;
                asked += 1;
            }
            observe(ready);
            Ok(ready == connections && count(&pair.answered.ready) == connections)
        })
    }

    fn carry_one_each(&mut self, connections: u32) -> Result<(), IdleError> {
        let mut submitted = 0;
        self.until(connections, |pair| {
            let now = pair.client.now();
            while submitted < connections && submitted - pair.asked.sent < UNDER_WAY {
                let id = pair.asked.ready[submitted as usize];
                let message = Message { token: 0, opcode: 0, tag: 0, length: 64 };
                // A connection that was lost meanwhile shows as closed.
                let _ = pair.client.endpoint().submit(now, id, message);
                submitted += 1;
            }
            Ok(pair.asked.sent == connections)
        })
    }

    fn rest(&mut self, span: Duration) {
        let until = self.client.now() + span;
        while self.client.now() < until {
            self.turn();
        }
    }

    fn until(
        &mut self,
        wanted: u32,
        mut done: impl FnMut(&mut Self) -> Result<bool, IdleError>,
    ) -> Result<(), IdleError> {
        let deadline = self.client.now() + PATIENCE;
        while !done(self)? {
            self.turn();
            let closed = self.asked.closed + self.answered.closed;
            if closed > 0 || self.client.now() >= deadline {
                let ready = count(&self.asked.ready);
                let seconds = PATIENCE.as_nanos() / 1_000_000_000;
                return Err(IdleError::Unfinished { ready, wanted, closed, seconds });
            }
        }
        Ok(())
    }

    /// Both ends take a turn; when neither had anything to do, one sleeps for a millisecond or
    /// until a packet comes.
    fn turn(&mut self) {
        let answered = self.server.turn(&mut self.answered);
        let pause = self.client.now() + Duration::from_millis(u64::from(!answered.worked()));
        let _ = self.client.step(&mut self.asked, pause);
    }
}

fn count(connections: &[ConnectionId]) -> u32 {
    u32::try_from(connections.len()).expect("connections are counted in 32 bits")
}

impl Application for Ends {
    fn read(&mut self, _connection: ConnectionId, _payload: Payload, out: &mut [u8]) {
        out.fill(0);
    }

    fn place(&mut self, _now: Instant, _placement: &Placement, _bytes: &[u8]) {}

    fn on_event(&mut self, _endpoint: &mut Endpoint, _now: Instant, event: Event) {
        match event {
            Event::Connected { connection } | Event::Accepted { connection, .. } => {
                self.ready.push(connection);
            }
            Event::Sent { .. } => self.sent += 1,
            Event::Closed { .. } => self.closed += 1,
            _ => {}
        }
    }
}

/// Resident size of this process, bytes.
fn resident() -> Result<u64, io::Error> {
    let statm = fs::read_to_string("/proc/self/statm")?;
    let pages = statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
    let pages = pages.ok_or_else(|| io::Error::other(format!("unexpected contents {statm:?}")))?;
    Ok(pages * rustix::param::page_size() as u64)
}
