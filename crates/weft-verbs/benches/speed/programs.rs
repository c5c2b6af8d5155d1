//! Benchmark programs, and the figures they print.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::library::program;
use crate::pair::{Stage, finish, next_port, until_listening};

/// Runs both ends. Returns the client's output if both succeeded.
fn both(stage: &impl Stage, server: &[String], client: &[String], port: u16) -> Option<String> {
    both_with(stage, server, client, port, &[])
}

fn both_with(
    stage: &impl Stage,
    server: &[String],
    client: &[String],
    port: u16,
    environment: &[(&str, &str)],
) -> Option<String> {
    let start = |second, words: &[String]| {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut command: Command = program(&words);
        command.envs(environment.iter().copied());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        stage.start(second, &mut command)
    };
    let mut serving = start(false, server);
    until_listening(&mut serving, port);
    let (succeeded, printed) = finish(start(true, client));
    if !succeeded {
        let _ = serving.kill();
    }
    let (served, output) = finish(serving);
    if !succeeded || !served {
        eprintln!("{} failed: {printed}{output}", client.join(" "));
        return None;
    }
    Some(printed)
}

fn words(of: &str) -> Vec<String> {
    of.split_whitespace().map(str::to_string).collect()
}

/// Returns the numbers of the last line that begins with `first`, or of the last line if `first` is empty.
fn numbers(printed: &str, first: &str) -> Option<Vec<f64>> {
    let line = printed.lines().rfind(|line| line.trim_start().starts_with(first))?;
    Some(line.split_whitespace().filter_map(|word| word.parse().ok()).collect())
}

/// A program of perftest on this device.
#[derive(Clone, Debug)]
pub(crate) struct Perftest {
    words: String,
    size: u64,
    /// The column of the figure in its line, and the factor to its unit.
    column: usize,
    unit: f64,
    off: bool,
    shared: bool,
}

/// The factor from 2^20 bytes, which perftest and UCX print, to GB.
const MIB: f64 = 1_048_576.0 / 1e9;

impl Perftest {
    /// Measures the typical one-way latency, microseconds.
    pub(crate) fn latency(name: &str, size: u64, iterations: u64) -> Self {
        let words = format!("{name} -s {size} -n {iterations}");
        Self { words, size, column: 4, unit: 1.0, off: false, shared: false }
    }

    /// Measures the average rate, GB/s.
    pub(crate) fn bandwidth(name: &str, size: u64, iterations: u64) -> Self {
        let words = format!("{name} -s {size} -n {iterations}");
        Self { words, size, column: 3, unit: MIB, off: false, shared: false }
    }

    pub(crate) fn with(mut self, more: &str) -> Self {
        self.words = format!("{} {more}", self.words);
        self
    }

    /// Uses UDP even if both ends are on one host.
    pub(crate) fn over_udp(mut self) -> Self {
        self.off = true;
        self
    }

    /// Has both ends allocate their buffers in shared memory, each in its own.
    pub(crate) fn in_shared_memory(mut self) -> Self {
        self.shared = true;
        self
    }

    pub(crate) fn run(&self, stage: &impl Stage) -> Option<f64> {
        let port = next_port();
        let mut server = words(&format!("{} -p {port}", self.words));
        let mut client = server.clone();
        client.push(stage.server());
        let buffers = self.shared.then(|| ["server", "client"].map(SharedBuffers::create));
        if let Some([of_server, of_client]) = &buffers {
            server.push(of_server.option());
            client.push(of_client.option());
        }
        let way = [("WEFT_SAME_HOST", if self.off { "off" } else { "on" })];
        let printed = both_with(stage, &server, &client, port, &way)?;
        let line = numbers(&printed, &format!("{} ", self.size))?;
        line.get(self.column).map(|figure| figure * self.unit)
    }
}

/// A file in shared memory for the buffers of one end. It is removed when this is dropped.
#[derive(Debug)]
struct SharedBuffers(PathBuf);

impl SharedBuffers {
    fn create(end: &str) -> Self {
        let name = format!("weft-bench-{}-{end}", std::process::id());
        let path = PathBuf::from("/dev/shm").join(name);
        let file = File::create(&path).expect("a file in shared memory");
        file.set_len(SHARED_BYTES).expect("room in shared memory");
        Self(path)
    }

    /// Returns the option by which perftest maps the file.
    fn option(&self) -> String {
        format!("--mmap={}", self.0.display())
    }
}

impl Drop for SharedBuffers {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Bytes of a file for buffers: more than perftest maps for a queue pair and messages of 64 KiB.
const SHARED_BYTES: u64 = 1 << 20;

/// `ucx_perftest` without this device.
#[derive(Clone, Debug)]
pub(crate) struct Ucx {
    transport: &'static str,
    words: String,
    column: usize,
    unit: f64,
}

impl Ucx {
    pub(crate) fn latency(transport: &'static str) -> Self {
        let words = "-t tag_lat -s 8 -n 20000".into();
        Self { transport, words, column: 1, unit: 1.0 }
    }

    pub(crate) fn bandwidth(test: &str) -> Self {
        let words = format!("-t {test} -s 65536 -n 20000");
        Self { transport: "shm", words, column: 5, unit: MIB }
    }

    pub(crate) fn run(&self, stage: &impl Stage) -> Option<f64> {
        let port = next_port();
        let common = format!("env UCX_TLS={},self ucx_perftest -p {port}", self.transport);
        let server = words(&common);
        let client = words(&format!("{common} {} {}", self.words, stage.server()));
        let printed = both(stage, &server, &client, port)?;
        numbers(&printed, "Final:")?.get(self.column).map(|figure| figure * self.unit)
    }
}

/// Returns the rate of the kernel's TCP on one connection, GB/s.
pub(crate) fn iperf3(stage: &impl Stage) -> Option<f64> {
    let port = next_port();
    let server = words(&format!("iperf3 --server --one-off --port {port}"));
    let address = stage.server();
    let client = words(&format!("iperf3 --client {address} --port {port} --time 2 --format m"));
    let printed = both(stage, &server, &client, port)?;
    let line = printed.lines().rfind(|line| line.contains("receiver"))?;
    let before = line.split("Mbits/sec").next()?;
    let megabits: f64 = before.split_whitespace().last()?.parse().ok()?;
    Some(megabits / 8000.0)
}

/// The figures of libfabric's ping-pong.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exchange {
    /// The rate, GB/s.
    pub(crate) rate: f64,
    /// The one-way latency, microseconds.
    pub(crate) micros: f64,
}

/// Runs libfabric's reliable datagrams over UDP.
pub(crate) fn fi_pingpong(stage: &impl Stage, size: u64) -> Option<Exchange> {
    let port = next_port();
    let common = format!("fi_pingpong -p udp;ofi_rxd -e rdm -S {size} -I 500");
    let server = words(&format!("{common} -B {port}"));
    let client = words(&format!("{common} -P {port} {}", stage.server()));
    let printed = both(stage, &server, &client, port)?;
    // bytes, sent, acknowledged, total, time, MB/sec, usec/xfer, Mxfers/sec; sizes have suffixes.
    let last = printed.lines().rfind(|line| line.contains("=500") || line.contains("500 "))?;
    let numbers: Vec<f64> = last.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [.., rate, micros, _] = numbers[..] else { return None };
    Some(Exchange { rate: rate / 1000.0, micros })
}
