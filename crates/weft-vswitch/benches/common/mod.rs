//! The common parts of the overlay's benchmarks: ways to carry the same traffic over one fabric.
#![allow(dead_code, reason = "each benchmark uses its part")]

pub(crate) mod bulk;
pub(crate) mod capture;
pub(crate) mod machine;
pub(crate) mod name;
pub(crate) mod trace;

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use weft_lab::{Direction, Impairment, LabSpec};
use weft_trial::{Trial, TrialConfig};
use weft_vswitch::config::Encryption;

/// A way to carry tenants' TCP between two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// TCP of the hosts themselves, with this congestion control.
    Tcp(&'static str),
    /// TCP of the hosts with a retransmission timeout of at least 5 ms on both ends: the strongest setting that a
    /// tenant has.
    ShortTimeout,
    /// Multipath TCP with three subflows.
    Mptcp,
    /// The overlay's daemon with reliability off: a plain VXLAN.
    Vanilla,
    /// The overlay.
    Weft,
    /// The overlay with the paper's congestion control (BIFROST, figure F11).
    Swift,
    /// The overlay without congestion control: a constant window.
    FixedWindow,
    /// The overlay with the kernel's arrival times.
    Stamped,
    /// The overlay with Swift and the kernel's arrival times.
    StampedSwift,
    /// The overlay on one path, which hashes choose: lost packets are retransmitted on the same path.
    OnePath,
    /// The overlay on one path at a time, the one that probes found best, chosen once per second
    /// (BIFROST, section 6: probe and switch).
    Probing,
    /// Linux's VXLAN between bridges, without a daemon.
    Kernel,
}

/// The tenant of every trial.
pub(crate) const TENANT: &str = "red";

impl Way {
    /// Returns `true` if its traffic goes through the overlay's daemon.
    pub(crate) const fn has_daemon(self) -> bool {
        !matches!(self, Self::Tcp(_) | Self::ShortTimeout | Self::Mptcp | Self::Kernel)
    }

    pub(crate) const ALL: &'static [Self] = &[
        Self::Tcp("cubic"),
        Self::Tcp("bbr"),
        Self::ShortTimeout,
        Self::Mptcp,
        Self::Kernel,
        Self::Vanilla,
        Self::Weft,
        Self::Swift,
        Self::FixedWindow,
        Self::Stamped,
        Self::StampedSwift,
    ];

    pub(crate) fn name(self) -> String {
        match self {
            Self::Tcp(control) => format!("TCP {control}"),
            Self::ShortTimeout => "TCP, RTO 5 ms".into(),
            Self::Mptcp => "MPTCP".into(),
            Self::Vanilla => "plain overlay".into(),
            Self::Weft => "Weft".into(),
            Self::Swift => "Weft with Swift".into(),
            Self::FixedWindow => "Weft, fixed window".into(),
            Self::Stamped => "Weft, stamped".into(),
            Self::StampedSwift => "Swift, stamped".into(),
            Self::OnePath => "Weft, one path".into(),
            Self::Probing => "Weft, probing".into(),
            Self::Kernel => "kernel VXLAN".into(),
        }
    }
}

/// A fabric with one way to carry traffic.
pub(crate) struct Site {
    pub(crate) trial: Trial,
    way: Way,
    spines: usize,
}

impl Site {
    pub(crate) fn new(way: Way, spines: usize) -> Self {
        Self::changed(way, spines, |_| ())
    }

    /// Builds a fabric with a changed configuration.
    pub(crate) fn changed(way: Way, spines: usize, change: impl FnOnce(&mut TrialConfig)) -> Self {
        let mut config = TrialConfig::named(name::own());
        // The measurements are compared with ways that do not encrypt; `cost` shows the price of encryption.
        config.host.encryption = Encryption::of_mode("off");
        config.lab = LabSpec { spines, ..config.lab };
        config.tenants = if way.has_daemon() { vec![TENANT.into()] } else { vec![] };
        config.network.reliable = way != Way::Vanilla;
        config.host.kernel_timestamps = matches!(way, Way::Stamped | Way::StampedSwift);
        match way {
            Way::Swift | Way::StampedSwift => config.host.congestion = "swift".into(),
            Way::FixedWindow => config.host.congestion = "fixed-window".into(),
            Way::OnePath => config.host.policy = "single".into(),
            Way::Probing => config.host.policy = "best-rtt".into(),
            _ => {}
        }
        change(&mut config);
        let trial = Trial::up(&config).unwrap_or_else(|error| panic!("{error}"));
        let site = Self { trial, way, spines };
        site.prepare();
        site
    }

    /// Returns the namespace of an end.
    pub(crate) fn namespace(&self, end: usize) -> String {
        if self.way.has_daemon() || self.way == Way::Kernel {
            self.trial.namespace(TENANT, end)
        } else {
            self.host(end)
        }
    }

    /// Returns the namespace of the host of an end.
    pub(crate) fn host(&self, end: usize) -> String {
        self.trial.lab.fabric().nodes[self.node(end)].namespace.clone()
    }

    fn node(&self, end: usize) -> usize {
        let name = format!("h{end}");
        self.trial.lab.fabric().nodes.iter().position(|node| node.name == name).expect("two hosts")
    }

    /// Returns the server's address.
    pub(crate) fn server(&self) -> String {
        if self.way.has_daemon() || self.way == Way::Kernel {
            Trial::address(1).to_string()
        } else {
            self.trial.lab.fabric().address(1).to_string()
        }
    }

