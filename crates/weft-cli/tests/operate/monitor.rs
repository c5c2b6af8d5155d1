//! `weft monitor`: agents, the collector, metrics.

use std::fs::{DirBuilder, Permissions};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::process::{Command, Stdio};

use serde_json::Value;
use weft_testkit::{can_run, samples};

use crate::programs::{Folder, Running, Server, said, until};

/// A `weft monitor` that has printed its address.
pub(crate) struct Monitor {
    pub(crate) running: Running,
    pub(crate) at: String,
}

impl Monitor {
    pub(crate) fn agent(folder: &Folder, words: &[&str]) -> Self {
        Self::start(folder, &[&["agent", "--every", "100ms"], words].concat())
    }

    pub(crate) fn serve(folder: &Folder, words: &[&str]) -> Self {
        let words =
            [&["serve", "--listen", "127.0.0.1:0", "--every", "100ms", "--keep", "30s"], words]
                .concat();
        Self::start(folder, &words)
    }

    fn start(folder: &Folder, words: &[&str]) -> Self {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("weft"));
        command.arg("monitor").args(words).arg("--json").env("WEFT_STAT", folder.path());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let out = child.stdout.take().unwrap();
        let running = Running(child);
        let said: Value =
            serde_json::Deserializer::from_reader(out).into_iter().next().unwrap().unwrap();
        Self { running, at: said["listening"].as_str().unwrap().to_owned() }
    }

    /// Returns the head and the body of its response.
    pub(crate) fn ask(&self, request: &str) -> (String, String) {
        let mut stream = TcpStream::connect(&self.at).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.to_owned(), body.to_owned())
    }

    pub(crate) fn get(&self, path: &str) -> String {
        let (head, body) = self.ask(&format!("GET {path} HTTP/1.0\r\n\r\n"));
        assert!(head.starts_with("HTTP/1.0 200"), "{path}: {head}");
        body
    }

    fn picture(&self) -> Value {
        serde_json::from_str(&self.get("/v1/picture")).unwrap()
    }

    /// Returns the metrics as Prometheus' own parser reads them: name, labels, value of each sample.
    fn samples(&self) -> Vec<(String, Value, f64)> {
        samples(&self.get("/metrics"))
    }
}

fn value(samples: &[(String, Value, f64)], name: &str, program: &str) -> Option<f64> {
    let is_it =
        |(of, labels, _): &&(String, Value, f64)| of == name && labels["program"] == program;
    samples.iter().find(is_it).map(|(.., value)| *value)
}

#[test]
fn prometheus_reads_the_metrics_of_an_agent() {
    let parser = &["-c", "import prometheus_client.openmetrics.parser"];
    if !can_run("metrics of an agent", "/usr/bin/python3", parser, "python3-prometheus-client") {
        return;
    }
    let folder = Folder::new("metrics");
    let server = folder.server("watched_store");
    let echo = folder.server("watched_ping");
    let client = folder.traffic(&echo.at());
    let agent = Monitor::agent(&folder, &["--listen", "127.0.0.1:0"]);
    let sent = |least: f64| {
        until("messages that are counted", || {
            let samples = agent.samples();
            let sent = value(&samples, "weft_messages_sent_total", "watched_ping")?;
            // Two programs have that name; the first of them may have just begun.
            let registered = value(&samples, "weft_memory_registered_bytes", "watched_ping")?;
            (sent > least && registered > 100_000.0).then_some((samples, sent))
        })
    };
    let (_, first) = sent(0.0);
    let (samples, _) = sent(first);
    assert_eq!(value(&samples, "weft_node", "watched_store"), Some(1.0));
    assert_eq!(value(&samples, "weft_channels_begun_total", "watched_store"), Some(0.0));
    // Of both ends of the ping-pong only one makes calls.
    let all: f64 = samples
        .iter()
        .filter(|(name, labels, _)| name == "weft_call_seconds_bucket" && labels["le"] == "+Inf")
        .map(|(.., count)| count)
        .sum();
    let counted: f64 = samples
        .iter()
        .filter(|(name, ..)| name == "weft_call_seconds_count")
        .map(|(.., n)| n)
        .sum();
    assert!(all > 0.0 && all == counted, "{all} {counted}");
    // A channel's counters stay in the totals after its end.
    drop(client);
    let end = until("the channel's end", || {
        let samples = agent.samples();
        let channels = |(name, ..): &(String, Value, f64)| name == "weft_channels";
        (!samples.iter().any(channels)).then_some(samples)
    });
    assert!(value(&end, "weft_messages_sent_total", "watched_ping").unwrap() > first);
    drop(server);
}

