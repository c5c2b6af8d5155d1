//! The client of a measurement: connects, sends the plan, drives the load, requests the server's
//! counts and builds the report.

use std::net::SocketAddr;

use weft_transport::{CloseReason, ConnectError, TransportConfig};
use weft_udp::{Agent, AgentConfig, OpenError, SealConfig, WaitMode};
use weft_units::{Duration, Instant};

use crate::PlanError;
use crate::plan::{Plan, SERVICE};
use crate::report::{Encryption, LatencyMicros, Report, TransportCounters};

mod load;

use load::{Load, Phase};

/// Maximum time after the load until the server's counts arrive.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// The interval between progress reports of [`Client::run`].
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// The settings of a measurement.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// Address to send from and receive on; may be the unspecified address and port zero.
    pub local: SocketAddr,
    /// The server's address.
    pub server: SocketAddr,
    /// The transport of the connections.
    pub transport: TransportConfig,
    /// The load of each connection.
    pub plan: Plan,
    /// Number of connections; zero counts as one.
    pub connections: u32,
    /// Time for which new messages are sent.
    pub duration: Duration,
    /// The encryption of the connections.
    pub encryption: SealConfig,
    /// The way in which the client waits for packets.
    pub wait: WaitMode,
}

/// An error of a measurement.
#[derive(Debug, thiserror::Error)]
pub enum PerfError {
    /// Sockets or endpoint could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Too many connections were requested.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The plan cannot be run.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The server did not answer.
    #[error(
        "no answer from {server}; is `weft perf server` running there, does UDP port {port} pass \
         every firewall in both directions, and is {server} its address as seen from here?"
    )]
    Unreachable {
        /// The server's address.
        server: SocketAddr,
        /// Its port.
        port: u16,
    },
    /// Small packets passed; full packets exceed the interface's MTU.
    #[error(
        "packets of {mtu} bytes and their headers do not fit this interface's MTU; lower the \
         packet size (1440 fits an Ethernet of 1500 bytes)"
    )]
    PacketsTooBig {
        /// Configured payload of one packet, bytes.
        mtu: u16,
    },
    /// The server refused the plan.
    #[error("{server} refused the test: {reason}")]
    Refused {
        /// The server's address.
        server: SocketAddr,
        /// The server's reason.
        reason: String,
    },
    /// A connection ended before its test did.
    #[error("the connection to {server} ended during the test: {reason:?}")]
    Lost {
        /// The server's address.
        server: SocketAddr,
        /// The reason.
        reason: CloseReason,
    },
    /// The load is complete, but the server's counts or some acknowledgements did not arrive.
    #[error("{server} did not finish the test within {seconds} s of its last message")]
    Stalled {
        /// The server's address.
        server: SocketAddr,
        /// The time waited, seconds.
        seconds: u64,
    },
    /// The counts cannot be parsed by this version.
    #[error(
        "{server} sent counts this side does not understand ({cause}); run the same weft on both ends"
    )]
    BadCounts {
        /// The server's address.
        server: SocketAddr,
        /// The parser's error.
        cause: serde_json::Error,
    },
}

/// The progress of a measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Progress {
    /// Time since the load began, seconds; zero before.
    pub seconds: f64,
    /// Total time for which new messages are sent, seconds.
    pub of_seconds: f64,
    /// Messages that are acknowledged or, with replies, answered.
    pub messages: u64,
    /// Bytes of these messages.
    pub bytes: u64,
}

/// A measurement that is ready to run.
#[derive(Debug)]
pub struct Client {
    agent: Agent,
    config: ClientConfig,
}

impl Client {
    /// Opens the client's sockets.
    ///
    /// # Errors
    /// Returns the [`OpenError`] of the agent.
    pub fn open(config: ClientConfig) -> Result<Self, OpenError> {
        let mut agent = AgentConfig::new(config.local, config.transport.clone());
        agent.wait = config.wait;
        agent.encryption = config.encryption.clone();
        Ok(Self { agent: Agent::open(&agent)?, config })
    }

