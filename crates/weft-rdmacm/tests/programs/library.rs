//! The libraries as programs load them, linked from the archives that cargo built beside this test.

use std::fs::DirEntry;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

/// The folder with the libraries.
pub(crate) static LIBRARY: LazyLock<PathBuf> = LazyLock::new(|| {
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("rdmacm");
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let linked = Command::new(env!("CARGO"))
        .current_dir(root)
        .args(["run", "--quiet", "--package", "xtask", "--", "verbs", "--archive"])
        .arg(archive("weft_verbs"))
        .arg("--rdmacm")
        .arg(archive("weft_rdmacm"))
        .arg("--out")
        .arg(&out)
        .output()
        .expect("cargo runs");
    assert!(linked.status.success(), "{}", String::from_utf8_lossy(&linked.stderr));
    out
});

/// A crate's archive: the latest beside this test.
fn archive(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    let folder = test.parent().expect("in a folder").read_dir().expect("that can be read");
    let prefix = format!("lib{name}-");
    let archives = folder.filter_map(Result::ok).filter(|entry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        name.starts_with(&prefix) && name.ends_with(".a")
    });
    let made_at = |entry: &DirEntry| entry.metadata().and_then(|about| about.modified()).ok();
    archives.max_by_key(made_at).expect("cargo builds the archive with the library").path()
}

/// A program on our device, ended after half a minute: one that hangs fails.
pub(crate) fn program(words: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", "30"]).args(words);
    command.env("LD_LIBRARY_PATH", &*LIBRARY);
    command
}