    fn prepare(&self) {
        if self.way == Way::Kernel {
            (0..2).for_each(|end| self.build_kernel_vxlan(end));
        }
        // A namespace may choose only algorithms that the machine allows.
        run("sysctl", &["-qw", "net.ipv4.tcp_allowed_congestion_control=reno bbr cubic"]);
        for end in 0..2 {
            let control = if let Way::Tcp(control) = self.way { control } else { "cubic" };
            self.sysctl(end, "tcp_congestion_control", control);
            if self.way == Way::ShortTimeout {
                self.sysctl(end, "tcp_rto_min_us", "5000");
            }
            if self.way == Way::Mptcp {
                self.add_addresses(end);
            }
        }
    }

    fn sysctl(&self, end: usize, key: &str, value: &str) {
        let setting = format!("net.ipv4.{key}={value}");
        run("ip", &["netns", "exec", &self.namespace(end), "sysctl", "-qw", &setting]);
    }

    /// Builds a tenant behind a bridge that has a VXLAN tunnel to the other host.
    fn build_kernel_vxlan(&self, end: usize) {
        let (host, tenant) = (self.host(end), self.namespace(end));
        let fabric = self.trial.lab.fabric();
        let (own, other) = (fabric.address(end), fabric.address(1 - end));
        let commands = [
            format!("netns add {tenant}"),
            format!("-n {host} link add veth0 type veth peer name eth0 netns {tenant}"),
            format!(
                "-n {host} link add vx0 type vxlan id 100 local {own} remote {other} dstport 8472"
            ),
            format!("-n {host} link add br0 type bridge"),
            format!("-n {host} link set vx0 master br0 up"),
            format!("-n {host} link set veth0 master br0 up"),
            format!("-n {host} link set br0 up"),
            format!("-n {tenant} link set lo up"),
            format!("-n {tenant} link set eth0 mtu 1406 up"),
            format!("-n {tenant} addr add {}/24 dev eth0", Trial::address(end)),
        ];
        for command in commands {
            run("ip", &command.split_whitespace().collect::<Vec<_>>());
        }
    }

    /// Adds two more addresses for subflows to join.
    fn add_addresses(&self, end: usize) {
        let namespace = self.namespace(end);
        let fabric = self.trial.lab.fabric();
        let own = fabric.address(end).octets();
        let link = fabric
            .links
            .iter()
            .find(|link| link.near.node == self.node(end) || link.far.node == self.node(end));
        let link = link.expect("a host has a link");
        let port = if link.near.node == self.node(end) { &link.near } else { &link.far };
        run(
            "ip",
            &["-n", &namespace, "mptcp", "limits", "set", "subflow", "4", "add_addr_accepted", "4"],
        );
        for last in [12, 13] {
            let address = format!("{}.{}.{}.{last}", own[0], own[1], own[2]);
            run(
                "ip",
                &["-n", &namespace, "addr", "add", &format!("{address}/24"), "dev", &port.device],
            );
            let role = if end == 0 { "subflow" } else { "signal" };
            run(
                "ip",
                &[
                    "-n",
                    &namespace,
                    "mptcp",
                    "endpoint",
                    "add",
                    &address,
                    "dev",
                    &port.device,
                    role,
                ],
            );
        }
    }

    /// Makes every link lose packets with this probability, in each direction.
    pub(crate) fn lose(&mut self, percent: &str) {
        for spine in 0..self.spines {
            let loss = percent.parse().expect("a percentage");
            let impairment = Impairment { loss, ..Impairment::default() };
            let link = format!("l1-s{spine}");
            self.trial.lab.impair(&link, Direction::Both, &impairment).expect("a link of the lab");
        }
    }

    /// Sets the rates of the links behind the spines, one for each.
    pub(crate) fn shape(&mut self, rates: &[&str]) {
        for (spine, rate) in rates.iter().enumerate() {
            let rate = Some(rate.parse().expect("a rate"));
            let impairment = Impairment { rate, ..Impairment::default() };
            let link = format!("l1-s{spine}");
            self.trial.lab.impair(&link, Direction::Both, &impairment).expect("a link of the lab");
        }
    }

    /// Returns a command at an end, through `mptcpize` for MPTCP.
    pub(crate) fn command(&self, end: usize, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace(end)]);
        if self.way == Way::Mptcp {
            command.args(["mptcpize", "run"]);
        }
        command.arg(program).args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Returns the output of a program at an end; the program must succeed.
    pub(crate) fn output(&self, end: usize, program: &str, arguments: &[&str]) -> String {
        let output = self.command(end, program, arguments).output().expect("it can be started");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{program} {arguments:?}: {errors}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Starts a server at end 1, and waits until it accepts connections on `port`.
    pub(crate) fn serve(&self, program: &str, arguments: &[&str], port: u16) -> Server {
        let child = self.command(1, program, arguments).stdout(Stdio::null()).spawn();
        let server = Server(child.expect("it can be started"));
        let began = Instant::now();
        let to = (self.server(), port);
        let connect = || std::net::TcpStream::connect((to.0.as_str(), to.1)).is_ok();
        while !weft_lab::enter(&self.namespace(0), connect).expect("a namespace of the trial") {
            assert!(began.elapsed() < Duration::from_secs(20), "{program} takes no connections");
        }
        server
    }
}

/// A server that is killed when it is dropped.
pub(crate) struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().expect("it can be started");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {errors}");
}
