//! The systemd units: systemd's own checks, the effect of stopping one on the others, and the daemons, started as their
//! units start them and with no more capabilities.
#![allow(clippy::disallowed_methods, reason = "these tests watch programs in real time")]

mod daemon;
mod drop_ins;
mod hang;
mod health;
mod manager;
mod notify;
mod sockets;
mod unit;

use std::fs;
use std::path::Path;
use std::process::Command;

use unit::Unit;
use weft_testkit::can_run;

/// The exposure of each unit, of 10, as `systemd-analyze security` of systemd 252 rates it; an unprotected unit has 9.6. A
/// unit says which protections it lacks and why.
const EXPOSURE: [(&str, &str); 6] = [
    ("weft-device", "1.9"),
    ("weft-monitor", "1.1"),
    ("weft-monitor-agent", "2.1"),
    ("weft-route", "2.7"),
    ("weft-route-agent", "1.6"),
    ("weft-vpc", "2.9"),
];

/// The greatest exposure that a unit may have.
const MAX_EXPOSURE: f64 = 3.0;

#[test]
fn every_unit_has_an_exposure_below() {
    let names: Vec<_> = Unit::all().into_iter().map(|unit| unit.name).collect();
    assert_eq!(names, EXPOSURE.map(|(name, _)| name));
}

/// The device's daemon, the overlay's and guests have their sockets in one folder, which systemd removes when a unit
/// stops that names it as its own.
#[test]
fn no_unit_removes_the_sockets_of_others() {
    for unit in Unit::all() {
        let shared = unit.values("RuntimeDirectory").next().is_some();
        assert!(!shared || unit.has("RuntimeDirectoryPreserve=yes"), "{}", unit.name);
    }
}

#[test]
fn every_unit_drops_unneeded_privileges_and_is_watched() {
    for unit in Unit::all() {
        for line in [
            "Type=notify",
            "WatchdogSec=30s",
            "NoNewPrivileges=yes",
            "ProtectSystem=strict",
            "DevicePolicy=closed",
            "LockPersonality=yes",
            "UMask=0077",
        ] {
            assert!(unit.has(line), "{} lacks {line}", unit.name);
        }
        for key in ["CapabilityBoundingSet", "SystemCallFilter", "RestrictAddressFamilies"] {
            assert!(unit.values(key).next().is_some(), "{} lacks {key}", unit.name);
        }
    }
}

/// Returns the exposure of a unit, which must be without fault, as systemd rates it. `name` is that of the test's folder.
fn exposure(unit: &Unit, name: &str) -> String {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&folder).unwrap();
    // The unit starts the program as it was just built; manual pages are not installed.
    let program = assert_cmd::cargo::cargo_bin!("weft").to_str().unwrap().to_owned();
    let text = unit.text.replace("/usr/local/bin/weft", &program);
    let lines = text.lines().filter(|line| !line.starts_with("Documentation="));
    // Its socket, which systemd verifies with it, must name a service that exists.
    let socket = format!("{}.socket", unit.name);
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist").join(&socket);
    let _ = fs::copy(from, folder.join(&socket));
    let file = folder.join(format!("{}.service", unit.name));
    fs::write(&file, lines.map(|line| format!("{line}\n")).collect::<String>()).unwrap();
    let analyze = |words: &[&str]| {
        let mut command = Command::new("systemd-analyze");
        let output = command.arg("--no-pager").args(words).arg(&file).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {words:?}: {error}", unit.name);
        // systemd also reads other units of this machine, which are not under test.
        assert!(!error.lines().any(|line| line.contains(&unit.name)), "{}: {error}", unit.name);
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    analyze(&["verify", "--man=no"]);
    let rated = analyze(&["security", "--offline=yes"]);
    let line = rated.lines().find(|line| line.contains("Overall exposure")).unwrap();
    line.split_whitespace().rev().nth(2).unwrap().to_owned()
}

#[test]
fn systemd_verifies_every_unit_and_rates_its_exposure() {
    if !can_run("systemd's units", "systemd-analyze", &["--version"], "systemd") {
        return;
    }
    for (unit, (_, expected)) in Unit::all().iter().zip(EXPOSURE) {
        let rated = exposure(unit, "units");
        assert!(rated.parse::<f64>().unwrap() <= MAX_EXPOSURE, "{}: {rated}", unit.name);
        assert_eq!(rated, expected, "{}", unit.name);
    }
}
