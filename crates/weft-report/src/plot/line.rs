//! Line plots of values over time, with marks at events.

use maud::Markup;
use plotters::element::{PathElement, Text};
use plotters::series::LineSeries;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, ShapeStyle};

use super::axes::{Ticked, axes};
use super::thin::thin;
use super::{Series, figure, label_style, no_data, range, value_range};
use crate::scale::Axis;
use crate::theme::{INK, MARK, series};

/// An event at a position of the x axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Mark {
    /// The position on the x axis.
    pub x: f64,
    /// A label of one or two words.
    pub label: String,
}

/// A plot of lines over a common axis.
#[derive(Clone, Debug, PartialEq)]
pub struct LinePlot {
    /// The x axis, usually time.
    pub x: Axis,
    /// The y axis; it includes zero.
    pub y: Axis,
    /// The lines.
    pub series: Vec<Series>,
    /// The events, drawn as vertical lines with a label.
    pub marks: Vec<Mark>,
}

impl LinePlot {
    pub(crate) fn to_markup(&self) -> Markup {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let all_x = points().map(|p| p.0).chain(self.marks.iter().map(|mark| mark.x));
        let (Some(x), Some(y)) = (range(all_x), value_range(points().map(|p| p.1))) else {
            return no_data();
        };
        let names: Vec<&str> = self.series.iter().map(|series| series.name.as_str()).collect();
        figure(&names, |area| {
            let headroom = if self.marks.is_empty() { 10 } else { 28 };
            let (across, up) =
                (Ticked::linear(&self.x, x.clone(), 9.0), Ticked::linear(&self.y, y.clone(), 6.0));
            let mut chart = axes(area, across, up, headroom)?;
            for (index, line) in self.series.iter().enumerate() {
                let style = series(index).stroke_width(2);
                chart.draw_series(LineSeries::new(thin(&line.points), style))?;
            }
            for mark in self.marks.iter().filter(|mark| mark.x.is_finite()) {
                let line = vec![(mark.x, y.start), (mark.x, y.end)];
                let style = ShapeStyle { color: MARK.mix(0.7), filled: false, stroke_width: 1 };
                chart.draw_series([PathElement::new(line, style)])?;
                let on_the_right = mark.x > x.start + (x.end - x.start) * 0.85;
                let side = if on_the_right { HPos::Right } else { HPos::Left };
                let text = label_style().color(&MARK).pos(Pos::new(side, VPos::Bottom));
                chart.draw_series([Text::new(mark.label.clone(), (mark.x, y.end), text)])?;
            }
            let axis = vec![(x.start, y.start), (x.end, y.start)];
            chart.draw_series([PathElement::new(axis, INK.mix(0.5))])?;
            Ok(())
        })
    }
}
