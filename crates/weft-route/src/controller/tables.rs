//! The comparison of newly read tables with the moves: pending moves, changes by others, failed links.

use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use weft_units::Instant;

use super::moved::{have_same_ports, members, steered};
use super::rounds::ports;
use super::{Controller, Estimate, EventKind, Move, Stage, Subject};
use crate::fabric::{End, Fabric, LinkId};
use crate::installed::{InstalledError, PortState, Prefix, Router};
use crate::loads::{Loads, per_mille};
use crate::moves::negated;
use crate::path::{Path, Start};

/// Maximum number of times that a move is installed again after others removed it.
const MAX_REINSTALLS: u32 = 3;

impl Controller {
    /// Processes the installed state of a router.
    ///
    /// # Errors
    /// Returns the fault of the state; the last good state stays. If the router has other ports than before, the whole
    /// fabric has to be read again and passed to [`Self::handle_fabric`].
    pub fn handle_tables(&mut self, router: Router, now: Instant) -> Result<(), InstalledError> {
        let name = router.name.clone();
        let states = |router: &Router| -> Vec<PortState> {
            router.ports.iter().map(|port| port.state).collect()
        };
        let before = self.fabric.installed().router(&name).map(&states).unwrap_or_default();
        let after = states(&router);
        if self.fabric.installed().router(&name) != Some(&router) {
            self.are_jobs_stale = true;
            self.probes.on_tables_changed();
        }
        if let Err(error) = self.fabric.replace(router) {
            let text = format!("the tables that were read are not used: {error}");
            self.emit(EventKind::Drift, Subject::router(&name), text, now);
            return Err(error);
        }
        let changed: Vec<usize> =
            (0..after.len()).filter(|&place| before.get(place) != after.get(place)).collect();
        for place in changed {
            self.port_changed(&name, place, now);
        }
        let was_unread = self.unread.remove(&name);
        if self.epoch.is_some() {
            if was_unread {
                self.adopt_routes_of(&name, now);
            }
            self.compare(&name, now);
            self.undo_broken(now);
        }
        Ok(())
    }

    /// Records that the tables of these routers may be older than the moves, and those of all others are not: another
    /// controller made the moves. The moves at these routers stay as they are until [`Self::handle_tables`].
    pub fn expect_tables(&mut self, routers: BTreeSet<String>) {
        self.unread = routers;
    }

    /// Replaces the whole fabric, read again because cables or routers have changed; `silent` routers did not answer and are
    /// as known before. Port reports, samples and probes are discarded; moves stay.
    pub fn handle_fabric(&mut self, fabric: Fabric, silent: &BTreeSet<String>, now: Instant) {
        let fresh = Self::new(self.config.clone(), fabric);
        let old = core::mem::replace(self, fresh);
        self.epoch = old.epoch;
        self.moves = old.moves;
        self.next_id = old.next_id;
        self.barred = old.barred;
        self.jobs = old.jobs;
        self.are_jobs_stale = true;
        self.refusals = old.refusals;
        self.actions = old.actions;
        self.events = old.events;
        self.next_window = old.next_window;
        self.stats = old.stats;
        self.unread = old.unread.intersection(silent).cloned().collect();
        let names: Vec<String> = self.routers_with_moves();
        if self.epoch.is_some() {
            names.iter().for_each(|name| self.compare(name, now));
            self.undo_broken(now);
        }
    }

    fn routers_with_moves(&self) -> Vec<String> {
        let mut names: Vec<String> = self.moves.keys().map(|(router, _)| router.clone()).collect();
        names.dedup();
        names
    }

    /// Adopts installed steered routes that are not in its moves: from before a restart, or from another controller.
    pub(super) fn adopt(&mut self, now: Instant) {
        let names = self.fabric.installed().routers.iter().map(|router| router.name.clone());
        let read: Vec<String> = names.filter(|name| !self.unread.contains(name)).collect();
        read.iter().for_each(|name| self.adopt_routes_of(name, now));
        let names = self.routers_with_moves();
        names.iter().for_each(|name| self.compare(name, now));
        self.undo_broken(now);
    }

