//! The libraries in the form that programs load.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

/// The folder of the libraries.
pub(crate) static LIBRARY: LazyLock<PathBuf> = LazyLock::new(|| {
    weft_testkit::link_verbs(Path::new(env!("CARGO_TARGET_TMPDIR")).join("rdmacm"), true)
});

/// Returns a command that runs on this device.
pub(crate) fn program(words: &[&str]) -> Command {
    weft_testkit::program_on(&LIBRARY, words)
}
