//! The drop-ins of `docs/supervision.md`, for configurations that need more than the units give.

use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use weft_lab::{Lab, LabSpec};
use weft_testkit::can_run;

use crate::daemon::{Running, Stage, get_with, is_missing};
use crate::exposure;
use crate::unit::Unit;

/// A drop-in of the page.
struct DropIn {
    /// The paragraph above it.
    about: String,
    /// The units that it is for.
    units: Vec<Unit>,
    text: String,
}

/// Returns the page's drop-ins: blocks whose first line is the command that writes them.
fn drop_ins() -> Vec<DropIn> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/supervision.md");
    let page = fs::read_to_string(page).unwrap();
    let blocks: Vec<&str> = page.split("```").collect();
    let block = |pair: &[&str]| {
        let text = pair[1].strip_prefix("ini\n# systemctl edit ")?;
        let (units, text) = text.split_once('\n').unwrap();
        Some(DropIn {
            about: pair[0].trim_end().rsplit("\n\n").next().unwrap().to_owned(),
            units: units.split_whitespace().map(Unit::named).collect(),
            text: text.to_owned(),
        })
    };
    blocks.chunks_exact(2).filter_map(block).collect()
}

/// Returns a unit with the drop-in that has this setting.
fn unit_with(name: &str, setting: &str) -> Unit {
    let drop_ins = drop_ins();
    let is_it =
        |it: &&DropIn| it.text.contains(setting) && it.units.iter().any(|it| it.name == name);
    Unit::named(name).with(&drop_ins.iter().find(is_it).unwrap().text)
}

#[test]
fn systemd_verifies_every_drop_in_and_the_page_has_the_exposure_of_each_that_adds_rights() {
    if !can_run("drop-ins of systemd's units", "systemd-analyze", &["--version"], "systemd") {
        return;
    }
    let drop_ins = drop_ins();
    assert!(drop_ins.len() >= 5, "{}", drop_ins.len());
    for (number, drop_in) in drop_ins.iter().enumerate() {
        for unit in &drop_in.units {
            let rated = exposure(&unit.with(&drop_in.text), &format!("drop-in-{number}"));
            let adds_rights = drop_in.text.contains("CapabilityBoundingSet=");
            assert!(!adds_rights || drop_in.about.contains(&rated), "{}: {rated}", unit.name);
        }
    }
}

#[test]
fn the_overlay_enters_a_processs_namespace_with_the_drop_in_only() {
    if is_missing("a process's namespace under the unit") {
        return;
    }
    let unit = Unit::named("weft-vpc");
    let stage = Stage::new("proc", &unit.name);
    let mut tenant = Command::new("unshare");
    tenant
        .args(["--net", "sh", "-c", "echo; exec cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut tenant = Running(tenant.spawn().unwrap());
    // Its line comes from its own namespace.
    std::io::Read::read_exact(tenant.0.stdout.as_mut().unwrap(), &mut [0]).unwrap();
    let config = fs::read_to_string(stage.path("vpc.toml")).unwrap();
    let namespace = format!("tap = {{ namespace = '/proc/{}/ns/net',", tenant.pid());
    fs::write(stage.path("vpc.toml"), config.replace("tap = {", &namespace)).unwrap();
    let output = stage.command(&unit).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && error.contains("/ns/net"), "{error}");
    let _daemon = stage.start(&unit_with("weft-vpc", "CAP_SYS_PTRACE"));
    stage.manager.until("READY=1\n");
}

/// Prometheus on another host, with the token and without.
#[test]
fn other_hosts_read_metrics_at_the_address_of_the_drop_in_with_its_token() {
    if is_missing("metrics for other hosts") {
        return;
    }
    let unit = unit_with("weft-vpc", "--token-file");
    let mut stage = Stage::new("scrape", &unit.name);
    let lab = Lab::up(&LabSpec::named(format!("wusl{}", std::process::id()))).unwrap();
    stage.http = format!("{}:9464", lab.fabric().address(1));
    fs::write(stage.path("token"), "0123456789abcdef").unwrap();
    fs::set_permissions(stage.path("token"), fs::Permissions::from_mode(0o600)).unwrap();
    let daemon = lab.enter("h1", || stage.start(&unit)).unwrap();
    stage.manager.until("READY=1\n");
    let status = |headers: &str| {
        let stream = lab.enter("h0", || TcpStream::connect(&stage.http)).unwrap();
        get_with(stream.unwrap(), "/metrics", headers).0
    };
    assert_eq!(status(""), "HTTP/1.0 401 Unauthorized");
    assert_eq!(status("Authorization: Bearer 0123456789abcdef\r\n"), "HTTP/1.0 200 OK");
    drop(daemon);
}

/// With the unit alone the kernel's sockets carry the packets.
#[test]
fn the_overlay_takes_af_xdp_with_the_drop_in_only() {
    if is_missing("AF_XDP under the unit") {
        return;
    }
    let with_drop_in = unit_with("weft-vpc", "AF_XDP");
    let units = [("kernel", Unit::named("weft-vpc")), ("af-xdp", with_drop_in)];
    for (wire, unit) in units {
        let stage = Stage::new(wire, &unit.name);
        let lab = Lab::up(&LabSpec::named(format!("wux{}", std::process::id()))).unwrap();
        let config = fs::read_to_string(stage.path("vpc.toml")).unwrap();
        let host = format!("[host]\nwire = 'af-xdp'\naddress = '{}'", lab.fabric().address(1));
        let config = config.replace("[host]\naddress = '127.0.0.1'", &host);
        fs::write(stage.path("vpc.toml"), config).unwrap();
        let _daemon = lab.enter("h1", || stage.start(&unit)).unwrap();
        stage.manager.until("READY=1\n");
        let control = stage.path("vpc.sock");
        let status =
            stage.weft(&["vpc", "status", "--json", "--control", control.to_str().unwrap()]);
        let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
        assert_eq!(status["threads"][0]["wire"], wire, "{status}");
    }
}
