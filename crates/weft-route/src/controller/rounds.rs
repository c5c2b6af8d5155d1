//! Rounds of moves: for each alarmed port, moves of its heaviest flows until the alarm ends.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use weft_units::Instant;

use super::moved::{Barred, have_same_ports};
use super::{Action, Controller, Episode, Estimate, EventKind, Move, Stage, Subject};
use crate::alarm::Level;
use crate::fabric::{End, LinkId, RouterId};
use crate::flow::Flow;
use crate::installed::{Member, Prefix};
use crate::loads::{Loads, per_mille};
use crate::moves::{Decision, MoveQuery, NoMove, decide};
use crate::path::{Path, Start};
use crate::suspects::Suspect;

/// The routers and flows that another move for one destination must not change. Moves of other routers and flows may
/// run.
#[derive(Default)]
struct Excluded<'a> {
    /// Routers whose route changed recently, or that are about to get flows, with the number of the move.
    routers: BTreeMap<RouterId, u64>,
    /// Routers that have not yet confirmed a change by their tables.
    in_change: BTreeSet<RouterId>,
    /// Flows that were moved.
    flows: BTreeSet<&'a Flow>,
}

impl Controller {
    /// Decides moves for every port with a medium or high alarm.
    pub(super) fn plan_rounds(&mut self, index: u64, now: Instant) {
        if self.epoch.is_none() {
            return;
        }
        let mut ports: Vec<_> = self
            .alarms
            .raised()
            .iter()
            .filter(|(_, alarm)| alarm.level >= Level::Medium && alarm.window == index)
            .map(|(&link, alarm)| (core::cmp::Reverse((alarm.level, alarm.marks)), link))
            .collect();
        ports.sort_unstable();
        let mut expected = self.expected(index);
        for (_, link) in ports {
            self.plan_round(link, index, &mut expected, now);
        }
    }

    /// Decides moves for one port, on top of the `expected` changes of earlier moves.
    fn plan_round(
        &mut self,
        link: LinkId,
        index: u64,
        expected: &mut BTreeMap<LinkId, i64>,
        now: Instant,
    ) {
        let (router, port) = self.port_name(link);
        let is_busy = |it: &Move| it.is_open() && it.port_of == router && it.port == port;
        if self.moves.values().any(is_busy) {
            return;
        }
        let rounds = self
            .episodes
            .entry(link)
            .or_insert_with(|| Episode { link, ..Episode::default() })
            .rounds;
        if rounds >= self.config.rounds {
            let text =
                format!("the alarm lasts after {rounds} rounds of moves; no more moves are made");
            self.emit_once(link, EventKind::GaveUp, text, now);
            return;
        }
        let (mut moved, mut failed, mut why) = (0, 0, None);
        for suspect in self.suspects.top(link, index, &self.fabric) {
            let bursts = self.bursts_of(&suspect.flow).map(|(bursts, _)| bursts);
            let coming = bursts.map(|it| self.coming(None, now).during(Some(it)));
            let loads = Estimate { telemetry: &self.telemetry, index, expected, coming };
            let load = per_mille(loads.load(link).unwrap_or(0), &self.fabric, link);
            let is_enough = moved > 0 && load <= self.config.moves.max_percent * 10;
            if is_enough || moved == self.config.per_round || failed == self.config.per_round {
                break;
            }
            match self.find_move(link, &suspect, &loads, now) {
                Ok(decision) => {
                    for &(link, change) in &decision.changes {
                        let sum = expected.entry(link).or_default();
                        *sum = sum.saturating_add(change);
                    }
                    self.begin(decision, index, now);
                    moved += 1;
                }
                Err(no_move) => {
                    failed += 1;
                    why = why.or(Some(no_move));
                }
            }
        }
        if moved > 0 {
            let episode = self.episodes.entry(link).or_default();
            episode.rounds = episode.rounds.saturating_add(1);
        } else {
            let why = why.unwrap_or(NoMove::TooFewSamples);
            self.emit_once(link, EventKind::NoMove, format!("{why}"), now);
        }
    }

