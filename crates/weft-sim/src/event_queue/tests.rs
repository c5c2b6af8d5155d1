//! The order of events, with sides and without.

use std::collections::{BTreeMap, BTreeSet};

use weft_units::{Rng, Seed};

use super::*;

/// An event with a number of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Numbered {
    node: u32,
    number: u64,
}

impl AtNode for Numbered {
    fn node(self) -> u32 {
        self.node
    }
    fn with_node(self, node: u32) -> Self {
        Self { node, ..self }
    }
    fn precedence(self, _: SimTime) -> (u64, u64) {
        (self.number / 1_000, 0)
    }
}

/// Number of nodes. They form a ring and alternate between the sides.
const NODES: u32 = 8;

/// Returns the events that an event causes, by its number alone: up to two at its own node, soon or late, and one at
/// another, never before the lookahead. No two have the same time.
fn consequences(at: SimTime, event: Numbered, lookahead: u64) -> Vec<(SimTime, Numbered)> {
    let mut rng = Seed(event.number).rng();
    let mut follow = |node: u32, min_delay: u64, child: u64| {
        let bits = [0, 3, 10, 14, 20, 26, 32, 40][rng.index(8)];
        let number = event.number * 4 + child;
        let picos = at.as_picos() + min_delay + rng.below(1 << bits);
        let at = SimTime::from_picos(picos / 4096 * 4096 + 4096 + number % 4096);
        (at, Numbered { node, number })
    };
    let mut all = vec![follow(event.node, 0, 1)];
    if event.number.is_multiple_of(3) {
        all.push(follow(event.node, 0, 2));
    }
    if event.number.is_multiple_of(2) {
        all.push(follow((event.node + 1) % NODES, lookahead, 3));
    }
    all.retain(|(_, event)| event.number < 40_000);
    all
}

/// Returns the events of each node if the earliest of all is always served next.
fn in_order_of_time(lookahead: u64) -> BTreeMap<u32, Vec<(SimTime, Numbered)>> {
    let start = (0..NODES).map(|node| Numbered { node, number: u64::from(node) + 1 });
    let mut future: BTreeSet<_> = start.map(|event| (SimTime::EPOCH, event)).collect();
    let mut seen: BTreeMap<u32, Vec<_>> = BTreeMap::new();
    while let Some((at, event)) = future.pop_first() {
        seen.entry(event.node).or_default().push((at, event));
        future.extend(consequences(at, event, lookahead));
    }
    seen
}

#[test]
fn each_node_has_the_same_events_as_if_all_were_handled_in_order_of_time() {
    let mut rng = Seed(1).rng();
    for (lookahead, sides) in [2, 5_000, 600_000, 1_003_000, 50_000_000]
        .into_iter()
        .flat_map(|lookahead| [(lookahead, 1), (lookahead, 2)])
    {
        let side_of = (0..8).map(|node| node % sides).collect();
        let mut queue = EventQueue::new(SimSpan::from_picos(lookahead), side_of);
        for node in 0..NODES {
            let first = Numbered { node, number: u64::from(node) + 1 };
            queue.schedule(SimTime::EPOCH, first);
        }
        let mut seen: BTreeMap<u32, Vec<_>> = BTreeMap::new();
        while !queue.is_empty() {
            // Random limits cut windows short.
            let bits = rng.below(40);
            let limit = queue.until().as_picos() + rng.below(1 << bits);
            while queue.begin(SimTime::from_picos(limit)) {
                while let Some(node) = queue.next_node() {
                    while let Some((at, event)) = queue.pop() {
                        assert!(at < queue.until() && event.node == node);
                        seen.entry(node).or_default().push((at, event));
                        let next = consequences(at, event, lookahead);
                        next.into_iter().for_each(|(at, event)| queue.schedule(at, event));
                    }
                }
            }
            assert_eq!(queue.until().as_picos(), limit.max(queue.until().as_picos()));
        }
        let expected = in_order_of_time(lookahead);
        assert_eq!(seen, expected, "lookahead of {lookahead} ps, {sides} sides");
    }
}

