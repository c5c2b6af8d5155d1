//! A new job says what it will send, and gets source ports whose paths are the least busy.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use weft_plan::ports::{Entropy, least_busy};
use weft_units::{Instant, Seed, prefetch};

use super::job::MOST_FLOWS;
use super::{Controller, Job, JobError, JobFlow, Pair, What};
use crate::fabric::LinkId;
use crate::flow::Flow;
use crate::loads::per_mille;
use crate::path::{Outcome, Path, Start};

/// What was planned for a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announced {
    /// A source port for each flow, in the order in which they were given.
    pub ports: Vec<u16>,
    /// How many of them had been planned before.
    pub kept: usize,
    /// The fullest link of the job's paths, and how full it will be, in thousandths.
    pub fullest: (LinkId, u32),
}

/// Flows that are tried at a time: each with eight ports fills the lanes in which paths are followed more than once.
const TOGETHER: usize = 4;

/// What is tried for some flows.
#[derive(Default)]
struct Tried {
    /// By flow, the cable of its sender, and which of those below are tried.
    senders: Vec<(u32, Range<usize>)>,
    flows: Vec<(Start, Flow)>,
    paths: Vec<Path>,
}

impl Tried {
    fn clear(&mut self) {
        self.senders.clear();
        self.flows.clear();
        self.paths.clear();
    }

    /// Adds a flow with the port that it has and those that were drawn for it.
    fn add(
        &mut self,
        pair: &Pair,
        (cable, start): (u32, Start),
        drawn: impl Iterator<Item = u16>,
        entropy: Entropy,
    ) {
        let before = self.flows.len();
        let to = (pair.dst, entropy.destination_port);
        let ports = pair.port.into_iter().chain(drawn);
        let flows = ports.filter_map(|it| Flow::new((pair.src, it), to, entropy.protocol));
        self.flows.extend(flows.map(|flow| (start, flow)));
        self.senders.push((cable, before..self.flows.len()));
    }
}

impl Controller {
    /// Source ports for a job's flows, by weft-plan's search for the least busy path among `tries`, on top of what links
    /// are to carry already and of the job's flows before them. A job of the same name is taken for this one as it was
    /// before, and no longer counts.
    ///
    /// # Errors
    /// What is wrong with the job, or the first flow that cannot be sent; then nothing has changed.
    pub fn announce(
        &mut self,
        name: &str,
        pairs: &[Pair],
        (entropy, tries): (Entropy, usize),
        seed: Seed,
        now: Instant,
    ) -> Result<Announced, JobError> {
        Job::check_name(name)?;
        let others = self.jobs.iter().filter(|(other, _)| *other != name);
        let others: usize = others.map(|(_, job)| job.flows.len()).sum();
        match pairs.len() {
            0 => return Err(JobError::Empty),
            flows if flows + others > MOST_FLOWS => {
                return Err(JobError::TooMany { flows, others });
            }
            _ => {}
        }
        let index = self.telemetry.index(now);
        self.watch_jobs(index, now);
        let mut loads = self.loads_without(name, index);
        let (flows, (full, link)) = self.choose(pairs, (entropy, tries), seed, &mut loads)?;
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
        self.say(What::Job, "", "", None, text, now);
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
        // One that is planned anew while it runs goes on.
        let begun = self.jobs.get(name).is_some_and(|before| before.begun);
        let (announced, seen) = (now.as_nanos(), Some(index));
        self.jobs.insert(name.to_owned(), Job { announced, begun, fullest, flows, seen });
    }

