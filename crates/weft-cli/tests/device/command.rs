//! The command `weft device`, and `weft run --device`.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::daemon::Daemon;
use crate::library::LIBRARY;

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
fn errors_name_the_cause_and_the_fix() {
    let daemon = Daemon::start();
    for (words, expected) in [
        (&["device", "create", "a"][..], "already: `weft device show a`"),
        (&["device", "create", "a/b"], "is no name"),
        (&["device", "show", "x"], "`weft device create x`"),
        (&["device", "delete", "x"], "no such device"),
        (&["device", "serve"], "a daemon listens"),
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
