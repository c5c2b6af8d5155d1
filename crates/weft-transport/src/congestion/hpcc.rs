//! HPCC, high precision congestion control (Li et al., SIGCOMM 2019, section 3): one window for each path, from telemetry
//! that switches write on packets ([`HopTelemetry`]). Each ACK returns the queue, the bytes sent and the time of every link
//! of the path; two ACKs give the rate of each link, and the fullest link's bytes in flight, in bandwidth-delay products,
//! are the utilisation `U`. The window follows `Wc / (U / η) + W_AI` at once, and its reference `Wc` once a round trip, so
//! that no ACK is answered twice. Below `η`, the window grows by `W_AI` for up to `max_stage` round trips in between.
//!
//! Packets leave at the rate of a window in a round trip. The window may be a fraction of a packet, down to a thousandth
//! of a bandwidth-delay product (100 Mb/s at 100 Gb/s, as in the authors' simulator); one packet may always be in flight.
//!
//! Losses change nothing: the paper's networks lose no packets, and its retransmission is not part of the control. Without
//! telemetry the window stays as it starts.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use weft_units::{BitRate, Duration, Instant};

use super::telemetry::HopTelemetry;
use super::{AckSample, Congestion, bandwidth_delay_product, initial_window};
use crate::TransportConfig;
use crate::config::{Range, Settings};

/// HPCC's parameters (section 3.3, and section 5.1 for the values).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields, default))]
pub struct HpccConfig {
    /// The utilisation of links that windows aim at, per cent (η).
    pub eta_percent: u8,
    /// The round trips with additive increases between two that follow the utilisation (`maxStage`).
    pub max_stage: u8,
    /// The additive increase, bytes (`W_AI`). The sum over the flows of a link should stay below 1 - η of its
    /// bandwidth-delay product.
    pub additive_increase: u32,
}

impl Default for HpccConfig {
    fn default() -> Self {
        Self { eta_percent: 95, max_stage: 5, additive_increase: 80 }
    }
}

impl Settings for HpccConfig {
    fn ranges(&self) -> Vec<Range> {
        let &Self { eta_percent, max_stage, additive_increase } = self;
        vec![
            ("hpcc.eta_percent", eta_percent.into(), 1, 100, "1 to 100"),
            ("hpcc.max_stage", max_stage.into(), 0, 255, "at most 255"),
            ("hpcc.additive_increase", additive_increase.into(), 1, 1 << 20, "1 to 1048576 bytes"),
        ]
    }
}

/// The smallest window, as a part of the bandwidth-delay product.
const MIN_WINDOW: f64 = 0.001;

/// A window that follows the fullest link of a path.
#[derive(Debug)]
pub struct Controller {
    /// The window and its reference `Wc`, bytes.
    window: f64,
    reference: f64,
    /// The average utilisation of the fullest link, `U`.
    utilisation: f64,
    /// The links at the latest ACK; empty before the first.
    links: Vec<HopTelemetry>,
    /// `true` if telemetry came that no ACK has used yet.
    is_fresh: bool,
    stage: u8,
    /// Bytes in flight when the reference was last updated, and bytes acknowledged since.
    round: u32,
    acked: u32,
    parameters: Box<Parameters>,
}

/// The constants of a connection's control.
#[derive(Debug)]
struct Parameters {
    max_stage: u8,
    eta: f64,
    additive_increase: f64,
    packet: u32,
    max_window: u32,
    base_rtt: Duration,
}

#[expect(
    clippy::cast_precision_loss,
    reason = "bytes and nanoseconds of less than hours are exact"
)]
const fn float(value: u64) -> f64 {
    value as f64
}

/// Returns the utilisation of a link between two departures, in bandwidth-delay products, and the time between them,
/// nanoseconds; `None` unless time passed (section 3.2, equation 2, and algorithm 1, lines 4 to 6).
fn utilisation(
    earlier: &HopTelemetry,
    later: &HopTelemetry,
    base_rtt_ns: f64,
) -> Option<(f64, f64)> {
    let span_ns = float(later.at.since(earlier.at).as_nanos());
    if span_ns <= 0.0 {
        return None;
    }
    let bytes_per_ns = float(later.rate.as_bps()) / 8e9;
    let queue = float(later.queue.min(earlier.queue)) / (bytes_per_ns * base_rtt_ns);
    let sent = float(later.sent.saturating_sub(earlier.sent)) / span_ns;
    Some((queue + sent / bytes_per_ns, span_ns))
}

