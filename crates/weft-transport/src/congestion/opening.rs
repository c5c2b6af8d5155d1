//! The first window of a connection, a limit below that of any congestion control: slow start (RFC 5681, section 3.1)
//! from a share of the receiver's bandwidth-delay product.
//!
//! A control reacts to feedback, and in an incast there is none before the first round trip is over: 1,023 hosts that
//! each open with a bandwidth-delay product have lost a third of it by then. But the receiver knows how many
//! connections were set up to it without data so far, and announces their number at set-up
//! ([`weft_wire::SetupHeader::reason`]). Each takes its share for the first window, and at least the window that RFC
//! 6928 allows.

use weft_units::Duration;

use super::{AckSample, bandwidth_delay_product};
use crate::TransportConfig;

/// The first window that RFC 6928, section 2, always allows, bytes; or two packets, if that is more.
const MIN_FIRST_WINDOW: u32 = 14_600;

/// The first window of a connection that has the receiver for itself, 3/2 bandwidth-delay products (the largest initial
/// window of any control), and the window at which slow start has ended, 2.
const FULL_WINDOW: (u32, u32) = (3, 2);
const SLOW_START_END: u32 = 2;

/// A window that doubles in each round trip without marks and without a queue. Where `first_window` bounds it, because
/// the network is not known, it grows by a packet in a round trip with a queue and without marks. `u32::MAX` once slow
/// start has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opening {
    window: u32,
    end: u32,
    /// The round trip of the empty network as configured, and the shortest one measured.
    base_rtt: Duration,
    min_rtt: Duration,
    queue_target: Duration,
    packet: u32,
    /// `true` if the network's rate is not known, so that the window may be far below what it carries.
    is_guess: bool,
}

impl Opening {
    /// Creates the opening of a connection whose receiver has 2^`sharers` senders.
    pub(crate) fn new(config: &TransportConfig, sharers: u8) -> Self {
        let sharers = if config.share_first_window { sharers } else { 0 };
        let packet = u32::from(config.mtu);
        let product = bandwidth_delay_product(config);
        let whole = product.saturating_mul(FULL_WINDOW.0) / FULL_WINDOW.1;
        let share = whole.checked_shr(sharers.into()).unwrap_or(0);
        let min_window = MIN_FIRST_WINDOW.min(10 * packet).max(2 * packet);
        // All sharers together may put as much into an unknown queue as one alone.
        let bound = match config.first_window {
            u32::MAX => u32::MAX,
            bound => bound.checked_shr(sharers.into()).unwrap_or(0),
        };
        let first = share.min(bound).max(min_window);
        let end = product.saturating_mul(SLOW_START_END);
        let window = if first >= whole { u32::MAX } else { first };
        Self {
            window,
            end,
            base_rtt: config.base_rtt,
            min_rtt: Duration::MAX,
            queue_target: config.queue_target,
            packet,
            is_guess: bound != u32::MAX,
        }
    }

    /// Returns the limit of the bytes in flight that applies beside the congestion control's; `u32::MAX` once slow
    /// start has ended.
    #[inline]
    pub(crate) fn window(&self) -> u32 {
        self.window
    }

    /// Processes an ACK of new packets.
    #[inline]
    pub(crate) fn on_ack(&mut self, ack: &AckSample) {
        if self.window != u32::MAX {
            self.grow(ack);
        }
    }

    #[cold]
    fn grow(&mut self, ack: &AckSample) {
        let delay = ack.fabric_delay.or(ack.rtt);
        self.min_rtt = delay.map_or(self.min_rtt, |delay| self.min_rtt.min(delay));
        let measured = self.min_rtt != Duration::MAX;
        let empty = if measured { self.base_rtt.max(self.min_rtt) } else { self.base_rtt };
        let queue = empty.max(self.queue_target / 2);
        let delayed = delay.is_some_and(|delay| delay > empty + queue);
        // An incast marks, and a control of rates has no other window there.
        if ack.marked_packets == 0 && !delayed {
            self.window = self.window.saturating_add(ack.acked_bytes);
        } else if ack.marked_packets == 0 && self.is_guess {
            self.window = self.window.saturating_add(self.one_packet_a_round(ack));
        }
        if self.window >= self.end {
            self.window = u32::MAX;
        }
    }

    /// Returns the growth that adds up to one packet for a window of acknowledged bytes (RFC 5681, section 3.1).
    fn one_packet_a_round(&self, ack: &AckSample) -> u32 {
        let share = u64::from(self.packet) * u64::from(ack.acked_bytes) / u64::from(self.window);
        u32::try_from(share).unwrap_or(self.packet)
    }
}

#[cfg(test)]
mod tests {
    use weft_units::BitRate;

    use super::*;

    /// Returns a configuration with packets of 1000 bytes and a bandwidth-delay product of 100 of them.
    fn config() -> TransportConfig {
        TransportConfig {
            mtu: 1000,
            line_rate: BitRate::gbps(80).expect("not zero"),
            base_rtt: Duration::from_micros(10),
            ..TransportConfig::stellar()
        }
    }

    fn first(sharers: u8) -> u32 {
        Opening::new(&config(), sharers).window()
    }

    #[test]
    fn the_first_window_is_a_share_and_no_less_than_rfc_6928_allows() {
        assert_eq!(first(0), u32::MAX, "the control's own");
        assert_eq!([first(1), first(2), first(3)], [75_000, 37_500, 18_750]);
        assert_eq!([first(4), first(10), first(200)], [10_000; 3], "ten packets of 1000 bytes");
        let of = |mtu| Opening::new(&TransportConfig { mtu, ..config() }, 20).window();
        // RFC 6928: min(10 * MSS, max(2 * MSS, 14600)).
        assert_eq!([of(1460), of(4096), of(9000)], [14_600, 14_600, 18_000]);
    }

    #[test]
    fn a_configured_first_window_bounds_those_of_all_sharers_together() {
        let config = TransportConfig { first_window: 64_000, ..config() };
        let windows = [0, 1, 2, 3].map(|sharers| Opening::new(&config, sharers).window());
        assert_eq!(windows, [64_000, 32_000, 16_000, 10_000], "and ten packets at least");
    }

    #[test]
    fn clean_round_trips_double_it_until_it_ends_and_a_queue_without_marks_adds_a_packet() {
        let mut opening = Opening::new(&TransportConfig { first_window: 160_000, ..config() }, 4);
        let mut round = |marked, micros| {
            let rtt = Some(Duration::from_micros(micros));
            let packets = (opening.window().min(1_000_000) / 1000).max(1);
            let ack = AckSample::of_packets(packets, 1000);
            opening.on_ack(&AckSample { marked_packets: marked, rtt, ..ack });
            opening.window()
        };
        assert_eq!(
            [round(0, 10), round(1, 10), round(0, 21), round(0, 20)],
            [20_000, 20_000, 21_000, 42_000]
        );
        assert_eq!([round(0, 10), round(0, 10), round(0, 10)], [84_000, 168_000, u32::MAX]);
    }

    #[test]
    fn a_queue_below_half_of_the_target_does_not_end_slow_start() {
        let (first_window, queue_target) = (160_000, Duration::from_micros(100));
        let config = TransportConfig { first_window, queue_target, ..config() };
        let mut opening = Opening::new(&config, 4);
        let mut round = |micros| {
            let rtt = Some(Duration::from_micros(micros));
            opening.on_ack(&AckSample { rtt, ..AckSample::of_packets(10, 1000) });
            opening.window()
        };
        assert_eq!([round(10), round(60), round(61)], [20_000, 30_000, 30_333]);
    }
}
