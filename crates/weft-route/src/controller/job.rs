//! A new job says what it will send, and gets source ports whose paths are the least busy.

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::net::IpAddr;

use weft_plan::ports::{Entropy, least_busy};
use weft_units::{BitRate, Instant, Seed, prefetch};

use super::{Controller, What};
use crate::fabric::LinkId;
use crate::flow::Flow;
use crate::moves::per_mille;
use crate::path::{Path, Start};

/// One flow that a job will have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The sender's address.
    pub src: IpAddr,
    /// By which of the sender's links; none for a host that has one.
    pub first: Option<LinkId>,
    /// The receiver's address, of the same family.
    pub dst: IpAddr,
    /// What it will send in a second.
    pub rate: BitRate,
}

/// Why a job's ports cannot be planned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JobError {
    /// A sender that the fabric does not have, or that has several links.
    #[error("flow {flow}: {address} is no host of the fabric, or has several links and names none")]
    Sender {
        /// Its place in the job.
        flow: usize,
        /// The sender.
        address: IpAddr,
    },
    /// Between addresses of different families.
    #[error("flow {flow}: {} and {} are of different families", pair.src, pair.dst)]
    Families {
        /// Its place in the job.
        flow: usize,
        /// The flow.
        pair: Pair,
    },
    /// A flow that arrives by no port.
    #[error("flow {flow}: {outcome}")]
    NoWay {
        /// Its place in the job.
        flow: usize,
        /// How its path ends.
        outcome: String,
    },
}

impl Controller {
    /// Source ports for a job's flows, by weft-plan's search for the least busy path, on top of what
    /// links carry now and of the job's flows before them.
    ///
    /// # Errors
    /// The first flow that cannot be sent.
    pub fn announce(
        &mut self,
        pairs: &[Pair],
        (entropy, tries): (Entropy, usize),
        seed: Seed,
        now: Instant,
    ) -> Result<Vec<u16>, JobError> {
        let mut rng = seed.child("announce", 0).rng();
        let index = self.telemetry.index(now).saturating_sub(1);
        let mut loads = vec![0u64; self.fabric.links()];
        for link in self.telemetry.ports() {
            loads[link.index()] = self.telemetry.window(link, index).map_or(0, |it| it.rate());
        }
        let limit = self.config.moves.most_percent * 10;
        let mut ports = Vec::with_capacity(pairs.len());
        let (mut candidates, mut paths): (Vec<u16>, Vec<Path>) = (Vec::new(), Vec::new());
        for (flow, pair) in pairs.iter().enumerate() {
            let start = self.sender(flow, pair)?;
            let to = (pair.dst, entropy.destination_port);
            let of = |port| Flow::new((pair.src, port), to, entropy.protocol);
            if of(0).is_none() {
                return Err(JobError::Families { flow, pair: *pair });
            }
            let cost = |path: &Path| {
                // The host's own cables are the same for every port.
                let inner = path.links().get(1..path.links().len() - 1).unwrap_or(&[]);
                let full = inner.iter().map(|&link| {
                    let load = loads[link.index()].saturating_add(pair.rate.as_bps());
                    per_mille(load, &self.fabric, link)
                });
                full.fold((0, 0u32), |(most, sum), full| (most.max(full), sum.saturating_add(full)))
            };
            // All are followed, though the first may do: together they take little longer than it alone.
            candidates.clear();
            candidates.extend(entropy.candidates(&mut rng).take(tries.max(1)));
            let flows: Vec<Flow> = candidates.iter().filter_map(|&port| of(port)).collect();
            paths.clear();
            let starts = flows.iter().map(|flow| (start, flow));
            self.fabric.paths(starts, |path| {
                path.links().iter().for_each(|link| prefetch(&loads[link.index()]));
                paths.push(*path);
            });
            let tried = candidates.iter().zip(&paths).filter(|(_, path)| path.arrives());
            let found = least_busy(tried.map(|(port, path)| (cost(path), (*port, path))), limit);
            let Some((port, path)) = found else {
                let outcome = format!("{}", self.fabric.outcome(paths[0].outcome));
                return Err(JobError::NoWay { flow, outcome });
            };
            for link in path.links() {
                let load = &mut loads[link.index()];
                *load = load.saturating_add(pair.rate.as_bps());
            }
            ports.push(port);
        }
        let fullest = self
            .fabric
            .link_ids()
            .map(|link| per_mille(loads[link.index()], &self.fabric, link))
            .max();
        let text = format!(
            "{} flows planned; the fullest link is then {} per mille full",
            pairs.len(),
            fullest.unwrap_or(0)
        );
        self.say(What::Job, "", "", None, text, now);
        Ok(ports)
    }

    fn sender(&self, flow: usize, pair: &Pair) -> Result<Start, JobError> {
        let host = self.fabric.host(pair.src);
        let links = host.map_or(&[][..], |host| self.fabric.links_of_host(host));
        let first = match (pair.first, links) {
            (Some(first), _) if links.contains(&first) => Some(first),
            (None, &[only]) => Some(only),
            _ => None,
        };
        first.map(Start::Link).ok_or(JobError::Sender { flow, address: pair.src })
    }
}
