//! The loop between tenants' ports, the switch and the host's sockets.

use std::collections::BTreeMap;
use std::io;

use weft_agent::Clock;
use weft_agent::udp::{SocketConfig, SocketError, Sockets};
use weft_ports::PortError;
use weft_trace::pcapng;
use weft_transport::{Arrival, Secret};
use weft_units::{Duration, Instant, Seed};
use weft_vpc::{Frame, LimitError, PoliciesError, PortId, Reading, Switch, SwitchConfig, Tenants};
use weft_wire::{Packet, VirtioNetHeader};

use crate::config::{Config, ConfigError, Port as PortOptions};
use crate::control::Control;
use crate::seals::Seals;
use crate::tenants::Ports;
use crate::underlay::{self, Link, PlainSender};
use crate::wait::wait;

/// Frames taken from one port before others have their turn.
const FRAMES_A_TURN: usize = 64;

/// Packets taken from the switch before the sockets are looked at again.
const PACKETS_A_TURN: usize = 176;

/// How often ports are looked after without being asked.
const ATTEND_EVERY: Duration = Duration::from_secs(1);

/// How often it is looked for buffers held too long.
const GIVE_BACK_EVERY: Duration = Duration::from_millis(4);

/// How often a daemon that never sleeps looks whether somebody asks it something: an empty look costs as much
/// as a packet.
const SERVE_EVERY: Duration = Duration::from_millis(1);

/// Three retransmission timeouts (BIFROST, section 7.4): what a guest's buffer is held for at most.
const OVERDUE: Duration = Duration::from_millis(28);

