//! RDMA programs as Debian ships them, on the devices of the daemons: `ibv_rc_pingpong`, which checks what it receives.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::Workloads;
use crate::HOSTS;
use crate::account::Account;
use crate::daemons::{DEVICE, device_socket};
use crate::journal::Journal;
use crate::shared::{Shared, run};

/// The time limit of a program, seconds.
const LIMIT: u32 = 90;
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

/// A server that ends with its client.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn pingpong(shared: &Shared, (from, to): (usize, usize), port: &str) -> Result<(), String> {
    let mut command = program(shared, to, &["-p", port]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let spawned = weft_lab::enter(&shared.hosts[to], || command.spawn())
        .map_err(|error| error.to_string())?;
    let mut server = Server(spawned.map_err(|error| format!("cannot start the server: {error}"))?);
    await_listener(shared, to, port, &mut server)?;
    let address = shared.addresses[to].to_string();
    let printed = run(&shared.hosts[from], &mut program(shared, from, &["-p", port, &address]))?;
    if !printed.contains("usec/iter") || printed.contains("invalid data") {
        return Err(format!("the program printed {printed:?}"));
    }
    let ended = server.0.wait().map_err(|error| error.to_string())?;
    if ended.success() { Ok(()) } else { Err(format!("the server ended with {ended}")) }
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
    server: &mut Server,
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
        if let Ok(Some(status)) = server.0.try_wait() {
            return Err(format!("the server ended with {status} before its client came"));
        }
        if began.elapsed() > Duration::from_secs((LIMIT * shared.slack).into()) {
            return Err("the server does not listen".into());
        }
        thread::sleep(Duration::from_millis(10));
    }
}
