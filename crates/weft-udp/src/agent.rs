//! An endpoint with sockets, a clock and a way to wait.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use weft_seal::{SealConfig, Seals};
use weft_transport::{ConfigError, Endpoint, EndpointConfig, Secret, TransportConfig, congestion};
use weft_units::{Duration, Instant, Seed};

use crate::delay_line::DelayLine;
use crate::encryption::{KeyLog, leave_room};
use crate::port::{Port, PortConfig};
use crate::sockets::{SocketConfig, SocketError, Sockets};
use crate::wait::{MAX_SLEEP, Waiter};
use crate::{Application, Clock, Turn, WaitMode};

/// The settings of an agent.
#[derive(Clone, Debug)]
pub struct AgentConfig {
    /// The sockets. `paths` is taken from `transport`.
    pub sockets: SocketConfig,
    /// The transport of its connections. Where they may be encrypted, packets keep room for that.
    pub transport: TransportConfig,
    /// The encryption of its connections.
    pub encryption: SealConfig,
    /// Index of the thread that runs it, which its connections announce to peers.
    pub thread_id: u8,
    /// `true` if peers may connect.
    pub accept: bool,
    /// Maximum number of connections, at most 2^24. Fewer make their ids harder to guess
    /// (`docs/design/connections.md`).
    pub max_connections: u32,
    /// The way to wait between turns.
    pub wait: WaitMode,
    /// Delay added to each packet from these addresses, as over longer cables. If empty, no packet
    /// is delayed.
    pub delays: BTreeMap<IpAddr, Duration>,
    /// `true` if connections to one address share their path measurements. Otherwise each measures
    /// alone.
    pub share_paths: bool,
    /// The port's rate, for a kernel that does not report a full queue; `None` sends whatever the
    /// kernel accepts.
    pub port: Option<PortConfig>,
}

/// The congestion control of real packets where the settings choose none.
const ETHERNET_CONGESTION: congestion::Kind = congestion::Kind::Weft;

impl AgentConfig {
    /// Returns the settings of an agent on `local` with this transport; it does not accept
    /// connections.
    pub fn new(local: SocketAddr, transport: TransportConfig) -> Self {
        Self {
            sockets: SocketConfig::new(local, transport.paths),
            transport,
            encryption: SealConfig::default(),
            thread_id: 0,
            accept: false,
            max_connections: 1 << 17,
            wait: WaitMode::default(),
            delays: BTreeMap::new(),
            share_paths: true,
            port: None,
        }
    }

    /// Returns the same settings, with connections accepted.
    #[must_use]
    pub fn accepting(mut self) -> Self {
        self.accept = true;
        self
    }

    /// Returns a transport for real packets on an Ethernet of 1500 bytes. Bursts of 44 packets, as
    /// many as one system call carries, take one path (`docs/design/agent-sockets.md` gives the
    /// cost of shorter bursts). The window and the RTO suit a host with a scheduler, whose round
    /// trips vary by milliseconds.
    pub fn ethernet(paths: u16) -> TransportConfig {
        let bifrost = TransportConfig::bifrost();
        TransportConfig {
            paths,
            congestion: ETHERNET_CONGESTION,
            spray_unit: 44,
            line_rate: weft_units::BitRate::gbps(40).expect("not zero"),
            base_rtt: Duration::from_micros(300),
            first_window: 64 << 10,
            queue_target: Duration::from_millis(2),
            send_window: 2048,
            reorder_window: 4096,
            ack_every: 44,
            keepalive_interval: Duration::ZERO,
            ..bifrost
        }
    }
}

/// The errors of opening an agent.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The transport's configuration is invalid.
    #[error("transport configuration: {0}")]
    Config(#[from] ConfigError),
    /// The sockets could not be opened.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The operating system gave no random numbers.
    #[error("no random numbers from the operating system: {0}")]
    Entropy(#[from] getrandom::Error),
}

/// Counters of an agent beside those of its engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct AgentCounters {
    /// Datagrams received, of any kind.
    pub datagrams_received: u64,
    /// Datagrams that are no packet of this protocol, or that belong to no connection here.
    pub malformed: u64,
    /// Receive calls that failed.
    pub receive_errors: u64,
}

/// One thread's end of the transport. See the crate's front page. After a fork only one of the two
/// processes may use it: both would number packets alike.
#[derive(Debug)]
pub struct Agent {
    pub(crate) endpoint: Endpoint,
    pub(crate) sockets: Sockets,
    pub(crate) seals: Seals,
    key_log: Option<KeyLog>,
    pub(crate) clock: Clock,
    pub(crate) counters: AgentCounters,
    pub(crate) kernel_timestamps: bool,
    /// The next time to read the sockets that only send.
    pub(crate) look_for_strays: Instant,
    pub(crate) delay_line: DelayLine,
    pub(crate) port: Option<Port>,
    waiter: Waiter,
}

