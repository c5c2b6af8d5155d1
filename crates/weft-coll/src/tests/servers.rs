//! Collectives of ranks on two servers, whose links between them are the slow ones.

use alloc::string::ToString;
use alloc::vec::Vec;

use super::memory::Memory;
use super::values::{check, encode, values};
use crate::{Algorithm, Call, Channel, Collective, Config, DataType, Op};

const RANKS: usize = 4;
/// The server of each rank: a launcher has dealt the ranks to the servers in turn.
const SERVERS: [usize; RANKS] = [0, 1, 0, 1];

/// The traffic between the servers in a call.
#[derive(Default)]
struct Crossed {
    /// Bytes in percent of the buffer's.
    percent: usize,
    /// Messages with a body, between ranks of one place, and between others.
    on_rails: usize,
    elsewhere: usize,
    /// Messages with a body by sender.
    by_sender: [usize; RANKS],
}

/// Runs a call and checks it. Returns what crossed between servers.
fn crossed(memory: &mut Memory, call: Call) -> Crossed {
    let wire = memory.wire.get_mut();
    wire.bytes_sent.clear();
    wire.messages_sent.clear();
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
    let crosses = |&(&(from, to), _): &(&(usize, usize), &usize)| SERVERS[from] != SERVERS[to];
    let bytes = wire.bytes_sent.iter().filter(crosses).map(|(_, bytes)| bytes).sum::<usize>();
    let mut crossed = Crossed { percent: bytes * 100 / call.bytes(), ..Crossed::default() };
    for ((from, to), messages) in wire.messages_sent.iter().filter(crosses) {
        // The ranks of a place are numbered one after the other.
        let on_rail = from / 2 == to / 2;
        *(if on_rail { &mut crossed.on_rails } else { &mut crossed.elsewhere }) += messages;
        crossed.by_sender[*from] += messages;
    }
    crossed
}

#[test]
fn fewer_bytes_cross_servers_when_the_order_and_the_algorithm_follow_them() {
    let (collective, data_type, op) = (Collective::AllReduce, DataType::Fp32, Op::Sum);
    let call = Call { collective, data_type, op, root: 0, elements: 65_536 };
    let config = Config { max_body: 4096, ..Config::of(RANKS, Some(Channel::Inner)) };
    let mut memory = Memory::new(&config, 5);
    // Each rank sends 2 (n - 1) / n of the buffer to the next. The rest are headers and progress: 48 bytes of each 4,144.
    let by_number = crossed(&mut memory, call).percent;
    assert!((600..615).contains(&by_number), "four times 3/2: {by_number} %");
    memory.groups.iter_mut().for_each(|group| group.set_order([0, 2, 1, 3].into()));
    let by_server = crossed(&mut memory, call);
    assert!((300..308).contains(&by_server.percent), "twice 3/2: {} %", by_server.percent);
    // One ring: all of a server's bytes leave it from one rank. Of 16 blocks each has six messages.
    assert_eq!(by_server.by_sender, [0, 0, 96, 96]);
    memory
        .groups
        .iter_mut()
        .for_each(|group| group.set_servers([[0, 2].into(), [1, 3].into()].into()));
    let rings = crossed(&mut memory, call);
    assert!((300..308).contains(&rings.percent), "twice 3/2: {} %", rings.percent);
    assert_eq!((rings.by_sender, rings.elsewhere), ([48; RANKS], 0), "a ring a rail");
    memory.groups.iter_mut().for_each(|group| group.set_algorithm(Algorithm::Tree));
    let trees = crossed(&mut memory, call).percent;
    assert!(
        (200..206).contains(&trees),
        "half a buffer up and down, in each of two trees: {trees} %"
    );
    let algorithm = Algorithm::Hierarchical { local: 2 };
    memory.groups.iter_mut().for_each(|group| group.set_algorithm(algorithm));
    let hierarchical = crossed(&mut memory, call).percent;
    assert!((200..206).contains(&hierarchical), "four times a half: {hierarchical} %");
}

#[test]
fn trees_cross_blocks_as_often_as_there_are_further_blocks() {
    // Each rank is a server; hosts of two blocks are in turn, and in the order of the blocks.
    let (collective, data_type, op) = (Collective::AllReduce, DataType::Fp32, Op::Sum);
    let call = Call { collective, data_type, op, root: 0, elements: 65_536 };
    let algorithm = Algorithm::Tree;
    let config = Config { algorithm, max_body: 4096, ..Config::of(RANKS, Some(Channel::Inner)) };
    let mut memory = Memory::new(&config, 9);
    for order in [[0, 1, 2, 3], [0, 2, 1, 3]] {
        // Half a buffer goes up and down each edge of a tree, and two edges of each tree cross.
        memory.groups.iter_mut().for_each(|group| group.set_order(order.into()));
        let unknown = crossed(&mut memory, call).percent;
        assert!((400..412).contains(&unknown), "{order:?}: {unknown} %");
        memory.groups.iter_mut().for_each(|group| group.set_blocks([7, 9, 7, 9].into()));
        let known = crossed(&mut memory, call).percent;
        assert!((200..206).contains(&known), "{order:?}: {known} %");
        memory.groups.iter_mut().for_each(|group| group.set_blocks([].into()));
    }
}

#[test]
fn a_short_all_to_all_crosses_servers_on_rails_in_half_the_messages() {
    let (collective, data_type, op) = (Collective::AllToAll, DataType::U8, Op::Sum);
    let config = Config::of(RANKS, Some(Channel::Inner)).in_order([0, 2, 1, 3].into());
    let all_to_all = |algorithm, chunk: usize| {
        let mut memory = Memory::new(&Config { algorithm, ..config.clone() }, 7);
        let call = Call { collective, data_type, op, root: 0, elements: 2 * RANKS * chunk };
        let Crossed { percent, on_rails, elsewhere, .. } = crossed(&mut memory, call);
        // Each rank sends two of the eight chunks of its buffer to the other server; a message has a header of 48 bytes.
        assert!((100..110).contains(&percent), "{percent} %");
        [on_rails, elsewhere]
    };
    let by_server = Algorithm::Hierarchical { local: 2 };
    assert_eq!(all_to_all(Algorithm::Ring, 4096), [4, 4]);
    assert_eq!(all_to_all(by_server, 4096), [4, 0]);
    // A longer one goes directly.
    assert_eq!(all_to_all(by_server, 4097), [4, 4]);
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
