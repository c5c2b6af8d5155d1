//! NSCC, network signal-based congestion control (Ultra Ethernet specification 1.0.3, section 3.6.13): one window at the
//! sender that congestion marks and queueing delay move together. A mark alone is transient congestion on one path, which
//! the path policy leaves; a delay alone is a queue that already shrinks.
//!
//! | | delay below the target | delay at the target or above |
//! | --- | --- | --- |
//! | no mark | proportional increase, or fast increase on an empty network | fair increase |
//! | mark | nothing | multiplicative decrease, once a round trip |
//!
//! *Quick adapt* replaces all of that when far less arrives than the window allows: the window becomes the bytes that
//! arrived. The parameters were tuned for a network of 150,000 bytes and 12 us, and are scaled to the configured one.
//!
//! The differences from the specification:
//! * The gain of the average delay, which it leaves open, is that of its public simulator (uet-htsim), 0.0125; so are
//!   the values that the average takes where no delay counts, and the delay that counts as none.
//! * The round trip of the empty network is as configured, the same for all peers.
//! * The receiver's scaling of the window (`Rcv_Cwnd_Pend`) is left out, as in that simulator.
//! * A loss that a later packet reveals takes the packet off the window, as a trimmed packet does: the window must also
//!   work where no switch trims.
//! * Quick adapt does not run while the receiver's credit permits less than the window: what arrives is then what was
//!   granted. A flow that had its turn of a hundred was set to one packet, and was the last to end.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use weft_units::{Duration, Instant};

use super::{AckSample, Congestion, bandwidth_delay_product, rccc};
use crate::config::{Range, Settings};
use crate::{TransportConfig, TrimmedAt};

/// NSCC's parameters that depend on the network (Ultra Ethernet specification 1.0.3, section 3.6.13). All others are
/// constants of the specification, scaled by `line_rate` and `base_rtt`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields, default))]
pub struct NsccConfig {
    /// `true` if the switches trim packets instead of dropping them: the target is lower then, and delay alone does not
    /// start quick adapt, because trimmed packets do.
    pub trimming: bool,
    /// `true` sends by the receiver's credit too, as `rccc` does. A packet trimmed at the last hop does not shrink the window
    /// then: credit limits the queue there.
    pub credits: bool,
    /// The target queueing delay; zero is 0.75 of `base_rtt` with trimming, and `base_rtt` without.
    pub target_queue_delay: Duration,
}

impl Settings for NsccConfig {
    fn ranges(&self) -> Vec<Range> {
        let target = self.target_queue_delay.as_nanos();
        vec![("nscc.target_queue_delay", target, 0, 1_000_000_000, "at most 1s")]
    }
}

/// The network that the constants are for: bytes and nanoseconds.
const REFERENCE_PRODUCT: f64 = 150_000.0;
const REFERENCE_RTT_NS: f64 = 12_000.0;

/// The first and largest window, as a multiple of the bandwidth-delay product: 3/2.
const MAX_WINDOW: (u32, u32) = (3, 2);
/// The proportional, the fair and the constant increase, packets of the reference network.
const PROPORTIONAL: f64 = 4.0;
const FAIR: f64 = 5.0;
const ETA: f64 = 0.15;
/// The part of acknowledged bytes that a fast increase adds in the reference network.
const FAST: f64 = 0.25;
/// The decrease for each unit of relative excess delay, and the smallest factor.
const GAMMA: f64 = 0.8;
const MIN_FACTOR: f64 = 0.5;
/// Number of packets after which increases are applied.
const ADJUST_PACKETS: u32 = 8;
/// Quick adapt runs if fewer than this part of the largest window arrived: 2^-3.
const QA_GATE: u32 = 3;
/// Without trimming, quick adapt also runs beyond this multiple of the target delay.
const QA_THRESHOLD: u64 = 4;
/// The weight of a new delay in the average.
const AVERAGE_GAIN: f64 = 0.0125;
/// The delay that counts for a packet that met a queue which has shrunk since, as a part of the round trip.
const SHRINKING: f64 = 0.25;
/// A queueing delay below this counts as none.
const EMPTY_NS: u64 = 1_000;

/// A window between a packet and [`MAX_WINDOW`] bandwidth-delay products.
#[derive(Debug)]
pub struct Controller {
    parameters: Box<Parameters>,
    /// The receiver's credit, if it is needed to send.
    credits: Option<Box<rccc::Controller>>,
    /// Bytes.
    window: f64,
    /// The sum of the increases not applied yet, bytes times the window.
    increase: f64,
    /// The average queueing delay, nanoseconds.
    average_ns: f64,
    /// The time when increases were last applied.
    adjusted_at: Instant,
    /// The time of the last multiplicative decrease; [`Instant::EPOCH`] before the first.
    decreased_at: Instant,
    /// The end of quick adapt's interval; [`Instant::EPOCH`] before the first.
    measured_until: Instant,
    /// Bytes acknowledged since the increases were applied, and since quick adapt's interval began.
    received: u32,
    achieved: u32,
    /// Bytes acknowledged in a row without a queue.
    without_queue: u32,
    /// Bytes left of those that were in flight when quick adapt ran: their marks and losses are its reason.
    to_ignore: u32,
    /// Bytes in flight before the latest ACK.
    in_flight: u32,
    /// `true` once a whole window was acknowledged without a queue.
    is_fast: bool,
}

