//! The fabric of a part of the world.
//!
//! Every part has a copy of all links and switches, of which only its own change while parts run side by side: a link
//! belongs to the node that sends on it. Before a global event and at the end, the whole fabric takes over the state
//! of each part's links and switches; after the event, the parts get copies again.

use std::sync::Arc;

use weft_topo::LinkId;

use super::{Counters, Fabric, Ports};
use crate::datagram::Datagrams;
use crate::fault::attack::Attacker;
use crate::link::Tally;
use crate::payload::PacketPayloads;
use crate::switch::{Forwarding, Labels};

/// The links and switches of a part.
#[derive(Debug, Default)]
pub struct Share {
    /// The links on which its nodes send.
    pub links: Vec<LinkId>,
    /// The indices of its switches among the switches.
    pub switches: Vec<usize>,
}

impl Fabric {
    /// Returns the fabric of a part, whose packets are in the same pool; `None` if switches do more than hash and forward packets as they
    /// arrive.
    pub fn part(&mut self, share: &Share) -> Option<Self> {
        let Forwarding::Ecmp(hash) = &self.forwarding else { return None };
        let has_more = self.sampler.is_some() || self.ports.is_some();
        let forwarding = (!has_more).then(|| Forwarding::Ecmp(hash.clone()))?;
        let mut part = Self {
            topology: Arc::clone(&self.topology),
            packets: self.packets.part(),
            counters: Counters::default(),
            routes: Arc::clone(&self.routes),
            steered: self.steered.clone(),
            failures: self.failures.clone(),
            hosts: self.hosts,
            links: Vec::new(),
            tallies: vec![Tally::default(); self.tallies.len()],
            classes: self.classes.clone(),
            forwarding,
            labels: Labels::default(),
            payloads: PacketPayloads::default(),
            datagrams: Datagrams::default(),
            telemetry: None,
            commands: Vec::new(),
            hash: self.hash.clone(),
            buffers: self.buffers.clone(),
            ports: None::<Ports>,
            impairments: std::collections::BTreeMap::new(),
            attacker: Attacker::new(self.seed.child("attacker", 0), self.hosts),
            sampler: None,
            epochs_matter: self.epochs_matter,
            hops: 0,
            draws: Vec::new(),
            seed: self.seed,
        };
        self.give(&mut part, share);
        Some(part)
    }

    /// Gives a part copies of the links and switches, and its own impairments.
    pub fn give(&mut self, part: &mut Self, share: &Share) {
        part.packets.follow();
        part.routes = Arc::clone(&self.routes);
        part.epochs_matter = self.epochs_matter;
        part.links.clone_from(&self.links);
        part.draws.clone_from(&self.draws);
        part.buffers.clone_from(&self.buffers);
        if !self.impairments.is_empty() {
            let own = share.links.iter().filter_map(|link| self.impairments.remove_entry(link));
            part.impairments = own.collect();
        }
    }

    /// Takes over the state of a part's own links and switches, its packets, and its counters.
    pub fn take(&mut self, part: &mut Self, share: &Share) {
        self.packets.take(&mut part.packets);
        for &link in &share.links {
            let index = link.index();
            self.links[index].clone_from(&part.links[index]);
            let tally = std::mem::take(&mut part.tallies[index]);
            self.tallies[index].marked += tally.marked;
            self.tallies[index].refused += tally.refused;
        }
        for &switch in &share.switches {
            self.draws[switch].clone_from(&part.draws[switch]);
            self.buffers.copy(switch, &part.buffers);
        }
        self.impairments.append(&mut part.impairments);
        self.counters += std::mem::take(&mut part.counters);
        self.hops += std::mem::take(&mut part.hops);
    }
}
