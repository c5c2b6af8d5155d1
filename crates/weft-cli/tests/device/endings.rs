//! Programs and daemons that end without notice.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::daemon::{Daemon, Program};
use crate::pair::{alone, next_port, output, until_listening};

/// Waits until a condition holds.
///
/// # Panics
/// Panics if the program ends or 30 s have passed before.
fn until(program: &mut Child, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(program.try_wait().unwrap().is_none(), "it ended: {}", until_its_end(program));
        assert!(began.elapsed() < Duration::from_secs(30));
        weft_testkit::pause();
    }
}

/// Returns a program's output when it has ended.
///
/// # Panics
/// Panics if it does not end within a minute.
#[track_caller]
fn until_its_end(program: &mut Child) -> String {
    let began = Instant::now();
    while program.try_wait().unwrap().is_none() {
        assert!(began.elapsed() < Duration::from_secs(60), "it does not end");
        weft_testkit::pause();
    }
    output(program)
}

/// Starts two ends that write without pause, until they are killed or have written `times` messages. Returns when the
/// client has used 50 ms of processor time.
fn writers(daemon: &Daemon, device: &str, times: u32) -> [Program; 2] {
    let port = next_port();
    let words = format!("ib_write_bw -n {times} -p {port}");
    let mut server = Program::start(daemon, device, &words);
    until_listening(&mut server.0, port);
    let mut client = Program::start(daemon, device, &format!("{words} 127.0.0.1"));
    // Both have their queue pairs, and the client polls without pause.
    until(&mut client.0, || daemon.show(device)["used"]["queue_pairs"] == 2);
    let process = client.0.id();
    let first = ticks_of(process);
    until(&mut client.0, || ticks_of(process) > first + 5);
    [server, client]
}

/// Returns a process's processor time, hundredths of a second.
fn ticks_of(process: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let after_name = stat.rsplit(") ").next().unwrap_or_default();
    let fields: Vec<u64> =
        after_name.split(' ').skip(11).take(2).filter_map(|ticks| ticks.parse().ok()).collect();
    fields.iter().sum()
}

/// A number of messages that no test reaches.
const UNLIMITED: u32 = 5_000_000;

/// A killed program's peer is notified, all its resources are reclaimed, and another tenant's programs continue
/// to their end.
#[test]
fn resources_of_a_killed_program_are_reclaimed_and_others_continue() {
    alone(|| {
        let daemon = Daemon::start();
        daemon.succeed(&["device", "create", "b"]);
        let [killed, mut peer] = writers(&daemon, "a", UNLIMITED);
        let [mut server, mut client] = writers(&daemon, "b", 1_000);
        drop(killed);
        let printed = until_its_end(&mut peer.0);
        assert!(printed.contains("Failed status 12"), "{printed}");
        drop(peer);
        for other in [&mut server.0, &mut client.0] {
            let text = until_its_end(other);
            assert!(other.wait().unwrap().success() && !text.contains("rror"), "{text}");
        }
        for name in ["a", "b"] {
            let used = daemon.show(name)["used"].clone();
            assert!(used.as_object().unwrap().values().all(|amount| *amount == 0), "{used}");
        }
    });
}

#[test]
fn requests_fail_when_the_daemon_is_killed() {
    alone(|| {
        let mut daemon = Daemon::start();
        let [mut server, mut client] = writers(&daemon, "a", UNLIMITED);
        daemon.process.kill().unwrap();
        let printed = until_its_end(&mut client.0);
        assert!(printed.contains("Failed status 5"), "{printed}");
        // It waits for the client over TCP, and does not poll.
        server.0.kill().unwrap();
        daemon.restart();
        let [mut server, mut client] = writers(&daemon, "a", 1_000);
        for end in [&mut client.0, &mut server.0] {
            let text = until_its_end(end);
            assert!(end.wait().unwrap().success() && !text.contains("rror"), "{text}");
        }
    });
}

/// Compiles a program of `c/` and returns its path.
fn compile(name: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/device/c").join(name);
    let binary = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name.replace('.', "-"));
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-Wall", "-Wno-unused-function"]).arg(&source).arg("-o").arg(&binary);
    let compiled = compiler.arg("-libverbs").output().unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    binary
}

/// The same process, which keeps no descriptor of a daemon that has ended.
#[test]
fn a_program_goes_on_with_the_next_daemon_of_its_device() {
    alone(|| {
        let mut daemon = Daemon::start();
        let mut program = Program::start(&daemon, "a", compile("again.c").to_str().unwrap());
        let mut lines = BufReader::new(program.0.stdout.take().unwrap()).lines();
        let mut errors = program.0.stderr.take().unwrap();
        for _ in 0..3 {
            let line = lines.next().and_then(Result::ok);
            if line.as_deref() != Some("writing") {
                let mut text = String::new();
                let _ = errors.read_to_string(&mut text);
                panic!("{line:?}: {text}");
            }
            daemon.restart();
        }
        assert_eq!(lines.next().unwrap().unwrap(), "done");
        assert!(program.0.wait().unwrap().success());
    });
}

