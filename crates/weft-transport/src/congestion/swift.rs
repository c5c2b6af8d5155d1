//! Swift (Kumar et al., SIGCOMM 2020) with a window for each path, as BIFROST uses it (appendix D): additive increase
//! below a target delay, multiplicative decrease above it, at most once a round trip. The fabric's delay and the two
//! hosts' delay each have a window and a target; the smaller window applies.
//!
//! The differences from the paper:
//! * A window below one packet would be paced. Here the windows of all paths add up to the limit of bytes in flight, so
//!   that paths with less than a packet take turns, and the minimum is eight packets for all of them together. With `n`
//!   senders for one port the queue is at least `n` packets.
//! * The base target is the configured round trip of the empty network, or the shortest fabric delay seen on this path
//!   if that is more. Swift's is set by the operator for the whole network.
//! * Packets acknowledged by an ACK that echoes a packet of another path wait for this path's next delay sample and
//!   count with it.
//! * The endpoint target includes the time for which an ACK may be held back, which is no congestion.
//! * A window decreases by the shortest of the last [`FILTER`] delays, if all of them are above the target: a queue in
//!   the network delays all packets, a host whose processor was elsewhere for a moment delays some (LEDBAT filters so,
//!   RFC 6817, section 3.4.2). Without the filter a pause of a virtual processor shrank windows, fewer packets made
//!   more pauses, and windows stayed small (`docs/performance/transport.md`).
//! * Congestion marks count as a loss does. Rate limits of a receiver are signalled by marks (BIFROST, section 7.1),
//!   and no delay shows them.

use weft_units::{Duration, Instant};

use super::controllers::MIN_PACKETS_IN_FLIGHT;
use super::{AckSample, Congestion, bandwidth_delay_product, initial_window};
use crate::TransportConfig;

/// `ai`: the number of packets added in a round trip. This and the next three are parameters that the paper names
/// without values; the values are those of public implementations (htsim).
const INCREASE_PACKETS: f64 = 1.0;
/// `beta`: the decrease for each unit of relative excess delay.
const BETA: f64 = 0.8;
/// `max_mdf`: the maximum decrease.
const MAX_DECREASE: f64 = 0.5;
/// `RETX_RESET_THRESHOLD`: the number of consecutive timeouts after which the window is the smallest.
const RESET_AFTER: u8 = 5;

/// Number of consecutive delays that must be above the target before a window decreases; RFC 6817 names four.
const FILTER: u8 = 4;

/// Flow scaling: `fs_min_cwnd` and `fs_max_cwnd` in packets, and `fs_range` as a multiple of the base round trip
/// (section 3.1 of the paper; values from htsim).
const SCALING_WINDOWS: (f64, f64) = (0.1, 100.0);
const SCALING_RANGE: f64 = 5.0;

/// Topology scaling: the part of the base round trip that each hop may add, about a sixteenth.
const HOP_FRACTION: f64 = 1.0 / 16.0;
/// Number of hops assumed if the owner does not know it: leaf, spine, leaf, and two hosts' edges.
const USUAL_HOPS: u8 = 5;

/// A path's two windows, each between its share of the minimum and two bandwidth-delay products.
#[derive(Debug)]
pub struct Controller {
    fabric: Window,
    endpoint: Window,
    packet: u32,
    min_packets: f32,
    max_packets: f64,
    base_rtt_ns: u32,
    endpoint_target_ns: u32,
    least_fabric_delay_ns: u32,
    /// The latest round trip: a window decreases at most once in it.
    rtt_ns: u32,
    /// Number of packets acknowledged since the last delay sample.
    waiting: u32,
    timeouts: u8,
}

/// One AIMD window of algorithm 1.
#[derive(Debug)]
struct Window {
    packets: f64,
    /// The time of the last decrease; [`Instant::EPOCH`] before the first: a decrease shows its effect only a round
    /// trip later.
    decreased_at: Instant,
    /// The shortest of the consecutive delays above the target, and their number, below [`FILTER`].
    least_above_ns: u32,
    above: u8,
}

