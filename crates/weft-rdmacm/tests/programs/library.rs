//! The libraries in the form that programs load.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

/// The folder of the libraries.
pub(crate) static LIBRARY: LazyLock<PathBuf> = LazyLock::new(|| {
    // Several programs of tests include this file and run at once: each links its own.
    let own = concat!(env!("CARGO_PKG_NAME"), "-", env!("CARGO_CRATE_NAME"));
    weft_testkit::link_verbs(Path::new(env!("CARGO_TARGET_TMPDIR")).join(own), true)
});

/// Returns a command that runs on this device.
pub(crate) fn program(words: &[&str]) -> Command {
    weft_testkit::program_on(&LIBRARY, words)
}
