//! Test patterns for buffers, with expected results that are computed without schedules.

use half::{bf16, f16};
use weft_plan::collective::{Content, DataType, E4m3, E5m2, Element};

use crate::{Call, Op};

/// Returns the initial value of an element: a small whole number, chosen such that results are whole numbers
/// that every type can represent, for up to about ten ranks (eight if floats have 8 bits).
pub fn value(call: &Call, ranks: usize, rank: usize, at: usize) -> i64 {
    let signed = |number: usize| i64::try_from(number).expect("a small number");
    match call.op {
        Op::Product if call.collective.reduces() => {
            1 + signed(usize::from((at + rank).is_multiple_of(ranks)))
        }
        // Means of multiples of the number of ranks are whole numbers.
        Op::Average if call.collective.reduces() => signed(ranks * ((at + rank) % 2)),
        _ => signed((at.wrapping_mul(5) + rank * 3) % limit(call.data_type)),
    }
}

/// Returns the limit of values, such that their sums are exact.
const fn limit(data_type: DataType) -> usize {
    match data_type {
        DataType::Bool | DataType::E4m3 | DataType::E5m2 => 2,
        _ => 8,
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
        Op::BitAnd => all.fold(-1, |a, b| a & b),
        Op::BitOr => all.fold(0, |a, b| a | b),
        Op::BitXor => all.fold(0, |a, b| a ^ b),
    }
}

/// Returns the expected value of an element after the call, given the initial values `value(rank, at)`; `None`
/// if the element is unspecified.
pub fn expected(
    call: &Call,
    ranks: usize,
    rank: usize,
    at: usize,
    value: impl Fn(usize, usize) -> i64,
) -> Option<i64> {
    let chunk = (call.elements / call.collective.parts(ranks)).max(1);
    let element = Element { at, rank, ranks, root: call.root, chunk };
    match call.collective.content(element) {
        Content::Of { rank, at } => Some(value(rank, at)),
        Content::Reduced => Some(reduced(call, ranks, at, value)),
        Content::Unspecified => None,
    }
}

/// Encodes a small whole number as an element.
///
/// # Panics
/// If the type cannot represent the number, or the element has a different size.
pub fn encode(data_type: DataType, value: i64, element: &mut [u8]) {
    let small = i16::try_from(value).expect("a small number");
    match data_type {
        DataType::Fp32 => element.copy_from_slice(&f32::from(small).to_le_bytes()),
        DataType::Fp16 => element.copy_from_slice(&f16::from_f32(small.into()).to_le_bytes()),
        DataType::Bf16 => element.copy_from_slice(&bf16::from_f32(small.into()).to_le_bytes()),
        DataType::Fp64 => element.copy_from_slice(&f64::from(small).to_le_bytes()),
        DataType::Int32 => element.copy_from_slice(&i32::from(small).to_le_bytes()),
        DataType::Int64 => element.copy_from_slice(&value.to_le_bytes()),
        DataType::U8 => element.copy_from_slice(&[u8::try_from(value).expect("a byte")]),
        DataType::Int8 => {
            element.copy_from_slice(&i8::try_from(value).expect("a byte").to_le_bytes());
        }
        DataType::Int16 => element.copy_from_slice(&small.to_le_bytes()),
        DataType::Bool => element.copy_from_slice(&[u8::from(value != 0)]),
        DataType::E4m3 => element.copy_from_slice(&E4m3::from_f32(small.into()).to_le_bytes()),
        DataType::E5m2 => element.copy_from_slice(&E5m2::from_f32(small.into()).to_le_bytes()),
    }
}

/// Fills a rank's buffer with the initial values of a call.
pub fn fill(call: &Call, ranks: usize, rank: usize, buffer: &mut [u8]) {
    for (at, element) in buffer.chunks_exact_mut(call.data_type.size()).enumerate() {
        encode(call.data_type, value(call, ranks, rank, at), element);
    }
}

/// Returns the number of elements of a rank's buffer that differ from their expected values after the call.
pub fn count_mismatches(call: &Call, ranks: usize, rank: usize, buffer: &[u8]) -> u64 {
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
