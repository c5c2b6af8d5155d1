//! Keys, and measurements over encrypted connections.
#![allow(clippy::disallowed_methods, reason = "a name unique to this process, not a measurement")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, Output, Stdio};

use assert_cmd::Command;
use serde_json::Value;

/// A folder of this test's own, removed when it ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("weft-encryption-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn weft(&self, arguments: &str) -> Output {
        let mut command = Command::cargo_bin("weft").unwrap();
        command.args(arguments.split_whitespace()).current_dir(&self.0).output().unwrap()
    }

    /// Returns the output of a command, which must succeed.
    fn text(&self, arguments: &str) -> String {
        let output = self.weft(arguments);
        assert!(
            output.status.success(),
            "{arguments}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    }

    /// Returns the error of a command, which must fail.
    fn refusal(&self, arguments: &str) -> String {
        let output = self.weft(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments}");
        String::from_utf8(output.stderr).unwrap()
    }

    fn read(&self, file: &str) -> String {
        fs::read_to_string(self.0.join(file)).unwrap()
    }

    fn mode(&self, file: &str) -> u32 {
        fs::metadata(self.0.join(file)).unwrap().permissions().mode() & 0o777
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A server on a free port of the loopback, until the test ends.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(folder: &Folder, options: &str) -> Self {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_weft"));
        command.args("perf server --listen 127.0.0.1:0 --wait block".split_whitespace());
        command.args(options.split_whitespace()).current_dir(&folder.0);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        // "listening on ADDRESS; interrupt to stop"
        let address = line.split([' ', ';']).nth(2).unwrap().to_owned();
        Self { child, address }
    }

    fn client(&self, options: &str) -> String {
        format!("perf client {} --duration 50ms --wait block --size 64KiB {options}", self.address)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn is_key(text: &str) -> bool {
    text.trim_end().len() == 64 && text.trim_end().bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[test]
fn keys_are_made_once_for_their_owner_only() {
    let folder = Folder::new("keys");
    let public = folder.text("key new identity");
    assert!(is_key(&public), "{public}");
    let private = folder.read("identity");
    assert!(is_key(&private) && private != public);
    assert_eq!(folder.text("key public identity"), public);
    let shown: Value = serde_json::from_str(&folder.text("key public identity --json")).unwrap();
    assert_eq!((&shown["file"], &shown["public"]), (&"identity".into(), &public.trim_end().into()));

    assert!(folder.text("key psk psk").starts_with("psk; copy it"));
    assert!(is_key(&folder.read("psk")));
    assert_eq!((folder.mode("identity"), folder.mode("psk")), (0o600, 0o600));

    // A second call does not overwrite a key that may be in use.
    for again in ["key new identity", "key psk identity"] {
        let refusal = folder.refusal(again);
        assert!(
            refusal.contains("cannot make identity") && refusal.contains("exists"),
            "{refusal}"
        );
    }
    assert_eq!(folder.read("identity"), private);
    assert_ne!(folder.text("key new another"), public);

    fs::set_permissions(folder.0.join("identity"), fs::Permissions::from_mode(0o644)).unwrap();
    assert!(folder.refusal("key public identity").contains("chmod 600"));
    fs::write(folder.0.join("another"), "1234\n").unwrap();
    assert!(folder.refusal("key public another").contains("64 hexadecimal digits"));
    assert!(folder.refusal("key public none").contains("none"));
}

#[test]
fn a_measurement_reports_cipher_and_peer() {
    let folder = Folder::new("perf");
    let [server_key, client_key] =
        ["server", "client"].map(|name| folder.text(&format!("key new {name}")));
    fs::write(folder.0.join("servers"), format!("{} the server\n", server_key.trim_end())).unwrap();
    fs::write(folder.0.join("clients"), &client_key).unwrap();
    let server = Server::start(&folder, "--identity server --peers clients");
    let options = "--identity client --peers servers --cipher aes-256-gcm --key-log log";
    let report: Value =
        serde_json::from_str(&folder.text(&server.client(&format!("{options} --json")))).unwrap();
    assert_eq!(report["encryption"]["connections"], 1, "{report}");
    assert_eq!(report["encryption"]["cipher"], "aes-256-gcm");
    assert_eq!(report["encryption"]["peer"], server_key.trim_end());
    for end in ["client", "server"] {
        assert!(report[end]["sealing"]["sealed"].as_u64() > Some(0), "{report}");
        assert!(report[end]["sealing"]["opened"].as_u64() > Some(0), "{report}");
    }
    let text = folder.text(&server.client(options));
    assert!(text.contains("aes-256-gcm, ") && text.contains(server_key.trim_end()), "{text}");
    // There is a line for each direction of both connections.
    assert_eq!((folder.read("log").lines().count(), folder.mode("log")), (4, 0o600));

    // The clients are one with another key, and one without encryption.
    folder.text("key new outsider");
    for options in ["--identity outsider", "--encryption off"] {
        let refusal = folder.refusal(&server.client(options));
        assert!(!refusal.contains("is `weft perf server` running"), "{refusal}");
    }
}

#[test]
fn variables_apply_where_options_are_left_out() {
    let folder = Folder::new("variables");
    let server = Server::start(&folder, "");
    let client = |options: &str| {
        let mut command = Command::cargo_bin("weft").unwrap();
        command.args(server.client(options).split_whitespace()).env("WEFT_ENCRYPTION", "off");
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    assert!(client("").contains("none: everything was sent in the clear"));
    assert!(client("--encryption preferred").contains("aes-128-gcm, "));
    let refusal = folder.refusal("perf client 127.0.0.1 --messages --cipher aes-256-gcm");
    assert!(refusal.contains("set WEFT_ENCRYPTION"), "{refusal}");
}
