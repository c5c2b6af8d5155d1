//! One window for all paths, from congestion marks and round-trip times: STELLAR's congestion control, of which the
//! paper (section 7.2) states no more than this. The rest is designed here; `docs/design/stellar-window.md` gives the
//! reasons.
//!
//! Once a round trip, over the reports of all paths in it:
//! * nothing marked or lost, and the mean round trip below [`TARGET`]: the window grows by 1/64 of a bandwidth-delay
//!   product, or by a packet if that is more;
//! * else it shrinks by half the smoothed fraction of marked packets (as in DCTCP), or by the part of the mean round
//!   trip beyond the target if that is more, at most by half.
//!
//! A loss counts as a mark, because one bad path of 128 is not a congested network. A timeout also counts as a mark
//! while ACKs arrive; once the network was silent for four round trips the window is halved, and again after every
//! further such silence that ends in a timeout.

use weft_units::{Duration, Instant};

use super::marked_fraction::{MarkedFraction, ONE, scale};
use super::silence::Silence;
use super::{AckSample, Congestion, bandwidth_delay_product};
use crate::TransportConfig;

/// The mean round trip above which the window shrinks, as a multiple of the empty network's: 3/2.
const TARGET: (u64, u64) = (3, 2);

/// The largest window, as a multiple of the bandwidth-delay product: 3/2. At the target delay it fills the line; more
/// would only wait in queues.
const MAX_WINDOW: (u32, u32) = (3, 2);

/// The bandwidth-delay product over the growth in a round trip: from half of it to all of it takes 32 round
/// trips, whatever the line rate.
const INCREASE_DIVISOR: u32 = 64;

/// A window of at least one packet and at most [`MAX_WINDOW`] bandwidth-delay products; initially one product.
#[derive(Debug)]
pub struct Controller {
    fraction: MarkedFraction,
    window: u32,
    packet: u32,
    max_window: u32,
    increase: u32,
    /// The round trip of the empty network as configured, and the shortest one measured.
    base_rtt_ns: u64,
    least_rtt_ns: Option<u64>,
    /// The sum and number of the round trips in this observation window.
    rtt_sum_ns: u64,
    rtt_count: u32,
    /// `true` if the window limited sending at some time in this observation window.
    used: bool,
    silence: Silence,
}

impl Controller {
    pub(super) fn new(config: &TransportConfig) -> Self {
        let packet = u32::from(config.mtu);
        let product = bandwidth_delay_product(config);
        Self {
            // Alpha starts at zero, not at DCTCP's one: the first window needs no correction, and the round-trip limit
            // reacts to a congested start within a round trip.
            fraction: MarkedFraction::new(0, product),
            window: product,
            packet,
            max_window: product.saturating_mul(MAX_WINDOW.0) / MAX_WINDOW.1,
            increase: (product / INCREASE_DIVISOR).max(packet),
            base_rtt_ns: config.base_rtt.as_nanos(),
            least_rtt_ns: None,
            rtt_sum_ns: 0,
            rtt_count: 0,
            used: false,
            silence: Silence::new(),
        }
    }

    fn sample_delay(&mut self, delay: Duration) {
        self.rtt_sum_ns = self.rtt_sum_ns.saturating_add(delay.as_nanos());
        self.rtt_count += 1;
        let delay = delay.as_nanos();
        self.least_rtt_ns = Some(self.least_rtt_ns.map_or(delay, |least| least.min(delay)));
    }

    /// Returns the empty network's round trip: a route longer than configured is not a queue.
    fn base_ns(&self) -> u64 {
        self.base_rtt_ns.max(self.least_rtt_ns.unwrap_or(0))
    }

    /// Returns the part of the mean round trip beyond the target, at most half; zero below the target.
    fn excess_delay(&self) -> u32 {
        let Some(mean) = self.rtt_sum_ns.checked_div(self.rtt_count.into()) else { return 0 };
        let target = self.base_ns().saturating_mul(TARGET.0) / TARGET.1;
        let excess = mean.saturating_sub(target);
        let part = u128::from(excess) * u128::from(ONE) / u128::from(mean.max(1));
        u32::try_from(part).expect("a part of one").min(ONE / 2)
    }

    fn end_round(&mut self, marked: bool) {
        let from_marks = if marked { self.fraction.alpha() / 2 } else { 0 };
        let decrease = from_marks.max(self.excess_delay());
        if decrease > 0 {
            self.reduce(decrease);
        } else if self.used && !marked {
            self.window = self.window.saturating_add(self.increase).min(self.max_window);
        }
        (self.rtt_sum_ns, self.rtt_count, self.used) = (0, 0, false);
    }

    fn reduce(&mut self, fraction: u32) {
        self.window = (self.window - scale(self.window, fraction)).max(self.packet);
    }
}

