//! A controller whose configuration has TLS, and the commands that show it a certificate.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use weft_testkit::{Authority, Issued, Validity};

use crate::programs::{Running, is_missing, lab, until};

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn jobs_are_announced_with_a_certificate_and_without_a_token() {
    if is_missing("jobs announced over TLS") {
        return;
    }
    let lab = lab("rt");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(lab.name());
    let authority = Authority::new(&folder, "authority");
    let Issued { certificate, key } = authority.issue("server", &["127.0.0.1"], Validity::Current);
    let ca = text(&authority.certificate);
    let config = folder.join("route.toml");
    let tls = format!(
        "tls = {{ certificate = '{}', key = '{}', clients = '{ca}' }}",
        text(&certificate),
        text(&key)
    );
    let lines = format!("listen = '127.0.0.1:0'\nlab = '{}'\nlease = '3s'\n{tls}\n", lab.name());
    std::fs::write(&config, lines).unwrap();
    let weft = || Command::new(assert_cmd::cargo::cargo_bin!("weft"));
    let mut serve = weft();
    serve.args(["route", "serve", "--page", "127.0.0.1:0", "--json", "--config"]).arg(&config);
    let mut child = serve.env("WEFT_LOG", "warn").stdout(Stdio::piped()).spawn().unwrap();
    let out = child.stdout.take().unwrap();
    let _running = Running(child);
    let said: Value =
        serde_json::Deserializer::from_reader(out).into_iter().next().unwrap().unwrap();
    let url = format!("https://{}", said["page"].as_str().unwrap());

    let table = folder.join("pairs.csv");
    std::fs::write(&table, "source,destination\n10.1.0.2,10.2.0.2\n").unwrap();
    let client = authority.issue("client", &[], Validity::Current);
    let shown = ["--certificate", text(&client.certificate), "--key", text(&client.key)];
    let ask = |words: &[&str], shown: &[&str]| {
        let mut command = weft();
        command.arg("route").args(words).args(["--controller", &url, "--ca", ca, "--json"]);
        command.args(shown).output().unwrap()
    };
    let announce = ["announce", "job", text(&table)];
    let refused = ask(&announce, &[]);
    let words = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && words.contains("--certificate and --key"), "{words}");
    let answer = |words: &[&str]| -> Value {
        let output = ask(words, &shown);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    until("it steers", || answer(&["status"])["steers"] == true);
    assert_eq!(answer(&announce)["flows"], 1);
    until("the job is shown", || answer(&["status"])["jobs"][0]["name"] == "job");
    assert_eq!(answer(&["withdraw", "job"])["flows"], 1);
    std::fs::remove_dir_all(&folder).unwrap();
}
