//! RDMA programs as Debian ships them, on the devices of the daemons: `ibv_rc_pingpong`, which checks what it receives.

use std::fs;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::Workloads;
use crate::HOSTS;
use crate::account::Account;
use crate::daemons::{DEVICE, device_socket};
use crate::journal::Journal;
use crate::shared::Shared;
use crate::supervisor::signal;

/// The time limit of a program, seconds.
const LIMIT: u32 = 90;
/// The time in which a program ends after the one at its other end.
const FOLLOWS: Duration = Duration::from_secs(2);
/// The interval between two looks at programs that run.
const POLL: Duration = Duration::from_millis(20);
/// The first TCP port by which the programs find each other.
const PORT: u64 = 18_000;

/// Starts a loop for each pair of neighbours.
pub(super) fn start(shared: &Arc<Shared>, journal: &Arc<Journal>, workloads: &mut Workloads) {
    for host in 0..HOSTS {
        let (from, to) = (host, (host + 1) % HOSTS);
        let shared = Arc::clone(shared);
        let account = Account::open(journal, format!("pingpong h{from}-h{to}"));
        workloads.repeat(account, Duration::from_millis(1500), move |number| {
            // A port of the run before may still be in use.
            let port = PORT + 1000 * host as u64 + number % 1000;
            pingpong(&shared, (from, to), &port.to_string())
        });
    }
}

/// A program that ends with its operation.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
        let _ = self.0.wait();
    }
}

impl Running {
    fn start(namespace: &str, mut command: Command) -> Result<Self, String> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let spawned = weft_lab::enter(namespace, || command.spawn());
        let spawned = spawned.map_err(|error| error.to_string())?;
        spawned.map(Self).map_err(|error| format!("cannot start {command:?}: {error}"))
    }

    /// Has `timeout` end the program, and then end itself. Killed at once, it would leave the program running.
    fn end(&mut self) {
        if self.has_ended() == Ok(None) {
            signal(self.0.id(), Signal::TERM);
        }
    }

    fn has_ended(&mut self) -> Result<Option<bool>, String> {
        let ended = self.0.try_wait().map_err(|error| error.to_string())?;
        Ok(ended.map(|status| status.success()))
    }

    /// Returns all that a program has printed that has ended: some lines.
    fn printed(&mut self) -> String {
        let mut text = String::new();
        // What cannot be read was not printed.
        let _ = self.0.stdout.take().map(|mut it| it.read_to_string(&mut text));
        let _ = self.0.stderr.take().map(|mut it| it.read_to_string(&mut text));
        text
    }

    /// Returns the last line of a program that has failed, or whose other end has: it is ended if it does not end by itself.
    fn reason(&mut self) -> String {
        let began = Instant::now();
        while began.elapsed() < FOLLOWS && self.has_ended() == Ok(None) {
            thread::sleep(POLL);
        }
        self.end();
        let printed = self.printed();
        printed.trim().lines().last().unwrap_or("it printed nothing").to_owned()
    }
}

fn pingpong(shared: &Shared, (from, to): (usize, usize), port: &str) -> Result<(), String> {
    let mut server = Running::start(&shared.hosts[to], program(shared, to, &["-p", port]))?;
    await_listener(shared, to, port, &mut server)?;
    let address = shared.addresses[to].to_string();
    let client = program(shared, from, &["-p", port, &address]);
    let mut client = Running::start(&shared.hosts[from], client)?;
    let (mut client_ended, mut server_ended) = (None, None);
    // An end that only waits for messages does not notice that the other one has failed, as on hardware.
    while client_ended.is_none() || server_ended.is_none() {
        client_ended = client_ended.or(client.has_ended()?);
        server_ended = server_ended.or(server.has_ended()?);
        // The one that ended first is often not the one that knows why.
        if client_ended == Some(false) || server_ended == Some(false) {
            return Err(format!("client: {}; server: {}", client.reason(), server.reason()));
        }
        thread::sleep(POLL);
    }
    let printed = client.printed();
    if printed.contains("usec/iter") && !printed.contains("invalid data") {
        return Ok(());
    }
    Err(format!("the program printed {printed:?}"))
}

fn program(shared: &Shared, host: usize, words: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", &(LIMIT * shared.slack).to_string()]).arg(&shared.weft);
    command.args(["run", "--device", DEVICE, "--socket", &device_socket(shared, host), "--"]);
    command.args(["ibv_rc_pingpong", "-g", "0", "-c", "-e", "-s", "65536", "-n", "30"]).args(words);
    command.env("WEFT_STAT", shared.text(&format!("h{host}/stat")));
    command
}

/// Waits until a server listens in a host's namespace: a client does not try twice.
fn await_listener(
    shared: &Shared,
    host: usize,
    port: &str,
    server: &mut Running,
) -> Result<(), String> {
    let wanted = port.parse::<u16>().map_err(|error| error.to_string())?;
    let wanted = format!(":{wanted:04X} 00000000:0000 0A");
    let began = Instant::now();
    loop {
        let sockets = weft_lab::enter(&shared.hosts[host], || {
            fs::read_to_string("/proc/thread-self/net/tcp")
        });
        let sockets =
            sockets.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
        if sockets.contains(&wanted) {
            return Ok(());
        }
        if server.has_ended()?.is_some() {
            return Err(format!("server, before its client came: {}", server.reason()));
        }
        if began.elapsed() > Duration::from_secs((LIMIT * shared.slack).into()) {
            return Err("the server does not listen".into());
        }
        thread::sleep(Duration::from_millis(10));
    }
}
