//! Formatting of numbers for people: a unit, a prefix, three digits.

use std::ops::Range;

/// The unit of an axis or a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Seconds.
    Seconds,
    /// Bytes.
    Bytes,
    /// Bits per second.
    BitsPerSecond,
    /// A count of objects: packets, flows, paths.
    Count,
    /// A share of one, shown as a percentage.
    Share,
    /// A ratio such as a slowdown.
    Ratio,
}

impl Unit {
    /// Returns `value` as text with about three significant digits and its unit: `1.25 ms`, `64 KB`, `12.5%`.
    pub fn format(self, value: f64) -> String {
        match self {
            Self::Share => format!("{}%", digits(value * 100.0)),
            Self::Ratio => digits(value),
            Self::Seconds => prefixed(value, "s", &SECONDS),
            Self::Bytes => prefixed(value, "B", &THOUSANDS),
            Self::BitsPerSecond => prefixed(value, "b/s", &THOUSANDS),
            Self::Count => prefixed(value, "", &THOUSANDS),
        }
    }
}

const SECONDS: [(f64, &str); 4] = [(1.0, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n")];
const THOUSANDS: [(f64, &str); 5] = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "K"), (1.0, "")];

fn prefixed(value: f64, unit: &str, prefixes: &[(f64, &str)]) -> String {
    let smallest = *prefixes.last().expect("the tables above are not empty");
    // The comparison allows for rounding to three digits, so that 999.9 K becomes 1 M.
    let fits = |scale: f64| value.abs() * (1.0 + 5e-4) >= scale;
    let (scale, prefix) = match value {
        0.0 => (1.0, ""),
        _ => prefixes.iter().copied().find(|&(scale, _)| fits(scale)).unwrap_or(smallest),
    };
    let space = if unit.is_empty() && prefix.is_empty() { "" } else { " " };
    format!("{}{space}{prefix}{unit}", digits(value / scale))
}

/// Returns a number with three significant digits, without trailing zeros after the point. Digits before the point are
/// never dropped.
fn digits(value: f64) -> String {
    let decimals = match value.abs() {
        size if size >= 99.95 => 0,
        size if size >= 9.995 => 1,
        _ => 2,
    };
    let text = format!("{value:.decimals$}");
    let text = match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => &text,
    };
    if text == "-0" { "0".into() } else { text.into() }
}

/// The quantity and unit of an axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    /// The quantity without its unit: "time", "queue depth".
    pub label: String,
    /// The unit of its numbers.
    pub unit: Unit,
}

impl Axis {
    /// Returns an axis for a quantity.
    pub fn new(label: impl Into<String>, unit: Unit) -> Self {
        Self { label: label.into(), unit }
    }
}

/// Returns about `wanted` positions of ticks between `low` and `high`, in steps of 1, 2 or 5 times a power of ten.
pub(crate) fn ticks(low: f64, high: f64, wanted: f64) -> Vec<f64> {
    let span = high - low;
    if span.is_nan() || span <= 0.0 {
        return vec![low];
    }
    let rough = span / wanted;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|m| m * power).into_iter().find(|&step| step >= rough);
    let step = step.unwrap_or(10.0 * power);
    let first = (low / step).ceil();
    let mut ticks = vec![];
    let mut index = first;
    while index * step <= high + step * 1e-9 {
        ticks.push(index * step);
        index += 1.0;
    }
    ticks
}

/// Returns the decimal logarithms of the labels of a logarithmic axis: 1, 2 and 5 of each power of ten, or only the
/// powers if the range exceeds three decades.
pub(crate) fn decades(range: &Range<f64>) -> Vec<f64> {
    let digits: &[f64] = if range.end - range.start <= 3.0 { &[1.0, 2.0, 5.0] } else { &[1.0] };
    let mut labelled = vec![];
    let mut power = range.start.floor();
    while power <= range.end {
        labelled.extend(digits.iter().map(|digit| power + digit.log10()));
        power += 1.0;
    }
    labelled.retain(|at| range.start <= *at && *at <= range.end);
    labelled
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_a_fitting_prefix() {
        for (unit, value, want) in [
            (Unit::Seconds, 0.001_25, "1.25 ms"),
            (Unit::Seconds, 0.000_25, "250 µs"),
            (Unit::Seconds, 30.0, "30 s"),
            (Unit::Seconds, 0.0, "0 s"),
            (Unit::Bytes, 64_000.0, "64 KB"),
            (Unit::BitsPerSecond, 9.87e9, "9.87 Gb/s"),
            (Unit::BitsPerSecond, 999_900_000.0, "1 Gb/s"),
            (Unit::Count, 128.0, "128"),
            (Unit::Count, 1_250_000.0, "1.25 M"),
            (Unit::Share, 0.125, "12.5%"),
            (Unit::Ratio, 1.0, "1"),
        ] {
            assert_eq!(unit.format(value), want);
        }
    }

    #[test]
    fn ticks_are_round_and_inside() {
        assert_eq!(ticks(0.0, 10.0, 5.0), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(ticks(0.0, 0.9, 4.0), [0.0, 0.5]);
        assert_eq!(ticks(3.0, 3.0, 5.0), [3.0]);
        assert_eq!(ticks(f64::NAN, 1.0, 5.0).len(), 1);
    }

    #[test]
    fn a_short_logarithmic_axis_is_labelled_within_its_powers() {
        let labels: Vec<String> =
            decades(&(-3.0..-2.0)).iter().map(|at| Unit::Seconds.format(10f64.powf(*at))).collect();
        assert_eq!(labels, ["1 ms", "2 ms", "5 ms", "10 ms"]);
        assert_eq!(decades(&(0.0..6.0)).len(), 7);
    }
}
