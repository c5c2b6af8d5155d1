//! Programs that publish their state in a folder of each test's own, and the command that reads it.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use serde_json::Value;
use weft_testkit::link_verbs;
// The archive is made with the library.
use weft_verbs as _;

static LIBRARY: LazyLock<PathBuf> =
    LazyLock::new(|| link_verbs(Path::new(env!("CARGO_TARGET_TMPDIR")).join("operate"), false));

/// Returns the path of an example that cargo built with these tests.
pub(crate) fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    let deps = test.parent().expect("in a folder");
    deps.parent().expect("in the build's folder").join("examples").join(name)
}

/// A folder in which programs publish their state; it is removed with the test.
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// Makes a folder. Each test has a name of its own.
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("weft-op-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Returns a program on Weft's libibverbs that publishes its state here.
    pub(crate) fn command(&self, name: &str, words: &[&str]) -> Command {
        let mut command = Command::new(example(name));
        command.args(words).env("LD_LIBRARY_PATH", &*LIBRARY).env("WEFT_STAT", &self.0);
        command
    }

    /// Starts a server that prints its address, on loopback.
    pub(crate) fn server(&self, name: &str) -> Server {
        Server::start(self.command(name, &["0"]))
    }

    /// Starts messages of 64 bytes there and back for as long as the test lasts.
    pub(crate) fn traffic(&self, to: &str) -> Running {
        let mut command = self.command("watched_ping", &[to, "64", "1000000000"]);
        Running(command.stderr(Stdio::null()).spawn().expect("it starts"))
    }

    pub(crate) fn weft(&self, words: &[&str]) -> Output {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("weft"));
        command.args(words).env("WEFT_STAT", &self.0).output().expect("it runs")
    }

    pub(crate) fn json(&self, words: &[&str]) -> Value {
        let output = self.weft(&[words, &["--json"]].concat());
        assert!(output.status.success(), "{words:?}: {}", said(&output));
        serde_json::from_slice(&output.stdout).expect("it is JSON")
    }

    /// Returns the files of programs here.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(&self.0).into_iter().flatten();
        entries.map(|entry| entry.expect("it can be listed").path()).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A program that is ended with its test.
pub(crate) struct Running(pub(crate) Child);

impl Running {
    pub(crate) fn kill(&mut self) {
        self.0.kill().expect("it runs");
        self.0.wait().expect("it ends");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A program that has printed its address.
pub(crate) struct Server {
    pub(crate) running: Running,
    pub(crate) port: String,
}

impl Server {
    pub(crate) fn start(mut command: Command) -> Self {
        let child = command.stdout(Stdio::piped()).spawn().expect("it starts");
        Self::of(child)
    }

    pub(crate) fn of(mut child: Child) -> Self {
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let running = Running(child);
        let line = lines.next().expect("it says where").expect("in words");
        let port = line.rsplit(':').next().expect("a port").to_owned();
        // The rest of its output is read and discarded, because a full pipe would stop it.
        std::thread::spawn(move || lines.for_each(drop));
        Self { running, port }
    }

    pub(crate) fn at(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(crate) fn pid(&self) -> u64 {
        self.running.0.id().into()
    }
}

pub(crate) fn said(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    format!("{}{}", String::from_utf8_lossy(out), String::from_utf8_lossy(err))
}

/// Calls `found` until it returns a value, and returns that.
///
/// # Panics
/// Panics after a minute: the machine may be busy with other tests.
pub(crate) fn until<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "not in time: {what}");
        weft_testkit::pause();
    }
}
