//! The guarantees of every controller in the table.

use super::*;
use crate::congestion::Kind;

fn config(kind: Kind) -> TransportConfig {
    TransportConfig { congestion: kind, ..network(&TransportConfig::stellar()) }
}

impl Loop {
    fn of(kind: Kind) -> Self {
        Self::new(&config(kind))
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

/// Returns the controllers that react to feedback; RCCC sends by the receiver's credit only, HPCC by telemetry.
fn reacting() -> impl Iterator<Item = Kind> {
    let others = [Kind::FixedWindow, Kind::Rccc, Kind::Hpcc];
    Kind::ALL.iter().copied().filter(move |kind| !others.contains(kind))
}

/// Returns the controllers that react to marks alone; Swift and TIMELY react to delay only, NSCC to both together.
fn reacting_to_marks() -> impl Iterator<Item = Kind> {
    reacting().filter(|&kind| !matches!(kind, Kind::Swift | Kind::Timely | Kind::Nscc))
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

#[test]
fn the_window_stays_between_one_packet_and_two_products_and_the_rate_below_the_ports() {
    for &kind in Kind::ALL {
        for seed in 0..100 {
            stays_in_bounds(&config(kind), seed);
        }
    }
}

#[test]
fn an_empty_network_lets_the_window_grow_to_its_bound() {
    for kind in reacting() {
        let start = Loop::of(kind).window();
        let windows: Vec<_> =
            [0, 10, 100, 1000].map(|rounds| Loop::of(kind).after(rounds, 0, BASE)).into();
        let grows = windows[1] > start || start >= PRODUCT;
        assert!(windows.is_sorted() && grows, "{kind}: {windows:?}");
        assert!(windows[3] >= PRODUCT, "{kind} cannot fill the line: {windows:?}");
    }
}

#[test]
fn sustained_marks_shrink_the_window_to_a_few_packets() {
    for kind in reacting_to_marks() {
        let mut it = Loop::of(kind);
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
        let mut it = Loop::of(kind);
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
            let mut it = Loop::of(kind);
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
        let mut it = Loop::of(kind);
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
fn trimmed_packets_in_every_round_trip_shrink_the_window() {
    for kind in reacting() {
        let mut it = Loop::new(&config(kind));
        (0..100).for_each(|_| it.round_trip(0, BASE));
        let before = it.window();
        for _ in 0..20 {
            it.round_trip(0, BASE);
            let trimmed = it.window() / PACKET / 4 + 1;
            (0..trimmed).for_each(|_| it.controller.on_trimmed(it.now, TrimmedAt::Fabric));
        }
        assert!(it.window() < before / 2, "{kind}: from {before} to {}", it.window());
    }
}

#[test]
fn timeouts_in_a_silent_network_leave_one_packet_in_a_round_trip() {
    for kind in reacting() {
        let mut it = Loop::of(kind);
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
        let mut it = Loop::of(kind);
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
