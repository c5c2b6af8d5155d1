//! The lines that a soak prints while it runs, and its report.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use crate::account::Counts;
use crate::leaks::{DESCRIPTOR_BOUND, Growth, MEMORY_BOUND, THREAD_BOUND};
use crate::schedule::{Fault, Kind};

/// The settings of a soak.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) seed: u64,
    pub(crate) duration: Duration,
    /// The number by which time limits are multiplied.
    pub(crate) slack: u32,
    pub(crate) weft: PathBuf,
    /// The folder of the daemons' logs.
    pub(crate) logs: PathBuf,
}

/// A fault that was made.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) kind: String,
    pub(crate) made: Duration,
    pub(crate) lasted: Duration,
    /// The time from the repair until everything was healthy; `None` if it took longer than the bound.
    pub(crate) recovered: Option<Duration>,
    pub(crate) bound: Duration,
    pub(crate) detail: String,
    /// The machine's load average of the last minute.
    pub(crate) load: f64,
}

/// The report of a soak.
#[derive(Debug)]
pub(crate) struct Report {
    seed: u64,
    duration: Duration,
    pub(crate) outcomes: Vec<Outcome>,
    pub(crate) accounts: Vec<(String, Counts)>,
    pub(crate) growth: Vec<Growth>,
    /// Number of events, warnings and errors, explained or not.
    pub(crate) alarms: usize,
    /// The reasons for which the soak has failed.
    pub(crate) failures: Vec<String>,
}

impl Report {
    pub(crate) fn new(seed: u64, duration: Duration) -> Self {
        let (outcomes, accounts, growth, failures) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { seed, duration, outcomes, accounts, growth, alarms: 0, failures }
    }

    /// Returns the worst recovery, with its fault.
    fn worst(&self) -> Option<&Outcome> {
        self.outcomes.iter().max_by_key(|it| it.recovered.unwrap_or(Duration::MAX))
    }

    pub(crate) fn to_json(&self) -> Value {
        let seconds = |time: Duration| (time.as_secs_f64() * 1000.0).round() / 1000.0;
        let outcome = |it: &Outcome| {
            json!({
                "at": seconds(it.made), "fault": it.kind, "lasted": seconds(it.lasted), "detail": it.detail,
                "recovered": it.recovered.map(seconds), "bound": seconds(it.bound), "load": it.load,
            })
        };
        let account = |(name, counts): &(String, Counts)| {
            json!({
                "workload": name, "begun": counts.begun, "completed": counts.completed,
                "failed": counts.failed, "longest": seconds(counts.longest),
            })
        };
        let growth = |it: &Growth| {
            json!({
                "name": it.name, "samples": it.samples, "memory_kib": it.memory,
                "memory_growth_kib": it.memory_growth, "memory_kib_per_hour": it.memory_per_hour.round(),
                "descriptors": it.descriptors, "descriptor_growth": it.descriptor_growth,
                "threads": it.threads, "thread_growth": it.thread_growth,
            })
        };
        json!({
            "seed": self.seed,
            "minutes": self.duration.as_secs_f64() / 60.0,
            "faults": self.outcomes.iter().map(outcome).collect::<Vec<_>>(),
            "workloads": self.accounts.iter().map(account).collect::<Vec<_>>(),
            "growth": self.growth.iter().map(growth).collect::<Vec<_>>(),
            "bounds": { "memory_kib": MEMORY_BOUND, "descriptors": DESCRIPTOR_BOUND, "threads": THREAD_BOUND },
            "alarms": self.alarms,
            "failures": self.failures,
        })
    }

