//! Results for people and for programs: aligned text tables, JSON, CSV, Parquet, and HTML reports. A report is one file
//! without external resources, readable on light and dark screens and on paper.
//!
//! Callers pass plain data; the crate does not know what was measured.
//!
//! ```
//! use weft_report::{Axis, Body, LinePlot, Report, Section, Series, Unit};
//!
//! let queue = Series::new("128 paths", vec![(0.0, 0.0), (0.001, 52_000.0), (0.002, 31_000.0)]);
//! let report = Report {
//!     title: "Permutation traffic".into(),
//!     subtitle: "128 hosts, seed 1".into(),
//!     facts: vec![("flows".into(), "128".into())],
//!     sections: vec![Section {
//!         heading: "Queue depth".into(),
//!         text: "Spraying keeps the longest queue under a quarter of a buffer.".into(),
//!         body: Body::Lines(LinePlot {
//!             x: Axis::new("time", Unit::Seconds),
//!             y: Axis::new("queue", Unit::Bytes),
//!             series: vec![queue],
//!             marks: vec![],
//!         }),
//!     }],
//! };
//! assert!(report.to_html().starts_with("<!DOCTYPE html>"));
//! ```
#![forbid(unsafe_code)]

mod frame;
mod html;
mod plot;
mod scale;
mod table;
#[cfg(feature = "terminal")]
pub mod terminal;
mod theme;
mod timeline;

pub use frame::{Frame, Values};
pub use html::{Body, Report, Section};
pub use plot::{BarPlot, CdfPlot, LinePlot, Mark, OrdinalPlot, PercentilePlot, Series};
pub use scale::{Axis, Unit};
pub use table::{Align, Cell, Column, Table};
pub use timeline::{Layer, Lines, Row, Span, TimelinePlot};
