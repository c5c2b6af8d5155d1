//! Tests of loss on one path, on all paths, and in both directions.

use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};

use weft_units::{Duration, Seed};

use super::pair::{Fate, Pair};
use weft_wire::Packet;

use crate::{DropReason, TransportConfig, congestion, path};

const LIMIT: Duration = Duration::from_secs(20);

#[test]
fn heavy_random_loss_in_both_directions_loses_nothing() {
    for &policy in path::Kind::ALL {
        for &congestion in congestion::Kind::ALL {
            for base in [TransportConfig::stellar(), TransportConfig::bifrost()] {
                let config = TransportConfig { policy, congestion, paths: 8, ..base };
                let (mut pair, ids) = Pair::joined(&config);
                let mut rng = Seed(11).rng();
                pair.rule =
                    Box::new(move |_| if rng.chance(1, 5) { Fate::Drop } else { Fate::Pass });
                for token in 0..10 {
                    pair.submit(0, ids[0], token, 30_000);
                }
                pair.run_until(LIMIT, |pair| pair.acked_tokens(0).len() == 10);
                assert_eq!(pair.bytes_placed(1), 300_000, "{policy} {congestion}");
            }
        }
    }
}

#[test]
fn one_lossy_path_of_128_leaves_the_rest_their_speed() {
    let finish = |loss: bool| {
        let (mut pair, ids) = Pair::joined(&TransportConfig::stellar());
        let mut rng = Seed(3).rng();
        pair.rule = Box::new(move |on_link| {
            let drop = loss && on_link.path.0 == 5 && rng.chance(1, 20);
            if drop { Fate::Drop } else { Fate::Pass }
        });
        let began = pair.now;
        pair.submit(0, ids[0], 1, 50_000_000);
        pair.run_until(LIMIT, |pair| pair.acked_tokens(0) == [1]);
        pair.now.since(began)
    };
    let (clean, lossy) = (finish(false), finish(true));
    assert!(lossy.as_nanos() < clean.as_nanos() * 105 / 100, "{lossy} against {clean}");
}

#[test]
fn when_every_path_dies_and_comes_back_everything_arrives() {
    let (mut pair, ids) = Pair::joined(&TransportConfig::stellar());
    let (dies, heals) =
        (pair.now + Duration::from_micros(50), pair.now + Duration::from_millis(900));
    pair.rule = Box::new(move |on_link| {
        let dead = on_link.now >= dies && on_link.now < heals;
        if dead { Fate::Drop } else { Fate::Pass }
    });
    pair.submit(0, ids[0], 1, 20_000_000);
    pair.run_until(LIMIT, |pair| pair.acked_tokens(0) == [1]);
    assert_eq!(pair.bytes_placed(1), 20_000_000);
    assert!(pair.now >= heals);
    // Recovery is prompt once the network is back.
    assert!(pair.now.since(heals) < Duration::from_millis(20), "{}", pair.now.since(heals));
}

#[test]
fn a_dead_path_costs_a_few_round_trips_not_a_timeout() {
    let config = TransportConfig { paths: 4, ..TransportConfig::stellar() };
    let (mut pair, ids) = Pair::joined(&config);
    let dies = pair.now + Duration::from_micros(100);
    pair.rule =
        Box::new(
            move |on_link| {
                if on_link.path.0 == 1 && on_link.now >= dies { Fate::Drop } else { Fate::Pass }
            },
        );
    pair.submit(0, ids[0], 1, 50_000_000);
    pair.run_until(LIMIT, |pair| pair.ends[0].stats().paths_down > 0);
    let took = pair.now.since(dies);
    assert!(took < Duration::from_micros(250), "down after {took}");
    pair.run_until(LIMIT, |pair| pair.acked_tokens(0) == [1]);
}