    fn to_text(&self) -> String {
        let mut text = format!(
            "\n{:<28} {:>10} {:>10} {:>7} {:>10}\n",
            "workload", "begun", "completed", "failed", "longest"
        );
        for (name, counts) in &self.accounts {
            text.push_str(&format!(
                "{name:<28} {:>10} {:>10} {:>7} {:>8.1} s\n",
                counts.begun,
                counts.completed,
                counts.failed,
                counts.longest.as_secs_f64()
            ));
        }
        if self.growth.is_empty() {
            text.push_str("\nToo few quiet periods to judge growth by: run it for longer.\n");
        } else {
            text.push_str(&format!(
                "\n{:<20} {:>7} {:>10} {:>9} {:>9} {:>12} {:>8}\n",
                "program", "samples", "memory", "growth", "per hour", "descriptors", "threads"
            ));
        }
        for it in &self.growth {
            text.push_str(&format!(
                "{:<20} {:>7} {:>6} KiB {:>+9} {:>+9.0} {:>8} {:>+3} {:>4} {:>+3}\n",
                it.name,
                it.samples,
                it.memory,
                it.memory_growth,
                it.memory_per_hour,
                it.descriptors,
                it.descriptor_growth,
                it.threads,
                it.thread_growth
            ));
        }
        let worst = self.worst().map_or_else(String::new, |it| match it.recovered {
            Some(took) => {
                format!(", the slowest recovery {:.1} s ({})", took.as_secs_f64(), it.kind)
            }
            None => format!(", no recovery from: {}", it.kind),
        });
        let faults = self.outcomes.len();
        text.push_str(&format!("\n{faults} faults{worst}; {} events and warnings\n", self.alarms));
        match self.failures.as_slice() {
            [] => text.push_str("nothing lost, nothing leaked, every alarm explained\n"),
            failures => {
                text.push_str(&format!(
                    "FAILED, {} reasons (seed {}):\n",
                    failures.len(),
                    self.seed
                ));
                failures.iter().for_each(|it| text.push_str(&format!("  {it}\n")));
            }
        }
        text
    }
}

/// Prints what happens while it happens, unless the output is JSON.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Printer {
    pub(crate) json: bool,
}

impl Printer {
    fn line(self, line: &str) {
        if !self.json {
            println!("{line}");
        }
    }

    pub(crate) fn schedule(self, settings: &Settings, faults: &[Fault]) {
        let minutes = settings.duration.as_secs_f64() / 60.0;
        self.line(&format!(
            "{minutes} minutes, seed {}; logs in {}",
            settings.seed,
            settings.logs.display()
        ));
        for fault in faults {
            let lasts = fault.lasts.as_secs();
            self.line(&format!(
                "  {}  {}{}",
                clock(fault.at),
                fault.kind,
                if lasts > 0 { format!(", {lasts} s") } else { String::new() }
            ));
        }
    }

    pub(crate) fn ready(self, after: Duration) {
        self.line(&format!("everything is healthy after {:.1} s\n", after.as_secs_f64()));
        self.line(&format!(
            "{:<7} {:<36} {:>7} {:>10} {:>6}",
            "time", "fault", "lasted", "recovered", "load"
        ));
    }

    pub(crate) fn fault(self, at: Duration, kind: &Kind) {
        if !self.json {
            use std::io::Write;
            print!("{:<7} {:<36} ", clock(at), kind.to_string());
            // A terminal that is gone is no reason to stop.
            let _ = std::io::stdout().flush();
        }
    }

    pub(crate) fn outcome(self, outcome: &Outcome) {
        let recovered = outcome.recovered.map_or_else(
            || format!("NOT within {} s", outcome.bound.as_secs()),
            |took| format!("{:.1} s", took.as_secs_f64()),
        );
        let lasted = outcome.lasted.as_secs_f64();
        let (load, detail) = (outcome.load, &outcome.detail);
        self.line(&format!("{lasted:>5.1} s {recovered:>10} {load:>6.1}  {detail}"));
    }

    pub(crate) fn failure(self, reason: &str) {
        self.line(&format!("  FAILURE {reason}"));
    }

    pub(crate) fn report(self, report: &Report) {
        match self.json {
            true => println!("{:#}", report.to_json()),
            false => println!("{}", report.to_text()),
        }
    }
}

/// Returns a time as minutes and seconds.
fn clock(time: Duration) -> String {
    format!("{:02}:{:02}", time.as_secs() / 60, time.as_secs() % 60)
}
