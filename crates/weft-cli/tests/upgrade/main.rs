//! The version before beside this one (`make upgrade`, docs/upgrades.md): on the wire between two hosts, in the state that
//! a daemon leaves to the next one, and on control sockets.
#![allow(clippy::disallowed_methods, reason = "tests of real programs give up after a real while")]

mod echo;
mod host;

use std::path::{Path, PathBuf};

use serde_json::Value;
use weft_lab::{Lab, LabSpec};
use weft_testkit::lab_is_missing;

use echo::Echo;
use host::Host;

/// A version of the command.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Version {
    Before,
    Now,
}

impl Version {
    /// Returns its program; `scripts/setup.sh before` builds that of the version before.
    fn program(self) -> PathBuf {
        let now = Path::new(assert_cmd::cargo::cargo_bin!("weft"));
        match self {
            Self::Before => now.ancestors().nth(2).unwrap().join("before/weft"),
            Self::Now => now.to_owned(),
        }
    }
}

/// Commands that change something, on a daemon with network 100 and a port `web`.
const CHANGES: [&[&str]; 6] = [
    &["peer", "add", "100", "198.51.100.9"],
    &["route", "add", "100", "02:00:00:00:09:09", "198.51.100.9", "--address", "192.168.7.9"],
    &["route", "add", "100", "10.9.0.0/16", "192.168.7.9"],
    &["limit", "web", "--egress", "10Gbps"],
    &["acl", "web", "deny ingress tcp to any port 22"],
    &["lose", "web", "0%"],
];

#[test]
#[ignore = "the version before takes a quarter of an hour to build: make upgrade"]
fn a_tenants_connection_lives_through_upgrades_and_downgrades_of_both_hosts() {
    if lab_is_missing("upgrades of the overlay", &[]) {
        return;
    }
    let name = format!("wup{}", std::process::id());
    let lab = Lab::up(&LabSpec { offloads: false, ..LabSpec::named(&name) }).unwrap();
    let mut hosts = [0, 1].map(|index| Host::of_lab(&lab, index));
    hosts.iter_mut().for_each(|host| host.start(Version::Before));
    let changed = hosts.each_ref().map(|host| {
        CHANGES.iter().for_each(|change| drop(host.done(Version::Before, change)));
        host.changes(Version::Before)
    });
    assert_eq!(changed[0].len(), 5, "{changed:?}");
    let echo = Echo::start(&hosts);
    echo.goes_on("both hosts have the version before");
    // Each host is upgraded and downgraded beside each version of the other one.
    for (host, version) in [
        (1, Version::Now),
        (0, Version::Now),
        (1, Version::Before),
        (1, Version::Now),
        (0, Version::Before),
        (1, Version::Before),
    ] {
        hosts[host].stop();
        hosts[host].start(version);
        echo.goes_on(&format!("host {host} has {version:?}"));
        assert_eq!(hosts[host].changes(version), changed[host], "{version:?}");
    }
}

#[test]
#[ignore = "the version before takes a quarter of an hour to build: make upgrade"]
fn each_version_of_the_command_serves_each_version_of_the_daemon() {
    use Version::{Before, Now};
    for (daemon, command) in [(Before, Now), (Now, Before)] {
        let mut host = Host::on_loopback();
        host.start(daemon);
        let socket = host.file("web").display().to_string();
        let mac = "02:00:00:00:07:01";
        let port = ["port", "add", "web", "--vni", "100", "--mac", mac, "--vhost-user", &socket];
        host.done(command, &port);
        CHANGES.iter().for_each(|change| drop(host.done(command, change)));
        assert_eq!(host.changes(command).len(), 6, "{daemon:?}");
        for show in [&["status"][..], &["changes"], &["port", "list"], &["route", "list"]] {
            host.done(command, show);
        }
        let status = host.json(command, &["status", "--json"]);
        assert_eq!(status["ports"][0]["name"], "web", "{status}");
        assert_eq!(status["networks"][0]["peers"].as_array().unwrap().len(), 2, "{status}");
        let routes = host.json(command, &["route", "list", "--json"]);
        let is_there = |row: &Value| row["destination"] == "10.9.0.0/16";
        assert!(routes.as_array().unwrap().iter().any(is_there), "{routes}");
        // The state of one version is that of the other one.
        host.stop();
        host.start(command);
        assert_eq!(host.changes(daemon).len(), 6, "{command:?}");
        host.stop();
        host.start(daemon);
        host.reload(command, &[]);
        assert_eq!(host.changes(command).len(), 6, "{daemon:?}");
        host.done(command, &["port", "del", "web"]);
        host.done(command, &["route", "del", "100", "10.9.0.0/16"]);
        host.done(command, &["peer", "del", "100", "198.51.100.9"]);
        host.reload(command, &["--discard-changes"]);
        assert_eq!(host.json(command, &["changes", "--json"]), Value::Array(vec![]));
    }
}
