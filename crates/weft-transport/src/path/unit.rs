//! The length of a spray unit: the number of packets that take one path before the policy selects again.
//!
//! A host pays for each unit and a network for each packet of it. The kernel sends a unit as one segmented message, so
//! units of 44 packets carry an order of magnitude more than single ones; the queue of a path holds whole units, so
//! units of one packet leave the shortest queues. `docs/design/spray-unit.md` has the measurements of both.

use weft_units::Duration;

use super::Spread;
use crate::TransportConfig;

weft_units::registry! {
    /// The name of a unit policy.
    #[non_exhaustive]
    pub enum Kind: "unit policy" {
        Fixed => "fixed", "always spray_unit packets";
        Window => "window", "at most a quarter of the window and 100 us of the connection's rate, at least 8 packets";
        Adaptive => "adaptive", "at most what waits, a twentieth of the target queue at the connection's rate, and a window's share of a path in use";
    }
}

/// Minimum number of units that fit in a window. With eight units, which change the path more often, half as much again
/// is retransmitted where one of four paths of 200 Gb/s loses packets.
const MIN_UNITS_IN_WINDOW: u64 = 4;

/// For [`Kind::Window`]: the maximum time in which a connection sends a unit at its rate, a window per round trip: while
/// a longer unit waits in the queue of one path, the other paths run empty. From 5 Gb/s on a unit has the 44 packets
/// that fill 64 KiB.
const MAX_UNIT_TIME: Duration = Duration::from_micros(100);

/// For [`Kind::Window`]: the minimum number of packets of a unit, however small the window is: the first packets of an
/// overlay connection, the hello and the beginning of a frame, take one path. A frame that overtakes its hello is
/// retransmitted. Of the longest packets fewer are enough for [`MIN_UNIT_BYTES`].
const MIN_PACKETS: u16 = 8;

/// Maximum length of a unit of the minimum number of packets, but for two packets: 8 packets of 9,000 bytes would occupy
/// a path of 50 Mb/s for 12 ms.
const MIN_UNIT_BYTES: u16 = 32 << 10;

/// For [`Kind::Adaptive`]: the part of the target queue that one unit may fill.
const UNITS_IN_TARGET_QUEUE: u64 = 20;

/// The state of a connection from which the length of its next unit follows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sending {
    /// Bytes that may be in flight over all paths.
    pub(crate) window: u32,
    /// The smoothed round-trip time; zero until measured.
    pub(crate) round_trip: Duration,
    /// Number of new packets that wait to be sent, counted up to the configured unit.
    pub(crate) waiting: u16,
}

impl Kind {
    /// Returns the number of packets of the next unit, 1 to `config.spray_unit`. A policy that uses one path at a time
    /// has the configured number.
    pub(crate) fn packets(self, config: &TransportConfig, sending: Sending) -> u16 {
        let most = config.spray_unit;
        if config.policy.spread() == Spread::One {
            return most;
        }
        match self {
            Self::Fixed => most,
            Self::Window => {
                let least = (MIN_UNIT_BYTES / config.mtu).clamp(2, MIN_PACKETS);
                full_packets(window_share(config, sending), config).clamp(least.min(most), most)
            }
            Self::Adaptive => full_packets(path_share(config, sending), config)
                .min(sending.waiting)
                .clamp(1, most),
        }
    }
}

/// Returns the number of packets of full length in this much payload.
fn full_packets(bytes: u64, config: &TransportConfig) -> u16 {
    u16::try_from(bytes / u64::from(config.mtu)).unwrap_or(u16::MAX)
}

/// Returns the maximum number of bytes of [`Kind::Window`]. A larger unit would fill the window with the packets of one
/// or two paths and leave the others idle.
fn window_share(config: &TransportConfig, sending: Sending) -> u64 {
    let in_time = sending.bytes_in(MAX_UNIT_TIME, config);
    in_time.min(u64::from(sending.window) / MIN_UNITS_IN_WINDOW)
}

/// Returns the maximum number of bytes of [`Kind::Adaptive`]: at the connection's rate a unit occupies a link for a
/// twentieth of the queue that the network is meant to have, and each path in use gets a unit of every window.
fn path_share(config: &TransportConfig, sending: Sending) -> u64 {
    let target = config.queue_target.max(config.base_rtt / 2);
    let in_time = sending.bytes_in(target / UNITS_IN_TARGET_QUEUE, config);
    let units = u64::from(config.policy.paths_in_use(config)).max(MIN_UNITS_IN_WINDOW);
    in_time.min(u64::from(sending.window) / units)
}

