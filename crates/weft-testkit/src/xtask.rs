//! The workspace's own commands, for tests that link libraries.

use std::env;
use std::process::Command;

/// Returns a command that runs `xtask` in the workspace's root. `cargo xtask test`, which runs tests while others are
/// built, names its program in `WEFT_XTASK`: `cargo run` would wait for the end of that build.
pub(crate) fn xtask() -> Command {
    let mut command = env::var_os("WEFT_XTASK").map_or_else(
        || {
            let mut cargo = Command::new(env!("CARGO"));
            cargo.args(["run", "--quiet", "--package", "xtask", "--"]);
            cargo
        },
        Command::new,
    );
    command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    command
}
