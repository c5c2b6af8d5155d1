//! Weft's libxrdma as C programs find it, from the files that cargo built for a test.

use std::path::PathBuf;

use crate::xtask::xtask;

/// Installs libxrdma in `folder` with its header and pkg-config file, and returns the folder. The test's crate must be
/// or depend on `weft-xrdma-c`, or the library is stale.
///
/// # Panics
/// Panics if the installation fails.
pub fn install_xrdma(folder: PathBuf) -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    let mut lay_out = xtask();
    lay_out
        .args(["xrdma", "--built"])
        .arg(test.parent().expect("in a folder"))
        .arg("--out")
        .arg(&folder);
    let done = lay_out.output().expect("it runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    folder
}
