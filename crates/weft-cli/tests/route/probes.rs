//! Hosts that probe each other with `weft ping paths`, and the lossy link that a controller finds from their reports.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use weft_lab::{Direction, Impairment, Lab, LabSpec};

use crate::programs::{Running, is_missing, until};

const TOKEN: &str = "the-token-of-this-test";

/// A lab of three leaves with a host each and two spines, whose first host also runs a controller: the others reach it
/// over the fabric.
struct Fabric {
    lab: Lab,
    controller: SocketAddr,
    token: PathBuf,
    config: PathBuf,
    _serving: Running,
}

impl Drop for Fabric {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.token);
        let _ = fs::remove_file(&self.config);
    }
}

impl Fabric {
    fn up() -> Self {
        let name = format!("wspp{}", std::process::id());
        let spec = LabSpec { leaves: 3, spines: 2, ..LabSpec::named(&name) };
        let lab = Lab::up(&spec).unwrap();
        let file = |end: &str| Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.{end}"));
        let (token, config) = (file("token"), file("toml"));
        fs::write(&token, TOKEN).unwrap();
        fs::set_permissions(&token, Permissions::from_mode(0o600)).unwrap();
        fs::write(&config, format!("lab = '{name}'\nlisten = '127.0.0.1:0'\nlease = '3s'\n"))
            .unwrap();
        let controller = SocketAddr::from((lab.fabric().address(0), 7490));
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("weft"));
        command
            .args(["route", "serve", "--page", &controller.to_string(), "--config"])
            .arg(&config);
        command.arg("--token-file").arg(&token).stdout(Stdio::null());
        let _serving = Running(lab.spawn("h0", &mut command).unwrap());
        let fabric = Self { lab, controller, token, config, _serving };
        until("the controller steers", || fabric.picture()["steers"] == true);
        fabric
    }

    /// Returns the body of the controller's answer; empty if it does not answer.
    fn get(&self, path: &str) -> String {
        let exchange = || -> std::io::Result<String> {
            let mut stream = TcpStream::connect(self.controller)?;
            let head = format!("GET {path} HTTP/1.0\r\nAuthorization: Bearer {TOKEN}\r\n\r\n");
            stream.write_all(head.as_bytes())?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        };
        let answer = self.lab.enter("h0", exchange).unwrap().unwrap_or_default();
        answer.split_once("\r\n\r\n").map_or_else(String::new, |(_, body)| body.to_owned())
    }

    fn picture(&self) -> Value {
        serde_json::from_str(&self.get("/v1/picture")).unwrap_or_default()
    }

    /// Starts a command on a host, which reaches the controller with the token.
    fn start(&self, host: usize, words: &[&str]) -> Child {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("weft"));
        command.args(words).arg("--token-file").arg(&self.token);
        command.args(["--controller", &self.controller.to_string()]).stdout(Stdio::piped());
        self.lab.spawn(&format!("h{host}"), &mut command).unwrap()
    }
}

#[test]
fn a_lossy_link_is_shown_from_probes_of_programs() {
    if is_missing("probes of programs") {
        return;
    }
    let mut fabric = Fabric::up();
    let hosts = [0, 1, 2].map(|host| fabric.lab.fabric().address(host).to_string());
    let hosts = hosts.each_ref().map(String::as_str);
    let probe = |host: usize| {
        let words = ["ping", "paths", "--ports", "8", "--from", hosts[host]];
        Running(fabric.start(host, &[&words[..], &hosts].concat()))
    };
    let _probers = [0, 1, 2].map(probe);
    until("48 paths are probed", || fabric.picture()["probes"]["paths"] == 48);

    // Answers to host 0, and probes of both other hosts, cross the lossy direction.
    let lossy = Impairment { loss: "30%".parse().unwrap(), ..Impairment::default() };
    fabric.lab.impair("l0-s1", Direction::From("s1".into()), &lossy).unwrap();
    let avoided = || {
        let picture = fabric.picture();
        let suspected = |it: &&Value| it["probes"].as_array().is_some_and(|it| !it.is_empty());
        let links = picture["links"].as_array().into_iter().flatten().filter(suspected);
        let links = links
            .map(|it| (it["from"].clone(), it["port"].clone(), it["probes"][0]["avoided"].clone()));
        links.collect::<Vec<_>>()
    };
    let want = [("s1".into(), "l0".into(), true.into())];
    until("the alarm", || avoided() == want);
    let metrics = fabric.get("/metrics");
    let alarm = "weft_route_link_probe_alarm{router=\"s1\",port=\"l0\",to=\"l0\",fault=\"loss\"} 2";
    assert!(metrics.contains(alarm), "{metrics}");
    let output = fabric.start(1, &["route", "status"]).wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("s1 l0 → l0 (probes: ") && text.contains("avoided by jobs"), "{text}");
}
