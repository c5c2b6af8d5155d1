//! `weft route` on the routers of a lab: commands, the controller, its page. Without root or a tool the tests
//! report that they were skipped, and why.
#![allow(clippy::disallowed_methods, reason = "these tests watch programs in real time")]

mod announce;
mod cluster;
mod probes;
mod programs;
mod tls;

use std::io::{BufRead, BufReader, Write};
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::thread;

use programs::{Controller, Running, Stop, collide, is_missing, lab, until, weft};
use serde_json::{Value, json};
use weft_testkit::{can_run, samples};

#[test]
fn a_flow_is_explained_moved_by_hand_and_moved_back() {
    if is_missing("a flow that is explained and moved") {
        return;
    }
    let lab = lab("rc");
    let name = lab.name();
    let explain = |more: &[&str]| {
        let words = ["route", "explain", "10.1.0.2:50000>10.2.0.2:4791/udp", "--lab", name];
        weft(&[&words[..], more].concat())
    };
    let text = explain(&[]);
    for wanted in ["l0", "10.2.0.0/16", "hash-threshold, hash ", "→ s", "50.00 %", "10.2.0.2"] {
        assert!(text.contains(wanted), "{wanted:?} is not in\n{text}");
    }
    let json: Value = serde_json::from_str(&explain(&["--json"])).unwrap();
    assert_eq!(
        (json["arrives"].as_bool(), json["hops"].as_array().map(Vec::len)),
        (Some(true), Some(3))
    );
    let taken = |json: &Value| json["hops"][0]["takes"].as_str().unwrap().to_owned();
    let (before, other) = (taken(&json), if taken(&json).contains(" s0 ") { "s1" } else { "s0" });

    let moved = ["route", "move", "l0", "10.2.0.2", "--by", other, "--lab", name];
    let dry = weft(&[&moved[..], &["--dry-run"]].concat());
    assert!(
        dry.contains("would run:\n  ip route replace 10.2.0.2/32 proto 200 via 10.100."),
        "{dry}"
    );
    assert_eq!(taken(&serde_json::from_str(&explain(&["--json"])).unwrap()), before);
    weft(&moved);
    let after = explain(&["--json"]);
    assert!(
        taken(&serde_json::from_str(&after).unwrap()).contains(&format!("l0 {other} →")),
        "{after}"
    );

    // Tables written to a file give the same explanation, without the routers.
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("installed.toml");
    std::fs::write(&file, weft(&["route", "tables", "--lab", name])).unwrap();
    let flow = "10.1.0.2:50000>10.2.0.2:4791/udp";
    let from_file =
        weft(&["route", "explain", flow, "--installed", file.to_str().unwrap(), "--json"]);
    assert_eq!(from_file, after);

    weft(&["route", "move", "l0", "10.2.0.2", "--back", "--lab", name]);
    assert_eq!(taken(&serde_json::from_str(&explain(&["--json"])).unwrap()), before);
}

#[test]
fn a_collision_is_moved_apart_while_a_browser_and_a_second_controller_watch() {
    let missing = is_missing("a collision that is moved while a browser watches")
        || !can_run("the page", "/usr/bin/python3", &["-c", "import selenium"], "python3-selenium")
        || !can_run("the page", "chromedriver", &["--version"], "chromium-driver");
    if missing {
        return;
    }
    let lab = lab("rp");
    let controller = Controller::serve(&lab, "first");
    let second = Controller::serve(&lab, "second");
    let mut agent = Command::new(assert_cmd::cargo::cargo_bin!("weft"));
    agent.args(["route", "agent", "--rate", "8", "--counters", "150ms", "--lab", lab.name()]);
    agent.args(["--collector", &controller.sflow]).stdout(Stdio::null());
    let _agent = Running(agent.spawn().unwrap());

    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/route/page.py");
    let pictures = Path::new(env!("CARGO_TARGET_TMPDIR")).join("route-page");
    std::fs::create_dir_all(&pictures).unwrap();
    let mut browser = Command::new("/usr/bin/python3");
    browser.arg(script).arg(format!("http://{}/", controller.page)).arg(&pictures);
    let mut browser =
        Running(browser.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
    let mut input = browser.0.stdin.take().unwrap();
    let mut lines = BufReader::new(browser.0.stdout.take().unwrap()).lines();
    let mut says = |want: &str| {
        let line = lines.next().expect("it goes on").unwrap();
        assert_eq!(line, want);
    };
    says("shows the fabric");
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let ended = Stop(&stop);
        collide(&lab, scope, &stop);
        writeln!(input, "now").unwrap();
        says("shows the move");
        drop(ended);
    });
    let picture = controller.picture();
    assert_eq!(picture["moves"][0]["router"], "l0", "{picture}");
    let text = controller.get("/metrics");
    let value = |name: &str, what: &str| {
        let samples = samples(&text);
        let found =
            samples.iter().find(|it| it.0 == name && (what.is_empty() || it.1["what"] == what));
        found.map(|it| it.2)
    };
    assert_eq!(value("weft_route_steers", ""), Some(1.0), "{text}");
    assert!(value("weft_route_events_total", "kept") >= Some(1.0), "{text}");
    // A lab marks by packet filters, which no queue counts.
    assert_eq!(value("weft_route_link_marks_exact", ""), Some(0.0), "{text}");
    let status = weft(&["route", "status", "--controller", &controller.page]);
    assert!(status.contains("marks by port: 0 counted by the queue, "), "{status}");

    // The second controller watched, and takes over when the first one ends.
    let watching = second.picture();
    assert_eq!(watching["steers"], false);
    assert_eq!(watching["other"], picture["holder"], "{watching}");
    drop(controller);
    writeln!(input, "gone").unwrap();
    says("says that nobody answers");
    says("asked nobody else, and had nothing to complain of");
    assert!(browser.0.wait().unwrap().success());
    until("the second controller steers", || second.picture()["steers"] == true);
    until("it knows the move", || second.picture()["moves"][0]["router"] == "l0");
}

