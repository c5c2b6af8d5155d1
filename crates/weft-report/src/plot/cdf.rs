//! Cumulative distribution plots: the share of samples at or below each value.

use maud::Markup;
use plotters::series::LineSeries;
use plotters::style::Color;

use super::axes::{Ticked, axes};
use super::{figure, no_data, range};
use crate::scale::{Axis, Unit};
use crate::theme::series;

/// Maximum number of steps of a drawn distribution.
const MAX_STEPS: usize = 500;

/// A plot of cumulative distributions of samples.
#[derive(Clone, Debug, PartialEq)]
pub struct CdfPlot {
    /// The sampled quantity.
    pub x: Axis,
    /// Name of each series and its samples in any order. Non-finite samples are ignored.
    pub samples: Vec<(String, Vec<f64>)>,
}

/// The ratio of the largest to the smallest sample above which the axis is logarithmic: on a linear one a long tail
/// reduces the body of the distribution to a vertical line.
const MAX_LINEAR_RATIO: f64 = 50.0;

impl CdfPlot {
    pub(crate) fn to_markup(&self) -> Markup {
        let mut lines: Vec<Vec<(f64, f64)>> =
            self.samples.iter().map(|(_, samples)| cumulate(samples)).collect();
        let Some(mut x) = range(lines.iter().flatten().map(|point| point.0)) else {
            return no_data();
        };
        let lowest = lines.iter().flatten().map(|point| point.0).fold(f64::INFINITY, f64::min);
        let logarithmic = lowest > 0.0 && x.end / lowest > MAX_LINEAR_RATIO;
        if logarithmic {
            lines.iter_mut().flatten().for_each(|point| point.0 = point.0.log10());
            x = lowest.log10()..x.end.log10();
        }
        let names: Vec<&str> = self.samples.iter().map(|(name, _)| name.as_str()).collect();
        figure(&names, |area| {
            let across = if logarithmic {
                Ticked::logarithmic(&self.x, x)
            } else {
                Ticked::linear(&self.x, x, 9.0)
            };
            let share = Axis::new("share at or below", Unit::Share);
            let mut chart = axes(area, across, Ticked::linear(&share, 0.0..1.02, 6.0), 10)?;
            for (index, line) in lines.into_iter().enumerate() {
                chart.draw_series(LineSeries::new(line, series(index).stroke_width(2)))?;
            }
            Ok(())
        })
    }
}

/// Returns the corners `(value, share)` of the step function, with at most [`MAX_STEPS`] steps.
fn cumulate(samples: &[f64]) -> Vec<(f64, f64)> {
    let mut sorted: Vec<f64> = samples.iter().copied().filter(|value| value.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len();
    let steps = count.min(MAX_STEPS);
    let mut points = Vec::with_capacity(2 * steps + 1);
    let mut below = 0.0;
    for step in 1..=steps {
        let rank = (step * count).div_ceil(steps);
        let value = sorted[rank - 1];
        let share = rank as f64 / count as f64;
        points.extend([(value, below), (value, share)]);
        below = share;
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_steps_are_at_the_samples() {
        let want = [(1.0, 0.0), (1.0, 0.5), (3.0, 0.5), (3.0, 1.0)];
        assert_eq!(cumulate(&[3.0, 1.0, f64::NAN]), want);
        assert!(cumulate(&[]).is_empty());
    }

    #[test]
    fn many_samples_keep_their_largest_and_their_median() {
        let samples: Vec<f64> = (1..=100_000).map(f64::from).collect();
        let points = cumulate(&samples);
        assert_eq!(points.len(), 2 * MAX_STEPS);
        assert_eq!(points.last(), Some(&(100_000.0, 1.0)));
        assert!(points.contains(&(50_000.0, 0.5)));
    }
}
