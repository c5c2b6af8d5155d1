//! The pictures of `docs/internals.md`: the crates by layer, and a packet's way through files.

use std::path::Path;

use anyhow::Result;

mod crates;
mod journey;
mod svg;

/// Returns the pictures: their paths from the repository's root, and their texts.
///
/// # Errors
/// Returns an error if `cargo metadata` fails, or if a file of a packet's way does not exist.
pub(super) fn render(root: &Path) -> Result<[(&'static str, String); 2]> {
    Ok([
        ("docs/pictures/crates.svg", crates::render(&crate::layers::by_layer(root)?)),
        ("docs/pictures/journey.svg", journey::render(root)?),
    ])
}
