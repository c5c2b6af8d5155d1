//! All-reduces of ranks on two servers, whose links between them are the slow ones.

use alloc::string::ToString;
use alloc::vec::Vec;

use super::memory::Memory;
use super::values::{check, encode, values};
use crate::{Algorithm, Call, Channel, Collective, Config, DataType, Op};

const RANKS: usize = 4;
/// The server of each rank: a launcher has dealt the ranks to the servers in turn.
const SERVERS: [usize; RANKS] = [0, 1, 0, 1];

/// Runs an all-reduce and checks it. Returns the bytes that crossed between servers, in percent of the buffer's.
fn crossed(memory: &mut Memory, call: Call) -> usize {
    memory.wire.borrow_mut().bytes_sent.clear();
    let all = values(&call, RANKS, &mut memory.rng);
    for (rank, values) in all.iter().enumerate() {
        memory.submit(rank, call, encode(call.data_type, values));
    }
    memory.run_until_idle();
    for rank in 0..RANKS {
        let event = memory.events[rank].pop_front().expect("the call has completed");
        assert_eq!(event.result, Ok(()));
        check(&call, &all, rank, &event.buffer);
    }
    let wire = memory.wire.borrow();
    let between = |(from, to): &(usize, usize)| SERVERS[*from] != SERVERS[*to];
    let bytes = wire.bytes_sent.iter().filter(|(pair, _)| between(pair)).map(|(_, bytes)| bytes);
    bytes.sum::<usize>() * 100 / call.bytes()
}

#[test]
fn fewer_bytes_cross_servers_when_the_order_and_the_algorithm_follow_them() {
    let (collective, data_type, op) = (Collective::AllReduce, DataType::Fp32, Op::Sum);
    let call = Call { collective, data_type, op, root: 0, elements: 65_536 };
    let config = Config { max_body: 4096, ..Config::of(RANKS, Some(Channel::Inner)) };
    let mut memory = Memory::new(&config, 5);
    // Each rank sends 2 (n - 1) / n of the buffer to the next. The rest are headers and progress: 48 bytes of each 4,144.
    let by_number = crossed(&mut memory, call);
    assert!((600..615).contains(&by_number), "four times 3/2: {by_number} %");
    memory.groups.iter_mut().for_each(|group| group.set_order([0, 2, 1, 3].into()));
    let by_server = crossed(&mut memory, call);
    assert!((300..308).contains(&by_server), "twice 3/2: {by_server} %");
    let algorithm = Algorithm::Hierarchical { local: 2 };
    memory.groups.iter_mut().for_each(|group| group.set_algorithm(algorithm));
    let hierarchical = crossed(&mut memory, call);
    assert!((200..206).contains(&hierarchical), "four times a half: {hierarchical} %");
}

#[test]
fn the_servers_of_an_algorithm_may_be_left_to_the_owner() {
    let algorithm: Algorithm = "hierarchical".parse().expect("a name");
    assert_eq!((algorithm, algorithm.to_string().as_str()), (Algorithm::ByServer, "hierarchical"));
    let refused =
        "hierarchical:0".parse::<Algorithm>().expect_err("a server has ranks").to_string();
    assert!(refused.contains("\"0\" is no number of a server's ranks"), "{refused}");
    let config = Config { algorithm, ..Config::of(3, Some(Channel::Inner)) };
    let mut memory = Memory::new(&config, 1);
    let call = Call { data_type: DataType::U8, elements: 40_000, ..Call::barrier() };
    let call = Call { collective: Collective::AllReduce, ..call };
    let ranks: Vec<usize> = (0..3).collect();
    for &rank in &ranks {
        memory.submit(rank, call, alloc::vec![1; 40_000]);
    }
    memory.run_until_idle();
    for rank in ranks {
        let event = memory.events[rank].pop_front().expect("the call has completed");
        assert!(event.buffer.iter().all(|&byte| byte == 3), "a ring until the servers are known");
    }
}
