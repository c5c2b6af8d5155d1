//! A plot of many rows over one time axis that readers can zoom: a heat map, lines, and spans.
//!
//! The page draws it with a script of its own, from data in the page; the script loads nothing.

use maud::{Markup, PreEscaped, html};
use serde_json::{Value, json};

use crate::{Mark, Unit};

/// The script that draws the plots of a page.
const SCRIPT: &str = include_str!("timeline.js");
/// The style sheet of these plots.
const STYLE: &str = include_str!("timeline.css");

/// A plot over time, seconds: rows as a heat map, and below it lines and spans with the same axis.
#[derive(Clone, Debug, PartialEq)]
pub struct TimelinePlot {
    /// The edges of the columns, ascending: one more than there are columns.
    pub edges: Vec<f64>,
    /// The rows of the heat map; rows of a group follow each other.
    pub rows: Vec<Row>,
    /// The values of the heat map, of which the reader chooses one layer.
    pub layers: Vec<Layer>,
    /// Plots of lines below it.
    pub lines: Vec<Lines>,
    /// Spans below these.
    pub spans: Vec<Span>,
    /// The names of the kinds of spans.
    pub kinds: Vec<String>,
    /// Events, marked in all plots.
    pub marks: Vec<Mark>,
}

/// A row of the heat map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// The group of rows it belongs to.
    pub group: String,
}

/// Values of all rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Layer {
    /// The quantity.
    pub name: String,
    /// The unit of the values.
    pub unit: Unit,
    /// The value of one step: a cell's value is its number of steps times this.
    pub step: f64,
    /// The value of the darkest colour; greater ones have it too. Without it, the greatest value.
    pub full: Option<f64>,
    /// The cells of each row, in steps.
    pub cells: Vec<Vec<u32>>,
}

/// A plot of lines with a value for each column.
#[derive(Clone, Debug, PartialEq)]
pub struct Lines {
    /// The quantity.
    pub name: String,
    /// Its unit.
    pub unit: Unit,
    /// Each line's name and values.
    pub series: Vec<(String, Vec<f64>)>,
}

/// A span of time, such as a message from submission to acknowledgement.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// Its name.
    pub name: String,
    /// The index of its kind.
    pub kind: usize,
    /// Its start, seconds.
    pub start: f64,
    /// Its end, seconds.
    pub end: f64,
}

impl TimelinePlot {
    pub(crate) fn to_markup(&self) -> Markup {
        // In a script, only "<" could end the data early.
        let data = self.to_json().to_string().replace('<', "\\u003c");
        html! {
            style { (PreEscaped(STYLE)) }
            figure.timeline {
                script.data type="application/json" { (PreEscaped(data)) }
                noscript { p.empty { "The pictures over time need JavaScript; the tables do not." } }
            }
            script { (PreEscaped(SCRIPT)) }
        }
    }

    fn to_json(&self) -> Value {
        let rows = self.rows.iter().map(|row| json!([row.name, row.group]));
        let layers = self.layers.iter().map(|layer| {
            let Layer { name, unit, step, full, cells } = layer;
            json!({ "name": name, "unit": key(*unit), "step": step, "full": full, "cells": cells })
        });
        let lines = self.lines.iter().map(|Lines { name, unit, series }| {
            json!({ "name": name, "unit": key(*unit), "series": series })
        });
        let spans =
            self.spans.iter().map(|span| json!([span.name, span.kind, span.start, span.end]));
        let marks = self.marks.iter().map(|mark| json!([mark.x, mark.label]));
        json!({
            "edges": self.edges,
            "rows": rows.collect::<Vec<_>>(),
            "layers": layers.collect::<Vec<_>>(),
            "lines": lines.collect::<Vec<_>>(),
            "spans": spans.collect::<Vec<_>>(),
            "kinds": self.kinds,
            "marks": marks.collect::<Vec<_>>(),
        })
    }
}

/// Returns the script's name of a unit.
fn key(unit: Unit) -> &'static str {
    match unit {
        Unit::Seconds => "s",
        Unit::Bytes => "B",
        Unit::BitsPerSecond => "b/s",
        Unit::Share => "%",
        Unit::Count | Unit::Ratio => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_the_data_cannot_end_the_script() {
        let hostile = "</script><img onerror=alert(1)>".to_owned();
        let plot = TimelinePlot {
            edges: vec![0.0, 1.0],
            rows: vec![Row { name: hostile.clone(), group: hostile.clone() }],
            layers: vec![],
            lines: vec![Lines { name: hostile.clone(), unit: Unit::Count, series: vec![] }],
            spans: vec![Span { name: hostile.clone(), kind: 0, start: 0.0, end: 1.0 }],
            kinds: vec![hostile],
            marks: vec![],
        };
        let html = plot.to_markup().into_string();
        assert!(!html.contains("<img") && html.contains("\\u003cimg"), "{html}");
        assert_eq!(html.matches("</script>").count(), 2);
        for outside in ["src=", "href=", "url(", "@import", "http", "innerHTML"] {
            assert!(!html.contains(outside), "{outside}");
        }
    }
}