/// The specification's parameters in this network.
#[derive(Debug)]
struct Parameters {
    packet: u32,
    max_window: u32,
    base_rtt: Duration,
    target_ns: u64,
    qa_threshold_ns: u64,
    /// Bytes per nanosecond.
    alpha: f64,
    /// Bytes.
    fair: f64,
    eta: f64,
    /// A part of the acknowledged bytes.
    fast: f64,
}

impl Parameters {
    fn new(config: &TransportConfig) -> Self {
        let NsccConfig { trimming, target_queue_delay, .. } = config.nscc;
        let product = bandwidth_delay_product(config);
        let packet = u32::from(config.mtu);
        let base_ns = config.base_rtt.as_nanos();
        let target_ns = match target_queue_delay.as_nanos() {
            0 if trimming => base_ns * 3 / 4,
            0 => base_ns,
            target => target,
        }
        .max(1);
        let scale = f64::from(product) / REFERENCE_PRODUCT;
        let packets = f64::from(packet) * scale;
        Self {
            packet,
            max_window: product.saturating_mul(MAX_WINDOW.0) / MAX_WINDOW.1,
            base_rtt: config.base_rtt,
            target_ns,
            qa_threshold_ns: if trimming { u64::MAX } else { QA_THRESHOLD * target_ns },
            // The specification scales it by target / 12 us and divides it by the target.
            alpha: PROPORTIONAL * packets / REFERENCE_RTT_NS,
            fair: FAIR * packets,
            eta: ETA * packets,
            fast: FAST * scale,
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "delays of hours are exact to a nanosecond")]
const fn float(nanos: u64) -> f64 {
    nanos as f64
}

impl Controller {
    pub(super) fn new(config: &TransportConfig) -> Self {
        let parameters = Box::new(Parameters::new(config));
        let max_window = parameters.max_window;
        Self {
            parameters,
            credits: config.nscc.credits.then(|| Box::new(rccc::Controller::new(config))),
            window: f64::from(max_window),
            increase: 0.0,
            average_ns: 0.0,
            adjusted_at: Instant::EPOCH,
            decreased_at: Instant::EPOCH,
            measured_until: Instant::EPOCH,
            received: 0,
            achieved: 0,
            without_queue: 0,
            to_ignore: 0,
            in_flight: max_window,
            is_fast: false,
        }
    }

    /// Adds a delay to the average; `None` is the delay of a packet that met a shrinking queue.
    fn average(&mut self, delay_ns: Option<u64>) {
        let shrinking = || SHRINKING * float(self.parameters.base_rtt.as_nanos());
        let sample = delay_ns.map_or_else(shrinking, float);
        self.average_ns += AVERAGE_GAIN * (sample - self.average_ns);
    }

    /// Returns the queueing delay of the echoed packet, after adding it to the average; or the average without a
    /// sample.
    fn queue_delay(&mut self, ack: &AckSample, marked: bool) -> u64 {
        let base_ns = self.parameters.base_rtt.as_nanos();
        let Some(delay) = ack.fabric_delay.or(ack.rtt) else {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a delay"
            )]
            return self.average_ns as u64;
        };
        let delay_ns = delay.as_nanos().saturating_sub(base_ns);
        let shrinks = !marked && delay_ns > self.parameters.target_ns;
        self.average((!shrinks).then_some(delay_ns));
        delay_ns
    }

    /// Sets the window to what arrived if that is far less than the window allows and `is_bad`. Returns `true` if it
    /// did, or if `is_congested` feedback is about bytes that were in flight when it last did.
    fn quick_adapt(&mut self, now: Instant, is_bad: bool, is_congested: bool) -> bool {
        let Parameters { base_rtt, target_ns, max_window, .. } = *self.parameters;
        let mut adapted = is_congested && self.to_ignore > 0;
        if !adapted && now > self.measured_until {
            let is_first = self.measured_until == Instant::EPOCH;
            let is_bad = is_bad && !is_first && !self.is_limited_by_credit();
            if is_bad && self.achieved < max_window >> QA_GATE {
                self.window = f64::from(self.achieved);
                self.clamp();
                self.to_ignore = self.in_flight;
                adapted = true;
            }
            self.achieved = 0;
            self.measured_until = now + base_rtt + Duration::from_nanos(target_ns);
        }
        if adapted {
            (self.increase, self.received) = (0.0, 0);
        }
        adapted
    }

    /// Returns `true` if the receiver's credit permits less than the window.
    fn is_limited_by_credit(&self) -> bool {
        self.credits.as_ref().is_some_and(|credits| credits.window() < self.own_window())
    }

    fn increase_below_target(&mut self, acked: u32, delay_ns: u64) {
        if delay_ns >= EMPTY_NS {
            (self.without_queue, self.is_fast) = (0, false);
        } else {
            self.without_queue = self.without_queue.saturating_add(acked);
            self.is_fast |= f64::from(self.without_queue) > self.window;
        }
        let Parameters { target_ns, alpha, fast, .. } = *self.parameters;
        if self.is_fast {
            self.window += fast * f64::from(acked);
        } else {
            self.increase += alpha * f64::from(acked) * float(target_ns - delay_ns);
        }
    }

    fn decrease(&mut self, now: Instant) {
        (self.without_queue, self.is_fast) = (0, false);
        let Parameters { target_ns, base_rtt, .. } = *self.parameters;
        let excess = (self.average_ns - float(target_ns)) / self.average_ns.max(1.0);
        if excess > 0.0 && now.since(self.decreased_at) > base_rtt {
            self.window *= (1.0 - GAMMA * excess).max(MIN_FACTOR);
            self.decreased_at = now;
        }
    }

    /// Applies the increases after eight packets or a round trip; one that is constant, once a round trip.
    fn adjust(&mut self, now: Instant) {
        let Parameters { packet, base_rtt, eta, .. } = *self.parameters;
        let is_due = now.since(self.adjusted_at) >= base_rtt;
        if self.received <= ADJUST_PACKETS * packet && !is_due {
            return;
        }
        self.window += self.increase / self.window;
        if is_due {
            self.window += eta;
            self.adjusted_at = now;
        }
        (self.increase, self.received) = (0.0, 0);
    }

    fn clamp(&mut self) {
        let Parameters { packet, max_window, .. } = *self.parameters;
        self.window = self.window.clamp(packet.into(), max_window.max(packet).into());
    }

    /// Handles a packet that did not arrive whole.
    fn reduce(&mut self, now: Instant) {
        let packet = self.parameters.packet;
        self.to_ignore = self.to_ignore.saturating_sub(packet);
        if !self.quick_adapt(now, true, true) {
            self.window -= f64::from(packet);
            self.clamp();
        }
    }
}

