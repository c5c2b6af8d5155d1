//! The library as programs load it.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

/// The folder.
pub(crate) static LIBRARY: LazyLock<PathBuf> = LazyLock::new(|| {
    weft_testkit::link_verbs(Path::new(env!("CARGO_TARGET_TMPDIR")).join("verbs"), false)
});

/// A copy of the folder that every user can read: the one above lies in the home of whoever builds, which others may not
/// enter. It goes away when it is dropped.
pub(crate) struct ForEverybody(pub(crate) PathBuf);

impl ForEverybody {
    pub(crate) fn new() -> Self {
        let folder = std::env::temp_dir().join(format!("weft-library-{}", std::process::id()));
        let everybody = Permissions::from_mode(0o755);
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, everybody.clone()).unwrap();
        for file in fs::read_dir(&*LIBRARY).unwrap().map(Result::unwrap) {
            let copy = folder.join(file.file_name());
            fs::copy(file.path(), &copy).unwrap();
            fs::set_permissions(copy, everybody.clone()).unwrap();
        }
        Self(folder)
    }
}

impl Drop for ForEverybody {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A program on our device.
pub(crate) fn program(words: &[&str]) -> Command {
    weft_testkit::program_on(&LIBRARY, words)
}
