//! Captures, read by tshark. Without tshark, or without root where a test captures an interface, the test reports
//! that it was skipped.
#![allow(clippy::disallowed_methods, reason = "these tests wait for a process in real time")]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const SCENARIO: &str = r#"
topology = { kind = "leaf-spine", leaves = 2, spines = 2, hosts_per_leaf = 2 }

[[workload]]
kind = "pairs"
pairs = [[0, 3]]
size = "20KB"

[[fault]]
kind = "loss"
links = "uplinks"
probability = 0.2
"#;

/// A folder that is removed with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("weft-capture-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn weft(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weft"));
        command.args(arguments).current_dir(&self.0).env_remove("WEFT_CAPTURE");
        command
    }

    /// Returns the values of a field of the packets that pass a filter; `None` without tshark.
    fn tshark(&self, file: &str, filter: &str, field: &str) -> Option<Vec<String>> {
        let plugin = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dissector/weft.lua");
        let output = Command::new("tshark")
            .args(["-X", &format!("lua_script:{}", plugin.display()), "-r", file])
            .args(self.0.join("keys").exists().then_some(["-o", "weft.keys:keys"]).iter().flatten())
            .args(["-Y", filter, "-T", "fields", "-e", field])
            .current_dir(&self.0)
            .output();
        let Ok(output) = output else {
            weft_testkit::skip("captures", "no tshark (sudo apt-get install tshark)");
            return None;
        };
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !errors.contains("Lua"), "{errors}");
        Some(String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A server on a free port of the loopback, until the test ends.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(folder: &Folder) -> Self {
        let mut command =
            folder.weft(&["perf", "server", "--listen", "127.0.0.1:0", "--wait", "block"]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        // "listening on ADDRESS; interrupt to stop"
        let address = line.split([' ', ';']).nth(2).unwrap().to_owned();
        Self { child, address }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const BRIEF: [&str; 10] = [
    "--duration",
    "100ms",
    "--wait",
    "block",
    "--size",
    "64KiB",
    "--outstanding",
    "2",
    "--connections",
    "1",
];

#[test]
fn a_simulation_is_captured_with_its_retransmissions_at_both_ends() {
    let folder = Folder::new("sim");
    std::fs::write(folder.0.join("s.toml"), SCENARIO).unwrap();
    let output =
        folder.weft(&["sim", "run", "s.toml", "--capture", "s.pcapng", "--json"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let counted = |name: &str| report["reports"][0]["transport"][name].as_u64().unwrap();

    let Some(sent) = folder.tshark(
        "s.pcapng",
        "weft.message && ip.src == 10.0.0.0 && frame.interface_name == \"h0\"",
        "weft.data.ret",
    ) else {
        return;
    };
    let retransmissions = sent.iter().filter(|ret| *ret == "True" || *ret == "1").count();
    assert!(retransmissions > 0, "a fifth of all packets is lost");
    let kinds = ["fast_retransmits", "timeout_retransmits", "tail_loss_probes"];
    assert_eq!(retransmissions as u64, kinds.map(counted).iter().sum::<u64>());
    let arrived = folder
        .tshark("s.pcapng", "weft.message && frame.interface_name == \"h3\"", "weft.psn")
        .unwrap();
    assert!(
        arrived.len() < sent.len() && arrived.len() >= 5,
        "{} of {}",
        arrived.len(),
        sent.len()
    );
    // Ports are RoCEv2's, whose dissector would report them as malformed.
    assert_eq!(
        folder.tshark("s.pcapng", "_ws.malformed || infiniband", "frame.number").unwrap().len(),
        0
    );
}

#[test]
fn a_program_is_captured_without_privileges() {
    let folder = Folder::new("program");
    let server = Server::start(&folder);
    let client = [
        &["capture", "-w", "p.pcapng", "--snap", "120", "--keys", "keys", "--"][..],
        &[env!("CARGO_BIN_EXE_weft")],
        &["perf", "client", &server.address, "--test", "latency", "--size", "968"],
        &["--duration", "10ms", "--wait", "block"],
    ]
    .concat();
    let output = folder.weft(&client).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let Some(lines) = folder.tshark("p.pcapng", "frame", "_ws.col.Info") else { return };
    // Packets of both directions, and none of other programs.
    for kind in ["request service", "accept service", "sealed data psn", "sealed ack base"] {
        assert!(lines.iter().any(|line| line.starts_with(kind)), "no {kind} in {lines:?}");
    }
    let kept = folder.tshark("p.pcapng", "weft && frame.cap_len <= 120", "frame.len").unwrap();
    assert_eq!(kept.len(), lines.len());
    let sealed = 1028 + 28;
    assert!(
        kept.iter().any(|length| *length == sealed.to_string()),
        "1000 bytes, sealed: {kept:?}"
    );
}

#[test]
fn an_interface_is_captured_packet_by_packet() {
    let folder = Folder::new("interface");
    let server = Server::start(&folder);
    let port = server.address.rsplit(':').next().unwrap().to_owned();
    let mut listener = folder
        .weft(&[
            "capture",
            "-w",
            "i.pcapng",
            "-i",
            "lo",
            "--port",
            &port,
            "--packets",
            "400",
            "--duration",
            "30s",
            "--json",
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The command ends by itself after enough packets; until then traffic continues.
    let ended = loop {
        if let Some(status) = listener.try_wait().unwrap() {
            break status;
        }
        let client = [&["perf", "client", &server.address][..], &BRIEF].concat();
        assert!(folder.weft(&client).stdout(Stdio::null()).status().unwrap().success());
    };
    let output = listener.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    if errors.contains("CAP_NET_RAW") {
        return weft_testkit::skip("a capture of an interface", &errors);
    }
    assert!(ended.success(), "{errors}");
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(value["packets"], 400);
    assert!(value["sealed"].as_u64() > Some(300), "{value}");
    let Some(lengths) = folder.tshark("i.pcapng", "weft", "frame.len") else { return };
    assert_eq!(lengths.len(), 400, "all are ours");
    // The kernel passes 44 datagrams at a time; the capture has each of them as a packet.
    assert!(lengths.iter().all(|len| len.parse::<u32>().unwrap() <= 1600), "{lengths:?}");
}

#[test]
fn errors_of_a_capture_name_the_cause() {
    let folder = Folder::new("errors");
    for (arguments, expected) in [
        (&["capture", "-w", "no/such/folder.pcapng", "--", "true"][..], "no/such/folder.pcapng"),
        (&["capture", "-w", "x.pcapng", "-i", "no-such-0"], "no interface no-such-0"),
        (&["capture", "-w", "x.pcapng", "--", "no-such-program"], "no-such-program"),
        (&["capture", "-w", "x.pcapng"], "--interface"),
    ] {
        let output = folder.weft(arguments).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && errors.contains(expected), "{arguments:?}: {errors}");
    }
    let output = folder.weft(&["capture", "-w", "x.pcapng", "--", "true"]).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.contains("nothing captured"), "{errors}");
}

#[test]
fn a_full_disk_ends_the_capture_and_not_the_program() {
    let folder = Folder::new("full");
    let server = Server::start(&folder);
    let client = [&["perf", "client", &server.address][..], &BRIEF].concat();
    let with = |file: &str| folder.weft(&client).env("WEFT_CAPTURE", file).output().unwrap();
    let output = with("/dev/full");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert_eq!(errors.matches("the capture /dev/full ends here").count(), 1, "{errors}");

    let output = with("no/such/folder.pcapng");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && errors.contains("cannot capture to no/such/folder"),
        "{errors}"
    );
}
