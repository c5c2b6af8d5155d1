//! Reductions of several numbers to one: over the seeds of a point, or over the rows a claim names.

use serde::{Deserialize, Serialize};

/// A reduction of several numbers to one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reduce {
    /// The mean.
    #[default]
    Mean,
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
        let reduced =
            |values: &[f64]| [Reduce::Mean, Reduce::Min, Reduce::Max].map(|r| r.of(values));
        assert_eq!(reduced(&[3.0, 1.0, 2.0]), [Some(2.0), Some(1.0), Some(3.0)]);
        assert_eq!(reduced(&[]), [None; 3]);
    }
}
