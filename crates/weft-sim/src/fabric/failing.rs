//! Failures, impairments and repairs of cables and switches.

use std::sync::Arc;

use weft_topo::{Failures, LinkId, NodeId, RouteError, Routes};

use super::{Fabric, Steered};
use crate::fault::impairment::Impairment;
use crate::fault::{Chance, Change};
use crate::link::Condition;
use crate::packet::EPOCHS;
use crate::switch::Forward;
use crate::time::SimTime;

impl Fabric {
    /// Applies the loss that the topology declares (ns-3 topology files have it for each link).
    pub(super) fn impair_from_topology(&mut self) {
        for link in self.topology.link_ids() {
            let rate = self.topology.error_rate(link);
            if rate > 0.0 {
                self.impair(link, Change::Loss(Chance::new(rate)));
            }
        }
    }

    /// Takes both directions of a cable down: packets on them and queued for them are lost.
    pub fn take_down(&mut self, now: SimTime, link: LinkId) {
        self.failures.fail_link(link);
        self.refresh_conditions(now);
    }

    /// Brings a cable up.
    pub fn bring_up(&mut self, now: SimTime, link: LinkId) {
        self.failures.repair_link(link);
        self.refresh_conditions(now);
    }

    /// Takes a switch down with all its cables.
    pub fn take_down_switch(&mut self, now: SimTime, switch: NodeId) {
        self.failures.fail_node(switch);
        self.refresh_conditions(now);
    }

    /// Brings a switch up; cables that are down on their own stay down.
    pub fn bring_up_switch(&mut self, now: SimTime, switch: NodeId) {
        self.failures.repair_node(switch);
        self.refresh_conditions(now);
    }

    /// Sets every link's condition from the failures and impairments.
    fn refresh_conditions(&mut self, now: SimTime) {
        self.epochs_matter = true;
        for id in self.topology.link_ids() {
            let up = self.failures.is_up(&self.topology, id);
            let link = &mut self.links[id.index()];
            let was_up = link.condition != Condition::Down;
            link.condition = match up {
                false => Condition::Down,
                true if self.impairments.contains_key(&id) => Condition::Impaired,
                true => Condition::Healthy,
            };
            if was_up && !up {
                link.epoch = (link.epoch + 1) % EPOCHS;
                link.busy_until = link.busy_until.min(now);
                self.flush(id);
            }
        }
    }

    /// Changes the impairment of one direction of a cable.
    pub fn impair(&mut self, link: LinkId, change: Change) {
        let seed = self.seed.child("impairment", u64::from(link.0));
        let impairment = self.impairments.entry(link).or_insert_with(|| Impairment::new(seed));
        let rates = &mut impairment.rates;
        match change {
            Change::Loss(chance) => rates.loss = chance,
            Change::Duplication(chance) => rates.duplication = chance,
            Change::Reordering { chance, by } => {
                (rates.reordering, rates.reorder_by) = (chance, by);
            }
            Change::Corruption { chance, checksum } => {
                (rates.corruption, rates.checksum) = (chance, checksum);
            }
            Change::Attack(chance) => rates.attack = chance,
        }
        let state = &mut self.links[link.index()];
        if state.condition != Condition::Down {
            state.condition = Condition::Impaired;
        }
    }

    /// Removes every failure and impairment.
    pub fn repair_all(&mut self, now: SimTime) {
        self.failures = Failures::none();
        self.impairments.clear();
        self.refresh_conditions(now);
    }

    /// Recomputes the routes as the control plane does: they avoid failed links from now on.
    ///
    /// # Errors
    /// The new routes do not fit: failed host cables split groups of hosts, or too many hosts have routes of their own.
    /// The fabric keeps its routes.
    pub fn reroute(&mut self) -> Result<(), RouteError> {
        let mut routes = Routes::compute(&self.topology, &self.failures)?;
        for (&(switch, destination), links) in &self.steered {
            let is_up = |link: &LinkId| self.failures.is_up(&self.topology, *link);
            let links: Vec<LinkId> = links.iter().copied().filter(is_up).collect();
            // A route whose next hops are all down gives way to the next shorter prefix.
            if !links.is_empty() {
                routes.install_host_route(switch, destination, &links)?;
            }
        }
        self.routes = Arc::new(routes);
        self.forwarding.rerouted();
        Ok(())
    }

    /// Replaces the switches' routes for single hosts.
    ///
    /// # Errors
    /// As [`Self::reroute`]; the routes for single hosts stay as they were too.
    pub fn steer(&mut self, steered: Steered) -> Result<(), RouteError> {
        let before = std::mem::replace(&mut self.steered, steered);
        self.reroute().inspect_err(|_| self.steered = before)
    }

    /// Returns the links and switches that are down.
    pub fn failures(&self) -> &Failures {
        &self.failures
    }
}
