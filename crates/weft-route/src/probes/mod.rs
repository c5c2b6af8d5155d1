//! Probes between hosts: a second signal beside the routers' counters and samples. Hosts send small packets over known
//! paths every few milliseconds and report loss and round-trip times of each path; from these the links at fault are
//! found within about a second, also a link that loses packets without going down.
//!
//! | step | file |
//! | --- | --- |
//! | a host's report, checked | `report.rs` |
//! | the paths of probes, and the evaluation | here |
//! | a path's recent results | `record.rs` |
//! | links whose paths suffer while others do not | `localize.rs` |
//! | the suspected links with their figures | `findings.rs` |
//! | alarms with hysteresis | `alarms.rs` |
//!
//! The controller's `controller/probed.rs` acts on the alarms.

mod alarms;
mod findings;
mod localize;
mod record;
mod report;
#[cfg(test)]
pub(crate) mod tests;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::IpAddr;

use alarms::Alarms;
pub use alarms::ProbeAlarm;
pub(crate) use alarms::ProbeChange;
pub use findings::LinkFault;
use findings::{find, is_probed};
use record::{Interval, Measured, Record};
use report::{MAX_PATHS, MAX_PATHS_PER_SOURCE};
pub use report::{ProbeError, ProbeReport, ProbedPath, RoundTrip};
use serde::{Deserialize, Serialize};
use weft_units::{Duration, Instant};

use crate::fabric::{End, Fabric, LinkId};
use crate::flow::Flow;

/// The rules by which probes raise alarms, and by which these are acted on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct ProbeRules {
    /// The interval at which probed links are evaluated.
    pub every: Duration,
    /// The time for which a report counts.
    pub window: Duration,
    /// Minimum number of probes of a path in that time; a path with fewer is ignored.
    pub min_probes: u32,
    /// Minimum number of lost probes of a path that suffers loss.
    pub min_lost: u32,
    /// Minimum share of lost probes of a path that suffers loss, in thousandths.
    pub min_lost_per_mille: u32,
    /// The time by which the delay of a path that suffers delay exceeds the median of all paths. The delay of a path is
    /// its median round-trip time less its lowest.
    pub delay: Duration,
    /// Minimum number of hosts that suspect a link.
    pub min_sources: usize,
    /// Number of evaluations in a row in which a link is suspected before its alarm is raised.
    pub raise_after: u32,
    /// Number of evaluations in a row in which a link is probed and not suspected before its alarm ends.
    pub clear_after: u32,
    /// Maximum number of links that lose probes around which flows of jobs are planned; 0 for only showing alarms.
    pub max_avoided: usize,
    /// The time for which such a link is avoided at least, and for which an alarm lasts without probes.
    pub hold: Duration,
}

impl Default for ProbeRules {
    /// Loss of a twentieth is found in a second with 100 probes a path, of a fifth with 25.
    fn default() -> Self {
        Self {
            every: Duration::from_millis(250),
            window: Duration::from_secs(1),
            min_probes: 10,
            min_lost: 3,
            min_lost_per_mille: 20,
            delay: Duration::from_micros(200),
            min_sources: 2,
            raise_after: 2,
            clear_after: 12,
            max_avoided: 4,
            hold: Duration::from_secs(60),
        }
    }
}

/// Counts of reports since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeCounters {
    /// Number of reports accepted.
    pub reports: u64,
    /// Number of reports refused.
    pub refused: u64,
    /// Number of probes in accepted reports.
    pub sent: u64,
    /// Number of lost probes in accepted reports.
    pub lost: u64,
}

/// The probed paths and the alarms of links.
#[derive(Clone, Debug)]
pub struct Probes {
    rules: ProbeRules,
    sources: BTreeMap<IpAddr, BTreeMap<Flow, Record>>,
    alarms: Alarms,
    counters: ProbeCounters,
    /// `true` if tables have changed since paths were followed.
    are_paths_stale: bool,
    next_evaluation: Option<Instant>,
}

impl Probes {
    pub(crate) fn new(rules: ProbeRules) -> Self {
        Self {
            rules,
            sources: BTreeMap::new(),
            alarms: Alarms::default(),
            counters: ProbeCounters::default(),
            are_paths_stale: false,
            next_evaluation: None,
        }
    }

    /// Returns the alarms, by link.
    pub fn alarms(&self) -> impl Iterator<Item = (LinkId, &ProbeAlarm)> {
        self.alarms.raised()
    }

    /// Returns the counts of reports.
    pub const fn counters(&self) -> ProbeCounters {
        self.counters
    }

