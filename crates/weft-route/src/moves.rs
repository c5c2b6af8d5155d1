//! The search for other next hops for congesting flows (Astral, section 4.2, steps 2 to 4).
//!
//! A switch forwards by destination, so a route for one address moves every flow to it: the suspect and the set *C*
//! of other flows that this router sends there. A candidate is a set of next hops. All flows of the move are
//! followed through it, hop by hop, and every link that gains load must stay below three quarters of its capacity.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::fabric::{End, Fabric, LinkId, RouterId};
use crate::flow::Flow;
use crate::installed::{Member, PortState, Prefix, Route, Target};
use crate::loads::{Loads, per_mille};
use crate::path::{Path, Start};
use crate::suspects::Suspect;

/// The limits of a move.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct MoveRules {
    /// The maximum utilisation of a link that gains load, in percent: 75 in the paper. If the link that flows leave
    /// is fuller than this plus the margin, the limit is that link's utilisation less the margin.
    #[serde(alias = "most_percent")]
    pub max_percent: u32,
    /// Minimum difference between the utilisation of the link that flows leave and of the fullest link that gains
    /// load, in percentage points. It prevents flows from oscillating.
    pub margin_percent: u32,
    /// Number of single next hops that are tried, those with the most free bandwidth first.
    pub tries: usize,
}

impl Default for MoveRules {
    fn default() -> Self {
        Self { max_percent: 75, margin_percent: 5, tries: 64 }
    }
}

/// A move that satisfies the rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The router whose route changes.
    pub router: RouterId,
    /// The destination, a /32 or /128.
    pub prefix: Prefix,
    /// The new next hops of the destination, in order.
    pub members: Vec<Member>,
    /// The congested link that the flows leave.
    pub from: LinkId,
    /// All flows that move with their rates in bits per second, the suspect first.
    pub flows: Vec<(Flow, u64)>,
    /// The load that these flows put now on each link from the router on, in bits per second.
    pub losses: Vec<(LinkId, u64)>,
    /// The expected change of load of each link that gains or loses, in bits per second.
    pub changes: Vec<(LinkId, i64)>,
    /// The utilisation of the link that flows leave, in thousandths of its capacity.
    pub before: u32,
    /// The expected utilisation of the fullest link that gains load, in thousandths.
    pub after: u32,
    /// The decrease of the sum over links of their squared utilisation, in squared thousandths. Moves are compared
    /// by this value.
    pub relief: i64,
    /// The reason in words and numbers.
    pub reason: String,
}

/// The reason why no move was found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoMove {
    /// No flow of the link was suspected.
    #[error("no flow is suspected")]
    NoSuspect,
    /// No flow of the link was in enough samples.
    #[error("no flow was sampled in enough windows, so none is suspected")]
    TooFewSamples,
    /// The flow does not pass the router.
    #[error("{flow} does not cross {router}")]
    Elsewhere {
        /// The flow.
        flow: Flow,
        /// The router's name.
        router: String,
    },
    /// The router has no other way to the destination.
    #[error("{router} has no other next hop for {prefix}")]
    NoOtherHop {
        /// The router's name.
        router: String,
        /// The destination.
        prefix: Prefix,
    },
    /// Every router that could move the flow refused moves lately.
    #[error("every router on the path of {flow} gets no moves after refusals")]
    LeftAlone {
        /// The flow.
        flow: Flow,
    },
    /// The destination's flows are being moved.
    #[error("{prefix} is being moved or was moved recently, by move {id}")]
    DestinationMoves {
        /// The destination.
        prefix: Prefix,
        /// The move's number.
        id: u64,
    },
    /// The flow is being moved.
    #[error("{flow} is being moved or was moved recently")]
    FlowMoves {
        /// The flow.
        flow: Flow,
    },
    /// No set of next hops satisfies the rules; the text counts them by what they break.
    #[error("{0}")]
    Rules(String),
}

/// A set of next hops with its predicted effect.
struct Candidate {
    members: Vec<Member>,
    changes: BTreeMap<LinkId, i64>,
    after: u32,
    fullest: LinkId,
    relief: i64,
}

