//! An endpoint with sockets, a clock and a way to wait.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use weft_seal::{SealConfig, Seals};
use weft_transport::{
    Arrival, ConfigError, ConnectionId, Endpoint, EndpointConfig, Secret, TransportConfig,
};
use weft_units::{Duration, Instant, Seed};

use crate::encryption::{KeyLog, reserve_overhead};
use crate::ethernet::ethernet;
use crate::port::{Port, PortConfig};
use crate::sockets::{
    SocketConfig, SocketError, Sockets, TrimmedConfig, TrimmedPacket, TrimmedSocket,
};
use crate::turn::AgentNode;
use crate::wait::{MAX_SLEEP, Waiter};
use crate::{Application, Budget, Clock, Driver, ReceiveCounters, Turn, WaitMode, random};

/// The settings of an agent.
#[derive(Clone, Debug)]
pub struct AgentConfig {
    /// The sockets. Their `paths` is replaced by that of `transport`.
    pub sockets: SocketConfig,
    /// The transport of its connections. If they may be encrypted, its MTU is reduced by the overhead.
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
    /// The DSCPs by which packets that a switch cut to their headers are recognised: their senders are asked at once to
    /// retransmit them, unless the connection is encrypted, since a cut packet proves nothing. It takes root or
    /// CAP_NET_RAW. `None` leaves them to loss detection.
    pub trimmed: Option<TrimmedConfig>,
}

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
            trimmed: None,
        }
    }

    /// Returns the same settings, with connections accepted.
    #[must_use]
    pub fn accepting(mut self) -> Self {
        self.accept = true;
        self
    }

    /// Returns a transport configuration for real packets on an Ethernet with an MTU of 1500 bytes. Bursts of up to 44
    /// packets, as many as one system call carries, take one path (`docs/design/agent-sockets.md` gives the cost of
    /// shorter bursts): of more than 16 paths the one with the shortest queue, of fewer the best 4 in turn. The window and the RTO suit a host with a scheduler, whose round trips vary by milliseconds.
    pub fn ethernet(paths: u16) -> TransportConfig {
        ethernet(paths)
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
    /// The operating system returned no random numbers.
    #[error("no random numbers from the operating system: {0}")]
    Entropy(#[from] getrandom::Error),
}

/// One thread's endpoint with its sockets; the crate's front page has an example. After a fork only one of the two
/// processes may use it: otherwise both would send the same packet sequence numbers.
#[derive(Debug)]
pub struct Agent {
    endpoint: Endpoint,
    driver: Driver<Sockets>,
    port: Option<Port>,
    trimmed: Option<TrimmedSocket>,
    waiter: Waiter,
}

impl Agent {
    /// Opens sockets and an endpoint, seeded by the operating system.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(config: &AgentConfig) -> Result<Self, OpenError> {
        let mut sockets = SocketConfig { paths: config.transport.paths, ..config.sockets.clone() };
        if config.trimmed.is_some() {
            sockets.keep_kernel(
                "packet sockets do not see what takes it, and trimmed packets are read from one",
            );
        }
        let sockets = Sockets::open(&sockets)?;
        let open_trimmed = |trimmed| TrimmedSocket::open(trimmed, sockets.local());
        let trimmed = config.trimmed.map(open_trimmed).transpose()?;
        if let Some(trimmed) = &trimmed {
            sockets.wake_for(trimmed.readable())?;
        }
        let transport = reserve_overhead(config.transport.clone(), &config.encryption);
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
        let driver = Driver::new(sockets, seals, Budget::default())
            .with_kernel_timestamps(config.sockets.kernel_timestamps)
            .with_delays(config.delays.clone());
        Ok(Self {
            endpoint,
            driver,
            port: config.port.map(|port| Port::new(port, mtu)),
            trimmed,
            waiter: Waiter::new(config.wait, Clock),
        })
    }

    /// Returns the engine, for commands and counters.
    pub fn endpoint(&mut self) -> &mut Endpoint {
        &mut self.endpoint
    }

    /// Returns the sockets, for counters.
    pub fn sockets(&self) -> &Sockets {
        &self.driver.sockets
    }

    /// Returns the encryption, for counters.
    pub fn seals(&self) -> &Seals {
        &self.driver.seals
    }

    /// Appends the keys of its connections to a file from now on; [`SealConfig::key_log`] must be `true`.
    pub fn log_keys(&mut self, log: KeyLog) {
        self.driver.key_log = Some(log);
    }

    /// Returns the counters of received datagrams; the engine has counters of its own.
    pub fn counters(&self) -> ReceiveCounters {
        self.driver.counters()
    }

    /// Returns the time of this agent's clock.
    pub fn now(&self) -> Instant {
        self.driver.now()
    }

    /// Returns the address and port that peers connect to.
    pub fn local(&self) -> SocketAddr {
        self.driver.sockets.local()
    }

    /// Takes one turn without blocking.
    pub fn turn(&mut self, application: &mut impl Application) -> Turn {
        self.receive_trimmed();
        let Self { endpoint, driver, port, .. } = self;
        driver.turn(&mut AgentNode { endpoint, application, port })
    }

    /// Handles the packets that a switch cut to their headers.
    fn receive_trimmed(&mut self) {
        let Some(trimmed) = &mut self.trimmed else { return };
        while let Some(TrimmedPacket { from, header, at }) = trimmed.next() {
            if self.driver.seals.is_sealed(ConnectionId(header.destination_cid)) {
                continue;
            }
            let now = self.driver.now();
            let (congestion_experienced, hops) = (false, 0);
            let arrival = Arrival { from, received_at: now, congestion_experienced, hops };
            self.endpoint.handle_trimmed(now, &arrival, &header, at);
        }
    }

    /// Takes a turn. If it had no work, or the kernel is full, waits as configured until a packet arrives, the kernel
    /// has room or work is due, but not past `until`, and at most 0.1 s.
    pub fn step(&mut self, application: &mut impl Application, until: Instant) -> Turn {
        let turn = self.turn(application);
        if turn.worked() && self.driver.sockets.outbox.waiting() == 0 {
            self.waiter.worked();
            return turn;
        }
        let until = until.min(self.next_due()).min(self.now() + MAX_SLEEP);
        let sockets = &self.driver.sockets;
        let (readable, strays) = (sockets.readable(), sockets.strays_readable());
        if self.waiter.wait_for_strays(readable, strays, sockets.outbox.blocked(), until) {
            self.driver.expect_strays();
        }
        turn
    }

    /// Returns the time of the next work if no packet arrives.
    pub fn next_due(&self) -> Instant {
        let room_at = self.port.as_ref().and_then(Port::room_at);
        let retry_at = self.driver.sockets.outbox.retry_at();
        let due = [self.endpoint.poll_timeout(), self.driver.next_due(), room_at, retry_at];
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
            if self.now() >= deadline {
                return false;
            }
        }
    }
}
