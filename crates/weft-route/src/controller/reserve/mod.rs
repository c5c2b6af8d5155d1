//! Reservations: links are planned on what periodic jobs will send in their coming bursts (Astral, section 4: within an
//! iteration, resources are reserved for the next one).
//!
//! A window shows what a link carried on average. A job whose iteration has a pause in that window is missing from it, and
//! two jobs that never send at the same time seem to need the sum of their rates. So the mean of a reserved job is taken
//! from the measured load, and the greatest sum of bursts that coincide is added.

#[cfg(test)]
mod tests;

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use weft_units::{Duration, Instant};

use super::{Controller, EventKind, Job, Subject};
use crate::bursts::Bursts;
use crate::fabric::{End, LinkId};
use crate::flow::Flow;
use crate::suspects::Sample;

/// Maximum number of jobs whose traffic is recorded: those with the most flows.
const MAX_RECORDED: usize = 256;

/// The reserved jobs and their rates on each link.
#[derive(Clone, Debug, Default)]
pub(super) struct Reservations {
    /// In order of their names.
    jobs: Vec<(String, Bursts)>,
    /// By link, the index of each job that crosses it, with its rate in bits per second during bursts.
    links: BTreeMap<LinkId, Vec<(usize, u64)>>,
    /// By link, the greatest sum of coinciding bursts in bits per second.
    peaks: BTreeMap<LinkId, u64>,
}

impl Reservations {
    fn place(&self, name: &str) -> Option<usize> {
        self.jobs.binary_search_by(|(job, _)| job.as_str().cmp(name)).ok()
    }

    /// Adds the rate of flows of the job at a place to what it reserves on a link.
    fn add(&mut self, link: LinkId, place: usize, rate: u64) {
        let shares = self.links.entry(link).or_default();
        // Jobs are mostly added one after the other.
        match shares.iter_mut().rev().find(|(job, _)| *job == place) {
            Some((_, sum)) => *sum = sum.saturating_add(rate),
            None => shares.push((place, rate)),
        }
    }

    /// Adds flows of a job, by the rate of each on a link. Returns `false`, and adds none, if the job has no bursts.
    pub(super) fn add_flows(
        &mut self,
        name: &str,
        rates: impl Iterator<Item = (LinkId, u64)>,
    ) -> bool {
        let Some(place) = self.place(name) else { return false };
        rates.for_each(|(link, rate)| self.add(link, place, rate));
        true
    }

    /// Returns the bursts of a reserved job.
    pub(super) fn bursts(&self, name: &str) -> Option<Bursts> {
        Some(self.jobs[self.place(name)?].1)
    }

    /// Returns `true` if jobs have reserved a link, and none of them sends between two times.
    pub(super) fn pause(&self, link: LinkId, from: Instant, until: Instant) -> bool {
        let active = |&(job, _): &(usize, u64)| self.jobs[job].1.active(from, until);
        let shares = self.links.get(&link);
        shares.is_some_and(|shares| shares.iter().all(|it| active(it) == Duration::ZERO))
    }

    /// Ends the reservation of a job that has ended or has other ports.
    pub(super) fn release(&mut self, name: &str) {
        let Some(released) = self.place(name) else { return };
        self.jobs.remove(released);
        self.links.retain(|link, shares| {
            shares.retain(|&(job, _)| job != released);
            let later = shares.iter_mut().filter(|(job, _)| *job > released);
            later.for_each(|(job, _)| *job -= 1);
            let sum = shares.iter().fold(0u64, |sum, (_, rate)| sum.saturating_add(*rate));
            self.peaks.entry(*link).and_modify(|peak| *peak = (*peak).min(sum));
            !shares.is_empty()
        });
    }
}

/// A view of the reservations for a plan made at one time.
#[derive(Clone, Copy)]
pub(super) struct Coming<'a> {
    reservations: &'a Reservations,
    /// A job whose bursts do not count, because it is planned.
    without: Option<usize>,
    /// The bursts of the flows that are planned; `None` if these may be sent at any time.
    during: Option<Bursts>,
    /// The planned time.
    span: (Instant, Instant),
    /// The window whose measured loads the plan starts from.
    measured: (Instant, Instant),
}

