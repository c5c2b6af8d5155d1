//! RCCC, receiver credit-based congestion control (Ultra Ethernet specification 1.0.3, section 3.6.14): the receiver
//! permits each byte, and paces these permissions at a little less than the rate of its port (`connection/credit.rs`), so
//! that the queue of its last switch stays short however many senders there are.
//!
//! A sender begins with speculative credit, which is void at the first feedback. Credit counts here as a window: the
//! bytes in flight and the unspent credit. A packet that leaves the flight takes its bytes off the window.
//!
//! A packet may leave while any credit is unspent, and credit becomes negative by up to a packet, as the specification has it.
//! So the last packet of a message needs no more credit than its own length. Without credit the window is zero, and
//! nothing leaves.

use weft_units::{Duration, Instant};

use super::{AckSample, Congestion, bandwidth_delay_product};
use crate::TransportConfig;

/// The speculative credit, and the most credit that is not spent, as a multiple of the bandwidth-delay product: 3/2.
const MAX_CREDIT: (u32, u32) = (3, 2);

/// The unspent credit and the bytes in flight.
#[derive(Debug)]
pub struct Controller {
    window: u32,
    /// `true` until an ACK or credit says how much of the speculative credit is in flight.
    speculates: bool,
    /// `true` once a packet did not arrive before that: the speculative credit is void already.
    is_void: bool,
    packet: u32,
    max_credit: u32,
    max_window: u32,
    /// The time of the next request for credit.
    request_at: Option<Instant>,
    request_again_after: Duration,
}

impl Controller {
    pub(super) fn new(config: &TransportConfig) -> Self {
        let product = bandwidth_delay_product(config);
        let max_credit = product.saturating_mul(MAX_CREDIT.0) / MAX_CREDIT.1;
        Self {
            window: max_credit,
            speculates: true,
            is_void: false,
            packet: config.mtu.into(),
            max_credit,
            max_window: product.saturating_mul(2),
            request_at: None,
            request_again_after: config.retransmission.rto_min,
        }
    }

    /// Voids the unspent speculative credit at the first feedback.
    fn end_speculation(&mut self, now: Instant, in_flight: u32) {
        if core::mem::take(&mut self.speculates) {
            self.window = in_flight;
            self.request_at = Some(now);
        }
    }

    /// Returns the speculative credit, with the bytes in flight; zero after the first feedback.
    pub(super) fn speculative(&self) -> u32 {
        if self.speculates && !self.is_void { self.window } else { 0 }
    }

    fn remove(&mut self, now: Instant, bytes: u32) {
        self.is_void = true;
        self.window = self.window.saturating_sub(bytes);
        self.request_at = Some(now);
    }
}

impl Congestion for Controller {
    fn on_ack(&mut self, ack: &AckSample) {
        self.end_speculation(ack.now, ack.in_flight.saturating_add(ack.acked_bytes));
        self.window = self.window.saturating_sub(ack.acked_bytes);
    }

    fn on_loss(&mut self, now: Instant) {
        self.remove(now, self.packet);
    }

    fn on_timeout(&mut self, now: Instant) {
        self.remove(now, self.packet);
    }

    fn on_credit(&mut self, now: Instant, bytes: u32, in_flight: u32) {
        self.end_speculation(now, in_flight);
        let most = in_flight.saturating_add(self.max_credit);
        self.window = self.window.saturating_add(bytes).min(most);
    }

    fn wanted_credit(&self, backlog: u32, in_flight: u32) -> Option<u32> {
        if self.speculates && self.is_void {
            return Some(backlog.min(self.max_credit));
        }
        if self.speculates {
            // What is left beyond the speculative credit arrives too late if it is requested once that is spent.
            let unspent = self.window.saturating_sub(in_flight);
            return Some(backlog.saturating_sub(unspent).min(self.max_credit));
        }
        // The difference has the debt of negative credit too.
        Some(in_flight.saturating_add(backlog.min(self.max_credit)).saturating_sub(self.window))
    }

