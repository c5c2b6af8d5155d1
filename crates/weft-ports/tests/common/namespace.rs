//! Network namespaces that are deleted when their value is dropped.

use std::process::Command;

/// A network namespace created by `ip netns`.
pub(crate) struct Namespace(pub(crate) String);

impl Namespace {
    /// Creates a namespace, and deletes one of this name that an earlier run left.
    pub(crate) fn new(name: &str) -> Self {
        let _ = Command::new("ip").args(["netns", "del", name]).output();
        run("ip", &["netns", "add", name]);
        run("ip", &["-n", name, "link", "set", "lo", "up"]);
        Self(name.into())
    }

    /// Runs `ip` inside the namespace.
    pub(crate) fn ip(&self, arguments: &[&str]) -> String {
        run("ip", &[&["-n", &self.0], arguments].concat())
    }

    /// Runs `action` on a thread inside the namespace.
    pub(crate) fn enter<T: Send>(&self, action: impl FnOnce() -> T + Send) -> T {
        weft_lab::enter(&self.0, action).unwrap()
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).output();
    }
}

/// Runs a program, which must succeed, and returns its output.
pub(crate) fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}
