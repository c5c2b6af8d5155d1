//! The threads that run the engine, one at a time, and make its calls.

use core::mem;
use std::fs;
use std::io;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use corosensei::{Coroutine, CoroutineResult};
use weft_udp::wait::sharpen_timers;

use super::{Call, Copy, Returned, Stall};
use crate::engine::ask_for_short_slices;

/// The number of consecutive checks that find a worker asleep in one call before it is given up.
const MAX_CHECKS: u32 = 3;

/// The suspended engine.
pub(super) struct Engine(pub(super) Coroutine<Returned, Call, ()>);

// SAFETY: all captures of the engine's function are `Send`, which `supervise` requires. Its own values are on its
// stack, and none belongs to a thread while it is suspended: it suspends in `blocking` alone, with no lock held.
unsafe impl Send for Engine {}

/// A thread that runs the engine until a call blocks it for good.
pub(super) struct Worker {
    state: Mutex<State>,
    /// The kernel's thread ID; zero before it runs.
    thread: AtomicI32,
}

/// The place of the engine.
enum State {
    /// The engine is here, for the thread to resume once it runs.
    Ready(Engine, Returned),
    /// The engine runs on the thread.
    Running,
    /// The engine is here while the thread makes a call; the number counts checks that found it asleep.
    Calling(Engine, u32),
    /// The engine is with another worker. The thread ends once its call returns.
    GivenUp,
}

impl Worker {
    pub(super) fn new(engine: Engine, returned: Returned) -> Arc<Self> {
        let state = Mutex::new(State::Ready(engine, returned));
        Arc::new(Self { state, thread: AtomicI32::new(0) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No operation under this lock can fail half-way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the thread.
    ///
    /// # Errors
    /// There are no more threads. The engine stays for another attempt.
    pub(super) fn start(self: &Arc<Self>) -> io::Result<()> {
        let worker = self.clone();
        let thread = std::thread::Builder::new().name("weft-engine".into());
        thread.spawn(move || worker.run()).map(drop)
    }

    fn run(&self) {
        self.thread.store(rustix::thread::gettid().as_raw_nonzero().get(), Ordering::Release);
        sharpen_timers();
        ask_for_short_slices();
        let state = mem::replace(&mut *self.state(), State::Running);
        let State::Ready(mut engine, mut returned) = state else {
            unreachable!("a worker has one thread");
        };
        let mut buffer = Vec::new();
        while let CoroutineResult::Yield(call) = engine.0.resume(returned) {
            let copy = call.prepare(&mut buffer);
            *self.state() = State::Calling(engine, 0);
            let succeeded = call.make(&mut buffer);
            let state = mem::replace(&mut *self.state(), State::Running);
            // Given up: the engine's memory belongs to another worker now.
            let State::Calling(back, checks) = state else { return };
            engine = back;
            if let Some(copy) = copy.filter(|_| succeeded) {
                // SAFETY: the engine suspended for that many bytes, and is here again.
                unsafe { copy.bytes.copy_from_nonoverlapping(buffer.as_ptr(), copy.len) };
            }
            returned = Returned { succeeded, stall: Stall { checks, stuck: None } };
        }
    }

    /// Checks the thread. Returns the worker that is to replace it, if its call has taken too long.
    pub(super) fn check(self: &Arc<Self>) -> Option<Arc<Self>> {
        let mut state = self.state();
        let State::Calling(_, checks) = &mut *state else { return None };
        if !self.is_asleep() {
            return None;
        }
        *checks += 1;
        if *checks < MAX_CHECKS {
            return None;
        }
        let State::Calling(engine, checks) = mem::replace(&mut *state, State::GivenUp) else {
            unreachable!("it was just now");
        };
        let stall = Stall { checks, stuck: Some(Arc::downgrade(self)) };
        Some(Self::new(engine, Returned { succeeded: false, stall }))
    }

    /// Returns `true` if the thread sleeps: it neither runs nor waits for a processor, so its call blocks it.
    fn is_asleep(&self) -> bool {
        let thread = self.thread.load(Ordering::Acquire);
        let stat = fs::read_to_string(format!("/proc/self/task/{thread}/stat"));
        // A thread's name may contain brackets.
        let state = stat.as_ref().ok().and_then(|stat| stat.rsplit_once(") "));
        state.is_none_or(|(_, state)| !state.starts_with('R'))
    }
}

impl Call {
    /// Copies the bytes to write into the worker's memory. Returns the copy that reads, whose bytes go back from there.
    fn prepare(&self, buffer: &mut Vec<u8>) -> Option<Copy> {
        let (Self::Read(copy) | Self::Write(copy)) = self else { return None };
        if buffer.len() < copy.len {
            buffer.resize(copy.len, 0);
        }
        if matches!(self, Self::Read(_)) {
            return Some(*copy);
        }
        // SAFETY: the engine suspended for that many bytes, and has not resumed.
        unsafe { buffer.as_mut_ptr().copy_from_nonoverlapping(copy.bytes, copy.len) };
        None
    }

    fn make(self, buffer: &mut [u8]) -> bool {
        match self {
            // SAFETY: the buffer has room for the bytes.
            Self::Read(copy) => unsafe { copy.read_to(buffer.as_mut_ptr()) },
            // SAFETY: the buffer holds the bytes.
            Self::Write(copy) => unsafe { copy.write_from(buffer.as_ptr()) },
            Self::Other(function) => {
                function();
                true
            }
        }
    }
}
