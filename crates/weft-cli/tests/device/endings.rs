//! Programs and daemons that end without notice.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command};
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
    });
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
