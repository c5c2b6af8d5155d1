//! The length of a skip, and the units that pass in it.

use super::Refusal;
use crate::time::SimSpan;

/// A part of a workload that repeats.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cycle {
    /// The duration of a unit.
    pub period: SimSpan,
    /// The difference between the longest and the shortest of the measured units, as a share of their mean.
    pub spread: f64,
    /// Number of units that may be skipped.
    pub units: u64,
    /// The time that earlier skips added beyond the units they removed, picoseconds; negative if they removed more.
    pub owed: i64,
    /// A number of the workload's own for this kind of unit.
    pub level: usize,
}

/// The units of a cycle that a skip removes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Advance {
    /// The cycle.
    pub cycle: Cycle,
    /// Number of units.
    pub units: u64,
}

impl Advance {
    /// Returns the time that the units take.
    pub fn span(&self) -> SimSpan {
        SimSpan::from_picos(self.cycle.period.as_picos().saturating_mul(self.units))
    }

    /// Returns the time by which a skip of `span` is longer than the units that it removes, picoseconds.
    pub fn rest(&self, span: SimSpan) -> i64 {
        span.as_picos().cast_signed().saturating_sub(self.span().as_picos().cast_signed())
    }
}

/// A skip: its span, and the units that pass in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Skip {
    /// The time that is added.
    pub span: SimSpan,
    /// The units of each cycle; `None` where there is no cycle.
    pub parts: Vec<Option<Advance>>,
    /// The largest spread among the cycles.
    pub spread: f64,
}

/// Returns the longest skip of at most `limit` in which every cycle has enough units. The span is a multiple of the
/// longest period; of the other cycles the nearest whole number of units passes, and `owed` carries the rest to the
/// next skip. Cycles whose periods agree with the longest within 0.5 % belong together and get equal numbers.
///
/// # Errors
/// Less than one unit of the longest cycle is left, or nothing repeats.
pub fn plan(cycles: &[Option<Cycle>], limit: SimSpan) -> Result<Skip, Refusal> {
    let active = || cycles.iter().flatten();
    let slowest = active().max_by_key(|cycle| cycle.period).ok_or(Refusal::NotRepeating)?;
    let left = |cycle: &Cycle| cycle.period.as_picos().saturating_mul(cycle.units);
    let available = active().map(left).min().expect("at least the slowest");
    let period = slowest.period.as_picos();
    let count = available.min(limit.as_picos()) / period;
    if count == 0 {
        let refusal = if available < period { Refusal::NothingLeft } else { Refusal::Interrupted };
        return Err(refusal);
    }
    let span = count * period;
    let spread = active().map(|cycle| cycle.spread).fold(0.0, f64::max);
    let advance = |cycle: Cycle| {
        let own = cycle.period.as_picos();
        let due = span.saturating_add_signed(cycle.owed);
        let nearest = ((due + own / 2) / own).min(cycle.units);
        Advance { cycle, units: if alike(own, period) { count } else { nearest } }
    };
    let parts = cycles.iter().map(|cycle| cycle.map(advance)).collect();
    Ok(Skip { span: SimSpan::from_picos(span), parts, spread })
}

/// Returns `true` if two periods differ by less than 0.5 %, as those of parts that wait for each other do.
const fn alike(own: u64, longest: u64) -> bool {
    longest - own < longest / 200
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cycle(micros: u64, units: u64) -> Option<Cycle> {
        let period = SimSpan::from_picos(micros * 1_000_000);
        Some(Cycle { period, spread: 0.0, units, owed: 0, level: 0 })
    }

    fn units(skip: &Skip) -> Vec<u64> {
        skip.parts.iter().map(|part| part.map_or(0, |part| part.units)).collect()
    }

    fn micros(span: SimSpan) -> u64 {
        span.as_picos() / 1_000_000
    }

    #[test]
    fn the_span_is_a_multiple_of_the_longest_period_and_others_get_the_nearest_number() {
        // 11 steps of 400 us are left, and 40 layers of 820 us: 5 layers are 4,100 us, or 10.25 steps.
        let skip = plan(&[cycle(820, 40), None, cycle(400, 11)], SimSpan::MAX).unwrap();
        assert_eq!((micros(skip.span), units(&skip)), (4_100, vec![5, 0, 10]));
        assert_eq!(skip.parts[2].unwrap().rest(skip.span), 100_000_000);
        // The next skip owes 100 us, and with 820 us more removes two steps and 120 us.
        let owing = cycle(400, 2).map(|cycle| Cycle { owed: 100_000_000, ..cycle });
        let skip = plan(&[cycle(700, 40), owing], SimSpan::MAX).unwrap();
        assert_eq!((micros(skip.span), units(&skip)), (700, vec![1, 2]));
    }

    #[test]
    fn no_skip_passes_an_interruption() {
        let limit = SimSpan::from_picos(1_000_000_000);
        assert_eq!(micros(plan(&[cycle(300, 40)], limit).unwrap().span), 900);
        assert_eq!(plan(&[cycle(1_001, 40)], limit), Err(Refusal::Interrupted));
        assert_eq!(plan(&[cycle(300, 40), cycle(200, 1)], limit), Err(Refusal::NothingLeft));
        assert_eq!(plan(&[None], limit), Err(Refusal::NotRepeating));
    }

    #[test]
    fn parts_of_equal_pace_stay_together() {
        let skip = plan(&[cycle(1_000, 50), cycle(996, 51)], SimSpan::MAX).unwrap();
        assert_eq!(units(&skip), [50, 50]);
    }
}
