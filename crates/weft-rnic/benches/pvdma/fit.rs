//! A linear fit of measurements (least squares).

use std::time::Duration;

/// Sums of the points: bytes and seconds.
#[derive(Default)]
pub(crate) struct Line {
    count: f64,
    x: f64,
    y: f64,
    xx: f64,
    xy: f64,
}

#[expect(clippy::cast_precision_loss, reason = "bytes for a fit")]
impl Line {
    /// Adds a measurement.
    pub(crate) fn add(&mut self, bytes: u64, took: Duration) {
        let (x, y) = (bytes as f64, took.as_secs_f64());
        self.count += 1.0;
        self.x += x;
        self.y += y;
        self.xx += x * x;
        self.xy += x * y;
    }

    /// Returns the fitted time for `bytes` in seconds.
    pub(crate) fn at(&self, bytes: u64) -> f64 {
        let slope =
            (self.count * self.xy - self.x * self.y) / (self.count * self.xx - self.x * self.x);
        (self.y - slope * self.x) / self.count + slope * bytes as f64
    }
}
