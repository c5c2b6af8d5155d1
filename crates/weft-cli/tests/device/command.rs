//! The command `weft device`, and `weft run --device`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::daemon::Daemon;
use crate::library::{LIBRARY, program};
use crate::pair::run;

#[test]
fn devices_are_made_listed_shown_and_deleted() {
    let daemon = Daemon::start();
    daemon.succeed(&["device", "create", "b", "--queue-pairs", "7"]);
    let listed = daemon.succeed(&["device", "list"]);
    assert_eq!(listed.lines().count(), 4, "{listed}");
    let shown = daemon.show("b");
    assert_eq!(
        (&shown["limits"]["queue_pairs"], &shown["used"]["queue_pairs"]),
        (&7.into(), &0.into())
    );
    assert!(daemon.succeed(&["device", "show", "b"]).contains("processes: none"));
    daemon.succeed(&["device", "delete", "b"]);
    assert!(!daemon.succeed(&["device", "list"]).contains('b'));
}

#[test]
fn many_devices_are_made_and_deleted_by_one_command() {
    let daemon = Daemon::start();
    let made = daemon.succeed(&["device", "create", "vm", "--count", "3000"]);
    assert_eq!(made, "created 3000 devices, vm-0 to vm-2999\n");
    assert_eq!(daemon.succeed(&["device", "list"]).lines().count(), 3_003);
    // All or none.
    for (words, expected) in [
        (&["device", "create", "vm", "--count", "3", "--first", "2999"][..], "vm-2999 already"),
        (&["device", "delete", "vm", "--count", "2", "--first", "2999"], "no such device"),
        (&["device", "create", "x", "--count", "131072"], "the limit is 131072"),
        (&["device", "create", "x", "--first", "1"], "--count"),
    ] {
        let error = daemon.fail(words);
        assert!(error.contains(expected), "{words:?}: {error}");
    }
    let first = ["device", "delete", "vm", "--count", "2999", "--first", "1", "--json"];
    let deleted: Value = serde_json::from_str(&daemon.succeed(&first)).unwrap();
    assert_eq!(deleted["deleted"]["last"], "vm-2999");
    assert!(daemon.succeed(&["device", "list"]).contains("vm-0"));
}

/// The series of a scrape do not grow with the devices.
#[test]
fn metrics_are_of_all_devices_and_of_some_that_are_used() {
    let http = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let daemon = Daemon::start_with(|command| {
        command.args(["--metrics", &http, "--metrics-devices", "1"]).spawn().unwrap()
    });
    daemon.succeed(&["device", "create", "vm", "--count", "2000"]);
    let get = || {
        let mut stream = TcpStream::connect(&http).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    };
    let idle = get();
    assert!(idle.contains("\nweft_device_devices{} 2001.0\n"), "{idle}");
    assert!(!idle.contains("device=\"vm-"), "{idle}");
    for device in ["vm-7", "vm-8"] {
        let mut command = program(&["ibv_rc_pingpong", "-n", "1", "127.0.0.1", "-p", "1"]);
        daemon.equip(device, &mut command);
        // It opens the device, and finds no peer.
        assert!(!command.output().unwrap().status.success());
    }
    let used = get();
    assert!(used.contains("device=\"vm-7\""), "{used}");
    assert!(!used.contains("device=\"vm-8\"") && used.lines().count() < 100, "{used}");
}

/// A program waits, and no message is lost.
#[test]
fn a_device_sends_no_more_messages_a_second_than_its_limit() {
    let daemon = Daemon::start();
    daemon.succeed(&["device", "delete", "a"]);
    daemon.succeed(&["device", "create", "a", "--messages-per-second", "500"]);
    let began = std::time::Instant::now();
    let printed = run(&daemon, "ib_write_bw -n 1000 -s 64");
    assert!(printed.client.contains("#bytes"), "{printed:?}");
    // perftest itself sends no fewer.
    assert!(began.elapsed() > std::time::Duration::from_millis(1_900));
    let counters = &daemon.show("a")["counters"];
    assert!(counters["requests_posted"].as_u64().unwrap() >= 1_000, "{counters}");
    assert!(counters["waits"].as_u64().unwrap() > 10, "{counters}");
    assert_eq!(counters["processes_ended"], 0, "{counters}");
}