/// Why a daemon cannot start, or a port cannot be added.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// A value that cannot be.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The sockets.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// Policies that contradict themselves.
    #[error(transparent)]
    Policies(#[from] PoliciesError),
    /// A limit that cannot be kept.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// A port.
    #[error("port {name}: {cause}")]
    Port {
        /// Which.
        name: String,
        /// Why.
        cause: PortError,
    },
    /// The control socket.
    #[error("cannot listen on {socket}: {cause}; is another daemon running there?")]
    Control {
        /// Where.
        socket: String,
        /// What the system said.
        cause: io::Error,
    },
    /// A capture.
    #[error("cannot capture port {port} to {file}: {cause}")]
    Capture {
        /// Which port.
        port: String,
        /// Where to.
        file: String,
        /// What the system said.
        cause: io::Error,
    },
    /// The operating system gave no random numbers.
    #[error("no random numbers from the operating system: {0}")]
    Entropy(#[from] rustix::io::Errno),
    /// What was named is not there, or there already.
    #[error("{0}")]
    Unknown(String),
}

/// One host's overlay.
#[derive(Debug)]
pub struct Daemon {
    pub(crate) config: Config,
    pub(crate) switch: Switch,
    pub(crate) sockets: Sockets,
    pub(crate) ports: Ports,
    pub(crate) names: BTreeMap<PortId, PortOptions>,
    pub(crate) next_port: u32,
    pub(crate) control: Control,
    pub(crate) plain: PlainSender,
    pub(crate) seals: Option<Seals>,
    pub(crate) counters: underlay::Counters,
    pub(crate) attended: Instant,
    pub(crate) gave_back: Instant,
    pub(crate) served: Instant,
    pub(crate) clock: Clock,
}

impl Daemon {
    /// Opens everything a configuration names.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(config: Config) -> Result<Self, OpenError> {
        config.check()?;
        let transport = config.host.transport()?;
        let sockets = Sockets::open(&SocketConfig::new(config.host.socket(), transport.paths))?;
        let switch =
            SwitchConfig { receive_port: config.host.port, ..SwitchConfig::new(transport) };
        let (seed, secret) = (Seed(u64::from_le_bytes(random()?)), Secret::new(random()?));
        let switch = Switch::new(switch, seed, secret).expect("checked with the configuration");
        let (address, options) = (config.host.address, config.host.seal.as_ref());
        let seals = options.map(|options| Seals::open(options, address)).transpose()?;
        let mut daemon = Self {
            control: Control::open(&config.host.control)?,
            switch,
            sockets,
            ports: Ports::default(),
            names: BTreeMap::new(),
            next_port: 1,
            plain: PlainSender::default(),
            seals,
            counters: underlay::Counters::default(),
            attended: Instant::EPOCH,
            gave_back: Instant::EPOCH,
            served: Instant::EPOCH,
            clock: Clock,
            config: Config { networks: vec![], ports: vec![], routes: vec![], ..config.clone() },
        };
        for network in config.networks {
            daemon.set_network(network)?;
        }
        for port in config.ports {
            daemon.add_port(port)?;
        }
        for route in config.routes {
            daemon.set_route(route)?;
        }
        Ok(daemon)
    }

    /// Takes turns until `stop` says so.
    ///
    /// # Errors
    /// The kernel refuses to wait.
    pub fn run(&mut self, stop: impl Fn() -> bool) -> io::Result<()> {
        while !stop() {
            if !self.turn() {
                self.sleep()?;
            }
        }
        Ok(())
    }

    /// Takes one turn without blocking; whether anything happened.
    pub fn turn(&mut self) -> bool {
        let received = self.take_datagrams();
        let now = self.clock.now();
        let taken = self.take_frames(now);
        self.switch.handle_timeout(now, &mut self.ports);
        let sent = self.send(now);
        if now.since(self.attended) >= ATTEND_EVERY {
            self.attended = now;
            self.attend(now);
            self.ports.flush_captures();
        }
        self.give_back(now);
        self.ports.flush();
        let asked = self.serve_control(now);
        received + taken + sent + asked > 0
    }

    fn take_datagrams(&mut self) -> usize {
        let Ok(messages) = self.sockets.inbox.receive() else { return 0 };
        let now = self.clock.now();
        for index in 0..messages {
            let received = self.sockets.inbox.message(index);
            let arrival = Arrival {
                from: received.from,
                received_at: now,
                congestion_experienced: received.congestion_experienced,
                hops: received.hops,
            };
            for datagram in received.datagrams() {
                let (switch, tenants) = (&mut self.switch, &mut self.ports);
                let (seals, counters) = (&mut self.seals, &mut self.counters);
                underlay::take_datagram(switch, now, &arrival, datagram, tenants, seals, counters);
            }
        }
        messages
    }

    /// Takes what tenants sent.
    fn take_frames(&mut self, now: Instant) -> usize {
        let mut head = [0; VirtioNetHeader::LEN + Frame::LOOK_AHEAD];
        let mut taken = 0;
        for &id in self.names.keys() {
            for _ in 0..FRAMES_A_TURN {
                let Some(sent) = self.ports.with(id, |port| port.take(now)) else { break };
                taken += 1;
                let known = head.len().min(sent.len as usize);
                let head = &mut head[..known];
                self.ports.read(id, sent.token, 0, head, Reading::First);
                self.ports.note(id, pcapng::Direction::Out, head, sent.len);
                let (switch, tenants) = (&mut self.switch, &mut self.ports);
                switch.handle_frame(now, id, sent.token, sent.len, head, tenants);
            }
        }
        taken
    }

    fn send(&mut self, now: Instant) -> usize {
        let mut link = Link { outbox: &mut self.sockets.outbox, seals: &mut self.seals };
        let tenants = &mut self.ports;
        // What the kernel has no room for waits; asking the switch for more would only let it pile up.
        let room = PACKETS_A_TURN.saturating_sub(link.outbox.waiting());
        let mut packet = Packet::default();
        let mut sent = self.switch.poll_burst(now, room, &mut packet, |leaving| {
            underlay::push_packet(&mut link, leaving, tenants);
        });
        let paths = self.config.host.paths;
        while link.outbox.waiting() < PACKETS_A_TURN {
            let Some(plain) = self.switch.poll_plain() else { break };
            self.plain.send(&plain, paths, &mut link, tenants, &mut self.counters);
            sent += 1;
        }
        link.outbox.flush();
        sent
    }

    fn attend(&mut self, now: Instant) {
        if let Some(seals) = &mut self.seals {
            seals.handle_timeout(now);
        }
        for id in self.ports.ids() {
            self.ports.with(id, |port| port.attend(now));
        }
    }

    /// Gives tenants the buffers back that they have waited too long for.
    fn give_back(&mut self, now: Instant) {
        if now.since(self.gave_back) >= GIVE_BACK_EVERY {
            self.gave_back = now;
            self.ports.iter_mut().for_each(|(_, port)| {
                port.release_overdue(now, OVERDUE);
            });
        }
    }

    fn serve_control(&mut self, now: Instant) -> usize {
        if now.since(self.served) < SERVE_EVERY {
            return 0;
        }
        self.served = now;
        let requests = self.control.take();
        let count = requests.len();
        for (client, request) in requests {
            let answer = request.and_then(|request| request.carry_out(self));
            self.control.answer(client, answer);
        }
        count
    }

    fn sleep(&mut self) -> io::Result<()> {
        let now = self.clock.now();
        let until = self.switch.poll_timeout();
        let ports = self.ports.iter().map(|(_, port)| port.fd());
        let own = std::iter::once(self.sockets.readable()).chain(self.control.fds());
        let ready = wait(now, until, ports.chain(own), self.sockets.outbox.blocked())?;
        // Whoever asked may be what woke us.
        self.served = Instant::EPOCH;
        let now = self.clock.now();
        for (id, _) in self.ports.ids().into_iter().zip(ready).filter(|(_, ready)| *ready) {
            self.ports.with(id, |port| port.attend(now));
        }
        Ok(())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        for (_, port) in self.ports.iter_mut() {
            port.settle();
        }
    }
}

pub(crate) fn random<const N: usize>() -> Result<[u8; N], rustix::io::Errno> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        filled +=
            rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty())?;
    }
    Ok(bytes)
}