/// The inputs of an adjustment.
struct Sample {
    now: Instant,
    rtt: Duration,
    delay_ns: u32,
    target_ns: f64,
    acked_packets: f64,
    /// Number of packets in flight before this ACK.
    in_flight: f64,
}

/// Returns the flow scaling term, which grows as the window shrinks, so that many flows share a queue fairly: `max(0,
/// min(alpha / sqrt(cwnd) + beta, fs_range))`, as a multiple of `fs_range`.
fn flow_scaling(packets: f64) -> f64 {
    let inverse_root = |packets: f64| 1.0 / libm::sqrt(packets);
    let (smallest, largest) = SCALING_WINDOWS;
    let alpha = 1.0 / (inverse_root(smallest) - inverse_root(largest));
    let beta = -alpha * inverse_root(largest);
    (alpha * inverse_root(packets) + beta).clamp(0.0, 1.0)
}

impl Window {
    fn may_decrease(&self, now: Instant, rtt: Duration) -> bool {
        now.since(self.decreased_at) >= rtt
    }

    fn decrease(&mut self, factor: f64, now: Instant, rtt: Duration) {
        if self.may_decrease(now, rtt) {
            self.packets *= factor;
            self.decreased_at = now;
        }
    }

    /// Runs algorithm 1, "on receiving ACK".
    fn adjust(&mut self, sample: &Sample) {
        if f64::from(sample.delay_ns) < sample.target_ns {
            self.above = 0;
            // The window that does not limit must not outgrow the one that does. A lack of room for one more packet is
            // a limit as well: small packets fill little of a window of one or two.
            if sample.in_flight * 2.0 >= self.packets
                || sample.in_flight + 1.0 > libm::floor(self.packets)
            {
                // Algorithm 1: by a packet in a round trip, however small the window.
                self.packets += INCREASE_PACKETS / self.packets.max(1.0) * sample.acked_packets;
            }
            return;
        }
        let least = if self.above == 0 { u32::MAX } else { self.least_above_ns };
        self.least_above_ns = least.min(sample.delay_ns);
        self.above += 1;
        if self.above == FILTER {
            self.above = 0;
            let delay_ns = f64::from(self.least_above_ns);
            // The target may have exceeded the shortest delay since: then the window is not reduced.
            let excess = ((delay_ns - sample.target_ns) / delay_ns).max(0.0);
            let factor = (1.0 - BETA * excess).max(1.0 - MAX_DECREASE);
            self.decrease(factor, sample.now, sample.rtt);
        }
    }
}

/// Returns the smallest window of a path, packets.
fn min_window(config: &TransportConfig) -> f32 {
    let paths = f32::from(config.policy.paths_in_use(config));
    (f32::from(MIN_PACKETS_IN_FLIGHT) / paths).min(1.0)
}

/// Returns the span in nanoseconds, at most `u32::MAX`: 4.29 s exceeds any delay of interest.
fn short(span: Duration) -> u32 {
    u32::try_from(span.as_nanos()).unwrap_or(u32::MAX)
}

impl Controller {
    pub(super) fn new(config: &TransportConfig) -> Self {
        let packet = u32::from(config.mtu);
        let packets = f64::from(initial_window(config)) / f64::from(packet);
        let window =
            || Window { packets, decreased_at: Instant::EPOCH, least_above_ns: 0, above: 0 };
        let product = bandwidth_delay_product(config);
        Self {
            fabric: window(),
            endpoint: window(),
            packet,
            min_packets: min_window(config),
            max_packets: f64::from(product.saturating_mul(2)) / f64::from(packet),
            base_rtt_ns: short(config.base_rtt),
            endpoint_target_ns: short(config.base_rtt + config.ack_delay),
            least_fabric_delay_ns: u32::MAX,
            rtt_ns: short(config.base_rtt),
            waiting: 0,
            timeouts: 0,
        }
    }

