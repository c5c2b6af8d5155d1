//! MP-RDMA's congestion control (Lu et al., NSDI 2018): one window for all virtual paths, updated by each ACK. An
//! unmarked ACK adds 1/cwnd packets, a marked one takes off half a packet. An ACK of a packet that was overtaken by
//! more than the reordering bound takes off a whole one, so that it releases no packet and its path, too slow for the
//! others, falls out of use. The policy selects the paths (`path/mp_rdma.rs`).
//!
//! The window has the bounds of every controller. The paper does not define the effect of a loss; here a lost packet's
//! ACK never releases another, so a loss takes off one packet, as a late packet does; so does a timeout, and half of
//! the window once no ACK came for four round trips.

use weft_units::{Duration, Instant};

use super::silence::Silence;
use super::{AckSample, Congestion, bandwidth_delay_product};
use crate::TransportConfig;

/// A window of at least one packet and at most two bandwidth-delay products; initially one product.
#[derive(Debug)]
pub struct Controller {
    window: u32,
    /// Bytes acknowledged unmarked since the window last grew by a packet.
    towards_increase: u32,
    packet: u32,
    max_window: u32,
    reordering_bound: u32,
    base_rtt: Duration,
    silence: Silence,
}

impl Controller {
    pub(super) fn new(config: &TransportConfig) -> Self {
        let product = bandwidth_delay_product(config);
        Self {
            window: product,
            towards_increase: 0,
            packet: config.mtu.into(),
            max_window: product.saturating_mul(2),
            reordering_bound: config.mp_rdma.reordering_bound.into(),
            base_rtt: config.base_rtt,
            silence: Silence::new(),
        }
    }

    /// Adds a packet for each window of unmarked packets: 1/cwnd for each packet.
    fn grow(&mut self, packets: u32) {
        let acked = packets.saturating_mul(self.packet);
        self.towards_increase = self.towards_increase.saturating_add(acked);
        while self.towards_increase >= self.window && self.window < self.max_window {
            self.towards_increase -= self.window;
            self.window = self.window.saturating_add(self.packet).min(self.max_window);
        }
        self.towards_increase = self.towards_increase.min(self.window);
    }

    fn reduce(&mut self, bytes: u32) {
        self.window = self.window.saturating_sub(bytes).max(self.packet);
    }
}

impl Congestion for Controller {
    #[inline]
    fn on_ack(&mut self, ack: &AckSample) {
        self.silence.on_ack(ack.now);
        let late = ack.late_packets.min(ack.acked_packets);
        let marked = ack.marked_packets.min(ack.acked_packets - late);
        if ack.used(self.window) {
            self.grow(ack.acked_packets - late - marked);
        }
        let half_packets = late.saturating_mul(2).saturating_add(marked);
        if half_packets > 0 {
            self.reduce(half_packets.saturating_mul(self.packet) / 2);
        }
    }

    fn on_loss(&mut self, _now: Instant) {
        self.reduce(self.packet);
    }

    fn on_timeout(&mut self, now: Instant) {
        let silent = self.silence.on_timeout(now, self.base_rtt);
        self.reduce(if silent { self.window / 2 } else { self.packet });
    }

    fn window(&self) -> u32 {
        self.window
    }

    fn reordering_bound(&self) -> u32 {
        self.reordering_bound
    }
}

#[cfg(test)]
mod tests {
    use weft_units::BitRate;

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

    fn ack(controller: &Controller, packets: u32) -> AckSample {
        AckSample { in_flight: controller.window(), ..AckSample::of_packets(packets, 1000) }
    }

    #[test]
    fn a_window_of_unmarked_acks_adds_a_packet() {
        let mut controller = controller();
        for _ in 0..100 {
            assert_eq!(controller.window(), 100_000);
            controller.on_ack(&ack(&controller, 1));
        }
        assert_eq!(controller.window(), 101_000);
        controller.on_ack(&ack(&controller, 203));
        assert_eq!(controller.window(), 103_000, "101 and 102 of them");
    }

    #[test]
    fn a_marked_ack_takes_half_a_packet_and_a_late_one_takes_one() {
        let mut controller = controller();
        controller.on_ack(&AckSample { marked_packets: 1, ..ack(&controller, 1) });
        assert_eq!(controller.window(), 99_500);
        controller.on_ack(&AckSample { late_packets: 3, ..ack(&controller, 3) });
        assert_eq!(controller.window(), 96_500);
        // A packet that is late and marked counts as late.
        controller.on_ack(&AckSample { marked_packets: 1, late_packets: 1, ..ack(&controller, 1) });
        assert_eq!(controller.window(), 95_500);
    }

    #[test]
    fn a_timeout_takes_a_packet_while_acks_come_and_half_in_a_silence() {
        let mut controller = controller();
        let last_ack_at = Instant::EPOCH + Duration::from_millis(1);
        controller.on_ack(&AckSample { now: last_ack_at, ..ack(&controller, 1) });
        (0..3).for_each(|_| controller.on_timeout(last_ack_at + Duration::from_micros(39)));
        assert_eq!(controller.window(), 97_000);
        // Timeouts at the same time are one silence: the second takes off a packet.
        (0..2).for_each(|_| controller.on_timeout(last_ack_at + Duration::from_micros(40)));
        assert_eq!(controller.window(), 47_500);
    }
}