#[test]
fn errors_name_the_cause_and_the_fix() {
    let daemon = Daemon::start();
    for (words, expected) in [
        (&["device", "create", "a"][..], "already: `weft device show a`"),
        (&["device", "create", "a/b"], "is no name"),
        (&["device", "show", "x"], "`weft device create x`"),
        (&["device", "delete", "x"], "no such device"),
        (&["device", "serve"], "a daemon listens"),
        (&["device", "guest", "x", "--memory", "1GiB"], "no such device"),
        (&["device", "guest", "a", "--memory", "1000"], "multiple of 1 MiB"),
        (&["device", "guest", "a", "--memory", "1GiB", "--ports", "65"], "from 1 to 64"),
        (
            &["device", "list", "--socket", "/nowhere/weft.sock"],
            "start one with `weft device serve`",
        ),
        (
            &["run", "--libraries", LIBRARY.to_str().unwrap(), "--device", "x", "--", "true"],
            "no such",
        ),
    ] {
        let error = daemon.fail(words);
        assert!(error.contains(expected), "{words:?}: {error}");
    }
}

/// `make guests` starts QEMU with the same options.
#[test]
fn a_guest_s_options_name_its_files_until_the_command_is_terminated() {
    let daemon = Daemon::start();
    let folder = std::env::temp_dir().join(format!("weft-guests-{}", std::process::id()));
    let words = ["device", "guest", "a", "--memory", "64MiB", "--ports", "2", "--folder"];
    let mut command = daemon.command(&[&words[..], &[folder.to_str().unwrap()]].concat());
    let mut guest = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(guest.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut options = Vec::new();
    while !options.last().is_some_and(|line: &String| line.contains("name=weft.a.1")) {
        options.push(lines.next().unwrap());
    }
    assert_eq!(options[0], "-m 64M \\");
    let path = |line: &str| line.trim_end_matches(" \\").split_once("path=").unwrap().1.to_owned();
    let memory = options.iter().find(|line| line.contains("weft-ram,share=on")).unwrap();
    assert_eq!(std::fs::metadata(path(memory)).unwrap().len(), 64 << 20);
    let sockets = || std::fs::read_dir(&folder).unwrap().count();
    assert_eq!(sockets(), 2);
    let signalled = Command::new("kill").arg(guest.id().to_string()).status();
    assert!(signalled.is_ok_and(|status| status.success()));
    assert!(guest.wait().unwrap().success());
    assert_eq!(sockets(), 0);
    std::fs::remove_dir(&folder).unwrap();
}

/// A file of settings, which is removed with its value.
struct Settings(PathBuf);

impl Settings {
    fn new(name: &str, text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("weft-{name}-{}.toml", std::process::id()));
        std::fs::write(&path, text).unwrap();
        Self(path)
    }
}

