//! Messages over RDMA from the command line, on Weft's own device: `weft perf --messages` and `weft ping`.
#![allow(clippy::disallowed_methods, reason = "these tests watch programs in real time")]

#[path = "../../weft-rdmacm/tests/programs/library.rs"]
#[expect(dead_code, reason = "programs here load the library by themselves")]
mod library;

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::Ipv4Addr;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;
use weft_lab::{Direction, Impairment, Lab, LabSpec};
// The archives are made with the libraries.
use {weft_rdmacm as _, weft_verbs as _};

use library::LIBRARY;

/// Returns the command on Weft's device.
fn weft(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weft"));
    command.args(words).args(["--device", "weft", "--libraries"]).arg(&*LIBRARY);
    command
}

/// A server that is ended with the test.
struct Server {
    child: Child,
    at: String,
}

impl Server {
    fn start(words: &[&str]) -> Self {
        Self::started(|command| command.spawn().unwrap(), words)
    }

    fn started(spawn: impl FnOnce(&mut Command) -> Child, words: &[&str]) -> Self {
        let mut command = weft(words);
        let mut child = spawn(command.stdout(Stdio::piped()));
        let line = BufReader::new(child.stdout.take().unwrap()).lines().next().unwrap().unwrap();
        let at = line.split([' ', ';']).find(|word| word.contains(':')).unwrap().to_owned();
        Self { child, at }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn output_text(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    format!("{}{}", String::from_utf8_lossy(out), String::from_utf8_lossy(err))
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", output_text(output)))
}

#[test]
fn every_flow_model_is_measured() {
    let server = Server::start(&["perf", "server", "--messages", "--listen", "127.0.0.1:0"]);
    let common =
        ["perf", "client", &server.at, &server.at, "--messages", "--duration", "300ms", "--json"];
    for (model, classes) in [
        ("ping-pong", &["round trip"][..]),
        ("bulk", &["transfer"]),
        ("elephants-mice", &["elephants", "mice"]),
        ("incast", &["answer", "round"]),
        ("rpc-mix", &["to 4 KiB"]),
    ] {
        let output = weft(&common).args(["--model", model]).output().unwrap();
        assert!(output.status.success(), "{model}: {}", output_text(&output));
        assert!(
            output_text(&output).contains("on Weft's own RDMA device"),
            "{}",
            output_text(&output)
        );
        let report = json(&output);
        assert_eq!(report["model"], model);
        assert_eq!((&report["unanswered"], &report["refused"]), (&0.into(), &0.into()), "{report}");
        assert!(report["goodput_bps"].as_f64().unwrap() > 0.0, "{report}");
        for class in classes {
            let found =
                report["classes"].as_array().unwrap().iter().find(|row| row["name"] == *class);
            let latency = &found.unwrap()["latency_us"];
            assert!(latency["count"].as_u64().unwrap() > 0, "{model}, {class}: {report}");
            let [least, most] = ["min", "max"].map(|key| latency[key].as_f64().unwrap());
            assert!(least > 0.2 && least < most, "{report}");
        }
    }
    let output = weft(&common).args(["--trace-every", "1"]).output().unwrap();
    let report = json(&output);
    let traced = report["traced"].as_array().unwrap();
    assert_eq!(traced.len(), 3, "{report}");
    assert_eq!(traced[0]["latency_us"]["count"], report["calls"], "{report}");
}

#[test]
fn errors_name_the_wrong_option() {
    for (words, want) in [
        (&["127.0.0.1:1", "--messages"][..], "nobody listens there"),
        (&["127.0.0.1:1", "--messages", "--model", "pingpong"], "ping-pong"),
        (&["127.0.0.1:1", "--messages", "--sizes", "google-rcp"], "google-rpc"),
        (&["127.0.0.1:1", "--messages", "--message-set", "depht=3"], "depth"),
        (&["127.0.0.1:1", "--messages", "--rate", "0"], "--rate 0"),
        (&["127.0.0.1:1", "127.0.0.1:2"], "several servers are for --messages"),
    ] {
        let output = weft(&[&["perf", "client"], words].concat()).output().unwrap();
        assert!(
            !output.status.success() && output_text(&output).contains(want),
            "{}",
            output_text(&output)
        );
    }
}

#[test]
fn hosts_ping_each_other_and_a_silent_host_is_named() {
    let serve = ["ping", "serve", "--listen", "127.0.0.1:0"];
    let servers: Vec<Server> = (0..3).map(|_| Server::start(&serve)).collect();
    let mut at: Vec<&str> = servers.iter().map(|server| server.at.as_str()).collect();
    let ping =
        |at: &[&str]| weft(&[&["ping", "--count", "7", "--json"], at].concat()).output().unwrap();
    let output = ping(&at);
    assert!(output.status.success(), "{}", output_text(&output));
    let report = json(&output);
    let pairs = report["pairs"].as_array().unwrap();
    assert_eq!((pairs.len(), &report["unreachable"]), (6, &Value::Array(Vec::new())));
    assert!(pairs.iter().all(|pair| pair["answered"] == 7 && pair["lost"] == 0), "{report}");
    let least = |pair: &Value| pair["round_trip_us"]["min"].as_f64().unwrap();
    assert!(pairs.iter().all(|pair| least(pair) > 0.2), "{report}");
    // No server listens there; the matrix then has a column of losses, and names the host.
    at.push("127.0.0.1:1");
    let output = ping(&at);
    assert_eq!(output.status.code(), Some(1), "{}", output_text(&output));
    let report = json(&output);
    assert_eq!(report["unreachable"][0]["host"], "127.0.0.1:1");
    let to_nobody = |pair: &&Value| pair["to"] == "127.0.0.1:1" && pair["lost"] == 7;
    assert_eq!(report["pairs"].as_array().unwrap().iter().filter(to_nobody).count(), 3, "{report}");
    let text = weft(&[&["ping"], at.as_slice()].concat()).output().unwrap();
    let text = output_text(&text);
    assert!(
        text.contains("127.0.0.1:1 did not ping: ") && text.contains("nobody listens"),
        "{text}"
    );
    assert!(!text.contains('\x1b'), "no colours for a pipe: {text}");
}

/// Writes a file with a new token, and returns its path.
fn token(name: &str) -> String {
    let path = std::env::temp_dir().join(format!("weft-ping-{}-{name}", std::process::id()));
    let _ = fs::remove_file(&path);
    let path = path.to_str().unwrap().to_owned();
    let made = Command::new(env!("CARGO_BIN_EXE_weft")).args(["adm", "token", &path]).output();
    assert!(made.unwrap().status.success());
    path
}

/// The attacker: any host that reaches a server, and wants it to send packets to a target.
#[test]
fn no_host_pings_others_without_its_token() {
    let (ours, other) = (token("ours"), token("other"));
    let serve = ["ping", "serve", "--listen"];
    let exposed = Server::start(&[&serve[..], &["0.0.0.0:0"]].concat());
    let guarded = Server::start(&[&serve[..], &["127.0.0.1:0", "--token-file", &ours]].concat());
    let exposed = exposed.at.replace("0.0.0.0", "127.0.0.1");
    for (words, want) in [
        (&[&*guarded.at, "127.0.0.1:1"][..], "that is not the token that it was given"),
        (&[&*guarded.at, "127.0.0.1:1", "--token-file", &other], "that is not the token"),
        (&[&*exposed, "127.0.0.1:1"], "it has no token, and other hosts reach it"),
        (&[&*exposed, "127.0.0.1:1", "--token-file", &ours], "start it with --token-file"),
    ] {
        let output = weft(&[&["ping", "--count", "1"], words].concat()).output().unwrap();
        assert!(
            !output.status.success() && output_text(&output).contains(want),
            "{}",
            output_text(&output)
        );
    }
    let words = ["ping", "--count", "1", &guarded.at, "127.0.0.1:1", "--token-file", &ours];
    let text = output_text(&weft(&words).output().unwrap());
    assert!(!text.contains("token"), "it pings: {text}");
    [ours, other].iter().for_each(|file| fs::remove_file(file).unwrap());
}

/// The lab has four hosts below two ToRs, each with a server.
#[test]
fn a_dead_cable_and_a_slow_one_show_in_the_matrix() {
    if weft_testkit::lab_is_missing("weft ping in a lab", &[]) {
        return;
    }
    let name = format!("p{}", std::process::id());
    let spec = LabSpec { hosts_per_leaf: 2, spines: 2, ..LabSpec::named(name) };
    let mut lab = Lab::up(&spec).unwrap();
    let hosts = ["h0", "h1", "h2", "h3"];
    let token = token("lab");
    let serve = ["ping", "serve", "--token-file", &token];
    let _servers =
        hosts.map(|host| Server::started(|command| lab.spawn(host, command).unwrap(), &serve));
    let at: Vec<Ipv4Addr> = (0..4).map(|host| lab.fabric().address(host)).collect();
    let file = std::env::temp_dir().join(format!("weft-ping-{}.toml", std::process::id()));
    let text =
        format!("[tor]\nleaf0 = ['{}', '{}']\nleaf1 = ['{}', '{}']\n", at[0], at[1], at[2], at[3]);
    fs::write(&file, text).unwrap();
    let ping = |lab: &Lab, words: &[&str]| {
        let mut command = weft(&["ping", "--file", file.to_str().unwrap(), "--json"]);
        command.args(["--token-file", &token]);
        command.args(words).stdout(Stdio::piped()).stderr(Stdio::piped());
        lab.spawn("h0", &mut command).unwrap().wait_with_output().unwrap()
    };
    let output = ping(&lab, &["--count", "10"]);
    assert!(output.status.success(), "{}", output_text(&output));
    let report = json(&output);
    let pairs = report["pairs"].as_array().unwrap();
    assert_eq!(pairs.len(), 12);
    assert!(pairs.iter().all(|pair| pair["lost"] == 0), "{report}");
    assert_eq!((&pairs[1]["from_tor"], &pairs[1]["to_tor"]), (&"leaf0".into(), &"leaf1".into()));
    let dead = Impairment { black_hole: true, ..Impairment::default() };
    lab.impair("h3-l1", Direction::Both, &dead).unwrap();
    let output = ping(&lab, &["--count", "2", "--timeout", "200ms"]);
    assert_eq!(output.status.code(), Some(1), "{}", output_text(&output));
    let report = json(&output);
    let gone = at[3].to_string();
    assert_eq!(report["unreachable"][0]["host"], gone, "{report}");
    for pair in report["pairs"].as_array().unwrap() {
        let cut = pair["to"] == gone;
        let from_gone = pair["from"] == gone;
        assert!(from_gone || cut == (pair["lost"] == 2), "{pair}");
        assert!(!cut || from_gone || pair["outlier"] == true, "{pair}");
    }
    [file.to_str().unwrap(), &token].iter().for_each(|file| fs::remove_file(file).unwrap());
}
