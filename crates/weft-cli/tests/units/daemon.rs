//! The daemons, started as their units start them: by the same command line, as the same user, and with the same
//! capabilities, but with files, ports and a service manager of the test's own.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::process::{Pid, Signal, geteuid, kill_process};
use weft_lab::{Lab, LabSpec};
use weft_testkit::{HASH_SEED, can_run, lab_is_missing};

use crate::manager::Manager;
use crate::unit::Unit;

/// The interval in which the service manager wants a message, as `WATCHDOG_USEC`.
const WATCHDOG_MICROS: &str = "2000000";

/// The folder, the free ports and, for the controller, the routers that a daemon needs.
pub(crate) struct Stage {
    folder: PathBuf,
    pub(crate) manager: Manager,
    /// The address that HTTP is served at.
    pub(crate) http: String,
    /// The port of the overlay's packets.
    overlay: u16,
    /// The receiver of sFlow.
    collector: UdpSocket,
    lab: Option<Lab>,
}

/// Returns `true`, and records the skip, if the daemons cannot be started here as systemd would start them.
pub(crate) fn is_missing(test: &str) -> bool {
    if !geteuid().is_root() {
        weft_testkit::skip(test, "needs root, to give up capabilities");
        return true;
    }
    !can_run(test, "setpriv", &["--version"], "util-linux") || lab_is_missing(test, &[HASH_SEED])
}

/// Returns an address of the loopback interface that no other stage has. A port of `127.0.0.1` that was free a moment ago
/// may since have become the source of another test's connection.
fn own_address() -> Ipv4Addr {
    static STAGES: AtomicU8 = AtomicU8::new(1);
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let stage = STAGES.fetch_add(1, Ordering::Relaxed);
    assert!(stage < 255, "255 is a broadcast address");
    Ipv4Addr::new(127, high, low, stage)
}

