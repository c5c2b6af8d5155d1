//! Random concurrent calls, on a link that delays and refuses.

use alloc::vec::Vec;

use super::memory::Memory;
use super::values::{call, check, encode, values};
use crate::{Algorithm, Call, Channel, Config};

fn config(rng: &mut weft_units::Rng, ranks: usize) -> Config {
    let only = [Some(Channel::Network), Some(Channel::Inner), None][rng.index(3)];
    let mut config = Config::of(ranks, only);
    let mut order: Vec<usize> = (0..ranks).collect();
    rng.shuffle(&mut order);
    // The last server may have fewer ranks.
    config.servers = order.chunks(1 + rng.index(3)).map(<[usize]>::to_vec).collect();
    if rng.chance(1, 2) {
        config.blocks = (0..ranks).map(|_| u32::try_from(rng.index(3)).expect("small")).collect();
    }
    let local = (1..=ranks).rev().find(|local| ranks.is_multiple_of(*local) && *local < ranks);
    let hierarchical = Algorithm::Hierarchical { local: local.unwrap_or(ranks) };
    config.algorithm = [Algorithm::Ring, Algorithm::Tree, hierarchical][rng.index(3)];
    config.max_body = 8 + rng.index(600);
    config.max_in_flight = 1 + u32::try_from(rng.index(8)).expect("small");
    config.window = config.max_in_flight + u32::try_from(rng.index(8)).expect("small");
    config
}

#[test]
fn random_calls_have_their_results_at_every_rank_and_free_all_messages() {
    for seed in 0..150 {
        let mut rng = weft_units::Seed(seed).child("operations", 0).rng();
        let ranks = 1 + rng.index(7);
        let config = config(&mut rng, ranks);
        let calls: Vec<(Call, Vec<Vec<i64>>)> = (0..1 + rng.index(12))
            .map(|_| {
                let call = call(ranks, 3_000, &mut rng);
                (call, values(&call, ranks, &mut rng))
            })
            .collect();
        let mut memory = Memory::new(&config, seed);
        let mut made = alloc::vec![0; ranks];
        while made.iter().any(|&made| made < calls.len()) {
            let rank = rng.index(ranks);
            if let Some((call, values)) = calls.get(made[rank]) {
                let number = memory.submit(rank, *call, encode(call.data_type, &values[rank]));
                assert_eq!(number, made[rank] as u64);
                made[rank] += 1;
            }
            (0..rng.index(40)).for_each(|_| {
                memory.step();
            });
        }
        memory.run_until_idle();
        for rank in 0..ranks {
            assert_eq!(memory.groups[rank].error(), None, "seed {seed}");
            let events: Vec<_> = memory.events[rank].drain(..).collect();
            assert_eq!(events.len(), calls.len(), "seed {seed}: rank {rank} of {ranks}");
            for (number, (event, (call, values))) in events.iter().zip(&calls).enumerate() {
                assert_eq!((event.call, &event.result), (number as u64, &Ok(())));
                check(call, values, rank, &event.buffer);
            }
            assert!(memory.groups[rank].is_idle());
        }
        assert_eq!(memory.wire.borrow().held, 0, "seed {seed}: every message is given back");
    }
}

#[test]
fn no_rank_runs_further_ahead_than_the_window() {
    let mut config = Config::of(2, Some(Channel::Network));
    (config.max_body, config.window, config.max_in_flight) = (64, 8, 4);
    let mut memory = Memory::new(&config, 1);
    memory.wire.borrow_mut().lane_capacity = 1_000;
    // Rank 1 has not made the call; rank 0 sends a window of blocks and then waits.
    let broadcast = Call {
        collective: crate::Collective::Broadcast,
        data_type: crate::DataType::U8,
        op: crate::Op::Sum,
        root: 0,
        elements: 100_000,
    };
    memory.submit(0, broadcast, alloc::vec![7; 100_000]);
    memory.run_until_idle();
    assert_eq!(memory.wire.borrow().held, 8);
    memory.submit(1, broadcast, alloc::vec![0; 100_000]);
    memory.run_until_idle();
    assert!(memory.events[1].pop_front().expect("done").buffer.iter().all(|&byte| byte == 7));
    assert!(memory.wire.borrow().max_held <= 9);
}
