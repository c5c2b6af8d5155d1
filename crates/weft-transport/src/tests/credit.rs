//! Senders that wait for their receiver's credit.

use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;

use weft_units::{BitRate, Duration, Instant};
use weft_wire::{AckType, Packet};

use super::pair::{Fate, OnLink, Pair, address};
use crate::{Endpoint, NsccConfig, TransportConfig, congestion};

/// Packets of 1,000 bytes and 78 of headers at 8 Gb/s: a bandwidth-delay product of 10 packets.
fn config() -> TransportConfig {
    TransportConfig {
        mtu: 1000,
        ack_every: 1,
        line_rate: BitRate::gbps(8).expect("not zero"),
        base_rtt: Duration::from_micros(10),
        congestion: congestion::Kind::Rccc,
        ..TransportConfig::ecmp()
    }
}

fn is_request(on_link: &OnLink<'_>) -> bool {
    matches!(on_link.packet, Packet::Ack(ack) if ack.ack_type == AckType::CreditRequest)
}

fn credit(on_link: &OnLink<'_>) -> Option<u32> {
    match on_link.packet {
        Packet::Ack(ack) if ack.ack_type == AckType::Credit => Some(ack.psn),
        _ => None,
    }
}

#[test]
fn a_message_within_the_speculative_credit_needs_no_other() {
    let (mut pair, [id, _]) = Pair::joined(&config());
    pair.rule = Box::new(|on_link| {
        assert!(!is_request(on_link) && credit(on_link).is_none());
        Fate::Pass
    });
    pair.submit(0, id, 1, 15_000);
    pair.run_until(Duration::from_micros(10), |pair| pair.acked_tokens(0) == [1]);
}

#[test]
fn credit_is_granted_four_packets_at_a_time_at_99_per_cent_of_the_ports_rate() {
    let (mut pair, [id, _]) = Pair::joined(&config());
    let credits = Rc::new(RefCell::new(Vec::<(Instant, u32)>::new()));
    let seen = Rc::clone(&credits);
    pair.rule = Box::new(move |on_link| {
        seen.borrow_mut().extend(credit(on_link).map(|total| (on_link.now, total)));
        Fate::Pass
    });
    pair.submit(0, id, 1, 200_000);
    pair.run_until(Duration::from_millis(1), |pair| pair.acked_tokens(0) == [1]);
    let credits = credits.borrow();
    // Four packets of 1,000 bytes are 15 units of 256, which with headers are 4,152 ns at 8 Gb/s.
    let totals: Vec<_> = credits.iter().map(|(_, total)| *total).take(3).collect();
    assert_eq!(totals, [15, 30, 45]);
    assert_eq!(credits[1].0.since(credits[0].0), Duration::from_nanos(4_152 * 100 / 99));
    let bytes = |units: u32| u64::from(units * 256 + (units * 256).div_ceil(1000) * 78);
    let mut before = 0;
    for pair in credits.windows(2) {
        let span = Duration::from_nanos(bytes(pair[0].1 - before) * 100 / 99);
        assert!(pair[0].1 - before <= 15 && pair[1].0.since(pair[0].0) >= span, "{credits:?}");
        before = pair[0].1;
    }
    let stats = pair.ends[0].stats();
    assert_eq!((stats.retransmissions(), stats.paths_down), (0, 0));
}

#[test]
fn the_last_packets_need_no_round_trip_of_their_own() {
    for config in [config(), nscc_with_credits()] {
        let (mut pair, [id, _]) = Pair::joined(&config);
        let began = pair.now;
        // 15 packets of speculative credit, and 185 packets and a half that the receiver grants.
        pair.submit(0, id, 1, 200_500);
        pair.run_until(Duration::from_millis(1), |pair| pair.acked_tokens(0) == [1]);
        let granted = Duration::from_nanos((185_500 + 186 * 78) * 100 / 99);
        let took = pair.now.since(began);
        assert!(
            took < granted + Duration::from_micros(25),
            "{took}, of which {granted} for grants"
        );
    }
}

/// Returns the same configuration with NSCC's window beside the credit.
fn nscc_with_credits() -> TransportConfig {
    let nscc = NsccConfig { trimming: true, credits: true, ..NsccConfig::default() };
    TransportConfig { congestion: congestion::Kind::Nscc, nscc, ..config() }
}

