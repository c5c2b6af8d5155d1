//! The route controller's part of a report.

use serde::Serialize;
use weft_route::Stats;

use crate::measure::Distribution;

/// The counts of a route controller, and its windows.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ControllerReport {
    /// Events by kind, as the controller counts them.
    #[serde(flatten)]
    pub stats: Stats,
    /// Windows above the threshold, summed over all ports.
    pub congested_windows: u64,
    /// Packets marked in a window, at all ports.
    pub marks_per_window: Distribution,
    /// Every complete window.
    pub windows: Vec<ControllerWindow>,
}

/// One window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ControllerWindow {
    /// Packets marked, at all ports.
    pub marks: u64,
    /// Ports above the threshold.
    pub congested: u64,
    /// Alarms that began or became worse at the window's end.
    pub alarms: u64,
    /// Moves that were decided at the window's end.
    pub moves: u64,
}

impl ControllerReport {
    /// Returns the report of a controller's counts and windows.
    #[expect(clippy::cast_precision_loss, reason = "a count of packets")]
    pub(crate) fn new(stats: Stats, windows: Vec<ControllerWindow>) -> Self {
        let mut marks: Vec<f64> = windows.iter().map(|window| window.marks as f64).collect();
        Self {
            stats,
            congested_windows: windows.iter().map(|window| window.congested).sum(),
            marks_per_window: Distribution::of(&mut marks),
            windows,
        }
    }
}
