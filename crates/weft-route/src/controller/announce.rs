//! The announcement of a new job: it gets source ports whose paths are the least busy.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use core::net::SocketAddr;
use core::ops::Range;

use weft_plan::ports::{Entropy, least_busy};
use weft_units::{Instant, Seed, prefetch};

use super::job::MAX_FLOWS;
use super::{Controller, EventKind, Job, JobError, JobFlow, Pair, Subject};
use crate::fabric::LinkId;
use crate::flow::Flow;
use crate::loads::per_mille;
use crate::path::{Path, Start};

/// The search for a job's ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortSearch {
    /// The ports that flows may have.
    pub entropy: Entropy,
    /// Number of ports drawn for each flow.
    pub tries: usize,
}

impl PortSearch {
    /// Returns the search for a job of this many flows: many ports for each flow of a small job and few for a large one,
    /// because planning blocks the controller.
    pub fn of(entropy: Entropy, flows: usize) -> Self {
        const TRIES_PER_FLOW: core::ops::RangeInclusive<usize> = 8..=64;
        const MAX_TRIES_PER_JOB: usize = 1 << 20;
        let share = MAX_TRIES_PER_JOB / flows.max(1);
        Self { entropy, tries: share.clamp(*TRIES_PER_FLOW.start(), *TRIES_PER_FLOW.end()) }
    }
}

/// The ports chosen for some flows.
pub(super) struct Choice {
    /// The flows; none for a flow that arrives from no port that was tried.
    pub(super) flows: Vec<Option<JobFlow>>,
    /// The fault of the first flow without a port.
    pub(super) fault: Option<JobError>,
}

/// The ports planned for a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announced {
    /// The source port of each flow, in the order in which the flows were given.
    pub ports: Vec<u16>,
    /// Number of flows that keep the port planned before.
    pub kept: usize,
    /// The fullest link of the job's paths, and its expected utilisation in thousandths.
    pub fullest: (LinkId, u32),
}

/// Number of flows planned at a time: with eight ports each, they fill the lanes of a path lookup more than once.
const FLOWS_AT_A_TIME: usize = 4;

/// The candidates of some flows.
#[derive(Default)]
struct Candidates {
    /// By flow, the cable of its sender, and the range of its candidates in `flows` and `paths`.
    senders: Vec<(u32, Range<usize>)>,
    flows: Vec<(Start, Flow)>,
    paths: Vec<Path>,
}

impl Candidates {
    fn clear(&mut self) {
        self.senders.clear();
        self.flows.clear();
        self.paths.clear();
    }

    /// Adds a flow with its present port and those drawn for it.
    fn add(
        &mut self,
        pair: &Pair,
        (cable, start): (u32, Start),
        drawn: impl Iterator<Item = u16>,
        entropy: Entropy,
    ) {
        let before = self.flows.len();
        let to = SocketAddr::new(pair.dst, entropy.destination_port);
        let ports = pair.port.into_iter().chain(drawn);
        let from = ports.map(|port| SocketAddr::new(pair.src, port));
        let flows = from.filter_map(|from| Flow::new(from, to, entropy.protocol));
        self.flows.extend(flows.map(|flow| (start, flow)));
        self.senders.push((cable, before..self.flows.len()));
    }
}

impl Controller {
    /// Plans source ports for a job's flows. For each flow it draws ports and takes the first whose path is not too
    /// full, or else the least busy ([`least_busy`]), given the load expected on links and the job's flows planned so
    /// far. A job of the same name is replaced, and its earlier load does not count.
    ///
    /// # Errors
    /// Returns the fault of the job, or the first flow that cannot be sent; then nothing has changed.
    pub fn announce(
        &mut self,
        name: &str,
        pairs: &[Pair],
        search: PortSearch,
        seed: Seed,
        now: Instant,
    ) -> Result<Announced, JobError> {
        Job::check_name(name)?;
        let others = self.jobs.iter().filter(|(other, _)| *other != name);
        let others: usize = others.map(|(_, job)| job.flows.len()).sum();
        match pairs.len() {
            0 => return Err(JobError::Empty),
            flows if flows + others > MAX_FLOWS => {
                return Err(JobError::TooMany { flows, others });
            }
            _ => {}
        }
        let index = self.telemetry.index(now);
        self.watch_jobs(index, now);
        let mut loads = self.loads_without(name, now);
        let Choice { flows, fault } = self.choose(pairs, search, seed, &mut loads)?;
        let flows: Vec<JobFlow> = match fault {
            Some(fault) => return Err(fault),
            None => flows.into_iter().flatten().collect(),
        };
        let (routes, (full, link)) = self.routes(&flows, &loads);
        let ports: Vec<u16> = flows.iter().map(|it| it.flow.ports().0).collect();
        let kept = pairs.iter().zip(&ports).filter(|(pair, port)| pair.port == Some(**port));
        let kept = kept.count();
        let text = format!(
            "{name}: {} flows planned, {kept} with the ports they had; {} is then {} per mille full",
            ports.len(),
            self.fabric.name(link),
            full
        );
        self.keep_job(name, flows.into_iter().zip(routes).collect(), full, now);
        self.emit(EventKind::Job, Subject::default(), text, now);
        Ok(Announced { ports, kept, fullest: (link, full) })
    }

