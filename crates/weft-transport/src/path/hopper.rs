//! Hopper (Nosrati and Ghaderi 2025): one path, monitored by its round-trip time and left only for one that was probed
//! and found clearly better.
//!
//! An epoch is one round trip. At its end the moving average of the round-trip times decides: above th_probe two random
//! paths that were not probed lately are probed; above th_cong, if one of the two probed before is below the margin,
//! the flow moves there. Packets on the new path must not overtake those in flight on the old, so it moves late: the
//! last packet of the old path left at `t` and its round trip will take `r`, extrapolated by the packets in flight; the
//! new path's takes `n`; nothing leaves before `t + (r - n)`, unless the old path is empty before.
//!
//! The paper gives the parts and no closed formula; `docs/design/hopper.md` derives this one and lists the other
//! decisions that the paper leaves open.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use weft_units::{Duration, Instant, Rng};

use super::current::Current;
use super::trend::Trend;
use super::{Candidates, Feedback, PathId, PathPolicy, Paths};
use crate::TransportConfig;
use crate::config::{Range, Settings};

/// Hopper's parameters, with the values of its table 1. Percentages are of the base round-trip time: the shortest seen,
/// at most [`base_rtt`](crate::TransportConfig::base_rtt).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields, default))]
pub struct HopperConfig {
    /// The weight of an epoch's mean in the moving average, per cent; the previous average has the rest.
    pub gain_percent: u16,
    /// th_probe: the average above which alternatives are probed, per cent of the base.
    pub th_probe_percent: u16,
    /// th_cong: the average above which the path counts as congested, per cent of the base.
    pub th_cong_percent: u16,
    /// ttl_probe: the time during which a probed path is not probed again, per cent of the base.
    pub ttl_probe_percent: u16,
    /// The flow moves to a path only if its round trip is below this part of the current path's average, per cent.
    pub margin_percent: u16,
    /// The time a change of path waits for the packets in flight, per cent of the difference between the estimated
    /// round trip of the last of them and the new path's round trip (section 3.3); zero does not wait.
    pub delay_percent: u16,
}

impl Default for HopperConfig {
    fn default() -> Self {
        Self {
            gain_percent: 100,
            th_probe_percent: 150,
            th_cong_percent: 250,
            ttl_probe_percent: 400,
            margin_percent: 80,
            delay_percent: 100,
        }
    }
}

impl Settings for HopperConfig {
    fn ranges(&self) -> Vec<Range> {
        let threshold = "100 to 10000 per cent";
        let (gain, margin) = (self.gain_percent.into(), self.margin_percent.into());
        let probe = u64::from(self.th_probe_percent);
        let congested = u64::from(self.th_cong_percent);
        vec![
            ("hopper.gain_percent", gain, 1, 100, "1 to 100 per cent"),
            ("hopper.th_probe_percent", probe, 100, 10_000, threshold),
            ("hopper.th_cong_percent", congested, probe, 10_000, "th_probe_percent to 10000"),
            ("hopper.ttl_probe_percent", self.ttl_probe_percent.into(), 100, 10_000, threshold),
            ("hopper.margin_percent", margin, 1, 100, "1 to 100 per cent"),
            ("hopper.delay_percent", self.delay_percent.into(), 0, 1_000, "0 to 1000 per cent"),
        ]
    }
}

/// Number of paths probed in an epoch: the power of two choices (section 3.2).
const CHOICES: u8 = 2;

/// A path that was probed or left recently.
#[derive(Clone, Copy, Debug)]
struct Explored {
    path: PathId,
    at: Instant,
    /// The round trip that the probe measured; `None` until it is answered.
    rtt: Option<Duration>,
}

/// A change of path that waits for the packets in flight.
#[derive(Clone, Copy, Debug)]
struct Switch {
    to: PathId,
    rtt: Duration,
    at: Instant,
}

/// The policy: moves away from congested paths.
#[derive(Debug)]
pub struct Policy {
    config: HopperConfig,
    current: Current,
    /// Number of paths still to be probed in this epoch.
    to_probe: u8,
    switch: Option<Switch>,
    flow: Box<Flow>,
}

/// The state of the flow and its paths.
#[derive(Debug)]
struct Flow {
    /// The shortest round trip seen, at first the configured one.
    base: Duration,
    /// The moving average over epochs; zero before the first.
    average: Duration,
    epoch_began: Instant,
    /// Number of packets of the current path acknowledged in this epoch.
    acked: u32,
    trend: Trend,
    /// The time at which the latest packet of the current path left.
    last_sent: Instant,
    /// The paths probed or left within ttl_probe before the epoch began, oldest first.
    explored: VecDeque<Explored>,
}

impl Policy {
    pub(super) fn new(config: &TransportConfig) -> Self {
        let flow = Flow {
            base: config.base_rtt,
            average: Duration::ZERO,
            epoch_began: Instant::EPOCH,
            acked: 0,
            trend: Trend::default(),
            last_sent: Instant::EPOCH,
            explored: VecDeque::new(),
        };
        Self {
            config: config.hopper,
            current: Current::default(),
            to_probe: 0,
            switch: None,
            flow: Box::new(flow),
        }
    }

    /// Cancels a change of path whose target is down, and completes one whose time has come.
    fn resolve_switch(&mut self, switch: Switch, paths: &Paths, now: Instant) {
        let old = self.current.path().filter(|&path| paths.is_up(path));
        if !paths.is_up(switch.to) {
            self.switch = None;
        } else if old.is_none_or(|old| now >= switch.at || paths.in_flight(old) == 0) {
            self.switch = None;
            if let Some(old) = old {
                self.flow.explored.push_back(Explored { path: old, at: now, rtt: None });
            }
            self.current.move_to(switch.to);
            self.flow.begin_epoch(now);
            self.flow.average = switch.rtt;
        }
    }