    /// Returns the fabric target delay, nanoseconds: base, topology and flow scaling (section 3.1 of the paper).
    fn fabric_target_ns(&self, hops: u8) -> f64 {
        // A delay is sampled before any target is computed, so the minimum is valid.
        let base = f64::from(self.base_rtt_ns.max(self.least_fabric_delay_ns));
        let hops = f64::from(if hops == 0 { USUAL_HOPS } else { hops });
        let scaling = SCALING_RANGE * flow_scaling(self.fabric.packets);
        base + f64::from(self.base_rtt_ns) * (hops * HOP_FRACTION + scaling)
    }

    fn rtt(&self) -> Duration {
        Duration::from_nanos(self.rtt_ns.into())
    }

    fn decrease_by_half(&mut self, now: Instant) {
        let rtt = self.rtt();
        self.each_window(|window| window.decrease(1.0 - MAX_DECREASE, now, rtt));
    }

    /// Decreases the windows for a loss, which leaves at least a packet on each path: with fewer in flight the next
    /// loss waits for a timeout, and marks and delay show whether a queue is too long.
    fn decrease_for_loss(&mut self, now: Instant, reset: bool) {
        let rtt = self.rtt();
        self.each_window(|window| {
            let floor = window.packets.min(1.0);
            window.decrease(1.0 - MAX_DECREASE, now, rtt);
            window.packets = if reset { floor } else { window.packets.max(floor) };
        });
    }

    fn each_window(&mut self, mut change: impl FnMut(&mut Window)) {
        let least = f64::from(self.min_packets);
        for window in [&mut self.fabric, &mut self.endpoint] {
            change(window);
            window.packets = window.packets.clamp(least, self.max_packets);
        }
    }
}

impl Congestion for Controller {
    #[inline]
    fn on_ack(&mut self, ack: &AckSample) {
        self.timeouts = 0;
        self.waiting = self.waiting.saturating_add(ack.acked_packets);
        if ack.marked_packets > 0 {
            self.decrease_by_half(ack.now);
        }
        let Some(rtt) = ack.rtt else { return };
        let fabric = short(ack.fabric_delay.unwrap_or(rtt)).max(1);
        let endpoint = short(ack.endpoint_delay.unwrap_or(Duration::ZERO));
        self.rtt_ns = short(rtt);
        self.least_fabric_delay_ns = self.least_fabric_delay_ns.min(fabric);
        let packet = f64::from(self.packet);
        let sample = Sample {
            now: ack.now,
            rtt,
            delay_ns: fabric,
            target_ns: self.fabric_target_ns(ack.hops),
            acked_packets: f64::from(core::mem::take(&mut self.waiting)),
            in_flight: (f64::from(ack.in_flight) + f64::from(ack.acked_bytes)) / packet,
        };
        self.fabric.adjust(&sample);
        self.endpoint.adjust(&Sample {
            delay_ns: endpoint,
            target_ns: f64::from(self.endpoint_target_ns),
            ..sample
        });
        self.each_window(|_| {});
    }

    /// Runs algorithm 1, "on fast recovery".
    fn on_loss(&mut self, now: Instant) {
        self.timeouts = 0;
        self.decrease_for_loss(now, false);
    }

    /// Runs algorithm 1, "on retransmit timeout".
    fn on_timeout(&mut self, now: Instant) {
        if !self.fabric.may_decrease(now, self.rtt()) {
            // Packets time out together: those of one round trip are one timeout.
            return;
        }
        self.timeouts = self.timeouts.saturating_add(1);
        self.decrease_for_loss(now, self.timeouts >= RESET_AFTER);
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between one packet and two bandwidth-delay products, which fit a u32"
    )]
    fn window(&self) -> u32 {
        (self.fabric.packets.min(self.endpoint.packets) * f64::from(self.packet)) as u32
    }
}

#[cfg(test)]
mod tests {
    use weft_units::BitRate;

    use super::*;
    use crate::path;

