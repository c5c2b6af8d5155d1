//! Global events, by time: faults, the control plane, the route controller, samples, workloads' wake-ups, the end.
//! When one is handled, nodes have handled everything before its time, and nothing at or after it.

use std::collections::BTreeMap;

use crate::time::{SimSpan, SimTime};

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
    /// A skip is considered.
    Skip,
    /// The run's time limit is reached.
    Stop,
}

impl Item {
    /// Returns `true` if the event happens at a time of the world, however much of it is skipped. The other events belong
    /// to what the network does.
    const fn is_fixed(self) -> bool {
        matches!(self, Self::Fault | Self::Reroute | Self::Stop)
    }
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

    /// Returns the time of the next event that no skip may pass.
    pub(super) fn next_fixed_at(&self) -> Option<SimTime> {
        self.items.iter().find(|(_, item)| item.is_fixed()).map(|(&(at, _), _)| at)
    }

    /// Moves the events that no skip may pass closer, because `span` of the time until then is skipped.
    pub(super) fn bring_forward(&mut self, span: SimSpan) {
        let moved = std::mem::take(&mut self.items).into_iter().map(|((at, number), item)| {
            let skipped = if item.is_fixed() { span.as_picos() } else { 0 };
            let at = SimTime::from_picos(at.as_picos().saturating_sub(skipped));
            ((at, number), item)
        });
        self.items = moved.collect();
    }

    /// Removes the next event and returns it with its time.
    pub(super) fn pop(&mut self) -> Option<(SimTime, Item)> {
        self.items.pop_first().map(|((at, _), item)| (at, item))
    }
}
