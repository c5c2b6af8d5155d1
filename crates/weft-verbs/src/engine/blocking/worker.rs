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

/// The number of checks that find a worker blocked in one call before it is given up.
const MAX_CHECKS: u32 = 3;

/// The processor time that counts as one such check, in the kernel's ticks of 10 ms. A copy takes microseconds, but whoever
/// closes the last descriptor of a file in memory frees that, at about a gigabyte a second.
const BUSY: u64 = 2;

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
    /// The engine is here while the thread makes a call.
    Calling(Engine, Checks),
    /// The engine is with another worker. The thread ends once its call returns.
    GivenUp,
}

/// The supervisor's checks of one call.
#[derive(Default)]
struct Checks {
    /// Number of checks that found the thread blocked: asleep, or busy since the last one.
    blocked: u32,
    /// The thread's processor time at a check before, ticks.
    used: Option<u64>,
}

impl Checks {
    fn add(&mut self, is_asleep: bool, used: u64) {
        let before = *self.used.get_or_insert(used);
        if is_asleep || used - before >= BUSY {
            self.blocked += 1;
            self.used = Some(used);
        }
    }
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
            *self.state() = State::Calling(engine, Checks::default());
            let succeeded = call.make(&mut buffer);
            let state = mem::replace(&mut *self.state(), State::Running);
            // Given up: the engine's memory belongs to another worker now.
            let State::Calling(back, checks) = state else { return };
            engine = back;
            if let Some(copy) = copy.filter(|_| succeeded) {
                // SAFETY: the engine suspended for that many bytes, and is here again.
                unsafe { copy.bytes.copy_from_nonoverlapping(buffer.as_ptr(), copy.len) };
            }
            returned = Returned { succeeded, stall: Stall { checks: checks.blocked, stuck: None } };
        }
    }

    /// Checks the thread. Returns the worker that is to replace it, if its call has taken too long.
    pub(super) fn check(self: &Arc<Self>) -> Option<Arc<Self>> {
        let mut state = self.state();
        let State::Calling(_, checks) = &mut *state else { return None };
        let (is_asleep, used) = self.status();
        checks.add(is_asleep, used);
        if checks.blocked < MAX_CHECKS {
            return None;
        }
        let State::Calling(engine, checks) = mem::replace(&mut *state, State::GivenUp) else {
            unreachable!("it was just now");
        };
        let stall = Stall { checks: checks.blocked, stuck: Some(Arc::downgrade(self)) };
        Some(Self::new(engine, Returned { succeeded: false, stall }))
    }

    /// Returns `true` if the thread sleeps: it neither runs nor waits for a processor, so its call blocks it. Returns its
    /// processor time too, ticks (proc_pid_stat(5)).
    fn status(&self) -> (bool, u64) {
        let thread = self.thread.load(Ordering::Acquire);
        let stat = fs::read_to_string(format!("/proc/self/task/{thread}/stat"));
        // A thread's name may contain brackets.
        let fields = stat.as_ref().ok().and_then(|stat| stat.rsplit_once(") "));
        let fields: Vec<&str> = fields.map_or("", |(_, fields)| fields).split(' ').collect();
        let ticks = |field: usize| fields.get(field).and_then(|ticks| ticks.parse::<u64>().ok());
        // The state is the third field; the time in the program and the kernel are the 14th and the 15th.
        let used = [11, 12].into_iter().filter_map(ticks).sum();
        (fields.first() != Some(&"R"), used)
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::time::{Duration, Instant};

    use super::super::{run, supervise};
    use super::*;

    /// A client sends a file of many gigabytes and exits: the daemon's close frees them.
    #[test]
    #[allow(clippy::disallowed_methods, reason = "the supervisor works in real time")]
    fn a_call_that_keeps_a_processor_is_given_up() {
        static OVER: AtomicBool = AtomicBool::new(false);
        let busy = || {
            let until = Instant::now() + Duration::from_secs(20);
            while !OVER.load(Ordering::Relaxed) && Instant::now() < until {
                std::hint::spin_loop();
            }
        };
        let (done, stall) = supervise(move || run(busy), 7).unwrap();
        OVER.store(true, Ordering::Relaxed);
        assert!(done.is_none() && stall.is_given_up() && stall.checks == MAX_CHECKS);
    }

    #[test]
    fn waiting_for_a_processor_is_not_being_blocked() {
        let mut checks = Checks::default();
        for used in [100, 100, 101, 101] {
            checks.add(false, used);
        }
        assert_eq!(checks.blocked, 0);
        checks.add(false, 102);
        checks.add(true, 102);
        checks.add(false, 103);
        assert_eq!(checks.blocked, 2);
    }
}
