//! Statistics of several rounds, formatted in a line.

use weft_units::Duration;

pub(crate) fn micros(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e3
}

/// Returns the median.
pub(crate) fn median(of: &[f64]) -> f64 {
    let mut sorted = of.to_vec();
    sorted.sort_by(f64::total_cmp);
    f64::midpoint(sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2])
}

/// Formats the median, the minimum and the maximum.
pub(crate) fn spread(of: &[f64]) -> String {
    let least = of.iter().copied().fold(f64::INFINITY, f64::min);
    let most = of.iter().copied().fold(0.0, f64::max);
    format!("{:>10.1} {:>24}", median(of), format!("{least:.1} to {most:.1}"))
}
