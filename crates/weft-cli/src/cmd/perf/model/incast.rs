//! Incast: requests go out on all channels at once, and the responses meet. A round ends with the last of them.

use weft_units::{Duration, Rng};

use super::{Call, Shape};

/// Bytes of a request, and of a response by default.
const REQUEST: u32 = 64;
const RESPONSE: u32 = 64 << 10;

pub(super) struct Model {
    response: u32,
    channels: u32,
    begun: Duration,
    /// Requests of this round that are not sent yet, and its responses that are missing.
    unsent: u32,
    missing: u32,
}

impl Model {
    pub(super) fn new(shape: &Shape) -> Self {
        let response = shape.size.unwrap_or(RESPONSE);
        Self { response, channels: shape.channels, begun: Duration::ZERO, unsent: 0, missing: 0 }
    }
}

impl super::Model for Model {
    fn classes(&self) -> &'static [&'static str] {
        &["answer", "round"]
    }

    fn next(&mut self, at: Duration, _: &mut Rng) -> Option<Call> {
        if self.missing == 0 {
            (self.begun, self.unsent, self.missing) = (at, self.channels, self.channels);
        }
        self.unsent = self.unsent.checked_sub(1)?;
        let (due, response) = (self.begun, self.response);
        Some(Call { due, channel: self.unsent, request: REQUEST, response, class: 0 })
    }

    fn on_response(&mut self, _: &Call, at: Duration) -> Option<(usize, Duration)> {
        self.missing -= 1;
        (self.missing == 0).then(|| (1, at.saturating_sub(self.begun)))
    }
}
