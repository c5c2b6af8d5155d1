//! The supervisor of all programs of a soak, daemons and workloads: it starts them, follows their logs, and starts those that
//! end again, as systemd does with `Restart=always`. Each end is a trouble, which a fault has to explain.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};

use crate::account::Account;
use crate::clock;
use crate::journal::Journal;

/// The interval at which ended programs are looked for.
const POLL: Duration = Duration::from_millis(20);
/// The time that a program has to end after SIGTERM.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);

/// A program that runs all the time.
#[derive(Clone, Debug)]
pub(crate) struct Unit {
    /// The name in the journal.
    pub(crate) name: String,
    /// The network namespace in which it runs.
    pub(crate) namespace: String,
    /// The program and its arguments.
    pub(crate) words: Vec<String>,
    pub(crate) environment: Vec<(String, String)>,
    /// `RestartSec=` of its unit.
    pub(crate) restart_after: Duration,
    /// The file of its memory cgroup to which its process number is written before it runs.
    pub(crate) cgroup: Option<PathBuf>,
    /// The account that its standard output is about, for a workload.
    pub(crate) account: Option<Account>,
}

#[derive(Debug)]
struct Slot {
    unit: Unit,
    process: Mutex<Process>,
}

#[derive(Debug, Default)]
struct Process {
    child: Option<Child>,
    restart_at: Option<Instant>,
}

/// The supervisor. Dropping it kills all programs.
#[derive(Debug)]
pub(crate) struct Supervisor {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    slots: Mutex<Vec<Arc<Slot>>>,
    journal: Arc<Journal>,
    /// The folder of the logs.
    logs: PathBuf,
    stop: AtomicBool,
}

impl Supervisor {
    pub(crate) fn start(journal: &Arc<Journal>, logs: &Path) -> Self {
        let shared = Arc::new(Shared {
            slots: Mutex::default(),
            journal: Arc::clone(journal),
            logs: logs.to_owned(),
            stop: AtomicBool::new(false),
        });
        let own = Arc::clone(&shared);
        let watch = move || {
            while !own.stop.load(Ordering::Relaxed) {
                own.slots().iter().for_each(|slot| own.look_after(slot));
                thread::sleep(POLL);
            }
        };
        Self { shared, thread: Some(thread::spawn(watch)) }
    }

    /// Starts a program, which runs until the supervisor stops.
    ///
    /// # Errors
    /// Returns an error if it cannot be started.
    pub(crate) fn add(&self, unit: Unit) -> Result<()> {
        let slot = Arc::new(Slot { unit, process: Mutex::default() });
        self.shared.launch(&slot, &mut slot.lock())?;
        self.shared.lock_slots().push(slot);
        Ok(())
    }

    /// Returns the names and the process numbers of programs that run now.
    pub(crate) fn processes(&self) -> Vec<(String, u32)> {
        let slots = self.shared.slots();
        let running = slots
            .iter()
            .filter_map(|slot| Some((slot.unit.name.clone(), slot.lock().child.as_ref()?.id())));
        running.collect()
    }

    /// Returns the process number of a program that runs now.
    pub(crate) fn pid(&self, name: &str) -> Option<u32> {
        self.processes().into_iter().find(|(it, _)| it == name).map(|(_, pid)| pid)
    }

    /// Kills a program, which starts again.
    ///
    /// # Errors
    /// Returns an error if it does not run.
    pub(crate) fn kill(&self, name: &str) -> Result<()> {
        let pid = self.pid(name).with_context(|| format!("{name} does not run"))?;
        signal(pid, Signal::KILL);
        Ok(())
    }

