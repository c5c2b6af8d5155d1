//! The faults of a run, in words.

use weft_topo::{LinkId, Topology};

use crate::fault::{Action, Chance, Change, Place};
use crate::time::SimTime;
use crate::world::World;

/// Returns the world's fault plan, in order of time.
pub(super) fn describe(world: &World) -> Vec<(SimTime, String)> {
    let topology = &world.network.fabric.topology;
    world.plan().map(|(at, action)| (*at, name(topology, action))).collect()
}

fn name(topology: &Topology, action: &Action) -> String {
    match *action {
        Action::LinkDown(place) => format!("cable down: {}", cable(topology, place)),
        Action::LinkUp(place) => format!("cable up: {}", cable(topology, place)),
        Action::SwitchDown(switch) => format!("switch down: {}", topology.name(switch)),
        Action::SwitchUp(switch) => format!("switch up: {}", topology.name(switch)),
        Action::Restart(host) => format!("restart: {}", topology.name(host)),
        Action::Impair { link, change } => {
            let (kind, chance) = match change {
                Change::Loss(chance) => ("loss", chance),
                Change::Duplication(chance) => ("duplication", chance),
                Change::Reordering { chance, .. } => ("reordering", chance),
                Change::Corruption { chance, .. } => ("corruption", chance),
                Change::Attack(chance) => ("attack", chance),
            };
            let state = if chance == Chance::default() { "ends" } else { "begins" };
            format!("{kind} {state}: {}", direction(topology, link))
        }
    }
}

fn cable(topology: &Topology, place: Place) -> String {
    match place {
        Place::Link(link) => {
            let ends = topology.link(link);
            format!("{} – {}", topology.name(ends.from), topology.name(ends.to))
        }
        Place::Busiest { .. } => "busiest uplink".into(),
    }
}

fn direction(topology: &Topology, place: Place) -> String {
    match place {
        Place::Link(link) => link_name(topology, link),
        Place::Busiest { .. } => "busiest uplink".into(),
    }
}

/// Returns the display name of a link, such as `leaf 130 → spine 137`.
pub fn link_name(topology: &Topology, link: LinkId) -> String {
    let ends = topology.link(link);
    format!("{} → {}", topology.name(ends.from), topology.name(ends.to))
}
