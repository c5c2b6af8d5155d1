//! Tests of owners that do not place packets.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;

use weft_units::Duration;

use super::pair::{OwnerAction, Pair};
use crate::{PlacedError, TransportConfig};

const LIMIT: Duration = Duration::from_secs(10);

#[test]
fn declined_packets_are_retransmitted() {
    let (mut pair, ids) = Pair::joined(&TransportConfig::bifrost());
    let mut declined = BTreeSet::new();
    pair.owner = Box::new(move |placement| {
        // Each is declined once: the first packet, the last, and every seventh between them.
        let is_end = placement.offset == 0 || placement.offset > 1_000_000 - 1440;
        let no_room = (is_end || placement.psn.is_multiple_of(7)) && declined.insert(placement.psn);
        if no_room { OwnerAction::Decline } else { OwnerAction::Place }
    });
    pair.submit(0, ids[0], 1, 1_000_000);
    pair.run_until(LIMIT, |pair| pair.acked_tokens(0) == [1]);
    assert_eq!((pair.bytes_placed(1), pair.delivered(1)), (1_000_000, [(0, 1_000_000)].to_vec()));
    let declined = pair.ends[1].stats().declined;
    assert!(declined >= 1_000_000 / 1440 / 7, "{declined}");
    let sender = pair.ends[0].stats();
    assert_eq!(sender.retransmissions() - sender.spurious_retransmits, declined);
}

#[test]
fn shed_packets_are_not_retransmitted_and_slow_the_sender() {
    let run = |action: OwnerAction| {
        let (mut pair, ids) = Pair::joined(&TransportConfig::bifrost());
        pair.owner = Box::new(move |_| action);
        let began = pair.now;
        pair.submit(0, ids[0], 1, 4_000_000);
        pair.run_until(LIMIT, |pair| pair.acked_tokens(0) == [1]);
        assert_eq!(pair.delivered(1), [(0, 4_000_000)]);
        assert_eq!(pair.ends[0].stats().retransmissions(), 0);
        (pair.now.since(began), pair.ends[1].stats().policed)
    };
    let (free, none) = run(OwnerAction::Place);
    let (limited, all) = run(OwnerAction::Police);
    assert_eq!((none, all), (0, 4_000_000_u64.div_ceil(1440)));
    assert!(limited > free * 3, "{limited} against {free}");
}

#[test]
fn only_waiting_packets_can_be_declined_or_policed() {
    let (mut pair, ids) = Pair::joined(&TransportConfig::bifrost());
    let (now, wrong) = (pair.now, PlacedError::NotWaiting { psn: 5 });
    assert_eq!(pair.ends[0].decline(ids[0], 5), Err(wrong));
    assert_eq!(pair.ends[0].police(now, ids[0], 5), Err(wrong));
    let nobody = crate::ConnectionId(ids[0].0 ^ 1);
    assert_eq!(pair.ends[0].decline(nobody, 5), Err(PlacedError::UnknownConnection));
}
