//! The programs that play ping-pong, and the parsers of their output.

use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};

use crate::end::Mode;
use crate::library::{BARE, program};
use crate::pair::{Stage, finish, next_port, until_listening};

/// Maximum number of round trips of a run.
const ROUND_TRIPS: u32 = 5_000;
/// Maximum number of bytes that a run moves in one direction, if it has more than 20 round trips.
const BYTES_PER_RUN: u32 = 256 << 20;

/// A way to play ping-pong.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Contender {
    /// `examples/bare/ping_pong.c`.
    Bare,
    /// X-RDMA.
    Messages(Mode),
    /// `ucx_perftest`, one of its tests.
    Ucx(&'static str, &'static str),
    /// libfabric's `fi_pingpong`, on its leanest endpoint. It prints only the mean; the result is the minimum of five
    /// runs.
    Libfabric,
}

/// Returns all contenders; the others are compared with the first.
pub(crate) fn contenders() -> Vec<Contender> {
    vec![
        Contender::Bare,
        Contender::Messages(Mode::Messages),
        Contender::Messages(Mode::Calls),
        Contender::Messages(Mode::Traced),
        Contender::Ucx("UCX active messages", "ucp_am_lat"),
        Contender::Ucx("UCX tags", "tag_lat"),
        Contender::Libfabric,
    ]
}

impl Contender {
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Bare => "bare verbs",
            Self::Messages(Mode::Messages) => "X-RDMA messages",
            Self::Messages(Mode::Calls) => "X-RDMA calls",
            Self::Messages(Mode::Traced) => "X-RDMA calls, traced",
            Self::Ucx(name, _) => name,
            Self::Libfabric => "libfabric verbs",
        }
    }

    /// Returns the microseconds one way; `None` if an end failed.
    pub(crate) fn run(&self, stage: &impl Stage, size: u32) -> Option<f64> {
        let trips = ROUND_TRIPS.min(BYTES_PER_RUN / size.max(1)).max(20);
        match self {
            Self::Bare => last(&both(
                stage,
                |port| format!("{} {port}", *BARE),
                |port, to| format!("{} {to}:{port} {size} {trips}", *BARE),
            )?),
            Self::Messages(mode) => {
                let this = std::env::current_exe().ok()?.display().to_string();
                let mode = mode.name();
                last(&both(
                    stage,
                    |port| format!("{this} end answer {port}"),
                    |port, to| format!("{this} end {mode} {to}:{port} {size} {trips}"),
                )?)
            }
            Self::Ucx(_, test) => {
                let common = "env UCX_TLS=rc_v,self UCX_NET_DEVICES=weft0:1 ucx_perftest -p";
                let printed = both(
                    stage,
                    |port| format!("{common} {port}"),
                    |port, to| format!("{common} {port} -t {test} -s {size} -n {trips} {to}"),
                )?;
                let line = printed.lines().rfind(|line| line.starts_with("Final:"))?;
                line.split_whitespace().nth(2)?.parse().ok()
            }
            Self::Libfabric => (0..5).filter_map(|_| libfabric(stage, size)).min_by(f64::total_cmp),
        }
    }
}

/// Returns the mean of a short run.
fn libfabric(stage: &impl Stage, size: u32) -> Option<f64> {
    let trips = 2_000.min(BYTES_PER_RUN / size.max(1)).max(10);
    let common = format!("fi_pingpong -p verbs -e msg -S {size} -I {trips}");
    let printed = both(
        stage,
        |port| format!("{common} -B {port}"),
        |port, to| format!("{common} -P {port} {to}"),
    )?;
    // bytes, sent, acknowledged, total, time, MB/sec, usec/xfer, Mxfers/sec
    printed.lines().last()?.split_whitespace().nth(6)?.parse().ok()
}

/// Returns the last number in the output.
fn last(printed: &str) -> Option<f64> {
    printed.split_whitespace().last()?.parse().ok()
}

/// Runs both ends. Returns the client's output if it succeeded.
fn both(
    stage: &impl Stage,
    server: impl Fn(u16) -> String,
    client: impl Fn(u16, &str) -> String,
) -> Option<String> {
    let port = next_port();
    let start = |second: bool, line: &str| {
        // Each end has its own processor, with priority if that is permitted, to exclude the scheduler.
        let line = format!("taskset -c {} nice -n -20 {line}", u8::from(second));
        let words: Vec<&str> = line.split_whitespace().collect();
        let mut command = program(&words);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        stage.start(second, &mut command)
    };
    let mut serving = start(false, &server(port));
    until_listening(&mut serving, port);
    let client = client(port, &stage.server());
    let (succeeded, printed) = finish(start(true, &client));
    // Some servers never end. SIGTERM, unlike SIGKILL, is passed on by `timeout`.
    let pid = Pid::from_raw(i32::try_from(serving.id()).expect("a process")).expect("not zero");
    let _ = kill_process(pid, Signal::TERM);
    let (_, said) = finish(serving);
    if !succeeded {
        eprintln!("{client} failed: {printed}{said}");
    }
    succeeded.then_some(printed)
}
