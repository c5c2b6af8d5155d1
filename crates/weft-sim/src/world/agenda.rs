//! Events that concern more than one node, by time: faults, the control plane, the route controller, measures,
//! workloads that wake, the end. Nodes have handled everything before an entry's time when its turn comes,
//! and nothing of or after it.

use std::collections::BTreeMap;

use crate::time::SimTime;

/// One entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Item {
    /// The next action of the fault plan.
    Fault,
    /// The control plane has converged.
    Reroute,
    /// Time to look at the queues.
    Sample,
    /// A window of the route controller is over.
    Report,
    /// The route controller decides upon it.
    Steer,
    /// A workload asked to be woken.
    Wake { workload: u32, token: u64 },
    /// The run's time is up.
    Stop,
}

/// The entries to come; those of one instant in the order they were added.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    items: BTreeMap<(SimTime, u64), Item>,
    added: u64,
}

impl Agenda {
    pub(super) fn add(&mut self, at: SimTime, item: Item) {
        self.added += 1;
        self.items.insert((at, self.added), item);
    }

    /// When the next entry is due.
    pub(super) fn next_at(&self) -> Option<SimTime> {
        self.items.first_key_value().map(|(&(at, _), _)| at)
    }

    pub(super) fn pop(&mut self) -> Option<(SimTime, Item)> {
        self.items.pop_first().map(|((at, _), item)| (at, item))
    }
}
