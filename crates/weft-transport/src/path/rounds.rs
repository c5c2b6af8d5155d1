//! Round trips of one path and the share of their ACKs that report marks.

use weft_units::{Duration, Instant};

/// The round trip under way.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rounds {
    began: Option<Instant>,
    acked: u32,
    marked: u32,
}

/// Of how many ACKs of a round trip how many were marked.
#[derive(Clone, Copy, Debug)]
pub(super) struct MarkedShare {
    acked: u32,
    marked: u32,
}

impl MarkedShare {
    /// Whether it is more than this many per cent.
    pub(super) fn exceeds(self, percent: u32) -> bool {
        u64::from(self.marked) * 100 > u64::from(self.acked) * u64::from(percent)
    }

    /// Whether it is at least this many per cent.
    pub(super) fn reaches(self, percent: u32) -> bool {
        u64::from(self.marked) * 100 >= u64::from(self.acked) * u64::from(percent)
    }
}

impl Rounds {
    /// Begins a round trip and forgets the one under way.
    pub(super) fn begin(&mut self, now: Instant) {
        *self = Self { began: Some(now), ..Self::default() };
    }

    /// Begins the first one.
    #[inline]
    pub(super) fn begin_first(&mut self, now: Instant) {
        self.began.get_or_insert(now);
    }

    /// Counts an ACK; what was counted, once a round trip of this length has passed.
    #[inline]
    pub(super) fn count(
        &mut self,
        marked: bool,
        length: Duration,
        now: Instant,
    ) -> Option<MarkedShare> {
        self.acked += 1;
        self.marked += u32::from(marked);
        if self.began.is_some_and(|began| now.since(began) < length) {
            return None;
        }
        let share = MarkedShare { acked: self.acked, marked: self.marked };
        self.begin(now);
        Some(share)
    }
}
