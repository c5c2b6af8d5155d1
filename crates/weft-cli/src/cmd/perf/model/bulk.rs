//! Long messages, several in flight on each channel; each is acknowledged by a response.

use weft_units::{Duration, Rng};

use super::{Call, Shape};

const SIZE: u32 = 1 << 20;

pub(super) struct Model {
    size: u32,
    /// Channels that may carry one more message; a channel is listed once for each such message.
    free: Vec<u32>,
}

impl Model {
    pub(super) fn new(shape: &Shape) -> Self {
        let slots = (0..shape.outstanding).flat_map(|_| 0..shape.channels);
        Self { size: shape.size.unwrap_or(SIZE), free: slots.collect() }
    }
}

impl super::Model for Model {
    fn classes(&self) -> &'static [&'static str] {
        &["transfer"]
    }

    fn next(&mut self, at: Duration, _: &mut Rng) -> Option<Call> {
        let channel = self.free.pop()?;
        Some(Call { due: at, channel, request: self.size, response: 0, class: 0 })
    }

    fn on_response(&mut self, call: &Call, _: Duration) -> Option<(usize, Duration)> {
        self.free.push(call.channel);
        None
    }
}
