//! The guarantees of every controller in the table, for any input.

use std::vec::Vec;

use weft_units::{BitRate, Duration, Instant, Rng, Seed};

use super::{AckSample, Congestion, Controller, Kind, Scope};
use crate::TransportConfig;

const PACKET: u32 = 1000;
const BASE: Duration = Duration::from_micros(10);
/// The bandwidth-delay product of [`config`].
const PRODUCT: u32 = 100 * PACKET;

impl AckSample {
    /// Returns an ACK of `packets` packets of `size` bytes each: none is marked, and none is left in flight.
    pub(super) fn of_packets(packets: u32, size: u32) -> Self {
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

fn config(kind: Kind) -> TransportConfig {
    TransportConfig {
        mtu: 1000,
        line_rate: BitRate::gbps(80).expect("not zero"),
        base_rtt: BASE,
        congestion: kind,
        ..TransportConfig::stellar()
    }
}

/// A controller whose window is always full, in a network of one round-trip time.
struct Loop {
    controller: Controller,
    now: Instant,
}

impl Loop {
    fn new(kind: Kind) -> Self {
        Self { controller: kind.build(&config(kind)), now: Instant::EPOCH }
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

    /// Runs a timeout of a packet, followed by a silence.
    fn time_out(&mut self) {
        self.pass(Duration::from_micros(200));
        self.controller.on_timeout(self.now);
        self.pass(Duration::from_micros(50));
    }

    /// Runs a round trip of `rtt` in ACKs of at most four packets, of which `marked` are marked.
    fn round_trip(&mut self, marked: u32, rtt: Duration) {
        let mut left = self.window().div_ceil(PACKET);
        let step = rtt * 4 / u64::from(left.max(4));
        while left > 0 {
            self.pass(step);
            let packets = left.min(4);
            left -= packets;
            self.controller.on_ack(&AckSample {
                now: self.now,
                marked_packets: marked.min(packets),
                rtt: Some(rtt),
                fabric_delay: Some(rtt),
                endpoint_delay: Some(Duration::ZERO),
                in_flight: self.window(),
                ..AckSample::of_packets(packets, PACKET)
            });
        }
    }

    fn after(mut self, rounds: u32, marked: u32, rtt: Duration) -> u32 {
        (0..rounds).for_each(|_| self.round_trip(marked, rtt));
        self.window()
    }
}

/// Returns the controllers that react to feedback.
fn reacting() -> impl Iterator<Item = Kind> {
    Kind::ALL.iter().copied().filter(|&kind| kind != Kind::FixedWindow)
}

/// Returns the controllers that react to marks; Swift and TIMELY react to delay only.
fn reacting_to_marks() -> impl Iterator<Item = Kind> {
    reacting().filter(|&kind| !matches!(kind, Kind::Swift | Kind::Timely))
}

#[test]
fn every_name_parses_back_and_has_a_description() {
    for &kind in Kind::ALL {
        assert_eq!(kind.name().parse(), Ok(kind));
        assert!(kind.about().len() > 20 && !kind.about().contains('\n'), "{kind}");
    }
    assert!("switf".parse::<Kind>().unwrap_err().to_string().contains("swift"));
}

#[test]
fn a_kind_fits_the_four_bits_it_has_on_the_wire() {
    assert!(Kind::ALL.len() <= 16);
    let order = [
        Kind::FixedWindow,
        Kind::Stellar,
        Kind::Swift,
        Kind::Dctcp,
        Kind::Dcqcn,
        Kind::Timely,
        Kind::Weft,
    ];
    assert_eq!(Kind::ALL[..7], order, "rows may be added, never moved");
}

#[test]
fn the_first_windows_of_all_paths_are_one_bandwidth_delay_product() {
    for kind in [Kind::FixedWindow, Kind::Stellar, Kind::Swift] {
        let config = config(kind);
        let paths = if kind.scope() == Scope::Path { 128 } else { 1 };
        let expected = (PRODUCT / paths).max(PACKET);
        assert_eq!(kind.build(&config).window(), expected, "{kind}");
    }
}

/// Runs random ACKs, some with impossible values, losses and timeouts.
#[test]
fn the_window_stays_between_one_packet_and_two_products_and_the_rate_below_the_ports() {
    fn span(rng: &mut Rng) -> Option<Duration> {
        let longest = [2_000, 20_000, 1_000_000, u64::MAX][rng.index(4)];
        rng.chance(2, 3).then(|| Duration::from_nanos(rng.below(longest)))
    }
    for &kind in Kind::ALL {
        for seed in 0..100 {
            let mut rng = Seed(seed).child(kind.name(), 0).rng();
            let mut it = Loop::new(kind);
            for step in 0..500 {
                it.pass(Duration::from_nanos(rng.below(20_000)));
                match rng.below(8) {
                    0 => it.controller.on_loss(it.now),
                    1 => it.controller.on_timeout(it.now),
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
                let smallest = if kind.scope() == Scope::Path { PACKET / 128 } else { PACKET };
                let within = window >= smallest && permitted <= 2 * PRODUCT;
                assert!(within, "{kind}: {window} to {permitted} at {seed}/{step}");
            }
        }
    }
}

#[test]
fn an_empty_network_lets_the_window_grow_to_its_bound() {
    for kind in reacting() {
        let start = Loop::new(kind).window();
        let windows: Vec<_> =
            [0, 10, 100, 1000].map(|rounds| Loop::new(kind).after(rounds, 0, BASE)).into();
        let grows = windows[1] > start || start >= PRODUCT;
        assert!(windows.is_sorted() && grows, "{kind}: {windows:?}");
        assert!(windows[3] >= PRODUCT, "{kind} cannot fill the line: {windows:?}");
    }
}

#[test]
fn sustained_marks_shrink_the_window_to_a_few_packets() {
    for kind in reacting_to_marks() {
        let mut it = Loop::new(kind);
        (0..100).for_each(|_| it.round_trip(0, BASE));
        let before = it.window();
        let after = it.after(100, 4, BASE);
        assert!(after <= 4 * PACKET, "{kind}: from {before} to {after}");
    }
}

#[test]
fn more_marks_never_leave_a_larger_window() {
    // The mean is over many round trips: a single one depends on the phase of the sawtooth.
    let mean = |kind, marked| {
        let mut it = Loop::new(kind);
        (0..100).for_each(|_| it.round_trip(marked, BASE));
        (0..100).fold(0, |sum, _| {
            it.round_trip(marked, BASE);
            sum + it.window() / 100
        })
    };
    for kind in reacting_to_marks() {
        let windows: Vec<_> = (0..=4).map(|marked| mean(kind, marked)).collect();
        assert!(windows.is_sorted_by(|a, b| a >= b), "{kind}: {windows:?}");
        assert!(windows[0] > 10 * windows[4], "{kind}: {windows:?}");
    }
}

#[test]
fn a_deeper_queue_never_leaves_a_larger_window() {
    for kind in [Kind::Stellar, Kind::Swift] {
        let after = |micros| {
            let mut it = Loop::new(kind);
            (0..200).for_each(|_| it.round_trip(0, BASE));
            it.after(20, 0, Duration::from_micros(micros))
        };
        let windows: Vec<_> = [10, 14, 18, 25, 40, 80, 160].map(after).into();
        assert!(windows.is_sorted_by(|a, b| a >= b), "{kind}: {windows:?}");
        assert!(windows[6] <= 4 * PACKET, "{kind}: {windows:?}");
    }
}

#[test]
fn losses_in_every_round_trip_shrink_the_window() {
    for kind in reacting() {
        let mut it = Loop::new(kind);
        (0..100).for_each(|_| it.round_trip(0, BASE));
        let before = it.window();
        for _ in 0..20 {
            it.round_trip(0, BASE);
            let lost = it.window() / PACKET / 4 + 1;
            (0..lost).for_each(|_| it.controller.on_loss(it.now));
        }
        assert!(it.window() < before / 2, "{kind}: from {before} to {}", it.window());
    }
}

#[test]
fn timeouts_in_a_silent_network_leave_one_packet_in_a_round_trip() {
    for kind in reacting() {
        let mut it = Loop::new(kind);
        (0..100).for_each(|_| it.round_trip(0, BASE));
        let mut windows = vec![it.window()];
        for _ in 0..12 {
            it.time_out();
            windows.push(it.window());
        }
        assert!(windows.is_sorted_by(|a, b| a >= b), "{kind}: {windows:?}");
        assert!(windows[2] < windows[0], "{kind}: {windows:?}");
        assert!(windows[12] <= PACKET, "{kind}: {windows:?}");
    }
}

#[test]
fn a_window_recovers_when_the_network_does() {
    for kind in reacting() {
        let mut it = Loop::new(kind);
        (0..12).for_each(|_| it.time_out());
        assert!(it.window() <= PACKET, "{kind}");
        // TIMELY adds 10 Mb/s of the port's 80 Gb/s in each round trip.
        let after = it.after(10_000, 0, BASE);
        assert!(after >= PRODUCT, "{kind}: only {after}");
    }
}

#[test]
fn a_controller_by_value_stays_small() {
    // BIFROST's eight paths hold one each, and an idle connection may hold 2 KiB in all.
    assert!(size_of::<Controller>() <= 96, "{} bytes", size_of::<Controller>());
}