/// A message each 10 ms: without probes each of three messages would have to lose a packet on the dead path, and be late.
#[test]
fn one_late_message_has_a_dead_path_probed_and_found() {
    let config = TransportConfig {
        paths: 4,
        policy: path::Kind::RoundRobin,
        spray_unit: 4,
        ..TransportConfig::bifrost()
    };
    let (mut pair, ids) = Pair::joined(&config);
    let dies = pair.now + Duration::from_millis(35);
    pair.rule = Box::new(move |on_link| {
        let dead = on_link.from == 0 && on_link.path.0 == 1 && on_link.now >= dies;
        if dead { Fate::Drop } else { Fate::Pass }
    });
    let late = (0..20).filter(|&token| {
        pair.submit(0, ids[0], token, 25_000);
        let began = pair.now;
        pair.run_until(LIMIT, |pair| pair.acked_tokens(0).len() as u64 == token + 1);
        let took = pair.now.since(began);
        pair.run_for(Duration::from_millis(10));
        took > Duration::from_micros(400)
    });
    assert_eq!(late.count(), 1);
    assert_eq!(pair.ends[0].stats().paths_down, 1);
}

#[test]
fn lost_acks_and_a_wide_window_with_a_hole_cause_few_spurious_retransmissions() {
    // One packet in 50 is lost on one path, every fourth ACK on any; the packets in flight are several times those that
    // one ACK describes.
    let config = TransportConfig {
        paths: 8,
        policy: path::Kind::RoundRobin,
        congestion: congestion::Kind::FixedWindow,
        spray_unit: 16,
        send_window: 4096,
        reorder_window: 4096,
        ack_every: 16,
        base_rtt: Duration::from_micros(500),
        ..TransportConfig::bifrost()
    };
    let (mut pair, ids) = Pair::joined(&config);
    pair.one_way = Duration::from_micros(200);
    let mut rng = Seed(5).rng();
    pair.rule = Box::new(move |on_link| {
        let data = matches!(on_link.packet, Packet::Data(..));
        let drop = if data { on_link.path.0 == 3 && rng.chance(1, 50) } else { rng.chance(1, 4) };
        if drop { Fate::Drop } else { Fate::Pass }
    });
    (0..20).for_each(|token| pair.submit(0, ids[0], token, 1_000_000));
    pair.run_until(LIMIT, |pair| pair.acked_tokens(0).len() == 20);
    let stats = pair.ends[0].stats();
    let retransmissions = stats.retransmissions();
    let spurious = pair.ends[1].stats().dropped_for(DropReason::Duplicate);
    assert!(retransmissions > 20, "{retransmissions} retransmissions: nothing was lost");
    // The remaining duplicates are probes: one packet in 256 after a timeout.
    assert!(
        spurious * 2 <= retransmissions,
        "{spurious} of {retransmissions} retransmissions had arrived"
    );
}

#[test]
fn a_packet_lost_twice_takes_a_path_that_is_known_to_work() {
    // Seven of eight paths fail at once, in the middle of a transfer: a retransmission on a random path is lost seven
    // times in eight, and the timeout doubles each time.
    let config = TransportConfig {
        paths: 8,
        policy: path::Kind::Oblivious,
        path_down_after: 100,
        ..TransportConfig::bifrost()
    };
    for seed in 0..20 {
        let (mut pair, ids) = Pair::joined(&config);
        let alive = u16::try_from(seed % 8).unwrap();
        pair.submit(0, ids[0], 1, 400_000);
        pair.run_for(Duration::from_micros(50));
        pair.submit(0, ids[0], 2, 400_000);
        pair.rule = Box::new(move |on_link| {
            let dead = on_link.from == 0 && on_link.path.0 != alive;
            if dead { Fate::Drop } else { Fate::Pass }
        });
        let began = pair.now;
        pair.run_until(LIMIT, |pair| pair.acked_tokens(0).len() == 2);
        let took = pair.now.since(began);
        assert!(took < Duration::from_millis(30), "alive {alive}: {took}");
    }
}

