//! The roles of the bench's processes. The bench starts its own program at each end in one of these roles.

use std::io::{BufRead, BufReader, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::process::{Child, Stdio};
use std::sync::atomic::AtomicBool;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use weft_perf::TestKind;
use weft_perf::baseline::{Bare, Blast, HEADER_BYTES};
use weft_perf::{Client, ClientConfig, LatencyMicros, Plan, Report, Server, ServerConfig};
use weft_transport::TransportConfig;
use weft_udp::sockets::SocketConfig;
use weft_udp::{AgentConfig, SealConfig, WaitMode};
use weft_units::Duration;

use crate::namespaces::{End, Place};

/// Bytes of payload of a packet that fills 1500 bytes with the headers of IPv4, UDP and the transport.
const PAYLOAD: u16 = 1440;

/// Bytes of a ping-pong's message.
const PING_BYTES: u16 = 8;

/// The options of the command line.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Settings {
    pub(crate) rounds: usize,
    pub(crate) seconds: u64,
    pub(crate) burst: u16,
    pub(crate) paths: u16,
    pub(crate) message_bytes: u32,
    pub(crate) outstanding: u32,
    pub(crate) window: u16,
    pub(crate) ack_every: u16,
    pub(crate) wait: WaitMode,
    /// `true` if connections are encrypted, as by default; bare programs never are.
    pub(crate) encrypted: bool,
}

impl Settings {
    pub(crate) fn parse(arguments: &[String]) -> Result<Self, String> {
        let ethernet = AgentConfig::ethernet(4);
        let mut settings = Self {
            rounds: 5,
            seconds: 2,
            burst: ethernet.spray_unit,
            paths: ethernet.paths,
            message_bytes: 256 << 10,
            outstanding: 16,
            window: ethernet.send_window,
            ack_every: ethernet.ack_every,
            wait: WaitMode::default(),
            encrypted: true,
        };
        for pair in arguments.chunks(2) {
            let [name, value] = pair else { return Err(format!("{} needs a value", pair[0])) };
            let number = || value.parse().map_err(|_| format!("{name} {value}: not a number"));
            let short = || number().map(|n: u64| u16::try_from(n).unwrap_or(u16::MAX));
            let long = || number().map(|n: u64| u32::try_from(n).unwrap_or(u32::MAX));
            match name.as_str() {
                "--rounds" => settings.rounds = usize::from(short()?),
                "--seconds" => settings.seconds = number()?,
                "--burst" => settings.burst = short()?,
                "--paths" => settings.paths = short()?,
                "--message" => settings.message_bytes = long()?,
                "--outstanding" => settings.outstanding = long()?,
                "--window" => settings.window = short()?,
                "--ack-every" => settings.ack_every = short()?,
                "--wait" => {
                    let mode = value.parse::<WaitMode>();
                    settings.wait = mode.map_err(|error| error.to_string())?;
                }
                _ => return Err(format!("no option {name}")),
            }
        }
        Ok(settings)
    }

    /// Returns these settings without encryption.
    pub(crate) fn in_the_clear(&self) -> Self {
        Self { encrypted: false, ..self.clone() }
    }

    fn encryption(&self) -> SealConfig {
        if self.encrypted { SealConfig::default() } else { SealConfig::off() }
    }

    fn transport(&self) -> TransportConfig {
        TransportConfig {
            spray_unit: self.burst,
            send_window: self.window,
            ack_every: self.ack_every,
            ..AgentConfig::ethernet(self.paths)
        }
    }

    fn sockets(&self, address: IpAddr) -> SocketConfig {
        SocketConfig::new(SocketAddr::new(address, 0), self.paths)
    }

    fn client(&self, kind: TestKind, address: IpAddr, server: SocketAddr) -> ClientConfig {
        let message_bytes =
            if kind == TestKind::Latency { PING_BYTES.into() } else { self.message_bytes };
        ClientConfig {
            encryption: self.encryption(),
            local: SocketAddr::new(address, 0),
            server,
            transport: self.transport(),
            plan: Plan::new(kind, message_bytes, self.outstanding, false).expect("settings"),
            connections: 1,
            duration: Duration::from_secs(self.seconds),
            wait: self.wait,
        }
    }
}

/// A process at one end. It is killed when the value is dropped.
struct Running {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
    address: IpAddr,
}

