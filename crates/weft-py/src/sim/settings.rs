//! The settings of a connection, and times, as Python has them.

use pyo3::prelude::*;
use weft_transport::TransportConfig;
use weft_units::Instant;

/// The settings of a connection, which a new policy or control gets.
#[pyclass(frozen, get_all, module = "weft._weft")]
#[derive(Clone, Copy, Debug)]
pub(super) struct Config {
    mtu: u16,
    paths: u16,
    line_rate_gbps: f64,
    base_rtt_us: f64,
    bdp: u64,
}

impl From<&TransportConfig> for Config {
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    fn from(config: &TransportConfig) -> Self {
        Self {
            mtu: config.mtu,
            paths: config.paths,
            line_rate_gbps: config.line_rate.as_bps() as f64 / 1e9,
            base_rtt_us: config.base_rtt.as_micros_f64(),
            bdp: config.bdp().0,
        }
    }
}

/// Returns a time as microseconds since the start.
pub(super) fn micros(now: Instant) -> f64 {
    now.since(Instant::EPOCH).as_micros_f64()
}
