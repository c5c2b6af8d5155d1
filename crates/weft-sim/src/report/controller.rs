//! What a route controller did in a run.

use serde::Serialize;

use crate::measure::Distribution;
use crate::world::Steering;

/// A route controller's counts, and its windows.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ControllerReport {
    /// Alarms that began or became worse.
    pub alarms: u64,
    /// Moves that were decided.
    pub moves: u64,
    /// Moves that have helped.
    pub kept: u64,
    /// Moves that were undone.
    pub undone: u64,
    /// Changes that switches refused.
    pub refused: u64,
    /// Ports that were left alone after the last round of moves.
    pub gave_up: u64,
    /// Reports and samples that were not acted upon.
    pub doubts: u64,
    /// Windows above the threshold, summed over all ports.
    pub congested_windows: u64,
    /// Packets marked in a window, at all ports.
    pub marks_per_window: Distribution,
    /// Each whole window.
    pub windows: Vec<ControllerWindow>,
}

/// One window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ControllerWindow {
    /// Packets marked, at all ports.
    pub marks: u64,
    /// Ports above the threshold.
    pub congested: u64,
    /// Alarms that began or became worse at its end.
    pub alarms: u64,
    /// Moves that were decided at its end.
    pub moves: u64,
}

impl ControllerReport {
    /// What a controller did until now.
    #[expect(clippy::cast_precision_loss, reason = "a count of packets")]
    pub(crate) fn new(steering: &Steering) -> Self {
        let stats = steering.stats();
        let windows = steering.windows().to_vec();
        let mut marks: Vec<f64> = windows.iter().map(|window| window.marks as f64).collect();
        Self {
            alarms: stats.alarms,
            moves: stats.moves,
            kept: stats.kept,
            undone: stats.undone,
            refused: stats.refused,
            gave_up: stats.gave_up,
            doubts: stats.doubts,
            congested_windows: windows.iter().map(|window| window.congested).sum(),
            marks_per_window: Distribution::of(&mut marks),
            windows,
        }
    }
}
