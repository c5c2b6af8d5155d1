//! Random draws from lists, registries and ranges: the values of a case.

use weft_units::{Rng, Seed};

/// Returns one of the values at random.
pub(super) fn pick<T: Copy>(rng: &mut Rng, among: &[T]) -> T {
    among[rng.index(among.len())]
}

/// Returns a row of a registry. A new row takes its share of the draws and leaves the others, so that most seeds keep
/// their case.
pub(super) fn pick_row<T: Copy>(rng: &mut Rng, rows: &[T], name: fn(T) -> &'static str) -> T {
    let draw = Seed(rng.next_u64());
    let chosen = rows.iter().max_by_key(|&&row| draw.child(name(row), 0).0);
    *chosen.expect("registries have rows")
}

/// Returns a number in `1..=max`.
pub(super) fn up_to(rng: &mut Rng, max: u32) -> u32 {
    1 + rng.next_u32() % max
}