#[test]
fn a_receiver_that_no_longer_sends_grants_to_the_end() {
    let slow = TransportConfig {
        line_rate: BitRate::bps(10_000_000).expect("not zero"),
        base_rtt: Duration::from_millis(10),
        ..config()
    };
    let (mut pair, ids) = Pair::joined(&slow);
    // It sends once and releases its sending half after 100 ms, in the middle of 300 ms of grants.
    pair.submit(1, ids[1], 1, 1000);
    pair.submit(0, ids[0], 2, 375_000);
    pair.run_until(Duration::from_millis(600), |pair| pair.acked_tokens(0) == [2]);
    assert_eq!(pair.acked_tokens(1), [1]);
}

#[test]
fn connections_share_the_receivers_port_in_turns() {
    let mut pair = Pair::new(&config());
    let mut join = || {
        let [a, b] = &mut pair.ends;
        Endpoint::join(pair.now, (a, address(0)), (b, address(1))).unwrap().0
    };
    let ids = [join(), join(), join()];
    let granted = Rc::new(RefCell::new(Vec::new()));
    let seen = Rc::clone(&granted);
    pair.rule = Box::new(move |on_link| {
        if let Packet::Ack(ack) = on_link.packet
            && credit(on_link).is_some()
        {
            seen.borrow_mut().push(ack.destination_cid);
        }
        Fate::Pass
    });
    ids.into_iter().for_each(|id| pair.submit(0, id, id.0.into(), 200_000));
    pair.run_until(Duration::from_millis(2), |pair| pair.acked_tokens(0).len() == 3);
    let granted = granted.borrow();
    let turns: Vec<_> = granted.chunks(3).take(30).collect();
    assert!(turns.windows(2).all(|turn| turn[0] == turn[1]), "{granted:?}");
    let [a, b, c] = turns[0] else { panic!("{granted:?}") };
    assert!(a != b && b != c && a != c, "{granted:?}");
}

#[test]
fn lost_requests_and_credits_are_repeated() {
    let (mut pair, [id, _]) = Pair::joined(&config());
    let mut sent = [0, 0];
    pair.rule = Box::new(move |on_link| {
        let sent = match (is_request(on_link), credit(on_link)) {
            (true, _) => &mut sent[0],
            (_, Some(_)) => &mut sent[1],
            _ => return Fate::Pass,
        };
        *sent += 1;
        if *sent % 3 == 0 { Fate::Pass } else { Fate::Drop }
    });
    pair.submit(0, id, 1, 200_000);
    pair.run_until(Duration::from_millis(50), |pair| pair.acked_tokens(0) == [1]);
    assert_eq!(pair.ends[0].stats().retransmissions(), 0);
}

#[test]
fn without_credit_no_packet_leaves() {
    for config in [config(), nscc_with_credits()] {
        let (mut pair, [id, _]) = Pair::joined(&config);
        pair.rule = Box::new(|it| if credit(it).is_some() { Fate::Drop } else { Fate::Pass });
        pair.submit(0, id, 1, 200_000);
        pair.run_for(Duration::from_millis(2));
        assert_eq!(pair.ends[0].stats().data_sent, 15, "the speculative credit");
        pair.rule = Box::new(|_| Fate::Pass);
        pair.run_until(Duration::from_millis(5), |pair| pair.acked_tokens(0) == [1]);
    }
}

#[test]
fn spent_credit_is_requested_when_all_that_was_requested_has_been_granted() {
    // One packet in flight, and late ACKs: all that was requested is granted long before it is spent.
    let ack_delay = Duration::from_micros(100);
    let mut config = TransportConfig { send_window: 1, ack_every: 8, ack_delay, ..config() };
    // A request is repeated after this time.
    config.retransmission.rto_min = Duration::from_millis(20);
    config.retransmission.rto_max = Duration::from_millis(80);
    let (mut pair, [id, _]) = Pair::joined(&config);
    pair.submit(0, id, 1, 40_000);
    pair.run_until(Duration::from_millis(10), |pair| pair.acked_tokens(0) == [1]);
}
