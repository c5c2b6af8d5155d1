//! The periodic bursts of a job: training computes without traffic and then sends, once per iteration (Astral, section 1
//! and figure 2(b)).
//!
//! [`Traffic`] counts a job's sampled bytes in short bins, `find.rs` finds the period in them, and [`Bursts`] predicts
//! when the job sends. `controller/reserve/` reserves links for that time.

mod find;
#[cfg(test)]
mod tests;

use alloc::collections::VecDeque;

use serde::{Deserialize, Serialize};
use weft_units::{Duration, Instant};

/// The rules by which bursts are found, and by which links are reserved for them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct ReservationRules {
    /// The length of a bin in which a job's sampled bytes are counted. Periods shorter than four bins are not found.
    pub bin: Duration,
    /// Number of recent bins of a job that are kept, at most 1,024. A period is found if three of it fit.
    pub bins: usize,
    /// Minimum correlation of a job's traffic with itself a period earlier, in percent.
    pub min_correlation_percent: u32,
    /// Maximum share of a period in which a job sends, in percent; one that sends for longer counts as steady.
    pub max_busy_percent: u32,
    /// The time for which coming bursts are reserved; 0 for no reservations.
    pub horizon: Duration,
}

impl Default for ReservationRules {
    /// Iterations of 2 to 40 s (Astral, section 4: 10 to 30 s), reserved for as long as a moved flow stays.
    fn default() -> Self {
        Self {
            bin: Duration::from_millis(500),
            bins: 240,
            min_correlation_percent: 60,
            max_busy_percent: 90,
            horizon: Duration::from_secs(60),
        }
    }
}

/// Limits of `bins`: the effort of a search grows with the square.
const BINS: core::ops::RangeInclusive<usize> = 16..=1024;

impl ReservationRules {
    /// Returns the rules with the bins within their limits.
    pub(crate) fn limited(self) -> Self {
        let bin = self.bin.max(Duration::from_millis(1));
        Self { bin, bins: self.bins.clamp(*BINS.start(), *BINS.end()), ..self }
    }

    /// Returns `true` if links are reserved.
    pub(crate) fn reserves(&self) -> bool {
        self.horizon > Duration::ZERO
    }
}

/// Bursts that repeat with a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "[u64; 4]", into = "[u64; 4]")]
pub struct Bursts {
    /// The time from the start of a burst to the start of the next.
    pub period: Duration,
    /// The length of a burst.
    pub length: Duration,
    /// The start of one of the bursts.
    pub start: Instant,
    /// Maximum deviation of the observed starts from the period.
    pub jitter: Duration,
}

/// Period, length, start and jitter in nanoseconds, as saved.
impl From<Bursts> for [u64; 4] {
    fn from(Bursts { period, length, start, jitter }: Bursts) -> Self {
        [period.as_nanos(), length.as_nanos(), start.as_nanos(), jitter.as_nanos()]
    }
}

impl From<[u64; 4]> for Bursts {
    fn from([period, length, start, jitter]: [u64; 4]) -> Self {
        let [period, length, jitter] = [period, length, jitter].map(Duration::from_nanos);
        Self { period, length, start: Instant::from_nanos(start), jitter }
    }
}

impl Bursts {
    /// Returns `true` if saved bursts can have been found in some traffic.
    pub(crate) fn is_possible(&self) -> bool {
        const MIN_PERIOD: Duration = Duration::from_millis(1);
        self.period >= MIN_PERIOD && self.length.max(self.jitter) <= self.period
    }

    /// Returns `true` if a burst is expected at this time, or would be with a start that deviates by the jitter.
    pub fn covers(&self, at: Instant) -> bool {
        self.since(at + self.jitter) < (self.length + self.jitter * 2).as_nanos()
    }

    /// Returns the starts of bursts after `from` and up to `until`.
    pub fn starts(&self, from: Instant, until: Instant) -> impl Iterator<Item = Instant> + use<> {
        let period = self.period.max(Duration::from_nanos(1));
        let first = from + Duration::from_nanos(period.as_nanos() - self.since(from));
        core::iter::successors(Some(first), move |&start| Some(start + period))
            .take_while(move |&start| start <= until)
    }

    /// Returns the time between `from` and `until` in which bursts are expected.
    pub fn active(&self, from: Instant, until: Instant) -> Duration {
        // From the start of the burst before `from` on.
        let (first, length) = (self.since(from), self.length.as_nanos());
        let last = first.saturating_add(until.since(from).as_nanos());
        let period = self.period.as_nanos().max(1);
        let before = |at: u64| at / period * length + (at % period).min(length);
        Duration::from_nanos(before(last) - before(first))
    }

    /// Returns the nanoseconds from the start of the last burst to a time, which may be before the known start.
    fn since(&self, at: Instant) -> u64 {
        let (at, start, period) =
            (at.as_nanos(), self.start.as_nanos(), self.period.as_nanos().max(1));
        match at.checked_sub(start) {
            Some(after) => after % period,
            None => period - 1 - (start - at - 1) % period,
        }
    }
}

/// The sampled bytes of a job in recent bins, the newest last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Traffic {
    bins: VecDeque<u64>,
    /// The index after that of the newest bin: the time since the epoch, in bins.
    end: u64,
}

impl Traffic {
    /// Returns `true` if it has no more bins than are kept, and none from before the epoch.
    pub(crate) fn is_within(&self, rules: &ReservationRules) -> bool {
        let bins = self.bins.len() as u64;
        let last = u64::MAX / rules.bin.as_nanos().max(1);
        bins <= rules.bins as u64 && (bins..=last).contains(&self.end)
    }

    /// Returns `true` if the traffic before `until` is known for this time.
    pub(crate) fn is_known_for(
        &self,
        span: Duration,
        until: Instant,
        rules: &ReservationRules,
    ) -> bool {
        let first = self.end.saturating_sub(self.bins.len() as u64);
        let known = (until.as_nanos() / rules.bin.as_nanos()).saturating_sub(first);
        !self.bins.is_empty() && known.saturating_mul(rules.bin.as_nanos()) >= span.as_nanos()
    }

    /// Adds sampled bytes. Bytes from before the kept bins are ignored.
    pub(crate) fn record(&mut self, at: Instant, bytes: u64, rules: &ReservationRules) {
        let bin = at.as_nanos() / rules.bin.as_nanos();
        let gap = (bin + 1).saturating_sub(self.end);
        if gap > rules.bins as u64 || self.bins.is_empty() {
            self.bins.clear();
            self.end = bin;
        }
        while self.end <= bin {
            self.bins.push_back(0);
            self.end += 1;
        }
        while self.bins.len() > rules.bins {
            self.bins.pop_front();
        }
        let back = usize::try_from(self.end - bin).unwrap_or(usize::MAX);
        if let Some(place) = self.bins.len().checked_sub(back) {
            self.bins[place] = self.bins[place].saturating_add(bytes);
        }
    }
}