impl Controller {
    /// Returns the window without credit, bytes.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is clamped")]
    fn own_window(&self) -> u32 {
        self.window as u32
    }
}

impl Congestion for Controller {
    #[inline(never)]
    fn on_ack(&mut self, ack: &AckSample) {
        if let Some(credits) = &mut self.credits {
            credits.on_ack(ack);
        }
        let acked = ack.acked_bytes;
        self.in_flight = ack.in_flight.saturating_add(acked);
        self.achieved = self.achieved.saturating_add(acked);
        self.received = self.received.saturating_add(acked);
        self.to_ignore = self.to_ignore.saturating_sub(acked);
        let marked = ack.marked_packets > 0;
        let delay_ns = self.queue_delay(ack, marked);
        let is_bad = delay_ns > self.parameters.qa_threshold_ns;
        if self.quick_adapt(ack.now, is_bad, marked) {
            return;
        }
        match (marked, delay_ns < self.parameters.target_ns) {
            (false, true) => self.increase_below_target(acked, delay_ns),
            (false, false) => self.increase += self.parameters.fair * f64::from(acked),
            (true, true) => {}
            (true, false) => self.decrease(ack.now),
        }
        self.clamp();
        self.adjust(ack.now);
        self.clamp();
    }

    fn on_loss(&mut self, now: Instant) {
        if let Some(credits) = &mut self.credits {
            credits.on_loss(now);
        }
        self.reduce(now);
    }

    fn on_trimmed(&mut self, now: Instant, at: TrimmedAt) {
        if let Some(credits) = &mut self.credits {
            credits.on_trimmed(now, at);
            if at == TrimmedAt::LastHop {
                return;
            }
        }
        // The queue that trimmed it holds about a bandwidth-delay product.
        self.average(Some(self.parameters.base_rtt.as_nanos()));
        self.reduce(now);
    }

    fn on_timeout(&mut self, now: Instant) {
        if let Some(credits) = &mut self.credits {
            credits.on_timeout(now);
        }
        self.reduce(now);
    }

    fn on_credit(&mut self, now: Instant, bytes: u32, in_flight: u32) {
        if let Some(credits) = &mut self.credits {
            credits.on_credit(now, bytes, in_flight);
        }
    }

    fn wanted_credit(&self, backlog: u32, in_flight: u32) -> Option<u32> {
        let credits = self.credits.as_ref()?;
        let window = self.own_window().saturating_add(self.parameters.packet);
        // While speculative credit is spent, the window is free again before the requested credit comes.
        let most = window.saturating_add(credits.speculative());
        credits.wanted_credit(backlog.min(most), in_flight)
    }

    fn timer(&self) -> Option<Instant> {
        self.credits.as_ref()?.timer()
    }

    fn on_timer(&mut self, now: Instant) {
        if let Some(credits) = &mut self.credits {
            credits.on_timer(now);
        }
    }

    fn window(&self) -> u32 {
        let own = self.own_window();
        self.credits.as_ref().map_or(own, |credits| credits.window().min(own))
    }
}

#[cfg(test)]
mod tests;
