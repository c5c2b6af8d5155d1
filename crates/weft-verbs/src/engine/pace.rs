//! Who drives the engine. A program that polls without pause does the work itself, and a thread that woke
//! for each packet would only take its processor away; a program that waits for its memory to change, or
//! sleeps, needs the thread at once. What it is, is seen from how it polls.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use weft_units::{Duration, Instant};

use super::NEVER;

/// Polls in vain that count, at most.
const MOST: u32 = 64;

/// More than this, and the program polls without pause.
const ENOUGH: u32 = 16;

/// A program that has not polled for this long does something else.
const FRESH: Duration = Duration::from_micros(100);

/// How long the thread leaves such a program alone before it looks again.
pub(super) const LEAVE_ALONE: Duration = Duration::from_millis(1);

/// What is known of the program's polls, and of the thread's sleep.
#[derive(Debug)]
pub(super) struct Pace {
    /// Polls in vain; a post takes half away.
    vain: AtomicU32,
    /// When the last one was.
    polled_at: AtomicU64,
    /// The thread sleeps until then at most.
    sleeps_until: AtomicU64,
    /// And it does not wake for packets.
    deaf: AtomicBool,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            vain: AtomicU32::new(0),
            polled_at: AtomicU64::new(0),
            sleeps_until: AtomicU64::new(0),
            deaf: AtomicBool::new(false),
        }
    }
}

impl Pace {
    pub(super) fn polled_in_vain(&self, now: Instant) {
        let vain = self.vain.load(Ordering::Relaxed);
        self.vain.store((vain + 1).min(MOST), Ordering::Relaxed);
        self.polled_at.store(now.as_nanos(), Ordering::Relaxed);
    }

    pub(super) fn posted(&self) {
        let vain = self.vain.load(Ordering::Relaxed);
        self.vain.store(vain / 2, Ordering::Relaxed);
    }

    /// The program is going to wait for an event; whether the thread must be woken for it.
    pub(super) fn will_wait(&self) -> bool {
        self.vain.store(0, Ordering::Relaxed);
        self.deaf.load(Ordering::SeqCst)
    }

    /// Whether the program does the work itself.
    pub(super) fn is_driven(&self, now: Instant) -> bool {
        let polled_at = Instant::from_nanos(self.polled_at.load(Ordering::Relaxed));
        self.vain.load(Ordering::Relaxed) > ENOUGH && now.since(polled_at) < FRESH
    }

    /// The thread goes to sleep.
    pub(super) fn sleep(&self, until: Instant, deaf: bool) {
        self.deaf.store(deaf, Ordering::SeqCst);
        self.sleeps_until.store(until.as_nanos(), Ordering::SeqCst);
    }

    /// The thread is awake.
    pub(super) fn awake(&self) {
        self.deaf.store(false, Ordering::SeqCst);
        self.sleeps_until.store(0, Ordering::SeqCst);
    }

    /// Whether the thread would sleep through what is due.
    pub(super) fn oversleeps(&self, due: Option<Instant>) -> bool {
        !self.deaf.load(Ordering::Relaxed)
            && due.unwrap_or(NEVER).as_nanos() < self.sleeps_until.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_polls_without_pause_is_left_alone_until_it_stops() {
        let (pace, now) = (Pace::default(), Instant::from_nanos(1_000_000));
        assert!(!pace.is_driven(now));
        (0..MOST).for_each(|_| pace.polled_in_vain(now));
        assert!(pace.is_driven(now));
        assert!(!pace.is_driven(now + Duration::from_millis(1)), "it does something else");
        pace.sleep(now + LEAVE_ALONE, true);
        assert!(pace.will_wait(), "the thread would not hear the packet it waits for");
        assert!(!pace.is_driven(now));
    }

    #[test]
    fn a_program_that_posts_and_watches_its_memory_is_not_left_alone() {
        let (pace, now) = (Pace::default(), Instant::from_nanos(1_000_000));
        for _ in 0..100 {
            (0..8).for_each(|_| pace.polled_in_vain(now));
            pace.posted();
            assert!(!pace.is_driven(now));
        }
    }

    #[test]
    fn the_thread_is_woken_for_what_is_due_before_it_would_wake() {
        let (pace, now) = (Pace::default(), Instant::from_nanos(1_000_000));
        assert!(!pace.oversleeps(Some(now)), "awake");
        pace.sleep(now, false);
        assert!(pace.oversleeps(Some(now - Duration::from_nanos(1))));
        assert!(!pace.oversleeps(Some(now)));
        assert!(!pace.oversleeps(None));
    }
}
