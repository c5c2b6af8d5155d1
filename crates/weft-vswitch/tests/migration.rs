//! A guest in QEMU that moves between two hosts of three by live migration, while it echoes a TCP stream of the third.
//! Needs root, QEMU, busybox and a kernel to boot; without them the test reports that it was skipped.
#![allow(clippy::disallowed_methods, reason = "tests of real programs give up after a real while")]

#[path = "../../weft-ports/tests/programs/machine.rs"]
#[expect(dead_code, reason = "other tests need the rest")]
mod machine;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use machine::{Device, Guest, accept, parts};
use serde_json::{Value, json};
use weft_testkit::Files;
use weft_trial::{Trial, TrialConfig};
use weft_vswitch::Status;
use weft_vswitch::config::{Mac, Row, VhostUser};
use weft_vswitch::control::{Answer, Request, send_request};

const LIMIT: Duration = Duration::from_secs(120);

/// The guest's script: it echoes a stream of the first host until that ends.
const SCRIPT: &str = "\
ip link set eth0 up; ip address add 192.168.7.2/24 dev eth0
mkfifo /echo
nc 192.168.7.1 8001 <> /echo > /echo && echo step echoed
poweroff -f
";

/// The guest's address, on both hosts.
const GUEST: &str = "02:00:00:00:07:02";

/// Bytes that are in flight between two readings of the echo.
const PIECE: usize = 4_096;

/// A file of this test, which is removed with this value.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("weft-vs-move-{}-{name}", std::process::id())))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// A connection to QEMU's monitor (QMP).
struct Monitor {
    stream: BufReader<UnixStream>,
}

impl Monitor {
    fn connect(path: &Path) -> Self {
        let stream = until("the monitor", || UnixStream::connect(path).ok());
        let mut monitor = Self { stream: BufReader::new(stream) };
        assert!(monitor.next().get("QMP").is_some(), "a greeting comes first");
        monitor.execute("qmp_capabilities", json!({}));
        monitor
    }

    fn next(&mut self) -> Value {
        let mut line = String::new();
        assert_ne!(self.stream.read_line(&mut line).unwrap(), 0, "QEMU has ended");
        serde_json::from_str(&line).unwrap()
    }

    /// Executes a command and returns its result.
    fn execute(&mut self, command: &str, arguments: Value) -> Value {
        let request = json!({ "execute": command, "arguments": arguments });
        writeln!(self.stream.get_mut(), "{request}").unwrap();
        loop {
            let mut answer = self.next();
            if let Some(error) = answer.get("error") {
                panic!("{command}: {error}");
            }
            if let Some(result) = answer.get_mut("return") {
                return result.take();
            }
        }
    }
}

/// Repeats `attempt` until it succeeds.
fn until<T>(label: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(done) = attempt() {
            return done;
        }
        assert!(began.elapsed() < LIMIT, "{label}: not in {LIMIT:?}");
        weft_testkit::pause();
    }
}

fn status(trial: &Trial, host: usize) -> Status {
    match send_request(&trial.control(host), &Request::Status).unwrap() {
        Answer::Status(status) => *status,
        other => panic!("{other:?}"),
    }
}

/// Returns the place of the guest as a host knows it.
fn place(trial: &Trial, host: usize) -> Option<String> {
    let guest: Mac = GUEST.parse().unwrap();
    status(trial, host).networks[0].addresses.get(&guest).cloned()
}

/// Returns a trial of three hosts: red has a namespace on host 0, and a vhost-user port on hosts 1 and 2 for the same
/// guest. No host has a route to the guest.
fn trial(sockets: &[Scratch; 2]) -> Trial {
    let mut config = TrialConfig::named("vs-move");
    config.tenants = vec!["red".into()];
    config.lab.leaves = 3;
    let mut trial = Trial::up(&config).unwrap();
    for host in 0..3 {
        trial.stop(host);
        let guests = [1, 2].map(|host| trial.config(host).ports[0].mac);
        let config = trial.config(host);
        config.routes.retain(
            |route| !matches!(&route.row, Row::Machine { mac, .. } if guests.contains(mac)),
        );
    }
    for (host, socket) in [1, 2].into_iter().zip(sockets) {
        let port = &mut trial.config(host).ports[0];
        port.tap = None;
        port.vhost_user = Some(VhostUser { may_move: true, ..VhostUser::at(socket.0.clone()) });
    }
    let addresses = trial.config(1).ports[0].addresses.clone();
    let port = &mut trial.config(2).ports[0];
    (port.mac, port.addresses) = (GUEST.parse().unwrap(), addresses);
    (0..3).for_each(|host| trial.start(host).unwrap());
    trial
}

/// Sends a stream to the guest piece by piece, each after the echo of the one before, until `done` and 200 pieces
/// more. Returns the number of pieces and the longest time that one took.
fn echo_all(mut stream: TcpStream, started: &AtomicBool, done: &AtomicBool) -> (u64, Duration) {
    let (mut pieces, mut after, mut longest) = (0_u64, 0, Duration::ZERO);
    while after < 200 {
        let piece: Vec<u8> =
            (0..PIECE as u64 / 8).flat_map(|at| (pieces << 16 | at).to_be_bytes()).collect();
        let began = Instant::now();
        stream.write_all(&piece).unwrap();
        let mut back = vec![0; PIECE];
        stream.read_exact(&mut back).unwrap();
        longest = longest.max(began.elapsed());
        assert!(back == piece, "piece {pieces} came back changed");
        pieces += 1;
        started.store(pieces > 50, Ordering::Relaxed);
        after += u64::from(done.load(Ordering::Relaxed));
    }
    (pieces, longest)
}

