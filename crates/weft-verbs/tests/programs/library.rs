//! The library as programs load it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

/// The folder.
pub(crate) static LIBRARY: LazyLock<PathBuf> = LazyLock::new(|| {
    weft_testkit::link_verbs(Path::new(env!("CARGO_TARGET_TMPDIR")).join("verbs"), false)
});

/// A program on our device.
pub(crate) fn program(words: &[&str]) -> Command {
    weft_testkit::program_on(&LIBRARY, words)
}
