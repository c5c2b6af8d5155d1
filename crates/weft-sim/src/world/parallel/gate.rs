//! The meeting of the threads of a run: all work on one window, then the first one goes on alone.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, Thread};

/// Number of times that a thread looks before it sleeps: tens of microseconds, about what waking one takes.
const SPINS: u32 = 4_000;

/// The meeting of one leader and its helpers.
#[derive(Debug)]
pub(super) struct Gate {
    leader: Thread,
    /// The number of rounds begun.
    round: AtomicUsize,
    /// The helpers that are not done with the round.
    busy: AtomicUsize,
    is_closed: AtomicBool,
}

impl Gate {
    /// Returns the meeting, whose leader is the calling thread.
    pub(super) fn new() -> Self {
        Self {
            leader: thread::current(),
            round: AtomicUsize::new(0),
            busy: AtomicUsize::new(0),
            is_closed: AtomicBool::new(false),
        }
    }

    /// Lets all helpers do their work while the leader does its own; returns when all are done.
    ///
    /// # Panics
    /// Panics if a helper has.
    pub(super) fn run(&self, helpers: &[Thread], own: impl FnOnce()) {
        self.busy.store(helpers.len(), Ordering::Relaxed);
        self.round.fetch_add(1, Ordering::Release);
        helpers.iter().for_each(Thread::unpark);
        own();
        wait_until(|| self.busy.load(Ordering::Acquire) == 0);
        assert!(!self.is_closed.load(Ordering::Relaxed), "another thread of the run panicked");
    }

    /// Does `work` once a round, until the leader ends.
    pub(super) fn help(&self, mut work: impl FnMut()) {
        let mut seen = 0;
        loop {
            let is_new = || self.round.load(Ordering::Acquire) != seen;
            wait_until(|| is_new() || self.is_closed.load(Ordering::Acquire));
            if !is_new() {
                return;
            }
            seen += 1;
            let done = Done { gate: self };
            work();
            drop(done);
        }
    }

    /// Returns a guard that ends the helpers when it is dropped.
    pub(super) fn closing<'a>(&'a self, helpers: &'a [Thread]) -> Closing<'a> {
        Closing { gate: self, helpers }
    }
}

/// Marks a helper as done with its round, also if it panics.
struct Done<'a> {
    gate: &'a Gate,
}

impl Drop for Done<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.gate.is_closed.store(true, Ordering::Release);
        }
        if self.gate.busy.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.gate.leader.unpark();
        }
    }
}

/// See [`Gate::closing`].
pub(super) struct Closing<'a> {
    gate: &'a Gate,
    helpers: &'a [Thread],
}

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.gate.is_closed.store(true, Ordering::Release);
        self.helpers.iter().for_each(Thread::unpark);
    }
}

/// Waits for a condition that another thread makes true before it unparks this one.
fn wait_until(is_true: impl Fn() -> bool) {
    for _ in 0..SPINS {
        if is_true() {
            return;
        }
        std::hint::spin_loop();
    }
    while !is_true() {
        thread::park();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    #[test]
    fn every_helper_works_once_a_round_and_none_is_late() {
        let (gate, sum) = (Gate::new(), AtomicU64::new(0));
        thread::scope(|scope| {
            let help = |_| scope.spawn(|| gate.help(|| _ = sum.fetch_add(1, Ordering::Relaxed)));
            let helpers: Vec<_> = (0..3).map(help).map(|it| it.thread().clone()).collect();
            let closing = gate.closing(&helpers);
            for round in 1..=1_000 {
                gate.run(&helpers, || _ = sum.fetch_add(1, Ordering::Relaxed));
                assert_eq!(sum.load(Ordering::Relaxed), 4 * round);
            }
            drop(closing);
        });
    }

    #[test]
    #[should_panic(expected = "another thread of the run panicked")]
    fn a_helper_that_panics_ends_the_run() {
        let gate = Gate::new();
        thread::scope(|scope| {
            let idle = scope.spawn(|| gate.help(|| ()));
            let wrong = scope.spawn(|| gate.help(|| panic!("the helper")));
            let helpers = [idle.thread().clone(), wrong.thread().clone()];
            let _closing = gate.closing(&helpers);
            gate.run(&helpers, || ());
        });
    }
}
