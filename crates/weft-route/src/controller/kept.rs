//! The loads beside which flows are planned again: those of all flows that keep their ports.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use weft_units::Instant;

use super::Controller;
use super::reserve::Reservations;
use crate::fabric::LinkId;

/// The flows that keep their ports, and those that have been planned again so far.
pub(super) struct Kept {
    /// By link, the measured load without that of jobs that have begun, in bits per second.
    others: Vec<u64>,
    /// By link, the announced load of jobs without bursts, in bits per second.
    steady: Vec<u64>,
    /// The links reserved for jobs with bursts.
    reservations: Reservations,
}

impl Kept {
    /// Adds the flows of a job by which the loads of links have grown.
    pub(super) fn add(&mut self, name: &str, before: &[u64], after: &[u64]) {
        let links = (0..).map(LinkId).zip(after.iter().zip(before));
        let grown = links.map(|(link, (after, before))| (link, after.saturating_sub(*before)));
        let grown = grown.filter(|&(_, rate)| rate > 0);
        if !self.reservations.add_flows(name, grown.clone()) {
            grown.for_each(|(link, rate)| {
                let steady = &mut self.steady[link.index()];
                *steady = steady.saturating_add(rate);
            });
        }
    }
}

impl Controller {
    /// Returns what links carry without moved flows, which are in order of their indices.
    pub(super) fn kept(&self, moved: &BTreeMap<String, Vec<usize>>, now: Instant) -> Kept {
        let mut others = self.carried_loads(self.telemetry.index(now));
        let coming = self.coming(None, now);
        for link in coming.links() {
            others[link.index()] = others[link.index()].saturating_sub(coming.mean(link));
        }
        let mut steady = vec![0u64; others.len()];
        for (name, job) in &self.jobs {
            if job.begun && self.reservations.bursts(name).is_none() {
                self.each_link(job, |link, rate| {
                    others[link.index()] = others[link.index()].saturating_sub(rate);
                });
            }
            if job.bursts.is_none() {
                self.each_link_without(job, &moved[name], |link, rate| {
                    steady[link.index()] = steady[link.index()].saturating_add(rate);
                });
            }
        }
        Kept { others, steady, reservations: self.reservations_without(moved) }
    }

    /// Returns the load to expect on each link while a job sends, in bits per second: of jobs with bursts, those that coincide
    /// with its own.
    pub(super) fn loads_beside(&self, kept: &Kept, name: &str, now: Instant) -> Vec<u64> {
        let coming = self.coming_of(&kept.reservations, now);
        let coming = coming.during(kept.reservations.bursts(name));
        let mut loads = kept.others.clone();
        for link in coming.links() {
            loads[link.index()] = coming.beside(link, loads[link.index()]);
        }
        let steady = loads.iter().zip(&kept.steady);
        steady.map(|(load, steady)| load.saturating_add(*steady)).collect()
    }
}
