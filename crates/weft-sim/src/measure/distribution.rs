//! A summary of a set of numbers: exact percentiles by nearest rank.

use serde::{Deserialize, Serialize};

/// A summary of a set of numbers. All fields are zero when the set is empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
    /// Number of values.
    pub count: usize,
    /// The smallest value.
    pub min: f64,
    /// The mean.
    pub mean: f64,
    /// The 50th percentile.
    pub p50: f64,
    /// The 95th percentile.
    pub p95: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The 99.9th percentile.
    pub p999: f64,
    /// The largest value.
    pub max: f64,
}

impl Distribution {
    /// Returns the distribution of `values`, and sorts them.
    #[expect(clippy::cast_precision_loss, reason = "a count of numbers in memory")]
    pub fn of(values: &mut [f64]) -> Self {
        values.sort_unstable_by(f64::total_cmp);
        let (Some(&min), Some(&max)) = (values.first(), values.last()) else {
            return Self::default();
        };
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let rank = |per_mille: usize| values[(values.len() * per_mille).div_ceil(1000).max(1) - 1];
        Self {
            count: values.len(),
            min,
            mean,
            p50: rank(500),
            p95: rank(950),
            p99: rank(990),
            p999: rank(999),
            max,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_of_the_set() {
        let mut values: Vec<f64> = (1..=1000).rev().map(f64::from).collect();
        let got = Distribution::of(&mut values);
        assert_eq!((got.min, got.p50, got.p95, got.p99), (1.0, 500.0, 950.0, 990.0));
        assert_eq!((got.p999, got.max, got.mean, got.count), (999.0, 1000.0, 500.5, 1000));
    }

    #[test]
    fn one_value_is_every_percentile_and_none_is_zero() {
        let got = Distribution::of(&mut [7.0]);
        assert_eq!((got.min, got.p50, got.p999, got.max), (7.0, 7.0, 7.0, 7.0));
        assert_eq!(Distribution::of(&mut []), Distribution::default());
    }
}
