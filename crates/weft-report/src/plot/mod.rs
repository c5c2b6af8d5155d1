//! Plots as plain data, and the drawing code that they share.

mod axes;
mod bar;
mod cdf;
mod line;
mod ordinal;
mod percentile;
mod thin;

use std::ops::Range;

use maud::{Markup, PreEscaped, html};
use plotters::backend::SVGBackend;
use plotters::prelude::{IntoDrawingArea, IntoFont, TextStyle};
use plotters::style::Color;

pub use bar::BarPlot;
pub use cdf::CdfPlot;
pub use line::{LinePlot, Mark};
pub use ordinal::OrdinalPlot;
pub use percentile::PercentilePlot;

use crate::theme::{INK, SERIES, resolve};

/// A named sequence of points.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// The name in the legend.
    pub name: String,
    /// Points `(x, y)` with ascending `x`. Non-finite points are ignored.
    pub points: Vec<(f64, f64)>,
}

impl Series {
    /// Returns a series of these points.
    pub fn new(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), points }
    }
}

/// Size of a drawing in its own units; the page scales it to its width.
const SIZE: (u32, u32) = (960, 340);
type Area<'a> = plotters::drawing::DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type DrawError = plotters::drawing::DrawingAreaErrorKind<std::io::Error>;

/// Runs `draw` on an empty drawing and returns the result under a legend of `names`.
fn figure(names: &[&str], draw: impl FnOnce(&Area<'_>) -> Result<(), DrawError>) -> Markup {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        draw(&area).and_then(|()| area.present()).expect("drawing into a string cannot fail");
    }
    // The page sets the size; the drawing keeps its view box.
    let size = format!("width=\"{}\" height=\"{}\" ", SIZE.0, SIZE.1);
    let svg = resolve(&svg).replacen(&size, "role=\"img\" ", 1);
    html! {
        figure {
            @if names.len() > 1 || names.first().is_some_and(|name| !name.is_empty()) {
                ul.legend {
                    @for (index, name) in names.iter().enumerate() {
                        li {
                            span style=(format!("background: var(--s{})", index % SERIES)) {}
                            (name)
                        }
                    }
                }
            }
            (PreEscaped(svg))
        }
    }
}

/// Returns the placeholder for a plot without points.
fn no_data() -> Markup {
    html! { p.empty { "No data." } }
}

fn label_style() -> TextStyle<'static> {
    ("sans-serif", 14).into_font().color(&INK.to_rgba())
}

/// Returns the range of all finite `values`; `None` if there are none. It starts at zero if all values are positive and
/// either equal or spread over more than a fifth of the largest, and it is widened by 0.5 to each side if it is empty.
fn range(values: impl Iterator<Item = f64>) -> Option<Range<f64>> {
    let finite = values.filter(|value| value.is_finite());
    let (low, high) = finite.fold(None, |range: Option<(f64, f64)>, value| {
        let (low, high) = range.unwrap_or((value, value));
        Some((low.min(value), high.max(value)))
    })?;
    let low = if low > 0.0 && low < high * 0.8 || low == high { low.min(0.0) } else { low };
    Some(if low < high { low..high } else { low - 0.5..high + 0.5 })
}

/// Returns a range for the value axis: [`range`] extended to include zero, with 6 % of space at the top.
fn value_range(values: impl Iterator<Item = f64>) -> Option<Range<f64>> {
    let range = range(values)?;
    let low = range.start.min(0.0);
    Some(low..range.end + (range.end - low) * 0.06)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_axis_starts_at_zero_and_accepts_equal_and_non_finite_values() {
        assert_eq!(value_range([5.0, 10.0].into_iter()).unwrap().start, 0.0);
        let flat = value_range([0.0, 0.0].into_iter()).unwrap();
        assert!(flat.start < flat.end);
        assert_eq!(value_range([f64::NAN, f64::INFINITY].into_iter()), None);
        assert_eq!(value_range([].into_iter()), None);
    }
}
