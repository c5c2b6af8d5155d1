use alloc::vec::Vec;

use half::{bf16, f16};
use weft_units::{Rng, Seed};

use super::*;

mod servers;

use servers::servers;

/// Returns a random order of `ranks` ranks.
fn order(ranks: usize, rng: &mut Rng) -> Vec<usize> {
    let mut order: Vec<usize> = (0..ranks).collect();
    rng.shuffle(&mut order);
    order
}

/// Returns a random tree over all ranks.
fn tree(ranks: usize, rng: &mut Rng) -> Vec<Option<usize>> {
    let order = order(ranks, rng);
    let mut parents = alloc::vec![None; ranks];
    for place in 1..ranks {
        parents[order[place]] = Some(order[rng.index(place)]);
    }
    parents
}

fn bytes(data_type: DataType, value: u64) -> Vec<u8> {
    let whole = u8::try_from(value).unwrap();
    match data_type {
        DataType::Fp32 => f32::from(whole).to_le_bytes().to_vec(),
        DataType::Fp16 => f16::from_f32(whole.into()).to_le_bytes().to_vec(),
        DataType::Bf16 => bf16::from_f32(whole.into()).to_le_bytes().to_vec(),
        DataType::Int32 => i32::from(whole).to_le_bytes().to_vec(),
        DataType::Int64 => i64::from(whole).to_le_bytes().to_vec(),
        DataType::U8 | DataType::Int8 => alloc::vec![whole],
        DataType::Int16 => i16::from(whole).to_le_bytes().to_vec(),
        DataType::Fp64 => f64::from(whole).to_le_bytes().to_vec(),
        DataType::Bool => alloc::vec![u8::from(whole != 0)],
        DataType::E4m3 | DataType::E5m2 => unreachable!("sums are not exact"),
    }
}

/// Returns small whole numbers, whose sums are exact in every type and order.
fn values(count: usize, limit: u64, rng: &mut Rng) -> Vec<u64> {
    (0..count).map(|_| rng.below(limit)).collect()
}

fn encode(data_type: DataType, values: &[u64]) -> Vec<u8> {
    values.iter().flat_map(|&value| bytes(data_type, value)).collect()
}

/// A test case: ranks, elements of a buffer, values of each rank, element type.
struct Case {
    ranks: usize,
    elements: usize,
    values: Vec<Vec<u64>>,
    data_type: DataType,
    rng: Rng,
}

fn cases() -> impl Iterator<Item = Case> {
    (0..240).map(|seed| {
        let mut rng = Seed(seed).child("collective", 0).rng();
        let ranks = 1 + rng.index(17);
        // Buffers may be empty or have fewer elements than ranks.
        let elements = if rng.chance(1, 4) { rng.index(20) } else { rng.index(2_000) };
        let inexact = [DataType::E4m3, DataType::E5m2];
        let exact: Vec<_> =
            DataType::ALL.into_iter().filter(|known| !inexact.contains(known)).collect();
        let data_type = exact[rng.index(exact.len())];
        // Sums of 17 numbers stay below 2^7, so they are exact in int8 and bf16.
        let values = (0..ranks).map(|_| values(elements, 8, &mut rng)).collect();
        Case { ranks, elements, values, data_type, rng }
    })
}

impl Case {
    fn run(&self, schedule: &Schedule) -> Vec<Vec<u8>> {
        let mut buffers: Vec<_> =
            self.values.iter().map(|values| encode(self.data_type, values)).collect();
        run(schedule, &mut buffers, self.data_type, Reduction::Sum).unwrap();
        buffers
    }

    fn sum(&self) -> Vec<u8> {
        let at = |element| self.values.iter().map(|values| values[element]).sum();
        encode(self.data_type, &(0..self.elements).map(at).collect::<Vec<u64>>())
    }

    fn bytes_of(&self, range: Range<usize>) -> Range<usize> {
        let size = self.data_type.size();
        range.start * size..range.end * size
    }
}

