//! The threads that run commands on routers. Each router has two: a router that hangs delays only itself, and its lease
//! is renewed while its tables are read or a change is awaited.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use weft_route::installed::Router;
use weft_units::Instant;

use crate::gnmi::{self, PortCounters};
use crate::{Change, Lease, Method, Refusal, RouterEntry, SteerError};

/// A request to a router's threads.
#[derive(Debug)]
pub(super) enum Job {
    /// Read its tables; the time of the request.
    Read { requested_at: Instant },
    /// Read the counters of its gNMI server.
    Count,
    /// Acquire or renew the lease; the time of the request, and the term in which it is made.
    Renew { requested_at: Instant, term: Option<u64> },
    /// Release the lease after all changes that were ordered.
    Release,
    /// Make the change of this move, in this epoch of the lease only. With `dry`, only report the commands.
    Change { epoch: u64, id: u64, change: Change, dry: bool },
}

/// The outcome of a request.
#[derive(Debug)]
pub(super) struct Outcome {
    /// The router.
    pub(super) router: String,
    pub(super) result: Done,
}

/// The result of a request, by its kind.
#[derive(Debug)]
pub(super) enum Done {
    Read { requested_at: Instant, result: Result<Router, SteerError> },
    Counted(Result<Vec<PortCounters>, SteerError>),
    Renewed { requested_at: Instant, term: Option<u64>, result: Result<(), SteerError> },
    Released,
    Changed { epoch: u64, id: u64, commands: Vec<String>, result: Result<(), SteerError> },
}

/// Maximum time until a router's kernel shows a change: BGP has to compute.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(5);

/// A router's threads, which end when this value is dropped.
#[derive(Debug)]
pub(super) struct Worker {
    /// The queue of reads and changes.
    jobs: Sender<Job>,
    /// The queue of the lease.
    leases: Sender<Job>,
}

impl Worker {
    /// Starts a router's threads.
    ///
    /// # Errors
    /// Returns `Io` if no thread can be started.
    pub(super) fn start(
        router: RouterEntry,
        lease: Lease,
        outcomes: Sender<Outcome>,
    ) -> Result<Self, SteerError> {
        let ((jobs, job_queue), (leases, lease_queue)) = (channel(), channel());
        let names = [router.name.clone(), format!("{}-lease", router.name)];
        let [worker, holder] = names.map(|name| thread::Builder::new().name(name));
        let (entry, lease_copy, sender) = (router.clone(), lease.clone(), outcomes.clone());
        holder
            .spawn(move || run_lease(&entry, &lease_copy, &lease_queue, &sender))
            .map_err(SteerError::io("start a thread"))?;
        let releases = leases.clone();
        worker
            .spawn(move || run_jobs(&router, &lease, &job_queue, &releases, &outcomes))
            .map_err(SteerError::io("start a thread"))?;
        Ok(Self { jobs, leases })
    }

    /// Queues a request; returns `false` if the threads have ended.
    pub(super) fn order(&self, job: Job) -> bool {
        let queue = if matches!(job, Job::Renew { .. }) { &self.leases } else { &self.jobs };
        queue.send(job).is_ok()
    }
}

/// Runs the thread of the lease: acquires, renews and releases it.
fn run_lease(
    router: &RouterEntry,
    lease: &Lease,
    queue: &Receiver<Job>,
    outcomes: &Sender<Outcome>,
) {
    // The term in which a gNMI server was told its master.
    let mut claimed = None;
    while let Ok(mut job) = queue.recv() {
        // A later request replaces a renewal: a slow router does not get repeated renewals.
        while let (Job::Renew { .. }, Ok(next)) = (&job, queue.try_recv()) {
            job = next;
        }
        let result = if let Job::Renew { requested_at, term } = job {
            let lease = lease.in_epoch(term);
            let result = match &router.apply {
                Method::Gnmi(settings) if term.is_some() && term != claimed => lease
                    .granted(router)
                    .and_then(|grant| gnmi::claim(router, settings, grant))
                    .inspect(|()| claimed = term),
                _ => lease.renew(router),
            };
            Done::Renewed { requested_at, term, result }
        } else {
            // A lease that cannot be released expires.
            let _ = lease.release(router);
            Done::Released
        };
        if outcomes.send(Outcome { router: router.name.clone(), result }).is_err() {
            return;
        }
    }
}

