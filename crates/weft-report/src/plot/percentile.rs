//! Percentile plots on the axis of HdrHistogram's plots: each unit to the right divides the share of larger values by
//! ten, so the last thousandth is as readable as the median.

use maud::Markup;
use plotters::series::LineSeries;
use plotters::style::Color;

use super::axes::{Ticked, axes};
use super::{Series, figure, no_data, range};
use crate::scale::Axis;
use crate::theme::series;

/// A plot of values by percentile.
#[derive(Clone, Debug, PartialEq)]
pub struct PercentilePlot {
    /// The sampled quantity, on a logarithmic axis.
    pub y: Axis,
    /// Points `(share, value)`: `(0.999, 0.0042)` means that 99.9 % are 4.2 ms or less. Shares of one and values of
    /// zero or below are outside the axes and are ignored.
    pub series: Vec<Series>,
}

/// The shares at which the axis has a label, as far as the data extend.
const LABELLED: [f64; 8] = [0.0, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999, 0.999999];

impl PercentilePlot {
    pub(crate) fn to_markup(&self) -> Markup {
        let lines: Vec<Vec<(f64, f64)>> =
            self.series.iter().map(|series| positions(&series.points)).collect();
        let points = || lines.iter().flatten();
        let (Some(x), Some(y)) = (range(points().map(|p| p.0)), range(points().map(|p| p.1)))
        else {
            return no_data();
        };
        let x = 0.0..x.end.max(1.0);
        let y = y.start.floor()..y.end.ceil();
        let shares = LABELLED.into_iter().map(rarity).filter(|&at| at <= x.end + 1e-9);
        let across = shares.map(|at| (at, percentile(at))).collect();
        let names: Vec<&str> = self.series.iter().map(|series| series.name.as_str()).collect();
        figure(&names, |area| {
            let across = Ticked::placed("percentile", x, across);
            let up = Ticked::logarithmic(&self.y, y);
            let mut chart = axes(area, across, up, 10)?;
            for (index, line) in lines.iter().enumerate() {
                let style = series(index).stroke_width(2);
                chart.draw_series(LineSeries::new(line.iter().copied(), style))?;
            }
            Ok(())
        })
    }
}

/// Returns the decimal logarithm of `1 / (1 - share)`, the position on the axis.
fn rarity(share: f64) -> f64 {
    -(1.0 - share).log10()
}

/// Returns the label of a position on the axis.
fn percentile(rarity: f64) -> String {
    // Six decimals are more than the labelled shares have and less than the error of the logarithm.
    let text = format!("{:.6}", 100.0 * (1.0 - 10f64.powf(-rarity)));
    format!("{}%", text.trim_end_matches('0').trim_end_matches('.'))
}

/// Returns the axis positions of the points that are inside the axes.
fn positions(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let drawable = |(share, value): &(f64, f64)| {
        (0.0..1.0).contains(share) && value.is_finite() && *value > 0.0
    };
    points
        .iter()
        .copied()
        .filter(drawable)
        .map(|(share, value)| (rarity(share), value.log10()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_label_shows_its_share() {
        let labels: Vec<String> = LABELLED.into_iter().map(|s| percentile(rarity(s))).collect();
        let want = ["0%", "50%", "90%", "99%", "99.9%", "99.99%", "99.999%", "99.9999%"];
        assert_eq!(labels, want);
    }

    #[test]
    fn a_maximum_and_a_zero_have_no_place_on_logarithmic_axes() {
        assert_eq!(positions(&[(0.0, 0.0), (0.9, 5.0), (1.0, 7.0)]).len(), 1);
    }
}
