//! Weft's net plugin for NCCL as NCCL loads it, linked from the archive that cargo built for a test.

use std::path::{Path, PathBuf};

use crate::verbs_library::archive;
use crate::xtask::xtask;

/// Links the archive of `weft-nccl` into `folder` and returns the library's path. The test's crate must depend on `weft-nccl`, or the
/// archive is stale.
///
/// # Panics
/// Panics if linking fails.
pub fn link_nccl(folder: &Path) -> PathBuf {
    let mut link = xtask();
    link.arg("nccl").arg("--archive").arg(archive("weft_nccl")).arg("--out").arg(folder);
    let linked = link.output().expect("it runs");
    assert!(linked.status.success(), "{}", String::from_utf8_lossy(&linked.stderr));
    folder.join("libnccl-net-weft.so")
}