    const BASE: Duration = Duration::from_micros(100);

    /// Creates a controller with packets of 1250 bytes at 10 Gb/s: a bandwidth-delay product of 100 packets, 25 for
    /// each of the four best paths.
    fn controller() -> Controller {
        Controller::new(&TransportConfig {
            mtu: 1250,
            line_rate: BitRate::gbps(10).expect("not zero"),
            base_rtt: BASE,
            policy: path::Kind::RttGroups,
            top_k: 4,
            ack_delay: Duration::from_micros(20),
            ..TransportConfig::bifrost()
        })
    }

    fn ack(
        controller: &Controller,
        at: Duration,
        fabric: Duration,
        endpoint: Duration,
    ) -> AckSample {
        AckSample {
            now: Instant::EPOCH + at,
            rtt: Some(fabric + endpoint),
            fabric_delay: Some(fabric),
            endpoint_delay: Some(endpoint),
            in_flight: controller.window(),
            ..AckSample::of_packets(4, 1250)
        }
    }

    #[test]
    fn flow_scaling_is_the_whole_range_at_a_tenth_of_a_packet_and_nothing_at_a_hundred() {
        assert!((flow_scaling(0.1) - 1.0).abs() < 1e-9);
        assert!(flow_scaling(100.0).abs() < 1e-9);
        assert_eq!(flow_scaling(0.01), 1.0);
        assert_eq!(flow_scaling(1000.0), 0.0);
        // alpha = 1 / (1/sqrt(0.1) - 1/sqrt(100)) = 0.32656, beta = -0.032656.
        assert!((flow_scaling(1.0) - 0.293_905).abs() < 1e-5, "{}", flow_scaling(1.0));
        assert!((flow_scaling(25.0) - 0.032_656).abs() < 1e-5, "{}", flow_scaling(25.0));
    }

    #[test]
    fn the_target_is_base_plus_hops_plus_flow_scaling() {
        let mut controller = controller();
        controller.least_fabric_delay_ns = 0;
        // The target is 100 us, 4 hops of 6.25 us, and 500 us x 0.032656.
        let target = controller.fabric_target_ns(4);
        assert!((target - 141_328.0).abs() < 1.0, "{target}");
        assert!((controller.fabric_target_ns(0) - target - 6_250.0).abs() < 1.0, "five hops");
    }

    #[test]
    fn the_initial_window_is_a_share_among_the_best_paths() {
        assert_eq!(controller().window(), 25 * 1250);
    }

    #[test]
    fn below_the_target_one_packet_is_added_in_a_round_trip() {
        let mut controller = controller();
        // The ACKs of 25 packets, six of 4 and one of 1, are a round trip.
        for packets in [4, 4, 4, 4, 4, 4, 1] {
            let sample = ack(&controller, BASE, BASE, Duration::ZERO);
            controller.on_ack(&AckSample { acked_packets: packets, ..sample });
        }
        let added = controller.fabric.packets - 25.0;
        assert!((added - 1.0).abs() < 0.03, "{added}");
    }

    #[test]
    fn above_the_target_the_excess_decides_once_a_round_trip_and_at_most_half() {
        let mut controller = controller();
        controller.on_ack(&ack(&controller, BASE, BASE, Duration::ZERO));
        let before = controller.fabric.packets;
        let target = controller.fabric_target_ns(0);
        let delay = Duration::from_micros(200);
        let late = |controller: &mut Controller, at, delay| {
            for _ in 0..FILTER {
                controller.on_ack(&ack(controller, at, delay, Duration::ZERO));
            }
        };
        late(&mut controller, BASE * 10, delay);
        let expected = before * (1.0 - 0.8 * (200_000.0 - target) / 200_000.0);
        assert!((controller.fabric.packets - expected).abs() < 1e-9);

        late(&mut controller, BASE * 11, delay);
        assert!((controller.fabric.packets - expected).abs() < 1e-9, "within the round trip");

        // A delay far above the target is sampled four times; the shortest of the four counts.
        late(&mut controller, BASE * 200, BASE * 100);
        assert!((controller.fabric.packets - expected / 2.0).abs() < 1e-9);
    }

