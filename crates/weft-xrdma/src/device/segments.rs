//! The durations of the device's slow calls: the set-up of queue pairs, and the registration of memory (X-RDMA, section VI.A,
//! method III). Calls of the path of messages are not measured: two reads of the clock would take as long as they do.

use weft_units::Duration;

use crate::clock;

/// The durations of calls since the owner took them last.
#[derive(Debug, Default)]
pub(super) struct Segments {
    taken: Vec<(&'static str, Duration)>,
}

impl Segments {
    /// Maximum number of durations; later ones are discarded.
    const MAX: usize = 256;

    /// Runs a call and records its duration.
    pub(super) fn time<R>(&mut self, name: &'static str, call: impl FnOnce() -> R) -> R {
        let began = clock::now();
        let result = call();
        if self.taken.len() < Self::MAX {
            self.taken.push((name, clock::now().since(began)));
        }
        result
    }

    /// Returns the recorded durations, oldest first, and discards them.
    pub(super) fn take(&mut self) -> Vec<(&'static str, Duration)> {
        core::mem::take(&mut self.taken)
    }
}