impl Congestion for Controller {
    #[inline]
    fn on_ack(&mut self, ack: &AckSample) {
        self.silence.on_ack(ack.now);
        self.used |= ack.used(self.window);
        if let Some(delay) = ack.fabric_delay.or(ack.rtt) {
            self.sample_delay(delay);
        }
        if let Some(marked) = self.fraction.observe(ack) {
            self.end_round(marked);
        }
    }

    fn on_loss(&mut self, _now: Instant) {
        self.fraction.observe_loss();
    }

    fn on_timeout(&mut self, now: Instant) {
        if self.silence.on_timeout(now, Duration::from_nanos(self.base_ns())) {
            self.reduce(ONE / 2);
            self.fraction.end_with_next_ack();
        } else {
            self.fraction.observe_loss();
        }
    }

    fn window(&self) -> u32 {
        self.window
    }
}

#[cfg(test)]
mod tests {
    use weft_units::BitRate;

    use super::*;

    const BASE: Duration = Duration::from_micros(10);

    /// Creates a controller with packets of 1000 bytes and a bandwidth-delay product of 100 of them.
    fn controller() -> Controller {
        Controller::new(&TransportConfig {
            mtu: 1000,
            line_rate: BitRate::gbps(80).expect("not zero"),
            base_rtt: BASE,
            ..TransportConfig::stellar()
        })
    }

    /// Acknowledges a whole window in one ACK, of which `marked` packets are marked.
    fn round(controller: &mut Controller, marked: u32, rtt: Duration) {
        controller.on_ack(&AckSample {
            marked_packets: marked,
            in_flight: controller.window(),
            rtt: Some(rtt),
            ..AckSample::of_packets(controller.window().div_ceil(1000), 1000)
        });
    }

    #[test]
    fn the_window_starts_at_one_bandwidth_delay_product_and_grows_to_one_and_a_half() {
        let mut controller = controller();
        assert_eq!(controller.window(), 100_000);
        round(&mut controller, 0, BASE);
        assert_eq!(controller.window(), 101_562, "a 64th more");
        (0..100).for_each(|_| round(&mut controller, 0, BASE));
        assert_eq!(controller.window(), 150_000);
    }

    #[test]
    fn one_bad_path_of_128_costs_less_than_two_per_cent() {
        let mut controller = controller();
        (0..100).for_each(|_| round(&mut controller, 0, BASE));
        // In each round one packet of 150 is marked, as if one path marked everything.
        for _ in 0..1000 {
            round(&mut controller, 1, BASE);
            round(&mut controller, 0, BASE);
        }
        assert!(controller.window() > 147_000, "{}", controller.window());
    }

    #[test]
    fn full_marking_approaches_a_halving_each_round_trip() {
        let mut controller = controller();
        round(&mut controller, 100, BASE);
        // Alpha is 1/16 after one window of marks, and half of it is taken off.
        assert_eq!(controller.window(), 100_000 - 100_000 / 32);
        (0..60).for_each(|_| round(&mut controller, 1000, BASE));
        assert_eq!(controller.window(), 1000);
    }

    #[test]
    fn a_queue_beyond_the_target_is_taken_off_at_once_and_a_deep_one_halves() {
        let after = |rtt| {
            let mut controller = controller();
            controller.least_rtt_ns = Some(BASE.as_nanos());
            round(&mut controller, 0, rtt);
            controller.window()
        };
        assert_eq!(after(Duration::from_micros(15)), 101_562, "at the target it grows");
        assert_eq!(after(Duration::from_micros(20)), 75_000, "a quarter of 20 us is beyond 15");
        assert_eq!(after(Duration::from_millis(1)), 50_000);
    }

    #[test]
    fn a_route_longer_than_configured_is_not_a_queue() {
        let mut controller = controller();
        (0..100).for_each(|_| round(&mut controller, 0, BASE * 4));
        assert_eq!(controller.window(), 150_000);
    }

    #[test]
    fn an_idle_window_does_not_grow() {
        let mut controller = controller();
        for _ in 0..100 {
            controller.on_ack(&AckSample { rtt: Some(BASE), ..AckSample::of_packets(2, 1000) });
        }
        assert_eq!(controller.window(), 100_000);
    }

    #[test]
    fn timeouts_among_acks_are_marks_and_each_silence_halves_once() {
        let mut controller = controller();
        round(&mut controller, 0, BASE);
        let before = controller.window();
        (0..5).for_each(|_| controller.on_timeout(Instant::EPOCH + BASE));
        assert_eq!(controller.window(), before);
        let silent = Instant::EPOCH + Duration::from_micros(250);
        (0..5).for_each(|_| controller.on_timeout(silent));
        assert_eq!(controller.window(), before / 2);
        controller.on_timeout(silent + Duration::from_micros(250));
        assert_eq!(controller.window(), before.div_ceil(4));
    }
}
