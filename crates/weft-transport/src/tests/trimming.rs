//! Packets that switches cut to their headers.

use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;

use weft_units::{BitRate, Duration};
use weft_wire::{AckType, Packet};

use super::pair::{Fate, OnLink, Pair, Rule};
use crate::{DropReason, TransportConfig, TrimmedAt, Verdict, congestion, recovery};

const ONE_WAY: Duration = Duration::from_micros(5);

/// Returns a configuration in which only a timeout reveals a loss.
fn config() -> TransportConfig {
    let mut config = TransportConfig {
        mtu: 1000,
        base_rtt: ONE_WAY * 2,
        ack_every: 1,
        congestion: congestion::Kind::FixedWindow,
        ..TransportConfig::stellar()
    };
    config.recovery.kind = recovery::Kind::Timeout;
    config
}

/// Trims the first transmission of every `n`th packet from the first end.
fn trims_every(n: u32) -> Rule {
    Box::new(move |on_link: &OnLink<'_>| match on_link.packet {
        Packet::Data(header, _) if !header.retransmitted && header.psn % n == 0 => {
            Fate::Trim(TrimmedAt::Fabric)
        }
        _ => Fate::Pass,
    })
}

#[test]
fn a_trimmed_packet_is_sent_again_after_a_round_trip_and_not_after_a_timeout() {
    for last in [true, false] {
        let (mut pair, [id, _]) = Pair::joined_at(&config(), if last { 1 } else { 0 });
        pair.rule = trims_every(10);
        pair.submit(0, id, 1, 10_000);
        // The headers and the answer, and the packet and its ACK: two round trips.
        pair.run_until(ONE_WAY * 4, |pair| pair.acked_tokens(0) == [1]);
        let stats = pair.ends[0].stats();
        assert_eq!((stats.nacks_received, stats.fast_retransmits), (1, 1), "{last}");
        let silent = [stats.timeout_retransmits, stats.tail_loss_probes, stats.paths_lossy];
        assert_eq!(silent, [0; 3], "{last}");
        assert_eq!(pair.bytes_placed(1), 10_000);
    }
}

#[test]
fn every_packet_of_a_trimmed_window_is_answered() {
    let (mut pair, [id, _]) = Pair::joined(&config());
    pair.rule = trims_every(1);
    pair.submit(0, id, 1, 100_000);
    pair.run_until(ONE_WAY * 4, |pair| pair.acked_tokens(0) == [1]);
    let stats = pair.ends[0].stats();
    assert_eq!((stats.nacks_received, stats.fast_retransmits, stats.paths_down), (100, 100, 0));
}

/// Packets behind the trimmed one fill the window, the receiver refuses them, and its NACKs are lost: the timeout remains.
#[test]
fn go_back_n_resumes_although_the_packets_behind_a_trimmed_one_fill_the_window() {
    let mut config = TransportConfig { congestion: congestion::Kind::Nscc, ..config() };
    config.recovery.kind = recovery::Kind::GoBackN;
    config.line_rate = BitRate::gbps(8).expect("not zero");
    let (mut pair, [id, _]) = Pair::joined_at(&config, 0);
    pair.rule = Box::new(move |on_link| match on_link.packet {
        Packet::Data(header, _) if header.psn == 0 && !header.retransmitted => {
            Fate::Trim(TrimmedAt::Fabric)
        }
        Packet::Ack(ack) if ack.ack_type == AckType::Nack => Fate::Drop,
        _ => Fate::Pass,
    });
    pair.submit(0, id, 1, 100_000);
    pair.run_until(Duration::from_millis(50), |pair| pair.acked_tokens(0) == [1]);
}

#[test]
fn an_answer_about_an_earlier_transmission_retransmits_nothing() {
    let (mut pair, [id, _]) = Pair::joined(&config());
    let (mut trim, answers) = (trims_every(10), Rc::new(RefCell::new(0)));
    let seen = Rc::clone(&answers);
    pair.rule = Box::new(move |on_link| match on_link.packet {
        Packet::Ack(ack) if ack.ack_type == AckType::Trimmed => {
            *seen.borrow_mut() += 1;
            Fate::Twice
        }
        _ => trim(on_link),
    });
    pair.submit(0, id, 1, 10_000);
    pair.run_until(ONE_WAY * 4, |pair| pair.acked_tokens(0) == [1]);
    pair.run_for(Duration::from_millis(1));
    assert_eq!((*answers.borrow(), pair.ends[0].stats().fast_retransmits), (1, 1));
}

#[test]
fn headers_of_a_packet_that_arrived_are_not_answered() {
    let (mut pair, [id, _]) = Pair::joined(&config());
    let first = Rc::new(RefCell::new(None));
    let seen = Rc::clone(&first);
    pair.rule = Box::new(move |on_link| {
        if let Packet::Data(header, _) = on_link.packet {
            seen.borrow_mut().get_or_insert(*header);
        }
        Fate::Pass
    });
    pair.submit(0, id, 1, 1_000);
    pair.run_until(ONE_WAY * 2, |pair| pair.acked_tokens(0) == [1]);
    let sent = pair.sent[1];
    let header = first.borrow().expect("a packet was sent");
    pair.inject_trimmed(1, &header, TrimmedAt::LastHop);
    pair.run_for(Duration::from_millis(1));
    assert_eq!(pair.sent[1], sent);
}

#[test]
fn the_answer_names_the_last_hop_and_acknowledges_nothing() {
    let (mut pair, [id, _]) = Pair::joined(&config());
    let types = Rc::new(RefCell::new(Vec::new()));
    let seen = Rc::clone(&types);
    pair.rule = Box::new(move |on_link| match on_link.packet {
        Packet::Data(header, _) if !header.retransmitted => Fate::Trim(TrimmedAt::LastHop),
        Packet::Ack(ack) => {
            let acknowledges = !ack.special || ack.bitmap.last().is_some();
            seen.borrow_mut().push((ack.ack_type, acknowledges));
            Fate::Pass
        }
        _ => Fate::Pass,
    });
    pair.submit(0, id, 1, 1_000);
    pair.run_until(ONE_WAY * 4, |pair| pair.acked_tokens(0) == [1]);
    let expected = [(AckType::TrimmedLastHop, false), (AckType::Plain, true)];
    assert_eq!(*types.borrow(), expected);
}

#[test]
fn the_beginning_of_a_packet_with_rewritten_lengths_is_not_placed() {
    for length in [10_000, 600] {
        let (mut pair, [id, _]) = Pair::joined_at(&config(), 0);
        let first = Rc::new(RefCell::new(None));
        let seen = Rc::clone(&first);
        pair.rule = Box::new(move |on_link| match on_link.packet {
            Packet::Data(header, _) if header.psn == 0 && !header.retransmitted => {
                seen.borrow_mut().get_or_insert((*on_link.packet, on_link.len));
                Fate::Drop
            }
            _ => Fate::Pass,
        });
        pair.submit(0, id, 1, length);
        pair.run_for(ONE_WAY);
        let (packet, len) = first.take().expect("the first packet was sent");
        // The switch cut it to 128 bytes on the wire, and wrote new lengths of IP and UDP.
        for len in [0, 50, len - 1] {
            assert_eq!(pair.inject(1, &packet, len), Verdict::Dropped(DropReason::BadExtent));
        }
        pair.run_until(Duration::from_millis(10), |pair| pair.acked_tokens(0) == [1]);
        assert_eq!(pair.delivered(1), [(0, length)]);
        assert_eq!(pair.bytes_placed(1), u64::from(length));
    }
}
