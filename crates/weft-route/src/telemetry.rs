//! Port reports split into windows: bytes sent and packets marked by ECN (Astral, section 4.1).
//!
//! Routers report counters that only grow. The difference of two reports counts in the window that contains the
//! middle between them. An impossible or missing report becomes a [`TelemetryError`] and is not counted, so that no
//! decision is based on it.

use alloc::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};
use weft_units::{BitRate, ByteCount, Duration, Instant};

use crate::fabric::LinkId;

/// A port's counters at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortReport {
    /// The link on which the port sends.
    pub link: LinkId,
    /// The time at which they were read, by one clock for all ports.
    pub at: Instant,
    /// Bytes sent since the router started.
    pub bytes: u64,
    /// Packets that ECN marked on their way out since then; marks that they arrived with do not count.
    pub marks: u64,
}

/// The reason why a report or sample is ignored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TelemetryError {
    /// The fabric has no such link.
    #[error("link {0} is not of this fabric")]
    NoSuchLink(u32),
    /// A report of the same instant as the last one.
    #[error("the report repeats the last instant")]
    Repeated,
    /// A report from before the last one.
    #[error("the report is {0} older than the last")]
    OutOfOrder(Duration),
    /// The counters decreased: the router restarted, or the counters were cleared.
    #[error("the counters decreased; counting restarts")]
    Reset,
    /// More bytes than the link can carry.
    #[error("{bytes} bytes in {span} are more than the link carries ({max})")]
    TooManyBytes {
        /// Number of bytes reported.
        bytes: u64,
        /// The time in which they were sent.
        span: Duration,
        /// Maximum number of bytes in that time.
        max: u64,
    },
    /// More marks than packets.
    #[error("{marks} marked packets do not fit into {bytes} bytes")]
    TooManyMarks {
        /// Number of marked packets reported.
        marks: u64,
        /// Number of bytes reported.
        bytes: u64,
    },
    /// The port did not report for longer than a window.
    #[error("nothing was reported for {0}; those windows stay empty")]
    Missing(Duration),
    /// A sample of a flow that does not cross the port where it was taken: the sample is false, or the tables have
    /// changed.
    #[error(
        "by the known tables the sampled flow does not cross the port; the tables will be read again"
    )]
    OffPath,
    /// A sample without packets, bytes or a sampling rate.
    #[error("a sample of {bytes} bytes at 1 in {rate} carries no information")]
    Empty {
        /// Bytes of its packets.
        bytes: u32,
        /// The sampling rate: one packet in this many.
        rate: u32,
    },
    /// More flows than the maximum that is kept for a port.
    #[error("the port has more than {0} flows; this one is not kept")]
    TooManyFlows(usize),
}

impl TelemetryError {
    /// Returns the kind of the error, as a word.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::NoSuchLink(_) => "no-such-link",
            Self::Repeated => "repeated",
            Self::OutOfOrder(_) => "out-of-order",
            Self::Reset => "reset",
            Self::TooManyBytes { .. } => "too-many-bytes",
            Self::TooManyMarks { .. } => "too-many-marks",
            Self::Missing(_) => "missing",
            Self::OffPath => "off-path",
            Self::Empty { .. } => "empty",
            Self::TooManyFlows(_) => "too-many-flows",
        }
    }
}

/// The traffic of a port in one window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// The index of the window: the time since the epoch, in windows.
    pub index: u64,
    /// Bytes sent.
    pub bytes: u64,
    /// Packets marked.
    pub marks: u64,
    /// The part of the window that reports cover, in nanoseconds.
    pub covered: u64,
}

impl Window {
    /// Returns the mean rate in bits per second.
    pub fn rate(&self) -> u64 {
        let bits = u128::from(self.bytes) * 8_000_000_000;
        u64::try_from(bits / u128::from(self.covered.max(1))).unwrap_or(u64::MAX)
    }
}

/// The recent reports of one port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct History {
    /// The last report: nanoseconds, bytes, marks.
    last: (u64, u64, u64),
    /// The recent windows, the newest last.
    windows: VecDeque<Window>,
}

impl History {
    /// Returns the indices of its windows.
    pub(crate) fn indices(&self) -> impl Iterator<Item = u64> + '_ {
        self.windows.iter().map(|window| window.index)
    }
}

/// The recent reports of all ports.
#[derive(Clone, Debug)]
pub struct Telemetry {
    window: Duration,
    keep: usize,
    ports: BTreeMap<LinkId, History>,
}

/// Minimum size of a packet in bytes; it bounds the number of marks by the number of bytes.
pub const MIN_PACKET_BYTES: u64 = 64;
/// Tolerance for the delay between reading a counter and taking its timestamp.
const TIMESTAMP_TOLERANCE: Duration = Duration::from_millis(100);

impl Telemetry {
    /// Creates an empty record that keeps the last `keep` windows of each port.
    ///
    /// # Panics
    /// If `window` is zero.
    pub fn new(window: Duration, keep: usize) -> Self {
        assert!(window > Duration::ZERO, "a window has a length");
        Self { window, keep, ports: BTreeMap::new() }
    }

    /// Returns the number of windows that are kept of each port.
    pub(crate) const fn windows_kept(&self) -> u64 {
        self.keep as u64
    }

    /// Returns the index of the window that contains an instant.
    pub const fn index(&self, at: Instant) -> u64 {
        at.as_nanos() / self.window.as_nanos()
    }