    #[test]
    fn delays_that_pass_leave_the_window_alone_and_the_least_of_those_that_last_counts() {
        let mut controller = controller();
        let mut sample_at = |at: u64, delay: u64| {
            let delay = Duration::from_micros(delay);
            controller.on_ack(&ack(&controller, BASE * at, delay, Duration::ZERO));
            controller.fabric.packets
        };
        sample_at(1, 100);
        let mut before = sample_at(2, 100);
        for pause in 1..20 {
            // Three packets waited for a processor, the fourth did not.
            for delay in [4_000, 2_000, 1_000] {
                assert_eq!(sample_at(pause * 100, delay), before, "held meanwhile");
            }
            let after = sample_at(pause * 100 + 1, 100);
            assert!(after > before);
            before = after;
        }
        for delay in [4_000, 150, 2_000] {
            sample_at(3_000, delay);
        }
        let after = sample_at(3_000, 1_000);
        // The decrease is 0.8 of the part of 150 us above the target: 4 ms alone would have halved the window.
        assert!(after < before && after > before * 0.9, "{before} to {after}");
    }

    #[test]
    fn a_slow_host_shrinks_the_endpoint_window_alone() {
        let mut controller = controller();
        for at in 1..20 {
            controller.on_ack(&ack(&controller, BASE * (at * 10), BASE, BASE * 4));
        }
        assert!(controller.endpoint.packets < 5.0, "{}", controller.endpoint.packets);
        assert!(controller.fabric.packets >= 25.0, "{}", controller.fabric.packets);
        let expected = controller.endpoint.packets * 1250.0;
        assert!((f64::from(controller.window()) - expected).abs() < 1.0);
    }

    #[test]
    fn five_timeouts_in_a_row_leave_one_packet() {
        let mut controller = controller();
        for at in 1..=4 {
            // All packets of a window time out at once.
            for _ in 0..25 {
                controller.on_timeout(Instant::EPOCH + Duration::from_millis(4 * at));
            }
        }
        assert_eq!(controller.window(), 25 * 1250 / 16);
        controller.on_timeout(Instant::EPOCH + Duration::from_millis(20));
        assert_eq!(controller.window(), 1250);
    }

    /// A tenant's frames of 100 bytes fill a twelfth of a packet, and the window permits one at a time. The bytes in
    /// flight are never half of the window, so without the second condition of `adjust` it would never grow.
    #[test]
    fn a_window_of_one_packet_opens_again_for_packets_that_are_small() {
        let mut controller = controller();
        (1..=5)
            .for_each(|at| controller.on_timeout(Instant::EPOCH + Duration::from_millis(4 * at)));
        assert_eq!(controller.window(), 1250);
        let small = |controller: &mut Controller, at| {
            let sample = ack(controller, BASE * at, BASE, Duration::ZERO);
            controller.on_ack(&AckSample {
                acked_bytes: 100,
                acked_packets: 1,
                in_flight: 0,
                ..sample
            });
        };
        (100..110).for_each(|at| small(&mut controller, at));
        assert!(controller.window() >= 2 * 1250, "{}", controller.window());
        let opened = controller.window();
        (110..1000).for_each(|at| small(&mut controller, at));
        assert_eq!(controller.window(), opened, "a window that does not limit does not grow");
    }

    #[test]
    fn acks_without_a_delay_count_with_the_next_sample() {
        let (mut one, mut other) = (controller(), controller());
        let sample = ack(&one, BASE, BASE, Duration::ZERO);
        one.on_ack(&AckSample { rtt: None, ..sample });
        one.on_ack(&sample);
        other.on_ack(&AckSample { acked_packets: 8, ..sample });
        assert!((one.fabric.packets - other.fabric.packets).abs() < 1e-9);
    }
}
