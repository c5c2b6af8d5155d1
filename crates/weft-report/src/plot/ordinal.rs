//! Plots over an ordinal axis, such as size bins, whose points are joined by lines.

use maud::Markup;
use plotters::element::{Circle, PathElement};
use plotters::series::LineSeries;
use plotters::style::{Color, ShapeStyle};

use super::axes::{Ticked, axes};
use super::{figure, no_data, range, value_range};
use crate::scale::Axis;
use crate::theme::series;

/// A plot of values over ordered categories.
#[derive(Clone, Debug, PartialEq)]
pub struct OrdinalPlot {
    /// The label of the categories' axis.
    pub x: String,
    /// The names of the categories, in order.
    pub places: Vec<String>,
    /// The quantity of the values.
    pub y: Axis,
    /// Name of each series and, for each category, its value and its uncertainty in each direction. A non-finite value
    /// is skipped.
    pub series: Vec<(String, Vec<(f64, f64)>)>,
}

/// The ratio of the largest to the smallest value above which the axis is logarithmic.
const MAX_LINEAR_RATIO: f64 = 8.0;

impl OrdinalPlot {
    pub(crate) fn to_markup(&self) -> Markup {
        let ends = |&(value, off): &(f64, f64)| [value - off, value + off];
        let all = || self.series.iter().flat_map(|(_, values)| values.iter().flat_map(ends));
        let finite = || all().filter(|value| value.is_finite());
        let lowest = finite().fold(f64::INFINITY, f64::min);
        let highest = finite().fold(f64::NEG_INFINITY, f64::max);
        let logarithmic = lowest > 0.0 && highest / lowest > MAX_LINEAR_RATIO;
        let scale = |value: f64| if logarithmic { value.log10() } else { value };
        let y = if logarithmic { range(finite().map(scale)) } else { value_range(finite()) };
        let Some(y) = y else { return no_data() };
        let names: Vec<&str> = self.series.iter().map(|(name, _)| name.as_str()).collect();
        figure(&names, |area| {
            let up = if logarithmic {
                Ticked::logarithmic(&self.y, y)
            } else {
                Ticked::linear(&self.y, y, 6.0)
            };
            let mut chart = axes(area, self.across(), up, 10)?;
            for (index, (_, values)) in self.series.iter().enumerate() {
                // Whiskers of different series are drawn side by side.
                let aside = (index as f64 - (names.len() as f64 - 1.0) / 2.0) * 0.03;
                let at = |place: usize| place as f64 + 0.5 + aside;
                let places = values.iter().take(self.places.len()).enumerate();
                let known = places.filter(|(_, value)| scale(value.0).is_finite());
                let points: Vec<(f64, f64)> =
                    known.clone().map(|(place, value)| (at(place), scale(value.0))).collect();
                let colour = series(index);
                chart.draw_series(LineSeries::new(points.clone(), colour.stroke_width(2)))?;
                chart.draw_series(
                    points.into_iter().map(|point| Circle::new(point, 3, colour.filled())),
                )?;
                let style = ShapeStyle { color: colour.mix(0.7), filled: false, stroke_width: 1 };
                for (place, value) in known.filter(|(_, value)| value.1 > 0.0) {
                    let [low, high] = ends(value).map(scale);
                    let whisker = vec![(at(place), low), (at(place), high)];
                    chart.draw_series([PathElement::new(whisker, style)])?;
                }
            }
            Ok(())
        })
    }

    fn across(&self) -> Ticked {
        let named = self.places.iter().enumerate();
        let named = named.map(|(place, name)| (place as f64 + 0.5, name.clone())).collect();
        Ticked::placed(&self.x, 0.0..self.places.len() as f64, named)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Unit;

    fn plot(values: Vec<(f64, f64)>) -> String {
        let places = values.iter().map(|(value, _)| format!("place {value}")).collect();
        let y = Axis::new("slowdown", Unit::Ratio);
        let series = vec![("ecmp".to_owned(), values)];
        OrdinalPlot { x: "bytes".into(), places, y, series }.to_markup().into_string()
    }

    #[test]
    fn every_place_is_named_and_every_value_has_a_point() {
        let drawn = plot(vec![(1.0, 0.0), (2.0, 0.5), (f64::NAN, 0.0)]);
        assert!(drawn.contains("place 2") && drawn.contains("place NaN"), "{drawn}");
        assert_eq!(drawn.matches("<circle").count(), 2);
    }

    #[test]
    fn a_long_range_is_logarithmic_and_no_value_is_no_plot() {
        assert!(plot(vec![(1.0, 0.0), (500.0, 0.0)]).contains("100\n"));
        assert!(plot(vec![(f64::NAN, 0.0)]).contains("No data."));
    }
}
