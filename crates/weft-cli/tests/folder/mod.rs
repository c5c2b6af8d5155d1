//! A folder of a test's own, in which it runs `weft`.

use std::path::{Path, PathBuf};
use std::process::Output;

use assert_cmd::Command;
use serde_json::Value;

/// A folder that is removed when the test ends.
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// Makes a folder. Each test has a name of its own.
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("weft-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file, and the folders above it.
    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        let file = self.0.join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, bytes).unwrap();
    }

    pub(crate) fn weft(&self, arguments: &[&str]) -> Output {
        let mut command = Command::cargo_bin("weft").unwrap();
        command.current_dir(&self.0).args(arguments).output().unwrap()
    }

    /// Returns what a command prints; it must succeed.
    pub(crate) fn stdout(&self, arguments: &[&str]) -> String {
        let output = self.weft(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.stdout(arguments)).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}
