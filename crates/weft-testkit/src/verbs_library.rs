//! Weft's libibverbs as programs load it, linked from the archive that cargo built for a test.

use std::fs::DirEntry;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::xtask::xtask;

/// Links the archives of `weft-verbs` and, if `rdmacm` is set, of `weft-rdmacm` into `folder`, and returns the folder,
/// for `LD_LIBRARY_PATH`. The test's crate must depend on these crates, or the archives are stale.
///
/// # Panics
/// Panics if linking fails.
pub fn link_verbs(folder: PathBuf, rdmacm: bool) -> PathBuf {
    link(folder, rdmacm.then_some("rdmacm"))
}

/// Links the archives of `weft-verbs` and `weft-nic-ports`, like [`link_verbs`].
///
/// # Panics
/// Panics if linking fails.
pub fn link_nic_ports(folder: PathBuf) -> PathBuf {
    link(folder, Some("nic-ports"))
}

/// Links the archives of `weft-verbs` and `weft-malloc`, like [`link_verbs`].
///
/// # Panics
/// Panics if linking fails.
pub fn link_malloc(folder: PathBuf) -> PathBuf {
    link(folder, Some("malloc"))
}

/// Links libibverbs, and another library by the name of its option.
fn link(folder: PathBuf, other: Option<&str>) -> PathBuf {
    let mut link = xtask();
    link.arg("verbs").arg("--archive").arg(archive("weft_verbs"));
    if let Some(name) = other {
        let package = format!("weft_{}", name.replace('-', "_"));
        link.arg(format!("--{name}")).arg(archive(&package));
    }
    let linked = link.arg("--out").arg(&folder).output().expect("it runs");
    assert!(linked.status.success(), "{}", String::from_utf8_lossy(&linked.stderr));
    folder
}

/// Loads the libibverbs of a folder into this process for later requests for `libibverbs.so.1`. It is never unloaded.
///
/// # Panics
/// Panics if the library does not load.
pub fn load_verbs(folder: &Path) {
    let path = folder.join("libibverbs.so.1");
    // SAFETY: the only initialisation that libibverbs runs on load is the registration of drivers.
    let library = unsafe { libloading::Library::new(&path) };
    core::mem::forget(library.unwrap_or_else(|error| panic!("{}: {error}", path.display())));
}

/// Returns a command that runs the program `words[0]` with the arguments `words[1..]` and the libraries in a folder.
/// The program is ended after 30 s.
pub fn program_on(libraries: &Path, words: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", "30"]).args(words);
    command.env("LD_LIBRARY_PATH", libraries);
    command
}

/// Returns the newest archive of a crate in the folder of this test's executable.
///
/// # Panics
/// Panics if there is none.
pub(crate) fn archive(name: &str) -> PathBuf {
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
