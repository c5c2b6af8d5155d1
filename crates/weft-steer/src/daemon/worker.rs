//! What is done at routers, which takes as long as it takes: a thread for each, so that one that hangs
//! holds up itself alone.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use weft_route::installed::Router;

use crate::{Change, Lease, RouterEntry, SteerError};

/// What a router shall be asked.
#[derive(Debug)]
pub(super) enum Job {
    /// Read its tables.
    Read,
    /// Take or renew the lease.
    Renew,
    /// Give the lease back.
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
    Renewed(Result<(), SteerError>),
    Released,
    Changed { id: u64, commands: Vec<String>, result: Result<(), SteerError> },
}

/// How long a router may take to have in its kernel what it was told: BGP has to compute.
const PATIENCE: Duration = Duration::from_secs(5);

/// Starts a router's thread. It ends when its jobs' sender is gone.
///
/// # Errors
/// `Io` when there are no threads left.
pub(super) fn start(
    router: RouterEntry,
    lease: Lease,
    outcomes: Sender<Outcome>,
) -> Result<Sender<Job>, SteerError> {
    let (sender, jobs) = channel();
    thread::Builder::new()
        .name(router.name.clone())
        .spawn(move || work(&router, &lease, &jobs, &outcomes))
        .map_err(SteerError::io("start a thread"))?;
    Ok(sender)
}

fn work(router: &RouterEntry, lease: &Lease, jobs: &Receiver<Job>, outcomes: &Sender<Outcome>) {
    for job in jobs {
        let result = match job {
            Job::Read => Done::Read(router.read()),
            Job::Renew => Done::Renewed(lease.renew(router)),
            Job::Release => {
                // A lease that cannot be given back runs out.
                let _ = lease.release(router);
                Done::Released
            }
            Job::Change { id, change, dry } => {
                let mut commands = vec![];
                let result = make(router, lease, &change, dry, &mut commands);
                Done::Changed { id, commands, result }
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