    fn window(&self) -> u32 {
        // A full packet fits as long as the bytes in flight are below the credit.
        match self.window {
            _ if self.speculates && self.is_void => 0,
            0 => 0,
            window => window.saturating_add(self.packet - 1).min(self.max_window).max(self.packet),
        }
    }

    fn timer(&self) -> Option<Instant> {
        self.request_at
    }

    fn on_timer(&mut self, now: Instant) {
        // A request, or the credit, may be lost.
        self.request_at = Some(now + self.request_again_after);
    }
}

#[cfg(test)]
mod tests {
    use weft_units::BitRate;

    use super::*;
    use crate::TrimmedAt;

    const AT: Instant = Instant::from_nanos(1_000_000);

    /// Creates a controller of a network of 100 Gb/s and 12 us: a bandwidth-delay product of 150,000 bytes.
    fn controller() -> Controller {
        Controller::new(&TransportConfig {
            line_rate: BitRate::gbps(100).expect("not zero"),
            base_rtt: Duration::from_micros(12),
            ..TransportConfig::stellar()
        })
    }

    /// Returns the unspent credit and the bytes in flight.
    fn credit(it: &Controller) -> u32 {
        it.window() - 4095
    }

    fn acked(packets: u32, in_flight: u32) -> AckSample {
        AckSample { now: AT, in_flight, ..AckSample::of_packets(packets, 4096) }
    }

    #[test]
    fn speculative_credit_is_one_and_a_half_products_and_void_at_the_first_feedback() {
        let mut it = controller();
        assert_eq!(credit(&it), 225_000);
        assert_eq!(it.wanted_credit(225_000, 0), Some(0), "speculation suffices");
        assert_eq!(it.wanted_credit(300_000, 0), Some(75_000));
        assert_eq!(it.wanted_credit(9_000_000, 0), Some(225_000));
        it.on_ack(&acked(1, 100_000));
        assert_eq!(credit(&it), 100_000, "what is in flight, and no more");
        assert_eq!(it.wanted_credit(9_000_000, 100_000), Some(225_000));
        assert_eq!(it.timer(), Some(AT), "it requests credit at once");
    }

    #[test]
    fn credit_permits_as_many_bytes_and_unspent_credit_is_at_most_one_and_a_half_products() {
        let mut it = controller();
        it.on_credit(AT, 16_384, 50_000);
        assert_eq!(credit(&it), 66_384);
        assert_eq!(it.wanted_credit(9_000_000, 50_000), Some(225_000 - 16_384));
        assert_eq!(it.wanted_credit(10_000, 50_000), Some(0));
        it.on_credit(AT, 9_000_000, 50_000);
        assert_eq!(credit(&it), 275_000);
        it.on_ack(&acked(2, 41_808));
        assert_eq!(credit(&it), 275_000 - 2 * 4096, "an ACK permits nothing");
    }

    #[test]
    fn a_trimmed_packet_voids_speculative_credit_too() {
        let mut it = controller();
        it.on_trimmed(AT, TrimmedAt::LastHop);
        assert_eq!((it.window(), it.speculative()), (0, 0));
        assert_eq!(it.wanted_credit(8192, 90_000), Some(8192), "what is to be sent again");
        it.on_credit(AT, 8192, 90_000);
        assert_eq!(credit(&it), 98_192);
        assert_eq!(it.wanted_credit(8192, 90_000), Some(0));
    }

    #[test]
    fn a_packet_that_did_not_arrive_needs_new_credit() {
        let mut it = controller();
        it.on_credit(AT, 20_000, 50_000);
        it.on_trimmed(AT, TrimmedAt::Fabric);
        assert_eq!(credit(&it), 70_000 - 4096);
        (0..100).for_each(|_| it.on_loss(AT));
        assert_eq!(it.window(), 0, "nothing leaves without credit");
    }
}
