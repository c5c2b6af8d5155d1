//! TIMELY (Mittal et al., SIGCOMM 2015, algorithm 1): a rate that follows the gradient of the round-trip time, between
//! two thresholds beyond which the time itself decides.
//!
//! The differences from the paper:
//! * It updates the rate once a round trip. The paper does so with every completion of a segment of up to 64 KB, which
//!   at its rates is about as often; with every ACK, differences would be of neighbouring packets. So a step of 10
//!   Mb/s, right for the paper's 10 Gb/s, is small for faster ports.
//! * It starts at the port's rate, as the ns-3 models do, and not at a share among a host's flows.
//! * A gradient counts as at most one, so that a cut leaves a positive rate.
//! * A bandwidth-delay product may be in flight, as with DCQCN under IRN (`timely.bdp_cap`).
//! * The paper's fabric loses no packets. Here a loss or a timeout halves the rate, at most once a round trip.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use weft_units::{BitRate, Duration, Instant};

use super::{AckSample, Congestion, bandwidth_delay_product};
use crate::TransportConfig;
use crate::config::{Range, Settings};

/// TIMELY's parameters, with the values of its section 6 (Mittal et al., SIGCOMM 2015). Its minimum round-trip time is
/// [`base_rtt`](crate::TransportConfig::base_rtt).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields, default))]
pub struct TimelyConfig {
    /// T_low: the round-trip time below which the rate increases, whatever the gradient.
    pub t_low: Duration,
    /// T_high: the round-trip time above which the rate is cut, whatever the gradient.
    pub t_high: Duration,
    /// delta: the amount that an increase adds.
    pub additive_increase: BitRate,
    /// beta: the fraction that a cut takes off, per cent of the gradient.
    pub beta_percent: u16,
    /// alpha: the weight of a new difference in the gradient, per mille.
    pub alpha_permille: u16,
    /// The minimum rate; cuts stop there.
    pub min_rate: BitRate,
    /// `true` limits the bytes in flight to a bandwidth-delay product. The paper has no limit, and needs 40 ms of an
    /// incast of 127 flows to bring its rates down: 44 % of the packets are sent twice.
    pub bdp_cap: bool,
}

impl Default for TimelyConfig {
    fn default() -> Self {
        let mbps = |mega: u64| BitRate::bps(mega * 1_000_000).expect("not zero");
        Self {
            t_low: Duration::from_micros(50),
            t_high: Duration::from_micros(500),
            additive_increase: mbps(10),
            beta_percent: 80,
            alpha_permille: 875,
            min_rate: mbps(100),
            bdp_cap: true,
        }
    }
}

impl Settings for TimelyConfig {
    fn ranges(&self) -> Vec<Range> {
        let (low, high) = (self.t_low.as_nanos(), self.t_high.as_nanos());
        vec![
            ("timely.t_high", high, low, u64::MAX, "at least t_low"),
            ("timely.beta_percent", self.beta_percent.into(), 1, 100, "1 to 100 per cent"),
            ("timely.alpha_permille", self.alpha_permille.into(), 1, 1000, "1 to 1000 per mille"),
        ]
    }
}

/// Number of consecutive round trips with a gradient of at most zero after which increases are this many times as large
/// (section 4.3: hyperactive increase).
const HYPERACTIVE: u8 = 5;

/// TIMELY's rate. Its units are bits per second and nanoseconds.
#[derive(Debug)]
pub struct Controller {
    config: Box<TimelyConfig>,
    rate: f64,
    line_rate: f64,
    window: u32,
    /// D_minRTT: the unit of gradients.
    min_rtt: f64,
    /// The latest sample; zero before the first.
    previous: f64,
    /// The smoothed difference of successive samples.
    difference: f64,
    /// The time at which a sample last changed the rate.
    changed_at: Instant,
    /// The time at which a loss last changed the rate.
    lost_at: Instant,
    /// Number of consecutive samples between the thresholds whose gradient was at most zero.
    falling: u8,
}

impl Controller {
    pub(super) fn new(config: &TransportConfig) -> Self {
        Self {
            config: Box::new(config.timely),
            rate: bps(config.line_rate),
            line_rate: bps(config.line_rate),
            window: if config.timely.bdp_cap { bandwidth_delay_product(config) } else { u32::MAX },
            min_rtt: nanos(config.base_rtt),
            previous: 0.0,
            difference: 0.0,
            changed_at: Instant::EPOCH,
            lost_at: Instant::EPOCH,
            falling: 0,
        }
    }

    /// Runs algorithm 1 for one sample.
    fn update(&mut self, rtt: f64) {
        let weight = f64::from(self.config.alpha_permille) / 1000.0;
        let difference = rtt - self.previous;
        self.previous = rtt;
        self.difference += weight * (difference - self.difference);
        let gradient = self.difference / self.min_rtt;
        let beta = f64::from(self.config.beta_percent) / 100.0;
        let high = nanos(self.config.t_high);
        if rtt < nanos(self.config.t_low) {
            self.falling = 0;
            self.increase(1);
        } else if rtt > high {
            self.falling = 0;
            self.scale(1.0 - beta * (1.0 - high / rtt));
        } else if gradient <= 0.0 {
            self.falling = self.falling.saturating_add(1);
            self.increase(if self.falling >= HYPERACTIVE { HYPERACTIVE } else { 1 });
        } else {
            self.falling = 0;
            self.scale(1.0 - beta * gradient.min(1.0));
        }
    }

    fn increase(&mut self, steps: u8) {
        let step = bps(self.config.additive_increase);
        self.rate = (self.rate + f64::from(steps) * step).min(self.line_rate);
    }

    fn scale(&mut self, factor: f64) {
        let least = bps(self.config.min_rate).min(self.line_rate);
        self.rate = (self.rate * factor).max(least);
    }

