//! The watcher of a run, which the world calls between lookahead windows.

use super::{Network, World};
use crate::port::pfc::PauseFrame;
use crate::time::SimTime;
use crate::traffic::FinishedFlow;

/// A watcher of a whole run: a recorder, or a progress bar. It only reads the network, so a run gives the same result
/// with any watcher and without one.
pub trait Watcher {
    /// Returns `true` if [`Window::messages`] and [`Window::pauses`] are to be recorded for it.
    fn wants_events(&self) -> bool {
        false
    }

    /// Called before the run, when the workloads have started.
    fn on_start(&mut self, _world: &World) {}

    /// Called after each lookahead window, thousands of times in a millisecond of simulated time.
    fn on_window(&mut self, window: &Window<'_>);

    /// Called when the run has ended at `ended_at`; nodes may have advanced a little further.
    fn on_end(&mut self, _network: &Network, _ended_at: SimTime) {}
}

/// The state of the network after a lookahead window, and the events since the call before.
#[derive(Debug)]
pub struct Window<'a> {
    /// The network.
    pub network: &'a Network,
    /// The end of the window. Nodes have handled their events before it; some may be one lookahead behind.
    pub now: SimTime,
    /// The latest time at which the run ends.
    pub limit: SimTime,
    /// The messages that were delivered and acknowledged, recorded ones and others, in the order in which hosts were
    /// served.
    pub messages: &'a [FinishedFlow],
    /// The pause frames that ports received, in the order in which nodes were served.
    pub pauses: &'a [PauseFrame],
}