    /// Stores a job with its flows and their routes.
    fn keep_job(&mut self, name: &str, mut flows: Vec<(JobFlow, u64)>, fullest: u32, now: Instant) {
        flows.sort_unstable_by_key(|(it, _)| it.flow);
        let (flows, routes) = flows.into_iter().unzip();
        // A job that is planned again while it runs stays a running job, with its traffic.
        let before = self.jobs.remove(name).unwrap_or_else(|| Job { version: 0, ..Job::empty() });
        let job = Job {
            announced: now.as_nanos(),
            fullest,
            version: before.version.saturating_add(1),
            lease: None,
            flows,
            routes,
            renewed: Some(now.as_nanos()),
            seen: Some(self.telemetry.index(now)),
            ..before
        };
        self.jobs.insert(name.to_owned(), job);
        self.reservations.release(name);
    }

    /// Chooses a port for each flow and adds the flow to the loads.
    ///
    /// # Errors
    /// Returns the fault of a pair of which no flow can be made.
    pub(super) fn choose(
        &self,
        pairs: &[Pair],
        PortSearch { entropy, tries }: PortSearch,
        seed: Seed,
        loads: &mut [u64],
    ) -> Result<Choice, JobError> {
        let mut rng = seed.child("announce", 0).rng();
        let limit = self.config.moves.max_percent * 10;
        let mut choice = Choice { flows: Vec::with_capacity(pairs.len()), fault: None };
        let mut candidates = Candidates::default();
        for (first, chunk) in (0..).step_by(FLOWS_AT_A_TIME).zip(pairs.chunks(FLOWS_AT_A_TIME)) {
            candidates.clear();
            for (flow, pair) in (first..).zip(chunk) {
                if pair.src.is_ipv4() != pair.dst.is_ipv4() {
                    return Err(JobError::Families { flow, pair: *pair });
                }
                let (cable, start) = self.sender(flow, pair)?;
                let drawn = entropy.candidates(&mut rng).take(tries.max(1));
                candidates.add(pair, (cable, start), drawn, entropy);
            }
            self.follow(&mut candidates, loads);
            for ((flow, pair), (cable, range)) in (first..).zip(chunk).zip(&candidates.senders) {
                let paths = &candidates.paths[range.clone()];
                let arriving = paths.iter().zip(&candidates.flows[range.clone()]);
                let arriving = arriving.filter(|(path, _)| path.arrives());
                let cost = |path: &Path| self.cost(path, pair.rate.as_bps(), loads);
                let found = least_busy(arriving.map(|it| (cost(it.0), it)), limit);
                let Some((path, &(_, flow_of_path))) = found else {
                    choice.fault.get_or_insert_with(|| {
                        let outcome = format!("{}", self.fabric.outcome(paths[0].outcome));
                        JobError::NoWay { flow, outcome }
                    });
                    choice.flows.push(None);
                    continue;
                };
                for &link in path.links() {
                    let load = &mut loads[link.index()];
                    *load = load.saturating_add(pair.rate.as_bps());
                }
                let flow = JobFlow { flow: flow_of_path, cable: *cable, rate: pair.rate };
                choice.flows.push(Some(flow));
            }
        }
        Ok(choice)
    }

    /// Looks up the paths of all candidates, though the first may suffice: all together take little longer than one.
    fn follow(&self, candidates: &mut Candidates, loads: &[u64]) {
        self.fabric.paths(candidates.flows.iter().map(|(start, flow)| (*start, flow)), |path| {
            path.links().iter().for_each(|&link| {
                prefetch(&loads[link.index()]);
                self.fabric.prefetch_rate(link);
            });
            candidates.paths.push(*path);
        });
    }