impl Candidate {
    /// Returns the load that leaves a link, in bits per second.
    fn load_removed(&self, link: LinkId) -> u64 {
        self.changes.get(&link).map_or(0, |&change| change.saturating_neg().max(0).unsigned_abs())
    }

    fn crosses(&self, fabric: &Fabric, routers: &BTreeSet<RouterId>) -> bool {
        let gaining = self.changes.iter().filter(|(_, change)| **change > 0);
        let mut from = gaining.map(|(&link, _)| fabric.from(link));
        from.any(|end| matches!(end, End::Router(router) if routers.contains(&router)))
    }
}

/// The flows that shall leave a link.
#[derive(Clone, Copy, Debug)]
pub struct MoveQuery<'a> {
    /// The router whose route may change.
    pub router: RouterId,
    /// The link that the flows shall leave, at or behind that router.
    pub from: LinkId,
    /// All flows of the router to the suspect's destination, the suspect first.
    pub flows: &'a [Suspect],
    /// Routers through which no flow may come, because their routes are not known yet.
    pub in_change: &'a BTreeSet<RouterId>,
}

/// Finds the best next hops that the query's router can have for the query's flows. `is_barred` returns `true` for
/// next hops of a router and a destination that may not be tried.
///
/// # Errors
/// Returns [`NoMove`] with the reason if no candidate satisfies the rules.
pub fn decide<L: Loads + ?Sized>(
    fabric: &Fabric,
    loads: &L,
    query: &MoveQuery<'_>,
    is_barred: impl Fn(&str, Prefix, &[Member]) -> bool,
    rules: &MoveRules,
) -> Result<Decision, NoMove> {
    let MoveQuery { router, from, flows, in_change } = *query;
    let suspect = flows.first().ok_or(NoMove::NoSuspect)?;
    let prefix = Prefix::host(suspect.flow.dst());
    let name = fabric.router(router).name.as_str();
    let paths: Vec<Path> =
        flows.iter().map(|flow| fabric.path_from(flow.start, &flow.flow)).collect();
    let losses = losses(fabric, router, flows, &paths);
    let before = per_mille(loads.load(from).unwrap_or(0), fabric, from);
    let taken = paths[0].links().iter().find(|link| fabric.from(**link) == End::Router(router));
    let Some(&taken) = taken else {
        return Err(NoMove::Elsewhere { flow: suspect.flow, router: name.into() });
    };
    let next_hops = next_hops(fabric, loads, router, prefix, taken);
    if next_hops.is_empty() {
        return Err(NoMove::NoOtherHop { router: name.into(), prefix });
    }
    // Flows may leave a link at 100 percent even if the emptiest other link would be at 80.
    let limit = (rules.max_percent * 10).max(before.saturating_sub(rules.margin_percent * 10));
    let mut refused = Refusals::default();
    let mut best: Option<Candidate> = None;
    let moved = Moved { router, flows, losses: &losses };
    for members in candidates(&next_hops, flows.len(), rules.tries) {
        if is_barred(name, prefix, &members) {
            refused.barred += 1;
            continue;
        }
        let Some(candidate) = follow(fabric, loads, &moved, members, &mut refused) else {
            continue;
        };
        if candidate.after > limit {
            refused.full += 1;
        } else if candidate.crosses(fabric, in_change) {
            refused.in_change += 1;
        } else if candidate.load_removed(from) < (suspect.rate / 2).max(1) {
            refused.useless += 1;
        } else if candidate.after + rules.margin_percent * 10 > before {
            refused.margin += 1;
        } else if best.as_ref().is_none_or(|best| candidate.relief > best.relief) {
            best = Some(candidate);
        }
    }
    let Some(best) = best else {
        return Err(NoMove::Rules(refused.describe(fabric, flows, from, before, rules)));
    };
    let reason = reason(fabric, from, flows, &best, before);
    Ok(Decision {
        router,
        prefix,
        members: best.members,
        from,
        flows: flows.iter().map(|flow| (flow.flow, flow.rate)).collect(),
        losses: losses.into_iter().collect(),
        changes: best.changes.into_iter().collect(),
        before,
        after: best.after,
        relief: best.relief,
        reason,
    })
}

