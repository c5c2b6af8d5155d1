//! The search for a period: the autocorrelation of a job's traffic (Box, Jenkins and Reinsel, *Time Series Analysis*,
//! section 2.1) names a candidate, and a line through the starts of its bursts gives the period to a part of a bin.

use alloc::vec::Vec;

use weft_units::{Duration, Instant};

use super::{Bursts, ReservationRules, Traffic};

/// The shortest period in bins: below it bursts and pauses are shorter than two bins.
const MIN_LAG: usize = 4;
/// Number of periods that must fit into the bins.
const MIN_PERIODS: usize = 3;
/// Number of recent periods that count: older ones may have had another length.
const PERIODS: usize = 4;
/// Number of recent bursts whose starts are compared.
const MAX_STARTS: usize = 8;
/// The level of the busiest bin, and the parts into which the time of a bin is divided.
const FULL: i64 = 1000;
/// The level, as a share of the mean burst's highest, above which a bin belongs to a burst: one part in this many.
const QUARTER: i64 = 4;

impl Traffic {
    /// Finds the bursts in the bins up to a time; `None` if the traffic is not periodic, steady, or not known for long
    /// enough.
    pub(crate) fn find(&self, until: Instant, rules: &ReservationRules) -> Option<Bursts> {
        let end = until.as_nanos() / rules.bin.as_nanos();
        let levels = self.levels(end, rules.bins);
        let lag = lag(&levels, i64::from(rules.min_correlation_percent) * FULL / 100)?;
        let burst = Burst::find(&levels, lag).filter(|it| it.repeats(&levels, lag))?;
        let fit = burst.fit(&levels, lag);
        let to_nanos = |parts: i64| {
            let nanos = i128::from(parts) * i128::from(rules.bin.as_nanos()) / i128::from(FULL);
            u64::try_from(nanos.max(0)).unwrap_or(u64::MAX)
        };
        let first = (end - levels.len() as u64).saturating_mul(rules.bin.as_nanos());
        let bursts = Bursts {
            period: Duration::from_nanos(to_nanos(fit.period)),
            length: Duration::from_nanos(to_nanos(count(burst.bins) * FULL)),
            start: Instant::from_nanos(first) + Duration::from_nanos(to_nanos(fit.start)),
            jitter: Duration::from_nanos(to_nanos(fit.jitter)),
        };
        let busy = u128::from((bursts.length + bursts.jitter * 2).as_nanos()) * 100;
        let limit = u128::from(rules.max_busy_percent) * u128::from(bursts.period.as_nanos());
        (busy <= limit).then_some(bursts)
    }

    /// Returns the bytes of each bin before `end` in thousandths of the busiest. Bins since the last sample are empty.
    fn levels(&self, end: u64, max: usize) -> Vec<i64> {
        let newer = usize::try_from(self.end.saturating_sub(end)).unwrap_or(usize::MAX);
        let known = self.bins.iter().take(self.bins.len().saturating_sub(newer)).copied();
        let silent = usize::try_from(end.saturating_sub(self.end)).unwrap_or(usize::MAX).min(max);
        let mut bytes: Vec<u64> = known.chain(core::iter::repeat_n(0, silent)).collect();
        bytes.drain(..bytes.len().saturating_sub(max));
        let busiest = u128::from(bytes.iter().copied().max().unwrap_or(0).max(1));
        let level = |bytes: u64| u128::from(bytes) * u128::from(FULL.unsigned_abs()) / busiest;
        let level = |bytes| i64::try_from(level(bytes)).expect("at most FULL");
        bytes.into_iter().map(level).collect()
    }
}

fn count(bins: usize) -> i64 {
    i64::try_from(bins).expect("bins are few")
}

/// Returns the smallest lag after which the levels repeat, in bins: a maximum of the autocorrelation behind its first
/// descent.
fn lag(levels: &[i64], min_correlation: i64) -> Option<usize> {
    const DESCENT: i64 = 300;
    let correlation = |lag: usize| {
        let recent = levels.len().saturating_sub(lag * PERIODS);
        correlation(&levels[recent..], lag)
    };
    let all: Vec<(usize, i64)> =
        (MIN_LAG..=levels.len() / MIN_PERIODS).map(|lag| (lag, correlation(lag))).collect();
    let behind = all.iter().position(|&(_, it)| it < DESCENT)?;
    let all = &all[behind..];
    let best = all.iter().map(|&(_, it)| it).max()?;
    // Multiples of the period correlate as well as the period.
    let rise = all.iter().position(|&(_, it)| it * 10 >= best * 9)?;
    let climbs = all[rise..].windows(2).take_while(|pair| pair[1].1 > pair[0].1).count();
    (best >= min_correlation).then_some(all[rise + climbs].0)
}

