//! A copy of the library for users without access to the build folder.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use crate::library::LIBRARY;

/// A copy of the folder that every user can read: the build may lie in a home that others may not enter. It is removed
/// when this is dropped.
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
