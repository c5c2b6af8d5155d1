//! Who drives the engine. A program that polls without pause does the work itself, and a thread that woke
//! for each packet would only take its processor away; a program that waits for its memory to change, or
//! sleeps, needs the thread at once. Which it is shows in how much of its time the program polls: of the
//! processor time it got, for on a busy machine it waits for a processor most of the time.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use weft_units::{Duration, Instant};

use super::NEVER;

/// Polls that follow each other as fast are one; where there is more between them, the program did
/// something else, or was kept from it.
const SAME_POLL: Duration = Duration::from_micros(20);

/// A program that found nothing would have polled again at once. Up to here it was this very thread that kept it from
/// that, whose turn takes as long.
const KEPT: Duration = Duration::from_micros(100);

/// What the program itself spends on being kept: to hand over the device, to be switched away and back. Without it
/// a program that the thread served once would seem to do other things ever after.
const SWITCH: Duration = Duration::from_micros(5);

/// So many parts of a hundred are most of its time. One that polls and watches memory by turns polls for half of it;
/// one that only polls does other things too, such as to wait for this very thread to let go of the device.
const MOST: u64 = 85;

/// Less of the time than one part in so many is no polling without pause, whatever else the program does.
const SHARE: u64 = 8;

/// The thread judges by no less time than this.
const SHORTEST_LOOK: Duration = Duration::from_micros(200);

/// How long the thread leaves a program alone that polls, at least and at most. To wake and to sleep again takes it
/// about 20 us of a processor. Where that is the program's, and comes often, the program seems to do other things for
/// so much of its time that it is never left alone for longer.
const NAPS: [Duration; 2] = [Duration::from_micros(200), Duration::from_millis(1)];

/// Wakes in a row for packets that a program which polls had taken in by then: it does the work.
const VAIN: u32 = 4;

/// Between these, a nap is this part of the time for which the program has polled. Two programs that poll and
/// watch their memory by turns wait for each other's threads: naps that grew faster than the time spent
/// polling would make each poll for longer, and so each nap longer still.
const PART: u64 = 20;

/// What is known of the program's polls, and of the thread's sleep.
#[derive(Debug)]
pub(super) struct Pace {
    /// Time spent polling, nanoseconds.
    polled: AtomicU64,
    /// When the last poll was, and whether it found nothing.
    polled_at: AtomicU64,
    found_nothing: AtomicBool,
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
            found_nothing: AtomicBool::new(false),
            sleeps_until: AtomicU64::new(0),
            deaf: AtomicBool::new(false),
        }
    }
}

impl Pace {
    /// The program polls. Only who holds the engine's lock says so: each value has one writer at a time.
    pub(super) fn polls(&self, now: Instant) {
        let last = self.polled_at.load(Ordering::Relaxed);
        self.polled_at.store(now.as_nanos(), Ordering::Relaxed);
        let gap = now.since(Instant::from_nanos(last));
        let kept = gap < KEPT && self.found_nothing.load(Ordering::Relaxed);
        if gap < SAME_POLL || kept {
            let polled = self.polled.load(Ordering::Relaxed);
            let spent = if gap < SAME_POLL { gap } else { SWITCH };
            self.polled.store(polled + spent.as_nanos(), Ordering::Relaxed);
        }
    }

    /// Whether the program polled just now.
    pub(super) fn is_polled(&self, now: Instant) -> bool {
        now.since(Instant::from_nanos(self.polled_at.load(Ordering::Relaxed))) < SAME_POLL
    }

    /// Whether the poll found something. What a program does after that it may do for long.
    pub(super) fn found(&self, something: bool) {
        self.found_nothing.store(!something, Ordering::Relaxed);
    }

    /// Whether the thread leaves the work to the program: it must be woken where that is going to wait.
    pub(super) fn is_left_alone(&self) -> bool {
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
    pub(super) fn oversleeps(&self, due: impl FnOnce() -> Option<Instant>) -> bool {
        !self.deaf.load(Ordering::Relaxed)
            && due().unwrap_or(NEVER).as_nanos() < self.sleeps_until.load(Ordering::SeqCst)
    }
}

/// The thread's judgement of the program.
#[derive(Debug)]
pub(super) struct Judge {
    looked_at: Instant,
    polled: u64,
    /// Processor time of the program's own threads until then.
    worked: Duration,
    /// Since when the program does the work.
    drives_since: Option<Instant>,
    /// Wakes in a row that were in vain.
    vain: u32,
}

impl Default for Judge {
    fn default() -> Self {
        let worked = Duration::ZERO;
        Self { looked_at: Instant::EPOCH, polled: 0, worked, drives_since: None, vain: 0 }
    }
}

impl Judge {
    /// The program stops polling, as far as it says.
    pub(super) const fn forget(&mut self) {
        self.drives_since = None;
    }

    /// The thread woke, and there was something for it to do.
    pub(super) const fn was_needed(&mut self) {
        self.vain = 0;
    }

    /// The thread woke, and there was nothing for it to do.
    pub(super) fn woke_in_vain(&mut self, pace: &Pace, now: Instant) {
        self.vain = if pace.is_polled(now) { self.vain + 1 } else { 0 };
    }

