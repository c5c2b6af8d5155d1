//! Ranks that die, leave, or make different calls.

use alloc::string::ToString;
use alloc::vec::Vec;

use weft_plan::collective::Step;
use weft_units::Seed;

use super::memory::Memory;
use super::values::{call, encode, values};
use crate::algorithm::{Key, max_messages};
use crate::header::Kind;
use crate::{
    Algorithm, Call, CallError, Channel, Collective, Config, DataType, Error, HEADER_LEN, Header,
    HeaderError, Op,
};

fn sum(elements: usize) -> Call {
    Call {
        collective: Collective::AllReduce,
        data_type: DataType::Fp32,
        op: Op::Sum,
        root: 0,
        elements,
    }
}

fn config(ranks: usize) -> Config {
    Config { max_body: 256, ..Config::of(ranks, Some(Channel::Network)) }
}

#[test]
fn a_dead_rank_is_named_to_all() {
    for seed in 0..60 {
        let mut rng = Seed(seed).child("dead", 0).rng();
        let ranks = 2 + rng.index(5);
        let mut memory = Memory::new(&config(ranks), seed);
        let dead = rng.index(ranks);
        // All ranks call; one dies before or during the call.
        let steps = rng.index(60);
        for rank in 0..ranks {
            memory.submit(rank, sum(20_000), alloc::vec![0; 80_000]);
        }
        (0..steps).for_each(|_| {
            memory.step();
        });
        // One rank detects the death and notifies the others.
        let witness = (dead + 1 + rng.index(ranks - 1)) % ranks;
        memory.kill(dead, &[witness]);
        memory.run_until_idle();
        for rank in (0..ranks).filter(|&rank| rank != dead) {
            let events: Vec<_> = memory.events[rank].drain(..).collect();
            let [event] = events.as_slice() else { panic!("one event: {events:?}") };
            let message = event.result.as_ref().expect_err("it cannot be").to_string();
            assert!(
                message.contains(&alloc::format!("rank {dead} is gone: no answer")),
                "{message}"
            );
            assert_eq!(event.buffer.len(), 80_000, "the buffer comes back");
            let refused = memory.groups[rank].submit(sum(1), alloc::vec![0; 4]);
            assert!(matches!(refused, Err(CallError::Failed(_))));
        }
    }
}

#[test]
fn different_calls_are_named_with_both_ranks() {
    for (theirs, want) in [
        (sum(500), "all_reduce of 500 float, sum"),
        (Call { op: Op::Max, ..sum(20_000) }, "all_reduce of 20000 float, max"),
        (Call { data_type: DataType::Int32, ..sum(20_000) }, "all_reduce of 20000 int32, sum"),
        (Call::barrier(), "barrier"),
        (
            Call { collective: Collective::Reduce, root: 1, ..sum(20_000) },
            "reduce of 20000 float, sum, root 1",
        ),
    ] {
        for seed in 0..8 {
            let mut memory = Memory::new(&config(2), seed);
            memory.submit(0, sum(20_000), alloc::vec![0; 80_000]);
            (0..seed).for_each(|_| {
                memory.step();
            });
            memory.submit(1, theirs, alloc::vec![0; theirs.bytes()]);
            memory.run_until_idle();
            let messages: Vec<_> = (0..2)
                .filter_map(|rank| memory.groups[rank].error().map(Error::to_string))
                .collect();
            assert_eq!(messages.len(), 2, "both know: {messages:?}");
            for message in messages {
                assert!(message.contains("call 0 is not the same at all ranks"), "{message}");
                assert!(
                    message.contains("all_reduce of 20000 float, sum") && message.contains(want),
                    "{message}"
                );
                assert!(message.contains("rank 0 requests"), "{message}");
                assert!(message.contains("rank 1 requests"), "{message}");
            }
        }
    }
}

#[test]
fn a_rank_that_left_fails_only_calls_that_need_it() {
    let mut memory = Memory::new(&config(3), 1);
    for rank in 0..3 {
        memory.submit(rank, sum(1_000), alloc::vec![0; 4_000]);
    }
    memory.run_until_idle();
    memory.groups[0].peer_left(2);
    memory.advance(0);
    assert_eq!(memory.events[0].pop_front().expect("done").result, Ok(()));
    assert_eq!(memory.groups[0].error(), None, "it left after its last call");
    memory.submit(0, sum(1_000), alloc::vec![0; 4_000]);
    memory.run_until_idle();
    let message = memory.groups[0].error().expect("it is needed").to_string();
    assert!(message.contains("rank 2 has left the group, and call 1"), "{message}");
}

