//! Labs, controllers and flows for these tests.

use std::io::{Read, Write};
use std::net::{SocketAddrV4, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use socket2::{Domain, SockAddr, Socket, Type};
use weft_lab::{Direction, Flow, Impairment, Lab, LabSpec};
use weft_testkit::{HASH_SEED, lab_is_missing};
use weft_units::ByteCount;

/// Returns `true`, and records the skip, if a test of routes cannot run here.
pub(crate) fn is_missing(test: &str) -> bool {
    lab_is_missing(test, &[HASH_SEED])
}

/// Builds a lab of two leaves with two hosts each and two spines; links between switches have 40 Mb/s.
pub(crate) fn lab(name: &str) -> Lab {
    let name = format!("ws{name}{}", std::process::id());
    let spec = LabSpec { spines: 2, hosts_per_leaf: 2, ..LabSpec::named(name) };
    let mut lab = Lab::up(&spec).unwrap();
    let limited = Impairment {
        rate: "40Mbps".parse().ok(),
        // The burst of a sender that was not scheduled for a while must not count as congestion.
        mark_above: Some(ByteCount(60_000)),
        ..Impairment::default()
    };
    for link in ["l0-s0", "l0-s1", "l1-s0", "l1-s1"] {
        lab.impair(link, Direction::Both, &limited).unwrap();
    }
    lab
}

/// Returns the output of a command, which must succeed.
pub(crate) fn weft(words: &[&str]) -> String {
    let output = Command::new(assert_cmd::cargo::cargo_bin!("weft")).args(words).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// Waits until a condition holds.
///
/// # Panics
/// Panics after 20 s.
pub(crate) fn until(what: &str, is_so: impl Fn() -> bool) {
    let give_up = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < give_up, "{what}: never");
        weft_testkit::pause();
    }
}

/// A program that ends with the test.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        let pid = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw);
        // The program may have ended by itself.
        let _ = pid.map(|pid| kill_process(pid, Signal::INT));
        let _ = self.0.wait();
    }
}

/// A `weft route serve` that has printed its address.
pub(crate) struct Controller {
    /// The process; it ends before its files are removed, because it writes its state last.
    running: Option<Running>,
    pub(crate) sflow: String,
    pub(crate) page: String,
    name: String,
    token: Option<String>,
    /// Its configuration, its state and its jobs.
    files: [PathBuf; 3],
}

impl Controller {
    pub(crate) fn serve(lab: &Lab, name: &str) -> Self {
        Self::with(lab, name, None)
    }

    /// Starts a controller to which clients with the token in the file `token` may announce jobs.
    pub(crate) fn with(lab: &Lab, name: &str, token: Option<&str>) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let file = |end: &str| folder.join(format!("{}-{name}.{end}", lab.name()));
        let files = [file("toml"), file("json"), file("jobs.json")];
        let state = format!("lease = '3s'\nstate = '{}'\n", files[1].display());
        Self::start(lab, name, token, &state, files)
    }

    /// Starts a controller that shares the store of these lines of its configuration with others. It has the default lease,
    /// which no successor must wait for.
    pub(crate) fn of_cluster(lab: &Lab, name: &str, token: &str, cluster: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let config = folder.join(format!("{}-{name}.toml", lab.name()));
        let files = [config, PathBuf::new(), PathBuf::new()];
        Self::start(lab, name, Some(token), cluster, files)
    }

    fn start(lab: &Lab, name: &str, token: Option<&str>, keys: &str, files: [PathBuf; 3]) -> Self {
        let config = format!(
            "listen = '127.0.0.1:0'\nlab = '{}'\nread_every = '500ms'\n{keys}\
             [controller]\ngrace = '250ms'\nhold = '5s'\nbar = '20s'\n\
             [controller.alarm]\nwindow = '500ms'\nmarks = 100\nwithin = '3s'\nphase = '1500ms'\n",
            lab.name(),
        );
        std::fs::write(&files[0], config).unwrap();
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("weft"));
        command.args(["route", "serve", "--page", "127.0.0.1:0", "--json", "--log", "json"]);
        command.arg("--config").arg(&files[0]).env("WEFT_LOG", "warn");
        command.args(token.iter().flat_map(|file| ["--token-file", file]));
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let out = child.stdout.take().unwrap();
        let running = Running(child);
        let said: Value =
            serde_json::Deserializer::from_reader(out).into_iter().next().unwrap().unwrap();
        let at = |what: &str| said[what].as_str().unwrap().to_owned();
        let (name, token) = (name.to_owned(), token.map(str::to_owned));
        Self { running: Some(running), sflow: at("sflow"), page: at("page"), name, token, files }
    }

    /// Ends it, and starts another controller with its files.
    pub(crate) fn restarted(mut self, lab: &Lab) -> Self {
        drop(self.running.take());
        let again = Self::with(lab, &self.name, self.token.as_deref());
        // The new controller owns the files now.
        self.files = Default::default();
        again
    }

    /// Sends a signal to the process.
    pub(crate) fn signal(&self, signal: Signal) {
        let running = self.running.as_ref().expect("it runs");
        let pid = i32::try_from(running.0.id()).ok().and_then(Pid::from_raw).expect("a process");
        kill_process(pid, signal).unwrap();
    }

    /// Kills it, as the end of its host would.
    pub(crate) fn kill(mut self) {
        self.signal(Signal::KILL);
        drop(self.running.take());
    }

    pub(crate) fn get(&self, path: &str) -> String {
        let (status, body) = self.ask(path);
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    /// Returns the status and the body of an answer.
    pub(crate) fn ask(&self, path: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.page).unwrap();
        stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    pub(crate) fn picture(&self) -> Value {
        serde_json::from_str(&self.get("/v1/picture")).unwrap()
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        drop(self.running.take());
        for file in &self.files {
            let _ = std::fs::remove_file(file);
        }
    }
}

/// Sends two flows of 24 Mb/s, ECN-capable, whose ports send both over one spine.
pub(crate) fn collide<'scope, 'env>(
    lab: &'scope Lab,
    scope: &'scope Scope<'scope, 'env>,
    stop: &'scope AtomicBool,
) {
    for (source, destination) in [(0, 2), (1, 3)] {
        let flow =
            Flow { source, destination, protocol: 17, source_port: 0, destination_port: 4791 };
        let port = lab.fabric().paths().ports_over(&flow, 0, 49_152).next().unwrap();
        scope.spawn(move || send(lab, source, destination, port, stop));
    }
}

fn send(lab: &Lab, source: usize, destination: usize, port: u16, stop: &AtomicBool) {
    const PAYLOAD: usize = 1400;
    let [from, to] = [source, destination].map(|host| lab.fabric().address(host));
    let open = || {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
        socket.bind(&SockAddr::from(SocketAddrV4::new(from, port)))?;
        // ECT(0), RFC 3168.
        socket.set_tos_v4(2)?;
        std::io::Result::Ok(UdpSocket::from(socket))
    };
    let socket = lab.enter(&format!("h{source}"), open).unwrap().unwrap();
    let (began, mut sent) = (Instant::now(), 0_u128);
    while !stop.load(Ordering::Relaxed) {
        let due = began.elapsed().as_nanos() * 24 / 8 / PAYLOAD as u128 / 1000;
        while sent < due {
            // A full queue drops; the next packet may pass.
            let _ = socket.send_to(&[0; PAYLOAD], (to, 4791));
            sent += 1;
        }
        thread::park_timeout(Duration::from_millis(2));
    }
}

/// Stops the senders when it goes out of scope.
pub(crate) struct Stop<'a>(pub(crate) &'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
