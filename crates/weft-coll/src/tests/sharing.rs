//! Two channels for one collective (Astral, section 3.3 and figure 6).

use alloc::vec::Vec;

use weft_units::{Duration, Instant};

use super::memory::Memory;
use super::values::{check, encode, values};
use crate::{Call, Channel, Collective, Config, DataType, Op, Share};

/// Each channel's time for a KiB: the network takes four times as long.
const TIME_PER_KIB: [Duration; 2] = [Duration::from_micros(10), Duration::from_micros(40)];

fn call(collective: Collective, elements: usize) -> Call {
    Call { collective, data_type: DataType::Fp32, op: Op::Sum, root: 0, elements }
}

/// Runs calls one after the other; returns their durations and the total number of blocks by channel.
fn run(only: Option<Channel>, calls: &[Call]) -> (Vec<Duration>, Share) {
    let mut config = Config::of(4, only);
    config.max_body = 1024;
    let mut memory = Memory::new(&config, 3);
    memory.wire.borrow_mut().time_per_kib = Some(TIME_PER_KIB);
    memory.wire.borrow_mut().lane_capacity = 64;
    let mut rng = weft_units::Seed(1).child("sharing", 0).rng();
    let mut took = Vec::new();
    for call in calls {
        let all = values(call, 4, &mut rng);
        let began: Instant = memory.now;
        for (rank, values) in all.iter().enumerate() {
            memory.submit(rank, *call, encode(call.data_type, values));
        }
        memory.run_until_idle();
        took.push(memory.now.since(began));
        for rank in 0..4 {
            let event = memory.events[rank].pop_front().expect("done");
            assert_eq!(event.result, Ok(()));
            check(call, &all, rank, &event.buffer);
        }
    }
    let shares: Vec<Share> = memory.groups.iter().map(crate::Group::share).collect();
    assert!(shares.iter().all(|share| *share == shares[0]), "all ranks agree: {shares:?}");
    (took, shares[0])
}

#[test]
fn long_calls_take_both_channels_and_end_sooner() {
    for collective in [Collective::AllReduce, Collective::AllToAll, Collective::ReduceScatter] {
        let long = call(collective, 400_000);
        let calls = [long; 4];
        let (alone, share) = run(Some(Channel::Inner), &calls);
        assert_eq!(share.network, 0);
        let (both, share) = run(None, &calls);
        let first = both[0].as_nanos() * 100 / alone[0].as_nanos();
        assert!(first <= 110, "{collective:?}: {first} % to find out what the network carries");
        // The network carries a fifth of the total; the first call measures the rates.
        let carried = share.network * 100 / (share.network + share.inner);
        assert!((12..=24).contains(&carried), "{collective:?}: {carried} %");
        let gain = alone[3].as_nanos() * 100 / both[3].as_nanos();
        // In an all-to-all, links idle for blocks that wait on another link; in a ring they do not.
        let least = if collective == Collective::AllToAll { 103 } else { 110 };
        assert!((least..=126).contains(&gain), "{collective:?}: {gain} %");
    }
}

#[test]
fn short_calls_stay_on_the_inner_channel() {
    // The call has 64 blocks.
    let short = call(Collective::AllReduce, 4 * 64 * 256);
    let (alone, _) = run(Some(Channel::Inner), &[short; 3]);
    let (both, share) = run(None, &[short; 3]);
    assert_eq!((share.network, alone), (0, both), "the same to the nanosecond");
}
