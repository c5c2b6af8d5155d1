//! The host of virtual machines: a daemon in a thread of the test, and programs on its device `host`.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;

use weft_verbs::{Admin, Amounts, Daemon, DaemonSettings, DeviceState, ServeError, Stopper};

use crate::library::LIBRARY;
use crate::pair::{next_port, until_listening};

/// A daemon that ends with the test.
pub(crate) struct Host {
    pub(crate) socket: PathBuf,
    stopper: Stopper,
    thread: Option<JoinHandle<Result<(), ServeError>>>,
}

impl Host {
    /// Starts a daemon with `host` and other devices.
    pub(crate) fn start(devices: &[&str]) -> Self {
        let name = format!("weft-host-{}-{}.sock", devices[0], std::process::id());
        let socket = std::env::temp_dir().join(name);
        let daemon = Daemon::open(&socket, DaemonSettings::default()).unwrap();
        let stopper = daemon.stopper();
        let thread = Some(std::thread::spawn(|| daemon.run(|| ())));
        let host = Self { socket, stopper, thread };
        for name in [&["host"], devices].concat() {
            host.admin().create(name, None, Amounts::default()).unwrap();
        }
        host
    }

    fn admin(&self) -> Admin {
        Admin::connect(Some(&self.socket)).unwrap()
    }

    pub(crate) fn show(&self, device: &str) -> DeviceState {
        self.admin().show(device).unwrap()
    }

    /// Starts a program on this machine.
    pub(crate) fn run(&self, words: &str) -> Program {
        // UCX looks for the device's node in /dev, and any character device suffices: no other process sees this one.
        let node = "mkdir -p /dev/infiniband && mount -t tmpfs none /dev/infiniband && \
                    ln -s /dev/null /dev/infiniband/host && exec \"$@\"";
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", node, "sh"]).args(words.split_whitespace());
        command.env("LD_LIBRARY_PATH", &*LIBRARY).env("UCX_NET_DEVICES", "host:1");
        command.env("WEFT_DEVICE", "host").env("WEFT_DEVICE_SOCKET", &self.socket);
        Program(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    }

    /// Starts a program that listens on a port of this machine.
    pub(crate) fn listen(&self, words: &str) -> (Program, u16) {
        let port = next_port();
        let mut program = self.run(&format!("{words} -p {port}"));
        until_listening(&mut program.0, port);
        (program, port)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.stopper.stop();
        let ended = self.thread.take().unwrap().join();
        if !std::thread::panicking() {
            ended.unwrap().unwrap();
        }
    }
}

/// A program that is killed when this is dropped.
pub(crate) struct Program(pub(crate) Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
