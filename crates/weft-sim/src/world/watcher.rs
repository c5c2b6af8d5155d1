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

    /// Returns `true` if [`Self::on_window`] is to be called. The network must be whole for it, so the run takes one
    /// thread.
    fn wants_windows(&self) -> bool {
        true
    }

    /// Called before the run, when the workloads have started.
    fn on_start(&mut self, _world: &World) {}

    /// Called after each lookahead window, thousands of times in a millisecond of simulated time.
    fn on_window(&mut self, _window: &Window<'_>) {}

    /// Called after each lookahead window, on any number of threads; if it returns `true`, [`Self::on_progress`] is
    /// called, whose argument is a sum over all hosts.
    fn wants_progress(&mut self) -> bool {
        false
    }

    /// See [`Self::wants_progress`].
    fn on_progress(&mut self, _progress: Progress) {}

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

/// A watcher that looks at nothing.
impl Watcher for () {
    fn wants_windows(&self) -> bool {
        false
    }
}

/// The progress of a run at the end of a lookahead window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The end of the window.
    pub now: SimTime,
    /// The latest time at which the run ends.
    pub limit: SimTime,
    /// The packet hops so far: each packet counts once for each link that it crossed.
    pub packet_hops: u64,
    /// The bytes of the messages that workloads submitted.
    pub bytes_submitted: u64,
    /// The bytes of payload that hosts received.
    pub bytes_received: u64,
}

impl Progress {
    /// Returns the progress of a run whose network is divided among `parts`; `whole` has what they share.
    pub(super) fn of<'a>(
        whole: &'a Network,
        limit: SimTime,
        parts: impl Iterator<Item = &'a Network>,
    ) -> Self {
        let bytes_submitted = whole.traffic.bytes_submitted();
        let mut progress =
            Self { now: whole.now, limit, packet_hops: 0, bytes_submitted, bytes_received: 0 };
        for network in parts.chain([whole]) {
            progress.packet_hops += network.fabric.packet_hops();
            progress.bytes_received +=
                network.hosts.iter().map(|host| host.received_bytes).sum::<u64>();
        }
        progress
    }

    /// Returns the share that is done; `submitted` is the number of bytes that were submitted when the run began.
    #[expect(clippy::cast_precision_loss, reason = "a share for people")]
    pub fn share(&self, submitted: u64) -> Share {
        if submitted > 0 && self.bytes_submitted == submitted {
            return Share::Payload((self.bytes_received as f64 / submitted as f64).min(1.0));
        }
        let limit = self.limit.as_picos().max(1);
        Share::Limit((self.now.as_picos() as f64 / limit as f64).min(1.0))
    }
}

/// The share of a run that is done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Share {
    /// Of the payload: workloads submitted all of it when the run began.
    Payload(f64),
    /// Of the time limit: it is not known how much workloads will submit.
    Limit(f64),
}

impl Share {
    /// Returns the share, 0 to 1.
    pub fn value(self) -> f64 {
        let (Self::Payload(value) | Self::Limit(value)) = self;
        value
    }

    /// Returns the number of `steps` that are done.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "steps of a bar"
    )]
    pub fn of(self, steps: u64) -> u64 {
        (self.value() * steps as f64) as u64
    }
}
