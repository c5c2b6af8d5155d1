//! A constant window of one bandwidth-delay product: the reference for the other controls.

use weft_units::Instant;

use super::{AckSample, Congestion, bandwidth_delay_product};
use crate::TransportConfig;

/// A constant window.
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
