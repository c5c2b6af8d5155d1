//! Programs that wait for others.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A server that has said where it listens. It is killed when it is dropped.
#[derive(Debug)]
pub struct Server {
    /// The program.
    pub child: Child,
    /// An address of this host that it listens at.
    pub at: String,
}

impl Server {
    /// Starts a program on the libraries in a folder. The first line it says ends in `:PORT`.
    ///
    /// # Panics
    /// If it does not start, or says no port.
    pub fn start(libraries: &Path, words: &[&str]) -> Self {
        // Without a shell or a timeout between: it is to be killed, not asked.
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).env("LD_LIBRARY_PATH", libraries);
        Self::of(command)
    }

    /// Starts a command. The first line it says ends in `:PORT`.
    ///
    /// # Panics
    /// If it does not start, or says no port.
    pub fn of(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let line = lines.next().expect("it says where").expect("in words");
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
