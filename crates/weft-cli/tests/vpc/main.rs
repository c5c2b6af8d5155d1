//! `weft vpc`: the daemon without privileges, and, with root, tenants between two hosts.
#![allow(clippy::disallowed_methods, reason = "tests of real programs give up after a real while")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use weft_testkit::{can_run, skip};

mod changes;
mod reload;

/// The time limit for a daemon to answer.
const LIMIT: Duration = Duration::from_secs(30);

fn weft(arguments: &[&str]) -> Output {
    Command::new(assert_cmd::cargo::cargo_bin!("weft")).args(arguments).output().unwrap()
}

fn said(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the words of a line of the systemd unit, for this program and another configuration.
fn unit_line(key: &str, config: &Path) -> Vec<String> {
    let unit = include_str!("../../../../dist/weft-vpc.service");
    let line = unit.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    let (program, config) = (assert_cmd::cargo::cargo_bin!("weft"), config.to_str().unwrap());
    let word = |word: &str| match word {
        "/usr/local/bin/weft" => program.to_str().unwrap().to_owned(),
        "/etc/weft/vpc.toml" => config.to_owned(),
        other => other.to_owned(),
    };
    line.unwrap().split_whitespace().map(word).collect()
}

/// A daemon on loopback without interfaces, which needs no privileges, started as the systemd unit defines.
struct Serving {
    child: Child,
    control: PathBuf,
    config: PathBuf,
    /// The daemon's log, JSON lines.
    log: PathBuf,
    metrics: u16,
}

impl Serving {
    fn start(name: &str) -> Self {
        let path = |end: &str| {
            std::env::temp_dir().join(format!("weft-vpc-{}-{name}.{end}", std::process::id()))
        };
        let (control, config, log) = (path("sock"), path("toml"), path("log"));
        let free = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let metrics = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let text = format!(
            "[host]\naddress = '127.0.0.1'\nport = {free}\ncontrol = '{}'\n\
             [[network]]\nvni = 100\npeers = ['127.0.0.2']\n",
            control.display()
        );
        std::fs::write(&config, text).unwrap();
        let child = Self::spawn(&config, &log, metrics);
        let serving = Self { child, control, config, log, metrics };
        serving.wait();
        serving
    }

    fn spawn(config: &Path, log: &Path, metrics: u16) -> Child {
        let line = unit_line("ExecStart", config);
        let mut command = Command::new(&line[0]);
        let metrics_at = line.iter().position(|word| word == "--metrics").unwrap() + 1;
        command
            .args(&line[1..metrics_at])
            .arg(format!("127.0.0.1:{metrics}"))
            .args(["--log", "json"]);
        let stderr = std::fs::File::create(log).unwrap();
        command.stdout(Stdio::null()).stderr(stderr).spawn().unwrap()
    }

    /// Waits until the daemon answers.
    fn wait(&self) {
        let began = Instant::now();
        while !self.ask(&["status"]).status.success() {
            assert!(began.elapsed() < LIMIT, "{}", said(&self.ask(&["status"]).stderr));
        }
    }

    fn stop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Ends the daemon as a crash would, and starts another one.
    fn restart(&mut self) {
        self.stop();
        self.child = Self::spawn(&self.config, &self.log, self.metrics);
        self.wait();
    }

    fn ask(&self, arguments: &[&str]) -> Output {
        weft(&[&["vpc", "--control", self.control.to_str().unwrap()], arguments].concat())
    }

    fn status(&self) -> Value {
        serde_json::from_slice(&self.ask(&["status", "--json"]).stdout).unwrap()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.stop();
        let state = self.control.with_extension("json");
        for path in [&self.config, &self.control, &self.log, &state] {
            let _ = std::fs::remove_file(path);
        }
    }
}

#[test]
fn a_running_daemon_answers_and_applies_changes() {
    let serving = Serving::start("asked");
    assert_eq!(serving.status()["networks"][0]["peers"][0], "127.0.0.2");
    assert!(serving.ask(&["peer", "add", "100", "127.0.0.3"]).status.success());
    assert!(serving.ask(&["peer", "del", "100", "127.0.0.2"]).status.success());
    let machine =
        ["route", "add", "100", "02:00:00:00:00:09", "127.0.0.3", "--address", "10.8.0.9"];
    assert!(serving.ask(&machine).status.success());
    for via in ["10.8.0.8", "10.8.0.9"] {
        assert!(serving.ask(&["route", "add", "100", "10.9.0.0/16", via]).status.success());
    }
    let status = serving.status();
    assert_eq!(status["networks"][0]["peers"], serde_json::json!(["127.0.0.3"]));
    assert_eq!(status["networks"][0]["addresses"]["02:00:00:00:00:09"], "127.0.0.3");
    let routes = serving.ask(&["route", "list", "--json"]).stdout;
    let routes: Value = serde_json::from_slice(&routes).unwrap();
    let row = |destination: &str| {
        let rows = routes.as_array().unwrap();
        rows.iter()
            .find(|row| row["destination"] == destination)
            .unwrap_or_else(|| panic!("{rows:?}"))
    };
    let (machine, prefix) = (row("02:00:00:00:00:09"), row("10.9.0.0/16"));
    assert_eq!((&machine["to"], &machine["addresses"]), (&"127.0.0.3".into(), &"10.8.0.9".into()));
    assert_eq!((&prefix["to"], &prefix["known"]), (&"10.8.0.9".into(), &"told".into()));
    assert!(serving.ask(&["route", "del", "100", "10.9.0.0/16"]).status.success());
    let listed = said(&serving.ask(&["route", "list"]).stdout);
    assert!(listed.contains("10.8.0.9") && !listed.contains("10.9.0.0/16"), "{listed}");
    let text = said(&serving.ask(&["status"]).stdout);
    assert!(text.contains("network 100: reliable, in order, with 127.0.0.3"), "{text}");
    // The file still has its first contents.
    let reload = unit_line("ExecReload", &serving.config);
    let mut reload = Command::new(&reload[0]).args(&reload[1..]).arg("--discard-changes").spawn();
    assert!(reload.as_mut().unwrap().wait().unwrap().success());
    assert_eq!(serving.status()["networks"][0]["peers"], serde_json::json!(["127.0.0.2"]));
    assert_eq!(serving.status()["routes"], serde_json::json!([]));
    for (arguments, words) in [
        (&["port", "del", "web"][..], "no port \"web\""),
        (&["peer", "add", "101", "127.0.0.3"], "no network 101"),
        (&["limit", "web", "--ingress", "1Gbps"], "no port \"web\""),
        (&["acl", "web", "deny ingres tcp"], "ingres"),
        (&["route", "del", "100", "10.9.0.0/16"], "no route to 10.9.0.0/16"),
        (&["route", "add", "100", "10.9.0.1/16", "10.8.0.9"], "10.9.0.0/16"),
        (&["route", "add", "100", "web", "10.8.0.9"], "02:00:00:00:00:01"),
        (&["route", "add", "100", "10.9.0.0/16", "10.8.0.9", "--address", "10.8.0.1"], "prefix"),
        (&["route", "add", "16777216", "10.9.0.0/16", "10.8.0.9"], "16777216"),
    ] {
        let output = serving.ask(arguments);
        let error = said(&output.stderr);
        assert!(!output.status.success() && error.contains(words), "{arguments:?}: {error}");
    }
}

#[test]
fn a_closed_output_pipe_is_no_failure() {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("weft"));
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = command.args(["list", "--json"]).stdout(writer).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

#[test]
fn prometheus_reads_its_metrics() {
    let parser = ["-c", "import prometheus_client.openmetrics.parser"];
    let test = "metrics of the overlay";
    if !can_run(test, "/usr/bin/python3", &parser, "python3-prometheus-client") {
        return;
    }
    let serving = Serving::start("metrics");
    let began = Instant::now();
    let mut stream = loop {
        match TcpStream::connect(("127.0.0.1", serving.metrics)) {
            Ok(stream) => break stream,
            Err(error) => assert!(began.elapsed() < LIMIT, "{error}"),
        }
    };
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    let (_, body) = reply.split_once("\r\n\r\n").unwrap();
    let samples = weft_testkit::samples(body);
    let sent = samples.iter().find(|(name, labels, _)| {
        name == "weft_vpc_transport_total" && labels["event"] == "data_sent"
    });
    assert_eq!(sent.expect("counted").2, 0.0);
}

#[test]
fn errors_name_the_cause() {
    let nobody = weft(&["vpc", "--control", "/nowhere/vpc.sock", "status"]);
    let error = said(&nobody.stderr);
    assert!(
        error.contains("no daemon at /nowhere/vpc.sock") && error.contains("weft vpc serve"),
        "{error}"
    );
    let missing = weft(&["vpc", "serve", "--config", "/nowhere/vpc.toml"]);
    assert!(said(&missing.stderr).contains("/nowhere/vpc.toml"));
    let serving = Serving::start("twice");
    let config = serving.config.to_str().unwrap();
    let twice = said(&weft(&["vpc", "serve", "--config", config]).stderr);
    assert!(twice.contains("cannot"), "{twice}");
}

#[test]
fn a_trial_loses_nothing_where_a_plain_overlay_does() {
    if !rustix::process::geteuid().is_root() {
        return skip("weft vpc try", "needs root");
    }
    let try_out = |plain: &[&str]| {
        let words = [&["vpc", "try", "--loss", "5%"], plain].concat();
        let ping = ["--", "ping", "-c", "300", "-i", "0.005", "-W", "2", "-q", "192.168.7.2"];
        said(&weft(&[words, ping.to_vec()].concat()).stdout)
    };
    let weft = try_out(&[]);
    assert!(weft.contains(" 0% packet loss"), "{weft}");
    let plain = try_out(&["--plain"]);
    assert!(plain.contains("packet loss") && !plain.contains(" 0% packet loss"), "{plain}");
}
