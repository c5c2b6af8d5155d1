//! Buffers, and what they must hold afterwards: computed plainly, without schedules.

use alloc::vec::Vec;

use half::{bf16, f16};
use weft_plan::collective::DataType;
use weft_units::Rng;

use crate::{Call, Collective, Op};

/// An element from a small whole number.
pub(super) fn element(data_type: DataType, value: i64) -> Vec<u8> {
    let short = i8::try_from(value).expect("a small number");
    match data_type {
        DataType::Fp32 => f32::from(short).to_le_bytes().to_vec(),
        DataType::Fp16 => f16::from_f32(short.into()).to_le_bytes().to_vec(),
        DataType::Bf16 => bf16::from_f32(short.into()).to_le_bytes().to_vec(),
        DataType::Fp64 => f64::from(short).to_le_bytes().to_vec(),
        DataType::Int32 => i32::from(short).to_le_bytes().to_vec(),
        DataType::Int64 => i64::from(short).to_le_bytes().to_vec(),
        DataType::U8 => alloc::vec![u8::try_from(value).expect("not negative")],
        DataType::Int8 => short.to_le_bytes().to_vec(),
    }
}

/// Every rank's values for a call, such that each result is a whole number that every type has.
pub(super) fn values(call: &Call, ranks: usize, rng: &mut Rng) -> Vec<Vec<i64>> {
    let most = if call.op == Op::Product { 2 } else { 8 };
    let draw = |rng: &mut Rng| -> i64 {
        let value = i64::try_from(rng.below(most)).expect("small");
        // Means of multiples are whole numbers, also of one rank's part alone.
        if call.op == Op::Average { value % 2 * i64::try_from(ranks).expect("few") } else { value }
    };
    (0..ranks).map(|_| (0..call.elements).map(|_| draw(rng)).collect()).collect()
}

pub(super) fn encode(data_type: DataType, values: &[i64]) -> Vec<u8> {
    values.iter().flat_map(|&value| element(data_type, value)).collect()
}

fn reduced(call: &Call, values: &[Vec<i64>], at: usize) -> i64 {
    let all = values.iter().map(|values| values[at]);
    match call.op {
        Op::Sum => all.sum(),
        Op::Product => all.product(),
        Op::Min => all.min().expect("ranks"),
        Op::Max => all.max().expect("ranks"),
        Op::Average => all.sum::<i64>() / i64::try_from(values.len()).expect("few"),
    }
}

/// What a rank's buffer must hold: none where it may hold anything.
pub(super) fn expected(call: &Call, values: &[Vec<i64>], rank: usize) -> Vec<Option<i64>> {
    let ranks = values.len();
    let part = call.elements / call.collective.parts(ranks);
    let own = |at: usize| Some(values[rank][at]);
    let wanted = |at: usize| match call.collective {
        Collective::AllReduce => Some(reduced(call, values, at)),
        Collective::AllGather => Some(values[at / part][at]),
        Collective::ReduceScatter => (at / part == rank).then(|| reduced(call, values, at)),
        Collective::Broadcast => Some(values[call.root][at]),
        Collective::Reduce => (rank == call.root).then(|| reduced(call, values, at)),
        Collective::AllToAll if at >= ranks * part => {
            let from = at / part - ranks;
            Some(values[from][rank * part + at % part])
        }
        Collective::Gather if rank == call.root => Some(values[at / part][at]),
        Collective::Scatter if at / part == rank => Some(values[call.root][at]),
        Collective::SendReceive if at >= part => {
            Some(values[(rank + ranks - 1) % ranks][at - part])
        }
        Collective::AllToAll
        | Collective::Gather
        | Collective::Scatter
        | Collective::SendReceive
        | Collective::Barrier => own(at),
    };
    (0..call.elements).map(wanted).collect()
}

/// Compares a buffer with what it must hold.
pub(super) fn check(call: &Call, values: &[Vec<i64>], rank: usize, buffer: &[u8]) {
    let size = call.data_type.size();
    let want = expected(call, values, rank);
    for (at, (got, want)) in buffer.chunks_exact(size).zip(want).enumerate() {
        if let Some(want) = want {
            assert_eq!(got, element(call.data_type, want), "{call}: rank {rank}, element {at}");
        }
    }
}

/// A random call.
pub(super) fn call(ranks: usize, most: usize, rng: &mut Rng) -> Call {
    let collective = Collective::ALL[rng.index(Collective::ALL.len())];
    let parts = collective.parts(ranks);
    let elements = rng.index(most) / parts * parts;
    let elements = if collective == Collective::Barrier { 0 } else { elements };
    let data_type = DataType::ALL[rng.index(DataType::ALL.len())];
    Call {
        collective,
        data_type,
        op: Op::ALL[rng.index(Op::ALL.len())],
        root: rng.index(ranks),
        elements,
    }
}