#[test]
fn all_reductions_are_the_plain_sum_at_every_rank() {
    for mut case in cases() {
        let ranks = case.ranks;
        let ring = all_reduce_ring(&order(ranks, &mut case.rng));
        let (one, two) = (tree(ranks, &mut case.rng), tree(ranks, &mut case.rng));
        let chunks = 1 + case.rng.index(6);
        let trees = all_reduce_trees([&one, &two], chunks);
        let local =
            (1..=ranks).filter(|local| ranks % local == 0).nth(case.rng.index(2)).unwrap_or(1);
        let equal: Vec<Vec<usize>> =
            order(ranks, &mut case.rng).chunks(local).map(<[usize]>::to_vec).collect();
        let hierarchical = all_reduce_hierarchical(&equal);
        let double_tree = all_reduce_double_tree(&order(ranks, &mut case.rng), chunks);
        let of_servers = servers(ranks, &mut case.rng);
        let server_trees = all_reduce_double_tree_over(&of_servers, chunks);
        let of_blocks: Vec<Vec<Vec<usize>>> =
            of_servers.chunks(1 + case.rng.index(3)).map(<[Vec<usize>]>::to_vec).collect();
        let block_trees = all_reduce_double_tree_in(&of_blocks, chunks);
        let rings = rings_over_servers(&of_servers);
        let rail_ring = all_reduce_ring(&rings[case.rng.index(rings.len())]);
        let sum = case.sum();
        let doubling = all_reduce_doubling(ranks);
        for (name, schedule) in [
            ("ring", ring),
            ("trees", trees),
            ("double tree", double_tree),
            ("double tree over servers", server_trees),
            ("double tree over blocks", block_trees),
            ("ring on rails", rail_ring),
            ("hierarchical", hierarchical),
            ("doubling", doubling),
        ] {
            for (rank, buffer) in case.run(&schedule).iter().enumerate() {
                let (elements, data_type) = (case.elements, case.data_type);
                assert!(*buffer == sum, "{name}: rank {rank} of {ranks}, {elements} {data_type:?}");
            }
        }
    }
}

#[test]
fn gathers_and_scatters_leave_every_rank_its_chunks() {
    for mut case in cases() {
        let order = order(case.ranks, &mut case.rng);
        let gather = all_gather_ring(&order);
        let mut all = alloc::vec![0; case.elements * case.data_type.size()];
        for (rank, values) in case.values.iter().enumerate() {
            let chunk = case.bytes_of(gather.chunk(rank, case.elements));
            all[chunk.clone()].copy_from_slice(&encode(case.data_type, values)[chunk]);
        }
        assert!(case.run(&gather).iter().all(|buffer| *buffer == all));

        let scatter = reduce_scatter_ring(&order);
        let sum = case.sum();
        for (rank, buffer) in case.run(&scatter).iter().enumerate() {
            let chunk = case.bytes_of(scatter.chunk(rank, case.elements));
            assert_eq!(buffer[chunk.clone()], sum[chunk]);
        }
    }
}

#[test]
fn broadcasts_and_exchanges_arrive() {
    for mut case in cases() {
        let order = order(case.ranks, &mut case.rng);
        let root = encode(case.data_type, &case.values[order[0]]);
        let chunks = 1 + case.rng.index(9);
        for schedule in [broadcast_chain(&order, chunks), broadcast_tree(&order)] {
            assert!(case.run(&schedule).iter().all(|buffer| *buffer == root));
        }
        // Chunks have equal lengths, as in MPI_Alltoall.
        let each = case.elements / (2 * case.ranks);
        case.values.iter_mut().for_each(|values| values.truncate(2 * case.ranks * each));
        case.elements = 2 * case.ranks * each;
        let exchange = all_to_all(case.ranks);
        for (to, buffer) in case.run(&exchange).iter().enumerate() {
            for (from, values) in case.values.iter().enumerate() {
                let sent = &values[exchange.chunk(to, case.elements)];
                let got = case.bytes_of(exchange.chunk(case.ranks + from, case.elements));
                assert_eq!(buffer[got], encode(case.data_type, sent));
            }
        }
    }
}

#[test]
fn rooted_collectives_move_chunks_to_the_root_or_from_it() {
    for mut case in cases() {
        let order = order(case.ranks, &mut case.rng);
        let sum = case.sum();
        for schedule in [reduce_chain(&order), reduce_tree(&order)] {
            assert_eq!(case.run(&schedule)[order[0]], sum);
            assert_eq!(schedule.sends(order[0]), 0, "the root sends nothing");
        }
        let root = order[0];
        let (to, from) = (gather_direct(case.ranks, root), scatter_direct(case.ranks, root));
        let (gathered, scattered) = (case.run(&to), case.run(&from));
        for (rank, got) in scattered.iter().enumerate() {
            let chunk = case.bytes_of(to.chunk(rank, case.elements));
            let (own, roots) = (&case.values[rank], &case.values[root]);
            assert_eq!(gathered[root][chunk.clone()], encode(case.data_type, own)[chunk.clone()]);
            assert_eq!(got[chunk.clone()], encode(case.data_type, roots)[chunk]);
        }
        case.values.iter_mut().for_each(|values| values.truncate(case.elements / 2 * 2));
        let shifted = case.run(&shift(&order));
        for (place, &rank) in order.iter().enumerate() {
            let next = order[(place + 1) % order.len()];
            let half = shifted[next].len() / 2;
            assert_eq!(shifted[next][half..], encode(case.data_type, &case.values[rank])[..half]);
        }
    }
}

