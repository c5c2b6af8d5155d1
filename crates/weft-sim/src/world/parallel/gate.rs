//! The meetings of the threads of a run: all work on one window, then the first one goes on alone. Within a window they
//! take turns at what only one of them may do, in order of number.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, Thread};

/// Number of times that a thread looks before it sleeps: tens of microseconds, about what waking one takes.
const SPINS: u32 = 4_000;

/// The meetings of one leader, which is number 0, and its helpers.
#[derive(Debug)]
pub(super) struct Gate {
    leader: Thread,
    /// The helpers, from number 1 on, once they have been told.
    helpers: OnceLock<Vec<Thread>>,
    /// The number of rounds begun.
    round: AtomicUsize,
    /// The helpers that are not done with the round.
    busy: AtomicUsize,
    /// The number of the thread whose turn in the round it is.
    turn: AtomicUsize,
    is_closed: AtomicBool,
}

impl Gate {
    /// Returns the meetings of the calling thread, which is the leader.
    pub(super) fn new() -> Self {
        Self {
            leader: thread::current(),
            helpers: OnceLock::new(),
            round: AtomicUsize::new(0),
            busy: AtomicUsize::new(0),
            turn: AtomicUsize::new(0),
            is_closed: AtomicBool::new(false),
        }
    }

    /// Sets the helpers, whose numbers start at 1. Returns a guard that ends them when it is dropped.
    pub(super) fn admit(&self, helpers: Vec<Thread>) -> Closing<'_> {
        self.helpers.set(helpers).expect("helpers are admitted once");
        Closing { gate: self }
    }

    fn helpers(&self) -> &[Thread] {
        self.helpers.get().map_or(&[], Vec::as_slice)
    }

    /// Lets all helpers do their work while the leader does its own; returns when all are done.
    ///
    /// # Panics
    /// Panics if a helper has.
    pub(super) fn run(&self, own: impl FnOnce()) {
        self.busy.store(self.helpers().len(), Ordering::Relaxed);
        self.turn.store(0, Ordering::Relaxed);
        self.round.fetch_add(1, Ordering::Release);
        self.helpers().iter().for_each(Thread::unpark);
        own();
        wait_until(|| self.busy.load(Ordering::Acquire) == 0);
        self.check();
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

    /// Returns `true` if it is the turn of a thread: those before it have passed theirs on.
    pub(super) fn is_turn_of(&self, number: usize) -> bool {
        self.turn.load(Ordering::Acquire) == number
    }

    /// Waits until it is the turn of a thread.
    ///
    /// # Panics
    /// Panics if another thread has.
    pub(super) fn wait_for_turn(&self, number: usize) {
        wait_until(|| self.is_turn_of(number) || self.is_closed.load(Ordering::Acquire));
        self.check();
    }

    /// Ends the turn of a thread. Each does so once a round.
    pub(super) fn pass_turn(&self, number: usize) {
        self.turn.store(number + 1, Ordering::Release);
        // The helper of number `n` is at `n - 1`.
        if let Some(next) = self.helpers().get(number) {
            next.unpark();
        }
    }

    fn check(&self) {
        assert!(!self.is_closed.load(Ordering::Relaxed), "another thread of the run panicked");
    }

    /// Ends the helpers, and all waiting.
    fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.helpers().iter().for_each(Thread::unpark);
    }
}

/// Marks a helper as done with its round, also if it panics.
struct Done<'a> {
    gate: &'a Gate,
}

impl Drop for Done<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.gate.close();
        }
        if self.gate.busy.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.gate.leader.unpark();
        }
    }
}

/// See [`Gate::admit`].
pub(super) struct Closing<'a> {
    gate: &'a Gate,
}

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.gate.close();
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
    use std::sync::Mutex;
    use std::sync::atomic::AtomicU64;

    use super::*;

    #[test]
    fn every_helper_works_once_a_round_and_none_is_late() {
        let (gate, sum) = (Gate::new(), AtomicU64::new(0));
        thread::scope(|scope| {
            let help = |_| scope.spawn(|| gate.help(|| _ = sum.fetch_add(1, Ordering::Relaxed)));
            let helpers = (0..3).map(help).map(|it| it.thread().clone()).collect();
            let closing = gate.admit(helpers);
            for round in 1..=1_000 {
                gate.run(|| _ = sum.fetch_add(1, Ordering::Relaxed));
                assert_eq!(sum.load(Ordering::Relaxed), 4 * round);
            }
            drop(closing);
        });
    }

    #[test]
    fn turns_are_taken_in_order_of_number() {
        let (gate, order) = (&Gate::new(), &Mutex::new(Vec::new()));
        let work = |number| {
            gate.wait_for_turn(number);
            order.lock().unwrap().push(number);
            gate.pass_turn(number);
        };
        thread::scope(|scope| {
            let help = |number| scope.spawn(move || gate.help(|| work(number)));
            let helpers = (1..4).map(help).map(|it| it.thread().clone()).collect();
            let _closing = gate.admit(helpers);
            for _ in 0..100 {
                gate.run(|| work(0));
                assert_eq!(std::mem::take(&mut *order.lock().unwrap()), [0, 1, 2, 3]);
            }
        });
    }

    #[test]
    #[should_panic(expected = "another thread of the run panicked")]
    fn a_helper_that_panics_ends_the_run() {
        let gate = Gate::new();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| gate.help(|| gate.wait_for_turn(2)));
            let wrong = scope.spawn(|| gate.help(|| panic!("the helper")));
            let helpers = vec![waiting.thread().clone(), wrong.thread().clone()];
            let _closing = gate.admit(helpers);
            gate.run(|| gate.pass_turn(0));
        });
    }
}