/// Returns the next hops of the destination's unsteered route that are up, except `from`, with their free bandwidth
/// in bits per second, the largest first.
fn next_hops<L: Loads + ?Sized>(
    fabric: &Fabric,
    loads: &L,
    router: RouterId,
    prefix: Prefix,
    from: LinkId,
) -> Vec<(u64, LinkId, Member)> {
    let installed = fabric.router(router);
    let serves = |route: &&Route| !route.steered && route.to.contains(prefix.first());
    let route = installed.routes.iter().filter(serves).max_by_key(|route| route.to.len());
    let Some(Route { via: Target::Group(name), .. }) = route else { return Vec::new() };
    let group = installed.groups.iter().find(|group| group.name == *name);
    let mut found: Vec<(u64, LinkId, Member)> = Vec::new();
    for member in group.into_iter().flat_map(|group| &group.members) {
        let Some(link) = fabric.link_of_port(router, &member.port) else { continue };
        let is_up = fabric.port_of(link).is_some_and(|(_, port)| port.state == PortState::Up);
        let known = found.iter().any(|(_, other, _)| *other == link);
        if link == from || known || member.unreachable || !is_up || !fabric.passes(link) {
            continue;
        }
        let Some(load) = loads.load(link) else { continue };
        let free = fabric.rate(link).as_bps().saturating_sub(load);
        found.push((free, link, Member { weight: 1, ..member.clone() }));
    }
    found.sort_by_key(|&(free, link, _)| (core::cmp::Reverse(free), link));
    found
}

/// Returns each next hop alone and, for several flows, the first two, four, … and all of them.
fn candidates(
    next_hops: &[(u64, LinkId, Member)],
    flows: usize,
    tries: usize,
) -> impl Iterator<Item = Vec<Member>> + '_ {
    let several = flows.min(next_hops.len());
    let doubled = core::iter::successors(Some(2), |count| Some(count * 2));
    let sizes = doubled.take_while(move |&count| count < several);
    let sizes = sizes.chain((several > 1).then_some(next_hops.len()));
    let alone = next_hops.iter().take(tries).map(|(_, _, member)| alloc::vec![member.clone()]);
    alone.chain(sizes.map(|count| next_hops[..count].iter().map(|it| it.2.clone()).collect()))
}

/// Returns the load that flows put on each link from the router on, in bits per second, on their present paths.
fn losses(
    fabric: &Fabric,
    router: RouterId,
    flows: &[Suspect],
    paths: &[Path],
) -> BTreeMap<LinkId, u64> {
    let mut losses: BTreeMap<LinkId, u64> = BTreeMap::new();
    for (flow, path) in flows.iter().zip(paths) {
        let links = path.links().iter();
        for &link in links.skip_while(|link| fabric.from(**link) != End::Router(router)) {
            let sum = losses.entry(link).or_default();
            *sum = sum.saturating_add(flow.rate);
        }
    }
    losses
}

/// Returns losses as negative changes of load.
pub(crate) fn negated(losses: impl Iterator<Item = (LinkId, u64)>) -> BTreeMap<LinkId, i64> {
    losses.map(|(link, rate)| (link, -i64::try_from(rate).unwrap_or(i64::MAX))).collect()
}

/// The flows of a move at a router, with the load that they put on each link now.
struct Moved<'a> {
    router: RouterId,
    flows: &'a [Suspect],
    losses: &'a BTreeMap<LinkId, u64>,
}

