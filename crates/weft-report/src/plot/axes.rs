//! The axes, grid and labels of every plot.

use std::ops::Range;

use plotters::backend::SVGBackend;
use plotters::chart::{ChartBuilder, ChartContext};
use plotters::coord::cartesian::Cartesian2d;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::style::Color;

use super::{Area, DrawError, label_style};
use crate::scale::{Axis, decades, ticks};
use crate::theme::GRID;

/// The space for the labels of the y axis (width) and of the x axis (height), in drawing units.
const LABELS: (u32, u32) = (76, 44);

/// An axis with its range and the positions of its labels.
#[derive(Debug)]
pub(crate) struct Ticked {
    label: String,
    range: Range<f64>,
    ticks: Vec<(f64, String)>,
}

impl Ticked {
    /// Returns a linear axis with about `wanted` labels at round numbers of its unit.
    pub(crate) fn linear(axis: &Axis, range: Range<f64>, wanted: f64) -> Self {
        let places = ticks(range.start, range.end, wanted).into_iter();
        let ticks = places.map(|at| (at, axis.unit.format(at))).collect();
        Self { label: axis.label.clone(), range, ticks }
    }

    /// Returns an axis of decimal logarithms, labelled with the values.
    pub(crate) fn logarithmic(axis: &Axis, range: Range<f64>) -> Self {
        let places = decades(&range).into_iter();
        let ticks = places.map(|at| (at, axis.unit.format(10f64.powf(at)))).collect();
        Self { label: axis.label.clone(), range, ticks }
    }

    /// Returns an axis with labels at given positions.
    pub(crate) fn placed(label: &str, range: Range<f64>, ticks: Vec<(f64, String)>) -> Self {
        Self { label: label.into(), range, ticks }
    }
}

impl Ranged for Ticked {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    #[expect(clippy::cast_possible_truncation, reason = "a drawing is a thousand units wide")]
    fn map(&self, value: &f64, (first, last): (i32, i32)) -> i32 {
        let share = (value - self.range.start) / (self.range.end - self.range.start);
        first + (share * f64::from(last - first)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _hint: Hint) -> Vec<f64> {
        self.ticks.iter().map(|(at, _)| *at).collect()
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

impl ValueFormatter<f64> for Ticked {
    fn format_ext(&self, value: &f64) -> String {
        let label = self.ticks.iter().find(|(at, _)| at == value);
        label.map_or_else(String::new, |(_, text)| text.clone())
    }
}

pub(crate) type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Ticked, Ticked>>;

/// Draws grid, axes and labels, with `headroom` above them for text, and returns the chart for the data.
pub(crate) fn axes<'a, 'b>(
    area: &'a Area<'b>,
    x: Ticked,
    y: Ticked,
    headroom: i32,
) -> Result<Chart<'a, 'b>, DrawError> {
    let descriptions = (x.label.clone(), y.label.clone());
    let grid_behind_x = x.label.is_empty();
    let mut chart = ChartBuilder::on(area)
        .margin(6)
        .margin_right(28)
        .margin_top(headroom)
        .y_label_area_size(LABELS.0)
        .x_label_area_size(LABELS.1)
        .build_cartesian_2d(x, y)?;
    let mut mesh = chart.configure_mesh();
    mesh.light_line_style(GRID.mix(0.0))
        .bold_line_style(GRID)
        .axis_style(GRID)
        .label_style(label_style())
        .axis_desc_style(label_style())
        .x_desc(descriptions.0)
        .y_desc(descriptions.1);
    if grid_behind_x {
        mesh.disable_x_mesh();
    }
    mesh.draw()?;
    Ok(chart)
}