#[test]
fn death_and_orderly_end_of_a_program_are_distinguished() {
    let folder = Folder::new("endings");
    let mut killed = folder.server("watched_store");
    let store = folder.server("watched_store");
    let monitor = Monitor::serve(&folder, &[]);
    let events = |kind: &str, pid: u64| {
        let picture = monitor.picture();
        let mut events = picture["events"].as_array().unwrap().iter();
        events.any(|event| event["kind"] == kind && event["pid"] == pid)
    };
    until("who is there", || events("began", killed.pid()).then_some(()));
    let mut client = folder.command("watched_client", &[&store.at()]);
    client.stdin(Stdio::piped()).stdout(Stdio::null());
    let mut client = Running(client.spawn().unwrap());
    let pid = client.0.id().into();
    until("the client", || {
        // It publishes its state between commands.
        writeln!(client.0.stdin.as_ref()?, "get nothing").unwrap();
        events("opened", pid).then_some(())
    });
    killed.running.kill();
    until("the death", || events("died", killed.pid()).then_some(()));
    // The end of its input.
    drop(client.0.stdin.take());
    assert!(client.0.wait().unwrap().success());
    until("the end", || events("ended", pid).then_some(()));
    assert!(!events("died", pid) && !events("ended", killed.pid()));
    until("the peer's end", || events("closed", store.pid()).then_some(()));
}

#[test]
fn orders_need_the_token_that_the_agent_was_given() {
    let folder = Folder::new("token");
    let _server = folder.server("watched_store");
    let token = |name: &str| {
        let path = folder.path().join(name).to_str().unwrap().to_owned();
        let made = folder.weft(&["adm", "token", &path]);
        assert!(made.status.success(), "{}", said(&made));
        path
    };
    let (token, other) = (token("token"), token("other"));
    let agent = Monitor::agent(&folder, &["--listen", "127.0.0.1:0", "--token-file", &token]);
    let closed = Monitor::agent(&folder, &["--listen", "127.0.0.1:0"]);
    // The token of its page gives no right to orders.
    let monitor = Monitor::serve(&folder, &["--token-file", &token]);
    let set = |at: &str, more: &[&str]| {
        let words = ["adm", "set", "keepalive", "3s", "--all", "--hosts", at];
        let output = folder.weft(&[&words, more].concat());
        (output.status.code(), said(&output))
    };
    let (code, said) = set(&agent.at, &[]);
    assert!(code == Some(1) && said.contains("not the token"), "{said}");
    let (code, said) = set(&agent.at, &["--token-file", &other]);
    assert!(code == Some(1) && said.contains("not the token"), "{said}");
    let (code, said) = set(&closed.at, &["--token-file", &token]);
    assert!(code == Some(1) && said.contains("takes no orders"), "{said}");
    let (code, said) = set(&monitor.at, &["--token-file", &token]);
    assert!(code == Some(1) && said.contains("nothing is posted there"), "{said}");
    // The command refuses a file that other users may read.
    std::fs::set_permissions(&other, Permissions::from_mode(0o644)).unwrap();
    let (code, said) = set(&agent.at, &["--token-file", &other]);
    assert!(code == Some(1) && said.contains(&format!("chmod 600 {other}")), "{said}");
    let serve = folder.weft(&["monitor", "agent", "--token-file", &other]);
    assert!(!serve.status.success(), "an agent refuses it too");
    let (code, said) = set("127.0.0.1:1", &["--token-file", &token]);
    assert!(code == Some(1) && said.contains("is `weft monitor agent` running there"), "{said}");
    let (code, said) = set(&agent.at, &["--token-file", &token]);
    assert!(code == Some(0) && said.contains("3s") && said.contains(&agent.at), "{said}");
    let got = folder.json(&["adm", "get", "keepalive"]);
    assert_eq!(got[0]["settings"][0]["value"], "3s");
}

