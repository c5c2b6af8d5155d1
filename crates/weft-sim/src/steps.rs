//! The progress of a run in steps, for its owner's bar.

use crate::hooks::{Advance, STEPS};
use crate::world::{Progress, Watcher, World};

/// Lookahead windows between two looks at the progress.
const WINDOWS_PER_LOOK: u32 = 256;

/// The steps of one run. Those that are missing when it is dropped are reported then.
pub(crate) struct Steps<'a> {
    advance: &'a Advance,
    windows: u32,
    /// Bytes that the workloads had submitted when the run began.
    submitted: u64,
    reported: u64,
}

impl<'a> Steps<'a> {
    pub(crate) fn new(advance: &'a Advance) -> Self {
        Self { advance, windows: 0, submitted: 0, reported: 0 }
    }

    fn report(&mut self, done: u64) {
        if done > self.reported {
            self.advance.by(done - self.reported);
            self.reported = done;
        }
    }
}

impl Watcher for Steps<'_> {
    fn wants_windows(&self) -> bool {
        false
    }

    fn on_start(&mut self, world: &World) {
        self.submitted = world.network.traffic.bytes_submitted();
    }

    fn wants_progress(&mut self) -> bool {
        self.windows = (self.windows + 1) % WINDOWS_PER_LOOK;
        self.windows == 0 && self.advance.is_wanted()
    }

    fn on_progress(&mut self, progress: Progress) {
        self.report(progress.share(self.submitted).of(STEPS));
    }
}

impl Drop for Steps<'_> {
    fn drop(&mut self) {
        self.report(STEPS);
    }
}
