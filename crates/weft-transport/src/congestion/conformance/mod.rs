//! The guarantees of every congestion control, for any input: those of the table, and controls that an owner makes
//! itself ([`External`](crate::External)).

use weft_units::{BitRate, Duration, Instant, Rng, Seed};

use super::{AckSample, Congestion, Controller, Scope};
use crate::{TransportConfig, TrimmedAt};

#[cfg(test)]
mod tests;

const PACKET: u32 = 1000;
const BASE: Duration = Duration::from_micros(10);
/// The bandwidth-delay product of [`network`].
const PRODUCT: u32 = 100 * PACKET;

/// Checks the congestion control that `config` makes: its window stays between one packet and two bandwidth-delay
/// products, and its rate below the port's, whatever it is called with.
///
/// # Panics
/// Panics with the rule that the control broke.
pub fn check(config: &TransportConfig) {
    for seed in 0..100 {
        stays_in_bounds(&network(config), seed);
    }
}

impl AckSample {
    /// Returns an ACK of `packets` packets of `size` bytes each: none is marked, and none is left in flight.
    pub(in crate::congestion) fn of_packets(packets: u32, size: u32) -> Self {
        Self {
            now: Instant::EPOCH,
            acked_bytes: packets * size,
            acked_packets: packets,
            marked_packets: 0,
            late_packets: 0,
            rtt: None,
            fabric_delay: None,
            endpoint_delay: None,
            hops: 0,
            in_flight: 0,
        }
    }
}

/// Returns the configuration in a network of one round-trip time.
fn network(config: &TransportConfig) -> TransportConfig {
    TransportConfig {
        mtu: 1000,
        line_rate: BitRate::gbps(80).expect("not zero"),
        base_rtt: BASE,
        ..config.clone()
    }
}

/// A controller whose window is always full, in a network of one round-trip time.
struct Loop {
    controller: Controller,
    now: Instant,
}

impl Loop {
    fn new(config: &TransportConfig) -> Self {
        Self { controller: config.build_control(), now: Instant::EPOCH }
    }

    /// Returns the bytes that the window and the rate permit in a round trip.
    fn window(&self) -> u32 {
        let rated = self.controller.rate().map_or(u64::MAX, |rate| rate.bytes_in(BASE).0);
        u32::try_from(rated).unwrap_or(u32::MAX).min(self.controller.window())
    }

    /// Advances time and serves the timer.
    fn pass(&mut self, span: Duration) {
        let until = self.now + span;
        while let Some(at) = self.controller.timer().filter(|&at| at <= until) {
            self.now = self.now.max(at);
            self.controller.on_timer(self.now);
            assert!(self.controller.timer().is_none_or(|next| next > self.now), "it spins");
        }
        self.now = until;
    }
}

/// Runs random ACKs, some with impossible values, losses and timeouts.
fn stays_in_bounds(config: &TransportConfig, seed: u64) {
    fn span(rng: &mut Rng) -> Option<Duration> {
        let longest = [2_000, 20_000, 1_000_000, u64::MAX][rng.index(4)];
        rng.chance(2, 3).then(|| Duration::from_nanos(rng.below(longest)))
    }
    let name = config.congestion;
    let mut rng = Seed(seed).child(name.name(), 0).rng();
    let mut it = Loop::new(config);
    for step in 0..500 {
        it.pass(Duration::from_nanos(rng.below(20_000)));
        match rng.below(8) {
            0 => it.controller.on_loss(it.now),
            1 => it.controller.on_timeout(it.now),
            2 => it.controller.on_trimmed(it.now, TrimmedAt::LastHop),
            _ => {
                let packets = rng.next_u32() % [5, 300, u32::MAX / PACKET][rng.index(3)];
                let in_flight = rng.next_u32() % [1, 2 * PRODUCT, u32::MAX][rng.index(3)];
                it.controller.on_ack(&AckSample {
                    now: it.now,
                    marked_packets: rng.next_u32() % (packets + 2),
                    late_packets: rng.next_u32() % (packets + 2),
                    rtt: span(&mut rng),
                    fabric_delay: span(&mut rng),
                    endpoint_delay: span(&mut rng),
                    hops: rng.next_u32().to_le_bytes()[0],
                    in_flight,
                    ..AckSample::of_packets(packets, PACKET)
                });
            }
        }
        let window = it.controller.window();
        let permitted = it.window();
        // The windows of 128 paths may add up to one packet.
        let smallest = match config.congestion_scope() {
            _ if config.takes_credit() => 0,
            Scope::Path => PACKET / 128,
            Scope::Connection => PACKET,
        };
        let within = window >= smallest && permitted <= 2 * PRODUCT;
        assert!(
            within,
            "{name}: the window is {window} bytes and {permitted} may be in flight, \
             expected {smallest} to {} (seed {seed}, step {step})",
            2 * PRODUCT
        );
    }
}