impl Controller {
    pub(super) fn new(config: &TransportConfig) -> Self {
        let HpccConfig { eta_percent, max_stage, additive_increase } = config.hpcc;
        let window = f64::from(initial_window(config));
        Self {
            window,
            reference: window,
            utilisation: 0.0,
            links: Vec::new(),
            is_fresh: false,
            stage: 0,
            round: 0,
            acked: 0,
            parameters: Box::new(Parameters {
                max_stage,
                eta: f64::from(eta_percent) / 100.0,
                additive_increase: f64::from(additive_increase),
                packet: config.mtu.into(),
                max_window: bandwidth_delay_product(config),
                base_rtt: config.base_rtt,
            }),
        }
    }

    /// Updates the average utilisation of the fullest link (`MeasureInflight` of algorithm 1). The average has the weight
    /// of the time that the sample covers, so that a round trip replaces it.
    fn measure(&mut self, hops: &[HopTelemetry]) {
        let base_rtt_ns = float(self.parameters.base_rtt.as_nanos());
        let links = self.links.iter().zip(hops);
        let measured =
            links.filter_map(|(earlier, later)| utilisation(earlier, later, base_rtt_ns));
        let fullest = measured.reduce(|a, b| if b.0 > a.0 { b } else { a });
        if let Some((utilisation, span_ns)) = fullest {
            let weight = (span_ns / base_rtt_ns).min(1.0);
            self.utilisation = (1.0 - weight) * self.utilisation + weight * utilisation;
            self.is_fresh = true;
        }
    }

    /// Returns the window of a utilisation (`ComputeWind` of algorithm 1), and the stage that follows it.
    fn window_of(&self, utilisation: f64) -> (f64, u8) {
        if utilisation >= self.parameters.eta || self.stage >= self.parameters.max_stage {
            let followed =
                self.reference / (utilisation / self.parameters.eta).max(f64::MIN_POSITIVE);
            (followed + self.parameters.additive_increase, 0)
        } else {
            (self.reference + self.parameters.additive_increase, self.stage + 1)
        }
    }
}

impl Congestion for Controller {
    #[inline(never)]
    fn on_telemetry(&mut self, hops: &[HopTelemetry]) {
        let is_same_way = self.links.len() == hops.len()
            && self.links.iter().zip(hops).all(|(before, now)| before.link == now.link);
        if is_same_way {
            // An ACK that was overtaken by a later one measures nothing.
            if hops.last().zip(self.links.last()).is_some_and(|(now, before)| now.at < before.at) {
                return;
            }
            self.measure(hops);
        }
        self.links.clear();
        self.links.extend_from_slice(hops);
    }

    #[inline(never)]
    fn on_ack(&mut self, ack: &AckSample) {
        self.acked = self.acked.saturating_add(ack.acked_bytes);
        if !core::mem::take(&mut self.is_fresh) {
            return;
        }
        let (window, stage) = self.window_of(self.utilisation);
        let largest = f64::from(self.parameters.max_window);
        self.window = window.clamp(MIN_WINDOW * largest, largest);
        if self.acked > self.round {
            (self.reference, self.stage) = (self.window, stage);
            (self.round, self.acked) = (ack.in_flight, 0);
        }
    }

    fn on_loss(&mut self, _now: Instant) {}

    fn on_timeout(&mut self, _now: Instant) {}

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is clamped")]
    fn window(&self) -> u32 {
        (self.window as u32).max(self.parameters.packet)
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is clamped")]
    fn rate(&self) -> Option<BitRate> {
        let seconds = float(self.parameters.base_rtt.as_nanos()) / 1e9;
        BitRate::bps((self.window * 8.0 / seconds + 0.5).max(1.0) as u64)
    }
}

#[cfg(test)]
mod tests;
