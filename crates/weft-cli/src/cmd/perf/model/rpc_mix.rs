//! A mix of open-loop remote procedure calls: as many reads as writes, of sizes drawn from a distribution; classes are
//! by size. The message of the other direction is short.

use weft_sim::workload::sizes::Sizes;
use weft_units::{Duration, Rng};

use super::{Arrivals, Call, Shape};

const SHORT: u32 = 64;
/// The longest message, bytes; some distributions have a longer tail.
const MAX_SIZE: u32 = 16 << 20;
/// The longest message that fits its frame, and the longest that one READ fetches, with the defaults, bytes.
const BOUNDS: [u32; 2] = [4 << 10, 64 << 10];

pub(super) struct Model {
    sizes: Sizes,
    arrivals: Arrivals,
    channels: u32,
}

impl Model {
    pub(super) fn new(shape: &Shape) -> Self {
        let arrivals = Arrivals::new(shape.rate);
        Self { sizes: shape.sizes.clone(), arrivals, channels: shape.channels }
    }
}

impl super::Model for Model {
    fn classes(&self) -> &'static [&'static str] {
        &["to 4 KiB", "to 64 KiB", "longer"]
    }

    fn next(&mut self, at: Duration, rng: &mut Rng) -> Option<Call> {
        let due = self.arrivals.take(at, rng)?;
        let size = self.sizes.draw(rng).clamp(1, MAX_SIZE);
        let channel = u32::try_from(rng.below(self.channels.into())).expect("a channel");
        let class = BOUNDS.iter().filter(|&&bound| size > bound).count();
        let (request, response) = if rng.chance(1, 2) { (size, SHORT) } else { (SHORT, size) };
        Some(Call { due, channel, request, response, class })
    }

    fn due(&self) -> Option<Duration> {
        Some(self.arrivals.next)
    }

    fn on_response(&mut self, _: &Call, _: Duration) -> Option<(usize, Duration)> {
        None
    }
}
