//! Ranks as processes: this program starts itself once for each rank, and passes messages between their standard inputs and outputs.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::Args;
use crate::checks::{self, Outcome};
use crate::exchange::{Exchange, MESSAGE};
use crate::rank::Rank;
use crate::run::run_checks;

/// The lines of a rank's process with results.
const PASSED: &str = "passed ";
const FAILED: &str = "failed ";

/// Runs the checks as a rank's process. Returns `true` if all passed.
pub(crate) fn run_rank(args: &Args, number: usize) -> Result<bool> {
    let version = args.interfaces.first().copied().context("a rank has one version")?;
    let exchange = Exchange::of_process(Duration::from_secs(args.timeout));
    let mut rank = Rank::new(args, number, version, exchange);
    Ok(run_checks(&mut rank, &args.checks()?, |check, outcome| match outcome {
        Ok(figures) => println!("{PASSED}{} {figures}", check.name),
        Err(reason) => println!("{FAILED}{} {}", check.name, reason.replace('\n', " ")),
    }))
}

/// A rank's process. It is killed when this is dropped.
struct Process {
    child: Child,
    input: ChildStdin,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A line of a rank's process; `None` at its end.
type Line = (usize, Option<String>);

fn start(args: &Args, version: u8, number: usize, lines: Sender<Line>) -> Result<Process> {
    let program = std::env::current_exe().context("this program has no path")?;
    let on = args.hosts.get(number).map_or("", String::as_str);
    let mut words = on.split_whitespace();
    let mut command = match words.next() {
        Some(first) => {
            let mut command = Command::new(first);
            command.args(words).arg(&program);
            command
        }
        None => Command::new(&program),
    };
    command.arg(&args.plugin).args([
        "--rank",
        &number.to_string(),
        "--interface",
        &version.to_string(),
    ]);
    command.args(["--timeout", &args.timeout.to_string(), "--seconds", &args.seconds.to_string()]);
    command.args([
        "--device",
        &args.device.to_string(),
        "--max-size",
        &args.max_size.0.to_string(),
    ]);
    command.args(args.only.iter().flat_map(|name| ["--only", name]));
    if args.log {
        command.arg("--log");
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
    let input = child.stdin.take().context("the input is piped")?;
    let output = child.stdout.take().context("the output is piped")?;
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            let _ = lines.send((number, Some(line)));
        }
        let _ = lines.send((number, None));
    });
    Ok(Process { child, input })
}

/// Runs the checks of a version with two processes as ranks. Returns `true` if all passed.
///
/// # Errors
/// A process cannot be started.
pub(crate) fn run_parent(args: &Args, version: u8) -> Result<bool> {
    let (sender, lines) = channel();
    let mut ranks = [start(args, version, 0, sender.clone())?, start(args, version, 1, sender)?];
    let mut report = Report { version, last: "start".to_owned(), passed: true };
    relay(args, &mut ranks, &lines, &mut report);
    Ok(report.passed)
}

/// The results that were printed.
struct Report {
    version: u8,
    /// The last check with a result.
    last: String,
    passed: bool,
}

impl Report {
    fn print(&mut self, name: &str, outcome: &Outcome) {
        self.passed &= outcome.is_ok();
        name.clone_into(&mut self.last);
        checks::print(self.version, "processes", name, outcome);
    }
}

/// Passes messages between the ranks until both have ended. Rank 0 reports; of rank 1 only failures are reported.
fn relay(args: &Args, ranks: &mut [Process; 2], lines: &Receiver<Line>, report: &mut Report) {
    // A check takes at most its time without progress, and a margin.
    let limit = Duration::from_secs(args.timeout * 2 + args.seconds * 8);
    let mut ended = [false; 2];
    while ended != [true; 2] {
        let (number, line) = match lines.recv_timeout(limit) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                let reason = format!(
                    "after {}: a call of the plugin does not return for {} s",
                    report.last,
                    limit.as_secs()
                );
                return report.print("hang", &Err(reason));
            }
        };
        match line {
            None => ended[number] = true,
            // A rank that has ended takes no messages, which is not an error of the other.
            Some(line) if line.starts_with(MESSAGE) => {
                drop(writeln!(ranks[1 - number].input, "{line}"))
            }
            Some(line) => {
                let (kind, rest) = if let Some(rest) = line.strip_prefix(PASSED) {
                    (true, rest)
                } else {
                    (false, line.strip_prefix(FAILED).unwrap_or(&line))
                };
                let (name, text) = rest.split_once(' ').unwrap_or((rest, ""));
                match (kind, number) {
                    (true, 0) => report.print(name, &Ok(text.to_owned())),
                    (true, _) => {}
                    (false, 0) => report.print(name, &Err(text.to_owned())),
                    (false, _) => report.print(name, &Err(format!("rank 1: {text}"))),
                }
            }
        }
    }
    let status = ranks[0].child.wait();
    if report.passed && !status.as_ref().is_ok_and(|status| status.success()) {
        let reason = format!("after {}: the process of rank 0 ended: {status:?}", report.last);
        report.print("crash", &Err(reason));
    }
}
