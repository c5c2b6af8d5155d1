//! The daemon of one host's overlay: its parts and its control socket. Its threads carry the frames
//! ([`Worker`](crate::worker::Worker)); this one sends them the changes.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::net::UnixListener;

use weft_seal::{Mode, PrivateKey, Seals};
use weft_transport::Secret;
use weft_udp::sockets::{SocketConfig, Sockets, Wire};
use weft_udp::wait::{MAX_SLEEP, wait};
use weft_udp::{Clock, Driver, random};
use weft_units::Seed;
use weft_vpc::{InClear, PortId, Switch, SwitchConfig};

use crate::changes::Changes;
use crate::config::{Config, ConfigError, Port as PortOptions, Routes};
use crate::control::{Answer, Control, Request};
use crate::evpn::Evpn;
use crate::fleet::Fleet;
use crate::flow_log::FlowExporter;
use crate::mailbox::{Mailbox, Router};
use crate::observer::Observer;
use crate::port_poller::PortPoller;
use crate::redirect::{self, ThreadIndex};
use crate::worker::Worker;
use crate::worker_pool::WorkerPool;
use crate::{OpenError, state};

/// One host's overlay.
#[derive(Debug)]
pub struct Daemon {
    /// The configuration in force, without its routes.
    pub(crate) config: Config,
    /// The configuration's file as it was last read, without the changes made by command.
    pub(crate) file: Config,
    pub(crate) routes: Routes,
    pub(crate) pool: WorkerPool,
    /// Each port's thread and configuration.
    pub(crate) ports: BTreeMap<PortId, (u8, PortOptions)>,
    pub(crate) next_port: u32,
    /// The changes made by command since the configuration's file was last changed.
    pub(crate) changes: Changes,
    pub(crate) control: Control,
    pub(crate) clock: Clock,
    /// Number of reloads that were applied, and of those that were refused.
    pub(crate) reloads: (u64, u64),
    pub(crate) fleet: Option<Fleet>,
    pub(crate) flow_exporter: Option<FlowExporter>,
    pub(crate) evpn: Option<Evpn>,
    pub(crate) observer: Observer,
}

/// An event of [`Daemon::run`], for those that supervise the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// All threads take turns. It comes several times a second while they do.
    Responsive,
    /// A reload begins.
    Reloading,
    /// The reload has ended: it was applied or refused.
    Reloaded,
}

impl Daemon {
    /// Opens everything that a configuration names, with the changes made by command since, and carries frames from then
    /// on.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(config: Config) -> Result<Self, OpenError> {
        Self::open_on(config, None)
    }

    /// Does the same with the control socket that a service manager listens with, if there is one.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open_on(config: Config, control: Option<UnixListener>) -> Result<Self, OpenError> {
        config.check()?;
        let file = config;
        let changes = state::read(&file.host.state_file())?.without_known(&file);
        let config = changes.apply(&file)?;
        let path = &config.host.control;
        let control =
            control.map_or_else(|| Control::open(path), |given| Control::on(given, path))?;
        let mut daemon = Self {
            pool: WorkerPool::start(workers(&config)?)?,
            ports: BTreeMap::new(),
            next_port: 1,
            changes,
            control,
            clock: Clock,
            reloads: (0, 0),
            fleet: None,
            flow_exporter: None,
            evpn: None,
            observer: Observer::new(Clock.now()),
            routes: Routes::new(),
            file,
            config: Config {
                networks: vec![],
                ports: vec![],
                routes: vec![],
                flow_log: None,
                ..config.clone()
            },
        };
        for network in config.networks {
            daemon.set_network(network)?;
        }
        for port in config.ports {
            let port = daemon.open_or_leave_out(port, &daemon.config.policies, &daemon.changes)?;
            port.map_or(Ok(()), |port| daemon.attach_port(port))?;
        }
        daemon.set_routes(&config.routes)?;
        let exporter = FlowExporter::open(config.flow_log.as_ref(), config.host.mtu)?;
        daemon.set_flow_log(config.flow_log, exporter)?;
        daemon.start_fleet()?;
        daemon.set_evpn(config.evpn)?;
        daemon.pool.run_on_all(|worker| worker.is_configured = true)?;
        Ok(daemon)
    }

    /// Answers requests until `stop` returns `true`, and calls `notify` for each [`Notice`].
    ///
    /// # Errors
    /// The kernel refuses to let a thread wait.
    pub fn run(&mut self, stop: impl Fn() -> bool, notify: impl Fn(Notice)) -> io::Result<()> {
        while !stop() {
            self.pool.check()?;
            if self.pool.is_responsive() {
                notify(Notice::Responsive);
            }
            let planes = self.fleet.iter().map(Fleet::fd).chain(self.evpn.iter().map(Evpn::fd));
            wait(self.control.fds().chain(planes), std::iter::empty(), MAX_SLEEP)?;
            self.apply_fleet();
            self.service_evpn().map_err(io::Error::other)?;
            self.observe().map_err(io::Error::other)?;
            for (client, request) in self.control.poll_requests() {
                let is_reload = matches!(request, Ok(Request::Reload { .. }));
                if is_reload {
                    notify(Notice::Reloading);
                }
                let answer = request
                    .and_then(|request| request.carry_out(self).map_err(|error| error.to_string()));
                if is_reload {
                    self.on_reloaded(&answer);
                    notify(Notice::Reloaded);
                }
                self.control.answer(client, answer);
            }
        }
        self.export_last_flows().map_err(io::Error::other)
    }

    fn on_reloaded(&mut self, answer: &Result<Answer, String>) {
        match answer {
            Ok(_) => self.reloads.0 += 1,
            // The reload has logged why.
            Err(_) => self.reloads.1 += 1,
        }
    }
}

