//! Two hosts or more with tenants, and a fabric of several paths between them, all on this machine: for
//! trials of the overlay, tests, and comparative measurements with other ways to carry the same traffic.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::{io, path::PathBuf};

use weft_lab::{Lab, LabError, LabSpec};
use weft_ports::PortError;
use weft_udp::Clock;
use weft_udp::sockets::SocketError;
use weft_units::Duration;
use weft_vpc::{Policies, PortPolicies};
use weft_vswitch::config::{Config, Host, Mac, Network, Port, Route, Tap};
use weft_vswitch::{Daemon, OpenError};
use weft_wire::MacAddr;

/// The parts of a trial.
#[derive(Clone, Debug)]
pub struct TrialConfig {
    /// The fabric. The trial's hosts are the first host of each leaf.
    pub lab: LabSpec,
    /// Names of tenants: 1 to 8 of `a-z`. Each has an interface on every host; all tenants have the same
    /// addresses.
    pub tenants: Vec<String>,
    /// The configuration of every tenant's network; the trial sets its number and peers.
    pub network: Network,
    /// The configuration of every host; the trial sets its address and control socket.
    pub host: Host,
}

impl TrialConfig {
    /// Returns a trial of two tenants, `red` and `blue`, over four spines.
    pub fn named(name: impl Into<String>) -> Self {
        // Plain frames lose their order if a router counts segments as one packet.
        let lab = LabSpec { offloads: false, ..LabSpec::named(name) };
        let network = Network {
            vni: 0,
            reliable: true,
            in_order: true,
            flood: true,
            peers: Default::default(),
            gateways: vec![],
            evpn: false,
            route_targets: vec![],
        };
        let host = toml::from_str("address = '0.0.0.0'").expect("everything else has a default");
        Self { lab, tenants: vec!["red".into(), "blue".into()], network, host }
    }
}

/// The error of a trial that cannot be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrialError {
    /// The fabric cannot be built.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// A daemon cannot start.
    #[error("host h{host}: {cause}")]
    Daemon {
        /// The host's index.
        host: usize,
        /// The reason.
        cause: OpenError,
    },
    /// A program failed.
    #[error("`{command}` failed: {reason}")]
    Command {
        /// The command.
        command: String,
        /// The error that it printed.
        reason: String,
    },
}

/// A running daemon and its thread. Dropping it stops the daemon.
#[derive(Debug)]
struct Running {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

/// A trial that runs until it is dropped.
#[derive(Debug)]
pub struct Trial {
    daemons: Vec<Option<Running>>,
    configs: Vec<Config>,
    /// The fabric, dropped after the daemons, which have interfaces in its namespaces.
    pub lab: Lab,
}

impl Trial {
    /// Builds the fabric and the tenants' namespaces, and starts a daemon on each host.
    ///
    /// # Errors
    /// Returns the [`TrialError`] of the first step that failed.
    pub fn up(config: &TrialConfig) -> Result<Self, TrialError> {
        let lab = Lab::up(&config.lab)?;
        for tenant in &config.tenants {
            for host in 0..config.lab.leaves {
                let name = namespace(&config.lab.name, tenant, host);
                ip(&["netns", "add", &name])?;
                ip(&["-n", &name, "link", "set", "lo", "up"])?;
            }
        }
        let configs: Vec<_> =
            (0..config.lab.leaves).map(|host| config_of(config, &lab, host)).collect();
        let daemons = configs.iter().map(|_| None).collect();
        let mut trial = Self { daemons, configs, lab };
        trial.forget_changes();
        for host in 0..config.lab.leaves {
            trial.start(host)?;
        }
        Ok(trial)
    }

    /// Removes the files in which daemons keep changes made by command.
    fn forget_changes(&self) {
        for config in &self.configs {
            // There is none unless something was changed.
            let _ = std::fs::remove_file(config.host.state_file());
        }
    }

    /// Starts the daemon of a host on which none runs.
    ///
    /// # Errors
    /// Returns `Lab` if the host's namespace cannot be entered, `Daemon` if the daemon cannot start, `Command` if its
    /// thread cannot start.
    ///
    /// # Panics
    /// Panics if there is no such host.
    pub fn start(&mut self, host: usize) -> Result<(), TrialError> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let node = format!("h{}", host * self.lab.spec().hosts_per_leaf);
        // Sockets opened in the host's namespace stay there, whichever thread uses them.
        let open = || self.lab.enter(&node, || Daemon::open(self.configs[host].clone()));
        let deadline = Clock.now() + Duration::from_secs(2);
        let mut daemon = loop {
            match open()? {
                Ok(daemon) => break daemon,
                // A child process that another thread starts shares this process's sockets and TAP interfaces for a
                // moment, also those of the previous daemon.
                Err(cause) if is_taken(&cause) && Clock.now() < deadline => {
                    thread::yield_now();
                }
                Err(cause) => return Err(TrialError::Daemon { host, cause }),
            }
        };
        let run = move || daemon.run(|| stopped.load(Ordering::Relaxed), |_| ());
        let thread = thread::Builder::new().name(format!("overlay-h{host}")).spawn(run);
        let thread = thread.map_err(|cause| TrialError::Command {
            command: "start a thread".into(),
            reason: cause.to_string(),
        })?;
        self.daemons[host] = Some(Running { stop, thread: Some(thread) });
        Ok(())
    }

