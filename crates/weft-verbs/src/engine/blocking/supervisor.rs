//! The thread that looks after the one that runs the engine.

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

/// Bytes of the engine's stack.
const STACK: usize = 2 << 20;

/// Between two looks, in milliseconds: at least as many, and less than as many more. Drawn each time, so that nobody
/// can keep the engine between looks alone.
const MIN_INTERVAL: u64 = 50;
const MORE: u64 = 100;

/// Runs an engine to its end, whatever keeps the threads that it is on. Threads that were given up go on without the engine and
/// end by themselves. `seed` is nobody else's to know.
///
/// # Errors
/// The kernel has no memory for a stack, or no thread.
///
/// # Panics
/// If the engine does.
pub(crate) fn supervise<T: Send + 'static>(
    engine: impl FnOnce() -> T + Send + 'static,
    seed: u64,
) -> io::Result<T> {
    let (sender, ended) = channel();
    // What a coroutine takes along goes by way of its stack, and must be small.
    let engine = Box::new(engine);
    let coroutine = Coroutine::with_stack(DefaultStack::new(STACK)?, move |yielder, _| {
        let suspender = Suspender { yielder, stalls: RefCell::default() };
        set_current(&suspender);
        let outcome = catch_unwind(AssertUnwindSafe(engine));
        // Who supervises waits for it.
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
            Err(RecvTimeoutError::Disconnected) => unreachable!("the engine says how it ends"),
        }
        if let Some(next) = worker.look() {
            (worker, is_started) = (next, false);
        }
        // Where there is no thread now, one is asked for at the next look.
        is_started = is_started || worker.start().is_ok();
    }
}

fn interval(rng: &mut Rng) -> Duration {
    Duration::from_millis(MIN_INTERVAL + rng.below(MORE))
}
