//! One bandwidth-delay product in flight, whatever happens: the yardstick for the others.

use weft_units::Instant;

use super::{AckSample, Congestion, bandwidth_delay_product};
use crate::TransportConfig;

/// A window that never moves.
#[derive(Debug)]
pub struct Controller {
    window: u32,
}

impl Controller {
    pub(super) fn new(config: &TransportConfig) -> Self {
        Self { window: bandwidth_delay_product(config) }
    }
}

impl Congestion for Controller {
    fn on_ack(&mut self, _ack: &AckSample) {}

    fn on_loss(&mut self, _now: Instant) {}

    fn on_timeout(&mut self, _now: Instant) {}

    fn window(&self) -> u32 {
        self.window
    }
}
