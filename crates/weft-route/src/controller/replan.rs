//! Ports for flows whose paths have changed or lose packets. A port that fails or comes back makes routers choose other
//! next hops, for the flows that crossed it and, where a group hashes by number, for others too; probes find links that
//! lose packets without a change of tables. Those flows get ports again.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::net::IpAddr;

use weft_plan::ports::Entropy;
use weft_units::{Instant, Seed};

use super::announce::Choice;
use super::{Controller, EventKind, Job, JobFlow, Pair, PortSearch, Subject};
use crate::fabric::LinkId;
use crate::loads::per_mille;
use crate::path::{Path, Start};

/// The route of a flow that does not arrive.
const NO_ROUTE: u64 = 0;

/// Returns a number for the links of a path, by which two paths are compared (the hash FNV-1a of their numbers).
fn route(path: &Path) -> u64 {
    if !path.arrives() {
        return NO_ROUTE;
    }
    let add = |hash: u64, link: &LinkId| (hash ^ u64::from(link.0)).wrapping_mul(0x100_0000_01b3);
    path.links().iter().fold(0xcbf2_9ce4_8422_2325, add).max(NO_ROUTE + 1)
}

impl Controller {
    /// Plans flows of jobs again after tables or avoided links have changed.
    pub(super) fn replan_jobs(&mut self, now: Instant) {
        if !core::mem::take(&mut self.are_jobs_stale) {
            return;
        }
        let all = self.jobs.iter().map(|(name, job)| (name.clone(), self.moved_flows(job)));
        let moved: BTreeMap<String, Vec<usize>> = all.collect();
        // After a restart the routes are not known yet.
        let changed = |(name, moved): &(&String, &Vec<usize>)| {
            !moved.is_empty() || self.jobs[*name].routes.is_empty()
        };
        let changed: Vec<&String> = moved.iter().filter(changed).map(|(name, _)| name).collect();
        if changed.is_empty() {
            return;
        }
        let mut kept = self.kept(&moved, now);
        for name in changed {
            let moved = &moved[name];
            let why = format!("the paths of {} flows have changed or lose packets", moved.len());
            let before = self.loads_beside(&kept, name, now);
            let mut loads = before.clone();
            let text = self.replan_job(name, moved, &why, &mut loads);
            kept.add(name, &before, &loads);
            if let Some(text) = text.filter(|_| !moved.is_empty()) {
                self.emit(EventKind::Job, Subject::default(), text, now);
            }
        }
    }

    /// Plans flows of a job again, given the loads without them; `why` is the reason in words. Returns what it did in words;
    /// `None` if it could not.
    pub(super) fn replan_job(
        &mut self,
        name: &str,
        moved: &[usize],
        why: &str,
        loads: &mut [u64],
    ) -> Option<String> {
        let job = &self.jobs[name];
        let pairs: Vec<Pair> = moved.iter().map(|&flow| self.pair(&job.flows[flow])).collect();
        let search = PortSearch::of(entropy(&job.flows), pairs.len());
        // The flows were planned before, so that none of them is invalid.
        let Choice { flows: chosen, .. } =
            self.choose(&pairs, search, Seed(job.plan()), loads).ok()?;
        let mut flows = job.flows.clone();
        let (mut changed, mut lost) = (0, 0);
        for (&place, chosen) in moved.iter().zip(chosen) {
            match chosen {
                Some(chosen) => {
                    changed += usize::from(chosen.flow != flows[place].flow);
                    flows[place] = chosen;
                }
                None => lost += 1,
            }
        }
        flows.sort_unstable_by_key(|it| it.flow);
        let (routes, (fullest, link)) = self.routes(&flows, loads);
        let text = format!(
            "{name}: {why}; {changed} get other ports, {lost} have no way; {} is then {fullest} per mille full",
            self.fabric.name(link)
        );
        let job = self.jobs.get_mut(name).expect("its name was found");
        (job.flows, job.routes, job.fullest) = (flows, routes, fullest);
        if changed > 0 {
            job.version = job.version.saturating_add(1);
            self.reservations.release(name);
        }
        Some(text)
    }

    /// Returns the indices of the flows that do not arrive, lose packets, or take another route than the planned one.
    /// Flows that the controller itself steers onto another route stay there.
    fn moved_flows(&self, Job { flows, routes: planned, .. }: &Job) -> Vec<usize> {
        let steered: BTreeSet<IpAddr> = self.moves.values().map(|it| it.prefix.first()).collect();
        let mut moved = Vec::new();
        self.each_path(flows, |flow, path| {
            let route = route(path);
            let differs = planned.get(flow).is_some_and(|planned| *planned != route);
            let differs = differs && !steered.contains(&flows[flow].flow.dst());
            if !self.ends_unread(path) && (route == NO_ROUTE || differs || self.is_avoided(path)) {
                moved.push(flow);
            }
        });
        moved
    }

    /// Returns the route of each flow, and the utilisation in thousandths and the link that is the fullest of their paths.
    pub(super) fn routes(&self, flows: &[JobFlow], loads: &[u64]) -> (Vec<u64>, (u32, LinkId)) {
        let mut routes = vec![NO_ROUTE; flows.len()];
        let mut fullest = (0, LinkId(0));
        self.each_path(flows, |flow, path| {
            routes[flow] = route(path);
            for &link in path.links() {
                fullest = fullest.max((per_mille(loads[link.index()], &self.fabric, link), link));
            }
        });
        (routes, fullest)
    }

    fn pair(&self, it: &JobFlow) -> Pair {
        let first = self.start_of(it).and_then(|start| match start {
            Start::Link(link) => Some(link),
            Start::Router(_) => None,
        });
        let (src, dst) = (it.flow.src(), it.flow.dst());
        Pair { src, first, dst, rate: it.rate, port: Some(it.flow.ports().0) }
    }
}

/// Returns the header fields that a job's flows have in common.
fn entropy(flows: &[JobFlow]) -> Entropy {
    let defaults = Entropy::default();
    flows.first().map_or(defaults, |it| Entropy {
        destination_port: it.flow.ports().1,
        protocol: it.flow.protocol(),
        ..defaults
    })
}
