//! Tests of connections to one peer that share path measurements.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};

use weft_units::{Duration, Instant, Seed};
use weft_wire::Packet;

use super::pair::{Fate, Pair, address};
use crate::path::PathId;
use crate::{ConnectionId, Endpoint, Event, TransportConfig};

const LIMIT: Duration = Duration::from_secs(5);
const PAIRS: usize = 64;
/// The faulty path.
const BAD: PathId = PathId(3);

const fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// Returns the configuration of the overlay between two hosts with four paths.
fn overlay() -> TransportConfig {
    TransportConfig { paths: 4, keepalive_interval: Duration::ZERO, ..TransportConfig::bifrost() }
}

/// Returns two endpoints with many connections that were used and have since released their paths.
fn at_rest(sharing: bool) -> (Pair, Vec<ConnectionId>) {
    let mut pair = Pair::new(&overlay());
    if sharing {
        pair.ends = pair.ends.map(|end| end.with_shared_ports(1));
    }
    let ids = (0..=PAIRS).map(|_| {
        let [a, b] = &mut pair.ends;
        Endpoint::join(pair.now, (a, address(0)), (b, address(1))).unwrap().0
    });
    let ids: Vec<_> = ids.collect();
    for &id in &ids {
        pair.submit(0, id, 0, 1_000);
    }
    pair.run_for(millis(1_000));
    assert!(ids.iter().all(|&id| pair.ends[0].is_idle(id)));
    (pair, ids)
}

/// Drops all packets on path [`BAD`] until `heals`, in both directions. Returns the count of probes on it.
fn dead_path(pair: &mut Pair, heals: Instant) -> Rc<Cell<u32>> {
    let probes = Rc::new(Cell::new(0));
    let seen = Rc::clone(&probes);
    pair.rule = Box::new(move |on_link| {
        let dead = on_link.path == BAD && on_link.now < heals;
        let probe = matches!(on_link.packet, Packet::Data(header, _) if header.special);
        seen.set(seen.get() + u32::from(dead && probe && on_link.from == 0));
        if dead { Fate::Drop } else { Fate::Pass }
    });
    probes
}

/// Drops a tenth of the first end's packets on path [`BAD`].
fn lossy_path(pair: &mut Pair) {
    let mut rng = Seed(8).rng();
    pair.rule = Box::new(move |on_link| {
        let lost = on_link.path == BAD && on_link.from == 0 && rng.chance(1, 10);
        if lost { Fate::Drop } else { Fate::Pass }
    });
}

/// Delays packets on path [`BAD`] by 300 us in each direction.
fn slow_path(pair: &mut Pair) {
    pair.rule = Box::new(|on_link| {
        let slow = on_link.path == BAD;
        if slow { Fate::Delay(Duration::from_micros(300)) } else { Fate::Pass }
    });
}

/// Returns the delivery time of the first message of each connection, one connection a millisecond, and the number of
/// them that took path [`BAD`]. With `busy` another connection uses the paths for a while before.
fn first_messages(pair: &mut Pair, ids: &[ConnectionId], busy: bool) -> (Vec<Duration>, u32) {
    let (&busy_one, idle) = ids.split_first().unwrap();
    if busy {
        pair.submit(0, busy_one, 1, 20_000_000);
        pair.run_for(millis(100));
    }
    let on_bad_path = Rc::new(Cell::new(0));
    let (count, mut rule) =
        (Rc::clone(&on_bad_path), core::mem::replace(&mut pair.rule, Box::new(|_| Fate::Pass)));
    pair.rule = Box::new(move |on_link| {
        let is_first =
            matches!(on_link.packet, Packet::Data(header, Some(_)) if !header.retransmitted);
        count.set(count.get() + u32::from(is_first && on_link.from == 0 && on_link.path == BAD));
        rule(on_link)
    });
    let took = idle.iter().map(|&id| {
        let (began, count) = (pair.now, pair.delivered(1).len());
        pair.submit(0, id, 2, 1_000);
        pair.run_until(LIMIT, |pair| pair.delivered(1).len() > count);
        let took = pair.now.since(began);
        pair.run_for(millis(1));
        took
    });
    let took = took.collect();
    (took, on_bad_path.get())
}

/// Returns the number of first messages on the bad path, the number of those that took more than twice the one-way
/// delay, and the longest time.
fn measure(sharing: bool, busy: bool, inject: impl Fn(&mut Pair)) -> (u32, usize, Duration) {
    let (mut pair, ids) = at_rest(sharing);
    inject(&mut pair);
    let (took, on_bad_path) = first_messages(&mut pair, &ids, busy);
    let late = took.iter().filter(|&&took| took > pair.one_way * 2).count();
    (on_bad_path, late, took.into_iter().max().unwrap())
}

