//! The watchers of a run: the progress bar, the timeline of the page, and the trace.

use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use weft_report::Unit;
use weft_sim::SimTime;
use weft_sim::timeline::Timeline;
use weft_sim::world::{Network, Watcher, Window, World};

use super::perfetto::TraceFile;

/// Lookahead windows between two looks at the clock.
const WINDOWS: u32 = 64;
/// The shortest time between two updates of the bar.
const UPDATE: Duration = Duration::from_millis(100);

/// The watchers of a run.
#[derive(Debug, Default)]
pub(super) struct Watchers {
    pub(super) progress: Option<Progress>,
    pub(super) timeline: Option<Timeline>,
    pub(super) trace: Option<TraceFile>,
}

impl Watchers {
    fn each(&mut self) -> impl Iterator<Item = &mut dyn Watcher> {
        let Self { progress, timeline, trace } = self;
        let progress = progress.as_mut().map(|it| it as &mut dyn Watcher);
        let timeline = timeline.as_mut().map(|it| it as &mut dyn Watcher);
        let trace = trace.as_mut().map(|it| &mut it.trace as &mut dyn Watcher);
        progress.into_iter().chain(timeline).chain(trace)
    }
}

impl Watcher for Watchers {
    fn wants_events(&self) -> bool {
        self.timeline.is_some() || self.trace.is_some()
    }

    fn on_start(&mut self, world: &World) {
        self.each().for_each(|it| it.on_start(world));
    }

    fn on_window(&mut self, window: &Window<'_>) {
        self.each().for_each(|it| it.on_window(window));
    }

    fn on_end(&mut self, network: &Network, ended_at: SimTime) {
        self.each().for_each(|it| it.on_end(network, ended_at));
    }
}

/// The progress of one run, on a bar. It reads the clock once in [`WINDOWS`] windows.
#[derive(Debug)]
pub(super) struct Progress {
    bar: ProgressBar,
    windows: u32,
    updated: Instant,
    began: Instant,
    /// Bytes that the workloads had submitted when the run began.
    submitted: u64,
}

impl Progress {
    pub(super) fn new(bar: ProgressBar) -> Self {
        let now = Instant::now();
        Self { bar, windows: 0, updated: now, began: now, submitted: 0 }
    }

    fn update(&mut self, window: &Window<'_>) {
        let now = Instant::now();
        if now.duration_since(self.updated) < UPDATE {
            return;
        }
        self.updated = now;
        #[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
        let hops = window.network.fabric.packet_hops() as f64;
        let seconds = now.duration_since(self.began).as_secs_f64();
        let simulated = window.now.since(SimTime::EPOCH).as_secs_f64();
        let share = Share::of(window, self.submitted);
        self.bar.set_position(share.permille());
        self.bar.set_message(format!(
            "{} simulated, {} packet-hops/s, {}",
            Unit::Seconds.format(simulated),
            Unit::Count.format(hops / seconds),
            share.left(seconds),
        ));
    }
}

impl Watcher for Progress {
    fn on_start(&mut self, world: &World) {
        self.submitted = world.network.traffic.bytes_submitted();
    }

    fn on_window(&mut self, window: &Window<'_>) {
        self.windows += 1;
        if self.windows >= WINDOWS {
            self.windows = 0;
            self.update(window);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// The share of a run that is done.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Share {
    /// Of the payload: workloads submitted all of it when the run began.
    Payload(f64),
    /// Of the time limit: it is not known how much workloads will submit.
    Limit(f64),
}

impl Share {
    /// Returns the share that is done; `submitted` is the number of bytes that were submitted when the run began.
    #[expect(clippy::cast_precision_loss, reason = "a share for people")]
    fn of(window: &Window<'_>, submitted: u64) -> Self {
        let Window { network, now, limit, .. } = *window;
        if submitted > 0 && network.traffic.bytes_submitted() == submitted {
            let received: u64 = network.hosts.iter().map(|host| host.received_bytes).sum();
            return Self::Payload((received as f64 / submitted as f64).min(1.0));
        }
        Self::Limit((now.as_picos() as f64 / limit.as_picos().max(1) as f64).min(1.0))
    }

    fn value(self) -> f64 {
        let (Self::Payload(value) | Self::Limit(value)) = self;
        value
    }

    /// Returns the share in thousandths, the length of the bar.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 1000")]
    fn permille(self) -> u64 {
        (self.value() * 1000.0) as u64
    }

    /// Returns the time left, in words, after `seconds` of work.
    fn left(self, seconds: f64) -> String {
        if self.value() <= 0.0 {
            return "beginning".into();
        }
        let left = Unit::Seconds.format(seconds * (1.0 / self.value() - 1.0));
        match self {
            Self::Payload(_) => format!("{left} left"),
            Self::Limit(_) => format!("at most {left} left to run.limit"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_follows_from_the_share_and_says_which() {
        assert_eq!(Share::Payload(0.25).left(10.0), "30 s left");
        assert_eq!(Share::Limit(0.5).left(2.0), "at most 2 s left to run.limit");
        assert_eq!(Share::Limit(0.0).left(2.0), "beginning");
        assert_eq!(Share::Payload(0.9996).permille(), 999);
    }
}
