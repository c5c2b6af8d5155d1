//! Global events, by time: faults, the control plane, the route controller, samples, workloads' wake-ups, the end.
//! When one is handled, nodes have handled everything before its time, and nothing at or after it.

use std::collections::BTreeMap;

use crate::time::SimTime;

/// A global event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Item {
    /// The next action of the fault plan.
    Fault,
    /// The control plane has converged.
    Reroute,
    /// The queues are sampled.
    Sample,
    /// A window of the route controller ends.
    Report,
    /// The route controller decides.
    Steer,
    /// A workload requested a wake-up.
    Wake { workload: u32, token: u64 },
    /// The run's time limit is reached.
    Stop,
}

/// The future global events; those of one instant in the order they were added.
#[derive(Debug, Default)]
pub(super) struct GlobalEvents {
    /// The events by time and number.
    items: BTreeMap<(SimTime, u64), Item>,
    /// Number of events that were added so far.
    added: u64,
}

impl GlobalEvents {
    /// Schedules a global event.
    pub(super) fn add(&mut self, at: SimTime, item: Item) {
        self.added += 1;
        self.items.insert((at, self.added), item);
    }

    /// Returns the time of the next event.
    pub(super) fn next_at(&self) -> Option<SimTime> {
        self.items.first_key_value().map(|(&(at, _), _)| at)
    }

    /// Removes the next event and returns it with its time.
    pub(super) fn pop(&mut self) -> Option<(SimTime, Item)> {
        self.items.pop_first().map(|((at, _), item)| (at, item))
    }
}
