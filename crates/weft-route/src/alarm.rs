//! Three levels of alarm, from marks in windows (Astral, section 4.1).
//!
//! The paper names three levels and gives two rules. *Low* is our reading: one window above the
//! threshold. *Medium* is the paper's: three such windows in a row within a minute. *High* is five alarms
//! within the interval between training phases, 10 to 30 s: one port has three windows of 10 s in
//! that time, so alarms are counted over all ports of a router.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};
use weft_units::Duration;

use crate::fabric::{End, Fabric, LinkId, RouterId};
use crate::telemetry::Telemetry;

/// When there is an alarm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AlarmRules {
    /// How long marks are counted for.
    pub window: Duration,
    /// Marks in a window above which there is an alarm.
    pub marks: u64,
    /// Windows in a row that make it medium.
    pub in_a_row: u32,
    /// The time within which they are.
    pub within: Duration,
    /// The interval of training phases.
    pub phase: Duration,
    /// Windows above the threshold at a router's ports in that interval that make it high.
    pub at_a_router: u32,
}

impl Default for AlarmRules {
    /// The paper's, with the longest interval it gives.
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
    /// How many windows fit into a span, at least one.
    pub fn windows(&self, span: Duration) -> u64 {
        (span.as_nanos() / self.window.as_nanos().max(1)).max(1)
    }
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// One window above the threshold.
    Low,
    /// Several in a row: flows are moved.
    Medium,
    /// Many ports of a router: flows are moved.
    High,
}

impl Level {
    /// What it is called.
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
    /// How bad it is now.
    pub level: Level,
    /// The first window above the threshold.
    pub since: u64,
    /// The last.
    pub window: u64,
    /// Marks in the last.
    pub marks: u64,
}

/// What a window changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A new alarm, or one that became worse.
    Raised(LinkId, Alarm),
    /// An alarm is over.
    Cleared(LinkId, Alarm),
}

/// The alarms of all ports.
#[derive(Clone, Debug)]
pub struct Alarms {
    rules: AlarmRules,
    raised: BTreeMap<LinkId, Alarm>,
    /// By router, a window's number for each of its ports that was above the threshold then.
    lately: BTreeMap<RouterId, VecDeque<u64>>,
}

impl Alarms {
    /// No alarm yet.
    pub const fn new(rules: AlarmRules) -> Self {
        Self { rules, raised: BTreeMap::new(), lately: BTreeMap::new() }
    }

    /// Alarms that last, by port.
    pub const fn raised(&self) -> &BTreeMap<LinkId, Alarm> {
        &self.raised
    }

    pub(crate) const fn lately(&self) -> &BTreeMap<RouterId, VecDeque<u64>> {
        &self.lately
    }

    pub(crate) fn restore(
        &mut self,
        raised: BTreeMap<LinkId, Alarm>,
        lately: BTreeMap<RouterId, VecDeque<u64>>,
    ) {
        (self.raised, self.lately) = (raised, lately);
    }

    /// Forgets a port's alarm: its link is down.
    pub fn forget(&mut self, link: LinkId) {
        self.raised.remove(&link);
    }

    /// Looks at a window that is over. Ports that did not report it keep the alarm they have.
    pub fn evaluate(&mut self, index: u64, telemetry: &Telemetry, fabric: &Fabric) -> Vec<Change> {
        let above: Vec<(LinkId, u64, bool)> = telemetry
            .ports()
            .filter_map(|link| telemetry.window(link, index).map(|window| (link, window.marks)))
            .map(|(link, marks)| (link, marks, marks > self.rules.marks))
            .collect();
        for &(link, _, _) in above.iter().filter(|(_, _, above)| *above) {
            if let End::Router(router) = fabric.from(link) {
                self.lately.entry(router).or_default().push_back(index);
            }
        }
        let oldest = (index + 1).saturating_sub(self.rules.windows(self.rules.phase));
        for times in self.lately.values_mut() {
            times.retain(|&time| time >= oldest);
        }
        self.lately.retain(|_, times| !times.is_empty());
        let mut changes = Vec::new();
        for (link, marks, above) in above {
            if above {
                let level = self.level(link, index, telemetry, fabric);
                let before = self.raised.get(&link).copied();
                let since = before.map_or(index, |alarm| alarm.since);
                // An alarm that lasts becomes no better before it is over.
                let level = before.map_or(level, |before| before.level.max(level));
                let alarm = Alarm { level, since, window: index, marks };
                self.raised.insert(link, alarm);
                if before.is_none_or(|before| before.level < level) {
                    changes.push(Change::Raised(link, alarm));
                }
            } else if let Some(alarm) = self.raised.remove(&link) {
                changes.push(Change::Cleared(link, alarm));
            }
        }
        changes
    }

    fn level(&self, link: LinkId, index: u64, telemetry: &Telemetry, fabric: &Fabric) -> Level {
        let most = self.rules.windows(self.rules.within);
        let is_above = |back: &u64| {
            index
                .checked_sub(*back)
                .and_then(|index| telemetry.window(link, index))
                .is_some_and(|window| window.marks > self.rules.marks)
        };
        let in_a_row = (0..most).take_while(is_above).count() as u64;
        let at_router = match fabric.from(link) {
            End::Router(router) => self.lately.get(&router).map_or(0, VecDeque::len),
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