#[test]
fn a_guest_moves_to_another_host_with_its_connections_alive() {
    const TEST: &str = "live migration of a guest in QEMU";
    let (qemu, busybox, kernel) = match parts() {
        Ok(parts) => parts,
        Err(missing) => return weft_testkit::skip(TEST, &missing),
    };
    if weft_testkit::lab_is_missing(TEST, &[]) {
        return;
    }
    let sockets = ["from", "to"].map(Scratch::new);
    let [initramfs, from_monitor, to_monitor, channel] =
        ["initramfs", "from-qmp", "to-qmp", "channel"].map(Scratch::new);
    // QEMU 7.2 loses pages that an emulated processor has written when it copies a running guest, and the guest
    // panics. So both processes of QEMU have the same memory, and copy none of it. The log of what the port writes is
    // tested in weft-ports.
    let memory = Scratch(Path::new("/dev/shm").join(channel.0.file_name().unwrap()));
    fs::write(&initramfs.0, kernel.initramfs(&busybox, &[], &Files::default(), SCRIPT)).unwrap();
    let trial = trial(&sockets);
    let bind = || TcpListener::bind((Trial::address(0), 8_001)).unwrap();
    let listener = weft_lab::enter(&trial.namespace("red", 0), bind).unwrap();
    let boot = |socket: &Scratch, monitor: &Scratch, more: &[String]| {
        let qmp = ["-qmp".into(), format!("unix:{},server=on,wait=off", monitor.0.display())];
        let more = [&qmp[..], more].concat();
        let device = Device { memory: Some(&memory.0), ..Device::of(GUEST) };
        Guest::boot_with((&qemu, &kernel), &initramfs.0, &socket.0, &device, &more)
    };
    let (started, done) = (AtomicBool::new(false), AtomicBool::new(false));
    let (consoles, (pieces, gap)) = std::thread::scope(|scope| {
        let from = boot(&sockets[0], &from_monitor, &[]);
        let echo = scope.spawn(|| echo_all(accept(&listener), &started, &done));
        until("the first echoes", || {
            assert!(!echo.is_finished(), "the stream has broken");
            started.load(Ordering::Relaxed).then_some(())
        });
        let hosts = [1, 2].map(|host| status(&trial, host).address.to_string());
        assert_eq!(place(&trial, 0).as_ref(), Some(&hosts[0]));
        assert_eq!(place(&trial, 1).as_deref(), Some("red"));
        let uri = format!("unix:{}", channel.0.display());
        let to = boot(&sockets[1], &to_monitor, &["-incoming".into(), "defer".into()]);
        let mut monitor = Monitor::connect(&from_monitor.0);
        let mut to_monitor = Monitor::connect(&to_monitor.0);
        for monitor in [&mut monitor, &mut to_monitor] {
            let shared = json!([{ "capability": "x-ignore-shared", "state": true }]);
            monitor.execute("migrate-set-capabilities", json!({ "capabilities": shared }));
        }
        to_monitor.execute("migrate-incoming", json!({ "uri": uri }));
        // A guest that waits to be moved here is not here yet.
        assert_ne!(place(&trial, 2).as_deref(), Some("red"));
        monitor.execute("migrate", json!({ "uri": uri }));
        until("the migration", || {
            let state = monitor.execute("query-migrate", json!({}));
            assert_ne!(state["status"], "failed", "{state}");
            (state["status"] == "completed").then_some(())
        });
        let state = monitor.execute("query-migrate", json!({}));
        println!("QEMU stopped the guest for {} ms", state["downtime"]);
        // Its former host carries nothing of it, so only the announcement tells that host.
        for host in [0, 1] {
            until("the guest's new place", || {
                assert!(!echo.is_finished() || done.load(Ordering::Relaxed), "the stream broke");
                (place(&trial, host).as_ref() == Some(&hosts[1])).then_some(())
            });
        }
        assert_eq!(place(&trial, 2).as_deref(), Some("red"));
        done.store(true, Ordering::Relaxed);
        let echoed = echo.join().unwrap();
        // QEMU 7.2 has ended by itself in one of five runs.
        let _ = writeln!(monitor.stream.get_mut(), "{}", json!({ "execute": "quit" }));
        (from.console() + &to.console(), echoed)
    });
    println!("{pieces} pieces of {PIECE} bytes echoed; the longest took {gap:?}");
    assert!(consoles.contains("step echoed"), "{consoles}");
    for (host, up) in [(1, false), (2, false)] {
        assert_eq!(status(&trial, host).ports[0].up, up);
    }
    let carried = status(&trial, 2).ports[0].sent.0;
    assert!(carried > 200, "{carried} frames left from the new host");
}
