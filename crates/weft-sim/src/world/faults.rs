//! The fault plan of the world.

use weft_topo::LinkId;

use super::World;
use super::global_events::Item;
use crate::fault::{Action, Place, busiest};
use crate::time::SimTime;

impl World {
    /// Sets the fault plan, in order of time.
    pub fn set_plan(&mut self, plan: Vec<(SimTime, Action)>) {
        for (at, _) in &plan {
            self.network.global_events.add(*at, Item::Fault);
        }
        self.plan = plan.into();
        self.busiest = None;
    }

    /// Returns the actions of the fault plan that are still to come, in order of time.
    pub fn plan(&self) -> impl Iterator<Item = &(SimTime, Action)> {
        self.plan.iter()
    }

    /// Repairs the network and cancels further faults.
    pub fn repair_all(&mut self) {
        self.plan.clear();
        self.network.fabric.repair_all(self.network.now);
        self.network.reroute();
    }

    /// Executes the plan's next action.
    pub(super) fn fault(&mut self) {
        let Some((_, action)) = self.plan.pop_front() else { return };
        let now = self.network.now;
        match action {
            Action::LinkDown(place) => {
                let link = self.link(place);
                self.network.fabric.take_down(now, link);
            }
            Action::LinkUp(place) => {
                let link = self.link(place);
                self.network.fabric.bring_up(now, link);
            }
            Action::SwitchDown(switch) => self.network.fabric.take_down_switch(now, switch),
            Action::SwitchUp(switch) => self.network.fabric.bring_up_switch(now, switch),
            Action::Impair { link, change } => {
                let link = self.link(link);
                return self.network.fabric.impair(link, change);
            }
            Action::Restart(host) => return self.network.restart(host),
        }
        if let Some(after) = self.network.config.reroute_after {
            self.network.global_events.add(now + after.into(), Item::Reroute);
        }
    }

    /// Returns the link of a place; the first use of the busiest cable determines it.
    fn link(&mut self, place: Place) -> LinkId {
        let fabric = &self.network.fabric;
        let carried = |link| fabric.link(link).bytes;
        place.link(|| *self.busiest.get_or_insert_with(|| busiest(&fabric.topology, carried)))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use weft_units::Seed;

    use crate::{Report, RunError, Scenario};

    /// Two flows, each on a single path of eight that the seed draws.
    const TWO_FLOWS: &str = r#"
        topology = { kind = "leaf-spine", leaves = 2, spines = 8, hosts_per_leaf = 2 }
        transport = { policy = "single" }
        run = { limit = "20ms" }
        [[workload]]
        kind = "pairs"
        pairs = [[0, 2], [1, 3]]
        size = "2MB"
        [[fault]]
        kind = "link-down"
        links = "busiest-uplink"
        at = "40us"
        duration = "60us"
    "#;

    fn run(text: &str, seed: u64) -> Result<Report, RunError> {
        crate::run(&Scenario::parse(text, Path::new("")).unwrap(), Seed(seed))
    }

    #[test]
    fn the_busiest_uplink_is_in_use_and_the_same_until_the_fault_ends() {
        for seed in 1..=8 {
            let report = run(TWO_FLOWS, seed).unwrap();
            assert!(report.network.lost["link_down"] > 0, "seed {seed}: it was not used");
            // Meanwhile the other flow's cable has become the busiest, but the first one must come back.
            assert!(report.finished, "seed {seed}: it did not come back");
        }
    }

    #[test]
    fn the_busiest_uplink_at_the_start_is_refused() {
        let error = run(&TWO_FLOWS.replace("40us", "0us"), 1).unwrap_err().to_string();
        let text = "fault 1 (link-down): links \"busiest-uplink\" at 0s: nothing is busy before the \
                    run, expected a later `at`";
        assert_eq!(error, text);
    }
}