/// The attacker: a host that is no router of the fabric, and sends sFlow like one.
#[test]
fn sflow_of_unknown_senders_is_refused_and_shown() {
    if is_missing("sFlow of an unknown agent") {
        return;
    }
    let lab = lab("rf");
    let controller = Controller::serve(&lab, "refusing");
    let port = controller.sflow.rsplit(':').next().unwrap();
    // A lab's agents send from 127.0.0.1.
    let forger = UdpSocket::bind("127.0.0.66:0").unwrap();
    for _ in 0..3 {
        forger.send_to(b"what is in it does not matter", format!("127.0.0.1:{port}")).unwrap();
    }
    until("they are refused", || controller.picture()["heard"]["refused"] == 3);
    let picture = controller.picture();
    let want = json!([{ "source": "127.0.0.66", "datagrams": 3 }]);
    assert_eq!((&picture["refused"], &picture["heard"]["malformed"]), (&want, &json!(0)));
    let text = weft(&["route", "status", "--controller", &controller.page]);
    for wanted in ["3 refused", "refused sFlow came from 127.0.0.66 (3)"] {
        assert!(text.contains(wanted), "{wanted:?} is not in\n{text}");
    }
    let metric = "weft_route_sflow_total{kind=\"refused\"} 3";
    assert!(controller.get("/metrics").contains(metric), "{}", controller.get("/metrics"));
}

/// Programs that read the log as JSON read all of it.
#[test]
fn every_line_of_the_agents_json_log_is_an_object_to_its_end() {
    if is_missing("the JSON log of an agent") {
        return;
    }
    let lab = lab("rj");
    let mut agent = Command::new(assert_cmd::cargo::cargo_bin!("weft"));
    agent.args(["route", "agent", "--lab", lab.name(), "--log", "json"]);
    agent.args(["--collector", "127.0.0.1:9"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut agent = Running(agent.spawn().unwrap());
    let mut line = String::new();
    BufReader::new(agent.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("sampling 1 packet"), "{line}");
    let log = BufReader::new(agent.0.stderr.take().unwrap());
    drop(agent);
    let entries: Vec<Value> = log
        .lines()
        .map(|line| line.unwrap())
        .map(|line| serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line:?} is no JSON")))
        .collect();
    let last = entries.last().expect("it logs what it has sent");
    assert_eq!(last["fields"]["message"], "the agent ends", "{last}");
    assert!(last["fields"]["samples"].is_u64() && last["fields"]["unsent"].is_u64(), "{last}");
}

#[test]
fn errors_name_the_cause_and_the_fix() {
    let refused = |words: &[&str]| {
        let output =
            Command::new(assert_cmd::cargo::cargo_bin!("weft")).args(words).output().unwrap();
        assert!(!output.status.success(), "{words:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let flow = "10.1.0.2>10.2.0.2";
    for (words, wanted) in [
        (&["route", "explain", flow][..], "--lab NAME, --config FILE or --installed FILE"),
        (&["route", "explain", "here>there", "--lab", "x"], "is no flow such as"),
        (&["route", "explain", flow, "--lab", "no-such-lab"], "no-such-lab"),
        (
            &["route", "explain", flow, "--installed", "/dev/null"],
            "no port of these tables leads to 10.1.0.2",
        ),
        (&["route", "serve", "--config", "/no/such/file"], "cannot read /no/such/file"),
        (
            &["route", "serve", "--lab", "x", "--page", "0.0.0.0:0"],
            "other hosts reach 0.0.0.0:0, and there is no token",
        ),
        (&["route", "agent"], "--address"),
        (&["route", "move", "l0", "10.2.0.2", "--lab", "x"], "--by"),
    ] {
        let said = refused(words);
        assert!(said.contains(wanted), "{words:?}: {said}");
    }
}
