//! Random operations keep the guarantees: every message is delivered once, in order, and reported as acknowledged; a
//! failure prints its seed.

use alloc::boxed::Box;
use alloc::vec::Vec;

use weft_units::{Duration, Seed};

use super::pair::{Fate, Pair};
use crate::{TransportConfig, congestion, path};

/// A random operation.
enum Op {
    Submit { end: usize, length: u32 },
    Run(Duration),
    Faults { drop: u64, twice: u64, delay: u64 },
    KillPath(u16),
    Heal,
}

fn next_op(rng: &mut weft_units::Rng) -> Op {
    match rng.below(10) {
        0..=4 => Op::Submit { end: rng.index(2), length: rng.next_u32() % 60_000 },
        5..=6 => Op::Run(Duration::from_nanos(rng.below(300_000))),
        7 => Op::Faults { drop: rng.below(300), twice: rng.below(100), delay: rng.below(500) },
        8 => Op::KillPath(u16::try_from(rng.below(8)).unwrap()),
        _ => Op::Heal,
    }
}

fn config(rng: &mut weft_units::Rng) -> TransportConfig {
    let base =
        if rng.chance(1, 2) { TransportConfig::stellar() } else { TransportConfig::bifrost() };
    TransportConfig {
        policy: path::Kind::ALL[rng.index(path::Kind::ALL.len())],
        congestion: congestion::Kind::ALL[rng.index(congestion::Kind::ALL.len())],
        paths: [1, 2, 8, 128][rng.index(4)],
        spray_unit: [1, 4, 50][rng.index(3)],
        ack_every: [1, 4, 64][rng.index(3)],
        send_window: [1, 16, 256, 1024][rng.index(4)],
        reorder_window: [1, 16, 256, 1024][rng.index(4)],
        peer_timeout: Duration::from_secs(3600),
        idle_timeout: Duration::from_secs(3600),
        ..base
    }
}

/// Returns a rule that drops, duplicates and delays packets, per mille, and drops those on a dead path.
fn faults(seed: Seed, drop: u64, twice: u64, delay: u64, dead: Option<u16>) -> super::pair::Rule {
    let mut rng = seed.rng();
    Box::new(move |on_link| {
        if dead == Some(on_link.path.0) {
            return Fate::Drop;
        }
        match rng.below(1000) {
            draw if draw < drop => Fate::Drop,
            draw if draw < drop + twice => Fate::Twice,
            draw if draw < drop + twice + delay => {
                Fate::Delay(Duration::from_nanos(rng.below(50_000)))
            }
            _ => Fate::Pass,
        }
    })
}

fn one_run(seed: u64) {
    let mut rng = Seed(seed).child("operations", 0).rng();
    let (mut pair, ids) = Pair::joined(&config(&mut rng));
    let mut submitted = [Vec::new(), Vec::new()];
    for step in 0..60 {
        match next_op(&mut rng) {
            Op::Submit { end, length } => {
                let token = submitted[end].len() as u64;
                pair.submit(end, ids[end], token, length);
                submitted[end].push(length);
            }
            Op::Run(span) => pair.run_for(span),
            Op::Faults { drop, twice, delay } => {
                pair.rule = faults(Seed(seed).child("faults", step), drop, twice, delay, None);
            }
            Op::KillPath(path) => {
                pair.rule = faults(Seed(seed).child("faults", step), 10, 0, 0, Some(path));
            }
            Op::Heal => pair.rule = Box::new(|_| Fate::Pass),
        }
    }
    pair.rule = Box::new(|_| Fate::Pass);
    let total = |pair: &Pair| pair.acked_tokens(0).len() + pair.acked_tokens(1).len();
    let expected = submitted[0].len() + submitted[1].len();
    pair.run_until(Duration::from_secs(60), |pair| total(pair) == expected);
    for (end, submitted) in submitted.iter().enumerate() {
        let lengths: Vec<_> = (0..).zip(submitted.iter().copied()).collect();
        assert_eq!(pair.delivered(1 - end), lengths, "seed {seed}");
        let bytes = submitted.iter().map(|&length| u64::from(length)).sum::<u64>();
        assert_eq!(pair.bytes_placed(1 - end), bytes, "seed {seed}");
    }
}

#[test]
fn random_operations_lose_nothing() {
    (0..300).for_each(one_run);
}