    /// How long the thread may leave the program alone, if the program polled for most of the time since
    /// the last look. `work` is the processor time of its own threads so far.
    pub(super) fn nap(
        &mut self,
        pace: &Pace,
        now: Instant,
        work: impl FnOnce() -> Duration,
    ) -> Option<Duration> {
        let span = now.since(self.looked_at).as_nanos();
        let in_vain = self.vain >= VAIN;
        if in_vain || span >= SHORTEST_LOOK.as_nanos() {
            let polled = pace.polled.load(Ordering::Relaxed);
            let (work, polls) = (work(), polled - self.polled);
            let worked = work.as_nanos().saturating_sub(self.worked.as_nanos()).min(span);
            let drives = in_vain || polls * 100 >= worked * MOST && polls * SHARE >= span;
            self.vain = if in_vain { 0 } else { self.vain };
            self.worked = work;
            self.drives_since = drives.then(|| self.drives_since.unwrap_or(self.looked_at));
            (self.looked_at, self.polled) = (now, polled);
        }
        let driven = now.since(self.drives_since?).as_nanos();
        Some(Duration::from_nanos(driven / PART).clamp(NAPS[0], NAPS[1]))
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
        assert_eq!(judge.nap(&pace, now, || now.since(Instant::EPOCH)), None);
        let mut naps = Vec::new();
        for _ in 0..24 {
            now = spend(&pace, now, 10);
            naps.extend(judge.nap(&pace, now, || now.since(Instant::EPOCH)));
        }
        assert_eq!((naps[0], naps[23]), (NAPS[0], NAPS[1]));
        now += Duration::from_millis(1);
        assert_eq!(judge.nap(&pace, now, || now.since(Instant::EPOCH)), None);
        now = spend(&pace, now, 10);
        assert_eq!(judge.nap(&pace, now, || now.since(Instant::EPOCH)), Some(NAPS[0]));
    }

    #[test]
    fn a_program_that_polls_and_watches_its_memory_by_turns_is_not_left_alone() {
        let (pace, mut judge) = (Pace::default(), Judge::default());
        let mut now = Instant::from_nanos(1_000_000);
        for _ in 0..10 {
            now = spend(&pace, now, 3);
            assert_eq!(judge.nap(&pace, now, || now.since(Instant::EPOCH)), None);
        }
    }

    #[test]
    fn a_program_that_this_thread_keeps_from_polling_is_left_alone() {
        assert!(kept_from_polling(false).is_some());
        assert!(kept_from_polling(true).is_none(), "it did something with what it found");
    }

    fn kept_from_polling(found: bool) -> Option<Duration> {
        let (pace, mut judge) = (Pace::default(), Judge::default());
        let mut now = Instant::from_nanos(1_000_000);
        let mut work = Duration::ZERO;
        let mut nap = None;
        for _ in 0..10 {
            for _ in 0..10 {
                // It polls for 8 us, of 30; then the thread takes its processor.
                (0..4).for_each(|poll| {
                    pace.polls(now + Duration::from_micros(2 * poll));
                    pace.found(found);
                });
                now += Duration::from_micros(30);
                work = work + Duration::from_micros(10);
            }
            nap = judge.nap(&pace, now, || work);
        }
        nap
    }

    #[test]
    fn a_program_that_gets_a_processor_for_a_part_of_the_time_polls_for_all_of_that() {
        let (pace, mut judge) = (Pace::default(), Judge::default());
        let mut now = Instant::from_nanos(1_000_000);
        let mut work = Duration::ZERO;
        for _ in 0..10 {
            // From the first to the third of three polls are 20 us.
            now = spend(&pace, now, 3);
            work = work + Duration::from_micros(220);
            judge.nap(&pace, now, || work);
        }
        assert!(judge.nap(&pace, now, || work).is_some());
        now += Duration::from_millis(10);
        assert_eq!(judge.nap(&pace, now, || work), None);
    }

    #[test]
    fn a_program_that_takes_in_what_the_thread_wakes_for_is_left_alone() {
        let (pace, mut judge) = (Pace::default(), Judge::default());
        let now = Instant::from_nanos(1_000_000);
        let mut wake = |polled: bool| {
            for _ in 0..VAIN {
                if polled {
                    pace.polls(now);
                }
                let later = now + Duration::from_micros(30 * u64::from(!polled));
                judge.woke_in_vain(&pace, later);
            }
            judge.nap(&pace, now, || Duration::ZERO)
        };
        assert_eq!(wake(false), None, "it does other things");
        assert_eq!(wake(true), Some(NAPS[0]));
        judge.was_needed();
        judge.forget();
        (1..VAIN).for_each(|_| judge.woke_in_vain(&pace, now));
        judge.was_needed();
        judge.woke_in_vain(&pace, now);
        assert_eq!(judge.nap(&pace, now, || Duration::ZERO), None, "it was needed in between");
    }

    #[test]
    fn the_thread_is_woken_for_what_is_due_before_it_would_wake() {
        let (pace, now) = (Pace::default(), Instant::from_nanos(1_000_000));
        assert!(!pace.oversleeps(|| Some(now)), "awake");
        pace.sleep(now, false);
        assert!(pace.oversleeps(|| Some(now - Duration::from_nanos(1))));
        assert!(!pace.oversleeps(|| Some(now)));
        assert!(!pace.oversleeps(|| None));
        pace.sleep(now, true);
        assert!(pace.is_left_alone());
    }
}
