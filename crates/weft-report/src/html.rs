//! A report as one HTML file.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::theme::STYLE;
use crate::{BarPlot, CdfPlot, LinePlot, OrdinalPlot, PercentilePlot, Table, TimelinePlot};

/// A page of results.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// The subject of the run.
    pub title: String,
    /// The set-up of the run, in one line.
    pub subtitle: String,
    /// Names and values of the main results and of the inputs that reproduce the run: commit, scenario, seed.
    pub facts: Vec<(String, String)>,
    /// The sections, in reading order.
    pub sections: Vec<Section>,
}

/// A section: a heading, a sentence of explanation, and a body.
#[derive(Clone, Debug, PartialEq)]
pub struct Section {
    /// The heading, a few words.
    pub heading: String,
    /// A sentence that explains the body; may be empty.
    pub text: String,
    /// The content.
    pub body: Body,
}

/// The content of a section.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Body {
    /// An empty body: the section has only its text.
    Text,
    /// Preformatted text, such as the expanded scenario.
    Code(String),
    /// A table of rows under headings.
    Table(Table),
    /// A line plot over time or over another quantity.
    Lines(LinePlot),
    /// A plot of cumulative distributions.
    Cdf(CdfPlot),
    /// A bar chart with a value for each group and series.
    Bars(BarPlot),
    /// A plot of values at percentiles that resolves the last thousandth.
    Percentiles(PercentilePlot),
    /// A plot of values over an ordinal axis, such as size bins.
    Ordinal(OrdinalPlot),
    /// A heat map, lines and spans over one time axis, with zoom.
    Timeline(TimelinePlot),
}

impl Report {
    /// Returns the whole page. It loads no external resources.
    pub fn to_html(&self) -> String {
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    title { (self.title) }
                    style { (PreEscaped(STYLE)) }
                }
                body {
                    header {
                        h1 { (self.title) }
                        p.subtitle { (self.subtitle) }
                        @if !self.facts.is_empty() {
                            dl.facts {
                                @for (name, value) in &self.facts {
                                    div { dt { (name) } dd { (value) } }
                                }
                            }
                        }
                    }
                    main {
                        @for section in &self.sections { (section.to_markup()) }
                    }
                }
            }
        };
        page.into_string()
    }
}

impl Section {
    fn to_markup(&self) -> Markup {
        html! {
            section {
                h2 { (self.heading) }
                @if !self.text.is_empty() { p { (self.text) } }
                (self.body.to_markup())
            }
        }
    }
}

impl Body {
    fn to_markup(&self) -> Markup {
        match self {
            Self::Text => html! {},
            Self::Code(text) => html! { pre { code { (text) } } },
            Self::Table(table) => table.to_markup(),
            Self::Lines(plot) => plot.to_markup(),
            Self::Cdf(plot) => plot.to_markup(),
            Self::Bars(plot) => plot.to_markup(),
            Self::Percentiles(plot) => plot.to_markup(),
            Self::Ordinal(plot) => plot.to_markup(),
            Self::Timeline(plot) => plot.to_markup(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Axis, Column, Series, Unit};

    fn every_kind() -> Report {
        let hostile = "<script>alert(\"&\")</script>";
        let series = || vec![Series::new(hostile, vec![(0.0, 1.0), (0.5, f64::NAN), (1.0, 3.0)])];
        let (x, y) = (Axis::new(hostile, Unit::Seconds), Axis::new(hostile, Unit::Bytes));
        let mut table = Table::new(vec![Column::text(hostile, "k")]);
        table.push(vec![hostile.into()]);
        let bodies = vec![
            Body::Text,
            Body::Code(hostile.into()),
            Body::Table(table),
            Body::Lines(LinePlot { x: x.clone(), y: y.clone(), series: series(), marks: vec![] }),
            Body::Cdf(CdfPlot { x, samples: vec![(hostile.into(), vec![1.0, 2.0, 3.0])] }),
            Body::Bars(BarPlot {
                y: y.clone(),
                groups: vec![hostile.into()],
                series: vec![(hostile.into(), vec![4.0])],
            }),
            Body::Percentiles(PercentilePlot { y: y.clone(), series: series() }),
            Body::Ordinal(OrdinalPlot {
                x: hostile.into(),
                places: vec![hostile.into()],
                y,
                series: vec![(hostile.into(), vec![(4.0, 1.0)])],
            }),
        ];
        let section = |body| Section { heading: hostile.into(), text: hostile.into(), body };
        Report {
            title: hostile.into(),
            subtitle: hostile.into(),
            facts: vec![(hostile.into(), hostile.into())],
            sections: bodies.into_iter().map(section).collect(),
        }
    }

    #[test]
    fn nothing_in_the_data_becomes_markup() {
        let html = every_kind().to_html();
        assert!(!html.contains("<script"), "{html}");
        assert!(html.contains("&lt;script&gt;"));
    }

    #[test]
    fn a_page_loads_nothing_from_anywhere() {
        let html = every_kind().to_html();
        for outside in ["src=", "href=", "url(", "@import"] {
            assert!(!html.contains(outside), "{outside} in {html}");
        }
        // The only address is the name of the SVG namespace.
        assert_eq!(
            html.matches("http").count(),
            html.matches("http://www.w3.org/2000/svg").count()
        );
    }

    #[test]
    fn every_plot_is_drawn_with_the_pages_colours_only() {
        let html = every_kind().to_html();
        assert_eq!(html.matches("<svg").count(), 5);
        let body = html.split("</style>").nth(1).unwrap();
        assert!(!body.contains("fill=\"#") && !body.contains("stroke=\"#"), "{body}");
    }
}
