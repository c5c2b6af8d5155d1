//! C programs that belong to these tests.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles `c/NAME.c` with a compiler of a Debian package.
pub(crate) fn compiled(compiler: &str, name: &str, libraries: &[&str], package: &str) -> PathBuf {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/c");
    let source = Path::new(folder).join(name).with_extension("c");
    let binary = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let mut command = Command::new(compiler);
    command.args(["-O1", "-Wall"]).arg(source).arg("-o").arg(&binary).args(libraries);
    let output = command.output();
    let output =
        output.unwrap_or_else(|error| panic!("{compiler}: {error} (apt-get install {package})"));
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaint} (apt-get install {package})");
    binary
}