/// Runs the thread of jobs: reads tables and makes changes.
fn run_jobs(
    router: &RouterEntry,
    lease: &Lease,
    jobs: &Receiver<Job>,
    leases: &Sender<Job>,
    outcomes: &Sender<Outcome>,
) {
    for job in jobs {
        let result = match job {
            Job::Read { requested_at } => Done::Read { requested_at, result: router.read() },
            Job::Count => match &router.apply {
                Method::Gnmi(settings) => Done::Counted(gnmi::count(router, settings)),
                Method::Kernel | Method::Frr { .. } => continue,
            },
            Job::Change { epoch, id, change, dry } => {
                let mut commands = vec![];
                let lease = lease.in_epoch(Some(epoch));
                let result = apply(router, &lease, &change, dry, &mut commands);
                Done::Changed { epoch, id, commands, result }
            }
            // A change renews the lease, so the lease is released after earlier changes.
            Job::Renew { .. } | Job::Release => {
                let _ = leases.send(job);
                continue;
            }
        };
        if outcomes.send(Outcome { router: router.name.clone(), result }).is_err() {
            return;
        }
    }
}

/// Plans a change, carries it out and waits until the kernel shows it. Stores the planned commands in `commands`.
///
/// # Errors
/// Returns the error of the failed step, or `Refused` for a dry run.
fn apply(
    router: &RouterEntry,
    lease: &Lease,
    change: &Change,
    dry: bool,
    commands: &mut Vec<String>,
) -> Result<(), SteerError> {
    let plan = router.plan(change)?;
    commands.clone_from(&plan.commands);
    if dry {
        let reason = Refusal::DryRun(plan.commands);
        return Err(SteerError::Refused { router: router.name.clone(), reason });
    }
    router.carry_out(&plan, lease)?;
    router.await_change(change, CHANGE_TIMEOUT).map(drop)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::process::Command;
    use std::time::Duration;

    use super::*;
    use crate::Plan;

    #[test]
    fn a_change_that_waited_until_the_lease_was_lost_is_not_made() {
        let reach = ["sh", "-c", "exit 9"].map(String::from).to_vec();
        let (agent, apply) = ([127, 0, 0, 1].into(), Method::Kernel);
        let (sources, ports) = (vec![], vec![]);
        let router = RouterEntry { name: "l0".into(), reach, agent, sources, apply, ports };
        let lease = Lease::new("a/1/2", Duration::from_secs(15));
        lease.set_epoch(Some(8));
        let plan = Plan::of_commands("l0", vec!["touch no".into()]);
        let carry_out = |epoch| router.carry_out(&plan, &lease.in_epoch(Some(epoch)));
        assert!(matches!(carry_out(7), Err(SteerError::Outdated)));
        assert!(matches!(carry_out(8), Err(SteerError::Command { .. })), "the router is asked");
    }

    /// The router answers scripts of the lease at once, and any other script when the test writes to a pipe.
    #[test]
    fn a_lease_is_renewed_while_tables_are_being_read() {
        let name = format!("ws-worker-{}", std::process::id());
        let pipe = std::env::temp_dir().join(&name);
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let answer = format!(
            "script=$(cat); case $script in *flock*) echo \"$script\" | sh;; *) read -r _ <{};; esac; :",
            pipe.display()
        );
        // These words after the command make the lease that of a namespace.
        let reach = ["sh", "-c", &answer, "netns", "exec", &name].map(String::from);
        let agent = [127, 0, 0, 1].into();
        let apply = Method::Kernel;
        let (reach, sources, ports) = (reach.to_vec(), vec![], vec![]);
        let router = RouterEntry { name: name.clone(), reach, agent, sources, apply, ports };
        let (sender, outcomes) = channel();
        let lease = Lease::new("a/1/2", Duration::from_secs(15));
        let worker = Worker::start(router, lease, sender).unwrap();
        let requested_at = Instant::from_nanos(7);
        let read = Job::Read { requested_at };
        assert!(worker.order(read) && worker.order(Job::Renew { requested_at, term: None }));
        let first = outcomes.recv_timeout(Duration::from_secs(20)).map(|it| it.result);
        // The thread that reads tables ends now; its result does not matter.
        drop(File::options().read(true).write(true).open(&pipe).unwrap());
        std::fs::remove_file(&pipe).unwrap();
        for end in ["lease", "lease.lock"] {
            let _ = std::fs::remove_file(format!("/run/weft-route/{name}.{end}"));
        }
        // Without root the renewal fails; the test checks only that it did not wait.
        assert!(
            matches!(&first, Ok(Done::Renewed { requested_at: then, .. }) if *then == requested_at),
            "{first:?}"
        );
    }
}