/// Returns the autocorrelation at a lag in thousandths; 0 for levels that do not change.
fn correlation(levels: &[i64], lag: usize) -> i64 {
    let (length, sum) = (count(levels.len()), levels.iter().sum::<i64>());
    let deviation = |level: i64| i128::from(level * length - sum);
    let product = |(a, b): (&i64, &i64)| deviation(*a) * deviation(*b);
    let pairs = levels.iter().zip(&levels[lag..]);
    let variance: i128 =
        levels.iter().map(|it| product((it, it))).sum::<i128>() / i128::from(length);
    let covariance: i128 = pairs.map(product).sum::<i128>() / i128::from(length - count(lag));
    let thousandths = covariance * i128::from(FULL) / variance.max(1);
    i64::try_from(thousandths).unwrap_or(0)
}

/// The place of the last complete burst, by the mean of recent periods.
struct Burst {
    /// The index of its first bin.
    first: usize,
    /// Number of its bins.
    bins: usize,
    /// The highest level of the mean burst.
    level: i64,
}

impl Burst {
    /// Finds the longest pause within a period; the rest is the burst. Returns `None` without a pause.
    fn find(levels: &[i64], lag: usize) -> Option<Self> {
        let periods = (levels.len() / lag).min(PERIODS);
        let recent = &levels[levels.len() - periods * lag..];
        let mean =
            |place: usize| recent.iter().skip(place).step_by(lag).sum::<i64>() / count(periods);
        let profile: Vec<i64> = (0..lag).map(mean).collect();
        let level = profile.iter().copied().max()?;
        let is_busy = |place: usize| profile[place % lag] * QUARTER >= level;
        // By start, the number of idle places that follow, around the period.
        let pause = |start: usize| (start..start + lag).take_while(|&at| !is_busy(at)).count();
        let (start, idle) =
            (0..lag).map(|start| (start, pause(start))).max_by_key(|&(_, idle)| idle)?;
        let (first, bins) = ((start + idle) % lag, lag - idle);
        let last_period = levels.len() - lag;
        // A burst that has not ended yet is one period too late.
        let late = if first + bins > lag { lag } else { 0 };
        (idle > 0 && bins > 0).then_some(Self { first: last_period + first - late, bins, level })
    }

    /// Returns `true` if each of the last periods has the burst: a job that has ended is not periodic.
    fn repeats(&self, levels: &[i64], lag: usize) -> bool {
        let is_there = |back: usize| {
            let first = self.first.checked_sub(back * lag);
            let burst = first.and_then(|first| levels.get(first..first + self.bins));
            let sent = burst.map_or(0, |levels| levels.iter().sum());
            sent * QUARTER >= self.level * count(self.bins)
        };
        (0..MIN_PERIODS).all(is_there)
    }

    /// Fits a line through the starts of recent bursts, by least squares.
    fn fit(&self, levels: &[i64], lag: usize) -> Fit {
        let starts = self.starts(levels, lag);
        let number = count(starts.len());
        if starts.len() < MIN_PERIODS {
            let (period, start) = (count(lag) * FULL, count(self.first) * FULL);
            return Fit { period, start, jitter: FULL };
        }
        let sum = |value: &dyn Fn(i64, i64) -> i64| -> i64 {
            starts.iter().map(|&(back, at)| value(back, at)).sum()
        };
        let (backs, ats) = (sum(&|back, _| back), sum(&|_, at| at));
        let products = number * sum(&|back, at| back * at) - backs * ats;
        let period = -products / (number * sum(&|back, _| back * back) - backs * backs).max(1);
        let start = (ats + period * backs) / number;
        let residual = |&(back, at): &(i64, i64)| (at - (start - period * back)).abs();
        Fit { period, start, jitter: starts.iter().map(residual).max().unwrap_or(0) }
    }

    /// Returns the start of each recent burst, in parts of a bin, with the number of periods before the last one.
    fn starts(&self, levels: &[i64], lag: usize) -> Vec<(i64, i64)> {
        let margin = (self.bins.min(lag - self.bins) / 2).max(1);
        let is_busy = |&at: &usize| {
            levels[at] * QUARTER >= self.level && levels[at - 1] * QUARTER < self.level
        };
        let mut starts = Vec::new();
        let mut expected = self.first;
        for back in 0..MAX_STARTS {
            let window =
                expected.saturating_sub(margin).max(1)..(expected + margin + 1).min(levels.len());
            let Some(at) = window.into_iter().find(is_busy) else { break };
            // The level of a burst's first bin shows when in the bin it began.
            let idle = FULL - (levels[at] * FULL / self.level.max(1)).min(FULL);
            starts.push((count(back), count(at) * FULL + idle));
            let Some(earlier) = at.checked_sub(lag) else { break };
            expected = earlier;
        }
        starts
    }
}

/// A line through the starts of bursts, in parts of a bin.
struct Fit {
    period: i64,
    /// The start of the last burst.
    start: i64,
    /// Maximum deviation of a start.
    jitter: i64,
}