/// Creates a worker for each thread, with the address of its mailbox.
fn workers(config: &Config) -> Result<Vec<(Worker, crate::mailbox::Address)>, OpenError> {
    let (host, transport) = (&config.host, config.host.transport()?);
    let threads = host.threads;
    let settings = host.encryption.settings()?;
    let mut encryption = settings.config().map_err(ConfigError::from)?;
    if encryption.identity.is_none() {
        // All threads appear as one host to its peers.
        encryption.identity = Some(PrivateKey::new(random()?));
    }
    let sockets = SocketConfig {
        kernel_timestamps: host.kernel_timestamps,
        wire: host.wire.unwrap_or_else(Wire::from_environment),
        ..SocketConfig::new(host.socket(), host.paths * u16::from(threads))
    };
    let sockets = Sockets::open_group(&sockets, threads, &redirect::program(threads))?;
    let mailboxes = sockets.iter().map(|_| Mailbox::open()).collect::<Result<Vec<_>, _>>();
    let mailboxes = mailboxes.map_err(|errno| OpenError::Thread(errno.into()))?;
    let addresses: Vec<_> = mailboxes.iter().map(|(_, address)| address.clone()).collect();
    let mut workers = vec![];
    for (thread, (sockets, (mailbox, address))) in (0..).zip(sockets.into_iter().zip(mailboxes)) {
        let switch = SwitchConfig {
            receive_port: host.port,
            thread_id: thread,
            threads,
            in_clear: in_clear(encryption.mode),
            ..SwitchConfig::new(transport.clone())
        };
        let (seed, secret) = (Seed(u64::from_le_bytes(random()?)), Secret::new(random()?));
        let switch = Switch::new(switch, seed, secret).expect("checked with the configuration");
        let index = ThreadIndex { thread, threads };
        let seals = Seals::new(encryption.clone(), random()?);
        let mut driver = Driver::new(sockets, seals, Worker::budget())
            .with_kernel_timestamps(host.kernel_timestamps);
        driver.key_log = settings.open_key_log().map_err(ConfigError::from)?;
        let router = Router::new(addresses.clone());
        let poller = PortPoller::new().map_err(OpenError::Thread)?;
        let (index, router) = ((index, host.paths), (mailbox, router));
        workers.push((Worker::new(index, poller, switch, driver, router), address));
    }
    Ok(workers)
}

/// Returns the policy for frames outside connections, the same as for packets of connections.
const fn in_clear(mode: Mode) -> InClear {
    match mode {
        Mode::Off => InClear::Any,
        Mode::Preferred => InClear::Unable,
        Mode::Required => InClear::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use weft_units::Instant;

    use super::*;

    /// Returns `true` if datagrams that arrive at a host with this configuration carry the kernel's time.
    fn is_stamped(kernel_timestamps: bool) -> bool {
        let text = format!(
            "[host]\naddress = '127.0.0.1'\nport = 0\nkernel-timestamps = {kernel_timestamps}\n"
        );
        let config: Config = toml::from_str(&text).unwrap();
        let (mut worker, _) = workers(&config).unwrap().remove(0);
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.send_to(&[0; 7], worker.driver.sockets.local()).unwrap();
        let mut readable =
            [PollFd::from_borrowed_fd(worker.driver.sockets.readable(), PollFlags::IN)];
        let timeout = Timespec { tv_sec: 10, tv_nsec: 0 };
        assert_eq!(poll(&mut readable, Some(&timeout)), Ok(1), "the datagram is lost");
        assert_eq!(worker.driver.sockets.inbox.receive().unwrap(), 1);
        let (now, lead) = (Clock.now(), Clock.wall_clock_lead());
        let received_at = worker.driver.sockets.inbox.message(0).received_at(now, lead);
        assert!(received_at > Instant::EPOCH && received_at <= now);
        assert_eq!(worker.driver.has_kernel_timestamps(), kernel_timestamps);
        received_at < now
    }

    #[test]
    fn packets_carry_the_kernels_arrival_time_if_it_is_enabled() {
        assert!(is_stamped(true));
        assert!(!is_stamped(false));
    }
}