impl Sending {
    /// Returns the bytes that the connection sends in this time at its rate, a window per round trip.
    fn bytes_in(&self, time: Duration, config: &TransportConfig) -> u64 {
        let round_trip = self.round_trip.max(config.base_rtt).as_nanos().max(1);
        u64::from(self.window).saturating_mul(time.as_nanos()) / round_trip
    }
}

#[cfg(test)]
mod tests {
    use weft_units::BitRate;

    use super::*;
    use crate::{congestion, path};

    /// Returns the configuration of an agent on an Ethernet: units of up to 44 packets over 16 paths in use.
    fn agent(unit: Kind) -> TransportConfig {
        TransportConfig {
            mtu: 1440,
            paths: 128,
            top_k: 16,
            policy: path::Kind::ShortestQueue,
            spray_unit: 44,
            unit,
            congestion: congestion::Kind::Weft,
            line_rate: BitRate::gbps(40).expect("not zero"),
            base_rtt: Duration::from_micros(300),
            queue_target: Duration::from_millis(2),
            ..TransportConfig::bifrost()
        }
    }

    /// Returns the packets of a unit with this window, in bytes, and this round trip, in microseconds, in bulk.
    fn packets(config: &TransportConfig, window: u32, round_trip: u64) -> u16 {
        let round_trip = Duration::from_micros(round_trip);
        config.unit.packets(config, Sending { window, round_trip, waiting: 44 })
    }

    #[test]
    fn fixed_units_ignore_the_window() {
        assert_eq!(packets(&agent(Kind::Fixed), 1440, 300), 44);
    }

    #[test]
    fn units_of_the_window_have_8_packets_at_least_and_a_quarter_of_it_at_most() {
        let config = agent(Kind::Window);
        // 40 Gb/s; 5 Gb/s; 2 Gb/s; a window of two packets.
        for (window, round_trip, expected) in
            [(2_250_000, 450, 44), (190_000, 300, 32), (575_000, 2_300, 17), (2_880, 300, 8)]
        {
            assert_eq!(packets(&config, window, round_trip), expected, "{window} bytes");
        }
        let jumbo = TransportConfig { mtu: 9000, ..config };
        assert_eq!(packets(&jumbo, 18_000, 300), 3);
    }

    #[test]
    fn a_policy_of_one_path_has_the_configured_unit() {
        for &unit in Kind::ALL {
            let config = TransportConfig { policy: path::Kind::BestRtt, ..agent(unit) };
            assert_eq!(packets(&config, 1440, 300), 44, "{unit}");
        }
    }

    #[test]
    fn an_adaptive_unit_is_a_twentieth_of_the_target_queue_and_one_of_a_window_for_each_path() {
        let agent = agent(Kind::Adaptive);
        // 40 Gb/s; 5 Gb/s at 300 us, where 16 paths share the window; 0.8 Gb/s at the target delay, over four paths.
        for (window, round_trip, expected) in
            [(2_250_000, 450, 44), (190_000, 300, 8), (230_000, 2_300, 6), (2_880, 300, 1)]
        {
            assert_eq!(packets(&agent, window, round_trip), expected, "{window} bytes");
        }
        // A network of 8 us and 100 Gb/s: half of the round trip is the target queue, and 0.2 us are 2,500 bytes.
        let fabric = TransportConfig {
            base_rtt: Duration::from_micros(8),
            queue_target: Duration::ZERO,
            ..agent
        };
        assert_eq!(packets(&fabric, 100_000, 8), 1);
        assert_eq!(packets(&fabric, 400_000, 8), 6);
        let fabric = TransportConfig { policy: path::Kind::Oblivious, ..fabric };
        assert_eq!(packets(&fabric, 400_000, 8), 2, "128 paths share the window");
    }

    #[test]
    fn an_adaptive_unit_ends_with_what_waits_so_the_next_message_selects_its_own_path() {
        let units = |unit: Kind, waiting| {
            let round_trip = Duration::from_micros(300);
            unit.packets(&agent(unit), Sending { window: 2_250_000, round_trip, waiting })
        };
        assert_eq!([0, 1, 3, 44].map(|waiting| units(Kind::Adaptive, waiting)), [1, 1, 3, 44]);
        assert_eq!((units(Kind::Window, 1), units(Kind::Fixed, 1)), (44, 44));
    }
}
