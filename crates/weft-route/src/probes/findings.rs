//! The links that are suspected in one evaluation, with the figures that an alarm shows.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::ProbeRules;
use super::localize::{Observed, Suspected, Tally, localize};
use super::record::{Measured, median};
use crate::fabric::LinkId;

/// The fault of a link by probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinkFault {
    /// Probes over the link take longer than elsewhere: it is congested.
    Delay,
    /// Probes over the link are lost.
    Loss,
}

impl LinkFault {
    /// Returns the fault's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Delay => "delay",
            Self::Loss => "loss",
        }
    }
}

/// A link that is suspected in one evaluation.
#[derive(Clone, Debug)]
pub(super) struct Finding {
    pub(super) link: LinkId,
    pub(super) fault: LinkFault,
    pub(super) tally: Tally,
    /// The share of probes over the link that were lost, in thousandths.
    pub(super) lost_per_mille: u32,
    /// The median delay of the paths over the link, in nanoseconds.
    pub(super) delay_ns: u64,
    /// Other links that the same paths cross.
    pub(super) others: Vec<LinkId>,
}

/// Returns the suspected links; those that probes do not distinguish follow each other. A path that loses probes counts
/// as one without delay.
pub(super) fn find(measured: &[Measured<'_>], rules: &ProbeRules) -> Vec<Finding> {
    let loses = |it: &Measured<'_>| {
        it.lost >= u64::from(rules.min_lost)
            && it.lost * 1000 >= it.sent * u64::from(rules.min_lost_per_mille)
    };
    let typical = median(measured.iter().filter_map(|it| it.delay)).unwrap_or(0);
    let max_delay = typical.saturating_add(rules.delay.as_nanos());
    let is_slow = |it: &Measured<'_>| it.delay.is_some_and(|delay| delay > max_delay) && !loses(it);
    let lossy = suspect(measured, LinkFault::Loss, loses, rules);
    let slow = suspect(measured, LinkFault::Delay, is_slow, rules);
    [lossy, slow].concat()
}

/// Returns the links that are suspected of one fault.
fn suspect(
    measured: &[Measured<'_>],
    fault: LinkFault,
    suffers: impl Fn(&Measured<'_>) -> bool,
    rules: &ProbeRules,
) -> Vec<Finding> {
    let observed = measured.iter().map(|it| {
        let suffers = suffers(it);
        Observed { source: it.source, links: it.links, suffers }
    });
    let observed: Vec<Observed<'_>> = observed.collect();
    let mut findings = Vec::new();
    for Suspected { links, tally } in localize(&observed, rules.min_sources) {
        findings.extend(links.iter().map(|&link| {
            let over = || measured.iter().filter(|it| it.links.contains(&link));
            let (sent, lost) =
                over().fold((0, 0), |(sent, lost), it| (sent + it.sent, lost + it.lost));
            Finding {
                link,
                fault,
                tally,
                lost_per_mille: u32::try_from(lost * 1000 / sent.max(1)).unwrap_or(1000),
                delay_ns: median(over().filter_map(|it| it.delay)).unwrap_or(0),
                others: links.iter().copied().filter(|&other| other != link).collect(),
            }
        }));
    }
    findings
}

/// Returns `true` if enough hosts have probes over a link for a verdict.
pub(super) fn is_probed(measured: &[Measured<'_>], link: LinkId, rules: &ProbeRules) -> bool {
    let over = measured.iter().filter(|it| it.links.contains(&link)).map(|it| it.source);
    let mut sources: Vec<usize> = over.collect();
    sources.dedup();
    sources.len() >= rules.min_sources
}