impl Coming<'_> {
    /// Returns the same view for flows that are sent in these bursts.
    pub(super) fn during(self, during: Option<Bursts>) -> Self {
        Self { during, ..self }
    }

    /// Returns a link's measured load without the reserved jobs, and with their greatest coinciding bursts, in bits per
    /// second.
    pub(super) fn expected(&self, link: LinkId, measured: u64) -> u64 {
        self.beside(link, measured.saturating_sub(self.mean(link)))
    }

    /// Returns the load of a link with the greatest coinciding bursts beside the mean rate of other traffic, in bits per
    /// second. Traffic that is not reserved counts as if it were sent in bursts like those of the planned flows: beside
    /// bursts, a mean would make it look small.
    pub(super) fn beside(&self, link: LinkId, others: u64) -> u64 {
        let others = u128::from(others);
        let others = self.during.map_or(others, |it| {
            others * u128::from(it.period.as_nanos()) / u128::from(it.length.as_nanos().max(1))
        });
        u64::try_from(others).unwrap_or(u64::MAX).saturating_add(self.peak(link))
    }

    /// Returns the greatest sum of the rates of bursts that coincide on a link while the planned flows are sent.
    pub(super) fn peak(&self, link: LinkId) -> u64 {
        let (from, until) = self.span;
        let shares = || {
            let shares = self.reservations.links.get(&link).into_iter().flatten();
            let counted = shares.filter(|(job, _)| Some(*job) != self.without);
            counted.map(|&(job, rate)| (self.reservations.jobs[job].1, rate))
        };
        // The sum grows only where a burst starts, of the planned flows too.
        let starts = shares().map(|(bursts, _)| bursts).chain(self.during);
        let starts = starts
            .flat_map(|bursts| bursts.starts(from, until).map(move |start| start - bursts.jitter));
        let is_planned = |at: Instant| self.during.is_none_or(|bursts| bursts.covers(at));
        let at_once = |at: Instant| -> u64 {
            let active = shares().filter(|(bursts, _)| bursts.covers(at));
            active.fold(0, |sum, (_, rate)| sum.saturating_add(rate))
        };
        starts.chain([from]).filter(|&at| is_planned(at)).map(at_once).max().unwrap_or(0)
    }

    /// Returns the mean rate of the reserved jobs on a link in the measured window.
    pub(super) fn mean(&self, link: LinkId) -> u64 {
        let (from, until) = self.measured;
        let window = u128::from(until.since(from).as_nanos().max(1));
        let mean = |(bursts, rate): (Bursts, u64)| {
            u128::from(rate) * u128::from(bursts.active(from, until).as_nanos()) / window
        };
        let shares = self.reservations.links.get(&link).into_iter().flatten();
        let means = shares.map(|&(job, rate)| mean((self.reservations.jobs[job].1, rate)));
        u64::try_from(means.sum::<u128>()).unwrap_or(u64::MAX)
    }

    /// Returns the links with reservations.
    pub(super) fn links(&self) -> impl Iterator<Item = LinkId> + '_ {
        self.reservations.links.keys().copied()
    }
}

impl Controller {
    /// Returns the greatest load of coinciding bursts that is reserved on a link, in bits per second.
    pub fn reserved(&self, link: LinkId) -> u64 {
        self.reservations.peaks.get(&link).copied().unwrap_or(0)
    }

