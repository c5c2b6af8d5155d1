//! A soak from its start to its judgement.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::HOSTS;
use crate::journal::{Allowance, Journal, unexplained};
use crate::leaks::Samples;
use crate::memory::Cgroups;
use crate::report::{Outcome, Printer, Report, Settings};
use crate::schedule::{Fault, QUIET, plan};
use crate::stage::Stage;
use crate::supervisor::Supervisor;
use crate::workload::Workloads;
use crate::{costs, daemons, fault, health};

/// The time in which everything has to be healthy for the first time.
const START_LIMIT: Duration = Duration::from_secs(180);
/// The time after the last recovery for which a quiet period lasts at least.
const SETTLED: Duration = Duration::from_secs(4);
/// The interval between two looks at everything.
const LOOK: Duration = Duration::from_millis(500);

/// A soak that runs. Workloads end before daemons, and daemons before what they run on.
struct Soak {
    journal: Arc<Journal>,
    workloads: Workloads,
    supervisor: Supervisor,
    stage: Stage,
    cgroups: Cgroups,
    allowances: Vec<Allowance>,
    samples: Samples,
    report: Report,
    printer: Printer,
    /// Number of troubles that were looked at.
    judged: usize,
    interrupted: Arc<AtomicBool>,
}

/// Runs a soak, and returns its report.
///
/// # Errors
/// Returns an error if the stage cannot be built, a daemon cannot be started, or a fault cannot be made.
pub(crate) fn run(settings: &Settings, printer: Printer) -> Result<Report> {
    let interrupted = Arc::new(AtomicBool::new(false));
    let on_signal = Arc::clone(&interrupted);
    // The second time it ends at once, and the next lab removes what is left.
    ctrlc::set_handler(move || {
        if on_signal.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
    })?;
    let faults = plan(settings.seed, settings.duration);
    printer.schedule(settings, &faults);
    let mut soak = Soak::start(settings, printer, interrupted)?;
    let ready = soak.journal.now();
    for fault in &faults {
        if !soak.wait_until(ready + fault.at) {
            break;
        }
        soak.suffer(fault)?;
    }
    soak.wait_until(ready + settings.duration);
    soak.finish()
}

impl Soak {
    fn start(settings: &Settings, printer: Printer, interrupted: Arc<AtomicBool>) -> Result<Self> {
        std::fs::create_dir_all(&settings.logs)
            .with_context(|| format!("cannot make {}", settings.logs.display()))?;
        let mut squeezable: Vec<String> = Vec::new();
        for host in 0..HOSTS {
            squeezable.extend(["vpc", "device", "monitor agent"].map(|it| format!("{it} h{host}")));
        }
        squeezable.extend(["route a", "route b", "route agent", "monitor"].map(str::to_owned));
        let cgroups = Cgroups::make(&squeezable)?;
        let stage = Stage::up(settings.weft.clone(), cgroups.folder.clone(), settings.slack)?;
        let journal = Arc::new(Journal::start());
        let supervisor = Supervisor::start(&journal, &settings.logs);
        daemons::start(&stage.shared, &supervisor)?;
        let workloads = Workloads::start(&stage.shared, &supervisor, &journal)?;
        let report = Report::new(settings.seed, settings.duration);
        let mut soak = Self {
            journal,
            workloads,
            supervisor,
            stage,
            cgroups,
            allowances: costs::always(settings.slack),
            samples: Samples::default(),
            report,
            printer,
            judged: 0,
            interrupted,
        };
        let (recovered, ailments) = soak.recover(START_LIMIT * settings.slack);
        let Some(after) = recovered else {
            let limit = START_LIMIT * settings.slack;
            bail!("not healthy {limit:?} after the start: {}", ailments.join("; "));
        };
        soak.allowances.extend(costs::of_start(soak.journal.now(), settings.slack));
        soak.printer.ready(after);
        Ok(soak)
    }

