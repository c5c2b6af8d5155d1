//! Work at routers, which takes time: two threads for each router, so that a router that hangs delays only itself, and
//! reading tables or waiting for a change does not let the lease expire.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use weft_route::installed::Router;
use weft_units::Instant;

use crate::{Change, Lease, Refusal, RouterEntry, SteerError};

/// A request to a router's threads.
#[derive(Debug)]
pub(super) enum Job {
    /// Read its tables.
    Read,
    /// Acquire or renew the lease, which is requested at this time.
    Renew { asked: Instant },
    /// Release the lease after all changes that were ordered.
    Release,
    /// Make the change of this move. With `dry`, only report the commands.
    Change { id: u64, change: Change, dry: bool },
}

/// The outcome of a request.
#[derive(Debug)]
pub(super) struct Outcome {
    /// The router.
    pub(super) router: String,
    pub(super) result: Done,
}

#[derive(Debug)]
pub(super) enum Done {
    Read(Result<Router, SteerError>),
    Renewed { asked: Instant, result: Result<(), SteerError> },
    Released,
    Changed { id: u64, commands: Vec<String>, result: Result<(), SteerError> },
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
        let ((jobs, ordered), (leases, asked)) = (channel(), channel());
        let names = [router.name.clone(), format!("{}-lease", router.name)];
        let [worker, holder] = names.map(|name| thread::Builder::new().name(name));
        let (at, held, told) = (router.clone(), lease.clone(), outcomes.clone());
        holder
            .spawn(move || hold(&at, &held, &asked, &told))
            .map_err(SteerError::io("start a thread"))?;
        let last = leases.clone();
        worker
            .spawn(move || work(&router, &lease, &ordered, &last, &outcomes))
            .map_err(SteerError::io("start a thread"))?;
        Ok(Self { jobs, leases })
    }

    /// Queues a request; returns `false` if the threads have ended.
    pub(super) fn order(&self, job: Job) -> bool {
        let queue = if matches!(job, Job::Renew { .. }) { &self.leases } else { &self.jobs };
        queue.send(job).is_ok()
    }
}

/// Acquires, renews and releases the lease.
fn hold(router: &RouterEntry, lease: &Lease, asked: &Receiver<Job>, outcomes: &Sender<Outcome>) {
    while let Ok(mut job) = asked.recv() {
        // A later request replaces a renewal: a slow router does not get repeated renewals.
        while let (Job::Renew { .. }, Ok(next)) = (&job, asked.try_recv()) {
            job = next;
        }
        let result = if let Job::Renew { asked } = job {
            Done::Renewed { asked, result: lease.renew(router) }
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

/// Reads tables and makes changes.
fn work(
    router: &RouterEntry,
    lease: &Lease,
    jobs: &Receiver<Job>,
    leases: &Sender<Job>,
    outcomes: &Sender<Outcome>,
) {
    for job in jobs {
        let result = match job {
            Job::Read => Done::Read(router.read()),
            Job::Change { id, change, dry } => {
                let mut commands = vec![];
                let result = make(router, lease, &change, dry, &mut commands);
                Done::Changed { id, commands, result }
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

/// Plans a change, carries it out and waits until the kernel shows it.
fn make(
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
    use crate::Method;

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
        let asked = Instant::from_nanos(7);
        assert!(worker.order(Job::Read) && worker.order(Job::Renew { asked }));
        let first = outcomes.recv_timeout(Duration::from_secs(20)).map(|it| it.result);
        // The reader may end, whatever its result is.
        drop(File::options().read(true).write(true).open(&pipe).unwrap());
        std::fs::remove_file(&pipe).unwrap();
        for end in ["lease", "lease.lock"] {
            let _ = std::fs::remove_file(format!("/run/weft-route/{name}.{end}"));
        }
        // Without root the renewal fails; the test checks only that it did not wait.
        assert!(
            matches!(&first, Ok(Done::Renewed { asked: then, .. }) if *then == asked),
            "{first:?}"
        );
    }
}
