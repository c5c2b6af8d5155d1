//! Tests of IRN, go-back-N and timeouts alone: the packets they retransmit, and that these suffice.

use alloc::boxed::Box;

use weft_units::{Duration, Seed};
use weft_wire::Packet;

use super::pair::{Fate, OnLink, Pair};
use crate::recovery::Kind;
use crate::{DropReason, RecoveryConfig, Retransmission, Stats, TransportConfig, congestion, path};

const LIMIT: Duration = Duration::from_secs(20);
const PACKETS: u32 = 200;

/// Returns the ns-3 models' RoCE configuration: 1000-byte packets, an ACK each, fixed timeouts.
fn roce(kind: Kind, out_of_order: u16) -> TransportConfig {
    let ecmp = TransportConfig::ecmp();
    TransportConfig {
        mtu: 1000,
        ack_every: 1,
        congestion: congestion::Kind::FixedWindow,
        retransmission: Retransmission {
            rto_min: Duration::from_micros(320),
            ..ecmp.retransmission
        },
        recovery: RecoveryConfig { kind, out_of_order, ..RecoveryConfig::default() },
        ..ecmp
    }
}

/// Sends [`PACKETS`] packets under `rule`; returns the duration and the counters of both ends.
fn transfer(
    config: &TransportConfig,
    rule: impl FnMut(&OnLink<'_>) -> Fate + 'static,
) -> (Duration, [Stats; 2]) {
    let (mut pair, ids) = Pair::joined(config);
    pair.rule = Box::new(rule);
    let began = pair.now;
    pair.submit(0, ids[0], 1, PACKETS * 1000);
    pair.run_until(LIMIT, |pair| pair.acked_tokens(0) == [1]);
    assert_eq!(pair.bytes_placed(1), u64::from(PACKETS) * 1000);
    (pair.now.since(began), [0, 1].map(|end| pair.ends[end].stats().clone()))
}

/// Returns a function that numbers the first transmissions of data packets, from zero.
fn first_transmissions() -> impl FnMut(&OnLink<'_>) -> Option<u32> {
    let mut count = 0;
    move |on_link| match on_link.packet {
        Packet::Data(header, Some(_)) if !header.retransmitted => {
            count += 1;
            Some(count - 1)
        }
        _ => None,
    }
}

fn losing(lost: &'static [u32]) -> impl FnMut(&OnLink<'_>) -> Fate {
    let mut number = first_transmissions();
    move |on_link| match number(on_link) {
        Some(number) if lost.contains(&number) => Fate::Drop,
        _ => Fate::Pass,
    }
}

#[test]
fn nothing_is_retransmitted_where_nothing_is_lost() {
    for kind in Kind::ALL {
        let (_, [sender, receiver]) = transfer(&roce(*kind, 0), |_| Fate::Pass);
        assert_eq!((sender.retransmissions(), receiver.out_of_order), (0, 0), "{kind}");
    }
}

#[test]
fn irn_retransmits_lost_packets_and_no_others() {
    let (took, [sender, receiver]) = transfer(&roce(Kind::Irn, 0), losing(&[20, 21, 90]));
    assert_eq!((sender.fast_retransmits, sender.timeout_retransmits), (3, 0));
    assert_eq!(receiver.dropped_for(DropReason::Duplicate), 0);
    assert!(took < Duration::from_micros(200), "{took}: no timeout was needed");
}

/// Packets arrive 100 ns apart, so that most are still in flight when the first NACK arrives.
#[test]
fn irn_that_rewinds_retransmits_the_packets_in_flight_once_for_a_loss() {
    let config = roce(Kind::Irn, 0);
    let recovery = RecoveryConfig { rewind: true, ..config.recovery };
    let rewinding = TransportConfig { recovery, ..config };
    let spaced = || {
        let mut number = first_transmissions();
        move |on_link: &OnLink<'_>| match number(on_link) {
            Some(20) => Fate::Drop,
            Some(number) => Fate::Delay(Duration::from_nanos(100) * u64::from(number)),
            None => Fate::Pass,
        }
    };
    let (_, [sender, receiver]) = transfer(&rewinding, spaced());
    let spurious = receiver.dropped_for(DropReason::Duplicate);
    assert!(spurious > 0, "packets that arrived after the lost one are retransmitted");
    assert_eq!((sender.retransmissions() > spurious, sender.timeout_retransmits), (true, 0));
    // Every packet between the loss and its retransmission is early and is answered with a NACK, except one that
    // arrives together with the retransmission.
    let without_nack = receiver.out_of_order - sender.nacks_received;
    assert!(sender.nacks_received > 50 && without_nack <= 1, "{receiver:?}");

    let (_, [sender, receiver]) = transfer(&roce(Kind::Irn, 0), spaced());
    assert_eq!((sender.retransmissions(), receiver.dropped_for(DropReason::Duplicate)), (1, 0));
}

/// Packets arrive 100 ns apart, packet 20 long after those that follow it, and the last so late that all
/// retransmissions, which are marked, arrive before it.
#[test]
fn where_senders_rewind_marks_on_duplicates_are_reported() {
    const LAST: u32 = PACKETS - 1;
    for kind in [Kind::Irn, Kind::GoBackN] {
        for rewind in [false, true] {
            let config = TransportConfig { congestion: congestion::Kind::Dcqcn, ..roce(kind, 0) };
            let recovery = RecoveryConfig { rewind, ..config.recovery };
            let mut number = first_transmissions();
            let rule = move |on_link: &OnLink<'_>| match (number(on_link), on_link.packet) {
                (Some(20), _) => Fate::Delay(Duration::from_micros(8)),
                (Some(LAST), _) => Fate::Delay(Duration::from_micros(90)),
                (Some(number), _) => Fate::Delay(Duration::from_nanos(100) * u64::from(number)),
                (None, Packet::Data(..)) => Fate::Mark(Duration::from_micros(9)),
                _ => Fate::Pass,
            };
            let (_, [sender, receiver]) = transfer(&TransportConfig { recovery, ..config }, rule);
            let duplicates = receiver.dropped_for(DropReason::Duplicate);
            let (reported, placed) = (sender.ecn_marks_reported, receiver.ecn_marks);
            assert!(reported <= placed + duplicates, "{kind}: {reported}");
            assert_eq!(
                reported > placed,
                rewind,
                "{kind}: {reported} of {placed} and {duplicates}"
            );
        }
    }
}

