//! The command as people and scripts use it: exit codes, streams, JSON, and a lab from start to end.
#![allow(clippy::disallowed_methods, reason = "a name unique to this process, not a measurement")]

use std::io;
use std::path::PathBuf;
use std::process::{Output, Stdio};

use assert_cmd::Command;
use serde_json::Value;

fn weft(arguments: &[&str]) -> Output {
    Command::cargo_bin("weft").unwrap().args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn json(arguments: &[&str]) -> Value {
    let output = weft(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A folder of this test's own, removed when it ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("weft-cli-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn wrong_usage_is_exit_code_2_and_prints_the_usage() {
    for arguments in [&["nonsense"][..], &["list", "--nonsense"], &["lab", "set"]] {
        let output = weft(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(output.stdout.is_empty());
        assert!(text(&output.stderr).contains("Usage:"), "{}", text(&output.stderr));
    }
}

#[test]
fn a_typo_in_a_name_is_exit_code_1_with_the_nearest_name() {
    let output = weft(&["list", "policy"]);
    assert_eq!(output.status.code(), Some(1));
    let message = text(&output.stderr);
    assert!(message.starts_with("error: no kind \"policy\""), "{message}");
    assert!(message.contains("policies"), "{message}");
}

#[test]
fn listed_policies_parse_as_names_of_the_engine() {
    let listed = json(&["list", "policies", "--json"]);
    let rows = listed["policies"].as_array().unwrap();
    assert!(!rows.is_empty());
    for row in rows {
        let name = row["name"].as_str().unwrap();
        assert!(name.parse::<weft_transport::path::Kind>().is_ok(), "{name}");
    }
}

#[test]
fn every_kind_of_the_list_has_rows_with_a_description() {
    for (kind, rows) in json(&["list", "--json"]).as_object().unwrap() {
        let rows = rows.as_array().unwrap();
        assert!(!rows.is_empty(), "{kind}");
        assert!(rows.iter().all(|row| !row["about"].as_str().unwrap().is_empty()), "{kind}");
    }
}

#[test]
fn a_pipe_gets_no_colours() {
    for arguments in [&["list"][..], &["doctor"], &["list", "nonsense"]] {
        let output = weft(arguments);
        let both = [output.stdout, output.stderr].concat();
        assert!(!both.contains(&0x1b), "{arguments:?}");
    }
}

#[test]
fn a_reader_that_stops_early_is_no_failure() {
    let mut child = std::process::Command::new(assert_cmd::cargo::cargo_bin!("weft"))
        .args(["completions", "bash"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(output.stderr.is_empty(), "{}", text(&output.stderr));
}

/// Commands whose result is text, JSON, a schema, a script, help.
const WITH_OUTPUT: [&[&str]; 6] = [
    &["list"],
    &["list", "--json"],
    &["schema", "overlay"],
    &["completions", "bash"],
    &["--help"],
    &["--version"],
];

#[test]
fn a_full_disk_under_standard_output_is_an_error() {
    for arguments in WITH_OUTPUT {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut command = std::process::Command::new(assert_cmd::cargo::cargo_bin!("weft"));
        let output = command.args(arguments).stdout(full).output().unwrap();
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {error}");
        assert!(error.contains("standard output") && error.contains("No space"), "{error}");
    }
}

#[test]
fn a_closed_standard_output_is_a_quiet_end() {
    for arguments in WITH_OUTPUT {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let mut command = std::process::Command::new(assert_cmd::cargo::cargo_bin!("weft"));
        let output = command.args(arguments).stdout(writer).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{arguments:?}: {output:?}");
    }
}

/// An error is one JSON object under `--json`, wherever the option stands; nothing is on standard output.
#[test]
fn errors_are_json_under_json() {
    for (arguments, code, words) in [
        (&["list", "policy", "--json"][..], 1, "policies"),
        (&["--json", "vpc", "--control", "/nowhere/s", "status"], 1, "no daemon at /nowhere/s"),
        (&["sim", "run", "/nowhere.toml", "--json"], 1, "/nowhere.toml"),
        (&["vpc", "reload", "--config", "/nowhere.toml", "--json"], 1, "/nowhere.toml"),
        (&["list", "--nonsense", "--json"], 2, "--nonsense"),
        (&["--json", "nonsense"], 2, "nonsense"),
    ] {
        let output = weft(arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
        let error = text(&output.stderr);
        assert_eq!(error.lines().count(), 1, "{error}");
        let error: Value = serde_json::from_str(&error).unwrap();
        assert!(error["error"].as_str().unwrap().contains(words), "{error}");
    }
    let output = weft(&["--json", "vpc", "--control", "/nowhere/s", "status"]);
    let error: Value = serde_json::from_slice(&output.stderr).unwrap();
    assert!(error["causes"][0].as_str().unwrap().contains("No such file"), "{error}");
    // An option of the program behind `--` is not one of ours.
    let output = weft(&["lab", "exec", "nowhere", "--", "ls", "--json"]);
    assert!(text(&output.stderr).starts_with("error: "), "{}", text(&output.stderr));
}

#[test]
fn doctor_succeeds_whatever_is_missing_and_names_every_fix() {
    let findings = json(&["doctor", "--json"]);
    for finding in findings.as_array().unwrap() {
        let works = finding["state"] == "works";
        assert_eq!(finding["fix"].as_str().unwrap().is_empty(), works, "{finding}");
    }
}

#[test]
fn every_command_has_a_manual_page() {
    let folder = Folder::new("man");
    let pages = json(&["man", folder.0.to_str().unwrap(), "--json"]);
    let pages: Vec<&str> = pages.as_array().unwrap().iter().map(|p| p.as_str().unwrap()).collect();
    for page in ["weft.1", "weft-list.1", "weft-lab.1", "weft-lab-up.1", "weft-doctor.1"] {
        assert!(pages.contains(&page), "{page} in {pages:?}");
    }
    let page = std::fs::read_to_string(folder.0.join("weft-lab-set.1")).unwrap();
    assert!(page.contains("weft lab set l0\\-s1 \\-\\-loss 1%"), "no example in the page: {page}");
}

#[test]
fn a_folder_that_cannot_be_written_is_named() {
    let output = weft(&["man", "/proc/no-such-folder"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("/proc/no-such-folder"), "{}", text(&output.stderr));
}

#[test]
fn every_shell_gets_completions() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = weft(&["completions", shell]);
        assert!(text(&output.stdout).contains("lab"), "{shell}");
    }
}

#[test]
fn a_lab_that_is_not_up_is_named() {
    let output = weft(&["lab", "--name", "no-such-lab", "status"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("no lab \"no-such-lab\""), "{}", text(&output.stderr));
}

#[test]
fn a_lab_can_be_built_broken_mended_and_removed_by_separate_commands() {
    if weft_testkit::lab_is_missing("a lab from the command line", &[]) {
        return;
    }
    let name = format!("cli{}", std::process::id());
    let lab = |arguments: &[&str]| weft(&[&["lab", "--name", &name], arguments].concat());

    let up = lab(&["up", "--spines", "3", "--json"]);
    assert!(up.status.success(), "{}", text(&up.stderr));
    let up: Value = serde_json::from_slice(&up.stdout).unwrap();
    assert_eq!(up["spec"]["spines"], 3);
    assert_eq!(up["nodes"][1]["address"], "10.2.0.2");

    let set = lab(&["set", "s1-l0", "--from", "s1", "--loss", "2.5%", "--rate", "1Gbps"]);
    assert_eq!(
        text(&set.stdout),
        "l0-s1 from l0: healthy\nl0-s1 from s1: loses 2.5%, limited to 1Gbps\n"
    );
    let set = lab(&["set", "l0-s1", "--silent"]);
    assert!(text(&set.stdout).contains("from s1: swallows everything, loses 2.5%"));
    let set = lab(&["set", "l0-s1", "--clear", "--down"]);
    assert_eq!(text(&set.stdout), "l0-s1: down\n");
    let set = lab(&["set", "l0-s1", "--up"]);
    assert_eq!(text(&set.stdout), "l0-s1: healthy\n");

    let inside = lab(&["exec", "h0", "--", "ip", "-o", "-4", "addr", "show", "eth0"]);
    assert!(text(&inside.stdout).contains("10.1.0.2/24"), "{}", text(&inside.stdout));
    assert_eq!(lab(&["exec", "h0", "--", "sh", "-c", "exit 7"]).status.code(), Some(7));
    let absent = lab(&["exec", "h0", "--", "no-such-program"]);
    assert!(text(&absent.stderr).contains("no-such-program"), "{}", text(&absent.stderr));
    let wrong = lab(&["set", "l0-s7", "--loss", "1%"]);
    assert!(text(&wrong.stderr).contains("did you mean"), "{}", text(&wrong.stderr));
    let ports = lab(&["ports", "h0", "h1", "--count", "2"]);
    assert_eq!(text(&ports.stdout).lines().count(), 2 + 3, "{}", text(&ports.stderr));

    let down = lab(&["down"]);
    assert_eq!(text(&down.stdout), format!("removed {name}\n"));
    assert_eq!(lab(&["down"]).status.code(), Some(1));
}

/// A running `weft perf server`, interrupted when the test ends.
struct PerfServer(std::process::Child, String);

impl PerfServer {
    fn start() -> Self {
        use std::io::BufRead;
        let mut child = std::process::Command::new(assert_cmd::cargo::cargo_bin!("weft"))
            .args(["perf", "server", "--listen", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let stdout = child.stdout.take().unwrap();
        io::BufReader::new(stdout).read_line(&mut line).unwrap();
        let address = line.strip_prefix("listening on ").unwrap().split(';').next().unwrap();
        Self(child, address.to_owned())
    }

    /// Interrupts it, as Ctrl-C does, and returns its exit code.
    fn interrupt(mut self) -> Option<i32> {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        self.0.wait().unwrap().code()
    }
}

impl Drop for PerfServer {
    fn drop(&mut self) {
        let _ = self.0.kill();
    }
}

#[test]
fn a_measurement_over_loopback_moves_every_byte_unchanged() {
    let server = PerfServer::start();
    let report = json(&[
        "perf",
        "client",
        &server.1,
        "--duration",
        "300ms",
        "--size",
        "64KiB",
        "--verify",
        "--json",
    ]);
    assert!(report["messages"].as_u64().unwrap() > 0, "{report}");
    assert_eq!(report["corrupt"], 0, "{report}");
    assert_eq!(report["paths"], 4);

    let output = weft(&["perf", "client", &server.1, "--test", "latency", "--duration", "200ms"]);
    let shown = text(&output.stdout);
    assert!(shown.starts_with("latency: 1 connection, 4 paths"), "{shown}");
    assert!(shown.contains("round trip"), "{shown}");
    assert_eq!(server.interrupt(), Some(0), "an interrupt is how a server ends");
}

#[test]
fn an_absent_server_is_named() {
    let output = weft(&["perf", "client", "127.0.0.1:1", "--duration", "100ms"]);
    assert_eq!(output.status.code(), Some(1));
    let message = text(&output.stderr);
    assert!(message.contains("is `weft perf server` running there"), "{message}");
}

#[test]
fn the_error_of_an_unknown_transport_key_has_the_nearest_one() {
    let output = weft(&["perf", "client", "127.0.0.1", "--set", "ack_evry=4"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("did you mean \"ack_every\"?"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn the_demonstration_shows_that_only_one_path_waits_for_a_repair() {
    let folder = Folder::new("demo");
    let page = folder.0.join("pages/demo.html");
    let outcome = json(&["demo", "--loopback", "--json", "--html", page.to_str().unwrap()]);
    let row = |name: &str| {
        let rows = outcome["rows"].as_array().unwrap();
        rows.iter().find(|row| row["contender"] == name).unwrap().clone()
    };
    let (single, weft) = (row("single-path"), row("weft"));
    for row in [&single, &weft] {
        assert!(row["lossy_bps"].as_f64().unwrap() > 0.0, "{outcome}");
        assert!(row["lossy_latency_us"]["count"].as_u64().unwrap() > 100, "{outcome}");
    }
    let wait = |row: &Value| row["longest_wait_seconds"].as_f64().unwrap();
    assert!(
        wait(&single) > 1.5,
        "a request on the dead path waits for its repair: {}",
        wait(&single)
    );
    assert!(wait(&weft) < 1.0, "a request on four paths does not: {}", wait(&weft));
    let html = std::fs::read_to_string(page).unwrap();
    assert_eq!(html.matches("<svg").count(), 3);
}

#[test]
fn run_finds_the_libraries_or_names_the_command_that_makes_them() {
    let folder = Folder::new("run");
    let path = folder.0.to_str().unwrap();
    let absent = weft(&["run", "--libraries", path, "--", "true"]);
    assert_eq!(absent.status.code(), Some(1));
    let message = text(&absent.stderr);
    assert!(
        message.contains("no libibverbs.so.1") && message.contains("cargo xtask verbs"),
        "{message}"
    );

    for file in ["libibverbs.so.1", "librdmacm.so.1", "libweft_preload.so"] {
        std::fs::write(folder.0.join(file), "").unwrap();
    }
    let script = "echo $LD_LIBRARY_PATH $LD_PRELOAD; exit 7";
    let ran = Command::cargo_bin("weft")
        .unwrap()
        .args(["run", "--libraries", path, "--", "sh", "-c", script])
        .env("LD_LIBRARY_PATH", "/before")
        .output()
        .unwrap();
    assert_eq!(ran.status.code(), Some(7));
    let preloads = format!("{path}/libweft_preload.so:{path}/libibverbs.so.1");
    assert_eq!(text(&ran.stdout), format!("{path}:/before {preloads}\n"));

    let shared = weft(&["run", "--libraries", path, "--shared-memory", "--", "true"]);
    assert_eq!(shared.status.code(), Some(1));
    assert!(text(&shared.stderr).contains("no libweft_malloc.so.1"), "{}", text(&shared.stderr));
    std::fs::write(folder.0.join("libweft_malloc.so.1"), "").unwrap();
    let words = ["--shared-memory", "--for", "nccl", "--", "sh", "-c", "echo $LD_PRELOAD"];
    let shared = weft(&[&["run", "--libraries", path], &words[..]].concat());
    assert_eq!(text(&shared.stdout), format!("{preloads}:{path}/libweft_malloc.so.1\n"));
    assert!(text(&shared.stderr).contains("weft: shared memory: "), "{}", text(&shared.stderr));

    let script = "echo $NCCL_NET $NCCL_IBVERBS_LIB $NCCL_IB_HCA";
    let ran = Command::cargo_bin("weft")
        .unwrap()
        .args(["run", "--libraries", path, "--for", "nccl", "--", "sh", "-c", script])
        .env("NCCL_IB_HCA", "mlx5")
        .output()
        .unwrap();
    assert_eq!(text(&ran.stdout), format!("IB {path}/libibverbs.so.1 mlx5\n"));
    // The linker complains about the empty libraries too.
    let said = text(&ran.stderr);
    let lines: Vec<&str> =
        said.lines().filter(|line| line.starts_with("weft: for nccl: ")).collect();
    assert!(lines.len() == 1 && lines[0].contains("NCCL_NET=IB"), "{said}");
    assert!(lines[0].ends_with("NCCL_IB_HCA=mlx5 (kept)"), "{said}");
    let unknown = weft(&["run", "--libraries", path, "--for", "nixle", "--", "true"]);
    assert!(text(&unknown.stderr).contains("did you mean \"nixl\"?"), "{}", text(&unknown.stderr));

    let unknown = weft(&["run", "--libraries", path, "--", "no-such-program"]);
    assert!(text(&unknown.stderr).contains("cannot run no-such-program"));
}