    /// Returns the utilisation of the fullest link of a path that arrives with `rate` more, and the sum over its links. Links that are
    /// the same for every port do not count. A path over an avoided link costs more than any other.
    pub(super) fn cost(&self, path: &Path, rate: u64, loads: &[u64]) -> (u32, u32) {
        const AVOIDED: u32 = 1 << 30;
        let links = self.links_by_port(path).iter();
        let full = links
            .map(|&link| per_mille(loads[link.index()].saturating_add(rate), &self.fabric, link));
        let (fullest, sum) = full
            .fold((0, 0u32), |(fullest, sum), full| (fullest.max(full), sum.saturating_add(full)));
        let avoided = if self.is_avoided(path) { AVOIDED } else { 0 };
        (fullest.saturating_add(avoided), sum)
    }

    /// Returns the load to expect on each link without the job `name`, in bits per second: at least the measured load
    /// plus that of jobs that have not begun, and at least the sum of all jobs, because a job may pause. Of jobs with
    /// reservations, the bursts that coincide count.
    pub(super) fn loads_without(&self, name: &str, now: Instant) -> Vec<u64> {
        let mut carried = self.carried_loads(self.telemetry.index(now));
        let is_reserved = |name: &str| self.reservations.bursts(name).is_some();
        let before = self.jobs.get(name).filter(|job| job.begun && !is_reserved(name));
        before.into_iter().for_each(|job| {
            self.each_link(job, |link, rate| {
                carried[link.index()] = carried[link.index()].saturating_sub(rate);
            });
        });
        let mut promised = vec![0u64; carried.len()];
        let coming = self.coming(Some(name), now);
        for link in coming.links() {
            carried[link.index()] = coming.expected(link, carried[link.index()]);
            promised[link.index()] = coming.peak(link);
        }
        let steady = |other: &str| other != name && !is_reserved(other);
        for (_, job) in self.jobs.iter().filter(|(other, _)| steady(other)) {
            self.each_link(job, |link, rate| {
                let promise = &mut promised[link.index()];
                *promise = promise.saturating_add(rate);
                if !job.begun {
                    carried[link.index()] = carried[link.index()].saturating_add(rate);
                }
            });
        }
        carried.iter().zip(&promised).map(|(&carried, &promised)| carried.max(promised)).collect()
    }

    /// Returns the load of each link in the last window, with the changes of later moves, in bits per second.
    pub(super) fn carried_loads(&self, index: u64) -> Vec<u64> {
        let mut carried = vec![0u64; self.fabric.links()];
        for link in self.telemetry.ports() {
            // Reports of the last window may not have arrived yet.
            let window =
                (1..=2).find_map(|back| self.telemetry.window(link, index.checked_sub(back)?));
            carried[link.index()] = window.map_or(0, |it| it.rate());
        }
        for (link, change) in self.expected(index.saturating_sub(1)) {
            let load = &mut carried[link.index()];
            *load = load.saturating_add_signed(change);
        }
        carried
    }

    /// Calls `each` for every link of every flow of a job on its present path, with the flow's rate.
    pub(super) fn each_link(&self, job: &Job, each: impl FnMut(LinkId, u64)) {
        self.each_link_without(job, &[], each);
    }

    /// Does the same for all flows but those of these indices, which are in order.
    pub(super) fn each_link_without(
        &self,
        job: &Job,
        without: &[usize],
        mut each: impl FnMut(LinkId, u64),
    ) {
        self.each_path(&job.flows, |flow, path| {
            if without.binary_search(&flow).is_err() {
                let rate = job.flows[flow].rate.as_bps();
                path.links().iter().for_each(|&link| each(link, rate));
            }
        });
    }

    /// Calls `each` with the index and the present path of every flow whose sender the fabric has.
    pub(super) fn each_path(&self, flows: &[JobFlow], mut each: impl FnMut(usize, &Path)) {
        let known = || {
            let all = flows.iter().enumerate();
            all.filter_map(|(place, it)| Some((place, it, self.start_of(it)?)))
        };
        let mut places = known().map(|(place, ..)| place);
        self.fabric.paths(known().map(|(_, it, start)| (start, &it.flow)), |path| {
            each(places.next().expect("a path a flow"), path);
        });
    }

    /// Returns the cable on which a flow's sender sends, and the start of its path.
    fn sender(&self, flow: usize, pair: &Pair) -> Result<(u32, Start), JobError> {
        let host = self.fabric.host(pair.src);
        let links = host.map_or(&[][..], |host| self.fabric.links_of_host(host));
        let place = match pair.first {
            Some(first) => links.iter().position(|&link| link == first),
            None => (links.len() == 1).then_some(0),
        };
        let place = place.ok_or(JobError::Sender { flow, address: pair.src })?;
        let cable = u32::try_from(place).expect("a fabric's links have numbers of 32 bits");
        Ok((cable, Start::Link(links[place])))
    }
}