    /// Returns `true` if a round trip has passed since `then`.
    fn is_past(&self, then: Instant, now: Instant) -> bool {
        nanos(now.since(then)) >= self.previous.max(self.min_rtt)
    }

    fn halve(&mut self, now: Instant) {
        if self.is_past(self.lost_at, now) {
            self.lost_at = now;
            self.falling = 0;
            self.scale(0.5);
        }
    }
}

impl Congestion for Controller {
    #[inline]
    fn on_ack(&mut self, ack: &AckSample) {
        let Some(rtt) = ack.fabric_delay.or(ack.rtt).map(nanos) else { return };
        if self.previous == 0.0 {
            self.previous = rtt;
            self.changed_at = ack.now;
        } else if self.is_past(self.changed_at, ack.now) {
            self.changed_at = ack.now;
            self.update(rtt);
        }
    }

    fn on_loss(&mut self, now: Instant) {
        self.halve(now);
    }

    fn on_timeout(&mut self, now: Instant) {
        self.halve(now);
    }

    fn window(&self) -> u32 {
        self.window
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between the least rate and the port's"
    )]
    fn rate(&self) -> Option<BitRate> {
        BitRate::bps(self.rate as u64)
    }
}

#[expect(clippy::cast_precision_loss, reason = "2^53 ns is 104 days")]
fn nanos(span: Duration) -> f64 {
    span.as_nanos() as f64
}

#[expect(clippy::cast_precision_loss, reason = "a rate below 2^53")]
fn bps(rate: BitRate) -> f64 {
    rate.as_bps() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paper's network: 10 Gb/s, 20 us. The rate is set to 1 Gb/s, in the middle.
    struct Rig {
        controller: Controller,
        now: Instant,
    }

    impl Rig {
        fn new() -> Self {
            let mut controller = Controller::new(&TransportConfig {
                line_rate: BitRate::gbps(10).expect("not zero"),
                base_rtt: Duration::from_micros(20),
                ..TransportConfig::stellar()
            });
            assert_eq!(controller.rate(), BitRate::gbps(10));
            controller.rate = 1e9;
            Self { controller, now: Instant::EPOCH + Duration::from_millis(1) }
        }

        /// Adds a sample more than a round trip after the one before; returns the rate.
        fn sample(&mut self, micros: u64) -> f64 {
            self.now += Duration::from_millis(30);
            let rtt = Some(Duration::from_micros(micros));
            let ack = AckSample::of_packets(1, 1000);
            self.controller.on_ack(&AckSample { now: self.now, rtt, fabric_delay: rtt, ..ack });
            self.controller.rate
        }
    }

    #[track_caller]
    fn close(got: f64, expected: f64) {
        assert!((got - expected).abs() <= expected * 1e-9, "{got}, expected {expected}");
    }

    #[test]
    fn below_t_low_ten_megabits_are_added_even_while_the_time_rises() {
        let mut rig = Rig::new();
        rig.sample(20);
        for (step, micros) in [(1, 25), (2, 35), (3, 49)] {
            close(rig.sample(micros), 1e9 + f64::from(step) * 10e6);
        }
    }

    #[test]
    fn above_t_high_the_cut_is_beta_times_the_excess_even_while_the_time_falls() {
        let mut rig = Rig::new();
        rig.sample(2_000);
        close(rig.sample(1_000), 1e9 * (1.0 - 0.8 * (1.0 - 0.5)));
        close(rig.sample(625), 0.6e9 * (1.0 - 0.8 * (1.0 - 0.8)));
    }

    /// rtt_diff = 0.125 rtt_diff + 0.875 new; gradient over 20 us; rate * (1 - 0.8 gradient).
    #[test]
    fn between_them_the_gradient_cuts() {
        let mut rig = Rig::new();
        rig.sample(100);
        // The difference is 0.875 * 8 us = 7 us: a gradient of 0.35.
        close(rig.sample(108), 1e9 * (1.0 - 0.8 * 0.35));
        // The difference is 0.125 * 7 + 0.875 * 4 = 4.375 us: a gradient of 0.21875.
        close(rig.sample(112), 0.72e9 * (1.0 - 0.8 * 0.218_75));
    }

    #[test]
    fn a_level_or_falling_time_adds_one_step_and_from_the_fifth_on_five() {
        let mut rig = Rig::new();
        let mut rate = 1e9;
        rig.sample(200);
        for steps in [1.0, 1.0, 1.0, 1.0, 5.0, 5.0] {
            rate += steps * 10e6;
            close(rig.sample(200), rate);
        }
        let cut = rig.sample(230);
        assert!(cut < rate);
        let falls = rig.sample(100);
        close(falls, cut + 10e6);
    }

    #[test]
    fn a_steep_rise_leaves_a_fifth_and_the_rate_never_falls_below_the_least() {
        let mut rig = Rig::new();
        rig.sample(100);
        close(rig.sample(400), 0.2e9);
        for step in 0..20 {
            rig.sample(500 + step * 1_000);
        }
        assert_eq!(rig.controller.rate(), BitRate::bps(100_000_000));
    }

    #[test]
    fn samples_within_a_round_trip_and_losses_within_one_count_once() {
        let mut rig = Rig::new();
        rig.sample(100);
        let rate = rig.sample(108);
        let ack = AckSample { now: rig.now, ..AckSample::of_packets(1, 1000) };
        let rtt = Some(Duration::from_micros(300));
        rig.controller.on_ack(&AckSample { rtt, fabric_delay: rtt, ..ack });
        close(rig.controller.rate, rate);
        rig.now += Duration::from_micros(400);
        (0..10).for_each(|_| rig.controller.on_loss(rig.now));
        close(rig.controller.rate, rate / 2.0);
    }
}
