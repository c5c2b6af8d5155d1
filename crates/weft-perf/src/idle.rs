//! The measurement of idle connections' memory and set-up time: many connections over loopback with real handshakes,
//! both ends in this process.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use serde::Serialize;
use weft_transport::{
    ConnectError, ConnectionId, Endpoint, Event, Message, Payload, Placement, TransportConfig,
};
use weft_udp::{Agent, AgentConfig, Application, OpenError, SealConfig, WaitMode};
use weft_units::{Duration, Instant};

/// Maximum number of concurrent handshakes: half of those whose packets fit the receive buffer.
const MAX_HANDSHAKES: u32 = 512;

/// Time limit of the set-up, and of the messages after it.
const TIME_LIMIT: Duration = Duration::from_secs(120);

/// The result of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct IdleReport {
    /// Number of connections, each with both ends in this process.
    pub connections: u32,
    /// Time until all were set up, seconds.
    pub setup_seconds: f64,
    /// Resident size before the first connection, bytes; it includes the sockets' buffers.
    pub resident_before: u64,
    /// Resident size with all connections, before any carried a message, bytes.
    pub resident_idle: u64,
    /// Resident size after each connection carried a message and became idle again, bytes.
    pub resident_rested: u64,
}

impl IdleReport {
    /// Returns the mean memory of a connection, both ends together, bytes.
    pub fn bytes_per_connection(&self) -> f64 {
        self.share(self.resident_idle)
    }

    /// Returns the mean memory of a connection, both ends together, after it carried a message and became idle again,
    /// bytes.
    pub fn bytes_per_rested_connection(&self) -> f64 {
        self.share(self.resident_rested)
    }

    #[expect(clippy::cast_precision_loss, reason = "printed, not computed with")]
    fn share(&self, resident: u64) -> f64 {
        resident.saturating_sub(self.resident_before) as f64 / f64::from(self.connections.max(1))
    }
}

/// An error of a measurement.
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
    /// Connections were lost, or the time limit passed.
    #[error("{ready} of {wanted} connections were ready after {seconds} s, {closed} closed")]
    Unfinished {
        /// Connections that are ready.
        ready: u32,
        /// Connections requested.
        wanted: u32,
        /// Connections that closed.
        closed: u32,
        /// The time limit, seconds.
        seconds: u64,
    },
}

/// Sets up `connections` connections with this encryption, sends a message on each, and returns the resident size of
/// this process before, between and after. Calls `observe` with the number of connections that are ready.
///
/// # Errors
/// Returns the [`IdleError`] that ended the measurement.
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

/// Both ends, stepped alternately on one thread.
struct Pair {
    client: Agent,
    server: Agent,
    client_ends: Ends,
    server_ends: Ends,
}

/// The connections of one side, and the numbers of their events.
#[derive(Debug, Default)]
struct Ends {
    ready: Vec<ConnectionId>,
    closed: u32,
    acked: u32,
}

impl Pair {
    fn open(connections: u32, encryption: &SealConfig) -> Result<Self, IdleError> {
        let transport = TransportConfig {
            // No connection may end or send while the others are set up and measured.
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
        Ok(Self { client, server, client_ends: Ends::default(), server_ends: Ends::default() })
    }

    fn connect_all(
        &mut self,
        connections: u32,
        observe: &mut impl FnMut(u32),
    ) -> Result<(), IdleError> {
        let to = self.server.local();
        let mut requested = 0;
        self.client_ends.ready.reserve_exact(connections as usize);
        self.server_ends.ready.reserve_exact(connections as usize);
        self.run_until(connections, |pair| {
            let ready = count(&pair.client_ends.ready);
            let now = pair.client.now();
            while requested < connections && requested - ready < MAX_HANDSHAKES {
                pair.client.endpoint().connect(now, to, 0)?;
                requested += 1;
            }
            observe(ready);
            Ok(ready == connections && count(&pair.server_ends.ready) == connections)
        })
    }

    fn carry_one_each(&mut self, connections: u32) -> Result<(), IdleError> {
        let mut submitted = 0;
        self.run_until(connections, |pair| {
            let now = pair.client.now();
            while submitted < connections && submitted - pair.client_ends.acked < MAX_HANDSHAKES {
                let id = pair.client_ends.ready[submitted as usize];
                let message = Message { token: 0, opcode: 0, tag: 0, length: 64 };
                // A connection that was lost meanwhile is counted as closed.
                let _ = pair.client.endpoint().submit(now, id, message);
                submitted += 1;
            }
            Ok(pair.client_ends.acked == connections)
        })
    }

    fn rest(&mut self, span: Duration) {
        let until = self.client.now() + span;
        while self.client.now() < until {
            self.turn();
        }
    }

    /// Runs both ends until `done` returns `true`.
    ///
    /// # Errors
    /// Returns `Unfinished` if a connection closes or after [`TIME_LIMIT`], or the error of `done`.
    fn run_until(
        &mut self,
        wanted: u32,
        mut done: impl FnMut(&mut Self) -> Result<bool, IdleError>,
    ) -> Result<(), IdleError> {
        let deadline = self.client.now() + TIME_LIMIT;
        while !done(self)? {
            self.turn();
            let closed = self.client_ends.closed + self.server_ends.closed;
            if closed > 0 || self.client.now() >= deadline {
                let ready = count(&self.client_ends.ready);
                let seconds = TIME_LIMIT.as_nanos() / 1_000_000_000;
                return Err(IdleError::Unfinished { ready, wanted, closed, seconds });
            }
        }
        Ok(())
    }

    /// Gives both ends a turn. If neither had work, the client sleeps for a millisecond or until a packet arrives.
    fn turn(&mut self) {
        let server_turn = self.server.turn(&mut self.server_ends);
        let pause = self.client.now() + Duration::from_millis(u64::from(!server_turn.worked()));
        let _ = self.client.step(&mut self.client_ends, pause);
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
            Event::Acked { .. } => self.acked += 1,
            Event::Closed { .. } => self.closed += 1,
            _ => {}
        }
    }
}

/// Returns the resident size of this process, bytes.
fn resident() -> Result<u64, io::Error> {
    let statm = fs::read_to_string("/proc/self/statm")?;
    let pages = statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
    let pages = pages.ok_or_else(|| io::Error::other(format!("unexpected contents {statm:?}")))?;
    Ok(pages * rustix::param::page_size() as u64)
}