/// Follows all flows through a candidate. Returns `None` if a flow would not arrive, the load of a link that gains is not
/// known, or the flows' bursts and those that are reserved would overload it.
fn follow<L: Loads + ?Sized>(
    fabric: &Fabric,
    loads: &L,
    moved: &Moved<'_>,
    members: Vec<Member>,
    refused: &mut Refusals,
) -> Option<Candidate> {
    let Moved { router, flows, losses } = *moved;
    let mut changes = negated(losses.iter().map(|(&link, &rate)| (link, rate)));
    let choose = fabric.chooser(router, &members)?;
    let (mut moved, mut arrive) = (flows.iter(), true);
    // By link, the load that comes while the flows are sent.
    let mut peaks: BTreeMap<LinkId, u64> = BTreeMap::new();
    let starts = flows.iter().map(|it| (Start::Link(choose.link(fabric, &it.flow)), &it.flow));
    fabric.paths(starts, |new| {
        let flow = moved.next().expect("a path a flow");
        let rate = i64::try_from(flow.rate).unwrap_or(i64::MAX);
        arrive &= new.arrives();
        for &link in new.links() {
            let peak = peaks.entry(link).or_default();
            *peak = peak.saturating_add(flow.peak);
            let change = changes.entry(link).or_default();
            *change = change.saturating_add(rate);
        }
    });
    if !arrive {
        refused.broken += 1;
        return None;
    }
    changes.retain(|_, change| *change != 0);
    let coincides = |(link, change): (&LinkId, &i64)| {
        let reserved = loads.reserved(*link);
        let sum = reserved.saturating_add(peaks.get(link).copied().unwrap_or(0));
        *change > 0 && reserved > 0 && sum > fabric.rate(*link).as_bps()
    };
    if changes.iter().any(coincides) {
        refused.coinciding += 1;
        return None;
    }
    let (mut worst, mut relief) = ((0, LinkId(0)), 0);
    for (&link, &change) in &changes {
        let Some(load) = loads.load(link) else {
            if change < 0 {
                continue;
            }
            refused.unknown += 1;
            return None;
        };
        let [before, after] =
            [load, load.saturating_add_signed(change)].map(|load| per_mille(load, fabric, link));
        relief += square(before) - square(after);
        if change > 0 {
            worst = worst.max((after, link));
        }
    }
    let (after, fullest) = worst;
    Some(Candidate { members, changes, after, fullest, relief })
}

/// Returns the square of a utilisation, which is limited to a hundred times the capacity.
fn square(per_mille: u32) -> i64 {
    i64::from(per_mille.min(100_000)).pow(2)
}

/// Counts of refused candidates, by reason.
#[derive(Default)]
struct Refusals {
    barred: usize,
    full: usize,
    useless: usize,
    margin: usize,
    broken: usize,
    unknown: usize,
    in_change: usize,
    coinciding: usize,
}

impl Refusals {
    fn describe(
        &self,
        fabric: &Fabric,
        flows: &[Suspect],
        from: LinkId,
        before: u32,
        rules: &MoveRules,
    ) -> String {
        let mut words = format!(
            "{} with {} others cannot leave {} ({} full)",
            flows[0].flow,
            flows.len() - 1,
            fabric.name(from),
            Percent(before),
        );
        for (count, why) in [
            (self.full, "would fill a link beyond the limit"),
            (self.margin, "do not lower the fullest link by the margin"),
            (self.useless, "take too little off the link"),
            (self.broken, "do not lead to the destination"),
            (self.unknown, "cross links of unknown load"),
            (self.barred, "were tried recently"),
            (self.in_change, "lead through routers whose routes to it are being changed"),
            (self.coinciding, "cross links that are reserved for bursts at the same time"),
        ] {
            if count > 0 {
                words.push_str(&format!("; {count} sets of next hops {why}"));
            }
        }
        words.push_str(&format!(" (limit {} %)", rules.max_percent));
        words
    }
}

fn reason(
    fabric: &Fabric,
    from: LinkId,
    flows: &[Suspect],
    best: &Candidate,
    before: u32,
) -> String {
    let rate: u64 = flows.iter().map(|flow| flow.rate).sum();
    let ports: Vec<&str> = best.members.iter().map(|member| member.port.as_str()).collect();
    format!(
        "{} is {} full; {} ({} Mbps ± {} %) and {} other flows to {}, {} Mbps in all, go by {}: \
         the fullest link that gets more is then {}, {} full",
        fabric.name(from),
        Percent(before),
        flows[0].flow,
        flows[0].rate / 1_000_000,
        flows[0].error_percent,
        flows.len() - 1,
        flows[0].flow.dst(),
        rate / 1_000_000,
        ports.join(", "),
        fabric.name(best.fullest),
        Percent(best.after),
    )
}