    /// Counts a report of a port whose link has this rate.
    ///
    /// # Errors
    /// Returns a [`TelemetryError`] if the report is not counted. The next report is still compared with it, unless it
    /// is as old as the last one or older.
    pub fn record(&mut self, report: PortReport, rate: BitRate) -> Result<(), TelemetryError> {
        let now = (report.at.as_nanos(), report.bytes, report.marks);
        let Some(history) = self.ports.get_mut(&report.link) else {
            self.ports.insert(report.link, History { last: now, windows: VecDeque::new() });
            return Ok(());
        };
        let (at, bytes, marks) = history.last;
        if now.0 == at {
            return Err(TelemetryError::Repeated);
        }
        if now.0 < at {
            return Err(TelemetryError::OutOfOrder(Duration::from_nanos(at - now.0)));
        }
        history.last = now;
        let (Some(bytes), Some(marks)) = (now.1.checked_sub(bytes), now.2.checked_sub(marks))
        else {
            return Err(TelemetryError::Reset);
        };
        let span = Duration::from_nanos(now.0 - at);
        let ByteCount(max) = rate.bytes_in(span + TIMESTAMP_TOLERANCE + span / 50);
        if bytes > max {
            return Err(TelemetryError::TooManyBytes { bytes, span, max });
        }
        if marks > bytes / MIN_PACKET_BYTES {
            return Err(TelemetryError::TooManyMarks { marks, bytes });
        }
        if span > self.window + self.window / 2 {
            return Err(TelemetryError::Missing(span));
        }
        let index = (at + span.as_nanos() / 2) / self.window.as_nanos();
        if history.windows.back().is_none_or(|last| last.index != index) {
            history.windows.push_back(Window { index, ..Window::default() });
            if history.windows.len() > self.keep {
                history.windows.pop_front();
            }
        }
        let window = history.windows.back_mut().expect("one was pushed if there was none");
        window.bytes = window.bytes.saturating_add(bytes);
        window.marks = window.marks.saturating_add(marks);
        window.covered = window.covered.saturating_add(span.as_nanos());
        Ok(())
    }

    /// Returns a port's traffic in a window; `None` if reports cover less than half of it.
    pub fn window(&self, link: LinkId, index: u64) -> Option<&Window> {
        let windows = &self.ports.get(&link)?.windows;
        let window = windows.iter().rev().find(|window| window.index == index)?;
        (window.covered >= self.window.as_nanos() / 2).then_some(window)
    }

    /// Returns every port that has reported.
    pub fn ports(&self) -> impl Iterator<Item = LinkId> + '_ {
        self.ports.keys().copied()
    }

    /// Discards a port's reports, because its link was down or leads elsewhere now.
    pub fn discard(&mut self, link: LinkId) {
        self.ports.remove(&link);
    }

    pub(crate) const fn histories(&self) -> &BTreeMap<LinkId, History> {
        &self.ports
    }

    pub(crate) fn restore(&mut self, link: LinkId, history: History) {
        self.ports.insert(link, history);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINK: LinkId = LinkId(3);

    fn telemetry() -> Telemetry {
        Telemetry::new(Duration::from_secs(10), 6)
    }

    fn report(
        telemetry: &mut Telemetry,
        seconds: u64,
        bytes: u64,
        marks: u64,
    ) -> Result<(), TelemetryError> {
        let at = Instant::EPOCH + Duration::from_secs(seconds);
        let rate = BitRate::gbps(100).unwrap();
        telemetry.record(PortReport { link: LINK, at, bytes, marks }, rate)
    }

    #[test]
    fn differences_count_in_the_window_of_their_middle() {
        let mut telemetry = telemetry();
        for (seconds, bytes, marks) in [(0, 5_000_000, 7), (5, 6_000_000, 8), (10, 8_000_000, 10)] {
            report(&mut telemetry, seconds, bytes, marks).unwrap();
        }
        let window = telemetry.window(LINK, 0).unwrap();
        assert_eq!((window.bytes, window.marks), (3_000_000, 3));
        assert_eq!(window.rate(), 2_400_000);
        assert!(telemetry.window(LINK, 1).is_none());
    }

    #[test]
    fn impossible_reports_are_named_and_not_counted() {
        let mut telemetry = telemetry();
        report(&mut telemetry, 0, 0, 0).unwrap();
        // 100 Gb/s is 12.5 GB per second.
        let error = report(&mut telemetry, 10, 200_000_000_000, 0).unwrap_err();
        assert!(matches!(error, TelemetryError::TooManyBytes { .. }), "{error}");
        assert_eq!(report(&mut telemetry, 10, 1, 0), Err(TelemetryError::Repeated));
        assert_eq!(
            report(&mut telemetry, 9, 1, 0),
            Err(TelemetryError::OutOfOrder(Duration::from_secs(1)))
        );
        assert_eq!(report(&mut telemetry, 20, 1, 0), Err(TelemetryError::Reset));
        let error = report(&mut telemetry, 30, 6401, 101).unwrap_err();
        assert_eq!(error, TelemetryError::TooManyMarks { marks: 101, bytes: 6400 });
        let gap = report(&mut telemetry, 50, 7000, 101).unwrap_err();
        assert_eq!(gap, TelemetryError::Missing(Duration::from_secs(20)));
        assert!((0..6).all(|index| telemetry.window(LINK, index).is_none()));
        report(&mut telemetry, 60, 8000, 101).unwrap();
        assert_eq!(telemetry.window(LINK, 5).unwrap().bytes, 1000);
    }
}
