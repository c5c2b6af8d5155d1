//! Random calls, their buffers, and their expected results.

use alloc::vec::Vec;

use weft_plan::collective::DataType;
use weft_units::Rng;

use crate::{Call, Collective, Op, pattern};

/// Encodes a small whole number as an element.
fn element(data_type: DataType, value: i64) -> Vec<u8> {
    let mut element = alloc::vec![0; data_type.size()];
    pattern::encode(data_type, value, &mut element);
    element
}

/// Returns every rank's values for a call, such that each result is a whole number that every type can represent.
pub(super) fn values(call: &Call, ranks: usize, rng: &mut Rng) -> Vec<Vec<i64>> {
    let few = matches!(call.data_type, DataType::Bool | DataType::E4m3 | DataType::E5m2);
    let limit = if call.op == Op::Product || few { 2 } else { 8 };
    let draw = |rng: &mut Rng| -> i64 {
        let value = i64::try_from(rng.below(limit)).expect("small");
        // Means of multiples are whole numbers, even for one rank's part.
        if call.op == Op::Average { value % 2 * i64::try_from(ranks).expect("few") } else { value }
    };
    (0..ranks).map(|_| (0..call.elements).map(|_| draw(rng)).collect()).collect()
}

pub(super) fn encode(data_type: DataType, values: &[i64]) -> Vec<u8> {
    values.iter().flat_map(|&value| element(data_type, value)).collect()
}

/// Compares a buffer with its expected values.
pub(super) fn check(call: &Call, values: &[Vec<i64>], rank: usize, buffer: &[u8]) {
    let size = call.data_type.size();
    for (at, got) in buffer.chunks_exact(size).enumerate() {
        let want = pattern::expected(call, values.len(), rank, at, |rank, at| values[rank][at]);
        if let Some(want) = want {
            assert_eq!(got, element(call.data_type, want), "{call}: rank {rank}, element {at}");
        }
    }
}

/// Returns a random call.
pub(super) fn call(ranks: usize, limit: usize, rng: &mut Rng) -> Call {
    let collective = Collective::ALL[rng.index(Collective::ALL.len())];
    let parts = collective.parts(ranks);
    let elements = rng.index(limit) / parts * parts;
    let elements = if collective == Collective::Barrier { 0 } else { elements };
    let data_type = DataType::ALL[rng.index(DataType::ALL.len())];
    let ops: Vec<Op> = Op::ALL.into_iter().filter(|op| op.fits(data_type)).collect();
    Call { collective, data_type, op: ops[rng.index(ops.len())], root: rng.index(ranks), elements }
}
