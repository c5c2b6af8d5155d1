//! NSCC in the network that its constants are for: 100 Gb/s, 12 us, a bandwidth-delay product of 150,000 bytes.

use weft_units::BitRate;

use super::*;

const PACKET: u32 = 4096;
const BASE: Duration = Duration::from_micros(12);
const MAX: f64 = 225_000.0;

fn with(nscc: NsccConfig, gbps: u64) -> Controller {
    Controller::new(&TransportConfig {
        line_rate: BitRate::gbps(gbps).expect("not zero"),
        base_rtt: BASE,
        nscc,
        ..TransportConfig::stellar()
    })
}

/// A controller of a network that trims: its target is 9 us.
fn trimming() -> Controller {
    with(NsccConfig { trimming: true, ..NsccConfig::default() }, 100)
}

fn at(micros: u64) -> Instant {
    Instant::EPOCH + Duration::from_micros(micros)
}

/// Returns an ACK of `packets` at `micros` that met a queue of `queue` nanoseconds.
fn ack(micros: u64, packets: u32, queue: u64, marked: bool) -> AckSample {
    AckSample {
        now: at(micros),
        fabric_delay: Some(BASE + Duration::from_nanos(queue)),
        marked_packets: marked.into(),
        ..AckSample::of_packets(packets, PACKET)
    }
}

#[track_caller]
fn is_near(got: f64, expected: f64) {
    assert!((got - expected).abs() < 0.5, "{got}, not {expected}");
}

#[test]
fn the_parameters_are_the_specifications_scaled_to_the_network() {
    let same = trimming().parameters;
    assert_eq!((same.max_window, same.target_ns, same.qa_threshold_ns), (225_000, 9_000, u64::MAX));
    is_near(same.alpha * 12_000.0, 4.0 * 4096.0);
    is_near(same.fair, 5.0 * 4096.0);
    is_near(same.eta, 0.15 * 4096.0);
    assert!((same.fast - 0.25).abs() < 1e-9);

    let faster = with(NsccConfig::default(), 400).parameters;
    assert_eq!((faster.max_window, faster.target_ns), (900_000, 12_000));
    assert_eq!(faster.qa_threshold_ns, 48_000, "four times the target");
    is_near(faster.fair, 4.0 * same.fair);
    is_near(faster.alpha * 1e3, 4.0 * same.alpha * 1e3);
    is_near(faster.eta, 4.0 * same.eta);
    assert!((faster.fast - 1.0).abs() < 1e-9);

    let target_queue_delay = Duration::from_micros(5);
    let set = with(NsccConfig { trimming: true, target_queue_delay, ..NsccConfig::default() }, 100)
        .parameters;
    assert_eq!(set.target_ns, 5_000);
}

#[test]
fn it_starts_with_one_and_a_half_products() {
    assert_eq!(trimming().window(), 225_000);
}

/// Returns a controller with a window of 100,000 bytes whose increases were applied at 1000 us.
fn at_100_kb() -> Controller {
    let mut it = trimming();
    it.window = 100_000.0;
    (it.adjusted_at, it.measured_until) = (at(1000), at(2000));
    it
}

#[test]
fn increases_are_applied_after_eight_packets_or_a_round_trip() {
    let mut it = at_100_kb();
    it.on_ack(&ack(1001, 8, 4_000, false));
    is_near(it.window, 100_000.0);
    it.on_ack(&ack(1002, 1, 4_000, false));
    // Proportional: 4 x 4096 / 12 us x 9 packets x 5 us below the target, divided by the window.
    is_near(it.window, 100_000.0 + 4.0 * 4096.0 / 12.0 * 5.0 * 9.0 * 4096.0 / 100_000.0);

    let mut it = at_100_kb();
    it.on_ack(&ack(1012, 1, 9_000, false));
    // At the target: the fair increase, and the constant one as a round trip has passed.
    is_near(it.window, 100_000.0 + 5.0 * 4096.0 * 4096.0 / 100_000.0 + 0.15 * 4096.0);
}

#[test]
fn a_window_without_any_queue_is_followed_by_fast_increase() {
    let mut it = at_100_kb();
    it.without_queue = 100_000 - 2 * PACKET + 1;
    it.on_ack(&ack(1001, 1, 999, false));
    is_near(it.window, 100_000.0);
    it.on_ack(&ack(1001, 1, 999, false));
    is_near(it.window, 100_000.0 + 0.25 * 4096.0);
    it.on_ack(&ack(1001, 1, 1_000, false));
    assert!(!it.is_fast, "a queue of a microsecond ends it");
}

#[test]
fn a_mark_below_the_target_changes_nothing() {
    let mut it = at_100_kb();
    it.on_ack(&ack(1001, 9, 8_999, true));
    is_near(it.window, 100_000.0);
}

