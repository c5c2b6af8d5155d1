//! What is done at routers, which takes as long as it takes: two threads for each, so that one that hangs
//! holds up itself alone, and reading tables or waiting for a change does not let the lease run out.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use weft_route::installed::Router;
use weft_units::Instant;

use crate::{Change, Lease, RouterEntry, SteerError};

/// What a router shall be asked.
#[derive(Debug)]
pub(super) enum Job {
    /// Read its tables.
    Read,
    /// Take or renew the lease; it is asked for now.
    Renew { asked: Instant },
    /// Give the lease back, when all changes that were ordered are made.
    Release,
    /// Make a change; it belongs to this move. With `dry`, say what would be done.
    Change { id: u64, change: Change, dry: bool },
}

/// What came of it.
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

/// How long a router may take to have in its kernel what it was told: BGP has to compute.
const PATIENCE: Duration = Duration::from_secs(5);

/// A router's threads. They end when this is gone.
#[derive(Debug)]
pub(super) struct Worker {
    /// Reads and changes.
    jobs: Sender<Job>,
    /// What concerns the lease.
    leases: Sender<Job>,
}

impl Worker {
    /// Starts a router's threads.
    ///
    /// # Errors
    /// `Io` when there are no threads left.
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

    /// Orders something; false where the threads have ended.
    pub(super) fn order(&self, job: Job) -> bool {
        let queue = if matches!(job, Job::Renew { .. }) { &self.leases } else { &self.jobs };
        queue.send(job).is_ok()
    }
}

/// Takes, renews and gives back the lease.
fn hold(router: &RouterEntry, lease: &Lease, asked: &Receiver<Job>, outcomes: &Sender<Outcome>) {
    while let Ok(mut job) = asked.recv() {
        // What waits behind a renewal does as well in its place: a slow router is not asked again and again.
        while let (Job::Renew { .. }, Ok(next)) = (&job, asked.try_recv()) {
            job = next;
        }
        let result = if let Job::Renew { asked } = job {
            Done::Renewed { asked, result: lease.renew(router) }
        } else {
            // A lease that cannot be given back runs out.
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
            // A change renews the lease: it is given back after those before.
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

/// Plans a change, carries it out and waits until the kernel has it.
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
        let reason = format!("dry run, would run: {}", plan.commands.join("; "));
        return Err(SteerError::Refused { router: router.name.clone(), reason });
    }
    router.carry_out(&plan, lease)?;
    router.await_change(change, PATIENCE).map(drop)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::process::Command;
    use std::time::Duration;

    use super::*;
    use crate::Method;

    /// A router that answers scripts of the lease, and any other when somebody writes to a pipe.
    #[test]
    fn a_lease_is_renewed_while_tables_are_being_read() {
        let name = format!("ws-worker-{}", std::process::id());
        let pipe = std::env::temp_dir().join(&name);
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let answer = format!(
            "script=$(cat); case $script in *flock*) echo \"$script\" | sh;; *) read -r _ <{};; esac; :",
            pipe.display()
        );
        // Called so after the command, its lease is a namespace's.
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
        // The reader may end, whatever came of it.
        drop(File::options().read(true).write(true).open(&pipe).unwrap());
        std::fs::remove_file(&pipe).unwrap();
        for end in ["lease", "lease.lock"] {
            let _ = std::fs::remove_file(format!("/run/weft-route/{name}.{end}"));
        }
        // Without root it is refused; what counts is that it did not wait.
        assert!(
            matches!(&first, Ok(Done::Renewed { asked: then, .. }) if *then == asked),
            "{first:?}"
        );
    }
}