#[test]
fn a_matrix_of_pings_needs_the_token_and_is_shown_beside_the_ports() {
    let folder = Folder::new("pings");
    // No program has made it.
    DirBuilder::new().mode(0o700).create(folder.path()).unwrap();
    let file = folder.path().join("token").to_str().unwrap().to_owned();
    let made = folder.weft(&["adm", "token", &file]);
    assert!(made.status.success(), "{}", said(&made));
    let token = std::fs::read_to_string(&file).unwrap();
    let monitor = Monitor::serve(&folder, &["--token-file", &file]);
    let pair = r#"{"from":"10.0.0.1","from_tor":"","to":"10.0.0.2","to_tor":"","answered":9,"lost":1,"loss":0.1,
        "round_trip_us":{"count":9,"min":1.0,"mean":2.0,"p50":2.0,"p90":3.0,"p99":4.0,"p999":5.0,"max":5.0},
        "error":null,"outlier":true}"#;
    let matrix = format!(r#"{{"pairs":[{pair}],"unreachable":[]}}"#);
    let post = |header: &str, body: &str| {
        let length = body.len();
        let request =
            format!("POST /v1/pings HTTP/1.0\r\n{header}Content-Length: {length}\r\n\r\n{body}");
        monitor.ask(&request).0.split(' ').nth(1).unwrap().to_owned()
    };
    let shown = format!("Authorization: Bearer {}\r\n", token.trim());
    assert_eq!(post("", &matrix), "401");
    assert_eq!(post(&shown, "[]"), "400");
    assert!(monitor.picture()["pings"].is_null());
    assert_eq!(post(&shown, &matrix), "200");
    assert_eq!(monitor.picture()["pings"]["pairs"][0]["to"], "10.0.0.2");
    let metrics = until("the counters of the ports", || {
        let metrics = monitor.get("/metrics");
        metrics.contains(r#"port="lo""#).then_some(metrics)
    });
    for line in [
        r#"weft_ping_seconds{from="10.0.0.1",to="10.0.0.2",quantile="0.99"} 0.000004"#,
        r#"weft_ping_loss_ratios{from="10.0.0.1",to="10.0.0.2"} 0.1"#,
        r#"port="lo",kind="drop",counter="rx_dropped""#,
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
}

#[test]
fn invalid_requests_get_errors() {
    let folder = Folder::new("strangers");
    let agent = Monitor::agent(&folder, &["--listen", "127.0.0.1:0"]);
    let status = |request: &str| agent.ask(request).0.split(' ').nth(1).unwrap().to_owned();
    assert_eq!(status("GET / HTTP/1.0\r\n\r\n"), "404", "an agent has no page");
    assert_eq!(status("GET /../../etc/passwd HTTP/1.0\r\n\r\n"), "404");
    assert_eq!(status("DELETE /v1/report HTTP/1.0\r\n\r\n"), "405");
    assert_eq!(status("POST /v1/orders HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}"), "403");
    let long = "x".repeat(100_000);
    let posted =
        format!("POST /v1/orders HTTP/1.0\r\nContent-Length: {}\r\n\r\n{long}", long.len());
    assert_eq!(status(&posted), "413");
    assert_eq!(status("nonsense\r\n\r\n"), "400");
    assert!(agent.get("/metrics").ends_with("# EOF\n"));
}

/// The attacker: a page in a browser on this host, whose site's name was made to point to 127.0.0.1 (DNS rebinding).
#[test]
fn a_page_of_another_site_reads_nothing() {
    let folder = Folder::new("rebinding");
    let agent = Monitor::agent(&folder, &["--listen", "127.0.0.1:0"]);
    let named = ["--listen", "127.0.0.1:0", "--host-name", "watched.example"];
    let named = Monitor::agent(&folder, &named);
    let status = |monitor: &Monitor, host: &str| {
        let request =
            format!("GET /v1/report HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        let (head, body) = monitor.ask(&request);
        (head.split(' ').nth(1).unwrap().to_owned(), body)
    };
    for (monitor, host, want) in [
        (&agent, "evil.example", "421"),
        (&agent, "watched.example", "421"),
        (&named, "evil.example:80", "421"),
        (&named, "watched.example", "200"),
        (&named, "localhost", "200"),
        (&agent, "127.0.0.1", "200"),
    ] {
        let (got, body) = status(monitor, host);
        assert_eq!(got, want, "{host}: {body}");
        assert!(got == "200" || body.contains("--host-name"), "{body}");
    }
}

/// The attacker: any host that reaches the address.
#[test]
fn without_a_token_nothing_listens_where_other_hosts_reach_it() {
    let folder = Folder::new("exposed");
    for words in [&["monitor", "agent"][..], &["monitor", "serve"]] {
        let refused = folder.weft(&[words, &["--listen", "0.0.0.0:0"]].concat());
        let said = said(&refused);
        let fixes = ["other hosts reach 0.0.0.0:0", "--token-file", "--anyone-may-read"];
        assert!(!refused.status.success() && fixes.iter().all(|fix| said.contains(fix)), "{said}");
    }
    let open = Monitor::agent(&folder, &["--listen", "0.0.0.0:0", "--anyone-may-read"]);
    assert!(open.at.starts_with("0.0.0.0:"), "{}", open.at);
}

#[test]
fn two_hosts_are_shown_together_and_a_silent_one_is_named() {
    let folders = ["one", "two"].map(|name| Folder::new(&format!("hosts-{name}")));
    let server = folders[0].server("watched_ping");
    let client = folders[1].traffic(&server.at());
    let mut agents = [("127.0.0.1:0", 0), ("127.0.0.2:0", 1)]
        .map(|(at, host)| Monitor::agent(&folders[host], &["--listen", at]));
    let hosts = format!("{},{}", agents[0].at, agents[1].at);
    let monitor = Monitor::serve(&folders[0], &["--hosts", &hosts]);
    let (from, to) = until("calls between the two", || {
        let picture = monitor.picture();
        let pairs = picture["by_host"].as_array()?.clone();
        let calls = pairs.iter().find(|pair| pair[1]["p99"].is_u64())?;
        assert!(calls[1]["p50"].as_u64() <= calls[1]["p99"].as_u64());
        let host = |end: &str| calls[0][end]["host"].as_str().unwrap().to_owned();
        Some((host("from"), host("to")))
    });
    assert_ne!(from, to, "the client is on another host than the server");
    until("history", || {
        let picture = monitor.picture();
        (picture["by_program"][0][2].as_array()?.len() > 3).then_some(())
    });
    let picture = monitor.picture();
    let talker = &picture["talkers"][0];
    assert_eq!(talker["ends"]["from"]["program"][0], "watched_ping");
    assert!(talker["bytes"].as_f64().unwrap() > 1000.0, "{talker}");
    assert!(monitor.get("/metrics").contains("weft_host_up"));

    agents[0].running.kill();
    until("silence", || {
        let picture = monitor.picture();
        let silent = picture["hosts"].as_array()?.iter().filter(|host| host["silent"].is_string());
        let told = picture["events"].as_array()?.iter().any(|event| event["kind"] == "silent");
        (silent.count() == 1 && told).then_some(())
    });
    let down = format!("weft_host_up{{host=\"{}\"}} 0.0", agents[0].at);
    assert!(monitor.get("/metrics").contains(&down), "{}", monitor.get("/metrics"));
    drop(client);
}

#[test]
fn hosts_are_read_from_a_file_and_its_faults_are_named() {
    let folder = Folder::new("file");
    let server = folder.server("watched_store");
    let agent = Monitor::agent(&folder, &["--listen", "127.0.0.1:0"]);
    let file = folder.path().join("hosts");
    std::fs::write(&file, format!("# ours\n{}  # this one\n\n", agent.at)).unwrap();
    let path = file.to_str().unwrap();
    let monitor = Monitor::serve(&folder, &["--file", path]);
    until("its program", || (monitor.picture()["hosts"][0]["programs"] == 1).then_some(()));
    std::fs::write(&file, "# nobody\n").unwrap();
    let refused = folder.weft(&["monitor", "serve", "--file", path]);
    assert!(said(&refused).contains("names no host"), "{}", said(&refused));
    let taken = folder.weft(&["monitor", "agent", "--listen", &agent.at]);
    assert!(said(&taken).contains("cannot serve HTTP at"), "{}", said(&taken));
    drop::<Server>(server);
}
