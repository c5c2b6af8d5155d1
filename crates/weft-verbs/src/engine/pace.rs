//! The division of work between the program and the engine's thread. A program that polls without pause runs the engine
//! itself, and a thread that woke for each packet would only take its processor; a program that watches its memory, or
//! sleeps, needs the thread at once. The criterion is the share of its time for which the program polls: of the
//! processor time it got, because on a busy machine it waits for a processor most of the time.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use weft_units::{Duration, Instant};

use super::NEVER;

/// The maximum interval between polls that count as continuous; over a longer one the program did something else, or
/// could not run.
const MAX_POLL_INTERVAL: Duration = Duration::from_micros(20);

/// The maximum interval that counts as polling after an empty poll: the program would have polled again at once, but
/// this thread held the device, whose turn takes as long.
const MAX_INTERRUPTION: Duration = Duration::from_micros(100);

/// The program's own cost of such an interruption: to release the device, to be switched away and back. Without it a
/// program that the thread served once would seem to do other things from then on.
const INTERRUPTION_COST: Duration = Duration::from_micros(5);

/// The maximum time that counts as polling for each packet that a poll handled: to receive or to send 64 KiB through the
/// kernel and to encrypt them takes about as long. A poll that took longer lost its processor in between.
const MAX_PACKET_TIME: Duration = Duration::from_micros(25);

/// The percentage that counts as polling all the time. A program that alternates between polling and watching memory
/// polls for half of it; one that only polls has other costs too, such as waiting for this thread to release the
/// device.
const POLLING_PERCENT: u64 = 85;

/// One part in this many of the time is the minimum share that counts as polling without pause, whatever else the
/// program does.
const MIN_SHARE: u64 = 8;

/// The minimum time over which the thread evaluates the program.
const MIN_EVALUATION: Duration = Duration::from_micros(200);

/// The minimum and maximum nap of the thread while a program polls. To wake and to sleep again takes it about 20 us of
/// a processor. If that is the program's processor, and happens often, the program seems to do other things for so much
/// of its time that naps never become longer.
const NAPS: [Duration; 2] = [Duration::from_micros(200), Duration::from_millis(1)];

/// Number of consecutive wakes for packets that the polling program had already handled, after which it is left alone.
const MAX_EMPTY_WAKES: u32 = 4;

/// Between the limits, a nap is the time for which the program has polled divided by this. Two programs that alternate
/// between polling and watching their memory wait for each other's threads: naps that grew faster than the time spent
/// polling would make each poll for longer, and so each nap longer still.
const NAP_DIVISOR: u64 = 20;

/// The record of the program's polls, and of the thread's sleep.
#[derive(Debug)]
pub(super) struct Pace {
    /// Total time spent polling, nanoseconds.
    polled: AtomicU64,
    /// The time of the last poll, nanoseconds, and `true` if it found nothing.
    polled_at: AtomicU64,
    found_nothing: AtomicBool,
    /// The latest time at which the thread wakes.
    sleeps_until: AtomicU64,
    /// `true` if packets do not wake it.
    ignores_packets: AtomicBool,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            polled: AtomicU64::new(0),
            polled_at: AtomicU64::new(0),
            found_nothing: AtomicBool::new(false),
            sleeps_until: AtomicU64::new(0),
            ignores_packets: AtomicBool::new(false),
        }
    }
}

impl Pace {
    /// Records a poll. The caller holds the engine's lock, so each value has one writer at a time.
    pub(super) fn polls(&self, now: Instant) {
        let last = self.polled_at.load(Ordering::Relaxed);
        self.polled_at.store(now.as_nanos(), Ordering::Relaxed);
        let gap = now.since(Instant::from_nanos(last));
        let interrupted = gap < MAX_INTERRUPTION && self.found_nothing.load(Ordering::Relaxed);
        if gap < MAX_POLL_INTERVAL || interrupted {
            let polled = self.polled.load(Ordering::Relaxed);
            let spent = if gap < MAX_POLL_INTERVAL { gap } else { INTERRUPTION_COST };
            self.polled.store(polled + spent.as_nanos(), Ordering::Relaxed);
        }
    }

    /// Records that a poll, which began at `began`, handled packets until `now`. That is polling, too: without it a
    /// program that handles many packets, each for longer than [`MAX_POLL_INTERVAL`], would seem to do other things, and
    /// the thread would wake for each of them and take the program's processor.
    pub(super) fn handled(&self, packets: usize, began: Instant, now: Instant) {
        let longest = MAX_PACKET_TIME * packets as u64;
        let polled = self.polled.load(Ordering::Relaxed);
        self.polled.store(polled + now.since(began).min(longest).as_nanos(), Ordering::Relaxed);
        self.polled_at.store(now.as_nanos(), Ordering::Relaxed);
    }

