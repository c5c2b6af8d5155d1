//! Blocks of a call and the time that links stand still.

use weft_units::Duration;

use super::memory::Memory;
use crate::{Call, Channel, Collective, Config, DataType, Op};

/// What a link takes for a KiB, and how long after that it arrives.
const TAKES: Duration = Duration::from_micros(40);
const LATENCY: Duration = Duration::from_micros(200);
const RANKS: usize = 4;

/// How long an all-reduce takes whose chunks are so many pieces of a KiB.
fn all_reduce(pieces: usize) -> Duration {
    let config = Config { piece: 1024, ..Config::of(RANKS, Some(Channel::Network)) };
    let mut memory = Memory::new(&config, 1);
    let wire = memory.wire.get_mut();
    (wire.takes, wire.latency, wire.room) = (Some([TAKES; 2]), LATENCY, 64);
    let (collective, data_type, op) = (Collective::AllReduce, DataType::U8, Op::Sum);
    let call = Call { collective, data_type, op, root: 0, elements: RANKS * 1024 * pieces };
    let began = memory.now;
    for rank in 0..RANKS {
        memory.submit(rank, call, alloc::vec![1; call.bytes()]);
    }
    memory.settle();
    assert!(memory.events.iter().all(|events| events[0].result == Ok(())));
    memory.now.since(began)
}

#[test]
fn blocks_that_are_left_over_keep_no_link_waiting() {
    // As many as are under way at a time, one more, and two such rounds and one more.
    let [full, more, rounds] = [16, 17, 33].map(all_reduce);
    let a_piece = full.as_nanos() / 16;
    for (pieces, took) in [(17, more), (33, rounds)] {
        let late = took.as_nanos().saturating_sub(a_piece * pieces);
        // Each of the six steps of a block alone would wait for the network; shorter pieces cost their heads.
        assert!(late < 3 * LATENCY.as_nanos(), "{pieces} pieces: {late} ns, of {took}");
    }
}