    /// Returns the view of the reservations for plans made now on the loads of the last window, without the job `name`
    /// and for flows that are sent in its bursts.
    pub(super) fn coming(&self, name: Option<&str>, now: Instant) -> Coming<'_> {
        let coming = self.coming_of(&self.reservations, now);
        let during = name.and_then(|name| self.reservations.bursts(name));
        Coming { without: name.and_then(|name| self.reservations.place(name)), ..coming }
            .during(during)
    }

    /// Returns the same view of other reservations, with all their jobs, for flows that may be sent at any time.
    pub(super) fn coming_of<'a>(&self, reservations: &'a Reservations, now: Instant) -> Coming<'a> {
        let window = self.config.alarm.window;
        let index = self.telemetry.index(now);
        let start = Instant::from_nanos(index.saturating_mul(window.as_nanos()));
        Coming {
            reservations,
            without: None,
            during: None,
            span: (now, now + self.config.reservations.horizon),
            measured: (start - window, start),
        }
    }

    /// Returns the recorded job of a flow.
    fn job_of(&self, flow: &Flow) -> Option<&str> {
        let has = |name: &&String| {
            let flows = self.jobs.get(*name).map_or(&[][..], |job| &job.flows);
            flows.binary_search_by(|it| it.flow.cmp(flow)).is_ok()
        };
        self.recorded.iter().find(has).map(String::as_str)
    }

    /// Returns the bursts of a flow's job, and the rate at which the flow is sent during these in bits per second; `None`
    /// for a flow that is not reserved.
    pub(super) fn bursts_of(&self, flow: &Flow) -> Option<(Bursts, u64)> {
        let name = self.job_of(flow)?;
        let flows = &self.jobs[name].flows;
        let place = flows.binary_search_by(|it| it.flow.cmp(flow)).ok()?;
        Some((self.reservations.bursts(name)?, flows[place].rate.as_bps()))
    }

    /// Adds sampled packets to the traffic of their job. They are counted where they enter the fabric, once.
    pub(super) fn record_traffic(&mut self, sample: &Sample) {
        if !self.config.reservations.reserves() || !self.enters(sample) {
            return;
        }
        let Some(name) = self.job_of(&sample.flow).map(ToOwned::to_owned) else { return };
        let bytes = u64::from(sample.bytes) * u64::from(sample.rate);
        let job = self.jobs.get_mut(&name).expect("its flow was found");
        job.traffic.record(sample.at, bytes, &self.config.reservations);
    }

    /// Returns `true` if the router that sampled packets has them from a host. Agents that sample packets at the port by which
    /// they leave, as Weft's does, do not know the other: then it is the router behind the sender.
    fn enters(&self, sample: &Sample) -> bool {
        if let Some(input) = sample.input {
            return matches!(self.fabric.from(input), End::Host(_));
        }
        let sender = self.fabric.host(sample.flow.src());
        let cables = sender.map_or(&[][..], |host| self.fabric.links_of_host(host));
        cables.iter().any(|&cable| self.fabric.to(cable) == self.fabric.from(sample.link))
    }

    /// Reserves links for the known bursts of jobs that take the place of others. Their peaks are known after the next
    /// window.
    pub(super) fn reserve_known(&mut self) {
        self.reservations = self.reservations_without(&BTreeMap::new());
    }

    /// Finds the bursts of jobs after the window `index`, and reserves links for them.
    pub(super) fn reserve(&mut self, index: u64, now: Instant) {
        if !self.config.reservations.reserves() {
            return;
        }
        self.record_largest();
        let end = (index + 1).saturating_mul(self.config.alarm.window.as_nanos());
        for name in self.recorded.clone() {
            let job = self.jobs.get_mut(&name).expect("it was just recorded");
            let (until, rules) = (Instant::from_nanos(end), &self.config.reservations);
            // A controller that has just taken the job over from another does not know its traffic for long enough.
            let is_new = |it: &Bursts| !job.traffic.is_known_for(it.period * 3, until, rules);
            let found = job.traffic.find(until, rules).or_else(|| job.bursts.filter(is_new));
            let before = core::mem::replace(&mut job.bursts, found);
            if let Some(text) = change(before, found) {
                self.emit(EventKind::Job, Subject::default(), format!("{name} {text}"), now);
            }
        }
        self.reserve_links(now);
    }

    /// Selects the jobs whose traffic is recorded, and discards the traffic of all others.
    fn record_largest(&mut self) {
        let mut names: Vec<(usize, &String)> =
            self.jobs.iter().map(|(name, job)| (job.flows.len(), name)).collect();
        names.sort_unstable_by(|a, b| b.cmp(a));
        let others: Vec<String> = names
            .split_off(names.len().min(MAX_RECORDED))
            .into_iter()
            .map(|it| it.1.clone())
            .collect();
        self.recorded = names.into_iter().map(|(_, name)| name.clone()).collect();
        for name in others {
            let job = self.jobs.get_mut(&name).expect("its name was found");
            (job.traffic, job.bursts) = Default::default();
        }
    }

    /// Reserves links for jobs with bursts, by the present paths of their flows.
    fn reserve_links(&mut self, now: Instant) {
        self.reservations = self.reservations_without(&BTreeMap::new());
        let coming = self.coming(None, now);
        let peaks = coming.links().map(|link| (link, coming.peak(link))).collect();
        self.reservations.peaks = peaks;
    }

    /// Returns the reserved rates of links by the present paths of jobs with bursts, without the flows of these indices, which
    /// are in order.
    pub(super) fn reservations_without(
        &self,
        flows: &BTreeMap<String, Vec<usize>>,
    ) -> Reservations {
        let mut reservations = Reservations::default();
        for (name, job) in &self.jobs {
            let Some(bursts) = job.bursts else { continue };
            let place = reservations.jobs.len();
            reservations.jobs.push((name.clone(), bursts));
            let without = flows.get(name).map_or(&[][..], Vec::as_slice);
            self.each_link_without(job, without, |link, rate| reservations.add(link, place, rate));
        }
        reservations
    }

    /// Plans flows again whose links would be overloaded by coinciding bursts: of one job at a time, because its new
    /// paths change what others find, and of the same job again after the time for which moved flows stay.
    pub(super) fn separate_bursts(&mut self, now: Instant) {
        let is_due = |job: &Job| job.separate_from <= now.as_nanos();
        let names = self.reservations.jobs.iter().map(|(name, _)| name);
        let due: Vec<String> =
            names.filter(|name| self.jobs.get(*name).is_some_and(is_due)).cloned().collect();
        for name in due {
            let (overloaded, mut loads) = self.overloaded(&name, now);
            if overloaded.is_empty() {
                continue;
            }
            let why =
                format!("{} flows coincide with other bursts on full links", overloaded.len());
            let version = self.jobs[&name].version;
            let text = self.replan_job(&name, &overloaded, &why, &mut loads);
            let job = self.jobs.get_mut(&name).expect("its name was found");
            job.separate_from = (now + self.config.hold).as_nanos();
            if job.version != version {
                self.emit(EventKind::Job, Subject::default(), text.unwrap_or_default(), now);
                return;
            }
        }
    }

    /// Returns the flows of a job to plan again, so that no link that depends on a port is overloaded during the job's
    /// bursts, and the loads of links without these flows.
    fn overloaded(&self, name: &str, now: Instant) -> (Vec<usize>, Vec<u64>) {
        const FULL: u32 = 1000;
        let job = &self.jobs[name];
        let mut loads = self.loads_without(name, now);
        self.each_link(job, |link, rate| {
            loads[link.index()] = loads[link.index()].saturating_add(rate);
        });
        let mut overloaded = Vec::new();
        self.each_path(&job.flows, |flow, path| {
            if self.cost(path, 0, &loads).0 > FULL {
                overloaded.push(flow);
                let rate = job.flows[flow].rate.as_bps();
                for &link in path.links() {
                    loads[link.index()] = loads[link.index()].saturating_sub(rate);
                }
            }
        });
        (overloaded, loads)
    }
}

/// Returns a change of a job's bursts in words; `None` if they are about the same.
fn change(before: Option<Bursts>, found: Option<Bursts>) -> Option<String> {
    let is_near = |a: Duration, b: Duration| a.abs_diff(b) <= a / 10;
    match (before, found) {
        (Some(before), Some(found)) if is_near(before.period, found.period) => None,
        (_, Some(Bursts { period, length, .. })) => Some(format!(
            "sends for {length} of every {period}; its links are reserved for that time"
        )),
        (Some(_), None) => Some("is not periodic any more; its reservations end".into()),
        (None, None) => None,
    }
}
