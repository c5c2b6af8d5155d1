//! Tests of congestion controls that set a rate, on an in-memory link.

use alloc::boxed::Box;

use weft_units::{BitRate, Duration};
use weft_wire::Packet;

use super::pair::{Fate, OnLink, Pair};
use crate::{TransportConfig, congestion};

/// Returns a configuration with 8 Gb/s, where a byte takes a nanosecond, and a round trip of 10 us.
fn config(congestion: congestion::Kind) -> TransportConfig {
    TransportConfig {
        mtu: 1000,
        congestion,
        line_rate: BitRate::gbps(8).expect("not zero"),
        base_rtt: Duration::from_micros(10),
        ack_every: 1,
        ..TransportConfig::ecmp()
    }
}

/// Returns the duration of a transfer of a megabyte.
fn transfer(config: &TransportConfig, rule: impl FnMut(&OnLink<'_>) -> Fate + 'static) -> Duration {
    let (mut pair, ids) = Pair::joined(config);
    pair.rule = Box::new(rule);
    let begin = pair.now;
    pair.submit(0, ids[0], 1, 1_000_000);
    pair.run_until(Duration::from_millis(200), |pair| pair.acked_tokens(0) == [1]);
    pair.now.since(begin)
}

#[test]
fn packets_leave_at_the_rate_and_their_headers_count() {
    let took = transfer(&config(congestion::Kind::Timely), |_| Fate::Pass);
    // A thousand packets of 1000 bytes and 78 of headers; the transmission of the last is not included.
    assert_eq!(took, Duration::from_nanos(999 * 1078) + Duration::from_micros(10));
}

#[test]
fn marks_slow_dcqcn_down_and_it_recovers() {
    let dcqcn = config(congestion::Kind::Dcqcn);
    let unmarked = transfer(&dcqcn, |_| Fate::Pass);
    let is_data = |packet: &OnLink<'_>| matches!(packet.packet, Packet::Data(..));
    let mut first = None;
    let marked_once = transfer(&dcqcn, move |packet| {
        let begin = *first.get_or_insert(packet.now);
        let early = packet.now.since(begin) < Duration::from_micros(1);
        if is_data(packet) && early { Fate::Mark(Duration::ZERO) } else { Fate::Pass }
    });
    let always =
        transfer(
            &dcqcn,
            move |packet| {
                if is_data(packet) { Fate::Mark(Duration::ZERO) } else { Fate::Pass }
            },
        );
    assert!(marked_once > unmarked, "{marked_once} after {unmarked}");
    // The rate falls to 100 Mb/s, of which 8 bits in 8.6 are payload.
    let least = Duration::from_micros(86 * 1000);
    assert!(always > least - least / 10 && always < least + least / 10, "{always}");
}
