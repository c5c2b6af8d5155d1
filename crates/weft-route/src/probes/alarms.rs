//! Alarms of links by probes, with hysteresis: a link that is suspected once raises none, and an alarm ends only after
//! several evaluations in which probes crossed the link and it was not suspected.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use weft_units::Instant;

use super::ProbeRules;
use super::findings::{Finding, LinkFault};
use crate::fabric::LinkId;

/// An alarm of a link by probes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeAlarm {
    /// The fault.
    pub fault: LinkFault,
    /// The time since which it lasts, in nanoseconds.
    pub since: u64,
    /// The time at which the link was last suspected, in nanoseconds.
    pub last: u64,
    /// The share of probes over the link that were lost, in thousandths.
    pub lost_per_mille: u32,
    /// The median delay of the paths over the link beyond their lowest round-trip time, in nanoseconds.
    pub delay_ns: u64,
    /// Number of paths that cross the link.
    pub paths: usize,
    /// Number of these paths that suffer.
    pub suffering: usize,
    /// Number of hosts whose probes cross the link.
    pub sources: usize,
    /// Number of these hosts that suspect it.
    pub votes: usize,
    /// Other links that the same paths cross: one of all these has the fault.
    pub others: Vec<LinkId>,
    /// The time since which flows of jobs are planned around the link, in nanoseconds; none if they are not.
    pub avoided: Option<u64>,
}

/// A change of an alarm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ProbeChange {
    /// An alarm began.
    Raised(LinkId, ProbeAlarm),
    /// An alarm ended.
    Cleared(LinkId, ProbeAlarm),
}

/// A link that is or was suspected of a fault.
#[derive(Clone, Debug, Default)]
struct Watched {
    /// Number of evaluations in a row in which it was suspected.
    suspected: u32,
    /// Number of evaluations in a row in which it was probed and not suspected.
    clean: u32,
    alarm: Option<ProbeAlarm>,
}

/// The alarms of all links.
#[derive(Clone, Debug, Default)]
pub(super) struct Alarms {
    links: BTreeMap<(LinkId, LinkFault), Watched>,
}

impl Alarms {
    pub(super) fn raised(&self) -> impl Iterator<Item = (LinkId, &ProbeAlarm)> {
        self.links.iter().filter_map(|(&(link, _), it)| Some((link, it.alarm.as_ref()?)))
    }

    /// Returns the links whose state depends on the next evaluation.
    pub(super) fn watched(&self) -> impl Iterator<Item = LinkId> + '_ {
        self.links.keys().map(|&(link, _)| link)
    }

    pub(super) fn discard(&mut self, link: LinkId) {
        self.links.retain(|&(of, _), _| of != link);
    }

    /// Takes the findings of an evaluation; those of links that probes do not distinguish follow each other.
    /// `is_probed` returns `true` for links that enough hosts probe, `is_inner` for those that flows can avoid.
    pub(super) fn update(
        &mut self,
        findings: &[Finding],
        is_probed: impl Fn(LinkId) -> bool,
        is_inner: impl Fn(LinkId) -> bool,
        rules: &ProbeRules,
        now: Instant,
    ) -> Vec<ProbeChange> {
        let mut changes = self.clear(findings, is_probed, rules, now);
        for group in findings.chunk_by(|a, b| a.fault == b.fault && a.others.contains(&b.link)) {
            let avoided = self.raised().filter(|(_, alarm)| alarm.avoided.is_some()).count();
            let may_avoid = avoided + group.len() <= rules.max_avoided
                && group.iter().all(|it| is_inner(it.link));
            changes.extend(group.iter().filter_map(|it| self.count(it, may_avoid, rules, now)));
        }
        changes
    }

    /// Counts the links that are not suspected, and ends their alarms when that is due.
    fn clear(
        &mut self,
        findings: &[Finding],
        is_probed: impl Fn(LinkId) -> bool,
        rules: &ProbeRules,
        now: Instant,
    ) -> Vec<ProbeChange> {
        let mut changes = Vec::new();
        self.links.retain(|&(link, fault), it| {
            if findings.iter().any(|finding| (finding.link, finding.fault) == (link, fault)) {
                return true;
            }
            it.suspected = 0;
            it.clean = if is_probed(link) { it.clean.saturating_add(1) } else { 0 };
            let Some(alarm) = &it.alarm else { return false };
            let since = |nanos| now.since(Instant::from_nanos(nanos));
            let is_held = alarm.avoided.is_some_and(|it| since(it) < rules.hold);
            // Without probes there is no verdict, but no alarm lasts for good.
            let is_over = it.clean >= rules.clear_after || since(alarm.last) >= rules.hold;
            if is_over && !is_held {
                changes.push(ProbeChange::Cleared(link, alarm.clone()));
            }
            !is_over || is_held
        });
        changes
    }

    /// Counts a finding, and raises the link's alarm or updates it. `may_avoid` is `true` if flows may avoid it.
    fn count(
        &mut self,
        finding: &Finding,
        may_avoid: bool,
        rules: &ProbeRules,
        now: Instant,
    ) -> Option<ProbeChange> {
        let Finding { link, fault, tally, lost_per_mille, delay_ns, .. } = *finding;
        let it = self.links.entry((link, fault)).or_default();
        it.suspected = it.suspected.saturating_add(1);
        it.clean = 0;
        if it.alarm.is_none() && it.suspected < rules.raise_after {
            return None;
        }
        let before = it.alarm.take();
        let known = before.as_ref();
        // A link may be avoided later than it is suspected, when there is room.
        let begins = (fault == LinkFault::Loss && may_avoid).then_some(now.as_nanos());
        let alarm = ProbeAlarm {
            fault,
            since: known.map_or(now.as_nanos(), |it| it.since),
            last: now.as_nanos(),
            lost_per_mille,
            delay_ns,
            paths: tally.paths,
            suffering: tally.suffering,
            sources: tally.sources,
            votes: tally.votes,
            others: finding.others.clone(),
            avoided: known.and_then(|it| it.avoided).or(begins),
        };
        it.alarm = Some(alarm.clone());
        before.is_none().then_some(ProbeChange::Raised(link, alarm))
    }
}
