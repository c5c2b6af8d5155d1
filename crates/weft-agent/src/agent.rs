//! An endpoint with sockets, a clock and a way to wait.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use weft_seal::{SealConfig, Seals};
use weft_transport::{ConfigError, Endpoint, EndpointConfig, Secret, TransportConfig, congestion};
use weft_units::{Duration, Instant, Seed};

use crate::delay_line::DelayLine;
use crate::encryption::{KeyLog, leave_room};
use crate::port::{Port, PortConfig};
use crate::udp::{SocketConfig, SocketError, Sockets};
use crate::wait::Waiter;
use crate::{Application, Clock, Turn, WaitMode};

/// Longest sleep, so that a thread that is asked to stop hears of it.
pub(crate) const LONGEST_SLEEP: Duration = Duration::from_millis(100);

/// How an agent is opened.
#[derive(Clone, Debug)]
pub struct AgentConfig {
    /// Its sockets. `paths` is taken from `transport`.
    pub sockets: SocketConfig,
    /// How its connections behave. Where they may be encrypted, their packets have room for that.
    pub transport: TransportConfig,
    /// How they are encrypted.
    pub encryption: SealConfig,
    /// Which of its process's threads it runs on, told to peers.
    pub thread_id: u8,
    /// Whether peers may connect.
    pub accept: bool,
    /// Connections at most, at most 2^24. Fewer make their ids harder to guess
    /// (`docs/design/connections.md`).
    pub max_connections: u32,
    /// How to wait between turns.
    pub wait: WaitMode,
    /// What arrives from these addresses is handled so much later, as over longer cables. Empty,
    /// and no packet waits.
    pub delays: BTreeMap<IpAddr, Duration>,
    /// Connections to one address share what they learn of its paths. Without it each learns for itself.
    pub share_paths: bool,
    /// The port, where the kernel does not tell when it is full; `None` sends as the kernel takes.
    pub port: Option<PortConfig>,
}

/// The congestion control of real packets, unless another is asked for.
const ETHERNET_CONGESTION: congestion::Kind = congestion::Kind::Weft;

impl AgentConfig {
    /// An agent on `local` whose connections behave as `transport` says; it does not accept.
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

    /// The same, accepting connections.
    #[must_use]
    pub fn accepting(mut self) -> Self {
        self.accept = true;
        self
    }

    /// A transport for real packets on an Ethernet of 1500 bytes. Packets take the same path in
    /// bursts of 44, which is what one system call carries (`docs/design/agent-sockets.md` has what
    /// shorter bursts cost); the window and the RTO are those that a host with a scheduler, whose
    /// round trips vary by milliseconds, needs.
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

/// Why an agent could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The transport's configuration.
    #[error("transport configuration: {0}")]
    Config(#[from] ConfigError),
    /// The sockets.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The operating system gave no random numbers.
    #[error("no random numbers from the operating system: {0}")]
    Entropy(#[from] rustix::io::Errno),
}

/// What an agent counts beside its engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct AgentCounters {
    /// Datagrams received, of any kind.
    pub datagrams_received: u64,
    /// Datagrams that are no packet of this protocol, or none that belongs where it arrived.
    pub malformed: u64,
    /// Receive calls that failed.
    pub receive_errors: u64,
}

/// One thread's end of the transport. See the crate's front page. A process that has forked uses it in one of the two: both
/// would number packets alike.
#[derive(Debug)]
pub struct Agent {
    pub(crate) endpoint: Endpoint,
    pub(crate) sockets: Sockets,
    pub(crate) seals: Seals,
    key_log: Option<KeyLog>,
    pub(crate) clock: Clock,
    pub(crate) counters: AgentCounters,
    pub(crate) kernel_timestamps: bool,
    /// When the sockets that only send are looked at next.
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
        let endpoint = if config.share_paths { endpoint.sharing_ports(1) } else { endpoint };
        let seals = Seals::new(config.encryption.clone(), random()?);
        let endpoint = if seals.is_on() { endpoint.keeping_forgotten() } else { endpoint };
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

    /// The engine, for commands and counters.
    pub fn endpoint(&mut self) -> &mut Endpoint {
        &mut self.endpoint
    }

    /// The sockets, for counters.
    pub fn sockets(&self) -> &Sockets {
        &self.sockets
    }

    /// Encryption, for counters.
    pub fn seals(&self) -> &Seals {
        &self.seals
    }

    /// Appends the keys of its connections to a file from now on; [`SealConfig::key_log`] must ask for them.
    pub fn log_keys(&mut self, log: KeyLog) {
        self.key_log = Some(log);
    }

    /// What was counted beside the engine.
    pub fn counters(&self) -> AgentCounters {
        self.counters
    }

    /// The time by this agent's clock.
    pub fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Address and port that peers connect to.
    pub fn local(&self) -> SocketAddr {
        self.sockets.local()
    }

    /// Takes a turn, and waits as configured when there was nothing to do: at most until `until`,
    /// and never longer than a tenth of a second.
    pub fn step(&mut self, application: &mut impl Application, until: Instant) -> Turn {
        let turn = self.turn(application);
        if turn.worked() && self.sockets.outbox.waiting() == 0 {
            self.waiter.worked();
            return turn;
        }
        let until = until.min(self.next_due()).min(self.clock.now() + LONGEST_SLEEP);
        self.waiter.wait(self.sockets.readable(), self.sockets.outbox.blocked(), until);
        turn
    }

    /// Forgets the keys of connections that are no more, and notes those of new ones.
    pub(crate) fn keep_keys(&mut self) {
        while let Some(forgotten) = self.endpoint.poll_forgotten() {
            self.seals.forget(forgotten);
        }
        if let Some(log) = &mut self.key_log {
            log.append(&mut self.seals);
        }
    }

    /// When there is something to do though nothing arrives.
    pub(crate) fn next_due(&self) -> Instant {
        let room_at = self.port.as_ref().and_then(Port::room_at);
        let due = [self.endpoint.poll_timeout(), self.delay_line.next_due(), room_at];
        due.into_iter().flatten().min().unwrap_or(Instant::FAR_FUTURE)
    }

    /// Takes turns until `done` says so; false when `deadline` came first.
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

/// Random bytes from the operating system.
fn random<const N: usize>() -> Result<[u8; N], rustix::io::Errno> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < bytes.len() {
        filled +=
            rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty())?;
    }
    Ok(bytes)
}