/// Returns the numbers of the events due before `limit`, in the order of service.
fn drain(queue: &mut EventQueue<Numbered>, limit: u64) -> Vec<u64> {
    let mut numbers = Vec::new();
    while queue.begin(SimTime::from_picos(limit)) {
        while queue.next_node().is_some() {
            numbers.extend(std::iter::from_fn(|| queue.pop()).map(|(_, event)| event.number));
        }
    }
    numbers
}

#[test]
fn events_of_one_instant_come_in_the_order_they_were_scheduled_in() {
    let (mut queue, far) = (EventQueue::new(SimSpan::from_picos(1_000), vec![0]), 1 << 45);
    let event = |number| Numbered { node: 0, number };
    (0..50).for_each(|number| queue.schedule(SimTime::from_picos(far), event(number)));
    assert!(drain(&mut queue, far).is_empty());
    (50..100).for_each(|number| queue.schedule(SimTime::from_picos(far), event(number)));
    queue.schedule(SimTime::from_picos(far + 1), event(100));
    assert_eq!(drain(&mut queue, u64::MAX), (0..=100).collect::<Vec<_>>());
}

#[test]
fn events_of_one_instant_come_in_order_of_precedence_and_then_of_scheduling() {
    let mut queue = EventQueue::new(SimSpan::from_picos(1_000), vec![0]);
    let at = |picos| SimTime::from_picos(picos);
    for (picos, number) in [(10, 5_000), (20, 4_000), (10, 2_001), (10, 2_000), (9, 9_000)] {
        queue.schedule(at(picos), Numbered { node: 0, number });
    }
    assert_eq!(drain(&mut queue, u64::MAX), [9_000, 2_001, 2_000, 5_000, 4_000]);
}

#[test]
fn nodes_are_served_in_order_of_number() {
    for sides in [1, 2] {
        let side_of = (0..200).map(|node| node % sides).collect();
        let mut queue = EventQueue::new(SimSpan::from_picos(1_000), side_of);
        for node in [190_u32, 64, 0, 63, 128, 2] {
            let at = SimTime::from_picos(u64::from(node) * 5);
            queue.schedule(at, Numbered { node, number: node.into() });
        }
        let mut served = Vec::new();
        while queue.begin(SimTime::from_picos(1_000)) {
            while let Some(node) = queue.next_node() {
                served.push(node);
                while queue.pop().is_some() {}
            }
        }
        let (even, odd) = ([0, 2, 64, 128, 190], [63]);
        let expected =
            if sides == 1 { vec![0, 2, 63, 64, 128, 190] } else { [&even[..], &odd].concat() };
        assert_eq!(served, expected, "{sides} sides");
    }
}

#[test]
fn a_window_that_is_cut_short_keeps_the_order_of_later_events() {
    let mut queue = EventQueue::new(SimSpan::from_picos(1_000_000), vec![0]);
    let event = |number| Numbered { node: 0, number };
    [700, 200, 900, 700].iter().zip(0..).for_each(|(&at, number)| {
        queue.schedule(SimTime::from_picos(at), event(number));
    });
    assert_eq!(drain(&mut queue, 700), [1]);
    assert!(drain(&mut queue, 700).is_empty());
    queue.schedule(SimTime::from_picos(700), event(4));
    assert_eq!(drain(&mut queue, u64::MAX), [0, 3, 4, 2]);
}

#[test]
fn an_event_at_the_end_of_time_is_served() {
    let mut queue = EventQueue::new(SimSpan::MAX, vec![0, 1]);
    queue.schedule(SimTime::from_picos(u64::MAX - 1), Numbered { node: 1, number: 7 });
    assert_eq!(drain(&mut queue, u64::MAX), [7]);
}

#[test]
fn chunks_are_reused() {
    let mut queue = EventQueue::new(SimSpan::from_picos(1_000), vec![0, 1]);
    let mut rng: Rng = Seed(1).rng();
    for round in 0..1_000 {
        for _ in 0..20 {
            let at = queue.until() + SimSpan::from_picos(rng.below(50_000));
            queue.schedule(at, Numbered { node: round % 2, number: 0 });
        }
        let limit = queue.until().as_picos() + 50_000;
        assert_eq!(drain(&mut queue, limit).len(), 20);
    }
    assert!(queue.chunks.len() < 50, "{}", queue.chunks.len());
}