#[test]
fn invalid_calls_are_refused_before_anything_is_sent() {
    let mut memory = Memory::new(&config(4), 1);
    let group = &mut memory.groups[0];
    let gather = Call { collective: Collective::AllGather, ..sum(6) };
    for (call, bytes, want) in [
        (sum(3), 8, "a buffer of 8 bytes for 3 elements of 4 bytes"),
        (gather, 24, "6 elements cannot be divided into the 4 equal chunks of all_gather"),
        (
            Call { collective: Collective::Broadcast, root: 4, ..sum(1) },
            4,
            "root 4, but the group has 4",
        ),
        (sum(usize::MAX), 8, "a buffer of 8 bytes"),
    ] {
        let error = group.submit(call, alloc::vec![0; bytes]).expect_err("it cannot be");
        assert!(error.to_string().contains(want), "{error}");
    }
    assert!(group.is_idle());
}

#[test]
fn headers_read_back_as_they_are_written_and_invalid_ones_are_named() {
    let mut rng = Seed(7).child("heads", 0).rng();
    for _ in 0..500 {
        let call = call(1 + rng.index(9), 1 << 20, &mut rng);
        let header = Header {
            kind: Kind::Data,
            call,
            number: rng.next_u64(),
            block: 7,
            count: 9,
            channel: 1,
            done: rng.next_u64(),
        };
        let bytes = [&header.emit()[..], b"body"].concat();
        assert_eq!(Header::parse(&bytes), Ok((header, &b"body"[..])));
        let mut damaged = bytes.clone();
        let at = rng.index(bytes.len());
        damaged[at] ^= 1 << rng.index(8);
        // A corrupted header is rejected or differs, and nothing panics.
        let unused = 44..HEADER_LEN;
        assert!(unused.contains(&at) || Header::parse(&damaged) != Ok((header, &b"body"[..])));
    }
    assert_eq!(Header::parse(&[0; HEADER_LEN - 1]), Err(HeaderError::Short(HEADER_LEN - 1)));
    assert_eq!(Header::parse(&[0; HEADER_LEN]), Err(HeaderError::Magic));
}

#[test]
fn hostile_messages_end_the_group_and_nothing_else() {
    for seed in 0..300 {
        let mut rng = Seed(seed).child("hostile", 0).rng();
        let mut memory = Memory::new(&config(2), seed);
        let own_call = call(2, 400, &mut rng);
        let buffers = values(&own_call, 2, &mut rng);
        memory.submit(0, own_call, encode(own_call.data_type, &buffers[0]));
        memory.advance(0);
        for _ in 0..20 {
            let header = Header {
                kind: [Kind::Data, Kind::Assign, Kind::Progress][rng.index(3)],
                call: if rng.chance(3, 4) { own_call } else { call(2, 400, &mut rng) },
                number: rng.below(3),
                block: u32::try_from(rng.below(5)).expect("small"),
                count: u32::MAX - u32::try_from(rng.below(5)).expect("small"),
                channel: u8::try_from(rng.below(3)).expect("small"),
                done: rng.next_u64() >> rng.below(64),
            };
            let mut bytes = [&header.emit()[..], &alloc::vec![1; rng.index(300)]].concat();
            if rng.chance(1, 4) {
                bytes.truncate(rng.index(bytes.len()));
            }
            memory.inject(1, 0, bytes);
        }
        memory.advance(0);
    }
}

/// Returns rank 1's header of a message of call `number`.
fn forged(kind: Kind, number: u64, block: u32, done: u64) -> Header {
    let call = sum(20_000);
    Header { kind, call, number, block, count: 0, channel: 1, done }
}

#[test]
fn a_rank_that_claims_any_progress_stalls_no_other() {
    for done in [u64::MAX, u64::MAX - 31, u64::MAX - 32] {
        let mut memory = Memory::new(&config(2), 1);
        memory.inject(1, 0, forged(Kind::Progress, 0, 0, done).emit().into());
        for rank in 0..2 {
            memory.submit(rank, sum(20_000), alloc::vec![0; 80_000]);
        }
        memory.run_until_idle();
        for rank in 0..2 {
            let event = memory.events[rank].pop_front().expect("the call has completed");
            assert_eq!(event.result, Ok(()), "{done}");
        }
    }
}

