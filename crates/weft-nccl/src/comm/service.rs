//! The thread that services receiving ends. A sender that lost its last ACKs with the network asks on the control connection for a
//! new queue pair; NCCL, which has all messages of that connection, may not call the receiving end again, and the sender would wait
//! for good.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::Receiving;
use crate::failure::Failure;

/// The time between two looks at each receiving end. A sender has waited for the device to give up, two seconds, before it asks.
const INTERVAL: Duration = Duration::from_millis(100);

/// The open receiving ends of this process.
static SERVICED: Mutex<Serviced> = Mutex::new(Serviced { ends: Vec::new(), runs: false });
static ADDED: Condvar = Condvar::new();

#[derive(Debug)]
struct Serviced {
    ends: Vec<Arc<Mutex<Receiving>>>,
    /// `true` once the thread runs. It never ends, and sleeps while there are no ends.
    runs: bool,
}

/// No operation under this lock can fail half-way; a panic in an end poisons that end.
fn serviced() -> MutexGuard<'static, Serviced> {
    SERVICED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Services an end until [`remove`].
///
/// # Errors
/// The process may have no more threads.
pub(super) fn add(end: &Arc<Mutex<Receiving>>) -> Result<(), Failure> {
    let mut serviced = serviced();
    if !serviced.runs {
        let started = weft_verbs::thread::spawn(run);
        started.map_err(|error| Failure::system("starting a thread", &error))?;
        serviced.runs = true;
    }
    serviced.ends.push(end.clone());
    ADDED.notify_one();
    Ok(())
}

/// Ends the service of an end: no other reference to it remains.
pub(super) fn remove(end: &Arc<Mutex<Receiving>>) {
    serviced().ends.retain(|other| !Arc::ptr_eq(other, end));
}

fn run() {
    let mut serviced = serviced();
    loop {
        let longest = if serviced.ends.is_empty() { Duration::MAX } else { INTERVAL };
        serviced = ADDED
            .wait_timeout(serviced, longest)
            .map_or_else(|poisoned| poisoned.into_inner().0, |(serviced, _)| serviced);
        // An end that is locked is being called.
        serviced
            .ends
            .iter()
            .filter_map(|end| end.try_lock().ok())
            .for_each(|mut end| end.service());
    }
}
