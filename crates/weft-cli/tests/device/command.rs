//! `weft device` itself, and `weft run --device`.

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
fn what_cannot_be_done_is_said_with_the_way_out() {
    let daemon = Daemon::start();
    for (words, says) in [
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
        let said = daemon.fail(words);
        assert!(said.contains(says), "{words:?}: {said}");
    }
}

/// `weft run` sets what a program and its children need.
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
fn ibv_devinfo_tells_the_limits() {
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

/// A program that is given a device that is not there finds none, and whoever started it reads why.
#[test]
fn a_device_that_is_not_there_is_none() {
    let daemon = Daemon::start();
    daemon.succeed(&["device", "delete", "a"]);
    let listed = daemon.run(&["ibv_devinfo"]);
    let complaint = String::from_utf8_lossy(&listed.stderr);
    assert!(!listed.status.success(), "{listed:?}");
    assert!(complaint.contains("weft: device a: there is no such device"), "{complaint}");
}