    fn find_move(
        &self,
        link: LinkId,
        suspect: &Suspect,
        loads: &Estimate<'_>,
        now: Instant,
    ) -> Result<Decision, NoMove> {
        let prefix = Prefix::host(suspect.flow.dst());
        let excluded = self.excluded(prefix, now);
        // The paper moves flows at the leaf of their source, where all flows from it to the destination move at once.
        // Routers behind the leaf, up to the alarmed one, have fewer of them: of four that a leaf sends, a spine has
        // one.
        let path = self.path_over(suspect, link);
        let path = path.unwrap_or_else(|| self.fabric.path_from(suspect.start, &suspect.flow));
        let (mut best, mut why): (Option<Decision>, _) = (None, None);
        for &[before, after] in path.links().array_windows() {
            if let End::Router(router) = self.fabric.from(after)
                && !self.is_left_alone(&self.fabric.router(router).name, now)
            {
                let suspect = Suspect { start: Start::Link(before), ..*suspect };
                match self.find_move_at(router, link, suspect, loads, &excluded) {
                    Ok(found) if best.as_ref().is_some_and(|it| it.relief >= found.relief) => {}
                    Ok(found) => best = Some(found),
                    Err(no_move) => why = why.or(Some(no_move)),
                }
            }
            if after == link {
                break;
            }
        }
        best.ok_or_else(|| why.unwrap_or(NoMove::LeftAlone { flow: suspect.flow }))
    }