    fn adopt_routes_of(&mut self, name: &str, now: Instant) {
        let Some(router) = self.fabric.installed().router(name) else { return };
        let mut found = Vec::new();
        for route in router.routes.iter().filter(|route| route.steered) {
            let key = (router.name.clone(), route.to);
            if let (false, Some(members)) = (self.moves.contains_key(&key), members(router, route))
            {
                found.push((key, members.to_vec()));
            }
        }
        for ((router, prefix), members) in found {
            let id = self.next_id;
            self.next_id = self.next_id.saturating_add(1);
            let reason = format!("{prefix} by {}, found installed", ports(&members));
            self.emit(EventKind::Drift, Subject::of_move(&router, id), reason.clone(), now);
            let key = (router.clone(), prefix);
            let it = Move {
                id,
                router,
                prefix,
                members,
                previous: None,
                port: String::new(),
                port_of: String::new(),
                flows: Vec::new(),
                losses: Vec::new(),
                reason,
                decided: now.as_nanos(),
                stage: Stage::Kept,
                tries: 0,
                again: 0,
                before: 0,
                carried: None,
                changes: Vec::new(),
                seen: self.telemetry.index(now),
            };
            self.moves.insert(key, it);
        }
    }

    fn port_changed(&mut self, name: &str, place: usize, now: Instant) {
        let Some(router) = self.fabric.find(name) else { return };
        let port = &self.fabric.router(router).ports[place];
        let (port, state) = (port.name.clone(), port.state);
        let text = match state {
            PortState::Up => "the port is up",
            PortState::NoCarrier => "the port has no carrier",
            PortState::Down => "the port is down",
        };
        let subject = Subject { router: name.to_owned(), port: port.clone(), id: None };
        self.emit(EventKind::Link, subject, text.into(), now);
        if let Some(link) = self.fabric.link_of_port(router, &port) {
            self.telemetry.discard(link);
            self.alarms.discard(link);
            self.probes.discard(link);
            self.episodes.remove(&link);
        }
    }

    /// Compares a router's steered routes with those that its moves expect.
    fn compare(&mut self, name: &str, now: Instant) {
        let Some(router_id) = self.fabric.find(name) else { return };
        if self.unread.contains(name) {
            return;
        }
        let of_router: Vec<(String, Prefix)> =
            self.moves.keys().filter(|(router, _)| router == name).cloned().collect();
        for key in of_router {
            let router = self.fabric.router(router_id);
            let it = &self.moves[&key];
            let found = steered(router, key.1);
            let is_as_expected = match (it.expected(), found) {
                (Some(expected), Some(found)) => have_same_ports(expected, found),
                (None, None) => true,
                _ => false,
            };
            let is_up = it.members.iter().any(|member| {
                router
                    .ports
                    .iter()
                    .any(|port| port.name == member.port && port.state == PortState::Up)
            });
            match (&it.stage, is_as_expected) {
                // The answer is pending, or came before the table changed and will come again.
                (Stage::Applying { .. }, _) | (Stage::Verifying { .. } | Stage::Kept, true) => {}
                (Stage::Undoing { .. }, false) => {}
                (Stage::Reading { .. }, true) => self.installed(&key, now),
                (Stage::Reading { .. }, false) => {
                    self.refused(
                        &key,
                        &"it confirmed the change, but its table has another route",
                        now,
                    );
                }
                (Stage::Undoing { .. }, true) => self.undone(&key, now),
                (Stage::Verifying { .. } | Stage::Kept, false) => self.lost(&key, is_up, now),
            }
        }
    }

    /// Marks a move as installed and predicts the load of its flows by the present tables.
    fn installed(&mut self, key: &(String, Prefix), now: Instant) {
        let window = self.telemetry.index(now);
        let it = self.moves.get_mut(key).expect("its key was found");
        (it.stage, it.tries) = (Stage::Verifying { window }, 0);
        let (id, before) = (it.id, it.before);
        let text = format!("{} is installed", key.1);
        self.emit(EventKind::Applied, Subject::of_move(&key.0, id), text, now);
        // The order of members decides the paths, and the installed order may differ from the order sent. So the paths
        // are looked up again.
        let changes = self.load_changes(&self.moves[key]);
        // The base is the load at the time of the decision: routers may take a window or two to answer, and by then the
        // flows have moved.
        let decided = Instant::from_nanos(self.moves[key].decided);
        let index = self.telemetry.index(decided).saturating_sub(1);
        let no_changes = BTreeMap::new();
        let loads =
            Estimate { telemetry: &self.telemetry, index, expected: &no_changes, coming: None };
        let limit = before.max(self.config.moves.max_percent * 10);
        let gaining = changes.iter().filter(|(_, change)| **change > 0);
        let worst = gaining
            .filter_map(|(&link, &change)| {
                let load = loads.load(link)?.saturating_add_signed(change);
                Some((per_mille(load, &self.fabric, link), link))
            })
            .max();
        let named = changes.iter().map(|(&link, &change)| {
            let (router, port) = self.port_name(link);
            (router, port, change)
        });
        let named =
            named.filter(|(router, _, change)| !router.is_empty() && *change != 0).collect();
        // A route that is installed again was verified before.
        let is_new = self.moves[key].again == 0;
        self.moves.get_mut(key).expect("its key was found").changes = named;
        if is_new {
            let carried = self.carried(&self.moves[key], index);
            self.moves.get_mut(key).expect("its key was found").carried = carried;
        }
        if let Some((full, link)) = worst.filter(|&(full, _)| is_new && full > limit) {
            let why = format!("{} would be {full} per mille full", self.fabric.name(link));
            self.undo(key, why, now);
        }
    }