impl Drop for Settings {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn a_daemon_reads_its_transport_from_a_file_and_shows_it() {
    let file = Settings::new(
        "stellar",
        "profile = \"stellar\"\npaths = 16\nrto = \"4ms\"\nheld-bytes-per-peer = \"1MiB\"\n",
    );
    let serve = |command: &mut Command| {
        command.arg("--config").arg(&file.0).env("WEFT_PATHS", "8").spawn().unwrap()
    };
    let daemon = Daemon::start_with(serve);
    let state = daemon.show("a");
    let transport = &state["transport"];
    for (name, value) in [
        ("profile", "stellar"),
        ("policy", "oblivious"),
        ("congestion", "stellar"),
        ("paths", "8"),
        ("rto", "4ms to 4ms"),
    ] {
        assert_eq!(transport[name], value, "{transport}");
    }
    assert_eq!(state["daemon"]["held_bytes_per_peer"], "1MiB", "{state}");
    assert!(daemon.succeed(&["device", "show", "a"]).contains("oblivious"));
    assert!(daemon.run(&["ibv_devinfo"]).status.success());
}

#[test]
fn without_a_daemon_variables_configure_the_transport() {
    let weft = |variables: &[(&str, &str)], words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weft"));
        command.args(words).envs(variables.iter().copied()).output().unwrap()
    };
    let show = ["device", "show", "--json"];
    let shown = |variables: &[(&str, &str)]| -> Value {
        serde_json::from_slice(&weft(variables, &show).stdout).unwrap()
    };
    assert_eq!(shown(&[])["transport"]["profile"], "ethernet");
    let limits = &shown(&[("WEFT_HELD_BYTES", "1GiB")])["limits"];
    assert_eq!(
        (&limits["held_bytes"], &limits["held_bytes_per_peer"]),
        (&"1GiB".into(), &"32MiB".into())
    );
    let set = shown(&[("WEFT_PROFILE", "bifrost"), ("WEFT_CONGESTION", "dctcp")]);
    assert_eq!(set["transport"]["paths"], "8", "{set}");
    assert_eq!(set["transport"]["congestion"], "dctcp", "{set}");
    let file = Settings::new("wrong", "profil = \"stellar\"\n");
    let socket = file.0.with_extension("sock");
    let serve = [
        "device",
        "serve",
        "--socket",
        socket.to_str().unwrap(),
        "--config",
        file.0.to_str().unwrap(),
    ];
    for (variables, words, hint) in [
        (&[("WEFT_PROFILE", "bifrst")][..], &show[..], "did you mean \"bifrost\"?"),
        (&[("WEFT_RTO", "soon")], &show, "WEFT_RTO=soon: not a time from 1us to 1s"),
        (&[], &serve, "did you mean \"profile\"?"),
    ] {
        let refused = weft(variables, words);
        let error = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success() && error.contains(hint), "{error}");
    }
}

/// `weft run` sets the variables that a program and its children need.
#[test]
fn programs_and_their_children_find_the_device() {
    let daemon = Daemon::start();
    let libraries = LIBRARY.to_str().unwrap();
    let run = ["run", "--libraries", libraries, "--device", "a", "--"];
    let listed = daemon.succeed(&[&run[..], &["sh", "-c", "ibv_devices; true"]].concat());
    let devices: Vec<_> = listed.lines().skip(2).map(str::trim).collect();
    assert!(devices.len() == 1 && devices[0].starts_with('a'), "{listed}");
}

#[test]
fn ibv_devinfo_prints_the_limits() {
    let daemon = Daemon::start();
    daemon.succeed(&["device", "delete", "a"]);
    daemon.succeed(&["device", "create", "a", "--queue-pairs", "7", "--regions", "9"]);
    let described = daemon.run(&["ibv_devinfo", "-v"]);
    let text = String::from_utf8_lossy(&described.stdout);
    assert!(described.status.success() && described.stderr.is_empty(), "{described:?}");
    for line in ["hca_id:\ta", "PORT_ACTIVE (4)", "max_qp:\t\t\t\t7", "max_mr:\t\t\t\t9", "GID["] {
        assert!(text.contains(line), "no {line:?} in {text}");
    }
}

/// A program on a device that does not exist finds none, and its user reads the reason.
#[test]
fn a_device_that_does_not_exist_is_not_found() {
    let daemon = Daemon::start();
    daemon.succeed(&["device", "delete", "a"]);
    let listed = daemon.run(&["ibv_devinfo"]);
    let error = String::from_utf8_lossy(&listed.stderr);
    assert!(!listed.status.success(), "{listed:?}");
    assert!(error.contains("weft: device a: there is no such device"), "{error}");
}
