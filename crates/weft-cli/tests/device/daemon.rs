//! A daemon, and programs on its devices.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;

use crate::library::{LIBRARY, program};
use crate::pair::{OneHost, Stage};

/// A daemon that ends with the test.
pub(crate) struct Daemon {
    pub(crate) process: Child,
    socket: PathBuf,
}

impl Daemon {
    /// Starts a daemon of this host, with one device, `a`.
    pub(crate) fn start() -> Self {
        Self::start_with(|command| command.spawn().unwrap())
    }

    /// Starts a daemon with one device, `a`; `launch` starts its command.
    pub(crate) fn start_with(launch: impl FnOnce(&mut Command) -> Child) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("weft-device-{}-{number}.sock", std::process::id());
        let socket = std::env::temp_dir().join(name);
        let mut command = weft(&socket, &["device", "serve"]);
        let process = until_serving(launch(command.stdout(Stdio::piped())));
        let daemon = Self { process, socket };
        daemon.succeed(&["device", "create", "a"]);
        daemon
    }

    /// Kills the daemon, and starts another one in its place.
    pub(crate) fn restart(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        self.process = self.serve();
    }

    /// Starts another daemon in the place of one that has ended.
    pub(crate) fn serve(&self) -> Child {
        let mut command = self.command(&["device", "serve"]);
        until_serving(command.stdout(Stdio::piped()).spawn().unwrap())
    }

    /// Returns the file that keeps its devices.
    pub(crate) fn state(&self) -> PathBuf {
        self.socket.with_extension("state")
    }

    /// Returns a command of `weft` that uses this daemon.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        weft(&self.socket, words)
    }

    pub(crate) fn weft(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    /// Returns the output of a command, which must succeed.
    pub(crate) fn succeed(&self, words: &[&str]) -> String {
        let output = self.weft(words);
        assert!(output.status.success(), "{words:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Returns the error of a command, which must fail.
    pub(crate) fn fail(&self, words: &[&str]) -> String {
        let output = self.weft(words);
        assert!(!output.status.success(), "{words:?}: {output:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    pub(crate) fn show(&self, name: &str) -> Value {
        serde_json::from_str(&self.succeed(&["device", "show", name, "--json"])).unwrap()
    }

    /// Sets the variables with which a program uses one of the daemon's devices.
    pub(crate) fn equip(&self, device: &str, command: &mut Command) {
        command.env("WEFT_DEVICE", device).env("WEFT_DEVICE_SOCKET", &self.socket);
    }

    /// Returns the output of a program on device `a`.
    pub(crate) fn run(&self, words: &[&str]) -> Output {
        let mut command = program(words);
        self.equip("a", &mut command);
        command.output().unwrap()
    }
}

/// Waits until a daemon serves.
fn until_serving(mut process: Child) -> Child {
    let mut line = String::new();
    BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("serving at"), "{line}");
    process
}

fn weft(socket: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weft"));
    command.args(words).env("WEFT_DEVICE_SOCKET", socket);
    command
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.process.id().to_string()).status();
        let _ = self.process.wait();
        // A daemon that was killed leaves its socket.
        let _ = std::fs::remove_file(&self.socket);
        let _ = std::fs::remove_file(self.state());
    }
}

/// Starts both ends on this host, on device `a`.
impl Stage for Daemon {
    fn server(&self) -> String {
        OneHost.server()
    }

    fn start(&self, second: bool, command: &mut Command) -> Child {
        self.equip("a", command);
        OneHost.start(second, command)
    }
}

/// A program on a device, without `timeout`, so that its process number is the program's; it ends with the test.
pub(crate) struct Program(pub(crate) Child);

impl Program {
    pub(crate) fn start(daemon: &Daemon, device: &str, words: &str) -> Self {
        let mut words = words.split_whitespace();
        let mut command = Command::new(words.next().unwrap());
        command.args(words).env("LD_LIBRARY_PATH", &*LIBRARY);
        daemon.equip(device, &mut command);
        Self(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
