//! The systemd units: the effect of stopping one on the others, the rights of a compromised daemon, and systemd's own
//! checks.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use weft_testkit::can_run;

fn units() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist");
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let services = files.filter(|path| path.extension().is_some_and(|it| it == "service"));
    let name = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
    let units: Vec<_> =
        services.map(|path| (name(&path), fs::read_to_string(path).unwrap())).collect();
    assert!(units.len() >= 2, "{units:?}");
    units
}

fn has(unit: &str, line: &str) -> bool {
    unit.lines().any(|it| it == line)
}

/// The device's daemon, the overlay's and guests have their sockets in one folder, which systemd removes when a unit
/// stops that names it as its own.
#[test]
fn no_unit_removes_the_sockets_of_others() {
    for (name, unit) in units() {
        let shares =
            has(&unit, "RuntimeDirectory=weft") || has(&unit, "RuntimeDirectory=weft-route");
        assert!(!shares || has(&unit, "RuntimeDirectoryPreserve=yes"), "{name}");
    }
}

#[test]
fn every_unit_drops_unneeded_privileges() {
    for (name, unit) in units() {
        for line in [
            "NoNewPrivileges=yes",
            "ProtectSystem=strict",
            "DevicePolicy=closed",
            "LockPersonality=yes",
        ] {
            assert!(has(&unit, line), "{name} lacks {line}");
        }
        for key in [
            "CapabilityBoundingSet=",
            "SystemCallFilter=",
            "RestrictAddressFamilies=",
            "UMask=0077",
        ] {
            assert!(unit.lines().any(|line| line.starts_with(key)), "{name} lacks {key}");
        }
    }
}

/// `systemd-analyze` finds no error, and rates no unit's exposure above 5.0 of 10 (an unprotected unit has 9.6).
#[test]
fn systemd_verifies_every_unit_and_rates_its_exposure() {
    if !can_run("systemd's units", "systemd-analyze", &["--version"], "systemd") {
        return;
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("units");
    fs::create_dir_all(&folder).unwrap();
    for (name, unit) in units() {
        // The unit starts the program as it was just built; manual pages are not installed.
        let program = assert_cmd::cargo::cargo_bin!("weft").to_str().unwrap().to_owned();
        let unit = unit.replace("/usr/local/bin/weft", &program);
        let lines = unit.lines().filter(|line| !line.starts_with("Documentation="));
        let file = folder.join(&name);
        fs::write(&file, lines.map(|line| format!("{line}\n")).collect::<String>()).unwrap();
        for words in [&["verify", "--man=no"][..], &["security", "--offline=yes", "--threshold=50"]]
        {
            let output = Command::new("systemd-analyze").args(words).arg(&file).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{name}: {words:?}: {said}");
            // systemd also reads other units of this machine, which are not under test.
            assert!(!said.lines().any(|line| line.contains(&name)), "{name}: {said}");
        }
    }
}
