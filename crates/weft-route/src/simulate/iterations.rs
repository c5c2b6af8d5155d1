//! Jobs that train: each iteration computes without traffic, then sends a fixed number of bits.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use weft_units::{Duration, Instant, Rng, Seed};

use super::numbers::{to_f64, whole};

/// The iterations of jobs. Each job draws the length of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Iterations {
    /// The shortest iteration of a job alone on the network.
    pub shortest: Duration,
    /// The longest iteration of a job alone on the network.
    pub longest: Duration,
    /// The share of such an iteration in which the job sends, in percent.
    pub busy_percent: u32,
}

impl Iterations {
    /// Iterations of 10 to 20 s (Astral, section 4: 10 to 30 s), half of them with traffic.
    pub const DEFAULT: Self = Self {
        shortest: Duration::from_secs(10),
        longest: Duration::from_secs(20),
        busy_percent: 50,
    };
}

/// The phase of a job within its iteration.
#[derive(Clone, Copy, Debug)]
enum Phase {
    /// It computes for this many seconds more.
    Computes(f64),
    /// Each of its flows has this many bits to send.
    Sends(f64),
}

/// A job's iterations, in seconds and bits.
#[derive(Clone, Copy, Debug)]
struct Iteration {
    phase: Phase,
    /// The duration of the computation.
    compute: f64,
    /// The bits that each of its flows sends.
    bits: f64,
    /// The duration alone on the network.
    alone: f64,
    /// The time since it began.
    since: f64,
}

/// Traffic that a job sent at a constant pace.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub(super) from: Instant,
    pub(super) seconds: f64,
    /// The rate of each flow in bits per second.
    pub(super) pace: f64,
}

/// The iterations of all running jobs, and what jobs have sent in the current window.
#[derive(Debug)]
pub(super) struct Training {
    settings: Iterations,
    rng: Rng,
    /// By the job's number.
    jobs: BTreeMap<u64, Iteration>,
    sent: BTreeMap<u64, Vec<Sent>>,
    /// Of the iterations that ended in the current window, the sums of their durations and of those alone.
    ended: (f64, f64),
}

impl Training {
    pub(super) fn new(settings: Iterations, seed: u64) -> Self {
        let rng = Seed(seed).child("iterations", 0).rng();
        Self { settings, rng, jobs: BTreeMap::new(), sent: BTreeMap::new(), ended: (0.0, 0.0) }
    }

    /// Starts the iterations of new jobs, at a random time, and forgets those of ended ones. `paces` are the rates of
    /// jobs' flows alone on the network.
    pub(super) fn start(&mut self, paces: &BTreeMap<u64, f64>) {
        self.jobs.retain(|job, _| paces.contains_key(job));
        for (&job, &pace) in paces {
            if self.jobs.contains_key(&job) {
                continue;
            }
            let Iterations { shortest, longest, busy_percent } = self.settings;
            let (shortest, longest) = (shortest.as_secs_f64(), longest.as_secs_f64());
            let alone = shortest + self.rng.unit() * (longest - shortest);
            let sending = alone * f64::from(busy_percent) / 100.0;
            let (compute, bits) = (alone - sending, sending * pace);
            // The first computation takes as long as it takes jobs to be at different points of their iterations.
            let wait = self.rng.unit() * alone;
            let phase = Phase::Computes(wait);
            self.jobs.insert(job, Iteration { phase, compute, bits, alone, since: compute - wait });
        }
    }

    /// Returns `true` if a job sends.
    pub(super) fn sends(&self, job: u64) -> bool {
        matches!(self.jobs[&job].phase, Phase::Sends(_))
    }

    /// Returns the seconds until a job begins or ends to send, at these paces.
    pub(super) fn until_change(&self, pace: impl Fn(u64) -> f64) -> f64 {
        let until = |(&job, it): (&u64, &Iteration)| match it.phase {
            Phase::Computes(left) => left,
            Phase::Sends(bits) => bits / pace(job),
        };
        self.jobs.iter().map(until).fold(f64::INFINITY, f64::min)
    }

    /// Lets time pass. Returns `true` if a job has begun or ended to send.
    pub(super) fn advance(
        &mut self,
        from: Instant,
        seconds: f64,
        pace: impl Fn(u64) -> f64,
    ) -> bool {
        // Times are sums of many parts.
        const NEARLY_NONE: f64 = 1e-9;
        let mut has_changed = false;
        for (&job, it) in &mut self.jobs {
            it.since += seconds;
            match &mut it.phase {
                Phase::Computes(left) => {
                    *left -= seconds;
                    if *left < NEARLY_NONE {
                        it.phase = Phase::Sends(it.bits);
                        has_changed = true;
                    }
                }
                Phase::Sends(bits) => {
                    let pace = pace(job);
                    self.sent.entry(job).or_default().push(Sent { from, seconds, pace });
                    *bits -= pace * seconds;
                    if *bits < it.bits * NEARLY_NONE {
                        self.ended = (self.ended.0 + it.since, self.ended.1 + it.alone);
                        (it.phase, it.since) = (Phase::Computes(it.compute), 0.0);
                        has_changed = true;
                    }
                }
            }
        }
        has_changed
    }

    /// Returns what a job has sent in the current window.
    pub(super) fn sent(&self, job: u64) -> &[Sent] {
        self.sent.get(&job).map_or(&[], Vec::as_slice)
    }

    /// Returns the mean pace at which a job has sent in the current window; `None` if it sent nothing.
    pub(super) fn mean_pace(&self, job: u64) -> Option<f64> {
        let sums = self.sent(job).iter();
        let (bits, seconds) = sums.fold((0.0, 0.0), |(bits, seconds), it| {
            (bits + it.pace * it.seconds, seconds + it.seconds)
        });
        (seconds > 0.0).then(|| bits / seconds)
    }

    /// Ends a window. Returns the sums of the durations of the iterations that ended in it, and of those alone.
    pub(super) fn end_window(&mut self) -> (f64, f64) {
        self.sent.clear();
        core::mem::take(&mut self.ended)
    }
}

impl Sent {
    /// Returns the bits of one flow in steps of at most `step`, each with its time.
    pub(super) fn steps(self, step: Duration) -> impl Iterator<Item = (Instant, f64)> {
        let nanos = whole(self.seconds * 1e9);
        let count = nanos.div_ceil(step.as_nanos()).max(1);
        let bits = self.pace * self.seconds / to_f64(count);
        (0..count).map(move |it| (self.from + Duration::from_nanos(nanos / count * it), bits))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_iteration_alone_takes_its_time_and_one_at_half_the_pace_sends_for_twice_as_long() {
        let ten = Duration::from_secs(10);
        let settings = Iterations { shortest: ten, longest: ten, busy_percent: 40 };
        for (pace, duration) in [(1e9, 10.0), (0.5e9, 14.0)] {
            let mut training = Training::new(settings, 1);
            training.start(&BTreeMap::from([(7, 1e9)]));
            let (mut now, mut ended) = (Instant::EPOCH, 0);
            while ended < 5 {
                let seconds = training.until_change(|_| pace);
                training.advance(now, seconds, |_| pace);
                now += Duration::from_nanos(whole(seconds * 1e9));
                let (sum, alone) = training.end_window();
                if sum > 0.0 {
                    ended += 1;
                    assert!((sum - duration).abs() < 1e-6 && (alone - 10.0).abs() < 1e-6, "{sum}");
                }
            }
        }
    }
}
