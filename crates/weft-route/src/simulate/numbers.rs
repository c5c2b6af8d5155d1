//! Whole numbers of flows, bits and seconds as binary64, in which the simulation computes, and back.

/// Returns a count or a size.
#[expect(clippy::cast_precision_loss, reason = "counts and sizes are far below 2^52")]
pub(super) const fn to_f64(count: u64) -> f64 {
    count as f64
}

/// Returns a value rounded down, at least 0.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "casts saturate")]
pub(super) const fn whole(value: f64) -> u64 {
    value as u64
}