/// `cargo test -p weft-transport --lib sixty_four -- --nocapture` prints the table of `docs/design/loss.md`.
#[test]
fn the_first_message_of_sixty_four_idle_connections_avoids_a_path_that_another_found_bad() {
    type Fault = fn(&mut Pair);
    let dead: Fault = |pair| drop(dead_path(pair, Instant::FAR_FUTURE));
    // Each case is a fault, and the maximum numbers of messages on the path with and without a busy connection.
    let cases: [(&str, Fault, [u32; 2]); 3] =
        [("dead", dead, [0, 3]), ("lossy", lossy_path, [0, 24]), ("slow", slow_path, [0, 8])];
    for (name, inject, limits) in cases {
        for (busy, limit) in [true, false].into_iter().zip(limits) {
            let [alone, together] = [false, true].map(|sharing| measure(sharing, busy, inject));
            std::println!(
                "{name}, {}: of {PAIRS} take it, are late, at most: alone {alone:?}; together {together:?}",
                if busy { "another is busy" } else { "nobody is busy" },
            );
            assert!(alone.0 >= 8, "{name}: {} of {PAIRS} took it: it tests nothing", alone.0);
            assert!(together.0 <= limit, "{name}: {together:?}");
        }
    }
}

#[test]
fn one_connection_probes_a_dead_path_for_all_and_all_return_to_it() {
    let (mut pair, ids) = at_rest(true);
    let heals = pair.now + millis(200);
    let probes = dead_path(&mut pair, heals);
    for &id in &ids {
        pair.submit(0, id, 1, 1_000_000);
    }
    pair.run_for(millis(190));
    assert_eq!(pair.acked_tokens(0).iter().filter(|&&token| token == 1).count(), ids.len());
    let (downs, probes) = (pair.ends[0].stats().paths_down, probes.get());
    // Two connections may suspect it and probe it twice each, before probes that leave after 10, 30, 70 and 150 ms.
    assert!(downs == 1 && (5..=8).contains(&probes), "{downs} probed it, {probes} times");
    pair.run_until(LIMIT, |pair| pair.ends[0].stats().paths_up == 1);
    let users = Rc::new(RefCell::new(BTreeSet::new()));
    let seen = Rc::clone(&users);
    pair.rule = Box::new(move |on_link| {
        if let Packet::Data(header, Some(_)) = on_link.packet
            && on_link.path == BAD
        {
            seen.borrow_mut().insert(header.destination_cid);
        }
        Fate::Pass
    });
    for &id in &ids {
        pair.submit(0, id, 2, 400_000);
    }
    pair.run_for(millis(100));
    assert_eq!(users.borrow().len(), ids.len(), "some keep off the healed path");
}

#[test]
fn another_connection_takes_the_probing_over_from_one_that_ends() {
    let (mut pair, ids) = at_rest(true);
    let probes = dead_path(&mut pair, Instant::FAR_FUTURE);
    pair.submit(0, ids[0], 1, 20_000_000);
    pair.run_for(millis(100));
    assert_eq!(pair.ends[0].stats().paths_down, 1);
    let now = pair.now;
    pair.ends[0].close(now, ids[0]);
    pair.run_for(millis(100));
    let before = probes.get();
    pair.run_for(millis(1_000));
    assert_eq!(probes.get(), before, "nobody is there to probe it");
    pair.submit(0, ids[1], 2, 1_000);
    pair.run_for(millis(5));
    assert!(probes.get() > before);
    let downs = |pair: &Pair| {
        pair.events[0].iter().filter(|event| matches!(event, Event::PathDown { .. })).count()
    };
    assert_eq!(downs(&pair), 2);
    pair.rule = Box::new(|_| Fate::Pass);
    pair.run_until(LIMIT, |pair| pair.ends[0].stats().paths_up == 1);
}

/// Path 3 of a connection with one source port is another route than path 3 of the others.
#[test]
fn a_connection_with_a_source_port_of_its_own_takes_no_part_in_what_the_others_find() {
    let (mut pair, ids) = at_rest(true);
    let [pinned, other] = [ids[1], ids[2]];
    let port = core::num::NonZeroU16::new(50_000);
    pair.ends[0].set_source_port(pinned, port);
    dead_path(&mut pair, Instant::FAR_FUTURE);
    pair.submit(0, ids[0], 1, 20_000_000);
    pair.run_for(millis(100));
    let is_up = |pair: &Pair, id: ConnectionId| {
        pair.ends[0].connection_stats(id).unwrap().paths.map(|paths| paths.is_up(BAD))
    };
    for id in [pinned, other] {
        pair.submit(0, id, 1, 1_000);
        pair.run_for(millis(1));
    }
    assert_eq!((is_up(&pair, pinned), is_up(&pair, other)), (Some(true), Some(false)));
    // Without its port it follows the others.
    pair.ends[0].set_source_port(pinned, None);
    pair.submit(0, pinned, 1, 1_000);
    pair.run_for(millis(1));
    assert_eq!(is_up(&pair, pinned), Some(false));
}
