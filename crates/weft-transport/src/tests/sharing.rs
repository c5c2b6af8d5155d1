//! Connections to one peer that share what they learn of its paths.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};

use weft_units::{Duration, Instant};
use weft_wire::Packet;

use super::pair::{Fate, Pair, address};
use crate::path::PathId;
use crate::{ConnectionId, Endpoint, Event, TransportConfig};

const LIMIT: Duration = Duration::from_secs(5);
const PAIRS: usize = 64;
const DEAD: PathId = PathId(3);

const fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// As the overlay between two hosts with four paths.
fn overlay() -> TransportConfig {
    TransportConfig { paths: 4, keepalive_interval: Duration::ZERO, ..TransportConfig::bifrost() }
}

/// Two endpoints with many connections that were used and have forgotten their paths since.
fn at_rest(sharing: bool) -> (Pair, Vec<ConnectionId>) {
    let mut pair = Pair::new(&overlay());
    if sharing {
        pair.ends = pair.ends.map(Endpoint::sharing_ports);
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

/// Path [`DEAD`] carries nothing from `dies` to `heals`, either way. Counts the probes that take it.
fn dead_path(pair: &mut Pair, heals: Instant) -> Rc<Cell<u32>> {
    let probes = Rc::new(Cell::new(0));
    let seen = Rc::clone(&probes);
    pair.rule = Box::new(move |on_link| {
        let dead = on_link.path == DEAD && on_link.now < heals;
        let probe = matches!(on_link.packet, Packet::Data(header, _) if header.special);
        seen.set(seen.get() + u32::from(dead && probe && on_link.from == 0));
        if dead { Fate::Drop } else { Fate::Pass }
    });
    probes
}

/// How long the first message of each connection after a path's death takes until it is delivered, one
/// connection a millisecond. With `busy` another one found the path dead before.
fn first_messages(sharing: bool, busy: bool) -> Vec<Duration> {
    let (mut pair, ids) = at_rest(sharing);
    let (&talker, idle) = ids.split_first().unwrap();
    let _ = dead_path(&mut pair, Instant::FAR_FUTURE);
    if busy {
        pair.submit(0, talker, 1, 20_000_000);
        pair.run_for(millis(100));
    }
    let took = idle.iter().map(|&id| {
        let (began, count) = (pair.now, pair.delivered(1).len());
        pair.submit(0, id, 2, 1_000);
        pair.run_until(LIMIT, |pair| pair.delivered(1).len() > count);
        let took = pair.now.since(began);
        pair.run_for(millis(1));
        took
    });
    took.collect()
}

fn late(took: &[Duration]) -> (usize, Duration) {
    let late = took.iter().filter(|&&took| took > millis(1)).count();
    (late, took.iter().copied().max().unwrap())
}

/// `cargo test -p weft-transport --lib sixty_four -- --nocapture` prints the table of `docs/design/loss.md`.
#[test]
fn the_first_message_of_sixty_four_idle_connections_avoids_a_path_that_another_found_dead() {
    for busy in [true, false] {
        let each = [false, true].map(|sharing| late(&first_messages(sharing, busy)));
        let [(alone, worst_alone), (together, worst)] = each;
        std::println!(
            "{}: each alone {alone} of {PAIRS} late, at most {worst_alone}; together {together}, at most {worst}",
            if busy { "another is busy" } else { "nobody is busy" },
        );
        assert!(alone >= PAIRS / 8, "{alone} of {PAIRS} took the dead path: it tests nothing");
        assert!(together <= if busy { 0 } else { 3 }, "{together} were late, {worst} at most");
    }
}

#[test]
fn one_connection_probes_a_dead_path_for_all_and_all_return_to_it() {
    let (mut pair, ids) = at_rest(true);
    let heals = pair.now + millis(200);
    let probes = dead_path(&mut pair, heals);
    for &id in &ids {
        pair.submit(0, id, 1, 400_000);
    }
    pair.run_for(millis(190));
    assert_eq!(pair.sent_tokens(0).iter().filter(|&&token| token == 1).count(), ids.len());
    let (downs, probes) = (pair.ends[0].stats().paths_down, probes.get());
    // At 0, 10, 30, 70 and 150 ms.
    assert!(downs == 1 && (4..=5).contains(&probes), "{downs} probed it, {probes} times");
    pair.run_until(LIMIT, |pair| pair.ends[0].stats().paths_up == 1);
    let users = Rc::new(RefCell::new(BTreeSet::new()));
    let seen = Rc::clone(&users);
    pair.rule = Box::new(move |on_link| {
        if let Packet::Data(header, Some(_)) = on_link.packet
            && on_link.path == DEAD
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
