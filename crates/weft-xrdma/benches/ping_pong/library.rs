//! The library for the programs to load, and the bare ping-pong.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

// The archives are made with the libraries.
use {weft_rdmacm as _, weft_verbs as _};

/// The folder of the library.
pub(crate) static LIBRARY: LazyLock<PathBuf> = LazyLock::new(|| {
    weft_testkit::link_verbs(Path::new(env!("CARGO_TARGET_TMPDIR")).join("ping-pong-bench"), true)
});

/// `examples/bare/ping_pong.c`, compiled.
pub(crate) static BARE: LazyLock<String> = LazyLock::new(|| {
    let program = LIBRARY.join("bare-ping-pong");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/bare/ping_pong.c");
    let compiled = Command::new("cc")
        .args(["-O2", source, "-libverbs", "-o"])
        .arg(&program)
        .status()
        .expect("a C compiler");
    assert!(compiled.success(), "{source} does not compile (apt-get install libibverbs-dev)");
    program.to_str().expect("a path of ours").to_owned()
});

/// Returns a command that runs a program on our device, which UCX finds too.
pub(crate) fn program(words: &[&str]) -> Command {
    let mut command = weft_testkit::program_on(&LIBRARY, words);
    command.env("LD_PRELOAD", LIBRARY.join("libweft_preload.so"));
    command
}