/// Packet 20 and its retransmissions are lost for 100 us, during which others arrive and are refused.
#[test]
fn where_senders_rewind_no_nack_takes_a_path_down() {
    let config = roce(Kind::GoBackN, 0);
    for (rewind, down) in [(false, 1), (true, 0)] {
        let recovery = RecoveryConfig { rewind, ..config.recovery };
        let (mut number, mut lost) = (first_transmissions(), None);
        let rule = move |on_link: &OnLink<'_>| {
            let Packet::Data(header, _) = on_link.packet else { return Fate::Pass };
            if number(on_link) == Some(20) {
                lost = Some((header.psn, on_link.now + Duration::from_micros(100)));
            }
            match lost {
                Some((psn, until)) if psn == header.psn && on_link.now < until => Fate::Drop,
                _ => Fate::Pass,
            }
        };
        let (_, [sender, _]) = transfer(&TransportConfig { recovery, ..config.clone() }, rule);
        assert_eq!((sender.paths_down, sender.timeout_retransmits), (down, 0), "{rewind}");
    }
}

#[test]
fn go_back_n_resumes_at_the_lost_packet() {
    let (took, [sender, receiver]) = transfer(&roce(Kind::GoBackN, 0), losing(&[20]));
    let refused = receiver.dropped_for(DropReason::OutOfOrder);
    assert!(refused > 0, "packets after the lost one are refused");
    assert_eq!(sender.fast_retransmits, refused + 1, "they and the lost one are retransmitted");
    assert_eq!((sender.timeout_retransmits, receiver.out_of_order), (0, 0));
    assert!(took < Duration::from_micros(200), "{took}: no timeout was needed");
}

#[test]
fn by_timeout_alone_each_lost_packet_is_retransmitted_when_its_timeout_passes() {
    for paths in [1, 128] {
        let base = roce(Kind::Timeout, 0);
        let policy = if paths == 1 { path::Kind::Single } else { path::Kind::Oblivious };
        let config = TransportConfig { paths, policy, ..base };
        let (took, [sender, receiver]) = transfer(&config, losing(&[20, 21, 90]));
        assert_eq!((sender.fast_retransmits, sender.timeout_retransmits), (0, 3), "{paths}");
        assert_eq!((sender.tail_loss_probes, receiver.dropped_for(DropReason::Duplicate)), (0, 0));
        let rto = Duration::from_micros(320);
        assert!(took > rto && took < rto + Duration::from_micros(60), "{paths}: {took}");
    }
}

#[test]
fn a_lost_tail_meets_the_low_timeout_under_irn_and_the_high_one_under_the_others() {
    for (kind, least) in [(Kind::Irn, 100), (Kind::GoBackN, 320), (Kind::Timeout, 320)] {
        let (took, [sender, _]) = transfer(&roce(kind, 0), losing(&[PACKETS - 1]));
        assert_eq!((sender.timeout_retransmits, sender.tail_loss_probes), (1, 0), "{kind}");
        let least = Duration::from_micros(least);
        assert!(took > least && took < least + Duration::from_micros(60), "{kind}: {took}");
    }
}

#[test]
fn a_late_packet_is_requested_only_beyond_the_bound() {
    // Packet 50 is overtaken by those that leave within two microseconds after it.
    let late = |by: u64| {
        let mut number = first_transmissions();
        move |on_link: &OnLink<'_>| match number(on_link) {
            Some(50) => Fate::Delay(Duration::from_micros(by)),
            _ => Fate::Pass,
        }
    };
    let retransmissions = |bound, by| {
        let (_, [sender, receiver]) = transfer(&roce(Kind::Irn, bound), late(by));
        assert!(receiver.out_of_order > 0, "nothing overtook it");
        sender.retransmissions()
    };
    assert_eq!(retransmissions(0, 2), 1, "IRN considers it lost");
    assert_eq!(retransmissions(500, 2), 0, "within the bound it is not requested");
    assert_eq!(retransmissions(20, 400), 1, "beyond the bound it is requested");
}

#[test]
fn heavy_random_loss_and_reordering_lose_nothing() {
    for (kind, rewind) in [
        (Kind::Irn, false),
        (Kind::Irn, true),
        (Kind::GoBackN, false),
        (Kind::GoBackN, true),
        (Kind::Timeout, false),
    ] {
        for bound in [0, 16] {
            for seed in 0..20 {
                let mut rng = Seed(seed).child("recovery", 0).rng();
                let config = roce(kind, bound);
                let recovery = RecoveryConfig { rewind, ..config.recovery };
                let config = TransportConfig { recovery, ..config };
                let (_, [sender, _]) = transfer(&config, move |_| match rng.below(20) {
                    0 => Fate::Drop,
                    1 => Fate::Delay(Duration::from_micros(rng.below(30))),
                    2 => Fate::Twice,
                    _ => Fate::Pass,
                });
                assert!(sender.retransmissions() > 0);
            }
        }
    }
}
