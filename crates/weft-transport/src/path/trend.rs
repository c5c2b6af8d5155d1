//! The trend of a path's round-trip time: a line through samples, by least squares.

use weft_units::Duration;

/// The samples of one epoch, as sums. `x` counts packets, `y` is nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Trend {
    samples: f64,
    x: f64,
    y: f64,
    xx: f64,
    xy: f64,
}

impl Trend {
    /// Adds the round trip of the packet numbered `packet` of this epoch.
    #[inline]
    pub(super) fn add(&mut self, packet: u32, rtt: Duration) {
        let (x, y) = (f64::from(packet), nanos(rtt));
        self.samples += 1.0;
        self.x += x;
        self.y += y;
        self.xx += x * x;
        self.xy += x * y;
    }

    /// Returns the mean of the samples; `None` without any.
    pub(super) fn mean(&self) -> Option<Duration> {
        (self.samples > 0.0).then(|| span(self.y / self.samples))
    }

    /// Returns the line's value at packet number `packet`. A falling line is treated as level: an estimate that is too
    /// high costs a little time, one that is too low costs reordering. `None` without samples.
    pub(super) fn at(&self, packet: u32) -> Option<Duration> {
        let mean = self.y / self.samples;
        let spread = self.samples * self.xx - self.x * self.x;
        let slope =
            if spread > 0.0 { (self.samples * self.xy - self.x * self.y) / spread } else { 0.0 };
        let ahead = f64::from(packet) - self.x / self.samples;
        (self.samples > 0.0).then(|| span(mean + slope.max(0.0) * ahead))
    }
}

#[expect(clippy::cast_precision_loss, reason = "2^53 ns is 104 days")]
fn nanos(span: Duration) -> f64 {
    span.as_nanos() as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a mean of spans and a rise above it; the cast saturates"
)]
fn span(nanos: f64) -> Duration {
    Duration::from_nanos(nanos as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trend(samples: &[(u32, u64)]) -> Trend {
        let mut trend = Trend::default();
        samples.iter().for_each(|&(packet, rtt)| trend.add(packet, Duration::from_nanos(rtt)));
        trend
    }

    #[test]
    fn a_line_is_found_and_extended() {
        let rising = trend(&[(0, 10_000), (4, 10_400), (8, 10_800)]);
        assert_eq!(rising.mean(), Some(Duration::from_nanos(10_400)));
        assert_eq!(rising.at(8), Some(Duration::from_nanos(10_800)));
        assert_eq!(rising.at(58), Some(Duration::from_nanos(15_800)));
    }

    /// By hand, the line is y = 1.4 x + 3.5, y in microseconds, through (1, 6), (2, 5), (3, 7), (4, 10).
    #[test]
    fn the_line_is_that_of_least_squares() {
        let noisy = trend(&[(1, 6_000), (2, 5_000), (3, 7_000), (4, 10_000)]);
        assert_eq!(noisy.at(10), Some(Duration::from_nanos(17_500)));
    }

    #[test]
    fn a_falling_line_or_a_single_sample_is_taken_as_level() {
        assert_eq!(trend(&[(0, 900), (2, 500)]).at(10), Some(Duration::from_nanos(700)));
        assert_eq!(trend(&[(3, 900)]).at(50), Some(Duration::from_nanos(900)));
        assert_eq!(Trend::default().at(1), None);
    }
}
