//! A rank on its own thread, for programs that compute meanwhile and call from any thread.

use std::collections::BTreeMap;
use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time;

use rustix::event::{EventfdFlags, eventfd};
use weft_coll::{Call, CallError, Error};
use weft_units::Duration;

use crate::error::{ranks, socket};
use crate::{CommError, Communicator};

/// A buffer that a thread may work on.
pub struct Buffer(pub Box<dyn AsMut<[u8]> + Send>);

impl AsMut<[u8]> for Buffer {
    fn as_mut(&mut self) -> &mut [u8] {
        (*self.0).as_mut()
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Buffer")
    }
}

/// The interval at which the thread publishes the ranks that it waits for, while calls are pending.
const PUBLISH_INTERVAL: Duration = Duration::from_millis(100);
/// The ranks that a group waits for.
type WaitsFor = Arc<Mutex<Vec<usize>>>;

/// Returns a guard of the value, even if a thread panicked while it held it.
fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A call with its buffer, for the thread.
struct Request {
    call: Call,
    buffer: Buffer,
    outcome: Arc<Outcome>,
}

/// The result of a call, with its buffer, which the waiting caller drops.
type Completion = (Result<(), PendingError>, Option<Buffer>);

/// The reason that a collective in progress has failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PendingError {
    /// The worker's thread has ended.
    #[error("the thread that performs collectives has ended")]
    Ended,
    /// The group was left before the call was done.
    #[error("the group was left while it was under way")]
    Left,
    /// The call was refused.
    #[error(transparent)]
    Refused(#[from] CallError),
    /// The group failed.
    #[error(transparent)]
    Group(#[from] Error),
}

/// The shared state of a call and its caller.
#[derive(Default)]
struct Outcome {
    done: Mutex<Option<Completion>>,
    changed: Condvar,
}

impl Outcome {
    fn set(&self, result: Result<(), PendingError>, buffer: Option<Buffer>) {
        *lock(&self.done) = Some((result, buffer));
        self.changed.notify_all();
    }
}

/// A rank on its own thread. The thread leaves the group when this is dropped.
#[derive(Debug)]
pub struct Worker {
    requests: Option<Sender<Request>>,
    wake: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
    waits_for: WaitsFor,
}

/// A collective in progress. It holds its buffer until it is dropped.
#[derive(Clone)]
pub struct Pending {
    outcome: Arc<Outcome>,
    waits_for: WaitsFor,
}

impl fmt::Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").field("done", &self.is_done()).finish()
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.call)
    }
}

impl Worker {
    /// Starts a thread for a rank.
    ///
    /// # Errors
    /// Returns `Socket` if the kernel has no descriptor or thread left.
    pub fn start(rank: Communicator<Buffer>) -> Result<Self, CommError> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let wake = Arc::new(eventfd(0, flags).map_err(socket("an eventfd"))?);
        let (requests, queue) = channel();
        let waits_for = WaitsFor::default();
        let (woken, published) = (Arc::clone(&wake), Arc::clone(&waits_for));
        let builder = std::thread::Builder::new().name("weft-coll".into());
        let thread = builder.spawn(move || serve(rank, &queue, &woken, &published));
        let thread = Some(thread.map_err(socket("a thread"))?);
        Ok(Self { requests: Some(requests), wake, thread, waits_for })
    }

    /// Starts a collective. Calls are executed in the order in which they are made here.
    pub fn submit(&self, call: Call, buffer: Buffer) -> Pending {
        let outcome = Arc::new(Outcome::default());
        let request = Request { call, buffer, outcome: Arc::clone(&outcome) };
        let sent = self.requests.as_ref().map(|requests| requests.send(request));
        if let Some(Err(refused)) = sent {
            refused.0.outcome.set(Err(PendingError::Ended), Some(refused.0.buffer));
        }
        self.wake();
        Pending { outcome, waits_for: Arc::clone(&self.waits_for) }
    }

    fn wake(&self) {
        // A full counter also wakes the thread.
        let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.requests = None;
        self.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Pending {
    /// Returns `true` if the call is done or has failed.
    pub fn is_done(&self) -> bool {
        lock(&self.outcome.done).is_some()
    }

    /// Waits until the call is done. Returns `Ok` if the buffer holds the result, or the error; `None` if the time
    /// passed first.
    pub fn wait(&self, timeout: time::Duration) -> Option<Result<(), PendingError>> {
        let done = lock(&self.outcome.done);
        let waited = self.outcome.changed.wait_timeout_while(done, timeout, |done| done.is_none());
        let (done, _) = waited.unwrap_or_else(PoisonError::into_inner);
        done.as_ref().map(|(result, _)| result.clone())
    }

    /// Returns the ranks that the group has been waiting for: `rank 3`, `ranks 1, 3`, or `nobody`.
    pub fn waits_for(&self) -> String {
        ranks(&lock(&self.waits_for))
    }
}

/// Runs the thread: performs calls in order and leaves the group at the end.
fn serve(
    mut rank: Communicator<Buffer>,
    requests: &Receiver<Request>,
    wake: &OwnedFd,
    waits_for: &Mutex<Vec<usize>>,
) {
    let mut pending: BTreeMap<u64, Arc<Outcome>> = BTreeMap::new();
    loop {
        let mut counted = [0; 8];
        let _ = rustix::io::read(wake, &mut counted);
        loop {
            match requests.try_recv() {
                Ok(Request { call, buffer, outcome }) => match rank.submit(call, buffer) {
                    Ok(number) => drop(pending.insert(number, outcome)),
                    Err(error) => outcome.set(Err(error.into()), None),
                },
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => {
                    for outcome in pending.into_values() {
                        outcome.set(Err(PendingError::Left), None);
                    }
                    return rank.leave();
                }
            }
        }
        let timeout = (!pending.is_empty()).then_some(PUBLISH_INTERVAL);
        match rank.wait(Some(wake.as_fd()), timeout) {
            Some(event) => {
                lock(waits_for).clear();
                if let Some(outcome) = pending.remove(&event.call) {
                    outcome.set(event.result.map_err(PendingError::from), Some(event.buffer));
                }
            }
            None => *lock(waits_for) = rank.waits_for(),
        }
    }
}
