//! The thread that supervises the one that runs the engine.

use std::cell::RefCell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use corosensei::Coroutine;
use corosensei::stack::DefaultStack;
use weft_units::{Rng, Seed};

use super::worker::{Engine, Worker};
use super::{Returned, Suspender, set_current};

/// Size of the engine's stack, bytes.
const STACK: usize = 2 << 20;

/// The minimum interval between two checks, and the range above it, milliseconds. Each interval is drawn, so that no
/// tenant can time its delays between checks.
const MIN_INTERVAL: u64 = 50;
const INTERVAL_RANGE: u64 = 100;

/// Runs an engine to its end, however many of its threads block. Threads that were given up continue without the engine
/// and end by themselves. No tenant may know `seed`.
///
/// # Errors
/// The kernel has no memory for a stack, or no thread.
///
/// # Panics
/// If the engine panics.
pub(crate) fn supervise<T: Send + 'static>(
    engine: impl FnOnce() -> T + Send + 'static,
    seed: u64,
) -> io::Result<T> {
    let (sender, ended) = channel();
    // A coroutine's captures go through its stack, and must be small.
    let engine = Box::new(engine);
    let coroutine = Coroutine::with_stack(DefaultStack::new(STACK)?, move |yielder, _| {
        let suspender = Suspender { yielder, stalls: RefCell::default() };
        set_current(&suspender);
        let outcome = catch_unwind(AssertUnwindSafe(engine));
        // The supervisor waits for it.
        let _ = sender.send(outcome);
    });
    let mut worker = Worker::new(Engine(coroutine), Returned::default());
    worker.start()?;
    let (mut is_started, mut rng) = (true, Seed(seed).child("looks", 0).rng());
    loop {
        match ended.recv_timeout(interval(&mut rng)) {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(panic)) => resume_unwind(panic),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => unreachable!("the engine sends its result"),
        }
        if let Some(next) = worker.check() {
            (worker, is_started) = (next, false);
        }
        // If there is no thread now, the next check tries again.
        is_started = is_started || worker.start().is_ok();
    }
}

fn interval(rng: &mut Rng) -> Duration {
    Duration::from_millis(MIN_INTERVAL + rng.below(INTERVAL_RANGE))
}
