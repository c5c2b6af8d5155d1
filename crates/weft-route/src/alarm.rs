//! Three levels of alarm, computed from ECN marks per window (Astral, section 4.1).
//!
//! The paper names three levels and gives two rules. *Low* is our reading: one window above the threshold. *Medium*
//! is the paper's: three such windows in a row within a minute. *High* is five alarms within the interval between
//! training phases, 10 to 30 s. One port has three windows of 10 s in that time, so alarms are counted over all ports
//! of a router.
//!
//! A job that pauses for whole windows would never have three in a row. So a window without an alarm in which the reserved jobs
//! of a port pause counts as if it had not been: it neither interrupts the sequence nor ends an alarm.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};
use weft_units::Duration;

use crate::fabric::{End, Fabric, LinkId, RouterId};
use crate::telemetry::Telemetry;

/// The thresholds of the alarm levels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct AlarmRules {
    /// The length of a window in which marks are counted.
    pub window: Duration,
    /// Number of marks in a window above which there is an alarm.
    pub marks: u64,
    /// Number of consecutive windows above the threshold that make the alarm medium.
    pub in_a_row: u32,
    /// The time within which these windows lie.
    pub within: Duration,
    /// The interval between training phases.
    pub phase: Duration,
    /// Number of windows above the threshold at a router's ports in that interval that make the alarm high.
    pub at_a_router: u32,
}

impl Default for AlarmRules {
    /// The paper's values, with the longest interval that it gives.
    fn default() -> Self {
        Self {
            window: Duration::from_secs(10),
            marks: 500,
            in_a_row: 3,
            within: Duration::from_secs(60),
            phase: Duration::from_secs(30),
            at_a_router: 5,
        }
    }
}

impl AlarmRules {
    /// Returns the number of windows that fit into a span, at least one.
    pub fn windows(&self, span: Duration) -> u64 {
        (span.as_nanos() / self.window.as_nanos().max(1)).max(1)
    }
}

/// The severity of an alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// One window above the threshold.
    Low,
    /// Several consecutive windows: flows are moved.
    Medium,
    /// Many windows at the ports of a router: flows are moved.
    High,
}

impl Level {
    /// Returns the level's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

/// An alarm at a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alarm {
    /// The current level.
    pub level: Level,
    /// The index of the first window above the threshold.
    pub since: u64,
    /// The index of the last window above the threshold.
    pub window: u64,
    /// Number of marks in the last window.
    pub marks: u64,
}

/// A change of an alarm at the end of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// An alarm began or its level rose.
    Raised(LinkId, Alarm),
    /// An alarm ended.
    Cleared(LinkId, Alarm),
}

/// The alarms of all ports.
#[derive(Clone, Debug)]
pub struct Alarms {
    rules: AlarmRules,
    raised: BTreeMap<LinkId, Alarm>,
    /// By router, the indices of recent windows, once for each of its ports above the threshold in that window.
    recent_windows: BTreeMap<RouterId, VecDeque<u64>>,
}

impl Alarms {
    /// Creates an empty set of alarms.
    pub const fn new(rules: AlarmRules) -> Self {
        Self { rules, raised: BTreeMap::new(), recent_windows: BTreeMap::new() }
    }

    /// Returns the current alarms, by port.
    pub const fn raised(&self) -> &BTreeMap<LinkId, Alarm> {
        &self.raised
    }

    pub(crate) const fn recent_windows(&self) -> &BTreeMap<RouterId, VecDeque<u64>> {
        &self.recent_windows
    }

    pub(crate) fn restore(
        &mut self,
        raised: BTreeMap<LinkId, Alarm>,
        recent_windows: BTreeMap<RouterId, VecDeque<u64>>,
    ) {
        (self.raised, self.recent_windows) = (raised, recent_windows);
    }

    /// Discards a port's alarm, because its link is down.
    pub fn discard(&mut self, link: LinkId) {
        self.raised.remove(&link);
    }

    /// Evaluates a window that has ended and returns the changes. Ports that did not report it keep their alarm, and so do those
    /// whose jobs pause in it: `pauses` tells whether all jobs with known bursts do on a link in a window, and there are some.
    pub fn evaluate(
        &mut self,
        index: u64,
        telemetry: &Telemetry,
        fabric: &Fabric,
        pauses: impl Fn(LinkId, u64) -> bool,
    ) -> Vec<Change> {
        let above: Vec<(LinkId, u64, bool)> = telemetry
            .ports()
            .filter_map(|link| telemetry.window(link, index).map(|window| (link, window.marks)))
            .map(|(link, marks)| (link, marks, marks > self.rules.marks))
            .collect();
        for &(link, _, _) in above.iter().filter(|(_, _, above)| *above) {
            if let End::Router(router) = fabric.from(link) {
                self.recent_windows.entry(router).or_default().push_back(index);
            }
        }
        let oldest = (index + 1).saturating_sub(self.rules.windows(self.rules.phase));
        for times in self.recent_windows.values_mut() {
            times.retain(|&time| time >= oldest);
        }
        self.recent_windows.retain(|_, times| !times.is_empty());
        let mut changes = Vec::new();
        for (link, marks, above) in above {
            if above {
                let level = self.level(link, index, telemetry, fabric, &pauses);
                let before = self.raised.get(&link).copied();
                let since = before.map_or(index, |alarm| alarm.since);
                // The level of an alarm does not fall while the alarm lasts.
                let level = before.map_or(level, |before| before.level.max(level));
                let alarm = Alarm { level, since, window: index, marks };
                self.raised.insert(link, alarm);
                if before.is_none_or(|before| before.level < level) {
                    changes.push(Change::Raised(link, alarm));
                }
            } else if !pauses(link, index)
                && let Some(alarm) = self.raised.remove(&link)
            {
                changes.push(Change::Cleared(link, alarm));
            }
        }
        changes
    }

    fn level(
        &self,
        link: LinkId,
        index: u64,
        telemetry: &Telemetry,
        fabric: &Fabric,
        pauses: impl Fn(LinkId, u64) -> bool,
    ) -> Level {
        let is_above = |index: u64| {
            let window = telemetry.window(link, index);
            window.is_some_and(|window| window.marks > self.rules.marks)
        };
        // Pauses do not count for the time within which the windows lie either.
        let oldest = (index + 1).saturating_sub(telemetry.windows_kept());
        let sending = (oldest..=index).rev().filter(|&it| is_above(it) || !pauses(link, it));
        let max_windows = usize::try_from(self.rules.windows(self.rules.within));
        let recent = sending.take(max_windows.unwrap_or(usize::MAX));
        let in_a_row = recent.take_while(|&it| is_above(it)).count() as u64;
        let at_router = match fabric.from(link) {
            End::Router(router) => self.recent_windows.get(&router).map_or(0, VecDeque::len),
            _ => 0,
        };
        if at_router >= self.rules.at_a_router as usize {
            Level::High
        } else if in_a_row >= u64::from(self.rules.in_a_row) {
            Level::Medium
        } else {
            Level::Low
        }
    }
}