#[test]
fn averages_are_those_of_nccl() {
    let divided = |data_type: DataType, ranks, bytes: &[u8]| {
        let mut bytes = bytes.to_vec();
        data_type.divide(ranks, &mut bytes);
        bytes
    };
    assert_eq!(divided(DataType::Int32, 4, &(-7_i32).to_le_bytes()), (-1_i32).to_le_bytes());
    assert_eq!(divided(DataType::U8, 300, &[255]), [0], "more ranks than the type can count");
    assert_eq!(divided(DataType::Fp64, 4, &1.0_f64.to_le_bytes()), 0.25_f64.to_le_bytes());
    let half = |value: f32| f16::from_f32(value).to_le_bytes();
    assert_eq!(divided(DataType::Fp16, 8, &half(4.0)), half(0.5));
}

#[test]
fn no_rank_leaves_a_barrier_before_every_rank_has_entered() {
    for ranks in 1..40 {
        let mut schedule = barrier(ranks);
        // A chunk carries one flag for each rank that its sender has received from.
        for step in schedule.steps.iter_mut().flatten() {
            if let Step::Receive { from, .. } = *step {
                *step = Step::Reduce { from, chunk: 0 };
            }
        }
        let flags = |rank| (0..ranks).map(|other| u8::from(other == rank)).collect();
        let mut buffers: Vec<Vec<u8>> = (0..ranks).map(flags).collect();
        run(&schedule, &mut buffers, DataType::U8, Reduction::Max).unwrap();
        assert!(buffers.iter().flatten().all(|&flags| flags == 1), "{ranks} ranks");
    }
}

#[test]
fn a_deadlocked_rank_is_named() {
    let mut schedule = all_reduce_ring(&[0, 1, 2]);
    schedule.steps[1].truncate(3);
    let mut buffers = alloc::vec![alloc::vec![0; 12]; 3];
    let error = run(&schedule, &mut buffers, DataType::Fp32, Reduction::Sum).unwrap_err();
    assert_eq!(error, Deadlock { rank: 0, step: 7, steps: 8 });
}

#[test]
fn reductions_are_those_of_their_type() {
    let reduce = |data_type: DataType, reduction, a: &[u8], b: &[u8]| {
        let mut into = a.to_vec();
        data_type.reduce(reduction, &mut into, b);
        into
    };
    let half = |value: f32| f16::from_f32(value).to_le_bytes();
    // 2048 + 1 is not a binary16 number; ties go to even.
    assert_eq!(reduce(DataType::Fp16, Reduction::Sum, &half(2048.0), &half(1.0)), half(2048.0));
    assert_eq!(reduce(DataType::Fp16, Reduction::Sum, &half(2048.0), &half(3.0)), half(2052.0));
    assert_eq!(
        reduce(DataType::Fp16, Reduction::Sum, &half(65_504.0), &half(65_504.0)),
        half(f32::INFINITY)
    );
    let brain = |value: f32| bf16::from_f32(value).to_le_bytes();
    assert_eq!(reduce(DataType::Bf16, Reduction::Product, &brain(1.5), &brain(-3.0)), brain(-4.5));
    let word = |value: i32| value.to_le_bytes();
    assert_eq!(reduce(DataType::Int32, Reduction::Sum, &word(i32::MAX), &word(1)), word(i32::MIN));
    assert_eq!(reduce(DataType::Int32, Reduction::Min, &word(-5), &word(3)), word(-5));
    assert_eq!(reduce(DataType::U8, Reduction::Max, &[200, 3], &[100, 4]), [200, 4]);
    assert_eq!(reduce(DataType::Int8, Reduction::Min, &[0xff, 3], &[1, 4]), [0xff, 3]);
    assert_eq!(reduce(DataType::Int16, Reduction::Sum, &[0xff, 0x7f], &[1, 0]), [0, 0x80]);
    assert_eq!(reduce(DataType::U8, Reduction::BitXor, &[0b1100], &[0b1010]), [0b0110]);
    assert_eq!(reduce(DataType::Int32, Reduction::BitAnd, &word(-2), &word(7)), word(6));
    assert_eq!(reduce(DataType::Int64, Reduction::BitOr, &[1; 8], &[2; 8]), [3; 8]);
    // E4M3's 1.125 and 16 have no sum of their own; 448 is the largest number.
    assert_eq!(reduce(DataType::E4m3, Reduction::Sum, &[0x39, 0x7e], &[0x58, 0x7e]), [0x59, 0x7f]);
    assert_eq!(
        reduce(DataType::E5m2, Reduction::Product, &[0x3e, 0x7b], &[0xbe, 0x7b]),
        [0xc0, 0x7c]
    );
    for (reduction, want) in [
        (Reduction::Sum, [0, 1, 1]),
        (Reduction::Product, [0, 0, 1]),
        (Reduction::Min, [0, 0, 1]),
        (Reduction::Max, [0, 1, 1]),
        (Reduction::BitAnd, [0, 0, 1]),
        (Reduction::BitOr, [0, 1, 1]),
        (Reduction::BitXor, [0, 1, 0]),
    ] {
        assert_eq!(
            reduce(DataType::Bool, reduction, &[0, 2, 1], &[0, 0, 4]),
            want,
            "{reduction:?}"
        );
    }
    let long = |value: f64| value.to_le_bytes();
    // 2^53 is the last whole number before gaps in binary64.
    assert_eq!(
        reduce(DataType::Fp64, Reduction::Sum, &long(9.007_199_254_740_991e15), &long(1.0)),
        long(9.007_199_254_740_992e15)
    );
}

