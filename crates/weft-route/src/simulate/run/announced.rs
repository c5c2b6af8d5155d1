//! Jobs that announce themselves to the controller, which gives them their ports.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};

use weft_plan::ports::{self, Entropy};
use weft_units::{BitRate, Seed};

use super::{SimFlow, Simulation};
use crate::controller::{Pair, PortSearch};
use crate::flow::Flow;
use crate::simulate::numbers::to_f64;

/// Returns the name of a job.
fn name(job: u64) -> String {
    format!("job-{job}")
}

impl Simulation {
    /// Withdraws the jobs that have ended, and announces those that are new, each by its flows.
    pub(super) fn announce_jobs(&mut self, of_job: &[Vec<ports::Flow>]) {
        let now = self.now();
        let Some(controller) = &mut self.controller else { return };
        let running: BTreeSet<String> = self.jobs.running.iter().map(|it| name(it.id)).collect();
        let known: Vec<String> = controller.jobs().keys().cloned().collect();
        for ended in known.iter().filter(|it| !running.contains(*it)) {
            controller.withdraw(ended, now).expect("the controller has it");
        }
        for (job, flows) in self.jobs.running.iter().zip(of_job).filter(|(job, _)| job.is_planned) {
            if controller.jobs().contains_key(&name(job.id)) {
                continue;
            }
            let fabric = &self.switches.fabric;
            let mut senders: BTreeMap<weft_topo::LinkId, u64> = BTreeMap::new();
            flows.iter().for_each(|it| *senders.entry(it.first).or_default() += 1);
            let address =
                |node: weft_topo::NodeId| IpAddr::V4(Ipv4Addr::from(self.addresses[node.index()]));
            let pair = |it: &ports::Flow| {
                let first = self.first_links[&it.first];
                let share = fabric.rate(first).as_bps() / senders[&it.first];
                Pair {
                    src: address(self.topology.link(it.first).from),
                    first: Some(first),
                    dst: address(it.destination),
                    rate: BitRate::bps(share.max(1)).expect("at least one"),
                    port: None,
                }
            };
            let pairs: Vec<Pair> = flows.iter().map(pair).collect();
            let search = PortSearch::of(Entropy::default(), pairs.len());
            let seed = Seed(self.setup.seed).child("announced", job.id);
            // A job that no port reaches keeps the ports that were planned for it.
            let _ = controller.announce(&name(job.id), &pairs, search, seed, now);
        }
        self.take_ports();
    }

    /// Gives announced jobs the ports that the controller has for them now.
    pub(in crate::simulate) fn take_ports(&mut self) {
        let Some(controller) = &self.controller else { return };
        let fabric = &self.switches.fabric;
        for (number, job) in (0..).zip(&self.jobs.running) {
            let Some(announced) = controller.jobs().get(&name(job.id)) else { continue };
            self.flows.retain(|flow| flow.job != number);
            self.flows.extend(announced.flows.iter().filter_map(|it| {
                let Flow::V4(tuple) = it.flow else { return None };
                let links = fabric.links_of_host(fabric.host(it.flow.src())?);
                Some(SimFlow { tuple, first: links[it.cable as usize], job: number })
            }));
        }
    }

    /// Returns the sum of the versions of the announced jobs: it changes when the controller has planned a job again.
    pub(in crate::simulate) fn plans(&self) -> u64 {
        self.controller.iter().flat_map(|it| it.jobs().values()).map(|job| job.version).sum()
    }

    /// Returns the rate of each job's flows, by the job's number, if no other job sends.
    pub(super) fn paces_alone(&self) -> BTreeMap<u64, f64> {
        let mut senders: BTreeMap<(u32, crate::LinkId), u64> = BTreeMap::new();
        self.flows.iter().for_each(|it| *senders.entry((it.job, it.first)).or_default() += 1);
        let mut paces: BTreeMap<u64, f64> = BTreeMap::new();
        for ((job, link), flows) in senders {
            let share = self.capacity[link.index()] / to_f64(flows);
            let pace = paces.entry(self.jobs.running[job as usize].id).or_insert(f64::INFINITY);
            *pace = pace.min(share);
        }
        paces
    }
}