#[test]
fn a_silence_of_the_peer_leaves_no_window_shut() {
    let (mut pair, ids) = Pair::joined(&TransportConfig::bifrost());
    pair.submit(0, ids[0], 1, 8_000_000);
    pair.run_for(Duration::from_micros(100));
    assert_eq!(pair.acked_tokens(0), [0; 0], "the transfer is under way");
    let answers_at = pair.now + Duration::from_millis(60);
    pair.rule = Box::new(move |on_link| {
        let silent = on_link.from == 1 && on_link.now < answers_at;
        if silent { Fate::Drop } else { Fate::Pass }
    });
    pair.run_until(LIMIT, |pair| pair.acked_tokens(0) == [1]);
    let late = pair.now.since(answers_at);
    assert!(late < Duration::from_millis(70), "done {late} after the peer answered again");
    let spurious = pair.ends[1].stats().dropped_for(DropReason::Duplicate);
    assert!(spurious < 40, "{spurious} packets were retransmitted");
}

#[test]
fn a_packet_that_was_only_late_takes_no_path_down() {
    let config = TransportConfig { paths: 1, path_down_after: 1, ..TransportConfig::bifrost() };
    let (mut pair, ids) = Pair::joined(&config);
    for token in 0..5 {
        pair.submit(0, ids[0], token, 100);
        pair.run_for(Duration::from_millis(1));
    }
    // The delay is longer than the timeout, so that a probe is sent; the probe is as late.
    pair.rule = Box::new(|on_link| match on_link.packet {
        Packet::Data(header, _) if !header.special => Fate::Delay(Duration::from_millis(10)),
        _ => Fate::Pass,
    });
    pair.submit(0, ids[0], 5, 100);
    pair.run_until(LIMIT, |pair| pair.acked_tokens(0).len() == 6);
    assert!(pair.ends[0].stats().retransmissions() > 0, "no probe was sent");
    assert_eq!(pair.ends[0].stats().paths_down, 0);
}

#[test]
fn dead_ways_back_cost_round_trips_not_timeouts() {
    let finish = |dead: u16| {
        let spray =
            TransportConfig { spray_unit: 44, send_window: 2048, ..TransportConfig::bifrost() };
        let config = TransportConfig { reorder_window: 2048, ack_every: 44, ..spray };
        let (mut pair, ids) = Pair::joined(&config);
        pair.one_way = Duration::from_micros(100);
        pair.rule = Box::new(move |on_link| {
            let lost = on_link.from == 1 && on_link.path.0 < dead;
            if lost { Fate::Drop } else { Fate::Pass }
        });
        let began = pair.now;
        pair.submit(0, ids[0], 1, 50_000_000);
        pair.run_until(LIMIT, |pair| pair.acked_tokens(0) == [1]);
        pair.now.since(began).as_nanos()
    };
    // Without tail loss probes the transfer takes 3.6 and 7.9 times as long.
    let (clean, two, four) = (finish(0), finish(2), finish(4));
    assert!(two < clean * 2, "{two} ns with two of eight reverse paths dead, {clean} with none");
    assert!(four < clean * 4, "{four} ns with four of eight reverse paths dead, {clean} with none");
}

#[test]
fn acks_avoid_reverse_paths_that_their_own_end_found_to_be_down() {
    let (mut pair, ids) = Pair::joined(&TransportConfig { paths: 4, ..TransportConfig::bifrost() });
    let acks = Rc::new(Cell::new([0_u32; 4]));
    let seen = Rc::clone(&acks);
    pair.rule = Box::new(move |on_link| {
        if on_link.from == 1 && matches!(on_link.packet, Packet::Ack(..)) {
            let mut counts = seen.get();
            counts[usize::from(on_link.path.0)] += 1;
            seen.set(counts);
        }
        if on_link.from == 1 && on_link.path.0 == 2 { Fate::Drop } else { Fate::Pass }
    });
    (0..2).for_each(|end| pair.submit(end, ids[end], 1, 2_000_000));
    pair.run_until(LIMIT, |pair| pair.ends[1].stats().paths_down == 1);
    assert!(acks.get()[2] > 0, "nothing was known of the path");
    acks.set([0; 4]);
    pair.submit(0, ids[0], 2, 2_000_000);
    pair.run_until(LIMIT, |pair| pair.acked_tokens(0).len() == 2);
    let [first, second, dead, fourth] = acks.get();
    assert_eq!(dead, 0);
    assert!(first.min(second).min(fourth) > 3, "the others take turns: {:?}", acks.get());
}