    /// Ends all programs, the last one first, and notes those that do not end well.
    pub(crate) fn stop(&mut self) {
        self.join();
        for slot in self.shared.slots().iter().rev() {
            let mut process = slot.lock();
            let Some(mut child) = process.child.take() else { continue };
            signal(child.id(), Signal::TERM);
            let until = Instant::now() + STOP_TIMEOUT;
            let is_over = || Instant::now() > until;
            let how = loop {
                match child.try_wait() {
                    Ok(Some(status)) if status.success() || slot.unit.account.is_some() => {
                        break None;
                    }
                    Ok(Some(status)) => break Some(format!("ended by SIGTERM with {status}")),
                    _ if is_over() => break Some("did not end by SIGTERM".to_owned()),
                    _ => thread::sleep(POLL),
                }
            };
            let _ = child.kill();
            let _ = child.wait();
            clock::remove_leftovers(child.id());
            if let Some(how) = how {
                self.shared.journal.note(&slot.unit.name, how);
            }
        }
    }

    fn join(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.join();
        for slot in self.shared.slots() {
            if let Some(mut child) = slot.lock().child.take() {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}

impl Slot {
    fn lock(&self) -> MutexGuard<'_, Process> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    fn lock_slots(&self) -> MutexGuard<'_, Vec<Arc<Slot>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn slots(&self) -> Vec<Arc<Slot>> {
        self.lock_slots().clone()
    }

    /// Notes the end of a program, and starts it again when it is time.
    fn look_after(&self, slot: &Slot) {
        let mut process = slot.lock();
        let ended = process
            .child
            .as_mut()
            .and_then(|child| Some((child.id(), child.try_wait().ok().flatten()?)));
        if let Some((pid, status)) = ended {
            process.child = None;
            clock::remove_leftovers(pid);
            process.restart_at = Some(Instant::now() + slot.unit.restart_after);
            self.journal.note(&slot.unit.name, format!("the process ended: {status}"));
        }
        if process.restart_at.is_some_and(|at| Instant::now() >= at) {
            process.restart_at = None;
            if let Err(error) = self.launch(slot, &mut process) {
                self.journal.note(&slot.unit.name, format!("{error:#}"));
                process.restart_at = Some(Instant::now() + Duration::from_secs(1));
            }
        }
    }

    fn launch(&self, slot: &Slot, process: &mut Process) -> Result<()> {
        let unit = &slot.unit;
        let mut command = Command::new("sh");
        let enter = unit.cgroup.as_ref().map(|file| format!("echo $$ >'{}' && ", file.display()));
        command.args(["-c", &format!("{}exec \"$@\"", enter.unwrap_or_default()), "sh"]);
        command.args(&unit.words).envs(unit.environment.iter().cloned());
        command.stdin(Stdio::null()).stderr(Stdio::piped());
        // Ctrl-C at a terminal is for the soak alone, which ends its programs in order.
        command.process_group(0);
        let reads_output = unit.account.is_some();
        command.stdout(if reads_output { Stdio::piped() } else { Stdio::null() });
        let spawned = weft_lab::enter(&unit.namespace, || command.spawn())?;
        let mut child = spawned.with_context(|| format!("cannot start {}", unit.words[0]))?;
        let path = self.logs.join(format!("{}.log", unit.name.replace(' ', "-")));
        let mut log = File::options().create(true).append(true).open(path)?;
        let (journal, name) = (Arc::clone(&self.journal), unit.name.clone());
        // A log that cannot be written must not end the daemon that is read from.
        let keep = move |line: &str| {
            let _ = writeln!(log, "{line}");
            journal.log_line(&name, line);
        };
        let errors = child.stderr.take().context("standard error is a pipe")?;
        follow(errors, keep, || ());
        if let (Some(account), Some(output)) = (unit.account.clone(), child.stdout.take()) {
            let ended = account.clone();
            follow(output, move |line| account.line(line), move || ended.end_of_program());
        }
        process.child = Some(child);
        Ok(())
    }
}

/// Reads lines on a thread, until the other end is closed.
fn follow(
    from: impl Read + Send + 'static,
    mut on_line: impl FnMut(&str) + Send + 'static,
    on_end: impl FnOnce() + Send + 'static,
) {
    thread::spawn(move || {
        BufReader::new(from).lines().map_while(Result::ok).for_each(|line| on_line(&line));
        on_end();
    });
}

/// Sends a signal to a process, if it has not ended.
pub(crate) fn signal(pid: u32, signal: Signal) {
    // The process may have ended by itself.
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let _ = pid.map(|pid| kill_process(pid, signal));
}
