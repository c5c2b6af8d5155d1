//! Data Center TCP (RFC 8257) over one window for all paths: slow start and additive increase as in TCP, and a decrease
//! in proportion to the fraction of marked packets.
//!
//! It has no notion of paths. A loss halves the window although only one path may be bad; the `stellar` control differs
//! in this.

use weft_units::Instant;

use super::marked_fraction::{MarkedFraction, ONE, scale};
use super::{AckSample, Congestion, bandwidth_delay_product};
use crate::TransportConfig;

/// The initial window: ten packets (RFC 6928).
const INITIAL_PACKETS: u32 = 10;

/// The window of RFC 8257, at least one packet and at most two bandwidth-delay products: more would only wait in a
/// queue.
#[derive(Debug)]
pub struct Controller {
    fraction: MarkedFraction,
    window: u32,
    slow_start_threshold: u32,
    /// Bytes acknowledged since congestion avoidance last added a packet.
    towards_increase: u32,
    packet: u32,
    max_window: u32,
    /// `true` if a loss has halved the window since the observation window began; RFC 8257 reduces once in each.
    reduced: bool,
}

impl Controller {
    pub(super) fn new(config: &TransportConfig) -> Self {
        let packet = u32::from(config.mtu);
        let max_window = bandwidth_delay_product(config).saturating_mul(2);
        let window = (INITIAL_PACKETS * packet).min(max_window);
        Self {
            // RFC 8257, section 4.2: alpha starts at one, so that the first marks halve.
            fraction: MarkedFraction::new(ONE, window),
            window,
            slow_start_threshold: u32::MAX,
            towards_increase: 0,
            packet,
            max_window,
            reduced: false,
        }
    }

    fn grow(&mut self, acked_bytes: u32) {
        if self.window < self.slow_start_threshold {
            self.window = self.window.saturating_add(acked_bytes);
        } else {
            self.towards_increase = self.towards_increase.saturating_add(acked_bytes);
            if self.towards_increase >= self.window {
                self.towards_increase -= self.window;
                self.window = self.window.saturating_add(self.packet);
            }
        }
        self.window = self.window.min(self.max_window);
    }

    /// Reduces the window by `fraction` and leaves slow start.
    fn reduce(&mut self, fraction: u32) {
        self.window = (self.window - scale(self.window, fraction)).max(self.packet);
        self.slow_start_threshold = self.window;
        self.towards_increase = 0;
    }
}

impl Congestion for Controller {
    #[inline]
    fn on_ack(&mut self, ack: &AckSample) {
        if ack.used(self.window) {
            self.grow(ack.acked_bytes);
        }
        if let Some(marked) = self.fraction.observe(ack) {
            if marked && !self.reduced {
                // RFC 8257, section 3.3: cwnd = cwnd * (1 - DCTCP.Alpha / 2).
                self.reduce(self.fraction.alpha() / 2);
            }
            self.reduced = false;
        }
    }

    /// Halves the window, as TCP does (RFC 8257, section 3.5).
    fn on_loss(&mut self, _now: Instant) {
        if !self.reduced {
            self.reduce(ONE / 2);
            self.reduced = true;
        }
    }

    /// Sets the window to one packet, with slow start to half of the previous window (RFC 5681, section 3.1).
    fn on_timeout(&mut self, _now: Instant) {
        if self.window > self.packet {
            self.slow_start_threshold = (self.window / 2).max(2 * self.packet);
        }
        self.window = self.packet;
        self.towards_increase = 0;
        self.fraction.end_with_next_ack();
    }

    fn window(&self) -> u32 {
        self.window
    }
}

#[cfg(test)]
mod tests {
    use weft_units::{BitRate, Duration};

    use super::*;

    /// Creates a controller with packets of 1000 bytes and a bandwidth-delay product of 100 of them.
    fn controller() -> Controller {
        Controller::new(&TransportConfig {
            mtu: 1000,
            line_rate: BitRate::gbps(80).expect("not zero"),
            base_rtt: Duration::from_micros(10),
            ..TransportConfig::stellar()
        })
    }

    /// Acknowledges a whole window in one ACK, of which `marked` packets are marked.
    fn round(controller: &mut Controller, marked: u32) {
        let packets = controller.window() / 1000;
        controller.on_ack(&AckSample {
            marked_packets: marked,
            in_flight: controller.window(),
            ..AckSample::of_packets(packets, 1000)
        });
    }

    #[test]
    fn slow_start_doubles_each_round_trip_up_to_the_bound() {
        let mut controller = controller();
        let windows: Vec<_> = (0..5)
            .map(|_| {
                round(&mut controller, 0);
                controller.window() / 1000
            })
            .collect();
        assert_eq!(windows, [20, 40, 80, 160, 200]);
    }

    #[test]
    fn the_first_marks_halve_and_light_marking_takes_little() {
        let mut controller = controller();
        round(&mut controller, 10);
        assert_eq!(controller.window(), 10_000, "20 packets, all marked: alpha stays one");
        for _ in 0..100 {
            round(&mut controller, 0);
        }
        let before = controller.window();
        round(&mut controller, before / 10_000);
        // Alpha is near 0 + 0.1 / 16, of which half is taken, after one packet of growth.
        let expected = f64::from(before + 1000) * (1.0 - 0.1 / 16.0 / 2.0);
        let got = f64::from(controller.window());
        assert!((got - expected).abs() < 0.002 * expected, "{got}, expected {expected}");
    }

    #[test]
    fn losses_of_one_window_halve_once() {
        let mut controller = controller();
        (0..3).for_each(|_| round(&mut controller, 0));
        assert_eq!(controller.window(), 80_000);
        (0..10).for_each(|_| controller.on_loss(Instant::EPOCH));
        assert_eq!(controller.window(), 40_000);
    }

    #[test]
    fn a_timeout_leaves_one_packet_and_slow_start_to_half() {
        let mut controller = controller();
        (0..3).for_each(|_| round(&mut controller, 0));
        controller.on_timeout(Instant::EPOCH);
        assert_eq!(controller.window(), 1000);
        let windows: Vec<_> = (0..8)
            .map(|_| {
                round(&mut controller, 0);
                controller.window() / 1000
            })
            .collect();
        assert_eq!(windows, [2, 4, 8, 16, 32, 64, 65, 66]);
    }
}