    /// A port for each flow, which is added to the loads; and the fullest link of their paths.
    fn choose(
        &self,
        pairs: &[Pair],
        (entropy, tries): (Entropy, usize),
        seed: Seed,
        loads: &mut [u64],
    ) -> Result<(Vec<JobFlow>, (u32, LinkId)), JobError> {
        let mut rng = seed.child("announce", 0).rng();
        let limit = self.config.moves.most_percent * 10;
        let mut chosen = Vec::with_capacity(pairs.len());
        let mut fullest = (0, LinkId(0));
        let mut tried = Tried::default();
        for (first, some) in (0..).step_by(TOGETHER).zip(pairs.chunks(TOGETHER)) {
            tried.clear();
            for (flow, pair) in (first..).zip(some) {
                if pair.src.is_ipv4() != pair.dst.is_ipv4() {
                    return Err(JobError::Families { flow, pair: *pair });
                }
                let (cable, start) = self.sender(flow, pair)?;
                let drawn = entropy.candidates(&mut rng).take(tries.max(1));
                tried.add(pair, (cable, start), drawn, entropy);
            }
            self.follow(&mut tried, loads);
            for ((flow, pair), (cable, these)) in (first..).zip(some).zip(&tried.senders) {
                let paths = &tried.paths[these.clone()];
                let arriving = paths.iter().zip(&tried.flows[these.clone()]);
                let arriving = arriving.filter(|(path, _)| path.arrives());
                let cost = |path: &Path| self.cost(path, pair.rate.as_bps(), loads);
                let found = least_busy(arriving.map(|it| (cost(it.0), it)), limit);
                let Some((path, &(_, of))) = found else {
                    let outcome = format!("{}", self.fabric.outcome(paths[0].outcome));
                    return Err(JobError::NoWay { flow, outcome });
                };
                for &link in path.links() {
                    let load = &mut loads[link.index()];
                    *load = load.saturating_add(pair.rate.as_bps());
                    fullest = fullest.max((per_mille(*load, &self.fabric, link), link));
                }
                chosen.push(JobFlow { flow: of, cable: *cable, rate: pair.rate });
            }
        }
        Ok((chosen, fullest))
    }

    /// Follows all that is tried, though the first may do: together they take little longer than it alone.
    fn follow(&self, tried: &mut Tried, loads: &[u64]) {
        self.fabric.paths(tried.flows.iter().map(|(start, flow)| (*start, flow)), |path| {
            path.links().iter().for_each(|&link| {
                prefetch(&loads[link.index()]);
                self.fabric.fetch_rate(link);
            });
            tried.paths.push(*path);
        });
    }

    /// How full a path's fullest link would be with so much more, and all of its links together. Cables that are the same
    /// whatever the port do not count: the first, and the last to a host that has one.
    fn cost(&self, path: &Path, rate: u64, loads: &[u64]) -> (u32, u32) {
        let Outcome::Delivered(host) = path.outcome else { return (u32::MAX, u32::MAX) };
        let last = path.links().len() - usize::from(self.fabric.links_of_host(host).len() == 1);
        let inner = path.links().get(1..last).unwrap_or(&[]);
        let full = inner
            .iter()
            .map(|&link| per_mille(loads[link.index()].saturating_add(rate), &self.fabric, link));
        full.fold((0, 0u32), |(most, sum), full| (most.max(full), sum.saturating_add(full)))
    }

    /// What each link is to be counted on to carry without one job, in bits a second: at least what was measured and what
    /// jobs will add that have not begun, and at least what all jobs send together, for those may pause.
    fn loads_without(&self, name: &str, index: u64) -> Vec<u64> {
        let mut carried = vec![0u64; self.fabric.links()];
        for link in self.telemetry.ports() {
            // The last window may still be waiting for reports.
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

    /// Every link of every flow of a job as it goes now, with the flow's rate.
    fn each_link(&self, job: &Job, mut each: impl FnMut(LinkId, u64)) {
        let known = || job.flows.iter().filter_map(|it| Some((it, self.start_of(it)?)));
        let mut rates = known().map(|(it, _)| it.rate.as_bps());
        self.fabric.paths(known().map(|(it, start)| (start, &it.flow)), |path| {
            let rate = rates.next().expect("a path a flow");
            path.links().iter().for_each(|&link| each(link, rate));
        });
    }

    /// By which of its cables a flow's sender sends, and where its path begins.
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