/// Returns the time at which both channels are done and the blocks that each took; rates are in blocks per 1,000 ticks.
fn finish(windows: &mut Windows, inner: u64, network: impl Fn(u64) -> u64) -> (u64, [usize; 2]) {
    let (mut clock, mut taken) = ([0u64; 2], [0; 2]);
    let mut seen = std::collections::BTreeSet::new();
    loop {
        // The channel that is free first takes the next window.
        let first = usize::from(clock[1] < clock[0]);
        let mut step = |side: usize| {
            let channel = if side == 0 { Channel::Inner } else { Channel::Network };
            let blocks = windows.next(channel)?;
            let rate = if side == 0 { inner } else { network(clock[1]) };
            clock[side] += blocks.len() as u64 * 1_000 / rate;
            taken[side] += blocks.len();
            for block in blocks {
                assert!(seen.insert(block), "block {block} twice");
            }
            Some(())
        };
        if step(first).or_else(|| step(1 - first)).is_none() {
            assert_eq!(seen.len(), taken[0] + taken[1]);
            return (clock[0].max(clock[1]), taken);
        }
    }
}

#[test]
fn the_papers_windows_are_two_blocks_and_one() {
    let mut windows = Windows::new(9, 100, 50);
    assert_eq!(windows.next(Channel::Inner), Some(0..2));
    assert_eq!(windows.next(Channel::Network), Some(8..9));
    assert_eq!(windows.next(Channel::Inner), Some(2..4));
    assert_eq!(windows.next(Channel::Inner), Some(4..6));
    assert_eq!(windows.next(Channel::Network), Some(7..8));
    assert_eq!(windows.next(Channel::Inner), Some(6..7), "what is left");
    assert_eq!((windows.next(Channel::Network), windows.next(Channel::Inner)), (None, None));
}

#[test]
fn two_channels_carry_the_sum_of_their_rates_and_adapt_to_a_slower_network() {
    // 300 blocks at 100 and 50 per 1,000 ticks take 2,000 ticks on both channels and 3,000 on the first alone.
    let (time, taken) = finish(&mut Windows::new(300, 100, 50), 100, |_| 50);
    assert!((2_000..=2_040).contains(&time), "{time}");
    assert_eq!(taken, [200, 100]);
    // The network drops to a tenth half-way: it takes fewer blocks, and delays the end by at most its last window.
    let (time, taken) =
        finish(&mut Windows::new(300, 100, 50), 100, |now| if now < 1_000 { 50 } else { 5 });
    assert!(time <= 2_700, "{time}");
    assert!(taken[1] < 65, "{taken:?}");
}

#[test]
fn small_messages_stay_on_the_fast_channel() {
    let windows = |bytes| Windows::for_message(bytes, 64, 360_000_000_000, 40_000_000_000, 60_000);
    // 1 MB takes 3 us inside the server, and over the network at least 60 us.
    assert_eq!(windows(1_000_000).next(Channel::Network), None);
    assert!(windows(64_000_000).next(Channel::Network).is_some());
}
