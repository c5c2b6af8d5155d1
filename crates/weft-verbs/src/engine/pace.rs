//! Who drives the engine. A program that polls without pause does the work itself, and a thread that woke
//! for each packet would only take its processor away; a program that waits for its memory to change, or
//! sleeps, needs the thread at once. Which it is shows in how much of its time the program polls.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use weft_units::{Duration, Instant};

use super::NEVER;

/// Polls that follow each other as fast are one; where there is more between them, the program did
/// something else.
const SAME_POLL: Duration = Duration::from_micros(20);

/// The thread judges by no less time than this.
const SHORTEST_LOOK: Duration = Duration::from_micros(200);

/// How long the thread leaves a program alone that polls, at first and at most.
const NAPS: [Duration; 2] = [Duration::from_micros(50), Duration::from_millis(1)];

/// What is known of the program's polls, and of the thread's sleep.
#[derive(Debug)]
pub(super) struct Pace {
    /// Time spent polling, nanoseconds.
    polled: AtomicU64,
    /// When the last poll was.
    polled_at: AtomicU64,
    /// The thread sleeps until then at most.
    sleeps_until: AtomicU64,
    /// And it does not wake for packets.
    deaf: AtomicBool,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            polled: AtomicU64::new(0),
            polled_at: AtomicU64::new(0),
            sleeps_until: AtomicU64::new(0),
            deaf: AtomicBool::new(false),
        }
    }
}

impl Pace {
    /// The program polls.
    pub(super) fn polls(&self, now: Instant) {
        let last = self.polled_at.swap(now.as_nanos(), Ordering::Relaxed);
        let gap = now.since(Instant::from_nanos(last));
        if gap < SAME_POLL {
            self.polled.fetch_add(gap.as_nanos(), Ordering::Relaxed);
        }
    }

    /// The program is going to wait for an event; whether the thread must be woken for it.
    pub(super) fn will_wait(&self) -> bool {
        self.deaf.load(Ordering::SeqCst)
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

/// The thread's judgement of the program.
#[derive(Debug)]
pub(super) struct Judge {
    looked_at: Instant,
    polled: u64,
    drives: bool,
    nap: Duration,
}

impl Default for Judge {
    fn default() -> Self {
        Self { looked_at: Instant::EPOCH, polled: 0, drives: false, nap: NAPS[0] }
    }
}

impl Judge {
    /// How long the thread may leave the program alone, if the program polled for most of the time since
    /// the last look.
    pub(super) fn nap(&mut self, pace: &Pace, now: Instant) -> Option<Duration> {
        let span = now.since(self.looked_at).as_nanos();
        if span >= SHORTEST_LOOK.as_nanos() {
            let polled = pace.polled.load(Ordering::Relaxed);
            self.drives = (polled - self.polled) * 10 >= span * 9;
            self.nap = if self.drives { (self.nap * 2).min(NAPS[1]) } else { NAPS[0] / 2 };
            (self.looked_at, self.polled) = (now, polled);
        }
        self.drives.then_some(self.nap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Polls every ten microseconds for a part of each hundred, until a thousand have passed.
    fn spend(pace: &Pace, from: Instant, polling: u64) -> Instant {
        for micro in 0..100 {
            if micro % 10 < polling {
                pace.polls(from + Duration::from_micros(10 * micro));
            }
        }
        from + Duration::from_micros(1_000)
    }

    #[test]
    fn a_program_that_polls_without_pause_is_left_alone_for_longer_and_longer_until_it_stops() {
        let (pace, mut judge) = (Pace::default(), Judge::default());
        let mut now = Instant::from_nanos(1_000_000);
        assert_eq!(judge.nap(&pace, now), None);
        let mut naps = Vec::new();
        for _ in 0..8 {
            now = spend(&pace, now, 10);
            naps.extend(judge.nap(&pace, now));
        }
        assert_eq!((naps[0], naps[7]), (NAPS[0], NAPS[1]));
        now += Duration::from_millis(1);
        assert_eq!(judge.nap(&pace, now), None);
        now = spend(&pace, now, 10);
        assert_eq!(judge.nap(&pace, now), Some(NAPS[0]));
    }

    #[test]
    fn a_program_that_polls_and_watches_its_memory_by_turns_is_not_left_alone() {
        let (pace, mut judge) = (Pace::default(), Judge::default());
        let mut now = Instant::from_nanos(1_000_000);
        for _ in 0..10 {
            now = spend(&pace, now, 3);
            assert_eq!(judge.nap(&pace, now), None);
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
        pace.sleep(now, true);
        assert!(pace.will_wait());
    }
}
