//! Incast: requests go out on all channels at once, and the responses meet. A round ends with the last of them.

use weft_units::{Duration, Rng};

use super::{Call, Shape};

const REQUEST: u32 = 64;
const ANSWER: u32 = 64 << 10;

pub(super) struct Model {
    answer: u32,
    channels: u32,
    begun: Duration,
    /// Channels whose request is still to be sent, and responses that are still to come.
    to_ask: u32,
    to_come: u32,
}

impl Model {
    pub(super) fn new(shape: &Shape) -> Self {
        let answer = shape.size.unwrap_or(ANSWER);
        Self { answer, channels: shape.channels, begun: Duration::ZERO, to_ask: 0, to_come: 0 }
    }
}

impl super::Model for Model {
    fn classes(&self) -> &'static [&'static str] {
        &["answer", "round"]
    }

    fn next(&mut self, at: Duration, _: &mut Rng) -> Option<Call> {
        if self.to_come == 0 {
            (self.begun, self.to_ask, self.to_come) = (at, self.channels, self.channels);
        }
        self.to_ask = self.to_ask.checked_sub(1)?;
        let (due, response) = (self.begun, self.answer);
        Some(Call { due, channel: self.to_ask, request: REQUEST, response, class: 0 })
    }

    fn answered(&mut self, _: &Call, at: Duration) -> Option<(usize, Duration)> {
        self.to_come -= 1;
        (self.to_come == 0).then(|| (1, at.saturating_sub(self.begun)))
    }
}
