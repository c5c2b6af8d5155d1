//! The mean over seeds, with its confidence interval.

use serde::Serialize;

/// The confidence level of the intervals of [`Estimate`]: the share of them that contain the true mean.
pub const CONFIDENCE: f64 = 0.95;

/// A mean over seeds with its confidence interval: Student's t at [`CONFIDENCE`], two-sided, which assumes that the
/// seeds' values are independent and approximately normal. With few seeds the interval is wide.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// The mean.
    pub mean: f64,
    /// The distance from the mean to each end of the interval; `None` for one value.
    pub half_width: Option<f64>,
}

impl Estimate {
    /// Returns the estimate from each seed's value, or `None` for an empty slice.
    #[expect(clippy::cast_precision_loss, reason = "a count of seeds")]
    pub fn of(values: &[f64]) -> Option<Self> {
        let count = values.len();
        let mean = values.iter().sum::<f64>() / count as f64;
        match count {
            0 => None,
            1 => Some(Self { mean, half_width: None }),
            _ => {
                let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
                let deviation = (squares / (count - 1) as f64).sqrt();
                let half_width = student(count - 1) * deviation / (count as f64).sqrt();
                Some(Self { mean, half_width: Some(half_width) })
            }
        }
    }
}

/// Returns the 97.5th percentile of Student's distribution with `degrees` degrees of freedom: from a table, and beyond
/// it by the first terms of its expansion about the normal one (Abramowitz and Stegun, 26.7.5).
#[expect(clippy::cast_precision_loss, reason = "a count of seeds")]
fn student(degrees: usize) -> f64 {
    const TABLE: [f64; 10] =
        [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];
    const NORMAL: f64 = 1.959_964;
    TABLE.get(degrees - 1).copied().unwrap_or_else(|| {
        let (z, n) = (NORMAL, degrees as f64);
        let first = (z.powi(3) + z) / 4.0;
        let second = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0;
        let third = (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / 384.0;
        z + first / n + second / n.powi(2) + third / n.powi(3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_tables() {
        for (degrees, want) in [(1, 12.706), (10, 2.228), (11, 2.201), (30, 2.042), (120, 1.980)] {
            assert!((student(degrees) - want).abs() < 0.001, "{degrees}: {}", student(degrees));
        }
    }

    #[test]
    fn one_value_has_no_interval_and_five_have_students() {
        assert_eq!(Estimate::of(&[]), None);
        assert_eq!(Estimate::of(&[3.0]), Some(Estimate { mean: 3.0, half_width: None }));
        // A sample deviation of 1.5811 over the root of 5, times 2.776.
        let five = Estimate::of(&[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        assert_eq!(five.mean, 3.0);
        assert!((five.half_width.unwrap() - 1.963).abs() < 0.001, "{five:?}");
    }
}