    /// Returns the changes of load of a move by the present tables.
    fn load_changes(&self, it: &Move) -> BTreeMap<LinkId, i64> {
        let losses = it.losses.iter();
        let losses =
            losses.filter_map(|(router, port, rate)| Some((self.link(router, port)?, *rate)));
        let mut changes = negated(losses);
        let Some(router) = self.fabric.find(&it.router) else { return changes };
        for (flow, rate) in &it.flows {
            let rate = i64::try_from(*rate).unwrap_or(i64::MAX);
            for &link in self.fabric.path_from(Start::Router(router), flow).links() {
                let change = changes.entry(link).or_default();
                *change = change.saturating_add(rate);
            }
        }
        changes
    }

    fn undone(&mut self, key: &(String, Prefix), now: Instant) {
        let Some(it) = self.moves.remove(key) else { return };
        let text = format!("{} is as it was", key.1);
        self.emit(EventKind::Undone, Subject::of_move(&key.0, it.id), text, now);
        if let Some(members) = it.previous.clone() {
            let stage = Stage::Kept;
            self.moves.insert(key.clone(), Move { members, previous: None, stage, tries: 0, ..it });
        }
    }

    /// Handles a steered route that others, or a failed link, have removed or changed.
    fn lost(&mut self, key: &(String, Prefix), is_up: bool, now: Instant) {
        let it = self.moves.get_mut(key).expect("its key was found");
        it.again = it.again.saturating_add(1);
        let id = it.id;
        if is_up && it.again <= MAX_REINSTALLS {
            it.stage = Stage::Applying { since: now.as_nanos() };
            let text = format!("{} is not installed any more; it is installed again", key.1);
            self.emit(EventKind::Drift, Subject::of_move(&key.0, id), text, now);
            self.send_change(key);
        } else {
            self.moves.remove(key);
            let text = format!("{} is not installed any more; the move is given up", key.1);
            self.emit(EventKind::Drift, Subject::of_move(&key.0, id), text, now);
        }
    }

    /// Undoes moves whose flows do not arrive by the present tables, because a link on their path is down.
    fn undo_broken(&mut self, now: Instant) {
        let broken: Vec<((String, Prefix), String)> = self
            .moves
            .iter()
            .filter(|(_, it)| matches!(it.stage, Stage::Verifying { .. } | Stage::Kept))
            .filter(|(_, it)| !self.unread.contains(&it.router))
            .filter_map(|(key, it)| Some((key.clone(), self.fault(it)?)))
            .collect();
        for (key, why) in broken {
            self.undo(&key, why, now);
        }
    }

    /// Returns `true` if a path does not arrive because the tables of a router are not known.
    pub(super) fn ends_unread(&self, path: &Path) -> bool {
        let last = path.links().last().map(|&link| self.fabric.to(link));
        let Some(End::Router(router)) = last else { return false };
        !path.arrives() && self.unread.contains(&self.fabric.router(router).name)
    }

    fn fault(&self, it: &Move) -> Option<String> {
        let router = self.fabric.find(&it.router)?;
        let paths =
            it.flows.iter().map(|(flow, _)| self.fabric.path_from(Start::Router(router), flow));
        let outcome = paths
            .filter(|path| !self.ends_unread(path))
            .map(|path| (path.arrives(), path.outcome))
            .find(|(arrives, _)| !arrives);
        let member = |port: &str| -> Option<LinkId> { self.fabric.link_of_port(router, port) };
        let is_dead = |link: LinkId| {
            !self.fabric.passes(link) || matches!(self.fabric.to(link), End::Nothing)
        };
        let dead = it.members.iter().filter_map(|it| member(&it.port)).find(|&link| is_dead(link));
        match (outcome, dead) {
            (Some((_, outcome)), _) => Some(format!("{}", self.fabric.outcome(outcome))),
            (None, Some(link)) => Some(format!("{} is down", self.fabric.name(link))),
            _ => None,
        }
    }
}
