//! Jobs announced to a running controller, and the refusal of those that cannot be planned.

use std::fs::Permissions;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;

use serde_json::Value;

use crate::programs::{Controller, is_missing, lab, until, weft};

/// A file that is removed with the test.
pub(crate) struct File(PathBuf);

impl File {
    pub(crate) fn new(name: &str, text: &str) -> Self {
        let name = format!("announce-{}-{name}", std::process::id());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::write(&path, text).unwrap();
        // Some files are tokens, which other users must not read.
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Runs `weft route WORDS` against this controller.
fn ask(page: &str, words: &[&str]) -> Output {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("weft"));
    command.arg("route").args(words).args(["--controller", page]).output().unwrap()
}

fn answer(page: &str, words: &[&str]) -> Value {
    let output = ask(page, &[words, &["--json"]].concat());
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn refusal(page: &str, words: &[&str]) -> String {
    let output = ask(page, words);
    assert!(!output.status.success(), "{words:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// Returns the spine of each queue pair's path.
fn spines(planned: &Value) -> Vec<String> {
    let rows = planned["queue_pairs"].as_array().unwrap();
    let path = |row: &Value| {
        assert_eq!(row["path"].as_array().map(Vec::len), Some(3), "{row}");
        row["path"][1].as_str().unwrap().to_owned()
    };
    rows.iter().map(path).collect()
}

#[test]
fn a_jobs_ports_are_planned_beside_other_jobs_and_survive_a_restart() {
    if is_missing("ports of announced jobs") {
        return;
    }
    let lab = lab("an");
    let token = File::new("token", "a-secret-of-this-test\n");
    let wrong = File::new("wrong", "a-guess-at-the-secret\n");
    let mut controller = Controller::with(&lab, "first", Some(token.path()));
    until("the first steers", || controller.picture()["steers"] == true);
    let with = |words: &[&str]| -> Vec<String> {
        words.iter().copied().chain(["--token-file", token.path()]).map(str::to_owned).collect()
    };
    fn words(of: &[String]) -> Vec<&str> {
        of.iter().map(String::as_str).collect()
    }

    // Source and destination are enough, and two flows that one link cannot carry take different links.
    let pairs = "source,destination\n10.1.0.2,10.2.0.2\n10.1.1.2,10.2.1.2\n";
    let pairs = File::new("pairs.csv", pairs);
    let table = File::new("table.csv", "");
    let first =
        with(&["announce", "job/1", pairs.path(), "--rate", "6Gbps", "--csv", table.path()]);
    let planned = answer(&controller.page, &words(&first));
    let both = spines(&planned);
    assert_ne!(both[0], both[1], "{planned}");
    // The planned paths are those that the routers take.
    for (row, spine) in planned["queue_pairs"].as_array().unwrap().iter().zip(&both) {
        let text = |what: &str| row[what].as_str().unwrap();
        let flow =
            format!("{}:{}>{}:4791/udp", text("source"), row["source_port"], text("destination"));
        let explained = weft(&["route", "explain", &flow, "--lab", lab.name()]);
        assert!(explained.contains(&format!("→ {spine}")), "{explained}");
    }
    // The written table can be announced again, and keeps its ports.
    let again = with(&["announce", "job/1", table.path(), "--rate", "6Gbps"]);
    let again = answer(&controller.page, &words(&again));
    assert_eq!((again["kept"].as_u64(), spines(&again)), (Some(2), both.clone()));

    // Another job takes links with more free capacity, although the first one's load was not measured; so does a job
    // after a restart.
    let one = "source,destination,source_port\n10.1.0.2,10.2.0.2,\n";
    let one = File::new("one.csv", one);
    let half = with(&["announce", "half", one.path(), "--rate", "1Gbps"]);
    let half = spines(&answer(&controller.page, &words(&half))).remove(0);
    controller = controller.restarted(&lab);
    until("it steers again", || controller.picture()["steers"] == true);
    let status = answer(&controller.page, &["status"]);
    let names = |status: &Value| -> Vec<String> {
        let jobs = status["jobs"].as_array().unwrap();
        jobs.iter().map(|job| job["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&status), ["half", "job/1"]);
    let other = with(&["announce", "other", one.path(), "--rate", "1Gbps"]);
    assert_ne!(spines(&answer(&controller.page, &words(&other))), [half]);
    let text = String::from_utf8(ask(&controller.page, &["status"]).stdout).unwrap();
    for wanted in ["steers", "alarms: none", "job/1", "12Gbps", "not seen yet", "nothing was moved"]
    {
        assert!(text.contains(wanted), "{wanted:?} is not in\n{text}");
    }
    until("metrics count four flows", || {
        controller.get("/metrics").contains("weft_route_job_flows{begun=\"false\"} 4")
    });

    // A controller that only watches names the one that steers.
    let second = Controller::with(&lab, "second", Some(token.path()));
    let holder = controller.picture()["holder"].as_str().unwrap().to_owned();
    until("the second watches", || second.picture()["other"] == holder.as_str());
    let said = refusal(&second.page, &words(&first));
    assert!(said.contains(&format!("does not steer: {holder} does")), "{said}");

    for (page, words, wanted) in [
        (&controller.page, vec!["withdraw", "half"], "not the token"),
        (
            &controller.page,
            vec!["withdraw", "half", "--token-file", wrong.path()],
            "not the token that `weft route serve` was given",
        ),
    ] {
        let said = refusal(page, &words);
        assert!(said.contains(wanted), "{said}");
    }
    let withdrawn = answer(&controller.page, &words(&with(&["withdraw", "half"])));
    assert_eq!(withdrawn["flows"], 1);
    let unknown = refusal(&controller.page, &words(&with(&["withdraw", "half"])));
    assert!(unknown.contains("no job \"half\"; there are job/1, other"), "{unknown}");

    hostile(&controller, &token);
}

/// Sends requests that must be refused by name, and checks that the controller continues.
fn hostile(controller: &Controller, token: &File) {
    for (table, wanted) in [
        ("", "no column \"source\""),
        ("source,destination\n10.1.0.2", "line 2: \"\" is no address"),
        ("source,destination\n9.9.9.9,10.2.0.2\n", "9.9.9.9 is no host of the fabric"),
        ("source,destination\n10.1.0.2,9.9.9.9\n", "has no route for it"),
        ("source,destination\n", "a job without flows"),
        ("source,destination,nic_port\n10.1.0.2,10.2.0.2,7\n", "has 1 cables, and no nic_port 7"),
        ("{\"queue_pairs\": [{}]}", "missing field"),
        ("{\"queue_pairs\": 7}", "invalid type"),
        ("\"", "a quotation mark is not closed"),
    ] {
        let file = File::new("hostile.csv", table);
        let said = refusal(
            &controller.page,
            &["announce", "hostile", file.path(), "--token-file", token.path()],
        );
        assert!(said.contains(wanted), "{table:?}: {said}");
    }
    let file = File::new("fine.csv", "source,destination\n10.1.0.2,10.2.0.2\n");
    let name = ["announce", "a\nb", file.path(), "--token-file", token.path()];
    assert!(refusal(&controller.page, &name).contains("is no job's name"));
    // The request goes to the server without the command.
    for (head, body, status) in [
        ("POST /v1/jobs?job=x HTTP/1.0", "", "403 or 401"),
        (
            "POST /v1/jobs?job=x HTTP/1.0\r\nAuthorization: Bearer a-secret-of-this-test",
            "\u{1}\u{2}",
            "400",
        ),
        (
            "POST /v1/jobs HTTP/1.0\r\nAuthorization: Bearer a-secret-of-this-test",
            "source,destination\n",
            "400",
        ),
        (
            "POST /v1/jobs?job=x&rate=0 HTTP/1.0\r\nAuthorization: Bearer a-secret-of-this-test",
            "source,destination\n",
            "400",
        ),
        ("POST /v1/elsewhere HTTP/1.0\r\nAuthorization: Bearer a-secret-of-this-test", "", "404"),
        ("POST /v1/ports?job=x&source=10.1.0.2 HTTP/1.0", "", "403 or 401"),
        (
            "POST /v1/ports?job=x&source=10.1.0.2 HTTP/1.0\r\nAuthorization: Bearer a-secret-of-this-test",
            "",
            "404",
        ),
        (
            "POST /v1/ports?job=x&source=h0 HTTP/1.0\r\nAuthorization: Bearer a-secret-of-this-test",
            "",
            "400",
        ),
        ("POST /v1/order HTTP/1.0", "10.1.0.2\n", "403 or 401"),
        (
            "POST /v1/order HTTP/1.0\r\nAuthorization: Bearer a-secret-of-this-test",
            "10.1.0.2\nh0\n",
            "400",
        ),
        ("POST /v1/order HTTP/1.0\r\nAuthorization: Bearer a-secret-of-this-test", "", "400"),
    ] {
        let mut stream = std::net::TcpStream::connect(&controller.page).unwrap();
        let length = body.len();
        let request = format!("{head}\r\nContent-Length: {length}\r\n\r\n{body}");
        stream.write_all(request.as_bytes()).unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).unwrap();
        let got = said.split(' ').nth(1).unwrap();
        assert!(status.contains(got), "{head}: {said}");
    }
    assert_eq!(controller.picture()["steers"], true);
}

#[test]
fn a_controller_that_is_not_there_or_hangs_up_is_named() {
    let table = File::new("nobody.csv", "source,destination\n10.1.0.2,10.2.0.2\n");
    let announce = ["announce", "x", table.path()];
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let page = listener.local_addr().unwrap().to_string();
    let half = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut some = [0; 64];
        stream.read_exact(&mut some).unwrap();
        // The server closes the connection in the middle of its response.
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{\"job\"").unwrap();
    });
    let said = refusal(&page, &announce);
    assert!(said.contains("hung up before it had answered"), "{said}");
    half.join().unwrap();
    for words in [&announce[..], &["withdraw", "x"], &["status"]] {
        let said = refusal(&page, words);
        assert!(said.contains("is `weft route serve` running there?"), "{said}");
    }
    let said = refusal(&page, &["announce", "x", "/no/such/table"]);
    assert!(said.contains("cannot read /no/such/table"), "{said}");
}