impl Stage {
    /// Prepares what the unit's daemon needs. Each test has a name of its own.
    pub(crate) fn new(test: &str, unit: &str) -> Self {
        let name = format!("wu{}{test}{}", unit.replace("weft", ""), std::process::id());
        let folder = std::env::temp_dir().join(&name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        // Daemons of other users write their sockets here.
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
        let manager = Manager::at(folder.join("notify"));
        fs::set_permissions(manager.path(), fs::Permissions::from_mode(0o666)).unwrap();
        let http = format!("{}:9464", own_address());
        let overlay = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let collector = UdpSocket::bind("127.0.0.1:0").unwrap();
        let spec =
            LabSpec { spines: 1, ..LabSpec::named(format!("wu{test}{}", std::process::id())) };
        let lab = (unit == "weft-route").then(|| Lab::up(&spec).unwrap());
        let stage = Self { folder, manager, http, overlay, collector, lab };
        stage.write_files();
        stage
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn write_files(&self) {
        let vpc = format!(
            "[host]\naddress = '127.0.0.1'\nport = {}\ncontrol = '{}'\n[[network]]\nvni = 100\n\
             [[port]]\nname = 'web'\nvni = 100\nmac = '02:00:00:00:07:01'\n\
             tap = {{ interface = 'wu{}' }}\n",
            self.overlay,
            self.path("vpc.sock").display(),
            self.overlay,
        );
        fs::write(self.path("vpc.toml"), vpc).unwrap();
        let route = format!(
            "listen = '127.0.0.1:0'\nlab = '{}'\nstate = '{}'\n",
            self.lab.as_ref().map_or("no-such-lab", |lab| lab.name()),
            self.path("route.json").display(),
        );
        fs::write(self.path("route.toml"), route).unwrap();
        fs::write(self.path("hosts"), "127.0.0.1:9\n").unwrap();
    }

    /// Returns the words of a line of the unit, for the test's files and ports.
    pub(crate) fn line(&self, unit: &Unit, key: &str) -> Vec<String> {
        let path = |name: &str| self.path(name).to_str().unwrap().to_owned();
        let replaced = |word: &str| match word {
            "/usr/local/bin/weft" => assert_cmd::cargo::cargo_bin!("weft").to_str().unwrap().into(),
            "/etc/weft/vpc.toml" => path("vpc.toml"),
            "/etc/weft/route.toml" => path("route.toml"),
            "%d/hosts" => path("hosts"),
            "127.0.0.1:9464" | "10.0.0.1:9464" => self.http.clone(),
            "/etc/weft/metrics-token" => path("token"),
            "${ADDRESS}" => "127.0.0.1".into(),
            "${COLLECTOR}" => self.collector.local_addr().unwrap().to_string(),
            other => other.to_owned(),
        };
        // A drop-in's line takes the place of the unit's.
        let line = unit.values(key).last().unwrap();
        line.split_whitespace().map(replaced).collect()
    }

    /// Returns the options that a daemon needs besides those of its unit: its ports are not the default ones.
    fn options(&self, unit: &Unit) -> Vec<String> {
        let path = |name: &str| self.path(name).to_str().unwrap().to_owned();
        match unit.name.as_str() {
            "weft-device" => vec!["--socket".into(), path("device.sock")],
            "weft-monitor" | "weft-monitor-agent" => vec!["--listen".into(), self.http.clone()],
            "weft-route" => vec!["--page".into(), self.http.clone()],
            _ => vec![],
        }
    }

    /// Returns the command that starts the daemon as systemd would.
    pub(crate) fn command(&self, unit: &Unit) -> Command {
        let mut command = Command::new("setpriv");
        command.args(unit.privileges()).args(self.line(unit, "ExecStart"));
        command.args(self.options(unit)).stdout(Stdio::null()).stderr(Stdio::piped());
        command.env("NOTIFY_SOCKET", self.manager.path()).env("WATCHDOG_USEC", WATCHDOG_MICROS);
        command.env("WEFT_STAT", self.path("stat"));
        command
    }

    pub(crate) fn start(&self, unit: &Unit) -> Running {
        Running(self.command(unit).stderr(Stdio::inherit()).spawn().unwrap())
    }

    /// Returns the output of a `weft` command.
    pub(crate) fn weft(&self, words: &[&str]) -> Output {
        Command::new(assert_cmd::cargo::cargo_bin!("weft")).args(words).output().unwrap()
    }

    /// Returns the status line and the body of a GET.
    pub(crate) fn get(&self, path: &str) -> (String, String) {
        get(TcpStream::connect(&self.http).unwrap(), path)
    }

    /// Checks that the daemon of a unit, which said that it is ready, serves.
    pub(crate) fn assert_serves(&self, unit: &str) {
        let succeeds = |words: &[&str]| {
            let output = self.weft(words);
            assert!(output.status.success(), "{words:?}: {output:?}");
            String::from_utf8(output.stdout).unwrap()
        };
        match unit {
            "weft-vpc" => {
                let status =
                    succeeds(&["vpc", "status", "--control", text(&self.path("vpc.sock"))]);
                assert!(status.contains("web"), "{status}");
            }
            "weft-device" => {
                let socket = self.path("device.sock");
                succeeds(&["device", "--socket", text(&socket), "create", "tenant-a"]);
            }
            "weft-route-agent" => {
                let mut datagram = [0; 9000];
                let length = self.collector.recv(&mut datagram).unwrap();
                assert_eq!(datagram[..4], 5_u32.to_be_bytes(), "sFlow version 5, {length} bytes");
            }
            _ => assert_eq!(self.get("/metrics").0, "HTTP/1.0 200 OK"),
        }
    }
}

/// Sends a GET; returns the status line and the body of the response.
pub(crate) fn get(stream: TcpStream, path: &str) -> (String, String) {
    get_with(stream, path, "")
}

/// Sends a GET with these headers, each with its end of line; returns the status line and the body of the response.
pub(crate) fn get_with(mut stream: TcpStream, path: &str, headers: &str) -> (String, String) {
    stream.write_all(format!("GET {path} HTTP/1.0\r\n{headers}\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.lines().next().unwrap().to_owned(), body.to_owned())
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A daemon that ends with the test.
pub(crate) struct Running(pub(crate) Child);

impl Running {
    /// Ends it as systemd does, and returns `true` if it succeeds.
    pub(crate) fn terminate(mut self) -> bool {
        kill_process(self.pid(), Signal::TERM).unwrap();
        self.0.wait().unwrap().success()
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.0)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
