//! The hosts of both ends: two network namespaces of this process's own, or loopback.

use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr};
use std::process::{Command, Stdio};

/// One end of the link.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    Client,
    Server,
}

/// The hosts of both ends. Dropping it removes the namespaces.
#[derive(Debug)]
pub(crate) enum Place {
    Namespaces { client: String, server: String },
    Loopback,
}

impl Place {
    /// Makes the namespaces; returns loopback if this user may not.
    pub(crate) fn prepare() -> Self {
        let pid = std::process::id();
        let place =
            Self::Namespaces { client: format!("weftb{pid}c"), server: format!("weftb{pid}s") };
        if let Err(reason) = place.build(pid) {
            eprintln!("no network namespaces ({reason}); measuring over loopback");
            return Self::Loopback;
        }
        place
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Namespaces { .. } => "two namespaces, one veth, MTU 1500",
            Self::Loopback => "loopback",
        }
    }

    pub(crate) fn address(&self, end: End) -> IpAddr {
        let last = match (self, end) {
            (Self::Loopback, _) => return Ipv4Addr::LOCALHOST.into(),
            (_, End::Client) => 1,
            (_, End::Server) => 2,
        };
        Ipv4Addr::new(10, 83, 0, last).into()
    }

    /// Returns a command that runs `program` at `end`.
    pub(crate) fn command(&self, end: End, program: &str) -> Command {
        match (self, end) {
            (Self::Loopback, _) => Command::new(program),
            (Self::Namespaces { client: name, .. }, End::Client)
            | (Self::Namespaces { server: name, .. }, End::Server) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", name, program]);
                command
            }
        }
    }

    /// Returns the TCP goodput that iperf3 reports, Gb/s; `None` if iperf3 is not installed or fails.
    pub(crate) fn iperf3(&self, seconds: u64) -> Option<f64> {
        self.iperf3_to(&self.address(End::Server).to_string(), seconds)
    }

    /// Returns the result of [`Self::iperf3`] to another address of the server.
    pub(crate) fn iperf3_to(&self, address: &str, seconds: u64) -> Option<f64> {
        let mut server = self
            .command(End::Server, "iperf3")
            .args(["-s", "-1", "-B", address, "--forceflush"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let lines = BufReader::new(server.stdout.take()?).lines();
        let listens = lines.map_while(Result::ok).any(|line| line.contains("listening"));
        let bps = listens.then(|| self.iperf3_client(address, seconds)).flatten();
        // The server ends after one client; without one it is killed.
        let _ = server.kill();
        let _ = server.wait();
        bps.map(|bps| bps / 1e9)
    }

    fn iperf3_client(&self, address: &str, seconds: u64) -> Option<f64> {
        let output = self
            .command(End::Client, "iperf3")
            .args(["-J", "-t", &seconds.to_string(), "-c", address])
            .output()
            .ok()?;
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
        json["end"]["sum_received"]["bits_per_second"].as_f64()
    }

    fn build(&self, pid: u32) -> Result<(), String> {
        let Self::Namespaces { client, server } = self else { return Ok(()) };
        let (near, far) = (format!("wb{pid}c"), format!("wb{pid}s"));
        let address = |end| format!("{}/24", self.address(end));
        let (client_address, server_address) = (address(End::Client), address(End::Server));
        let commands: &[&[&str]] = &[
            &["netns", "add", client],
            &["netns", "add", server],
            &[
                "link", "add", &near, "netns", client, "type", "veth", "peer", "name", &far,
                "netns", server,
            ],
            &["-n", client, "address", "add", &client_address, "dev", &near],
            &["-n", server, "address", "add", &server_address, "dev", &far],
            &["-n", client, "link", "set", &near, "up"],
            &["-n", server, "link", "set", &far, "up"],
        ];
        commands.iter().try_for_each(|arguments| ip(arguments))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Self::Namespaces { client, server } = self {
            // The removal of a namespace that was not made fails, which is ignored.
            let _ = ip(&["netns", "delete", client]);
            let _ = ip(&["netns", "delete", server]);
        }
    }
}

fn ip(arguments: &[&str]) -> Result<(), String> {
    let output = Command::new("ip")
        .args(arguments)
        .output()
        .map_err(|error| format!("cannot run ip: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr);
    Err(format!("ip {}: {}", arguments.join(" "), message.trim()))
}
