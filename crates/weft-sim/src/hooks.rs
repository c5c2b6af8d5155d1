//! The part of a run that is no text: the owner's algorithms, its wish to end the run early, and its progress bar.

use std::fmt;
use std::sync::Arc;

pub use weft_transport::External;

/// Number of events after which a run asks again if it is cancelled: about a millisecond's.
const EVENTS_PER_CHECK: u64 = 4096;

/// The owner's additions to a scenario. The default adds nothing.
#[derive(Clone, Debug, Default)]
pub struct Hooks {
    /// The owner's path policy and congestion control, in place of those the scenario names.
    pub external: External,
    /// The owner's wish to end the run.
    pub cancel: Cancel,
    /// The owner's progress bar.
    pub advance: Advance,
}

/// A function that returns `true` once the run is to end. A run calls it before its first event and every few thousand
/// events, on the thread of the run. The default never cancels.
#[derive(Clone, Default)]
pub struct Cancel(Option<Arc<dyn Fn() -> bool + Send + Sync>>);

impl Cancel {
    /// Returns the wish that `is_cancelled` expresses.
    pub fn when(is_cancelled: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(is_cancelled)))
    }

    /// Returns `true` if the run is to end.
    pub fn is_cancelled(&self) -> bool {
        self.0.as_ref().is_some_and(|is_cancelled| is_cancelled())
    }

    /// Returns the number of events at which to ask again, or `None` if the run is to end now.
    pub(crate) fn next_check(&self, events: u64) -> Option<u64> {
        match &self.0 {
            None => Some(u64::MAX),
            Some(is_cancelled) => (!is_cancelled()).then_some(events + EVENTS_PER_CHECK),
        }
    }
}

impl fmt::Debug for Cancel {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("Cancel").field(&self.0.is_some()).finish()
    }
}

/// The steps of a run in [`Advance`].
pub const STEPS: u64 = 1000;

/// A function that is called with the number of steps, of [`STEPS`] a run, that were done since its last call, on the
/// thread of the run. The steps of runs side by side can so be added on one bar. The default reports nothing.
#[derive(Clone, Default)]
pub struct Advance(Option<Arc<dyn Fn(u64) + Send + Sync>>);

impl Advance {
    /// Returns the function `on_steps`.
    pub fn to(on_steps: impl Fn(u64) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(on_steps)))
    }

    /// Returns `true` if there is a function.
    pub(crate) fn is_wanted(&self) -> bool {
        self.0.is_some()
    }

    /// Reports that this number of steps were done.
    pub(crate) fn by(&self, steps: u64) {
        if let Some(on_steps) = &self.0 {
            on_steps(steps);
        }
    }
}

impl fmt::Debug for Advance {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("Advance").field(&self.0.is_some()).finish()
    }
}