#[test]
fn a_duplicate_is_acknowledged_on_two_paths() {
    let (mut pair, ids) = Pair::joined(&TransportConfig { paths: 4, ..TransportConfig::bifrost() });
    let answers = Rc::new(RefCell::new(Vec::new()));
    let seen = Rc::clone(&answers);
    pair.rule = Box::new(move |on_link| {
        if !matches!(on_link.packet, Packet::Ack(..)) {
            return Fate::Pass;
        }
        seen.borrow_mut().push(on_link.path);
        if seen.borrow().len() == 1 { Fate::Drop } else { Fate::Pass }
    });
    pair.submit(0, ids[0], 1, 100);
    pair.run_until(LIMIT, |pair| pair.acked_tokens(0) == [1]);
    pair.run_for(Duration::from_millis(1));
    let answers = answers.take();
    let [.., first, second] = answers[..] else { panic!("{answers:?}") };
    assert_ne!(first, second);
    assert_eq!(answers.len(), 3, "one that is lost, two for the duplicate: {answers:?}");
}

#[test]
fn a_lost_tail_costs_round_trips_not_a_timeout() {
    let config = TransportConfig { paths: 4, ..TransportConfig::bifrost() };
    let (mut pair, ids) = Pair::joined(&config);
    pair.submit(0, ids[0], 1, 100_000);
    pair.run_until(LIMIT, |pair| pair.acked_tokens(0) == [1]);
    let began = pair.now;
    pair.rule = Box::new(move |on_link| {
        let last = matches!(on_link.packet, Packet::Data(header, _) if !header.retransmitted);
        if on_link.from == 0 && last { Fate::Drop } else { Fate::Pass }
    });
    pair.submit(0, ids[0], 2, 1000);
    pair.run_until(LIMIT, |pair| pair.acked_tokens(0) == [1, 2]);
    let took = pair.now.since(began);
    assert!(took < config.retransmission.rto_min / 2, "{took}");
    assert_eq!(pair.ends[0].stats().tail_loss_probes, 1);
}

#[test]
fn a_path_that_flaps_is_left_alone_and_comes_back_when_it_has_settled() {
    // Half of the paths fail and recover both ways every 100 ms, 15 times; a message leaves every 100 us.
    let (mut pair, ids) = Pair::joined(&TransportConfig::bifrost());
    pair.one_way = Duration::from_micros(200);
    let began = pair.now;
    let flapping = Duration::from_secs(3);
    pair.rule = Box::new(move |on_link| {
        let since = on_link.now.since(began);
        let dead = since < flapping && (since.as_nanos() / 100_000_000).is_multiple_of(2);
        if dead && on_link.path.0 < 4 { Fate::Drop } else { Fate::Pass }
    });
    let (mut longest, mut total, mut delivered_at) = (Duration::ZERO, 0, pair.now);
    for token in 0..35_000 {
        pair.submit(0, ids[0], token, 1_000);
        pair.run_for(Duration::from_micros(100));
        let delivered = pair.delivered(1).len();
        pair.events[1].clear();
        total += delivered;
        if delivered > 0 {
            longest = longest.max(pair.now.since(delivered_at));
            delivered_at = pair.now;
        }
    }
    assert!(total > 34_900, "{total} messages");
    assert!(longest < Duration::from_millis(20), "nothing was delivered for {longest}");
    let stats = pair.ends[0].stats();
    assert!((4..=12).contains(&stats.paths_down), "{} times down", stats.paths_down);
    assert_eq!(stats.paths_up, stats.paths_down, "all are back 500 ms after the last change");
}

#[test]
fn a_path_that_died_once_is_back_with_its_first_answer() {
    let (mut pair, ids) = Pair::joined(&TransportConfig::bifrost());
    let heals = pair.now + Duration::from_millis(100);
    pair.rule = Box::new(move |on_link| {
        let dead = on_link.path.0 == 1 && on_link.now < heals;
        if dead { Fate::Drop } else { Fate::Pass }
    });
    for token in 0..3_000 {
        pair.submit(0, ids[0], token, 1_000);
        pair.run_for(Duration::from_micros(100));
        if pair.ends[0].stats().paths_up > 0 {
            break;
        }
    }
    // Probes of a dead path are 10, 20, 40 and 80 ms apart.
    let took = pair.now.since(heals);
    assert!(took < Duration::from_millis(82), "up {took} after it worked again");
    assert_eq!(pair.ends[0].stats().paths_up, 1);
}