    /// Returns the number of hosts that have reported lately, and of their paths.
    pub fn probed(&self) -> (usize, usize) {
        (self.sources.len(), self.sources.values().map(BTreeMap::len).sum())
    }

    /// Marks all paths to be followed again, because tables have changed.
    pub(crate) const fn on_tables_changed(&mut self) {
        self.are_paths_stale = true;
    }

    /// Discards a link's alarms, because it went down or came back.
    pub(crate) fn discard(&mut self, link: LinkId) {
        self.alarms.discard(link);
    }

    /// Returns the time of the next evaluation, if there is anything to evaluate.
    pub(crate) const fn next_evaluation(&self) -> Option<Instant> {
        self.next_evaluation
    }

    /// Counts a host's report. Results count from their arrival: the host's clock is not used.
    ///
    /// # Errors
    /// Returns the first fault of the report, of which nothing is counted then.
    pub(crate) fn record(
        &mut self,
        report: &ProbeReport,
        fabric: &Fabric,
        now: Instant,
    ) -> Result<(), ProbeError> {
        let flows = self.accept(report, fabric).inspect_err(|_| self.counters.refused += 1)?;
        let records = self.sources.entry(report.source).or_default();
        for (flow, it) in flows.into_iter().zip(&report.paths) {
            let ProbedPath { sent, lost, round_trip, .. } = *it;
            let record = records.entry(flow).or_insert_with(|| Record::new(&flow, fabric, now));
            record.add(Interval { at: now, sent, lost, round_trip });
            self.counters.sent = self.counters.sent.saturating_add(u64::from(sent));
            self.counters.lost = self.counters.lost.saturating_add(u64::from(lost));
        }
        self.counters.reports += 1;
        self.next_evaluation.get_or_insert(now + self.rules.every);
        Ok(())
    }

    /// Checks a report, and returns the flows of its probes.
    fn accept(&self, report: &ProbeReport, fabric: &Fabric) -> Result<Vec<Flow>, ProbeError> {
        let flows = report.flows(fabric)?;
        let records = self.sources.get(&report.source);
        let is_new = |flow: &&Flow| records.is_none_or(|records| !records.contains_key(flow));
        let (new, all) = (flows.iter().filter(is_new).count(), self.probed().1);
        if new + records.map_or(0, BTreeMap::len) > MAX_PATHS_PER_SOURCE {
            return Err(ProbeError::TooManyOfSource);
        }
        if new + all > MAX_PATHS {
            return Err(ProbeError::TooMany);
        }
        Ok(flows)
    }

    /// Evaluates all links if it is time, and returns the changes of alarms.
    pub(crate) fn evaluate(&mut self, fabric: &Fabric, now: Instant) -> Vec<ProbeChange> {
        if self.next_evaluation.is_none_or(|due| due > now) {
            return Vec::new();
        }
        self.expire(now);
        if core::mem::take(&mut self.are_paths_stale) {
            let records = self.sources.values_mut().flatten();
            records.for_each(|(flow, record)| record.follow(flow, fabric));
        }
        let rules = &self.rules;
        // In the order of their hosts.
        let records = self.sources.values().enumerate();
        let records = records.flat_map(|(source, of)| of.values().map(move |it| (source, it)));
        let measured = records.filter_map(|(source, record)| record.measured(source));
        let measured: Vec<Measured<'_>> =
            measured.filter(|it| it.sent >= u64::from(rules.min_probes)).collect();
        let findings = find(&measured, rules);
        let watched = self.alarms.watched();
        let probed: Vec<LinkId> =
            watched.filter(|&link| is_probed(&measured, link, rules)).collect();
        let is_probed = |link| probed.contains(&link);
        let changes = self.alarms.update(&findings, is_probed, is_inner(fabric), rules, now);
        let is_idle = self.sources.is_empty() && self.alarms.watched().next().is_none();
        self.next_evaluation = (!is_idle).then(|| now + self.rules.every);
        changes
    }

    /// Discards results older than the window, and paths that are not probed any more.
    fn expire(&mut self, now: Instant) {
        let ProbeRules { window, hold, .. } = self.rules;
        for records in self.sources.values_mut() {
            records.retain(|_, it| it.age(now) < hold);
            records.values_mut().for_each(|it| it.expire(window, now));
        }
        self.sources.retain(|_, records| !records.is_empty());
    }
}

/// Returns a function that is `true` for links between routers: the port of a flow does not choose a host's cable.
fn is_inner(fabric: &Fabric) -> impl Fn(LinkId) -> bool + '_ {
    let is_router = |end| matches!(end, End::Router(_));
    move |link| is_router(fabric.from(link)) && is_router(fabric.to(link))
}
