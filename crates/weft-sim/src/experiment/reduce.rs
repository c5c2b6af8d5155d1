//! Reductions of several numbers to one: over the seeds of a point, or over the rows a claim names.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A reduction of several numbers to one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Reduce {
    /// The mean.
    #[default]
    Mean,
    /// The middle value, or the mean of the two in the middle.
    Median,
    /// The smallest.
    Min,
    /// The largest.
    Max,
}

impl Reduce {
    /// Returns the reduced number, or `None` for an empty slice.
    #[expect(clippy::cast_precision_loss, reason = "a count of numbers in memory")]
    pub fn of(self, values: &[f64]) -> Option<f64> {
        match self {
            _ if values.is_empty() => None,
            Self::Mean => Some(values.iter().sum::<f64>() / values.len() as f64),
            Self::Median => {
                let mut sorted = values.to_vec();
                sorted.sort_by(f64::total_cmp);
                Some(f64::midpoint(sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]))
            }
            Self::Min => values.iter().copied().min_by(f64::total_cmp),
            Self::Max => values.iter().copied().max_by(f64::total_cmp),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_number_of_several_and_none_of_none() {
        let all = [Reduce::Mean, Reduce::Median, Reduce::Min, Reduce::Max];
        let reduced = |values: &[f64]| all.map(|r| r.of(values));
        assert_eq!(reduced(&[7.0, 1.0, 1.0]), [Some(3.0), Some(1.0), Some(1.0), Some(7.0)]);
        assert_eq!(Reduce::Median.of(&[8.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(reduced(&[]), [None; 4]);
    }
}
