//! The threads that run the engine, one at a time, and make its calls.

use core::mem;
use std::fs;
use std::io;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use corosensei::{Coroutine, CoroutineResult};

use super::{Call, Copy, Returned, Stall};
use crate::engine::ask_for_short_slices;

/// Looks in a row at one call, its worker asleep in each, until it is given up.
const LOOKS: u32 = 3;

/// The engine, suspended.
pub(super) struct Engine(pub(super) Coroutine<Returned, Call, ()>);

// SAFETY: everything that the engine's function takes along is `Send`, which `supervise` asks for. What it makes, it keeps on its
// stack, and nothing there is a thread's own while it is suspended: it suspends in `blocking` alone, with no lock held.
unsafe impl Send for Engine {}

/// A thread that runs the engine until a call keeps it.
pub(super) struct Worker {
    state: Mutex<State>,
    /// Its number in the kernel; zero before it runs.
    thread: AtomicI32,
}

/// Where the engine is.
enum State {
    /// Here, for the thread to resume once there is one.
    Ready(Engine, Returned),
    /// On the thread.
    Running,
    /// Here, while the thread makes a call in which it was found asleep as often.
    Calling(Engine, u32),
    /// With another worker. The thread ends once its call returns.
    GivenUp,
}

impl Worker {
    pub(super) fn new(engine: Engine, returned: Returned) -> Arc<Self> {
        let state = Mutex::new(State::Ready(engine, returned));
        Arc::new(Self { state, thread: AtomicI32::new(0) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing that is done under this lock can fail half-way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the thread.
    ///
    /// # Errors
    /// There are no more threads. The engine is kept for another try.
    pub(super) fn start(self: &Arc<Self>) -> io::Result<()> {
        let worker = self.clone();
        let thread = std::thread::Builder::new().name("weft-engine".into());
        thread.spawn(move || worker.run()).map(drop)
    }

    fn run(&self) {
        self.thread.store(rustix::thread::gettid().as_raw_nonzero().get(), Ordering::Release);
        // The kernel may make short sleeps 50 us longer otherwise (prctl(2)).
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
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
            // Given up: the engine's memory is somebody else's to write to.
            let State::Calling(back, looks) = state else { return };
            engine = back;
            if let Some(copy) = copy.filter(|_| succeeded) {
                // SAFETY: the engine suspended for so many bytes, and is here again.
                unsafe { copy.bytes.copy_from_nonoverlapping(buffer.as_ptr(), copy.len) };
            }
            returned = Returned { succeeded, stall: Stall { looks, stuck: None } };
        }
    }

    /// Looks at what the thread does. Returns the worker that is to start in its place, if its call has kept it too long.
    pub(super) fn look(self: &Arc<Self>) -> Option<Arc<Self>> {
        let mut state = self.state();
        let State::Calling(_, looks) = &mut *state else { return None };
        if !self.is_asleep() {
            return None;
        }
        *looks += 1;
        if *looks < LOOKS {
            return None;
        }
        let State::Calling(engine, looks) = mem::replace(&mut *state, State::GivenUp) else {
            unreachable!("it was just now");
        };
        let stall = Stall { looks, stuck: Some(Arc::downgrade(self)) };
        Some(Self::new(engine, Returned { succeeded: false, stall }))
    }

    /// Returns `true` unless the thread runs, or would if it had a processor: then it is not its call that keeps it.
    fn is_asleep(&self) -> bool {
        let thread = self.thread.load(Ordering::Acquire);
        let stat = fs::read_to_string(format!("/proc/self/task/{thread}/stat"));
        // The name of a thread may have brackets in it.
        let state = stat.as_ref().ok().and_then(|stat| stat.rsplit_once(") "));
        state.is_none_or(|(_, state)| !state.starts_with('R'))
    }
}

impl Call {
    /// Takes what is to be written into the worker's memory. Returns the copy whose bytes go back from there.
    fn prepare(&self, buffer: &mut Vec<u8>) -> Option<Copy> {
        let (Self::Read(copy) | Self::Write(copy)) = self else { return None };
        if buffer.len() < copy.len {
            buffer.resize(copy.len, 0);
        }
        if matches!(self, Self::Read(_)) {
            return Some(*copy);
        }
        // SAFETY: the engine suspended for so many bytes, and has not gone on.
        unsafe { buffer.as_mut_ptr().copy_from_nonoverlapping(copy.bytes, copy.len) };
        None
    }

    fn make(self, buffer: &mut [u8]) -> bool {
        match self {
            // SAFETY: there is room for them.
            Self::Read(copy) => unsafe { copy.read_to(buffer.as_mut_ptr()) },
            // SAFETY: they are there.
            Self::Write(copy) => unsafe { copy.write_from(buffer.as_ptr()) },
            Self::Other(what) => {
                what();
                true
            }
        }
    }
}
