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
use crate::path::{Outcome, Path, Start};

/// The search for a job's ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortSearch {
    /// The ports that flows may have.
    pub entropy: Entropy,
    /// Number of ports drawn for each flow.
    pub tries: usize,
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
        let mut loads = self.loads_without(name, index);
        let (flows, (full, link)) = self.choose(pairs, search, seed, &mut loads)?;
        let ports: Vec<u16> = flows.iter().map(|it| it.flow.ports().0).collect();
        let kept = pairs.iter().zip(&ports).filter(|(pair, port)| pair.port == Some(**port));
        let kept = kept.count();
        let text = format!(
            "{name}: {} flows planned, {kept} with the ports they had; {} is then {} per mille full",
            ports.len(),
            self.fabric.name(link),
            full
        );
        self.keep_job(name, flows, full, index, now);
        self.emit(EventKind::Job, Subject::default(), text, now);
        Ok(Announced { ports, kept, fullest: (link, full) })
    }

    fn keep_job(
        &mut self,
        name: &str,
        mut flows: Vec<JobFlow>,
        fullest: u32,
        index: u64,
        now: Instant,
    ) {
        flows.sort_unstable_by_key(|it| it.flow);
        // A job that is planned again while it runs stays a running job.
        let begun = self.jobs.get(name).is_some_and(|before| before.begun);
        let (announced, seen) = (now.as_nanos(), Some(index));
        self.jobs.insert(name.to_owned(), Job { announced, begun, fullest, flows, seen });
    }

    /// Chooses a port for each flow, adds the flow to the loads, and returns the flows and the fullest link of their
    /// paths.
    fn choose(
        &self,
        pairs: &[Pair],
        PortSearch { entropy, tries }: PortSearch,
        seed: Seed,
        loads: &mut [u64],
    ) -> Result<(Vec<JobFlow>, (u32, LinkId)), JobError> {
        let mut rng = seed.child("announce", 0).rng();
        let limit = self.config.moves.max_percent * 10;
        let mut chosen = Vec::with_capacity(pairs.len());
        let mut fullest = (0, LinkId(0));
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
                    let outcome = format!("{}", self.fabric.outcome(paths[0].outcome));
                    return Err(JobError::NoWay { flow, outcome });
                };
                for &link in path.links() {
                    let load = &mut loads[link.index()];
                    *load = load.saturating_add(pair.rate.as_bps());
                    fullest = fullest.max((per_mille(*load, &self.fabric, link), link));
                }
                chosen.push(JobFlow { flow: flow_of_path, cable: *cable, rate: pair.rate });
            }
        }
        Ok((chosen, fullest))
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

    /// Returns the utilisation of a path's fullest link with `rate` more, and the sum over its links. Links that are
    /// the same for every port do not count: the first, and the last if the host has one cable.
    fn cost(&self, path: &Path, rate: u64, loads: &[u64]) -> (u32, u32) {
        let Outcome::Delivered(host) = path.outcome else { return (u32::MAX, u32::MAX) };
        let last = path.links().len() - usize::from(self.fabric.links_of_host(host).len() == 1);
        let inner = path.links().get(1..last).unwrap_or(&[]);
        let full = inner
            .iter()
            .map(|&link| per_mille(loads[link.index()].saturating_add(rate), &self.fabric, link));
        full.fold((0, 0u32), |(fullest, sum), full| (fullest.max(full), sum.saturating_add(full)))
    }

    /// Returns the load to expect on each link without the job `name`, in bits per second: at least the measured load
    /// plus that of jobs that have not begun, and at least the sum of all jobs, because a job may pause.
    fn loads_without(&self, name: &str, index: u64) -> Vec<u64> {
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
        let before = self.jobs.get(name).filter(|job| job.begun);
        before.into_iter().for_each(|job| {
            self.each_link(job, |link, rate| {
                carried[link.index()] = carried[link.index()].saturating_sub(rate);
            });
        });
        let mut promised = vec![0u64; carried.len()];
        for (_, job) in self.jobs.iter().filter(|(other, _)| *other != name) {
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

    /// Calls `each` for every link of every flow of a job on its present path, with the flow's rate.
    fn each_link(&self, job: &Job, mut each: impl FnMut(LinkId, u64)) {
        let known = || job.flows.iter().filter_map(|it| Some((it, self.start_of(it)?)));
        let mut rates = known().map(|(it, _)| it.rate.as_bps());
        self.fabric.paths(known().map(|(it, start)| (start, &it.flow)), |path| {
            let rate = rates.next().expect("a path a flow");
            path.links().iter().for_each(|&link| each(link, rate));
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
