//! One value for each of some things, in groups side by side.

use maud::Markup;
use plotters::element::{PathElement, Rectangle, Text};
use plotters::style::Color;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::axes::{Ticked, axes};
use super::{figure, label_style, nothing, value_range};
use crate::scale::Axis;
use crate::theme::{INK, series};

/// Bars: `series[s].1[g]` stands in group `g`.
#[derive(Clone, Debug, PartialEq)]
pub struct BarPlot {
    /// What a bar's height means; from zero.
    pub y: Axis,
    /// Names under the bars: ports, policies.
    pub groups: Vec<String>,
    /// Name and one value for each group. A missing or not finite value is no bar.
    pub series: Vec<(String, Vec<f64>)>,
}

/// More groups than this, and only some carry their name.
const NAMED_GROUPS: usize = 16;
/// More bars than this, and none carries its value.
const VALUED_BARS: usize = 24;

impl BarPlot {
    pub(crate) fn to_markup(&self) -> Markup {
        let values = || self.series.iter().flat_map(|(_, values)| values.iter().copied());
        let Some(y) = value_range(values()) else { return nothing() };
        let groups = self.groups.len() as f64;
        let names: Vec<&str> = self.series.iter().map(|(name, _)| name.as_str()).collect();
        let slot = 0.8 / self.series.len() as f64;
        let bars = self.groups.len() * self.series.len();
        let every = self.groups.len().div_ceil(NAMED_GROUPS).max(1);
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
                    // A sliver of air keeps neighbours apart when there are few.
                    let right = left + slot * if bars > 200 { 1.0 } else { 0.94 };
                    let bar = Rectangle::new([(left, 0.0), (right, value)], series(s).filled());
                    chart.draw_series([bar])?;
                    if bars <= VALUED_BARS {
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