    /// Stops the daemon of a host; its state is lost.
    ///
    /// # Panics
    /// Panics if there is no such host.
    pub fn stop(&mut self, host: usize) {
        self.daemons[host] = None;
    }

    /// Returns the path of the control socket of a host's daemon.
    pub fn control(&self, host: usize) -> PathBuf {
        self.configs[host].host.control.clone()
    }

    /// Returns the configuration of a host's daemon; changes apply from its next start on.
    pub fn config(&mut self, host: usize) -> &mut Config {
        &mut self.configs[host]
    }

    /// Returns the namespace of a tenant on a host.
    pub fn namespace(&self, tenant: &str, host: usize) -> String {
        namespace(self.lab.name(), tenant, host)
    }

    /// Returns a tenant's address on a host, the same for every tenant.
    ///
    /// # Panics
    /// Panics if `host` is above 254; a lab has at most 99 leaves.
    pub fn address(host: usize) -> Ipv4Addr {
        Ipv4Addr::new(192, 168, 7, u8::try_from(host + 1).expect("at most 99 leaves"))
    }

    /// Returns a command that runs a program as a tenant on a host.
    pub fn command(&self, tenant: &str, host: usize, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace(tenant, host), program]);
        command
    }

    /// Starts a program as a tenant on a host. It is killed when the trial is dropped.
    ///
    /// # Errors
    /// Returns `Io` if the namespace cannot be entered or the program cannot be started.
    pub fn spawn(
        &self,
        tenant: &str,
        host: usize,
        command: &mut Command,
    ) -> Result<Child, LabError> {
        let name = self.namespace(tenant, host);
        let started = weft_lab::enter(&name, || command.spawn())?;
        started.map_err(|source| LabError::Io { what: format!("run a program in {name}"), source })
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        self.forget_changes();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Returns `true` if an address or an interface is still in use.
fn is_taken(error: &OpenError) -> bool {
    match error {
        OpenError::Socket(SocketError::Bind { cause, .. }) => {
            cause.kind() == io::ErrorKind::AddrInUse
        }
        OpenError::Port { cause: PortError::Io { source, .. }, .. } => {
            source.kind() == io::ErrorKind::ResourceBusy
        }
        _ => false,
    }
}

fn namespace(lab: &str, tenant: &str, host: usize) -> String {
    format!("weft-{lab}.{tenant}{host}")
}

fn config_of(trial: &TrialConfig, lab: &Lab, host: usize) -> Config {
    let per_leaf = lab.spec().hosts_per_leaf;
    let address = |host: usize| IpAddr::V4(lab.fabric().address(host * per_leaf));
    let control = format!("weft-{}-h{host}.sock", lab.name());
    let mut config = Config {
        host: Host {
            address: address(host),
            control: std::env::temp_dir().join(control),
            ..trial.host.clone()
        },
        networks: vec![],
        ports: vec![],
        routes: vec![],
        policies: Policies::default(),
        flow_log: None,
        fleet: None,
        evpn: None,
        port_policies: vec![],
    };
    for (index, tenant) in trial.tenants.iter().enumerate() {
        let vni = 100 + u32::try_from(index).expect("few tenants");
        let others = || (0..lab.spec().leaves).filter(|&other| other != host);
        let peers = others().map(address).collect();
        config.networks.push(Network { vni, peers, ..trial.network.clone() });
        config.ports.push(Port {
            name: tenant.clone(),
            vni,
            mac: mac(host),
            addresses: vec![format!("{}/24", Trial::address(host))],
            labels: BTreeMap::new(),
            policies: PortPolicies::default(),
            tap: Some(Tap {
                interface: "eth0".into(),
                namespace: Some(namespace(lab.name(), tenant, host)),
                persistent: false,
                mtu: None,
            }),
            vhost_user: None,
            mirror: None,
            await_policies: false,
        });
        let route = |other| Route::to_machine(vni, mac(other), address(other));
        config.routes.extend(others().map(route));
    }
    config
}

fn mac(host: usize) -> Mac {
    Mac(MacAddr([2, 0, 0, 0, 7, u8::try_from(host + 1).expect("at most 99 leaves")]))
}

fn ip(arguments: &[&str]) -> Result<(), TrialError> {
    let failed =
        |reason| TrialError::Command { command: format!("ip {}", arguments.join(" ")), reason };
    let output = Command::new("ip").args(arguments).output();
    let output = output.map_err(|cause| failed(cause.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}
