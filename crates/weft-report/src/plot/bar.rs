//! Bar charts: groups of bars side by side, one bar per series.

use maud::Markup;
use plotters::element::{PathElement, Rectangle, Text};
use plotters::style::Color;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::axes::{Ticked, axes};
use super::{figure, label_style, no_data, value_range};
use crate::scale::Axis;
use crate::theme::{INK, series};

/// A bar chart: `series[s].1[g]` is the bar of series `s` in group `g`.
#[derive(Clone, Debug, PartialEq)]
pub struct BarPlot {
    /// The quantity of a bar's height; the axis includes zero.
    pub y: Axis,
    /// The names under the groups: ports, policies.
    pub groups: Vec<String>,
    /// Name of each series and its value for each group. A missing or non-finite value draws no bar.
    pub series: Vec<(String, Vec<f64>)>,
}

/// Maximum number of group names on the axis; with more groups only every n-th name is shown.
const MAX_NAMED_GROUPS: usize = 16;
/// Maximum number of bars that are labelled with their values.
const MAX_LABELLED_BARS: usize = 24;

impl BarPlot {
    pub(crate) fn to_markup(&self) -> Markup {
        let values = || self.series.iter().flat_map(|(_, values)| values.iter().copied());
        let Some(y) = value_range(values()) else { return no_data() };
        let groups = self.groups.len() as f64;
        let names: Vec<&str> = self.series.iter().map(|(name, _)| name.as_str()).collect();
        let slot = 0.8 / self.series.len() as f64;
        let bars = self.groups.len() * self.series.len();
        let every = self.groups.len().div_ceil(MAX_NAMED_GROUPS).max(1);
        let places = self.groups.iter().enumerate().step_by(every);
        let named: Vec<(f64, String)> =
            places.map(|(g, name)| (g as f64 + 0.5, name.clone())).collect();
        figure(&names, |area| {
            let across = Ticked::placed("", 0.0..groups, named);
            let mut chart = axes(area, across, Ticked::linear(&self.y, y.clone(), 6.0), 10)?;
            for (s, (_, values)) in self.series.iter().enumerate() {
                let finite = values.iter().enumerate().filter(|(_, value)| value.is_finite());
                for (g, &value) in finite.take(self.groups.len()) {
                    let left = g as f64 + 0.1 + s as f64 * slot;
                    // A narrow gap separates neighbours unless there are many bars.
                    let right = left + slot * if bars > 200 { 1.0 } else { 0.94 };
                    let bar = Rectangle::new([(left, 0.0), (right, value)], series(s).filled());
                    chart.draw_series([bar])?;
                    if bars <= MAX_LABELLED_BARS {
                        let style = label_style().pos(Pos::new(HPos::Center, VPos::Bottom));
                        let place = ((left + right) / 2.0, value);
                        let text = Text::new(self.y.unit.format(value), place, style);
                        chart.draw_series([text])?;
                    }
                }
            }
            chart.draw_series([PathElement::new(vec![(0.0, 0.0), (groups, 0.0)], INK.mix(0.5))])?;
            Ok(())
        })
    }
}