impl Running {
    fn start(
        place: &Place,
        end: End,
        role: &str,
        settings: &Settings,
        to: Option<SocketAddr>,
    ) -> Self {
        let program = std::env::current_exe().expect("a running program has a path");
        let address = place.address(end);
        let json = serde_json::to_string(settings).expect("numbers and names");
        let mut child = place
            .command(end, program.to_str().expect("a build directory is text"))
            .args(["role", role, &address.to_string(), &json])
            .args(to.map(|to| to.to_string()))
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program starts again");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        Self { child, output, address }
    }

    /// Returns the next line that the process prints, parsed as JSON.
    fn read_output<T: DeserializeOwned>(&mut self) -> T {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a process that prints");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line:?}: {error}"))
    }

    /// Returns the address at which the process receives; its port is the first line that it prints.
    fn read_address(&mut self) -> SocketAddr {
        SocketAddr::new(self.address, self.read_output())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the payload rate of a bare blast, Gb/s, without as many bytes as the transport's headers take.
pub(crate) fn blast(place: &Place, settings: &Settings) -> f64 {
    let mut counter = Running::start(place, End::Server, "count", settings, None);
    let to = counter.read_address();
    let _blaster = Running::start(place, End::Client, "blast", settings, Some(to));
    counter.read_output::<Blast>().goodput_bps(HEADER_BYTES) / 1e9
}

/// Measures one connection's stream.
pub(crate) fn throughput(place: &Place, settings: &Settings) -> Report {
    against_server(place, settings, "throughput")
}

/// Measures one connection's ping-pong.
pub(crate) fn latency(place: &Place, settings: &Settings) -> Report {
    against_server(place, settings, "latency")
}

fn against_server(place: &Place, settings: &Settings, role: &str) -> Report {
    let mut server = Running::start(place, End::Server, "serve", settings, None);
    let to = server.read_address();
    Running::start(place, End::Client, role, settings, Some(to)).read_output()
}

/// Measures a bare ping-pong.
pub(crate) fn bare_latency(place: &Place, settings: &Settings) -> LatencyMicros {
    let mut echo = Running::start(place, End::Server, "echo", settings, None);
    let to = echo.read_address();
    Running::start(place, End::Client, "ping", settings, Some(to)).read_output()
}

/// Runs the process of one end. Its arguments are `ROLE ADDRESS SETTINGS [TO]`.
pub(crate) fn play(arguments: &[String]) {
    let [role, address, settings, rest @ ..] = arguments else { panic!("role ADDRESS SETTINGS") };
    let address: IpAddr = address.parse().expect("an address");
    let settings: Settings = serde_json::from_str(settings).expect("settings");
    let to = || rest[0].parse::<SocketAddr>().expect("an address and a port");
    let run_for = Duration::from_secs(settings.seconds);
    let never = AtomicBool::new(false);
    let bare = || Bare::open(&settings.sockets(address), settings.wait).expect("sockets");
    match role.as_str() {
        "serve" => {
            let local = SocketAddr::new(address, 0);
            let config = ServerConfig {
                encryption: settings.encryption(),
                local,
                transport: settings.transport(),
                wait: settings.wait,
            };
            let mut server = Server::open(&config).expect("a server");
            print_json(&server.local().port());
            server.run(&never);
        }
        "count" => {
            let mut bare = bare();
            print_json(&bare.local().port());
            print_json(&bare.count(Duration::from_millis(200), &never));
        }
        "echo" => {
            let mut bare = bare();
            print_json(&bare.local().port());
            bare.echo(&never);
        }
        "blast" => bare().blast(to(), PAYLOAD + HEADER_BYTES, run_for),
        "ping" => print_json(&bare().ping(to(), PING_BYTES, run_for)),
        "throughput" => measure(settings.client(TestKind::Throughput, address, to())),
        "latency" => measure(settings.client(TestKind::Latency, address, to())),
        _ => panic!("no role {role}"),
    }
}

fn measure(config: ClientConfig) {
    let report = Client::open(config).expect("sockets").run(|_| {});
    print_json(&report.unwrap_or_else(|error| panic!("{error}")));
}

/// Prints a value as a line of JSON.
fn print_json(value: &impl Serialize) {
    println!("{}", serde_json::to_string(value).expect("numbers and names"));
    std::io::stdout().flush().expect("the bench listens");
}