#[test]
fn devices_outlive_their_daemon_and_a_deleted_one_does_not() {
    let mut daemon = Daemon::start();
    let options = ["--queue-pairs", "7", "--memory", "1MiB", "--messages-per-second", "9"];
    daemon.succeed(&[&["device", "create", "vm", "--count", "500"][..], &options].concat());
    daemon.succeed(&["device", "delete", "vm", "--count", "100", "--first", "50"]);
    let before = daemon.succeed(&["device", "list"]);
    assert_eq!(before.lines().count(), 403, "{before}");
    daemon.restart();
    assert_eq!(daemon.succeed(&["device", "list"]), before);
    let limits = &daemon.show("vm-499")["limits"];
    let of = |key: &str| limits[key].as_u64();
    assert_eq!(["queue_pairs", "memory", "messages_per_second"].map(of), [7, 1 << 20, 9].map(Some));
    let signalled = Command::new("kill").arg(daemon.process.id().to_string()).status();
    assert!(signalled.is_ok_and(|status| status.success()));
    daemon.process.wait().unwrap();
    daemon.process = daemon.serve();
    assert_eq!(daemon.succeed(&["device", "list"]), before, "after an end in order, too");
}

#[test]
fn a_state_file_that_is_wrong_is_named_and_no_daemon_starts() {
    let mut daemon = Daemon::start();
    daemon.process.kill().unwrap();
    daemon.process.wait().unwrap();
    let state = daemon.state();
    let text = std::fs::read_to_string(&state).unwrap();
    std::fs::write(&state, format!("{text}nonsense\n")).unwrap();
    let error = daemon.fail(&["device", "serve"]);
    assert!(error.contains(state.to_str().unwrap()) && error.contains("line 3"), "{error}");
    std::fs::write(&state, text).unwrap();
    daemon.restart();
    daemon.show("a");
}

#[test]
fn a_device_deleted_by_force_raises_a_fatal_event() {
    let daemon = Daemon::start();
    let mut watcher = Program::start(&daemon, "a", "stdbuf -oL ibv_asyncwatch");
    let mut lines = BufReader::new(watcher.0.stdout.take().unwrap()).lines();
    let mut next = || lines.next().unwrap().unwrap();
    while !next().contains("async event FD") {}
    let refused = daemon.fail(&["device", "delete", "a"]);
    assert!(refused.contains("in use by 1 processes"), "{refused}");
    daemon.succeed(&["device", "delete", "a", "--force"]);
    let event = next();
    assert!(event.contains("DEVICE_FATAL"), "{event}");
}

/// Programs that read the log as JSON read all of it.
#[test]
fn a_process_that_the_daemon_ends_is_an_entry_of_its_json_log() {
    let mut daemon = Daemon::start_with(|command| {
        command.args(["--log", "json"]).stderr(Stdio::piped()).spawn().unwrap()
    });
    let mut log = BufReader::new(daemon.process.stderr.take().unwrap()).lines();
    let watcher = Program::start(&daemon, "a", "stdbuf -oL ibv_asyncwatch");
    let process = watcher.0.id();
    let began = Instant::now();
    while daemon.show("a")["used"]["processes"] != 1 {
        assert!(began.elapsed().as_secs() < 60, "the program has no device");
        weft_testkit::pause();
    }
    daemon.succeed(&["device", "delete", "a", "--force"]);
    let line = log.next().unwrap().unwrap();
    let entry: serde_json::Value =
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line:?} is no JSON"));
    let fields = &entry["fields"];
    assert_eq!((&fields["event"], &fields["device"]), (&"processes-ended".into(), &"a".into()));
    assert_eq!(fields["process"], process, "{line}");
    assert_eq!(fields["cause"], "its device was deleted", "{line}");
}

#[test]
fn a_daemon_that_is_terminated_raises_a_fatal_event() {
    let mut daemon = Daemon::start();
    let mut watcher = Program::start(&daemon, "a", "stdbuf -oL ibv_asyncwatch");
    let mut lines = BufReader::new(watcher.0.stdout.take().unwrap()).lines();
    while !lines.next().unwrap().unwrap().contains("async event FD") {}
    let signalled = Command::new("kill").arg(daemon.process.id().to_string()).status();
    assert!(signalled.is_ok_and(|status| status.success()));
    assert!(daemon.process.wait().unwrap().success());
    assert!(lines.next().unwrap().unwrap().contains("DEVICE_FATAL"));
}