    /// Sets the address to which [`Self::run`] connects, such as that of a relay before the server.
    pub fn set_server(&mut self, server: SocketAddr) {
        self.config.server = server;
    }

    /// Returns the agent, for its address, counters and source ports.
    pub fn agent(&mut self) -> &mut Agent {
        &mut self.agent
    }

    /// Runs the measurement to its end and returns its report. Calls `observe` with its progress ten times per second.
    ///
    /// # Errors
    /// Returns the [`PerfError`] that ended the measurement.
    pub fn run(mut self, mut observe: impl FnMut(&Progress)) -> Result<Report, PerfError> {
        let mut load = Load::new(self.config.plan, self.config.duration);
        for _ in 0..self.config.connections.max(1) {
            let now = self.agent.now();
            let id = self.agent.endpoint().connect(now, self.config.server, SERVICE)?;
            load.add(id);
        }
        let mut observed_at = self.agent.now();
        let mut give_up_at = Instant::FAR_FUTURE;
        loop {
            let until = give_up_at.min(load.stop_at());
            let _ = self.agent.step(&mut load, until);
            if let Some(reason) = load.take_failure() {
                return Err(self.explain(&load, reason));
            }
            let now = self.agent.now();
            match load.phase() {
                Phase::Done => break,
                Phase::Finishing if give_up_at == Instant::FAR_FUTURE => {
                    give_up_at = now + DRAIN_TIMEOUT;
                }
                Phase::Finishing if now >= give_up_at => return Err(self.stalled()),
                Phase::Connecting | Phase::Running | Phase::Finishing => {}
            }
            if now.since(observed_at) >= PROGRESS_INTERVAL {
                observed_at = now;
                observe(&load.progress(now));
            }
        }
        self.report(load)
    }

    fn stalled(&self) -> PerfError {
        let seconds = DRAIN_TIMEOUT.as_nanos() / 1_000_000_000;
        PerfError::Stalled { server: self.config.server, seconds }
    }

    /// Returns the error for a failure of the load.
    fn explain(&self, load: &Load, failure: load::Failure) -> PerfError {
        let server = self.config.server;
        let too_big = self.agent.sockets().outbox.counters().too_big > 0;
        match failure {
            load::Failure::Closed(CloseReason::ConnectTimeout) => {
                PerfError::Unreachable { server, port: server.port() }
            }
            load::Failure::Closed(_) if too_big && load.messages() == 0 => {
                PerfError::PacketsTooBig { mtu: self.config.transport.mtu }
            }
            load::Failure::Closed(reason) => PerfError::Lost { server, reason },
            load::Failure::Refused(reason) => PerfError::Refused { server, reason },
            load::Failure::BadCounts(cause) => PerfError::BadCounts { server, cause },
        }
    }

    /// Closes every connection, so that the server frees them at once, and returns the report.
    fn report(mut self, load: Load) -> Result<Report, PerfError> {
        // Keys are removed with their connections.
        let encryption = Encryption::of(&self.agent, load.connections());
        let now = self.agent.now();
        for id in load.connections() {
            self.agent.endpoint().close(now, id);
        }
        let mut load = load;
        let _ = self.agent.turn(&mut load);
        let seconds = load.elapsed().as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "counts of one run are far below 2^53")]
        let rate = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
        let server = load.server_counts();
        Ok(Report {
            plan: self.config.plan,
            connections: self.config.connections.max(1),
            paths: self.config.transport.paths,
            policy: self.config.transport.policy.name().to_owned(),
            congestion: self.config.transport.congestion.name().to_owned(),
            encryption,
            seconds,
            messages: load.messages(),
            messages_per_second: rate(load.messages()),
            goodput_bps: rate(load.bytes() * 8),
            latency_us: LatencyMicros::of(load.latency()),
            corrupt: load.corrupt() + server.corrupt,
            placed: server.placed,
            client: TransportCounters::of(&mut self.agent),
            server: server.transport,
        })
    }
}