#[test]
fn a_mark_and_a_queue_cut_by_the_average_excess_once_a_round_trip_and_at_most_by_half() {
    let mut it = at_100_kb();
    it.average_ns = 12_000.0;
    it.on_ack(&ack(1001, 1, 12_000, true));
    // 1 - 0.8 x (12 - 9) / 12.
    is_near(it.window, 80_000.0);
    it.on_ack(&ack(1012, 1, 12_000, true));
    is_near(it.window, 80_000.0 + 0.15 * 4096.0);
    it.decreased_at = at(1012);
    it.average_ns = 90_000.0;
    it.window = 80_000.0;
    it.on_ack(&ack(1024, 1, 90_000, true));
    assert!(it.window >= 80_000.0, "within a round trip of the last cut");
    it.adjusted_at = at(1025);
    it.window = 80_000.0;
    it.on_ack(&ack(1025, 1, 90_000, true));
    is_near(it.window, 40_000.0);
}

#[test]
fn the_average_follows_delays_except_those_of_a_queue_that_shrinks() {
    let mut it = at_100_kb();
    it.on_ack(&ack(1001, 1, 8_000, false));
    is_near(it.average_ns, 0.0125 * 8_000.0);
    it.average_ns = 8_000.0;
    it.on_ack(&ack(1001, 1, 20_000, false));
    is_near(it.average_ns, 8_000.0 + 0.0125 * (3_000.0 - 8_000.0));
    it.average_ns = 8_000.0;
    it.on_ack(&ack(1001, 1, 20_000, true));
    is_near(it.average_ns, 8_000.0 + 0.0125 * (20_000.0 - 8_000.0));
}

#[test]
fn each_packet_that_did_not_arrive_takes_its_size_off() {
    let mut it = at_100_kb();
    it.on_loss(at(1001));
    it.on_timeout(at(1002));
    is_near(it.average_ns, 0.0);
    it.on_trimmed(at(1003), TrimmedAt::Fabric);
    is_near(it.window, 100_000.0 - 3.0 * 4096.0);
    is_near(it.average_ns, 0.0125 * 12_000.0);
}

#[test]
fn quick_adapt_leaves_what_arrived_and_ignores_what_was_in_flight() {
    let mut it = trimming();
    it.on_ack(&ack(1000, 1, 20_000, false));
    assert_eq!(it.measured_until, at(1021), "a round trip and the target");
    it.on_ack(&AckSample { in_flight: 24 * PACKET, ..ack(1001, 3, 20_000, false) });
    it.on_trimmed(at(1021), TrimmedAt::Fabric);
    is_near(it.window, MAX - 4096.0);
    // Less than an eighth of 225,000 bytes arrived.
    it.on_trimmed(at(1022), TrimmedAt::Fabric);
    is_near(it.window, 3.0 * 4096.0);
    for _ in 0..26 {
        it.on_trimmed(at(1023), TrimmedAt::Fabric);
    }
    is_near(it.window, 3.0 * 4096.0);
    it.on_trimmed(at(1023), TrimmedAt::Fabric);
    is_near(it.window, 2.0 * 4096.0);
}

#[test]
fn quick_adapt_does_nothing_while_an_eighth_arrives() {
    let mut it = trimming();
    it.on_ack(&ack(1000, 1, 20_000, false));
    it.on_ack(&ack(1001, 7, 20_000, false));
    it.on_loss(at(1022));
    assert!(it.window > MAX - 2.0 * 4096.0, "{}", it.window);
}

#[test]
fn without_trimming_a_delay_of_four_targets_starts_quick_adapt() {
    for (queue, expected) in [(48_000, MAX), (48_001, 4096.0)] {
        let mut it = with(NsccConfig::default(), 100);
        it.on_ack(&ack(1000, 1, 20_000, false));
        it.on_ack(&ack(1025, 1, queue, false));
        is_near(it.window, expected);
    }
}

#[test]
fn with_credits_the_smaller_window_counts_and_the_last_hop_shrinks_the_credit_only() {
    let mut it = with(NsccConfig { trimming: true, credits: true, ..NsccConfig::default() }, 100);
    it.window = 100_000.0;
    assert_eq!((it.window(), it.wanted_credit(9_000_000, 0)), (100_000, Some(104_096)));
    it.on_credit(at(1000), 16_384, 50_000);
    assert_eq!(it.window(), 66_384 + 4095, "speculation is over");
    // The window and a packet, less the unspent credit.
    assert_eq!(it.wanted_credit(9_000_000, 50_000), Some(104_096 - 16_384));
    it.on_trimmed(at(1001), TrimmedAt::LastHop);
    assert_eq!((it.window, it.window()), (100_000.0, 66_384 - 1));
    it.on_trimmed(at(1001), TrimmedAt::Fabric);
    is_near(it.window, 100_000.0 - 4096.0);
}

#[test]
fn quick_adapt_does_not_run_while_credit_permits_less_than_the_window() {
    for (credit, expected) in [(50_000, MAX - 4096.0), (200_000, 4096.0)] {
        let nscc = NsccConfig { trimming: true, credits: true, ..NsccConfig::default() };
        let mut it = with(nscc, 100);
        let in_flight = 24 * PACKET;
        it.on_ack(&AckSample { in_flight, ..ack(1000, 1, 20_000, false) });
        it.on_credit(at(1000), credit, in_flight);
        // Less than an eighth of 225,000 bytes arrived.
        it.on_trimmed(at(1022), TrimmedAt::Fabric);
        is_near(it.window, expected);
    }
}
