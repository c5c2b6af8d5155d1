//! Tests of unmodified Debian programs on the device.
#![allow(clippy::disallowed_methods, reason = "these tests watch programs in real time")]

use std::process::{Command, Output};

mod conformance;
mod for_everybody;
mod guests;
mod hostile;
mod labels;
mod library;
mod one_host;
mod pair;
mod preloaded;
mod processes;
mod two_hosts;
mod two_namespaces;
mod ucx;

use library::LIBRARY;

/// Runs a program on this device.
fn run(program: &str, args: &[&str]) -> Output {
    Command::new(program).args(args).env("LD_LIBRARY_PATH", &*LIBRARY).output().unwrap_or_else(
        |error| panic!("{program}: {error} (apt-get install ibverbs-utils perftest)"),
    )
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn ibv_devices_lists_the_device_without_a_warning() {
    let listed = run("ibv_devices", &[]);
    assert!(listed.status.success() && text(&listed).contains("weft0"), "{listed:?}");
    assert!(listed.stderr.is_empty(), "{listed:?}");
}

#[test]
fn ibv_devinfo_describes_it() {
    let described = run("ibv_devinfo", &["-v"]);
    assert!(described.status.success() && described.stderr.is_empty(), "{described:?}");
    let text = text(&described);
    for line in ["hca_id:\tweft0", "PORT_ACTIVE (4)", "Ethernet", "RC_RNR_NAK_GEN", "GID["] {
        assert!(text.contains(line), "no {line:?} in {text}");
    }
}

#[test]
fn an_invalid_variable_is_named_once_and_the_device_is_not_opened() {
    for (name, value, allowed) in [
        ("WEFT_MTU", "jumbo", "bytes from 1280 to 9000"),
        ("WEFT_PATHS", "0", "paths from 1 to 4096"),
        ("WEFT_LINE_RATE", "200", "a rate from 1Mbps to 1000Gbps"),
    ] {
        let mut command = Command::new("ibv_devinfo");
        let refused = command.env("LD_LIBRARY_PATH", &*LIBRARY).env(name, value).output().unwrap();
        assert!(!refused.status.success(), "{refused:?}");
        let output = String::from_utf8_lossy(&refused.stderr);
        let ours: Vec<&str> = output.lines().filter(|line| line.starts_with("weft: ")).collect();
        let [why] = ours[..] else { panic!("{output}") };
        assert!(why.contains(&format!("{name}={value}")) && why.contains(allowed), "{why}");
    }
}

#[test]
fn the_tests_of_rdma_core_pass() {
    let page = conformance::check("weft0", |_| {});
    if std::env::var_os("BLESS").is_some() {
        let at = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/verbs-conformance.md");
        std::fs::write(at, page).unwrap();
    }
}

/// perftest links with drivers of real hardware, which require the private version.
#[test]
fn programs_that_link_with_drivers_load() {
    let version = run("ib_write_bw", &["--version"]);
    assert!(text(&version).contains("Version"), "{version:?}");
    assert!(version.stderr.is_empty(), "{version:?}");
}