    fn excluded(&self, prefix: Prefix, now: Instant) -> Excluded<'_> {
        let mut excluded = Excluded::default();
        for it in self.moves.values().filter(|it| it.prefix == prefix) {
            let Some(router) = self.fabric.find(&it.router) else { continue };
            if it.is_open() || self.is_held(it, now) {
                excluded.routers.insert(router, it.id);
                excluded.flows.extend(it.flows.iter().map(|(flow, _)| flow));
            }
            if it.is_open() && !matches!(it.stage, Stage::Verifying { .. }) {
                excluded.in_change.insert(router);
                let gaining = it.changes.iter().filter(|(_, _, change)| *change > 0);
                let through = gaining.filter_map(|(name, _, _)| self.fabric.find(name));
                excluded.routers.extend(through.map(|router| (router, it.id)));
            }
        }
        excluded
    }

    fn find_move_at(
        &self,
        router: RouterId,
        link: LinkId,
        suspect: Suspect,
        loads: &Estimate<'_>,
        excluded: &Excluded<'_>,
    ) -> Result<Decision, NoMove> {
        let prefix = Prefix::host(suspect.flow.dst());
        if let Some(id) = excluded.routers.get(&router) {
            return Err(NoMove::DestinationMoves { prefix, id: *id });
        }
        let (destination, links) = (suspect.flow.dst(), self.fabric.links_of(router));
        let mut flows = alloc::vec![suspect];
        let mut all = self.suspects.to_destination(links, destination, loads.index, &self.fabric);
        // Add flows that only the alarmed port sampled, if they come through this router.
        let behind = self.suspects.to_destination(
            [link].into_iter(),
            destination,
            loads.index,
            &self.fabric,
        );
        all.extend(behind.into_iter().filter_map(|other| self.through(router, link, other)));
        all.sort_unstable_by_key(|other| (other.flow, core::cmp::Reverse(other.rate)));
        all.dedup_by_key(|other| other.flow);
        flows.extend(all.into_iter().filter(|other| other.flow != suspect.flow));
        // The samples' rate is a mean that includes the pauses between bursts.
        for it in &mut flows {
            it.peak = self.bursts_of(&it.flow).map_or(it.rate, |(_, rate)| rate.max(it.rate));
        }
        if let Some(it) = flows.iter().find(|it| excluded.flows.contains(&it.flow)) {
            return Err(NoMove::FlowMoves { flow: it.flow });
        }
        let is_barred = |router: &str, prefix, members: &[Member]| {
            let same = |it: &Barred| {
                it.router == router && it.prefix == prefix && have_same_ports(&it.members, members)
            };
            self.barred.iter().any(same)
        };
        let query = MoveQuery { router, from: link, flows: &flows, in_change: &excluded.in_change };
        decide(&self.fabric, loads, &query, is_barred, &self.config.moves)
    }

    /// Returns the flow as `router` receives it, if it crosses that router on its way to `link`.
    fn through(&self, router: RouterId, link: LinkId, flow: Suspect) -> Option<Suspect> {
        let path = self.path_over(&flow, link)?;
        let at = path.links().iter().position(|&it| self.fabric.to(it) == End::Router(router))?;
        Some(Suspect { start: Start::Link(path.links()[at]), ..flow })
    }

    /// Returns the path of a flow that was sampled on `link`. The input link determines the cable on which its host
    /// sends: with `link` alone, a cable that the flow does not use would often match.
    fn path_over(&self, flow: &Suspect, link: LinkId) -> Option<Path> {
        match flow.start {
            Start::Link(input) => self.fabric.path_over(&flow.flow, &[input, link]),
            Start::Router(_) => self.fabric.path_over(&flow.flow, &[link]),
        }
    }

    fn is_left_alone(&self, router: &str, now: Instant) -> bool {
        self.refusals.get(router).is_some_and(|&(_, until)| until > now.as_nanos())
    }

    fn is_held(&self, it: &Move, now: Instant) -> bool {
        now.since(Instant::from_nanos(it.decided)) < self.config.hold && !it.flows.is_empty()
    }

    /// Returns the changes of load that the window does not show yet, in bits per second.
    pub(super) fn expected(&self, index: u64) -> BTreeMap<LinkId, i64> {
        let mut expected: BTreeMap<LinkId, i64> = BTreeMap::new();
        for it in self.moves.values() {
            let is_measured = match it.stage {
                Stage::Applying { .. } | Stage::Reading { .. } => false,
                Stage::Verifying { window } => window < index,
                Stage::Kept | Stage::Undoing { .. } => true,
            };
            if is_measured {
                continue;
            }
            for (router, port, change) in &it.changes {
                if let Some(link) = self.link(router, port) {
                    let sum = expected.entry(link).or_default();
                    *sum = sum.saturating_add(*change);
                }
            }
        }
        expected
    }

    fn begin(&mut self, decision: Decision, index: u64, now: Instant) {
        let Some(epoch) = self.epoch else { return };
        let router = self.fabric.router(decision.router).name.clone();
        let (port_of, port) = self.port_name(decision.from);
        let id = self.next_id;
        self.next_id = self.next_id.saturating_add(1);
        let key = (router.clone(), decision.prefix);
        let previous = self.moves.get(&key).map(|before| before.members.clone());
        let named = |&(link, change): &(LinkId, i64)| {
            let (router, port) = self.port_name(link);
            (router, port, change)
        };
        let changes = decision.changes.iter().map(named).collect();
        let losses = decision.losses.iter().map(|&(link, rate)| {
            let (router, port) = self.port_name(link);
            (router, port, rate)
        });
        let losses = losses.collect();
        let members = decision.members.clone();
        self.actions.push_back(Action::Apply {
            id,
            epoch,
            router: router.clone(),
            prefix: decision.prefix,
            members,
        });
        self.emit(EventKind::Move, Subject::of_move(&router, id), decision.reason.clone(), now);
        let it = Move {
            id,
            router,
            prefix: decision.prefix,
            members: decision.members,
            previous,
            port,
            port_of,
            flows: decision.flows,
            losses,
            reason: decision.reason,
            decided: now.as_nanos(),
            stage: Stage::Applying { since: now.as_nanos() },
            tries: 0,
            again: 0,
            before: decision.before,
            carried: None,
            changes,
            seen: index,
        };
        self.moves.insert(key, it);
    }

    /// Ends a move that a router refused; the route stays as before. After three refusals the router gets no moves for
    /// a while.
    pub(super) fn refused(&mut self, key: &(String, Prefix), why: &dyn fmt::Display, now: Instant) {
        let Some(it) = self.moves.remove(key) else { return };
        let count = self.refusals.get(&key.0).map_or(1, |&(count, _)| count.saturating_add(1));
        let until = if count >= 3 { (now + self.config.bar).as_nanos() } else { 0 };
        self.refusals.insert(key.0.clone(), (count, until));
        let text = format!("refuses {} by {}: {why}", key.1, ports(&it.members));
        self.emit(EventKind::Refused, Subject::of_move(&key.0, it.id), text, now);
        self.bar(&it, now);
        if let Some(members) = it.previous.clone() {
            self.moves
                .insert(key.clone(), Move { members, previous: None, stage: Stage::Kept, ..it });
        }
    }

    pub(super) fn bar(&mut self, it: &Move, now: Instant) {
        self.barred.push(Barred {
            router: it.router.clone(),
            prefix: it.prefix,
            members: it.members.clone(),
            until: (now + self.config.bar).as_nanos(),
        });
    }

    fn emit_once(&mut self, link: LinkId, kind: EventKind, text: String, now: Instant) {
        let (router, port) = self.port_name(link);
        let episode = self.episodes.entry(link).or_default();
        if episode.last_text != text {
            episode.last_text.clone_from(&text);
            self.emit(kind, Subject { router, port, id: None }, text, now);
        }
    }
}

pub(super) fn ports(members: &[Member]) -> String {
    let ports: Vec<&str> = members.iter().map(|member| member.port.as_str()).collect();
    ports.join(", ")
}