    /// Runs algorithm 1 at the end of an epoch.
    fn decide(&mut self, path: PathId, paths: &Paths, now: Instant) {
        let HopperConfig {
            th_probe_percent, th_cong_percent, margin_percent, delay_percent, ..
        } = self.config;
        let flow = &mut *self.flow;
        flow.end_epoch(self.config.gain_percent);
        if flow.average > per_cent(flow.base, th_cong_percent)
            && let Some((to, rtt)) = flow.alternative(path, paths)
            && rtt < per_cent(flow.average, margin_percent)
        {
            let last = flow.trend.at(flow.acked + paths.packets_in_flight(path));
            let slower = last.unwrap_or(flow.average).saturating_sub(rtt);
            // Without a delay the flow moves at the end of the epoch, whenever the last packet left.
            let at = if delay_percent == 0 {
                now
            } else {
                flow.last_sent + per_cent(slower, delay_percent)
            };
            self.switch = Some(Switch { to, rtt, at });
        } else if flow.average > per_cent(flow.base, th_probe_percent) {
            self.to_probe = CHOICES;
        }
        flow.begin_epoch(now);
        let ttl = per_cent(flow.base, self.config.ttl_probe_percent);
        flow.explored.retain(|explored| now.since(explored.at) < ttl);
    }
}

impl Flow {
    fn begin_epoch(&mut self, now: Instant) {
        self.epoch_began = now;
        self.acked = 0;
        self.trend = Trend::default();
    }

    /// Updates the average with the epoch's mean.
    fn end_epoch(&mut self, gain_percent: u16) {
        let Some(mean) = self.trend.mean() else { return };
        self.average = if self.average == Duration::ZERO {
            mean
        } else {
            per_cent(mean, gain_percent) + per_cent(self.average, 100 - gain_percent)
        };
    }

    /// Returns the better of the two paths probed in this epoch, among those that answered and work.
    fn alternative(&self, current: PathId, paths: &Paths) -> Option<(PathId, Duration)> {
        let latest = self.explored.iter().filter(|explored| explored.at >= self.epoch_began);
        let known = latest.filter_map(|explored| Some((explored.path, explored.rtt?)));
        known.filter(|&(path, _)| path != current && paths.is_up(path)).min_by_key(|&(_, rtt)| rtt)
    }

    /// Records the answer to a probe of `path`.
    fn note_probe(&mut self, path: PathId, rtt: Duration) {
        let waits = |explored: &&mut Explored| explored.path == path && explored.rtt.is_none();
        if let Some(explored) = self.explored.iter_mut().find(waits) {
            explored.rtt = Some(rtt);
        }
    }
}

impl PathPolicy for Policy {
    #[inline(never)]
    fn select(&mut self, paths: &Candidates<'_>, now: Instant, rng: &mut Rng) -> Option<PathId> {
        if let Some(switch) = self.switch {
            self.resolve_switch(switch, paths, now);
            if self.switch.is_some() {
                return None;
            }
        }
        let path = self.current.select_or_other(paths, rng)?;
        if self.flow.last_sent == Instant::EPOCH {
            self.flow.begin_epoch(now);
        }
        if self.current.is(path) {
            self.flow.last_sent = now;
        }
        Some(path)
    }

    #[inline(never)]
    fn on_feedback(&mut self, path: PathId, feedback: Feedback, paths: &Paths, now: Instant) {
        let rtt = match feedback {
            Feedback::Acked { rtt, .. } => rtt,
            Feedback::TimedOut if self.current.is(path) => {
                // A timeout exceeds any round trip, so no comparison is needed.
                self.switch = None;
                self.current.leave();
                self.flow.begin_epoch(now);
                return;
            }
            Feedback::Lost | Feedback::Trimmed | Feedback::TimedOut => return,
        };
        if let Some(rtt) = rtt {
            self.flow.base = self.flow.base.min(rtt);
        }
        if !self.current.is(path) {
            if let Some(rtt) = rtt {
                self.flow.note_probe(path, rtt);
            }
            return;
        }
        self.flow.acked += 1;
        if let Some(rtt) = rtt {
            self.flow.trend.add(self.flow.acked, rtt);
        }
        let epoch = self.flow.average.max(self.flow.base);
        if self.switch.is_none() && now.since(self.flow.epoch_began) >= epoch {
            self.decide(path, paths, now);
        }
    }

    #[inline(never)]
    fn probe(&mut self, paths: &Paths, now: Instant, rng: &mut Rng) -> Option<PathId> {
        let left = self.to_probe.checked_sub(1)?;
        self.to_probe = left;
        let explored = &self.flow.explored;
        let fresh = |path: &PathId| {
            let known = explored.iter().any(|explored| explored.path == *path);
            !known && !self.current.is(*path) && paths.is_up(*path)
        };
        let count = paths.ids().filter(fresh).count();
        let path = (count > 0).then(|| paths.ids().filter(fresh).nth(rng.index(count)))??;
        self.flow.explored.push_back(Explored { path, at: now, rtt: None });
        Some(path)
    }

    fn holds_until(&self) -> Option<Instant> {
        self.switch.map(|switch| switch.at)
    }
}

/// Returns `percent` per cent of `span`.
fn per_cent(span: Duration, percent: u16) -> Duration {
    span * u64::from(percent) / 100
}

#[cfg(test)]
mod tests;
