//! Buffers whose results are known beforehand, for those who check them: computed plainly, without schedules.

use half::{bf16, f16};
use weft_plan::collective::DataType;

use crate::{Call, Collective, Op};

/// What an element of a rank's buffer is before a call: small whole numbers, such that results are whole numbers that
/// every type has, up to some ten ranks.
pub fn value(call: &Call, ranks: usize, rank: usize, at: usize) -> i64 {
    let few = |number: usize| i64::try_from(number).expect("a small number");
    match call.op {
        Op::Product if call.collective.reduces() => {
            1 + few(usize::from((at + rank).is_multiple_of(ranks)))
        }
        // Means of multiples are whole numbers.
        Op::Average if call.collective.reduces() => few(ranks * ((at + rank) % 2)),
        _ => few((at.wrapping_mul(5) + rank * 3) % 8),
    }
}

fn reduced(call: &Call, ranks: usize, at: usize, value: impl Fn(usize, usize) -> i64) -> i64 {
    let all = (0..ranks).map(|rank| value(rank, at));
    match call.op {
        Op::Sum => all.sum(),
        Op::Product => all.product(),
        Op::Min => all.min().unwrap_or(0),
        Op::Max => all.max().unwrap_or(0),
        Op::Average => all.sum::<i64>() / i64::try_from(ranks).expect("few ranks"),
    }
}

/// What an element of a rank's buffer must be afterwards, where `value(rank, at)` is what it was: none where it may be
/// anything.
pub fn expected(
    call: &Call,
    ranks: usize,
    rank: usize,
    at: usize,
    value: impl Fn(usize, usize) -> i64,
) -> Option<i64> {
    let part = (call.elements / call.collective.parts(ranks)).max(1);
    match call.collective {
        Collective::AllReduce => Some(reduced(call, ranks, at, value)),
        Collective::AllGather => Some(value(at / part, at)),
        Collective::ReduceScatter => (at / part == rank).then(|| reduced(call, ranks, at, value)),
        Collective::Broadcast => Some(value(call.root, at)),
        Collective::Reduce => (rank == call.root).then(|| reduced(call, ranks, at, value)),
        Collective::AllToAll if at >= ranks * part => {
            Some(value(at / part - ranks, rank * part + at % part))
        }
        Collective::Gather if rank == call.root => Some(value(at / part, at)),
        Collective::Scatter if at / part == rank => Some(value(call.root, at)),
        Collective::SendReceive if at >= part => Some(value((rank + ranks - 1) % ranks, at - part)),
        Collective::AllToAll
        | Collective::Gather
        | Collective::Scatter
        | Collective::SendReceive
        | Collective::Barrier => Some(value(rank, at)),
    }
}

/// Writes a small whole number as an element.
///
/// # Panics
/// If the type has no such number, or the element another size.
pub fn encode(data_type: DataType, value: i64, element: &mut [u8]) {
    let short = i16::try_from(value).expect("a small number");
    match data_type {
        DataType::Fp32 => element.copy_from_slice(&f32::from(short).to_le_bytes()),
        DataType::Fp16 => element.copy_from_slice(&f16::from_f32(short.into()).to_le_bytes()),
        DataType::Bf16 => element.copy_from_slice(&bf16::from_f32(short.into()).to_le_bytes()),
        DataType::Fp64 => element.copy_from_slice(&f64::from(short).to_le_bytes()),
        DataType::Int32 => element.copy_from_slice(&i32::from(short).to_le_bytes()),
        DataType::Int64 => element.copy_from_slice(&value.to_le_bytes()),
        DataType::U8 => element.copy_from_slice(&[u8::try_from(value).expect("a byte")]),
        DataType::Int8 => {
            element.copy_from_slice(&i8::try_from(value).expect("a byte").to_le_bytes());
        }
    }
}

/// Fills a rank's buffer for a call.
pub fn fill(call: &Call, ranks: usize, rank: usize, buffer: &mut [u8]) {
    for (at, element) in buffer.chunks_exact_mut(call.data_type.size()).enumerate() {
        encode(call.data_type, value(call, ranks, rank, at), element);
    }
}

/// Elements of a rank's buffer that are not what they must be after the call.
pub fn wrong(call: &Call, ranks: usize, rank: usize, buffer: &[u8]) -> u64 {
    let size = call.data_type.size();
    let mut want = [0; 8];
    let is_wrong = |(at, got): (usize, &[u8])| {
        let value = |rank, at| value(call, ranks, rank, at);
        let Some(expected) = expected(call, ranks, rank, at, value) else { return false };
        encode(call.data_type, expected, &mut want[..size]);
        *got != want[..size]
    };
    let wrong = buffer.chunks_exact(size).enumerate().map(is_wrong).filter(|wrong| *wrong).count();
    wrong as u64
}
