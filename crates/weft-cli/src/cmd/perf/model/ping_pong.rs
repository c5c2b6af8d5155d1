//! One message there and back at a time.

use weft_units::{Duration, Rng};

use super::{Call, Shape};

const SIZE: u32 = 64;

pub(super) struct Model {
    size: u32,
    busy: bool,
}

impl Model {
    pub(super) fn new(shape: &Shape) -> Self {
        Self { size: shape.size.unwrap_or(SIZE), busy: false }
    }
}

impl super::Model for Model {
    fn classes(&self) -> &'static [&'static str] {
        &["round trip"]
    }

    fn next(&mut self, at: Duration, _: &mut Rng) -> Option<Call> {
        let free = !core::mem::replace(&mut self.busy, true);
        let (request, response) = (self.size, self.size);
        free.then_some(Call { due: at, channel: 0, request, response, class: 0 })
    }

    fn on_response(&mut self, _: &Call, _: Duration) -> Option<(usize, Duration)> {
        self.busy = false;
        None
    }
}
