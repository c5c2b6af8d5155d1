//! The device's daemon: programs that are refused, ended and lost, requests that fail, and devices that are kept or not.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use weft_verbs::DeviceClient;

use crate::{Folder, Log, Running};

/// A file system of 64 KiB, which a test fills.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(at: PathBuf) -> Self {
        fs::create_dir_all(&at).unwrap();
        let options = ["-t", "tmpfs", "-o", "size=64k", "none"];
        assert!(Command::new("mount").args(options).arg(&at).status().unwrap().success());
        Self(at)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// A daemon, and its socket.
struct Device<'a> {
    log: &'a Log,
    socket: PathBuf,
    config: PathBuf,
}

impl Device<'_> {
    /// Starts the daemon, and waits until it serves.
    fn start(&self) -> Running {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("weft"));
        command.args(["device", "--socket"]).arg(&self.socket).args(["serve", "--log", "json"]);
        command.arg("--config").arg(&self.config).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut daemon = Running(command.spawn().unwrap());
        self.log.follow(daemon.0.stderr.take().unwrap());
        let mut line = String::new();
        BufReader::new(daemon.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("serving at"), "{line}");
        daemon
    }

    fn weft(&self, words: &[&str]) -> Output {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("weft"));
        command.args(["device", "--socket"]).arg(&self.socket).args(words).output().unwrap()
    }

    fn create(&self, words: &[&str]) {
        let output = self.weft(&[&["create"][..], words].concat());
        assert!(output.status.success(), "{output:?}");
    }

    fn attach(&self, device: &str) -> DeviceClient {
        DeviceClient::open(&self.socket, device, 4096).unwrap()
    }

    /// A WRITE into memory of a peer that is not registered under this key fails, and its queue pair with it.
    fn fail_a_write(&self) {
        let [writer, reader, other] = ["a", "a", "a"].map(|device| self.attach(device));
        writer.connect(&self.socket, "a", &reader.address()).unwrap();
        reader.connect(&self.socket, "a", &writer.address()).unwrap();
        let wrong = reader.address().with_memory_of(&other.address());
        writer.write(1, (0, 8), &wrong, 1 << 40).unwrap();
        let values = [("cause", "remote-access"), ("device", "a")];
        let failed = self.log.wait("queue-pairs-failed", &values, || ());
        assert_eq!(failed["process"], std::process::id(), "{failed:?}");
        // All three go without destroying their queue pairs.
        drop((writer, reader, other));
        self.log.wait("processes-lost", &[("device", "a"), ("cause", "queue-pairs")], || ());
    }
}

pub(crate) fn daemon(log: &Log, folder: &Folder) {
    let disk = SmallDisk::mount(folder.path("small"));
    let config =
        folder.write("device.toml", &format!("state = '{}'\n", disk.0.join("state").display()));
    let device = Device { log, socket: folder.path("device.sock"), config };
    let daemon = device.start();
    device.create(&["a"]);
    device.create(&["one", "--processes", "1"]);
    device.create(&["small", "--memory", "1KiB"]);

    assert!(DeviceClient::open(&device.socket, "none", 4096).is_err());
    log.wait("clients-refused", &[("cause", "no-such-device"), ("device", "none")], || ());
    let one = device.attach("one");
    assert!(DeviceClient::open(&device.socket, "one", 4096).is_err());
    log.wait("clients-refused", &[("cause", "processes"), ("device", "one")], || ());
    assert!(DeviceClient::open(&device.socket, "small", 4096).is_err());
    log.wait("limits-reached", &[("cause", "memory"), ("device", "small")], || ());
    device.fail_a_write();
    assert!(device.weft(&["delete", "one", "--force"]).status.success());
    let values = [("cause", "its device was deleted"), ("device", "one")];
    let ended = log.wait("processes-ended", &values, || ());
    assert_eq!((&ended["count"], &ended["process"]), (&1.into(), &std::process::id().into()));
    drop(one);

    fill(&disk.0);
    // A line may still fit into the file's last page.
    let mut number = 0..;
    let mut make =
        || device.weft(&["create", &format!("{}-{}", "d".repeat(50), number.next().unwrap())]);
    while make().status.success() {}
    log.wait("devices-not-kept", &[("cause", "file")], || ());
    drop(daemon);
    fs::remove_file(disk.0.join("filler")).unwrap();
    let _daemon = device.start();
    log.wait("devices-restored", &[], || ());
}

/// Fills a disk.
fn fill(disk: &Path) {
    let size = 1 << 20;
    assert!(fs::write(disk.join("filler"), vec![0; size]).is_err(), "it has {size} bytes");
}
