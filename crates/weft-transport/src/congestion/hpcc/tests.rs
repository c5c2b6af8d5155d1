//! The numbers follow from the paper's equations for links of 100 Gb/s and a round trip of 8 us: a bandwidth-delay product
//! of 100,000 bytes.

use super::*;

const PRODUCT: u32 = 100_000;

fn rig() -> Controller {
    Controller::new(&TransportConfig {
        mtu: 1000,
        line_rate: BitRate::gbps(100).expect("not zero"),
        base_rtt: Duration::from_micros(8),
        ..TransportConfig::ecmp()
    })
}

/// Returns the telemetry of a link at a time, in nanoseconds.
fn link(number: u32, at: u64, queue: u64, sent: u64) -> HopTelemetry {
    let rate = BitRate::gbps(100).expect("not zero");
    HopTelemetry { link: number, queue, sent, at: Instant::from_nanos(at), rate }
}

/// Processes an ACK of `acked` bytes with telemetry.
fn ack(it: &mut Controller, hops: &[HopTelemetry], acked: u32, in_flight: u32) -> u32 {
    it.on_telemetry(hops);
    it.on_ack(&AckSample { acked_bytes: acked, in_flight, ..AckSample::of_packets(1, acked) });
    it.window()
}

#[test]
fn the_defaults_are_the_papers() {
    let HpccConfig { eta_percent, max_stage, additive_increase } = HpccConfig::default();
    assert_eq!((eta_percent, max_stage, additive_increase), (95, 5, 80));
}

#[test]
fn it_starts_with_a_bandwidth_delay_product_at_line_rate() {
    assert_eq!(rig().window(), PRODUCT);
    assert_eq!(rig().rate(), BitRate::gbps(100));
}

#[test]
fn a_full_link_with_a_queue_of_a_product_halves_the_window_towards_eta() {
    let mut it = rig();
    ack(&mut it, &[link(1, 0, 100_000, 0)], 1000, 99_000);
    // 8 us later: 100,000 bytes sent, and 100,000 wait. U is 1 + 1, and the window 100,000 / (2 / 0.95) + 80.
    let window = ack(&mut it, &[link(1, 8_000, 100_000, 100_000)], 1000, 99_000);
    assert_eq!(window, 47_580);
    // The rate is a window in a round trip: 47,580 bytes in 8 us.
    assert_eq!(it.rate().map(|rate| rate.as_bps() / 1_000_000), Some(47_580));
}

#[test]
fn the_queue_is_the_shorter_of_two_and_the_fullest_link_decides() {
    let mut it = rig();
    let first = [link(1, 0, 0, 0), link(2, 0, 50_000, 0), link(3, 0, 0, 0)];
    ack(&mut it, &first, 1000, 99_000);
    let second =
        [link(1, 8_000, 90_000, 20_000), link(2, 8_000, 25_000, 95_000), link(3, 8_000, 0, 80_000)];
    // Link 2: 25,000 of 100,000 bytes wait and 95 % are sent. U is 1.2.
    assert_eq!(ack(&mut it, &second, 1000, 99_000), 79_246);
}

#[test]
fn a_sample_weighs_as_much_as_the_part_of_a_round_trip_that_it_covers() {
    let mut it = rig();
    ack(&mut it, &[link(1, 0, 0, 0)], 1000, 99_000);
    // Half a round trip at line rate: U is half of 1, below 0.95, so the window grows by 80, and is at its bound.
    assert_eq!(ack(&mut it, &[link(1, 4_000, 0, 50_000)], 1000, 99_000), PRODUCT);
    assert!((it.utilisation - 0.5).abs() < 1e-9);
    ack(&mut it, &[link(1, 5_000, 0, 62_500)], 1000, 99_000);
    assert!((it.utilisation - (0.5 * 0.875 + 0.125)).abs() < 1e-9);
}

#[test]
fn acks_of_one_round_trip_do_not_reduce_the_window_twice() {
    let mut it = rig();
    ack(&mut it, &[link(1, 0, 100_000, 0)], 1000, 99_000);
    ack(&mut it, &[link(1, 8_000, 100_000, 100_000)], 1000, 46_000);
    for n in 1..=46 {
        let hops = [link(1, 8_000 + n * 80, 100_000, 100_000 + n * 1000)];
        // From the same reference: 47,580 / (2 / 0.95) + 80 = 22,680.
        assert_eq!(ack(&mut it, &hops, 1000, 46_000), 22_680, "ACK {n}");
    }
    // The next ACK is of a packet sent after the reference became 47,580: it is updated, and the one after it starts from
    // 22,680.
    ack(&mut it, &[link(1, 11_760, 100_000, 147_000)], 1000, 22_000);
    let window = ack(&mut it, &[link(1, 11_840, 100_000, 148_000)], 1000, 22_000);
    assert_eq!(window, 10_853);
}

#[test]
fn five_additive_increases_come_before_a_multiplicative_one() {
    let mut it = rig();
    it.window = 10_000.0;
    it.reference = 10_000.0;
    let mut windows = Vec::new();
    for n in 0..8 {
        // Half of the link, each time a round trip later; all that was in flight is acknowledged.
        windows.push(ack(&mut it, &[link(1, n * 8_000, 0, n * 50_000)], 10_000, 0));
    }
    // The first ACK has nothing to compare with. 10,400 / (0.5 / 0.95) + 80 is 19,840.
    assert_eq!(windows, [10_000, 10_080, 10_160, 10_240, 10_320, 10_400, 19_840, 19_920]);
}

#[test]
fn another_way_measures_nothing() {
    let mut it = rig();
    ack(&mut it, &[link(1, 0, 100_000, 0)], 1000, 99_000);
    assert_eq!(ack(&mut it, &[link(2, 8_000, 100_000, 900_000)], 1000, 99_000), PRODUCT);
    assert_eq!(ack(&mut it, &[link(2, 7_000, 100_000, 800_000)], 1000, 99_000), PRODUCT);
    assert_eq!(ack(&mut it, &[link(2, 16_000, 100_000, 1_000_000)], 1000, 99_000), 47_580);
}

#[test]
fn a_window_may_be_a_thousandth_and_a_packet_may_be_in_flight() {
    let mut it = rig();
    for n in 0..200 {
        ack(&mut it, &[link(1, n * 8_000, 9_000_000, n * 100_000)], 100_000, 0);
    }
    assert_eq!(it.window(), 1000);
    assert_eq!(it.rate(), BitRate::bps(100_000_000));
}