#[test]
fn a_rank_that_sends_ahead_of_its_steps_fails_the_group() {
    // Calls that this rank has not made, blocks of one such call, one block of it, and one block of a call in progress.
    let messages: [fn(u64) -> (u64, u32); 4] = [
        |count| (1 + count, 0),
        |count| (1, u32::try_from(count).expect("few")),
        |_| (1, 0),
        |_| (0, 0),
    ];
    for message in messages {
        let mut memory = Memory::new(&config(2), 1);
        memory.submit(0, sum(20_000), alloc::vec![0; 80_000]);
        for count in 0..1_000 {
            let (number, block) = message(count);
            memory.inject(1, 0, forged(Kind::Data, number, block, 0).emit().into());
        }
        // The window is 32 blocks, and a block has two messages from each rank.
        assert_eq!(memory.wire.borrow().held, 64);
        let error = memory.groups[0].error().expect("too many messages").to_string();
        assert_eq!(
            error,
            "rank 1 broke the protocol: more than 64 of its messages wait for their steps"
        );
        memory.advance(0);
        assert_eq!(memory.wire.borrow().held, 0, "all messages are released");
    }
}

#[test]
fn no_schedule_has_more_messages_of_a_block_between_two_ranks_than_the_maximum() {
    for ranks in 1..=16 {
        let order: Vec<usize> = (0..ranks).rev().collect();
        let of_servers = (1..=ranks).filter(|local| ranks.is_multiple_of(*local));
        let algorithms = of_servers.map(|local| Algorithm::Hierarchical { local });
        for algorithm in algorithms.chain([Algorithm::Ring, Algorithm::Tree]) {
            for (collective, elements) in
                Collective::ALL.iter().flat_map(|&it| [(it, 1), (it, 1 << 20)])
            {
                let call = Call { collective, ..sum(elements) };
                let key = Key::of(&call, ranks, config(ranks).max_body);
                let servers: Vec<Vec<usize>> = order.chunks(3).map(<[usize]>::to_vec).collect();
                let blocks = (0..ranks).map(|rank| u32::from(rank % 3 == 0)).collect();
                let config = Config { servers, blocks, ..config(ranks) };
                let by_block = config.servers_by_block();
                let schedules = key.schedules(&config.servers, &by_block, algorithm);
                for steps in schedules.iter().flat_map(|schedule| &schedule.steps) {
                    let mut messages = alloc::vec![0; ranks];
                    for step in steps {
                        if let Step::Receive { from, .. } | Step::Reduce { from, .. } = step {
                            messages[*from] += 1;
                        }
                    }
                    let most = messages.into_iter().max().expect("a rank");
                    assert!(most <= max_messages(ranks), "{collective} of {ranks}, {algorithm}");
                }
            }
        }
    }
}

#[test]
fn ranks_that_wait_name_the_ranks_without_a_report() {
    for (seed, missing) in [(1, alloc::vec![2]), (2, alloc::vec![0]), (3, alloc::vec![1, 3])] {
        let mut memory = Memory::new(&config(5), seed);
        let there: Vec<usize> = (0..5).filter(|rank| !missing.contains(rank)).collect();
        for &rank in &there {
            memory.submit(rank, Call::barrier(), Vec::new());
        }
        memory.run_until_idle();
        there.iter().for_each(|&rank| memory.groups[rank].report_stall());
        memory.run_until_idle();
        for &rank in &there {
            assert_eq!(memory.groups[rank].waits_for(), missing, "seed {seed}, rank {rank}");
        }
        // The report is taken back with the call.
        missing.iter().for_each(|&rank| {
            memory.submit(rank, Call::barrier(), Vec::new());
        });
        memory.run_until_idle();
        memory.submit(0, sum(20_000), alloc::vec![0; 80_000]);
        memory.run_until_idle();
        memory.groups[0].report_stall();
        assert_eq!(memory.groups[0].waits_for(), [1, 2, 3, 4]);
    }
}

#[test]
fn reductions_that_a_type_does_not_have_are_refused() {
    let mut memory = Memory::new(&config(2), 1);
    for (data_type, op) in [(DataType::Fp32, Op::BitXor), (DataType::Bool, Op::Average)] {
        let call = Call { data_type, op, ..sum(4) };
        let refused = memory.groups[0].submit(call, alloc::vec![0; call.bytes()]);
        let message = refused.expect_err("there is no such reduction").to_string();
        assert!(message.contains(op.name()) && message.contains(data_type.name()), "{message}");
        // A collective that does not reduce does not mind.
        let call = Call { collective: Collective::Broadcast, ..call };
        memory.submit(0, call, alloc::vec![0; call.bytes()]);
    }
}
