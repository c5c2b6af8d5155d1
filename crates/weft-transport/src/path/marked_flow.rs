//! A flow on one path that counts its consecutive congested round trips, by the share of their ACKs that report marks.
//! Policies set that share, and decide when to leave.

use weft_units::{Duration, Instant, Rng};

use super::current::Current;
use super::{Candidates, Feedback, PathId, Paths};
use crate::TransportConfig;

/// A flow and its current round trip.
#[derive(Debug, Default)]
pub(super) struct MarkedFlow {
    current: Current,
    base_rtt: Duration,
    /// `true` if ACKs of a path that was left count too.
    stale: bool,
    /// The time at which the current round trip began; `None` before the first packet.
    began: Option<Instant>,
    acked: u32,
    marked: u32,
    congested_rounds: u8,
}

/// The ACKs of a round trip, and the marked ones among them.
#[derive(Clone, Copy, Debug)]
pub(super) struct MarkedShare {
    acked: u32,
    marked: u32,
}

impl MarkedShare {
    /// Returns `true` if the marked share is more than this many per cent.
    pub(super) fn exceeds(self, percent: u32) -> bool {
        u64::from(self.marked) * 100 > u64::from(self.acked) * u64::from(percent)
    }

    /// Returns `true` if the marked share is at least this many per cent.
    pub(super) fn reaches(self, percent: u32) -> bool {
        u64::from(self.marked) * 100 >= u64::from(self.acked) * u64::from(percent)
    }
}

impl MarkedFlow {
    pub(super) fn new(config: &TransportConfig) -> Self {
        Self { base_rtt: config.base_rtt, ..Self::default() }
    }

    /// Sets whether ACKs of a path that was left count for the new one.
    pub(super) fn with_stale_marks(self, stale: bool) -> Self {
        Self { stale, ..self }
    }

    /// Returns the path of the next packet.
    #[inline]
    pub(super) fn select(
        &mut self,
        paths: &Candidates<'_>,
        now: Instant,
        rng: &mut Rng,
    ) -> Option<PathId> {
        self.began.get_or_insert(now);
        self.current.select_or_other(paths, rng)
    }

    /// Returns the path, if one is chosen.
    pub(super) fn path(&self) -> Option<PathId> {
        self.current.path()
    }

    /// Returns the number of consecutive congested round trips on this path.
    pub(super) fn congested_rounds(&self) -> u8 {
        self.congested_rounds
    }

    /// Moves to another path for the next packet.
    pub(super) fn leave(&mut self, now: Instant) {
        self.current.leave();
        self.congested_rounds = 0;
        self.begin(now);
    }

    /// Processes a packet's feedback: a round trip for which `is_congested` returns `true` counts, a timeout leaves the
    /// path. Feedback of a path that was left does not count for its successor, unless stale marks count.
    #[inline]
    pub(super) fn on_feedback(
        &mut self,
        path: PathId,
        feedback: Feedback,
        paths: &Paths,
        now: Instant,
        is_congested: impl Fn(MarkedShare) -> bool,
    ) {
        let current = self.current.is(path);
        match feedback {
            Feedback::Acked { marked, .. } if current || self.stale => {
                let length = paths.rtt(path).unwrap_or(self.base_rtt);
                if let Some(share) = self.count(marked, length, now) {
                    let congested = is_congested(share);
                    self.congested_rounds = if congested { self.congested_rounds + 1 } else { 0 };
                }
            }
            Feedback::TimedOut if current => self.leave(now),
            Feedback::Acked { .. } | Feedback::Lost | Feedback::Trimmed | Feedback::TimedOut => {}
        }
    }

    /// Counts an ACK; returns the counts once a round trip of this length has passed.
    #[inline]
    fn count(&mut self, marked: bool, length: Duration, now: Instant) -> Option<MarkedShare> {
        self.acked += 1;
        self.marked += u32::from(marked);
        if self.began.is_some_and(|began| now.since(began) < length) {
            return None;
        }
        let share = MarkedShare { acked: self.acked, marked: self.marked };
        self.begin(now);
        Some(share)
    }

    fn begin(&mut self, now: Instant) {
        self.began = Some(now);
        (self.acked, self.marked) = (0, 0);
    }
}
