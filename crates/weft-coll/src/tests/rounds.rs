//! The number of blocks of a call, and idle time of links.

use weft_units::Duration;

use super::memory::Memory;
use crate::{Call, Channel, Collective, Config, DataType, Op};

/// A link's time for a KiB, and its propagation delay.
const TIME_PER_KIB: Duration = Duration::from_micros(40);
const LATENCY: Duration = Duration::from_micros(200);
const RANKS: usize = 4;

/// Returns the duration of an all-reduce whose chunks have `pieces` pieces of a KiB.
fn all_reduce(pieces: usize) -> Duration {
    let config = Config { max_body: 1024, ..Config::of(RANKS, Some(Channel::Network)) };
    let mut memory = Memory::new(&config, 1);
    let wire = memory.wire.get_mut();
    (wire.time_per_kib, wire.latency, wire.lane_capacity) = (Some([TIME_PER_KIB; 2]), LATENCY, 64);
    let (collective, data_type, op) = (Collective::AllReduce, DataType::U8, Op::Sum);
    let call = Call { collective, data_type, op, root: 0, elements: RANKS * 1024 * pieces };
    let began = memory.now;
    for rank in 0..RANKS {
        memory.submit(rank, call, alloc::vec![1; call.bytes()]);
    }
    memory.run_until_idle();
    assert!(memory.events.iter().all(|events| events[0].result == Ok(())));
    memory.now.since(began)
}

#[test]
fn the_last_blocks_of_a_call_leave_no_link_idle() {
    // The number of concurrent blocks, one more, and two rounds of them plus one.
    let [full, more, rounds] = [16, 17, 33].map(all_reduce);
    let a_piece = full.as_nanos() / 16;
    for (pieces, took) in [(17, more), (33, rounds)] {
        let late = took.as_nanos().saturating_sub(a_piece * pieces);
        // Each of the six steps of a lone block would wait for the network; shorter pieces cost more headers.
        assert!(late < 3 * LATENCY.as_nanos(), "{pieces} pieces: {late} ns, of {took}");
    }
}