    /// Returns `true` if the program polled just now.
    pub(super) fn is_polled(&self, now: Instant) -> bool {
        now.since(Instant::from_nanos(self.polled_at.load(Ordering::Relaxed))) < MAX_POLL_INTERVAL
    }

    /// Records the result of the poll. After a successful one the program may do other work for long.
    pub(super) fn found(&self, something: bool) {
        self.found_nothing.store(!something, Ordering::Relaxed);
    }

    /// Returns `true` if the thread leaves the work to the program, which must wake it before it waits.
    pub(super) fn is_left_alone(&self) -> bool {
        self.ignores_packets.load(Ordering::SeqCst)
    }

    /// Records that the thread goes to sleep.
    pub(super) fn sleep(&self, until: Instant, ignores_packets: bool) {
        self.ignores_packets.store(ignores_packets, Ordering::SeqCst);
        self.sleeps_until.store(until.as_nanos(), Ordering::SeqCst);
    }

    /// Records that the thread is awake.
    pub(super) fn awake(&self) {
        self.ignores_packets.store(false, Ordering::SeqCst);
        self.sleeps_until.store(0, Ordering::SeqCst);
    }

    /// Returns `true` if the thread would sleep past the next timeout.
    pub(super) fn oversleeps(&self, due: impl FnOnce() -> Option<Instant>) -> bool {
        !self.ignores_packets.load(Ordering::Relaxed)
            && due().unwrap_or(NEVER).as_nanos() < self.sleeps_until.load(Ordering::SeqCst)
    }
}

/// The thread's evaluation of the program.
#[derive(Debug)]
pub(super) struct Evaluator {
    evaluated_at: Instant,
    polled: u64,
    /// Processor time of the program's own threads up to then.
    worked: Duration,
    /// The time since which the program does the work.
    drives_since: Option<Instant>,
    /// Number of consecutive wakes without work.
    empty_wakes: u32,
}

impl Default for Evaluator {
    fn default() -> Self {
        let worked = Duration::ZERO;
        Self { evaluated_at: Instant::EPOCH, polled: 0, worked, drives_since: None, empty_wakes: 0 }
    }
}

impl Evaluator {
    /// Resets the evaluation: the program announced that it stops polling.
    pub(super) const fn forget(&mut self) {
        self.drives_since = None;
    }

    /// Records that the thread woke and had work.
    pub(super) const fn woke_with_work(&mut self) {
        self.empty_wakes = 0;
    }

    /// Records that the thread woke and had no work.
    pub(super) fn woke_without_work(&mut self, pace: &Pace, now: Instant) {
        self.empty_wakes = if pace.is_polled(now) { self.empty_wakes + 1 } else { 0 };
    }

    /// Returns the time for which the thread may leave the program alone, if the program polled for most of the time
    /// since the last evaluation. `work` returns the processor time of its own threads so far.
    pub(super) fn nap(
        &mut self,
        pace: &Pace,
        now: Instant,
        work: impl FnOnce() -> Duration,
    ) -> Option<Duration> {
        let span = now.since(self.evaluated_at).as_nanos();
        let woke_needlessly = self.empty_wakes >= MAX_EMPTY_WAKES;
        if woke_needlessly || span >= MIN_EVALUATION.as_nanos() {
            let polled = pace.polled.load(Ordering::Relaxed);
            let (work, polls) = (work(), polled - self.polled);
            let worked = work.as_nanos().saturating_sub(self.worked.as_nanos()).min(span);
            let drives = woke_needlessly
                || polls * 100 >= worked * POLLING_PERCENT && polls * MIN_SHARE >= span;
            self.empty_wakes = if woke_needlessly { 0 } else { self.empty_wakes };
            self.worked = work;
            self.drives_since = drives.then(|| self.drives_since.unwrap_or(self.evaluated_at));
            (self.evaluated_at, self.polled) = (now, polled);
        }
        let driven = now.since(self.drives_since?).as_nanos();
        Some(Duration::from_nanos(driven / NAP_DIVISOR).clamp(NAPS[0], NAPS[1]))
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
        let (pace, mut evaluator) = (Pace::default(), Evaluator::default());
        let mut now = Instant::from_nanos(1_000_000);
        assert_eq!(evaluator.nap(&pace, now, || now.since(Instant::EPOCH)), None);
        let mut naps = Vec::new();
        for _ in 0..24 {
            now = spend(&pace, now, 10);
            naps.extend(evaluator.nap(&pace, now, || now.since(Instant::EPOCH)));
        }
        assert_eq!((naps[0], naps[23]), (NAPS[0], NAPS[1]));
        now += Duration::from_millis(1);
        assert_eq!(evaluator.nap(&pace, now, || now.since(Instant::EPOCH)), None);
        now = spend(&pace, now, 10);
        assert_eq!(evaluator.nap(&pace, now, || now.since(Instant::EPOCH)), Some(NAPS[0]));
    }