struct Percent(u32);

impl core::fmt::Display for Percent {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(out, "{}.{} %", self.0 / 10, self.0 % 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::installed::Installed;

    const TWO_BY_TWO: &str = include_str!("../tests/golden/installed/two-by-two.toml");

    /// Decides for a flow of 30 Gb/s on the first of two uplinks of 100 Gb/s, which carry `s0` and `s1` Gb/s.
    fn decided(s0: u64, s1: u64) -> Result<u32, String> {
        decided_beside(s0, s1, RATE, 0)
    }

    /// The rate of the flow in bits per second.
    const RATE: u64 = 30_000_000_000;

    /// Loads with the same load reserved on all links while the moved flow is sent.
    struct Reserving(Vec<u64>, u64);

    impl Loads for Reserving {
        fn load(&self, link: LinkId) -> Option<u64> {
            self.0[..].load(link)
        }

        fn reserved(&self, _link: LinkId) -> u64 {
            self.1
        }
    }

    /// Decides as `decided`, for a flow that is sent at `peak` bits per second in bursts, while `reserved` Gb/s are reserved.
    fn decided_beside(s0: u64, s1: u64, peak: u64, reserved: u64) -> Result<u32, String> {
        let fabric = Fabric::new(toml::from_str::<Installed>(TWO_BY_TWO).unwrap()).unwrap();
        let uplink = |port| fabric.link_of_port(RouterId(0), port).unwrap();
        let flow = |port: u16| -> Flow { format!("10.1.0.2:{port}>10.2.0.2").parse().unwrap() };
        let over_s0 = |flow: &Flow| fabric.path(flow).links()[1] == uplink("s0");
        let flow = (49_152..).map(flow).find(over_s0).unwrap();
        let start = Start::Link(fabric.path(&flow).links()[0]);
        let suspect = Suspect { flow, start, rate: RATE, peak, error_percent: 5, windows: 6 };
        let mut loads = alloc::vec![0; fabric.links()];
        loads[uplink("s0").index()] = s0 * 1_000_000_000;
        loads[uplink("s1").index()] = s1 * 1_000_000_000;
        let (from, flows, in_change) = (uplink("s0"), &[suspect], &BTreeSet::new());
        let query = MoveQuery { router: RouterId(0), from, flows, in_change };
        let rules = MoveRules::default();
        let loads = Reserving(loads, reserved * 1_000_000_000);
        let found = decide(&fabric, &loads, &query, |_, _, _| false, &rules);
        found.map(|decision| decision.after).map_err(|none| alloc::format!("{none}"))
    }

    #[test]
    fn a_link_may_become_three_quarters_full_or_less_full_than_the_other_by_the_margin() {
        assert_eq!(decided(90, 40), Ok(700));
        // A link may exceed 75 percent only if the link that flows leave is fuller still.
        assert_eq!(decided(100, 55), Ok(850));
        assert_eq!(decided(100, 65), Ok(950));
        for (s0, s1) in [(100, 66), (84, 50), (75, 41)] {
            let why = decided(s0, s1).unwrap_err();
            let margin = "do not lower the fullest link by the margin";
            let full = "would fill a link beyond the limit";
            assert!(why.contains(full) || why.contains(margin), "{s0} {s1}: {why}");
        }
    }

    #[test]
    fn a_flow_that_is_sent_in_bursts_does_not_move_to_bursts_that_coincide() {
        // 30 Gb/s on average are 60 Gb/s in bursts, beside which a link of 100 Gb/s has room for 40.
        assert_eq!(decided_beside(90, 40, 2 * RATE, 40), Ok(700));
        let why = decided_beside(90, 40, 2 * RATE, 41).unwrap_err();
        assert!(why.contains("reserved for bursts at the same time"), "{why}");
    }
}