#[test]
fn an_idle_path_whose_probes_are_answered_late_stays_up() {
    // A queue grows on the paths that are not used: the answers take 45 ms, and a probe leaves every 10 ms.
    let (mut pair, ids) = Pair::joined(&TransportConfig::bifrost());
    pair.one_way = Duration::from_micros(200);
    let grows = pair.now + Duration::from_millis(50);
    pair.rule = Box::new(move |on_link| match on_link.packet {
        Packet::Data(header, _) if header.special && on_link.now >= grows => {
            Fate::Delay(Duration::from_millis(45))
        }
        _ => Fate::Pass,
    });
    for token in 0..5_000 {
        pair.submit(0, ids[0], token, 1_000);
        pair.run_for(Duration::from_micros(100));
    }
    let stats = pair.ends[0].stats();
    assert!(stats.probes_sent > 20, "{} probes: no path was idle", stats.probes_sent);
    assert_eq!(stats.paths_down, 0);
}

#[test]
fn a_path_that_flapped_comes_back_where_a_round_trip_is_longer_than_a_probe_interval() {
    let config = TransportConfig {
        probe_interval: Duration::from_micros(100),
        policy: path::Kind::RoundRobin,
        spray_unit: 1,
        ..TransportConfig::bifrost()
    };
    let (mut pair, ids) = Pair::joined(&config);
    pair.one_way = Duration::from_micros(300);
    let began = pair.now;
    let flapping = Duration::from_millis(120);
    pair.rule = Box::new(move |on_link| {
        let since = on_link.now.since(began);
        let dead = since < flapping && (since.as_nanos() / 20_000_000).is_multiple_of(2);
        if dead && on_link.path.0 < 4 { Fate::Drop } else { Fate::Pass }
    });
    for token in 0..2_000 {
        pair.submit(0, ids[0], token, 1_000);
        pair.run_for(Duration::from_micros(100));
    }
    let stats = pair.ends[0].stats();
    assert!(stats.paths_down > 4, "no path flapped: {}", stats.paths_down);
    assert_eq!(stats.paths_up, stats.paths_down);
}

#[test]
fn a_silence_in_which_acks_were_lost_is_no_round_trip() {
    let (mut pair, ids) = Pair::joined(&TransportConfig::bifrost());
    pair.submit(0, ids[0], 0, 1_000);
    pair.run_until(LIMIT, |pair| pair.acked_tokens(0) == [0]);
    let silent_until = pair.now + Duration::from_millis(300);
    let mut lost_again = false;
    pair.rule = Box::new(move |on_link| match on_link.packet {
        Packet::Ack(ack) if ack.special => Fate::Pass,
        Packet::Ack(_) if on_link.now < silent_until => Fate::Drop,
        // The first answer after the silence takes a path that is dead.
        Packet::Ack(_) if !core::mem::replace(&mut lost_again, true) => Fate::Drop,
        _ => Fate::Pass,
    });
    pair.submit(0, ids[0], 1, 1_000);
    pair.run_until(LIMIT, |pair| pair.acked_tokens(0) == [0, 1]);
    let mut first = true;
    pair.rule = Box::new(move |on_link| match on_link.packet {
        Packet::Data(..) if core::mem::take(&mut first) => Fate::Drop,
        _ => Fate::Pass,
    });
    let began = pair.now;
    pair.submit(0, ids[0], 2, 1_000);
    pair.run_until(LIMIT, |pair| pair.acked_tokens(0) == [0, 1, 2]);
    // A tail loss probe leaves after an eighth of the shortest timeout. If the silence counted as a round trip, the
    // packet would wait for the longest timeout, 64 ms.
    let took = pair.now.since(began);
    assert!(took < Duration::from_millis(1), "{took}");
}