impl Agent {
    /// Opens sockets and an endpoint, seeded by the operating system.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(config: &AgentConfig) -> Result<Self, OpenError> {
        let sockets = Sockets::open(&SocketConfig {
            paths: config.transport.paths,
            ..config.sockets.clone()
        })?;
        let transport = leave_room(config.transport.clone(), &config.encryption);
        let mtu = transport.mtu;
        let endpoint = Endpoint::new(
            EndpointConfig {
                transport: transport.clone(),
                receive_port: sockets.local().port(),
                thread_id: config.thread_id,
                accept: config.accept,
                max_connections: config.max_connections,
            },
            Seed(u64::from_le_bytes(random()?)),
            Secret::new(random()?),
        )?;
        let endpoint = if config.share_paths { endpoint.with_shared_ports(1) } else { endpoint };
        let seals = Seals::new(config.encryption.clone(), random()?);
        let endpoint = if seals.is_on() { endpoint.with_ended() } else { endpoint };
        let clock = Clock;
        Ok(Self {
            endpoint,
            sockets,
            seals,
            key_log: None,
            clock,
            counters: AgentCounters::default(),
            kernel_timestamps: config.sockets.kernel_timestamps,
            look_for_strays: Instant::EPOCH,
            delay_line: DelayLine::new(config.delays.clone()),
            port: config.port.map(|port| Port::new(port, mtu)),
            waiter: Waiter::new(config.wait, clock),
        })
    }

    /// Returns the engine, for commands and counters.
    pub fn endpoint(&mut self) -> &mut Endpoint {
        &mut self.endpoint
    }

    /// Returns the sockets, for counters.
    pub fn sockets(&self) -> &Sockets {
        &self.sockets
    }

    /// Returns the encryption, for counters.
    pub fn seals(&self) -> &Seals {
        &self.seals
    }

    /// Appends the keys of its connections to a file from now on; [`SealConfig::key_log`] must ask for them.
    pub fn log_keys(&mut self, log: KeyLog) {
        self.key_log = Some(log);
    }

    /// Returns the counters beside those of the engine.
    pub fn counters(&self) -> AgentCounters {
        self.counters
    }

    /// Returns the time of this agent's clock.
    pub fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Returns the address and port that peers connect to.
    pub fn local(&self) -> SocketAddr {
        self.sockets.local()
    }

    /// Takes a turn. If it had nothing to do, waits as configured until `until`, but at most 0.1 s.
    pub fn step(&mut self, application: &mut impl Application, until: Instant) -> Turn {
        let turn = self.turn(application);
        if turn.worked() && self.sockets.outbox.waiting() == 0 {
            self.waiter.worked();
            return turn;
        }
        let until = until.min(self.next_due()).min(self.clock.now() + MAX_SLEEP);
        self.waiter.wait(self.sockets.readable(), self.sockets.outbox.blocked(), until);
        turn
    }

    /// Removes the keys of closed connections and logs those of new ones.
    pub(crate) fn keep_keys(&mut self) {
        while let Some(forgotten) = self.endpoint.poll_ended() {
            self.seals.forget(forgotten);
        }
        if let Some(log) = &mut self.key_log {
            log.append(&mut self.seals);
        }
    }

    /// Returns the time of the next work if no packet arrives.
    pub fn next_due(&self) -> Instant {
        let room_at = self.port.as_ref().and_then(Port::room_at);
        let due = [self.endpoint.poll_timeout(), self.delay_line.next_due(), room_at];
        due.into_iter().flatten().min().unwrap_or(Instant::FAR_FUTURE)
    }

    /// Takes turns until `done` returns `true`; returns `false` if `deadline` passes first.
    pub fn run<A: Application>(
        &mut self,
        application: &mut A,
        deadline: Instant,
        mut done: impl FnMut(&mut Endpoint, &A) -> bool,
    ) -> bool {
        loop {
            let _ = self.step(application, deadline);
            if done(&mut self.endpoint, application) {
                return true;
            }
            if self.clock.now() >= deadline {
                return false;
            }
        }
    }
}

/// Returns random bytes from the operating system.
fn random<const N: usize>() -> Result<[u8; N], getrandom::Error> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)?;
    Ok(bytes)
}
