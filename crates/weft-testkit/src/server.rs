//! Server programs for tests.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A running server that has printed its port. It is killed when it is dropped.
#[derive(Debug)]
pub struct Server {
    /// The process.
    pub child: Child,
    /// The address on this host at which it listens.
    pub at: String,
}

impl Server {
    /// Starts the program `words[0]` with the arguments `words[1..]` and the libraries in a folder. The first line of
    /// its output must end in `:PORT`.
    ///
    /// # Panics
    /// Panics if `words` is empty, or if the program does not start or prints no port.
    pub fn start(libraries: &Path, words: &[&str]) -> Self {
        // The program is started without a shell or `timeout` in between, so that a kill reaches it.
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).env("LD_LIBRARY_PATH", libraries);
        Self::of(command)
    }

    /// Starts a command. The first line of its output must end in `:PORT`.
    ///
    /// # Panics
    /// Panics if the program does not start or prints no port.
    pub fn of(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let line = lines.next().expect("it prints a line").expect("in UTF-8");
        let port = line.rsplit(':').next().expect("a port");
        let at = format!("127.0.0.1:{port}");
        Self { child, at }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
