//! Tests of the memory that inactive connections hold.

use alloc::boxed::Box;
use alloc::vec::Vec;

use weft_units::Duration;

use super::pair::{Fate, Pair, address};
use crate::{ConnectionId, Endpoint, TransportConfig};

fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// Returns a pair with many connections between its ends.
fn joined(count: usize) -> (Pair, Vec<[ConnectionId; 2]>) {
    let config =
        TransportConfig { idle_timeout: Duration::from_secs(3600), ..TransportConfig::stellar() };
    let mut pair = Pair::new(&config);
    let ids = (0..count).map(|_| {
        let [a, b] = &mut pair.ends;
        let ids = Endpoint::join(pair.now, (a, address(0)), (b, address(1))).unwrap();
        [ids.0, ids.1]
    });
    let ids = ids.collect();
    (pair, ids)
}

#[test]
fn a_connection_at_rest_holds_at_most_512_bytes_after_it_was_used() {
    let (mut pair, ids) = joined(500);
    for wave in 0..20 {
        for id in &ids {
            pair.submit(0, id[0], wave, 10_000);
        }
        pair.run_for(millis(200));
    }
    assert_eq!(pair.acked_tokens(0).len(), 20 * 500);
    for (end, endpoint) in pair.ends.iter().enumerate() {
        assert!(ids.iter().all(|id| endpoint.is_idle(id[end])));
        let (connection, schedule) = endpoint.bytes_at_rest();
        assert!(connection + schedule / ids.len() <= 512, "{connection} + {schedule} / 500");
    }
}

#[test]
fn the_deadlines_of_two_busy_connections_take_at_most_256_bytes() {
    let (mut pair, ids) = joined(2);
    let mut most = 0;
    for wave in 0..200 {
        ids.iter().for_each(|id| pair.submit(0, id[0], wave, 10_000));
        pair.run_for(Duration::from_micros(50));
        most = pair.ends.iter().map(|end| end.bytes_at_rest().1).fold(most, usize::max);
    }
    assert!((1..=256).contains(&most), "{most} bytes");
}

#[test]
fn a_wave_of_messages_holds_room_for_those_of_one_moment() {
    let (mut pair, ids) = joined(200);
    for id in &ids {
        pair.submit(0, id[0], 1, 10_000);
        pair.run_for(millis(1));
        for (end, endpoint) in pair.ends.iter().enumerate() {
            let holding = ids.iter().filter(|id| endpoint.holds_packets(id[end])).count();
            assert!((1..=11).contains(&holding), "{holding} at end {end}");
        }
    }
}

#[test]
fn path_measurements_outlive_a_short_pause_and_with_a_dead_path_a_longer_one() {
    let (mut pair, ids) = joined(2);
    pair.submit(0, ids[0][0], 1, 10_000);
    pair.run_for(millis(50));
    assert!(!pair.ends[0].holds_packets(ids[0][0]) && !pair.ends[0].is_idle(ids[0][0]));
    pair.run_for(millis(100));
    assert!(pair.ends[0].is_idle(ids[0][0]));

    pair.rule = Box::new(|on_link| if on_link.path.0 == 5 { Fate::Drop } else { Fate::Pass });
    pair.submit(0, ids[1][0], 2, 20_000_000);
    pair.run_for(millis(300));
    assert_eq!((pair.acked_tokens(0), pair.ends[0].stats().paths_down), ([1, 2].to_vec(), 1));
    assert!(!pair.ends[0].is_idle(ids[1][0]), "it forgot the dead path");
    pair.run_for(millis(400));
    assert!(pair.ends[0].is_idle(ids[1][0]), "probes of a dead path kept it from rest");
}