    /// Makes a fault, repairs it, waits until everything is healthy, and looks at what has happened.
    fn suffer(&mut self, fault: &Fault) -> Result<()> {
        let (kind, made) = (&fault.kind, self.journal.now());
        self.printer.fault(made, kind);
        let detail = fault::make(kind, &mut self.stage, &self.supervisor, &self.cgroups)
            .with_context(|| format!("cannot make the fault: {kind}"))?;
        // A fault is repaired before the run ends, however it ends.
        self.wait_until(made + fault.lasts);
        fault::repair(kind, &mut self.stage, &self.cgroups)
            .with_context(|| format!("cannot repair the fault: {kind}"))?;
        let repaired = self.journal.now();
        let slack = self.stage.shared.slack;
        let bound = kind.bound() * slack;
        let (recovered, ailments) = self.recover(bound);
        let now = self.journal.now();
        self.allowances.extend(costs::allowances(kind, made, now, slack));
        let outcome = Outcome {
            kind: kind.to_string(),
            made,
            lasted: repaired - made,
            recovered,
            bound,
            detail,
            load: load(),
        };
        self.printer.outcome(&outcome);
        if recovered.is_none() {
            let reason = format!("{kind}: not healthy within {bound:?}: {}", ailments.join("; "));
            self.printer.failure(&reason);
            self.report.failures.push(reason);
        }
        self.report.outcomes.push(outcome);
        self.wait_until((repaired + QUIET - SETTLED / 2).max(now + SETTLED));
        self.take_sample();
        self.judge(self.journal.now().saturating_sub(SETTLED));
        Ok(())
    }

    /// Waits until everything is healthy, for `bound` at most. Returns the time that it took, or what is not healthy.
    fn recover(&mut self, bound: Duration) -> (Option<Duration>, Vec<String>) {
        let began = self.journal.now();
        loop {
            // The daemons are asked after the time from which the workloads' successes count.
            let ailments = health::ailments(&self.stage.shared, &self.workloads.accounts, began);
            let took = self.journal.now() - began;
            if ailments.is_empty() {
                return (Some(took), ailments);
            }
            if took > bound || self.interrupted.load(Ordering::Relaxed) {
                return (None, ailments);
            }
            thread::sleep(LOOK);
        }
    }

    fn take_sample(&mut self) {
        let now = self.journal.now();
        let folders = [&*self.stage.shared.folder, Path::new("/dev/shm")];
        self.samples.take(now, &self.supervisor.processes(), &folders);
    }

    /// Looks at the troubles until `until` that were not looked at yet.
    fn judge(&mut self, until: Duration) {
        let new = self.journal.since(self.judged);
        let new: Vec<_> = new.into_iter().take_while(|it| it.at <= until).collect();
        self.judged += new.len();
        self.report.alarms += new.len();
        for trouble in unexplained(&new, &self.allowances) {
            let reason =
                format!("{:.1} s, {}: {}", trouble.at.as_secs_f64(), trouble.who, trouble.what);
            self.printer.failure(&reason);
            self.report.failures.push(reason);
        }
    }

    /// Waits until a time since the start. Returns `false` if the run was interrupted.
    fn wait_until(&self, time: Duration) -> bool {
        while !self.interrupted.load(Ordering::Relaxed) {
            let left = time.saturating_sub(self.journal.now());
            if left.is_zero() {
                return true;
            }
            thread::sleep(left.min(LOOK));
        }
        false
    }

    /// Ends everything, and judges.
    fn finish(mut self) -> Result<Report> {
        if self.interrupted.load(Ordering::Relaxed) {
            self.report.failures.push("interrupted".into());
        }
        self.take_sample();
        self.workloads.stop();
        self.allowances.extend(costs::of_end(self.journal.now()));
        self.supervisor.stop();
        // Logs are read by threads; each ends with its daemon.
        thread::sleep(LOOK);
        self.judge(Duration::MAX);
        for account in &self.workloads.accounts {
            let counts = account.counts();
            if counts.open() != 0 || counts.completed == 0 {
                self.report.failures.push(format!(
                    "{}: {} begun, {} completed, {} failed: the account does not balance",
                    account.name, counts.begun, counts.completed, counts.failed
                ));
            }
            self.report.accounts.push((account.name.clone(), counts));
        }
        self.report.growth = self.samples.growth();
        let leaks: Vec<_> = self.report.growth.iter().flat_map(|it| it.leaks()).collect();
        self.report.failures.extend(leaks);
        Ok(self.report)
    }
}

/// Returns the number of threads that ran or wanted to in the last minute (proc(5)): above some twice the processors, recoveries
/// are those of the machine.
fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|it| it.parse().ok()).unwrap_or(0.0)
}
