//! The return of paths that were dead, at the settings of an agent: paths that flap, and the rate after a repair.

use alloc::boxed::Box;
use alloc::vec::Vec;
use std::println;

use weft_units::{BitRate, ByteCount, Duration, Instant, Seed};

use super::failover::{Conditions, PAUSED, STEADY, Stream, millis};
use super::pair::Fate;
use crate::Event;
use crate::path::PathId;

/// Returns the longest time by which a message is late as one of four paths dies and returns every 100 ms.
fn lateness_beside_flaps(conditions: Conditions, seed: u64) -> Duration {
    let [with, without] = [true, false].map(|flaps| {
        let mut stream = Stream::open(conditions, seed);
        let mut rng = Seed(seed).child("flaps", 0).rng();
        let path = PathId(u16::try_from(rng.below(4)).unwrap());
        let start = stream.pair.now + millis(20) + Duration::from_micros(rng.below(4_000));
        stream.pair.rule = Box::new(move |on_link| {
            let dead = (on_link.now.since(start) / 100).as_nanos() / 1_000_000 % 2 == 0;
            let lost = flaps && on_link.now >= start && dead && on_link.path == path;
            if lost { Fate::Drop } else { Fate::Pass }
        });
        stream.run_for(millis(1_050));
        assert_eq!(flaps, stream.stats().paths_down > 0, "seed {seed}");
        stream.latencies(start).collect::<Vec<_>>()
    });
    let late = with.iter().zip(&without).map(|(with, without)| with.1.saturating_sub(without.1));
    late.max().unwrap()
}

#[test]
fn a_path_that_flaps_every_100_ms_makes_no_message_10_ms_late() {
    for (name, conditions) in [("steady", STEADY), ("pauses", PAUSED)] {
        let late = (0..8).map(|seed| lateness_beside_flaps(conditions, seed)).max().unwrap();
        println!("{name}: {late}");
        assert!(late < millis(10), "{name}: {late}");
    }
}

/// The rate of a bulk transfer over four links of 1 Gb/s each, of which one dies and is repaired, as shares of the rate
/// before its death.
struct Rates {
    /// From 50 ms after the death to the repair.
    dead: f64,
    /// From 100 to 150 ms after the repair.
    repaired: f64,
}

fn rates_beside_death(seed: u64) -> Rates {
    let mut stream = Stream::open(Conditions { spray_unit: 44, ..STEADY }, seed);
    let mut rng = Seed(seed).child("repair", 0).rng();
    let path = PathId(u16::try_from(rng.below(4)).unwrap());
    let start = stream.pair.now;
    let died_at = start + millis(100) + Duration::from_micros(rng.below(4_000));
    let repaired_at = died_at + millis(150) + Duration::from_micros(rng.below(100_000));
    let rate = BitRate::gbps(1).expect("not zero");
    let mut busy_until = [[start; 4]; 2];
    stream.pair.rule = Box::new(move |on_link| {
        if on_link.path == path && on_link.now >= died_at && on_link.now < repaired_at {
            return Fate::Drop;
        }
        let busy_until = &mut busy_until[on_link.from][usize::from(on_link.path.0)];
        let bytes = ByteCount(u64::from(on_link.len) + 110);
        *busy_until = (*busy_until).max(on_link.now) + rate.serialization_delay(bytes);
        Fate::Delay(busy_until.since(on_link.now))
    });
    let end = repaired_at + millis(150);
    let (mut outstanding, mut submitted, mut received) = (0, 0, Vec::new());
    while stream.pair.now < end {
        for token in submitted..submitted + 8 - outstanding {
            stream.pair.submit(0, stream.id, token, 1 << 20);
        }
        submitted += 8 - outstanding;
        stream.advance(stream.pair.now + millis(1));
        let events = core::mem::take(&mut stream.pair.events[0]);
        let acked = events.iter().filter(|event| matches!(event, Event::Acked { .. })).count();
        outstanding = 8 - acked as u64;
        received.push((stream.pair.now, stream.pair.ends[1].stats().data_received));
    }
    let mean = |from: Instant, until: Instant| {
        let of = || received.iter().filter(|(at, _)| (from..=until).contains(at));
        let (first, last) = (of().next().unwrap(), of().next_back().unwrap());
        (last.1 - first.1) as f64 / last.0.since(first.0).as_micros_f64()
    };
    let before = mean(died_at - millis(50), died_at);
    Rates {
        dead: mean(died_at + millis(50), repaired_at) / before,
        repaired: mean(repaired_at + millis(100), end) / before,
    }
}

/// Queues of the three other links grow when the fourth dies, and their packets overtake each other by more than before.
#[test]
fn a_transfer_over_four_links_keeps_three_of_them_and_has_all_100_ms_after_a_repair() {
    for seed in 0..8 {
        let Rates { dead, repaired } = rates_beside_death(seed);
        println!("seed {seed}: {dead:.2} without the link, {repaired:.2} after its repair");
        assert!(dead > 0.70 && repaired > 0.95, "seed {seed}: {dead:.2}, {repaired:.2}");
    }
}
