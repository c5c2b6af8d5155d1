//! Elephants and mice: long messages without pause on the first channel, and open-loop short calls on the others, or
//! on the same one if there is no other.

use weft_units::{Duration, Rng};

use super::{Arrivals, Call, Shape};

/// Bytes of an elephant, and of a mouse.
const ELEPHANT: u32 = 4 << 20;
const MOUSE: u32 = 256;

pub(super) struct Model {
    /// Bytes of an elephant.
    elephant: u32,
    /// Number of elephants that may start now.
    may_start: u32,
    mice: Arrivals,
    channels: u32,
    /// The channel of the last mouse, before the limit to existing channels.
    last: u32,
}

impl Model {
    pub(super) fn new(shape: &Shape) -> Self {
        Self {
            elephant: shape.size.unwrap_or(ELEPHANT),
            may_start: shape.outstanding,
            mice: Arrivals::new(shape.rate),
            channels: shape.channels,
            last: 0,
        }
    }
}

impl super::Model for Model {
    fn classes(&self) -> &'static [&'static str] {
        &["elephants", "mice"]
    }

    fn next(&mut self, at: Duration, rng: &mut Rng) -> Option<Call> {
        if self.may_start > 0 {
            self.may_start -= 1;
            return Some(Call {
                due: at,
                channel: 0,
                request: self.elephant,
                response: 0,
                class: 0,
            });
        }
        let due = self.mice.take(at, rng)?;
        self.last = self.last % self.channels.saturating_sub(1).max(1) + 1;
        let channel = self.last.min(self.channels - 1);
        Some(Call { due, channel, request: MOUSE, response: MOUSE, class: 1 })
    }

    fn due(&self) -> Option<Duration> {
        Some(self.mice.next)
    }

    fn on_response(&mut self, call: &Call, _: Duration) -> Option<(usize, Duration)> {
        self.may_start += u32::from(call.class == 0);
        None
    }
}
