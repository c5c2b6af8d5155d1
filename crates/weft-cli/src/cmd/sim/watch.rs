//! The watchers of a run: the progress bar, the timeline of the page, and the trace.

use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use weft_report::Unit;
use weft_sim::SimTime;
use weft_sim::timeline::Timeline;
use weft_sim::world::{Network, Progress, Share, Watcher, Window, World};

use super::perfetto::TraceFile;
use crate::progress;

/// Lookahead windows between two looks at the clock.
const WINDOWS: u32 = 64;
/// The shortest time between two updates of the bar.
const UPDATE: Duration = Duration::from_millis(100);

/// The watchers of a run.
#[derive(Debug, Default)]
pub(super) struct Watchers {
    pub(super) bar: Option<Bar>,
    pub(super) timeline: Option<Timeline>,
    pub(super) trace: Option<TraceFile>,
}

impl Watchers {
    fn each(&mut self) -> impl Iterator<Item = &mut dyn Watcher> {
        let Self { bar, timeline, trace } = self;
        let bar = bar.as_mut().map(|it| it as &mut dyn Watcher);
        let timeline = timeline.as_mut().map(|it| it as &mut dyn Watcher);
        let trace = trace.as_mut().map(|it| &mut it.trace as &mut dyn Watcher);
        bar.into_iter().chain(timeline).chain(trace)
    }
}

impl Watcher for Watchers {
    fn wants_events(&self) -> bool {
        self.timeline.is_some() || self.trace.is_some()
    }

    fn wants_windows(&self) -> bool {
        self.wants_events()
    }

    fn on_start(&mut self, world: &World) {
        self.each().for_each(|it| it.on_start(world));
    }

    fn on_window(&mut self, window: &Window<'_>) {
        self.each().for_each(|it| it.on_window(window));
    }

    fn wants_progress(&mut self) -> bool {
        self.bar.as_mut().is_some_and(Watcher::wants_progress)
    }

    fn on_progress(&mut self, progress: Progress) {
        self.bar.iter_mut().for_each(|bar| bar.on_progress(progress));
    }

    fn on_end(&mut self, network: &Network, ended_at: SimTime) {
        self.each().for_each(|it| it.on_end(network, ended_at));
    }
}

/// The progress bar of one run. It reads the clock once in [`WINDOWS`] windows.
#[derive(Debug)]
pub(super) struct Bar {
    bar: ProgressBar,
    windows: u32,
    updated: Instant,
    began: Instant,
    /// Bytes that the workloads had submitted when the run began.
    submitted: u64,
}

impl Bar {
    pub(super) fn new(bar: ProgressBar) -> Self {
        let now = Instant::now();
        Self { bar, windows: 0, updated: now, began: now, submitted: 0 }
    }
}

impl Watcher for Bar {
    fn wants_windows(&self) -> bool {
        false
    }

    fn on_start(&mut self, world: &World) {
        self.submitted = world.network.traffic.bytes_submitted();
    }

    fn wants_progress(&mut self) -> bool {
        self.windows += 1;
        if self.windows < WINDOWS {
            return false;
        }
        self.windows = 0;
        let now = Instant::now();
        let is_due = now.duration_since(self.updated) >= UPDATE;
        if is_due {
            self.updated = now;
        }
        is_due
    }

    fn on_progress(&mut self, progress: Progress) {
        let share = progress.share(self.submitted);
        let seconds = self.began.elapsed().as_secs_f64();
        let simulated = progress.now.since(SimTime::EPOCH).as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
        let hops = progress.packet_hops as f64;
        self.bar.set_position(share.of(progress::STEPS));
        self.bar.set_message(format!(
            "{} simulated, {} packet-hops/s, {}",
            Unit::Seconds.format(simulated),
            Unit::Count.format(hops / seconds),
            left(share, seconds),
        ));
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Returns the time left, in words, after `seconds` of work.
fn left(share: Share, seconds: f64) -> String {
    if share.value() <= 0.0 {
        return "beginning".into();
    }
    let left = Unit::Seconds.format(seconds * (1.0 / share.value() - 1.0));
    match share {
        Share::Payload(_) => format!("{left} left"),
        Share::Limit(_) => format!("at most {left} left to run.limit"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_follows_from_the_share_and_says_which() {
        assert_eq!(left(Share::Payload(0.25), 10.0), "30 s left");
        assert_eq!(left(Share::Limit(0.5), 2.0), "at most 2 s left to run.limit");
        assert_eq!(left(Share::Limit(0.0), 2.0), "beginning");
    }
}