    #[test]
    fn a_program_that_alternates_between_polling_and_watching_memory_is_not_left_alone() {
        let (pace, mut evaluator) = (Pace::default(), Evaluator::default());
        let mut now = Instant::from_nanos(1_000_000);
        for _ in 0..10 {
            now = spend(&pace, now, 3);
            assert_eq!(evaluator.nap(&pace, now, || now.since(Instant::EPOCH)), None);
        }
    }

    #[test]
    fn a_program_that_this_thread_keeps_from_polling_is_left_alone() {
        assert!(kept_from_polling(false).is_some());
        assert!(kept_from_polling(true).is_none(), "it worked on what it found");
    }

    fn kept_from_polling(found: bool) -> Option<Duration> {
        let (pace, mut evaluator) = (Pace::default(), Evaluator::default());
        let mut now = Instant::from_nanos(1_000_000);
        let mut work = Duration::ZERO;
        let mut nap = None;
        for _ in 0..10 {
            for _ in 0..10 {
                // It polls for 8 us of 30; then the thread takes its processor.
                (0..4).for_each(|poll| {
                    pace.polls(now + Duration::from_micros(2 * poll));
                    pace.found(found);
                });
                now += Duration::from_micros(30);
                work = work + Duration::from_micros(10);
            }
            nap = evaluator.nap(&pace, now, || work);
        }
        nap
    }

    #[test]
    fn polling_is_measured_against_the_processor_time_of_the_program() {
        let (pace, mut evaluator) = (Pace::default(), Evaluator::default());
        let mut now = Instant::from_nanos(1_000_000);
        let mut work = Duration::ZERO;
        for _ in 0..10 {
            // Three polls span 20 us.
            now = spend(&pace, now, 3);
            work = work + Duration::from_micros(220);
            evaluator.nap(&pace, now, || work);
        }
        assert!(evaluator.nap(&pace, now, || work).is_some());
        now += Duration::from_millis(10);
        assert_eq!(evaluator.nap(&pace, now, || work), None);
    }

    #[test]
    fn a_program_whose_polls_handle_packets_for_long_is_left_alone() {
        let nap = |handles: Duration| {
            let (pace, mut evaluator) = (Pace::default(), Evaluator::default());
            let mut now = Instant::from_nanos(1_000_000);
            let mut nap = None;
            for _ in 0..10 {
                for _ in 0..10 {
                    pace.polls(now);
                    // Two packets of 45 us, then the program works for 5 us on what it found.
                    pace.handled(2, now, now + handles);
                    pace.found(true);
                    now += Duration::from_micros(50);
                }
                nap = evaluator.nap(&pace, now, || now.since(Instant::EPOCH));
            }
            nap
        };
        assert!(nap(Duration::from_micros(45)).is_some());
        assert!(nap(Duration::from_micros(10)).is_none(), "it does other things for 40 us of 50");
    }

    #[test]
    fn a_program_that_handles_the_packets_that_wake_the_thread_is_left_alone() {
        let (pace, mut evaluator) = (Pace::default(), Evaluator::default());
        let now = Instant::from_nanos(1_000_000);
        let mut wake = |polled: bool| {
            for _ in 0..MAX_EMPTY_WAKES {
                if polled {
                    pace.polls(now);
                }
                let later = now + Duration::from_micros(30 * u64::from(!polled));
                evaluator.woke_without_work(&pace, later);
            }
            evaluator.nap(&pace, now, || Duration::ZERO)
        };
        assert_eq!(wake(false), None, "it does other things");
        assert_eq!(wake(true), Some(NAPS[0]));
        evaluator.woke_with_work();
        evaluator.forget();
        (1..MAX_EMPTY_WAKES).for_each(|_| evaluator.woke_without_work(&pace, now));
        evaluator.woke_with_work();
        evaluator.woke_without_work(&pace, now);
        assert_eq!(evaluator.nap(&pace, now, || Duration::ZERO), None, "it was needed in between");
    }

    #[test]
    fn the_thread_is_woken_for_an_earlier_timeout() {
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
